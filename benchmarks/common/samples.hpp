// SPDX-License-Identifier: BSD-3-Clause
// What the host makes of what kernels have measured.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "common/device.hpp"

namespace benchmark {

// Of each batch, from when the first rank began to when the last one ended. `stamps`: [batch][rank].
inline std::vector<double> microseconds_of_batches(const std::vector<interval>& stamps, std::size_t ranks) {
    std::vector<double> result;
    for (std::size_t first = 0; first < stamps.size(); first += ranks) {
        interval whole = stamps[first];
        for (std::size_t i = first; i < first + ranks; ++i)
            whole = {std::min(whole.start, stamps[i].start), std::max(whole.stop, stamps[i].stop)};
        result.push_back(static_cast<double>(whole.stop - whole.start) * 1e-3);
    }
    return result;
}

// Each sample times `factor`, or `amount` by each sample.
inline std::vector<double> scaled(std::vector<double> samples, double factor) {
    for (double& sample : samples) sample *= factor;
    return samples;
}
inline std::vector<double> rate(double amount, std::vector<double> samples) {
    for (double& sample : samples) sample = amount / std::max(sample, 1e-9);
    return samples;
}

} // namespace benchmark
