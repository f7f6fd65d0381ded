// SPDX-License-Identifier: BSD-3-Clause
// The serial reference.
#pragma once

#include <cstddef>

#include "field.hpp"

namespace stencil {

// Diffuses the whole field, one iteration after the other, on one core of the host.
void diffuse_serially(field& in, int iterations, double coefficient);

// How two fields differ.
struct comparison {
    std::size_t differing = 0; // points that differ in at least one bit
    double largest = 0.0;      // largest absolute difference
    std::size_t first = 0;     // index of the first point that differs
    bool equal() const { return differing == 0; }
};

// Compares bit by bit. Both fields have the same shape.
comparison compare(const field& expected, const field& seen);

} // namespace stencil
