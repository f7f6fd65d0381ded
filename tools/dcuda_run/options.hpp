// SPDX-License-Identifier: BSD-3-Clause
// What the user wants.
#pragma once

#include "host_list.hpp"
#include "io.hpp"

#include <string>
#include <vector>

namespace launch {

struct options {
    int count = 0; // of processes; 0: as many as the hosts have slots or GPUs
    bool prefix = false;
    std::string output_folder;
    double grace_seconds = 5;
    std::vector<std::string> environment; // NAME=VALUE
    std::vector<std::string> command;

    std::vector<host_entry> hosts; // none: this one, without ssh
    std::string interface;
    std::string ssh;
    std::string agent; // path of dcuda-run on the hosts
};

options parse_command_line(int argc, char** argv); // may end this process

} // namespace launch
