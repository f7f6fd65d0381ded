// SPDX-License-Identifier: BSD-3-Clause
// What the program says at the end: in plain words, and as JSON.
#pragma once

#include <string>
#include <vector>

#include "common/times.hpp"
#include "levels.hpp"
#include "options.hpp"

namespace hpgmg {

struct report {
    std::vector<level_shape> levels = {};
    int devices = 1, ranks_per_device = 1, threads = 1;
    int ranks_with_cells = 1; // of each device
    std::string backend = {};
    std::string carrier = {};                       // of a model to compare with: what brings cells to other devices
    std::vector<double> residuals = {};             // max|f - A u| / max|f| after the F-cycle and after each V-cycle
    std::vector<double> milliseconds = {};          // one entry per run
    std::vector<double> exchange_milliseconds = {}; // of such a model: of a run without its kernels
    std::vector<double> parts_us = {};              // with --parts: of a solve, by level and part, on the mean rank
    std::vector<int> ranks_of_levels = {};          // beside them: ranks with cells of each level, on all devices
    common::joules energy = {};                     // of all runs
    bool is_verified = false, is_equal = false;     // with the serial reference
};

std::string in_words(const report& about, const options& chosen);
std::string as_json(const report& about, const options& chosen);

} // namespace hpgmg
