// SPDX-License-Identifier: BSD-3-Clause
// The program's options.
#pragma once

#include <string>

#include "common/run_options.hpp"
#include "reference.hpp"

namespace hpgmg {

struct options : common::run_options {
    int log2_box = 5;
    long long boxes = 8; // per device
    int v_cycles = 0;    // after the F-cycle
    int solves = 1;      // in a run
    smoother smooths_by = smoother::red_black;
    double amplitude = 1.0;   // f is multiplied by it
    bool tells_parts = false; // where the time goes
};

using command_line = arguments::command_line<options>;
command_line parse_command_line(int argc, char** argv);

} // namespace hpgmg
