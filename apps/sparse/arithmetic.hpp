// The sums, for host and device. The order of every sum is fixed, whoever adds: a row's by `row_lanes`, others by
// `bins`, those over devices by the tree. Compile without contraction to fused multiply-add (nvcc -fmad=false, host
// -ffp-contract=off): then every backend rounds alike and results are equal to the last bit.
#pragma once

#include <cstdint>

#include "dcuda/config.hpp"

namespace sparse {

// A block in compressed rows. Row r has the entries starts[r], ..., starts[r + 1] - 1, in ascending columns. Rows and
// columns count from the block's first.
struct csr_view {
    const std::int64_t* starts;
    const int* columns;
    const double* values;
};

// Adds each of the upper half of the values to one of the lower half, until one is left: its value.
template <int Count>
DCUDA_HOST_DEVICE double sum_by_halves(double* values) {
    for (int half = Count / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; ++i) values[i] += values[i + half];
    }
    return values[0];
}

// Entry e of a row is added to partial sum e % row_lanes.
inline constexpr int row_lanes = 8;

// What one of `Team` threads that share a row has of the row's product with factor * x: the sum of partial sums
// member, member + Team, ... The row's product is what sum_by_halves makes of the members' sums.
template <int Team>
DCUDA_HOST_DEVICE double product_of_member(const csr_view& a, int row, const double* x, double factor, int member) {
    constexpr int own = row_lanes / Team;
    double sums[own] = {};
    const std::int64_t end = a.starts[row + 1];
    for (std::int64_t first = a.starts[row] + member; first < end; first += row_lanes) {
        for (int i = 0; i < own; ++i) {
            const std::int64_t entry = first + i * Team;
            if (entry < end) sums[i] += a.values[entry] * (factor * x[a.columns[entry]]);
        }
    }
    return sum_by_halves<own>(sums);
}

DCUDA_HOST_DEVICE double product_of_row(const csr_view& a, int row, const double* x, double factor) {
    return product_of_member<1>(a, row, x, factor, 0);
}

// Element e of any other sum is added to partial sum e % bins; those are then summed by halves.
inline constexpr int bins = 256;

// The sum of term(0), ..., term(count - 1), on the host.
double ordered_sum(int count, const auto& term) {
    double sums[bins] = {};
    for (int e = 0; e < count; ++e) sums[e % bins] += term(e);
    return sum_by_halves<bins>(sums);
}

} // namespace sparse
