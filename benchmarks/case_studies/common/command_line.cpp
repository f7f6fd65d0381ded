// SPDX-License-Identifier: BSD-3-Clause
#include "command_line.hpp" // dcuda-bench compiles this file with another root

#include <algorithm>
#include <sstream>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace arguments {

std::optional<ending> find_ending(CLI::App& app, int argc, char** argv) {
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& reason) {
        std::ostringstream out, err;
        const int status = app.exit(reason, out, err) == 0 ? 0 : 2; // as all tools have it, and not the library's own
        // CLI11 names an option that it does not know only if nothing else is wrong.
        const bool is_named = status == 0 || reason.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError);
        for (const std::string& word : app.remaining(true))
            if (!is_named && word.starts_with('-')) return ending{fmt::format("unknown option {}\n", word), status};
        return ending{out.str() + err.str(), status};
    }
    return {};
}

bool asks_for_help(int argc, char** argv) {
    return std::any_of(argv + 1, argv + argc,
                       [](std::string_view argument) { return argument == "-h" || argument == "--help"; });
}

bool asks_for_version(int argc, char** argv) { return argc == 2 && std::string_view(argv[1]) == "--version"; }

bool asks_for_json(int argc, char** argv) {
    return std::any_of(argv + 1, argv + argc, [](std::string_view argument) {
        return argument == "--json" || argument.starts_with("--json=");
    });
}

bool asks_runtime_for_ranks(int argc, char** argv) {
    return std::any_of(argv + 1, argv + argc,
                       [](std::string_view argument) { return argument.starts_with("--dcuda-ranks"); });
}

std::string check_threads(const std::string& text) {
    int value = 0;
    const bool whole = CLI::detail::lexical_cast(text, value) && value >= 1 && value <= 1024;
    if (whole && (value <= 32 || value % 32 == 0)) return {};
    return fmt::format("{} is not a number of threads: 1 to 32, or a multiple of 32 up to 1024", text);
}

bool read_grid(const std::string& text, int& rows, int& columns) {
    const auto at = text.find('x');
    return at != text.npos && CLI::detail::lexical_cast(text.substr(0, at), rows) &&
           CLI::detail::lexical_cast(text.substr(at + 1), columns) && rows >= 1 && columns >= 1 && rows <= 4096 &&
           columns <= 4096;
}

} // namespace arguments
