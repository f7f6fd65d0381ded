// SPDX-License-Identifier: BSD-3-Clause
// How a report tells the times and the energy of a program's runs, each of which took a number of equal steps.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/statistics.hpp"
#include "dcuda/energy.hpp"

namespace common {

measure::summary seconds_per_run(const std::vector<double>& milliseconds);

// The median of a run and of a step, whose name is `step`, with its interval if there are several. No end of line.
std::string times_in_words(const std::vector<double>& milliseconds, int steps, const char* step);

// Microseconds of a step: median, interval, samples.
nlohmann::ordered_json times_as_json(const std::vector<double>& milliseconds, int steps);

// Joules of all runs of a program together, on all devices and all hosts. Of runs of dCUDA, and of kernels that
// kernel_energy measures: other models' kernels are none of the runtime's.
class joules {
public:
    void add(const dcuda::run_energy& of_run);
    // Null without runs. What is not known is null, with the reason beside it.
    nlohmann::ordered_json as_json() const;
    // Of all devices; empty: not known.
    const std::optional<double>& devices() const { return devices_; }

private:
    int runs_ = 0;
    std::optional<double> devices_, cpus_;
    std::string devices_problem_, cpus_problem_;
};

} // namespace common
