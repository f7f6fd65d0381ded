// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/rendezvous.hpp"

#include "bootstrap/handshake.hpp"
#include "bootstrap/tcp.hpp"
#include "support/check.hpp"
#include "support/env.hpp"

#include <sstream>

namespace dcuda::bootstrap {

namespace {

using support::fail;
using support::require;

rendezvous given_rendezvous(const job& own_job, int generation) {
    require(!own_job.secret.empty(), error_code::bootstrap_failure,
            "DCUDA_RENDEZVOUS={} says where the processes of this job meet, but DCUDA_JOB is not set: give all of them "
            "the same 32 random hexadecimal digits, by which they know each other",
            own_job.rendezvous);
    rendezvous result{own_job.rendezvous, own_job.secret};
    if (own_job.index == 0)
        result.listener = generation == 0 && own_job.listen_fd >= 0 ? take_listener(own_job.listen_fd)
                                                                    : listen_tcp(own_job.rendezvous);
    return result;
}

std::vector<std::string> words(const std::string& text) {
    std::istringstream stream(text);
    std::vector<std::string> result;
    for (std::string word; stream >> word;) result.push_back(word);
    return result;
}

// "host address address ..."
std::string describe_host(const std::string& interface) {
    constexpr std::size_t max_addresses = 12; // stores keep short values
    auto addresses = own_addresses(interface);
    addresses.resize(std::min(addresses.size(), max_addresses));
    std::string result = host_name();
    for (const std::string& each : addresses) result += ' ' + each;
    return result;
}

// The address of process 0's host by which a process on another host comes.
std::string choose_address(const job& own_job, launcher_store& store, const std::string& host_key,
                           const std::string& interface) {
    if (!interface.empty()) return own_addresses(interface).front();
    for (int other = own_job.count - 1; other > 0; --other) {
        auto addresses = words(store.get(other, host_key));
        if (addresses.empty() || addresses.front() == host_name()) continue;
        addresses.erase(addresses.begin());
        if (auto found = address_towards(addresses); !found.empty()) return found;
        fail(error_code::bootstrap_failure,
             "process 0 on host {} finds no way to the host of process {} ({}): name the interface between them by "
             "DCUDA_INTERFACE",
             host_name(), other, fmt::join(addresses, ", "));
    }
    fail(error_code::bootstrap_failure,
         "the launcher says that the job runs on several hosts, but all have the name {}: set DCUDA_INTERFACE to the "
         "interface between them",
         host_name());
}

rendezvous stored_rendezvous(const job& own_job, launcher_store& store, int generation) {
    const std::string host_key = fmt::format("dcuda-host-{}", generation);
    const std::string address_key = fmt::format("dcuda-address-{}", generation);
    const std::string interface = support::env_string("DCUDA_INTERFACE").value_or("");
    store.put(host_key, describe_host(own_job.index == 0 ? interface : ""));
    store.fence();
    rendezvous result;
    if (own_job.index == 0) {
        // The others wait in the fence: they get the error, too.
        try {
            const std::string host = choose_address(own_job, store, host_key, interface);
            result.listener = listen_tcp(host.find(':') == std::string::npos ? host + ":0" : "[" + host + "]:0");
            result.address = address_of(result.listener);
            result.secret = make_secret();
            store.put(address_key, result.address + ' ' + result.secret);
        } catch (const error& problem) {
            store.put(address_key, std::string("! ") + problem.what());
            store.fence();
            throw;
        }
    }
    store.fence();
    if (own_job.index != 0) {
        const std::string stored = store.get(0, address_key);
        require(!stored.starts_with('!'), error_code::bootstrap_failure, "{}",
                stored.substr(std::min<std::size_t>(2, stored.size())));
        const auto parts = words(stored);
        require(parts.size() == 2, error_code::bootstrap_failure,
                "the launcher's store has no address of process 0, but {} words in {} characters", parts.size(),
                stored.size()); // one of which may be the secret
        result.address = parts[0];
        result.secret = parts[1];
    }
    return result;
}

} // namespace

rendezvous find_rendezvous(const job& own_job, int generation, double timeout_seconds) {
    if (!own_job.rendezvous.empty()) return given_rendezvous(own_job, generation);
    auto store = open_pmix_store(own_job, timeout_seconds);
    if (!store) store = open_pmi_store(own_job, timeout_seconds);
    require(store != nullptr, error_code::bootstrap_failure,
            "{} of the job's {} processes run on this host, but nothing tells them where to meet the others: start the "
            "job with dcuda-run or with a launcher that exports PMIx or PMI-1 (Open MPI's mpirun, srun --mpi=pmix, "
            "MPICH's mpiexec), or give all processes DCUDA_RENDEZVOUS=host:port, where process 0 shall listen, and "
            "DCUDA_JOB, 32 random hexadecimal digits",
            own_job.local_count, own_job.count);
    return stored_rendezvous(own_job, *store, generation);
}

} // namespace dcuda::bootstrap
