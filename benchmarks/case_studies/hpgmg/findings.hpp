// SPDX-License-Identifier: BSD-3-Clause
// What solves tell beside the solution: residuals, and where a number was none.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "bottom.hpp"
#include "common/device_buffer.hpp"
#include "levels.hpp"

namespace hpgmg {

inline constexpr int no_failure = 1 << 30;

// In device memory.
struct findings_view {
    double* residuals = nullptr; // max|f - A u| after the F-cycle and after each V-cycle
    int* failure = nullptr;      // the least failure_at of a solve's residuals that were no numbers, or no_failure
};
// A solve's residuals have numbers in the order of time, the same on all devices; its solves are alike.
DCUDA_HOST_DEVICE int failure_at(int residual, int level) { return residual * most_levels + level; }

class findings {
public:
    explicit findings(int v_cycles) : residuals_(static_cast<std::size_t>(v_cycles) + 1), failure_(1) {}

    findings_view view() const { return {residuals_.data(), failure_.data()}; }
    // Before a run.
    void clear() {
        residuals_.clear();
        failure_.upload(&no_failure, 1);
    }
    // The largest of all devices by max|f|, on process 0. Collective.
    std::vector<double> relative_residuals(dcuda::runtime& runtime, double largest_source) const {
        std::vector<double> own(residuals_.count()), result(own.size());
        residuals_.download(own.data(), own.size());
        for (const std::vector<double>& each : runtime.gather(std::span<const double>(own)))
            for (std::size_t cycle = 0; cycle < result.size(); ++cycle)
                result[cycle] = larger(result[cycle], each[cycle] / largest_source);
        return result;
    }
    // The level whose residual was no number before all others were, or -1; on process 0 alone. Collective.
    int failed_level(dcuda::runtime& runtime) const {
        int own = no_failure;
        failure_.download(&own, 1);
        int first = no_failure;
        for (const int each : runtime.gather(own)) first = std::min(first, each);
        return first == no_failure ? -1 : first % most_levels;
    }

private:
    common::device_buffer<double> residuals_;
    common::device_buffer<int> failure_;
};

} // namespace hpgmg
