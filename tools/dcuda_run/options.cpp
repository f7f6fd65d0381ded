// SPDX-License-Identifier: BSD-3-Clause
#include "options.hpp"

#include "support/command_line.hpp"

#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <sstream>
#include <string_view>

namespace launch {

namespace {

// Without BatchMode ssh would ask for passwords, with nobody to answer. The others bound how long a dead host is waited
// for, and keep greetings out of the output.
constexpr const char* default_ssh = "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 "
                                    "-o ServerAliveCountMax=2 -o LogLevel=ERROR";

// -np, as other launchers call it, becomes --np. What comes after the program is the program's.
void accept_np(int argc, char** argv) {
    static std::string replacement = "--np";
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (!word.starts_with('-') || word == "--") return;
        if (word == "-np") argv[i] = replacement.data();
        const bool holds_value =
            word.find('=') != word.npos || (word.starts_with("-n") && word.size() > 2 && word != "-np");
        const bool takes_value = !holds_value && word != "--prefix" && word != "--stats";
        if (takes_value) ++i;
    }
}

} // namespace

options parse_command_line(int argc, char** argv) {
    options result;
    int ranks = 0;
    std::string hosts, host_file, remote_path, trace, statistics;
    CLI::App app("Starts the processes of a dCUDA job, one per GPU, on this host or on others by ssh.", "dcuda-run");
    app.add_option("-n,--np", result.count,
                   "Number of processes (default: with slots as many; else one per visible GPU, or 1)")
        ->check(CLI::Range(1, max_processes));
    app.add_option("--ranks", ranks, "Ranks per device (sets DCUDA_RANKS_PER_DEVICE)")->check(CLI::Range(1, 1048576));
    app.add_option("--trace", trace, "Write a timeline of all ranks to this file, for Perfetto (sets DCUDA_TRACE)");
    app.add_flag(
        "--stats{1}", statistics,
        "Write what all ranks have done, in JSON, to standard error; with --stats=FILE there (sets DCUDA_STATS)");
    auto* prefix = app.add_flag("--prefix", result.prefix, "Put the process index before each line of output");
    app.add_option("--output-dir", result.output_folder, "Write the output of process 3 to DIR/3.out and DIR/3.err")
        ->excludes(prefix);
    app.add_option("--grace", result.grace_seconds,
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
    auto* interface = app.add_option("--interface", result.interface,
                                     "Network interface or address of the first host by which the others reach it")
                          ->group(several);
    auto* ssh =
        app.add_option("--ssh", result.ssh, fmt::format("Command for ssh, with its options (default: {})", default_ssh))
            ->envname("DCUDA_SSH")
            ->group(several);
    auto* folder = app.add_option("--remote-path", remote_path, "Folder of dcuda-run on the hosts (default: as here)")
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
        throw start_error(2, fmt::format("unknown option {}; see dcuda-run --help", result.command[0]));
    if (result.command.empty()) throw start_error(2, "no program given; see dcuda-run --help");
    for (const auto& variable : result.environment)
        if (variable.find('=') == variable.npos || variable[0] == '=')
            throw start_error(2, fmt::format("--env {}: expected NAME=VALUE", variable));
    if (!trace.empty()) result.environment.insert(result.environment.begin(), "DCUDA_TRACE=" + trace);
    if (!statistics.empty()) result.environment.insert(result.environment.begin(), "DCUDA_STATS=" + statistics);
    if (ranks > 0)
        result.environment.insert(result.environment.begin(), fmt::format("DCUDA_RANKS_PER_DEVICE={}", ranks));

    if (list->count() > 0) {
        result.hosts = parse_hosts(hosts);
        if (result.hosts.empty()) throw start_error(2, "--hosts: no host given");
    }
    if (file->count() > 0) {
        std::ifstream lines(host_file);
        if (!lines) fail_errno("--hostfile " + host_file, 2);
        std::ostringstream text;
        text << lines.rdbuf();
        result.hosts = parse_host_file(text.str(), host_file);
    }
    for (const auto* option : {interface, folder})
        if (result.hosts.empty() && option->count() > 0)
            throw start_error(2, fmt::format("{} needs --hosts or --hostfile", option->get_name()));
    if (ssh->count() == 0 || result.ssh.empty()) result.ssh = default_ssh;
    const auto self = std::filesystem::read_symlink("/proc/self/exe");
    result.agent = remote_path.empty() ? self : std::filesystem::path(remote_path) / self.filename();
    return result;
}

} // namespace launch
