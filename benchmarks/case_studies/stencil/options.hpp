// SPDX-License-Identifier: BSD-3-Clause
// The program's options.
#pragma once

#include <string>

#include "common/run_options.hpp"

namespace stencil {

// What one put carries of a border plane of x by z.
enum class message { level, plane };
const char* to_string(message kind);

using common::place;

struct options : common::run_options {
    std::string model = "dcuda";
    bool fused = false;      // one exchange per iteration, of two rows
    int rows_per_thread = 4; // of the fused kernel that the host launches
    bool stores = false;     // of NVSHMEM: border rows by stores to the other device
    int nx = 128;
    int ny = 320; // per device
    int nz = 0;   // 0: 26, or 1 with an input map
    std::string input;
    int iterations = 200;
    double coefficient = 0.025;
    message message_kind = message::level;
    place fields = place::fitting;
    int level_parts = 0; // ranks that share rows; 0: as suits the backend
    int band_rows = 0;   // that a rank takes through the three steps before the next; 0: as suits the backend
    std::string output;
    std::string png;

    // Whether blocks are ranks; else the host launches kernels on the whole device.
    bool has_ranks() const { return model == "dcuda" || model == "nvshmem"; }

    // Whether process 0 needs the whole result.
    bool needs_result() const { return verify || !output.empty() || !png.empty(); }
};

using command_line = arguments::command_line<options>;
command_line parse_command_line(int argc, char** argv);

} // namespace stencil
