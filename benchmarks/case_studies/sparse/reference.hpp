// SPDX-License-Identifier: BSD-3-Clause
// The serial references: the same sums in the same order, on one core of the host.
#pragma once

#include <cstddef>
#include <vector>

#include "iteration.hpp"
#include "matrix.hpp"

namespace sparse {

// A whole matrix, as one block of all rows for each column of devices.
using strips = std::vector<csr>;

// The matrix times factor * x.
std::vector<double> multiply_serially(const strips& matrix, const decomposition& whole, const std::vector<double>& x,
                                      double factor);

// What a power iteration ends with.
struct iterated {
    std::vector<double> vector; // of length 1
    control told;
    findings found;
};
iterated iterate_serially(const strips& matrix, const decomposition& whole, const std::vector<double>& start,
                          const goal& wanted);

// How two vectors differ.
struct comparison {
    std::size_t differing = 0; // elements that differ in at least one bit
    double largest = 0.0;      // largest absolute difference of an element
    std::size_t first = 0;     // the first that differs
    bool equal() const { return differing == 0; }
};
comparison compare(const std::vector<double>& expected, const std::vector<double>& seen);

// How far two vectors of length 1 are apart, whatever their signs.
double distance(const std::vector<double>& a, const std::vector<double>& b);

} // namespace sparse
