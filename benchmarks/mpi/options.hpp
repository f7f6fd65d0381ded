// SPDX-License-Identifier: BSD-3-Clause
// The command line of dcuda-bench-mpi.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/options.hpp"

namespace benchmark {

struct mpi_options {
    options common; // rounds, batches, json, csv and commit
    std::vector<std::string> measurements{"latency", "bandwidth", "jacobi"};
    std::vector<std::string> ways; // their names
    std::vector<std::size_t> sizes{1, 8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20, 64 << 20};
    int window = 64; // messages that follow each other without an answer; fewer where they are large
    std::size_t piece_bytes = 512 << 10;
    int ranks = 0; // of a device, for what needs many; 0: as many as is usual
    int points = by_backend(4096, 64);
    int steps = by_backend(1000, 100);

    bool wants(const std::string& measurement) const;
};

arguments::command_line<mpi_options> parse_mpi_command_line(int argc, char** argv);

} // namespace benchmark
