// SPDX-License-Identifier: BSD-3-Clause
// dcuda-bench: benchmarks of the library. README.md says what each subcommand measures and how.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <spawn.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/machine.hpp"
#include "common/record.hpp"
#include "common/session.hpp"

namespace {

using namespace benchmark;

struct subcommand {
    const char* name;
    void (*measure)(session&);
};
constexpr std::array<subcommand, 14> subcommands{{{"latency", measure_latency},
                                                  {"bandwidth", measure_bandwidth},
                                                  {"barrier", measure_barrier},
                                                  {"collectives", measure_collectives},
                                                  {"flush", measure_flush},
                                                  {"one_sided", measure_one_sided},
                                                  {"partners", measure_partners},
                                                  {"overlap", measure_overlap},
                                                  {"host", measure_host},
                                                  {"waiters", measure_waiters},
                                                  {"warps", measure_warps},
                                                  {"messages", measure_messages},
                                                  {"stream", measure_stream},
                                                  {"trace", measure_trace}}};

std::string program_beside_this_one(const char* name) {
    return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / name).string();
}

// As the system calls want a command line.
std::vector<char*> words_of(std::vector<std::string>& arguments) {
    std::vector<char*> words;
    for (std::string& argument : arguments) words.push_back(argument.data());
    words.push_back(nullptr);
    return words;
}

// Throws if the script does not end well: it has said why.
void run_plot_script(std::vector<std::string> arguments) {
    const std::string script = program_beside_this_one("dcuda-bench-plot");
    arguments.insert(arguments.begin(), {"python3", script});
    const std::vector<char*> words = words_of(arguments);
    pid_t child = 0;
    if (const int problem = posix_spawnp(&child, "python3", nullptr, nullptr, words.data(), environ); problem != 0)
        throw std::runtime_error(std::string("--plot: cannot start python3: ") + std::strerror(problem));
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (status != 0) throw std::runtime_error("--plot: " + script + " failed");
}

// The case studies are programs of their own: a script starts them and takes this program's place.
int run_applications(int argc, char** argv) {
    const nlohmann::ordered_json machine = describe_machine("");
    if (!asks_for_help(argc, argv)) std::puts(machine_in_words(machine).c_str());
    std::fflush(stdout);
    std::vector<std::string> arguments{"python3", program_beside_this_one("dcuda-bench-apps"), "--machine",
                                       machine.dump()};
    arguments.insert(arguments.end(), argv + 2, argv + argc);
    execvp("python3", words_of(arguments).data());
    throw std::runtime_error(std::string("cannot start python3: ") + std::strerror(errno));
}

// A program of its own, since it is linked with libraries of others.
int run_mpi(char** argv) {
    const std::string program = program_beside_this_one("dcuda-bench-mpi");
    if (!std::filesystem::exists(program))
        throw std::runtime_error("this build has no dcuda-bench-mpi: it needs the case studies (DCUDA_BUILD_APPS)");
    std::string name = "dcuda-bench-mpi";
    argv[1] = name.data();
    execv(program.c_str(), argv + 1);
    throw std::runtime_error("cannot start " + program + ": " + std::strerror(errno));
}

void draw(const std::string& directory, const record& results, const options& chosen) {
    std::string file = chosen.json;
    if (file.empty()) {
        std::filesystem::create_directories(directory);
        file = (std::filesystem::path(directory) / "dcuda-bench.json").string();
        write_record(file, results, chosen);
    }
    run_plot_script({"--output", directory, file});
}

int run_program(int argc, char** argv) {
    if (argc > 1 && std::string_view(argv[1]) == "apps") return run_applications(argc, argv);
    if (argc > 1 && std::string_view(argv[1]) == "mpi") return run_mpi(argv);
    if (asks_for_help(argc, argv) || arguments::asks_for_version(argc, argv)) {
        std::fputs(parse_command_line(argc, argv).text.c_str(), stdout);
        return 0;
    }
    // What tracing costs is seen by runs that are traced, between others that are not.
    for (const std::string_view name : {"trace", "all"})
        if (std::find(argv, argv + argc, name) != argv + argc) setenv("DCUDA_TRACE", "/dev/null", 0);
    dcuda::runtime runtime(argc, argv);
    const dcuda::rank_info job = runtime.info();
    const bool first = job.process_index == 0;
    const command_line command = parse_command_line(argc, argv);
    if (!command.chosen) {
        if (first) std::fputs(command.text.c_str(), stderr);
        return command.status;
    }
    const options& chosen = *command.chosen;

    // What cannot work is said before anything is measured.
    std::vector<row> rivals, unchecked;
    if (first) {
        for (const std::string& file : chosen.rivals) {
            const std::vector<row> rows = read_rows(file);
            rivals.insert(rivals.end(), rows.begin(), rows.end());
        }
        if (!chosen.compare.empty()) unchecked = read_rows(chosen.compare);
        if (!chosen.plot.empty()) run_plot_script({"--check"});
    }

    int device = 0, multiprocessors = 0;
    check(cudaGetDevice(&device), "no device");
    check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
          "cannot ask for the multiprocessors");
    session suite{runtime, chosen, job, multiprocessors, {}};
    record results{DCUDA_CHECKS ? "dcuda-bench" : "dcuda-bench-unchecked"};
    results.processes = job.process_count;
    for (const subcommand& one : subcommands) {
        if (chosen.subcommand != "all" && chosen.subcommand != one.name) continue;
        one.measure(suite);
        if (first) results.clocks_mhz.emplace_back(one.name, clock_mhz());
    }
    if (!first) return 0;

    results.rows = std::move(suite.rows);
    place_rivals(results.rows, rivals);
    add_cost_of_checks(results.rows, unchecked);
    std::fputs((chosen.csv ? format_csv(results) : format_table(results, chosen)).c_str(), stdout);
    if (!chosen.json.empty()) write_record(chosen.json, results, chosen);
    if (!chosen.plot.empty()) draw(chosen.plot, results, chosen);
    return 0;
}

} // namespace

int main(int argc, char** argv) {
    try {
        return run_program(argc, argv);
    } catch (const std::exception& reason) {
        std::fprintf(stderr, "dcuda-bench: %s\n", reason.what());
        return 1;
    }
}
