// SPDX-License-Identifier: BSD-3-Clause
// What the user wants.
#pragma once

#include "host_list.hpp"
#include "io.hpp"

#include <string>
#include <vector>

namespace launch {

struct options {
    int count = 0; // of processes; 0: as many as the hosts have slots, or this one GPUs
    bool prefix = false;
    std::string output_folder;
    double grace_seconds = 5;
    std::vector<std::string> environment; // NAME=VALUE
    std::vector<std::string> command;

    std::vector<host_entry> hosts; // none: not said
    std::string launcher;          // of other hosts, as the user names it; empty: found
    bool dry_run = false;

    // Another launcher runs the job: it has hosts besides this one, or the user wants that launcher.
    bool needs_other_launcher() const;
};

options parse_command_line(int argc, char** argv); // may end this process

} // namespace launch
