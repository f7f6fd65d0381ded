#include "common/command_line.hpp"

#include <algorithm>
#include <sstream>
#include <string_view>

#include <CLI/CLI.hpp>

namespace arguments {

std::optional<ending> find_ending(CLI::App& app, int argc, char** argv) {
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& reason) {
        std::ostringstream out, err;
        const int status = app.exit(reason, out, err);
        return ending{out.str() + err.str(), status};
    }
    return {};
}

bool asks_for_help(int argc, char** argv) {
    return std::any_of(argv + 1, argv + argc,
                       [](std::string_view argument) { return argument == "-h" || argument == "--help"; });
}

} // namespace arguments
