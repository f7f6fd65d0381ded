// SPDX-License-Identifier: BSD-3-Clause
// What the project promises.
#pragma once

#include <optional>

#include "common/row.hpp"

namespace benchmark {

struct goal {
    double limit;
    bool at_least; // else at most

    bool met(double value) const { return at_least ? value >= limit : value <= limit; }
};

// The goal for this row, if there is one. Goals are for NVIDIA H200 GPUs joined by NVLink.
std::optional<goal> find_goal(const row& of, int processes);

} // namespace benchmark
