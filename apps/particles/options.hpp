// The program's options.
#pragma once

#include <cstdint>
#include <string>

#include "common/command_line.hpp"
#include "motion.hpp"

namespace particles {

struct options {
    int width = default_size;
    int height = default_size;     // per device
    int particles = default_count; // per device
    int steps = 100;
    double time_step = default_step;
    std::uint64_t seed = 1;
    int capacity = 0; // of a segment; 0: a quarter above the average, and a few more
    int threads = 0;  // per rank; 0: as suits the backend
    int ranks = 0;    // per device; 0: as many as are co-resident, but no more than segments
    int repeat = 1;
    double progress = 2.0; // seconds between two lines; 0: none
    bool verify = false;
    std::string json;
};

using command_line = arguments::command_line<options>;
command_line parse_command_line(int argc, char** argv);

using arguments::asks_for_help;

} // namespace particles
