// SPDX-License-Identifier: BSD-3-Clause
// What a program's command line leads to, for applications and benchmarks.
#pragma once

#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace arguments {

// To end at once: a text to print and the status to exit with.
struct ending {
    std::string text;
    int status = 0;
};

// Options to run with, or none and how to end.
template <class Options>
struct command_line : ending {
    std::optional<Options> chosen;
};

// Nothing if CLI11 took the arguments. An error ends with status 2.
std::optional<ending> find_ending(CLI::App& app, int argc, char** argv);

// `chosen` is what the app's options write to.
template <class Options>
command_line<Options> parse(CLI::App& app, int argc, char** argv, const Options& chosen) {
    if (const std::optional<ending> end = find_ending(app, argc, argv)) return {*end, {}};
    return {{}, chosen};
}

// Whether the arguments ask for the help text, which needs no device and no other process.
bool asks_for_help(int argc, char** argv);

// Whether they ask for the version, and nothing else.
bool asks_for_version(int argc, char** argv);

// Whether they ask for a report in JSON.
bool asks_for_json(int argc, char** argv);

// Whether they ask the runtime, not the program, for a number of ranks.
bool asks_runtime_for_ranks(int argc, char** argv);

// For CLI11: what is wrong with a number of threads of a rank, or nothing.
std::string check_threads(const std::string& text);

// Reads a grid of devices, such as "2x3". Returns whether it is one.
bool read_grid(const std::string& text, int& rows, int& columns);

} // namespace arguments
