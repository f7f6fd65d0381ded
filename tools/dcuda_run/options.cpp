// SPDX-License-Identifier: BSD-3-Clause
#include "options.hpp"

#include "support/command_line.hpp"
#include "this_host.hpp"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <sstream>
#include <string_view>

namespace launch {

namespace {

// -np, as other launchers call it, becomes --np. What comes after the program is the program's.
void accept_np(int argc, char** argv) {
    static std::string replacement = "--np";
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (!word.starts_with('-') || word == "--") return;
        if (word == "-np") argv[i] = replacement.data();
        const bool holds_value =
            word.find('=') != word.npos || (word.starts_with("-n") && word.size() > 2 && word != "-np");
        const bool takes_value = !holds_value && word != "--prefix" && word != "--stats" && word != "--dry-run";
        if (takes_value) ++i;
    }
}

// Of processes for a list of hosts that all are this one. 0: nothing is said of it.
int count_of_slots(const options& job) {
    int slots = 0;
    for (const auto& each : job.hosts) slots += each.slots;
    if (job.count > 0) lay_out(job.hosts, job.count); // throws if there are too few
    return job.count > 0 ? job.count : slots;
}

} // namespace

bool options::needs_other_launcher() const {
    return !launcher.empty() ||
           std::any_of(hosts.begin(), hosts.end(), [](const host_entry& each) { return !is_this_host(each.name); });
}

options parse_command_line(int argc, char** argv) {
    options result;
    int ranks = 0;
    std::string hosts, host_file, trace, statistics;
    CLI::App app("Starts the processes of a dCUDA job, one per GPU, on this host, or calls a launcher for several.",
                 "dcuda-run");
    app.add_option("-n,--np", result.count,
                   "Number of processes (default: one per visible GPU, or 1; with --hosts as many as slots)")
        ->check(CLI::Range(1, max_processes));
    app.add_option("--ranks", ranks, "Ranks per device (sets DCUDA_RANKS_PER_DEVICE)")->check(CLI::Range(1, 1048576));
    app.add_option("--trace", trace, "Write a timeline of all ranks to this file, for Perfetto (sets DCUDA_TRACE)");
    app.add_flag("--stats{1}", statistics,
                 "Write what all ranks have done as JSON to standard error, or to FILE (sets DCUDA_STATS)");
    auto* prefix = app.add_flag("--prefix", result.prefix, "Put the process index before each line of output");
    auto* folder =
        app.add_option("--output-dir", result.output_folder, "Write the output of process 3 to DIR/3.out and DIR/3.err")
            ->excludes(prefix);
    auto* grace = app.add_option("--grace", result.grace_seconds,
                                 "Seconds that the others have to end by themselves after one failed (default 5)")
                      ->check(CLI::Range(0.0, 1e6));
    app.add_option("--env", result.environment, "Set a variable, NAME=VALUE; may be repeated")
        ->allow_extra_args(false) // one value each time
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    const std::string several = "Several hosts";
    auto* list = app.add_option("--hosts", hosts, "Hosts to run on, HOST[:SLOTS],...; process 0 runs on the first")
                     ->group(several);
    auto* file =
        app.add_option("--hostfile", host_file, "The same from a file: a line HOST, HOST:N or HOST slots=N each")
            ->excludes(list)
            ->group(several);
    app.add_option("--launcher", result.launcher,
                   "Name or path of the launcher to call (default: srun in an allocation, mpirun, mpiexec)")
        ->group(several);
    app.add_flag("--dry-run", result.dry_run, "Print the command that would be called, and do not call it")
        ->group(several);
    app.prefix_command();
    app.footer("Then the program and its arguments, after -- if you like. The exit code is 0 if all processes end\n"
               "with 0, else that of the first that failed (128 + signal if a signal killed it).");
    accept_np(argc, argv);
    parse_or_exit(app, "dcuda-run", argc, argv);
    result.command = app.remaining();
    if (!result.command.empty() && result.command[0] == "--")
        result.command.erase(result.command.begin());
    else if (!result.command.empty() && result.command[0].starts_with('-'))
        throw start_error(exit_wrong_use, fmt::format("unknown option {}; see dcuda-run --help", result.command[0]));
    if (result.command.empty()) throw start_error(exit_wrong_use, "no program given; see dcuda-run --help");
    for (const auto& variable : result.environment)
        if (variable.find('=') == variable.npos || variable[0] == '=')
            throw start_error(exit_wrong_use, fmt::format("--env {}: expected NAME=VALUE", variable));
    if (!trace.empty()) result.environment.insert(result.environment.begin(), "DCUDA_TRACE=" + trace);
    if (!statistics.empty()) result.environment.insert(result.environment.begin(), "DCUDA_STATS=" + statistics);
    if (ranks > 0)
        result.environment.insert(result.environment.begin(), fmt::format("DCUDA_RANKS_PER_DEVICE={}", ranks));

    if (list->count() > 0) {
        result.hosts = parse_hosts(hosts);
        if (result.hosts.empty()) throw start_error(exit_wrong_use, "--hosts: no host given");
    }
    if (file->count() > 0) {
        std::ifstream lines(host_file);
        if (!lines) fail_errno("--hostfile " + host_file, exit_wrong_use);
        std::ostringstream text;
        text << lines.rdbuf();
        result.hosts = parse_host_file(text.str(), host_file);
    }
    const bool calls = result.needs_other_launcher();
    if (!result.hosts.empty() && !calls) result.count = count_of_slots(result);
    if (result.dry_run && !calls)
        throw start_error(exit_wrong_use,
                          "--dry-run: dcuda-run would start this job itself, and call no other launcher");
    for (const auto* option : {folder, grace})
        if (calls && option->count() > 0)
            throw start_error(
                exit_wrong_use,
                fmt::format("{} works on this host only: the launcher that dcuda-run calls for other hosts "
                            "has ways of its own; leave it out, or call that launcher (--dry-run shows how)",
                            option->get_name()));
    return result;
}

} // namespace launch
