// Median and its confidence interval.
#pragma once

#include <vector>

namespace benchmark {

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
summary summarise(std::vector<double> samples);

} // namespace benchmark
