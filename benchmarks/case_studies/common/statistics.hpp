// SPDX-License-Identifier: BSD-3-Clause
// Median and its confidence interval, for applications and benchmarks.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <vector>

namespace measure {

// How long an action takes.
double seconds_of(const auto& action) {
    const auto start = std::chrono::steady_clock::now();
    action();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Low and high are the order statistics that enclose the median of the distribution with at least 95 % confidence.
// Fewer than six samples have no such interval: they are then the smallest and the largest sample, and `confident` is
// false.
struct summary {
    double median = 0.0;
    double low = 0.0;
    double high = 0.0;
    bool confident = false;
};

// Of at least one sample.
inline summary summarise(std::vector<double> samples) {
    std::sort(samples.begin(), samples.end());
    const std::size_t count = samples.size();
    summary result;
    result.median = count % 2 == 1 ? samples[count / 2] : 0.5 * (samples[count / 2 - 1] + samples[count / 2]);

    // The number of samples below the median is binomial with p = 1/2. Drop as many from each end as leaves at most
    // 2.5 % of its probability outside.
    double probability = std::pow(0.5, static_cast<double>(count));
    double tail = probability;
    std::size_t dropped = 0;
    while (tail <= 0.025 && probability > 0.0) {
        result.confident = true;
        ++dropped;
        probability *= static_cast<double>(count - dropped + 1) / static_cast<double>(dropped);
        tail += probability;
    }
    const std::size_t low = dropped == 0 ? 0 : dropped - 1;
    result.low = samples[low];
    result.high = samples[count - 1 - low];
    return result;
}

} // namespace measure
