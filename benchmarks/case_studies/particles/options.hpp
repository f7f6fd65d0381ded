// SPDX-License-Identifier: BSD-3-Clause
// The program's options.
#pragma once

#include <cstdint>
#include <string>

#include "common/run_options.hpp"
#include "motion.hpp"

namespace particles {

using common::place;

struct options : common::run_options {
    std::string model = "dcuda"; // or one to compare with
    int width = default_size;
    int height = default_size;     // per device
    int particles = default_count; // per device
    int steps = 100;
    double time_step = default_step;
    std::uint64_t seed = 1;
    int capacity = 0; // of a segment; 0: some more than the average
    place memory = place::fitting;
};

using command_line = arguments::command_line<options>;
command_line parse_command_line(int argc, char** argv);

} // namespace particles
