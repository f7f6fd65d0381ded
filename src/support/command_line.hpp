// SPDX-License-Identifier: BSD-3-Clause
// What the command lines of all tools have in common.
#pragma once

#include "dcuda/config.hpp"

#include <CLI/CLI.hpp>

#include <cstdlib>
#include <string>

// Parses the command line of a tool with this name. Ends the program after --help and --version, with status 0, and
// after an error of use, with 2.
inline void parse_or_exit(CLI::App& app, const std::string& name, int argc, char** argv) {
    app.name(name);
    app.set_version_flag("--version", name + " " DCUDA_VERSION_STRING);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& problem) {
        std::exit(app.exit(problem) == 0 ? 0 : 2);
    }
}
