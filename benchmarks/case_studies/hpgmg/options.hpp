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
    double amplitude = 1.0; // f is multiplied by it
    // Of ranks: coarse levels of so many cells a side, and coarser ones, are one rank's.
    // PERF: with 8, grids of 32^3 to 128^3 cells take 4 to 10 % less time than with 4, on one H200 and two
    // (2026-11-28); with 16 they take more.
    int one_rank_side = 8;
    std::string model = "dcuda";
    long long overlap_from =
        1 << 18;              // of models: cells of a level on a device from which exchanges overlap with sweeps
    int cpu_below = 0;        // of models whose host controls all: coarse levels of fewer cells are the processor's
    bool tells_parts = false; // where the time goes
};

using command_line = arguments::command_line<options>;
command_line parse_command_line(int argc, char** argv);

} // namespace hpgmg
