// SPDX-License-Identifier: BSD-3-Clause
// Random matrices and vectors. Every element depends on the seed, its place and the density alone, so that any process
// makes any block without the rest.
#pragma once

#include <cstdint>
#include <vector>

#include "matrix.hpp"

namespace sparse {

// Entries are positive and below 1, so a square matrix that cannot be brought to block form has a dominant eigenvalue.
// A row is cut into slots as wide as make half of them hold one entry, at a random place; where the density is above
// 1/2, a slot is one place and holds an entry with that probability.
struct random_matrix {
    double density = 0.0; // above 0, at most 1
    std::uint64_t seed = 0;

    csr block(range of_rows, range of_columns) const;
};

// Element `index` of a random vector, from 0 to below 1. Vectors with different numbers have nothing in common.
double random_element(std::uint64_t seed, int number, int index);

} // namespace sparse
