// SPDX-License-Identifier: BSD-3-Clause
// The Himeno benchmark's grid: points (i, j, k), i slowest and k fastest, and the arrays over it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "dcuda/config.hpp"

namespace himeno {

struct grid {
    int ni = 0, nj = 0, nk = 0;

    DCUDA_HOST_DEVICE std::size_t plane() const { return std::size_t(nj) * std::size_t(nk); }
    DCUDA_HOST_DEVICE std::size_t points() const { return std::size_t(ni) * plane(); }
    // With the one that the official figure counts less in each dimension, and all that are computed.
    double counted_points() const { return double(ni - 3) * double(nj - 3) * double(nk - 3); }
    double computed_points() const { return double(ni - 2) * double(nj - 2) * double(nk - 2); }
};

// How many parts devices cut the planes into, and the rows.
struct device_grid {
    int plane_parts = 0; // 0: as many as there are devices
    int row_parts = 1;
};

// "XS", "S", "M", "L", "XL", or "I,J,K" with at least 3 points each; nothing if it is neither.
std::optional<grid> parse_size(const std::string& text);

// What all points' coefficients are. They are read from memory all the same.
inline constexpr float a_of[4] = {1.0f, 1.0f, 1.0f, 1.0f / 6.0f};
inline constexpr float b_of = 0.0f, c_of = 1.0f, bnd_of = 1.0f, wrk1_of = 0.0f, omega = 0.8f;
inline constexpr int coefficient_count = 12; // a0 to a3, b0 to b2, c0 to c2, bnd, wrk1
inline float coefficient(int which) {
    if (which < 4) return a_of[which];
    if (which < 7) return b_of;
    return which < 10 ? c_of : which == 10 ? bnd_of : wrk1_of;
}
inline constexpr int operations_of_point = 34;

// The pressure that a point begins with, on the boundary for ever.
inline float start_of(const grid& whole, int i) {
    return static_cast<float>(i * i) / static_cast<float>((whole.ni - 1) * (whole.ni - 1));
}

} // namespace himeno
