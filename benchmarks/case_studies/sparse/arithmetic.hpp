// SPDX-License-Identifier: BSD-3-Clause
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

// Of a sum in `Sums` partial sums, to which term(0), ..., term(count - 1) are added in turn, what one of `Team`
// threads that share it has: the sum of partial sums member, member + Team, ... The sum is what sum_by_halves makes of
// the members' sums. PERF: all terms of a round are asked for before any is added, as memory takes long to answer;
// zeros that are added change nothing, since no sum is -0.
template <int Sums, int Team, class Term>
DCUDA_HOST_DEVICE double sum_of_member(int count, const Term& term, int member) {
    constexpr int own = Sums / Team, round = own < 8 ? 8 : own;
    double sums[own] = {};
    for (int e = member; e < count; e += round * Team) {
        double terms[round];
        for (int i = 0; i < round; ++i) terms[i] = term(e + i * Team < count ? e + i * Team : e);
        for (int i = 0; i < round; ++i) sums[i % own] += e + i * Team < count ? terms[i] : 0.0;
    }
    return sum_by_halves<own>(sums);
}

// A row has `row_lanes` partial sums.
inline constexpr int row_lanes = 8;

// What one of `Team` threads that share a row has of the row's product with factor * x.
template <int Team>
DCUDA_HOST_DEVICE double product_of_member(const csr_view& a, int row, const double* x, double factor, int member) {
    const std::int64_t first = a.starts[row];
    const int* const columns = a.columns + first;
    const double* const values = a.values + first;
    return sum_of_member<row_lanes, Team>(
        static_cast<int>(a.starts[row + 1] - first), [&](int e) { return values[e] * (factor * x[columns[e]]); },
        member);
}

DCUDA_HOST_DEVICE double product_of_row(const csr_view& a, int row, const double* x, double factor) {
    return product_of_member<1>(a, row, x, factor, 0);
}

// Any other sum has `bins`.
inline constexpr int bins = 256;

// The sum of term(0), ..., term(count - 1) by one thread, in memory for the partial sums.
template <class Term>
DCUDA_HOST_DEVICE double ordered_sum(int count, const Term& term, double* sums) {
    for (int bin = 0; bin < bins; ++bin) sums[bin] = 0.0;
    for (int e = 0; e < count; ++e) sums[e % bins] += term(e);
    return sum_by_halves<bins>(sums);
}
double ordered_sum(int count, const auto& term) {
    double sums[bins];
    return ordered_sum(count, term, sums);
}

} // namespace sparse
