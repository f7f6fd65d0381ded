// SPDX-License-Identifier: BSD-3-Clause
// The options of both programs.
#pragma once

#include <cstdint>
#include <string>

#include "common/run_options.hpp"
#include "decomposition.hpp"

namespace sparse {

// Where ranks have their rows of the matrix while they iterate: where it suits the backend, if they fit.
enum class residence { fitting, shared, device };

// Which matrix, and how it is divided.
struct matrix_options : common::run_options {
    std::string matrix;     // a Matrix Market file; empty: a random matrix
    int size = 10'816;      // rows and columns of each device's part, as published
    int rows = 0;           // of the whole random matrix; 0: as size says
    double density = 0.003; // of the random matrix, as published
    std::uint64_t seed = 1;
    grid devices{0, 0}; // 0: as square as the number of devices allows
    int team = 0;       // threads that share a row; 0: as suits the backend
    residence entries = residence::fitting;
    std::string model = "dcuda";

    // Whether blocks are ranks; else the host launches kernels on the whole device.
    bool has_ranks() const { return model == "dcuda" || model == "nvshmem"; }

    // Rows of the whole random matrix, so that each device has size * size places of it.
    int whole_rows(int device_count) const;
};

struct spmv_options : matrix_options {
    int columns = 0; // of the whole random matrix; 0: as many as rows
    int repetitions = 100;
    bool no_barrier = false; // between repetitions
};

struct power_options : matrix_options {
    int iterations = 0;      // at most; 0: 100 as published, or 1000 with a file
    double tolerance = -1.0; // of the residual; 0: always all iterations; below 0: that, or 1e-12 with a file
    std::string labels;
    int top = -1; // rows to print; below 0: 10 with a file, else none
};

using spmv_command_line = arguments::command_line<spmv_options>;
spmv_command_line parse_spmv(int argc, char** argv);

using power_command_line = arguments::command_line<power_options>;
power_command_line parse_power_iteration(int argc, char** argv);

// The grid for this number of devices: as asked, else as square as can be, with no fewer rows than columns. Throws
// common::agreed_error if another number was asked for.
grid choose_grid(grid asked, int device_count);

// How many threads share a row. Throws common::agreed_error if that number does not divide the threads of a rank.
int choose_team(int asked, int threads, int usual);

} // namespace sparse
