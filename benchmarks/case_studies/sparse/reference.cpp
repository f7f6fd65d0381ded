// SPDX-License-Identifier: BSD-3-Clause
#include "reference.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

namespace sparse {

namespace {

template <class Value>
Value sum_over_devices(std::vector<Value> members) {
    sum_of_tree(members.data(), static_cast<int>(members.size()));
    return members[0];
}

// The sum of term(element) over the parts of a vector, as ranks and devices add it.
double sum_of_device(const partition& parts, int device, const auto& term) {
    std::vector<double> of_ranks;
    for (int number = 0; number < parts.ranks_per_device; ++number) {
        const range part = parts.of_rank(device * parts.ranks_per_device + number);
        of_ranks.push_back(
            ordered_sum(part.count(), [&](int i) { return term(static_cast<std::size_t>(part.first + i)); }));
    }
    return ordered_sum(parts.ranks_per_device, [&](int i) { return of_ranks[static_cast<std::size_t>(i)]; });
}

double sum_of_squares(const partition& parts, const std::vector<double>& y) {
    std::vector<double> of_devices;
    for (int device = 0; device < parts.devices; ++device)
        of_devices.push_back(sum_of_device(parts, device, [&](std::size_t i) { return y[i] * y[i]; }));
    return sum_over_devices(of_devices);
}

check check_of(const partition& parts, const control& told, const std::vector<double>& x,
               const std::vector<double>& y) {
    std::vector<check> of_devices;
    for (int device = 0; device < parts.devices; ++device) {
        check sum;
        sum.along = sum_of_device(parts, device, [&](std::size_t i) { return told.factor * x[i] * y[i]; });
        sum.off = sum_of_device(
            parts, device, [&](std::size_t i) { return off_eigenvector(told.factor * x[i], y[i], told.eigenvalue); });
        of_devices.push_back(sum);
    }
    return sum_over_devices(of_devices);
}

} // namespace

std::vector<double> multiply_serially(const strips& matrix, const decomposition& whole, const std::vector<double>& x,
                                      double factor) {
    std::vector<double> y;
    std::vector<double> of_strips(matrix.size());
    for (int row = 0; row < whole.rows; ++row) {
        for (std::size_t strip = 0; strip < matrix.size(); ++strip) {
            const int first = whole.columns_at({0, static_cast<int>(strip)}).first;
            of_strips[strip] = product_of_row(matrix[strip].view(), row, x.data() + first, factor);
        }
        y.push_back(sum_over_devices(of_strips));
    }
    return y;
}

iterated iterate_serially(const strips& matrix, const decomposition& whole, const std::vector<double>& start,
                          const goal& wanted) {
    iterated result;
    control& told = result.told;
    check last_check;
    std::vector<double> x = start;
    for (int t = 0; told.state == outcome::none;) {
        std::vector<double> y = multiply_serially(matrix, whole, x, told.factor);
        const check next_check = check_of(whole.of_vector(), told, x, y);
        ++t;
        if (t >= 2) result.found.see(last_check, t - 2, wanted);
        told = result.found.next(t, sum_of_squares(whole.of_result(), y), wanted);
        if (told.state != outcome::none) result.found.see(next_check, t - 1, wanted);
        last_check = next_check;
        x = std::move(y);
    }
    for (const double element : x) result.vector.push_back(told.factor * element);
    return result;
}

comparison compare(const std::vector<double>& expected, const std::vector<double>& seen) {
    comparison result;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        if (std::bit_cast<std::uint64_t>(expected[i]) == std::bit_cast<std::uint64_t>(seen[i])) continue;
        if (result.differing++ == 0) result.first = i;
        const double difference = std::abs(expected[i] - seen[i]);
        if (!(difference <= result.largest)) result.largest = difference;
    }
    return result;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
    double along = 0.0, squares = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) along += a[i] * b[i];
    for (std::size_t i = 0; i < a.size(); ++i) {
        const double difference = a[i] - (along < 0.0 ? -b[i] : b[i]);
        squares += difference * difference;
    }
    return std::sqrt(squares);
}

} // namespace sparse
