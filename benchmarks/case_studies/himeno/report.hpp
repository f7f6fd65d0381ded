// SPDX-License-Identifier: BSD-3-Clause
// What the program says at the end: in plain words, and as JSON.
#pragma once

#include <string>
#include <vector>

#include "common/times.hpp"
#include "options.hpp"
#include "reference.hpp"

namespace himeno {

struct report {
    int devices = 1, ranks_per_device = 1, threads = 1;
    device_grid grid_of_devices{1, 1};
    std::string backend = {};
    std::string communication = {};        // of short kernels
    double processor_seconds = 0.0;        // that the last run took of this process's host
    std::vector<double> milliseconds = {}; // one entry per run
    common::joules energy = {};            // of all runs
    outcome found = {};
    bool is_verified = false, is_equal = false; // with the serial reference
};

std::string in_words(const report& about, const options& chosen);
std::string as_json(const report& about, const options& chosen);

} // namespace himeno
