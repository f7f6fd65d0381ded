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

rendezvous as_told(const job& who, int generation) {
    require(!who.secret.empty(), error_code::bootstrap_failure,
            "DCUDA_RENDEZVOUS={} says where the processes of this job meet, but DCUDA_JOB is not set: give all of them "
            "the same 32 random hexadecimal digits, by which they know each other",
            who.rendezvous);
    rendezvous result{who.rendezvous, who.secret};
    if (who.index == 0)
        result.listener =
            generation == 0 && who.listen_fd >= 0 ? take_listener(who.listen_fd) : listen_tcp(who.rendezvous);
    return result;
}

std::vector<std::string> words(const std::string& text) {
    std::istringstream from(text);
    std::vector<std::string> result;
    for (std::string word; from >> word;) result.push_back(word);
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
std::string choose_address(const job& who, launcher_store& store, const std::string& host_key,
                           const std::string& interface) {
    if (!interface.empty()) return own_addresses(interface).front();
    for (int other = who.count - 1; other > 0; --other) {
        auto there = words(store.get(other, host_key));
        if (there.empty() || there.front() == host_name()) continue;
        there.erase(there.begin());
        if (auto found = address_towards(there); !found.empty()) return found;
        fail(error_code::bootstrap_failure,
             "process 0 on host {} finds no way to the host of process {} ({}): name the interface between them by "
             "DCUDA_INTERFACE",
             host_name(), other, fmt::join(there, ", "));
    }
    fail(error_code::bootstrap_failure,
         "the launcher says that the job runs on several hosts, but all have the name {}: set DCUDA_INTERFACE to the "
         "interface between them",
         host_name());
}

rendezvous by_store(const job& who, launcher_store& store, int generation) {
    const std::string host_key = fmt::format("dcuda-host-{}", generation);
    const std::string place_key = fmt::format("dcuda-place-{}", generation);
    const std::string interface = support::env_string("DCUDA_INTERFACE").value_or("");
    store.put(host_key, describe_host(who.index == 0 ? interface : ""));
    store.fence();
    rendezvous result;
    if (who.index == 0) {
        // The others wait in the fence: they get the error, too.
        try {
            const std::string host = choose_address(who, store, host_key, interface);
            result.listener = listen_tcp(host.find(':') == std::string::npos ? host + ":0" : "[" + host + "]:0");
            result.address = address_of(result.listener);
            result.secret = make_secret();
            store.put(place_key, result.address + ' ' + result.secret);
        } catch (const error& problem) {
            store.put(place_key, std::string("! ") + problem.what());
            store.fence();
            throw;
        }
    }
    store.fence();
    if (who.index != 0) {
        const std::string place = store.get(0, place_key);
        require(!place.starts_with('!'), error_code::bootstrap_failure, "{}",
                place.substr(std::min<std::size_t>(2, place.size())));
        const auto parts = words(place);
        require(parts.size() == 2, error_code::bootstrap_failure,
                "the launcher's store has no meeting place of process 0, but {} words in {} characters", parts.size(),
                place.size()); // one of which may be the secret
        result.address = parts[0];
        result.secret = parts[1];
    }
    return result;
}

} // namespace

rendezvous find_rendezvous(const job& who, int generation, double timeout_seconds) {
    if (!who.rendezvous.empty()) return as_told(who, generation);
    auto store = open_pmix_store(who, timeout_seconds);
    if (!store) store = open_pmi_store(who, timeout_seconds);
    require(store != nullptr, error_code::bootstrap_failure,
            "{} of the job's {} processes run on this host, but nothing tells them where to meet the others: start the "
            "job with dcuda-run or with a launcher that exports PMIx or PMI-1 (Open MPI's mpirun, srun --mpi=pmix, "
            "MPICH's mpiexec), or give all processes DCUDA_RENDEZVOUS=host:port, where process 0 shall listen, and "
            "DCUDA_JOB, 32 random hexadecimal digits",
            who.local_count, who.count);
    return by_store(who, *store, generation);
}

} // namespace dcuda::bootstrap
