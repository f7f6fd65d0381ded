// SPDX-License-Identifier: BSD-3-Clause
// The program's options.
#pragma once

#include "common/run_options.hpp"
#include "grid.hpp"

namespace himeno {

struct options : common::run_options {
    std::string size = "S";
    grid whole{};
    int steps = 64;
    bool is_fused = DCUDA_BACKEND_CUDA; // products are rounded together with the addition behind them
    bool sums_every_step = true;
    std::string control = "rank";
    std::string carrier{}; // of host and host-graph
    device_grid devices{};
};

using command_line = arguments::command_line<options>;
command_line parse_command_line(int argc, char** argv);

} // namespace himeno
