// SPDX-License-Identifier: BSD-3-Clause
// One measurement, as all benchmarks report it.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "case_studies/common/statistics.hpp"

namespace benchmark {

// What something else needs for the same, measured in the same run.
struct rival {
    std::string name;
    double value;
};

struct row {
    std::string benchmark; // the subcommand
    std::string path;      // "same device", "peer", ...
    std::string operation;
    std::size_t bytes = 0; // of one message
    int threads = 0;       // of a rank
    int ranks = 0;         // of a device, that take part
    int beside = 0;        // further ranks, which wait
    std::string unit = "us";
    measure::summary value = {};
    std::vector<rival> rivals = {};
    std::string missing = {}; // why there is no value
    std::string library = {}; // whose number this is; empty: dCUDA's
    double host_cores = 0;    // that this process kept busy meanwhile; 0: not measured

    bool measured() const { return missing.empty(); }
    // Of times and shares, less is better; of rates, more.
    bool more_is_better() const { return unit == "GB/s" || unit == "ratio" || unit == "M/s"; }
};

} // namespace benchmark
