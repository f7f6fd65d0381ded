// SPDX-License-Identifier: BSD-3-Clause
#include "several_hosts.hpp"

#include "this_host.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <unistd.h>

extern char** environ;

namespace launch {

namespace {

struct found_launcher {
    std::string program; // its path
    launcher_kind kind;
};

std::string shell_quoted(const std::string& word) {
    constexpr const char* plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%^";
    if (!word.empty() && word.find_first_not_of(plain) == word.npos) return word;
    std::string result = "'";
    for (char c : word) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return result + "'";
}

// What a launcher says of its version tells which one it is: mpirun and mpiexec are names that several have.
std::optional<launcher_kind> find_kind(const std::string& program) {
    const std::string command = shell_quoted(program) + " --version 2>&1 < /dev/null";
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
    if (!pipe) fail_errno("cannot ask for the version of " + program);
    std::string text;
    std::array<char, 4096> buffer;
    for (std::size_t got; (got = fread(buffer.data(), 1, buffer.size(), pipe.get())) > 0;)
        if (text.size() < (1 << 16)) text.append(buffer.data(), got);
    for (const auto& [mark, kind] :
         {std::pair("Open MPI", launcher_kind::openmpi), std::pair("OpenRTE", launcher_kind::openmpi),
          std::pair("HYDRA", launcher_kind::hydra), std::pair("Intel(R) MPI", launcher_kind::hydra),
          std::pair("slurm ", launcher_kind::slurm)})
        if (text.find(mark) != text.npos) return kind;
    return std::nullopt;
}

found_launcher find_launcher(const std::string& wanted) {
    if (!wanted.empty()) {
        const std::string program = find_program(wanted);
        if (const auto kind = find_kind(program)) return {program, *kind};
        throw start_error(exit_wrong_use,
                          fmt::format("--launcher {}: by what {} --version prints, it is none of Open MPI's "
                                      "mpirun, Hydra's mpiexec (MPICH, Intel MPI) and Slurm's srun",
                                      wanted, program));
    }
    std::vector<std::string> names{"mpirun", "mpiexec"};
    const bool in_allocation = std::getenv("SLURM_JOB_ID") != nullptr;
    if (in_allocation) names.insert(names.begin(), "srun");
    for (const auto& name : names) {
        try {
            const std::string program = find_program(name);
            if (const auto kind = find_kind(program)) return {program, *kind};
        } catch (const start_error&) {
            // The next one may be there.
        }
    }
    throw start_error(
        exit_not_found,
        fmt::format("a job over several hosts needs a launcher for them, and there is no {} in PATH that "
                    "dcuda-run knows: install Open MPI (Debian: openmpi-bin) or MPICH, or name a launcher "
                    "by --launcher",
                    in_allocation ? "srun, mpirun or mpiexec" : "mpirun or mpiexec"));
}

// Names of the variables that all processes shall get: dCUDA's own, and what the user sets.
std::vector<std::string> travelling_variables(const options& job) {
    std::set<std::string> names;
    for (char** each = environ; *each != nullptr; ++each) {
        const std::string variable = *each;
        if (variable.starts_with("DCUDA_")) names.insert(variable.substr(0, variable.find('=')));
    }
    for (const auto& variable : job.environment) names.insert(variable.substr(0, variable.find('=')));
    return {names.begin(), names.end()};
}

// How many processes run where. Hosts that get none are left out.
std::vector<host_entry> lay_out_job(const options& job) {
    std::vector<host_entry> result;
    int slots = 0;
    for (const auto& each : job.hosts) slots += std::max(each.slots, 1);
    const auto counts = job.hosts.empty() ? std::vector<int>() : lay_out(job.hosts, job.count > 0 ? job.count : slots);
    for (std::size_t i = 0; i < counts.size(); ++i)
        if (counts[i] > 0) result.push_back({job.hosts[i].name, counts[i]});
    return result;
}

std::string listed(const std::vector<host_entry>& hosts, bool has_slots) {
    std::string result;
    for (const auto& each : hosts) {
        result += (result.empty() ? "" : ",") + each.name;
        if (has_slots) result += fmt::format(":{}", each.slots);
    }
    return result;
}

// srun has no list of hosts with numbers of processes: these are equal, or each process has its host in the list.
void append_slurm_hosts(std::vector<std::string>& words, const std::vector<host_entry>& hosts) {
    const auto unequal = [&](const host_entry& each) { return each.slots != hosts[0].slots; };
    if (std::none_of(hosts.begin(), hosts.end(), unequal)) {
        words.insert(words.end(),
                     {"--distribution=block", fmt::format("--nodes={}", hosts.size()),
                      fmt::format("--ntasks-per-node={}", hosts[0].slots), "--nodelist=" + listed(hosts, false)});
        return;
    }
    std::vector<host_entry> of_processes;
    for (const auto& each : hosts) of_processes.insert(of_processes.end(), static_cast<std::size_t>(each.slots), each);
    words.insert(words.end(), {"--distribution=arbitrary", "--nodelist=" + listed(of_processes, false)});
}

// What the launcher would take for something of its own.
void check_command(const options& job) {
    if (job.command[0].starts_with('-'))
        throw start_error(exit_wrong_use,
                          fmt::format("{}: the launcher would take this program for an option; write ./{}",
                                      job.command[0], job.command[0]));
    for (const auto& word : job.command)
        if (word == ":")
            throw start_error(exit_wrong_use,
                              "the argument ':' cannot be passed on: it separates programs for launchers");
}

} // namespace

// Processes are numbered host by host, and not bound to cores: a process of dCUDA has several threads.
std::vector<std::string> command_line(launcher_kind kind, const std::string& program, const options& job,
                                      const std::vector<std::string>& variables) {
    const auto hosts = lay_out_job(job);
    const int slots = std::accumulate(hosts.begin(), hosts.end(), 0,
                                      [](int sum, const host_entry& each) { return sum + each.slots; });
    const int count = hosts.empty() ? job.count : slots;
    std::vector<std::string> words{program};
    const auto add = [&](std::initializer_list<std::string> more) { words.insert(words.end(), more); };
    // Variables go by their names alone: a value on a command line, such as DCUDA_JOB's, can be read by all users.
    switch (kind) {
    case launcher_kind::openmpi:
        add({"--map-by", "slot", "--bind-to", "none"});
        if (job.prefix) add({"--tag-output"});
        if (!hosts.empty()) add({"--host", listed(hosts, true)});
        if (count > 0) add({"-n", std::to_string(count)});
        for (const auto& name : variables) add({"-x", name});
        break;
    case launcher_kind::hydra:
        if (job.prefix) add({"-prepend-rank"});
        if (!hosts.empty()) add({"-hosts", listed(hosts, true)});
        if (count > 0) add({"-n", std::to_string(count)});
        add({"-genvall"});
        break;
    case launcher_kind::slurm:
        add({"--export=ALL", "--kill-on-bad-exit=1", "--cpu-bind=none"});
        if (job.prefix) add({"--label"});
        // By default Slurm may not tell the processes where they meet.
        if (std::getenv("SLURM_MPI_TYPE") == nullptr) add({"--mpi=pmi2"});
        if (count > 0) add({fmt::format("--ntasks={}", count)});
        if (!hosts.empty()) append_slurm_hosts(words, hosts);
        break;
    }
    words.insert(words.end(), job.command.begin(), job.command.end());
    return words;
}

int call_launcher(const options& job) {
    check_command(job);
    const found_launcher found = find_launcher(job.launcher);
    // What another dcuda-run has told this process is not true of the processes of this job.
    for (const char* name : {"DCUDA_PROCESS_INDEX", "DCUDA_PROCESS_COUNT", "DCUDA_LOCAL_INDEX", "DCUDA_LOCAL_COUNT",
                             "DCUDA_BLAME_FD", "DCUDA_LISTEN_FD"})
        unsetenv(name);
    for (const auto& variable : job.environment) {
        const auto equal = variable.find('=');
        setenv(variable.substr(0, equal).c_str(), variable.c_str() + equal + 1, 1);
    }
    auto words = command_line(found.kind, found.program, job, travelling_variables(job));
    std::string text;
    for (const auto& word : words) text += (text.empty() ? "" : " ") + shell_quoted(word);
    if (job.dry_run) {
        fmt::print("{}\n", text);
        return std::fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    std::fprintf(stderr, "dcuda-run: calls %s\n", text.c_str());
    std::vector<char*> arguments;
    for (auto& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    execv(found.program.c_str(), arguments.data());
    fail_errno("cannot start " + found.program, exit_not_executable);
}

} // namespace launch
