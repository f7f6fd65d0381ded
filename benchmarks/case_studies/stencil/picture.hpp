// SPDX-License-Identifier: BSD-3-Clause
// Maps as files that others can read: PGM for numbers, PNG for people.
#pragma once

#include <string>
#include <vector>

namespace stencil {

// How a map's values become 16-bit samples.
enum class scaling {
    none,    // rounded, and limited to 0 to 65535
    stretch, // the smallest value becomes 0, the largest 65535; a comment in the file tells how to get back
};

// A PGM file of a map of rows of nx values.
std::string format_map(const std::vector<double>& map, int nx, scaling how);

// A PNG file: the map before and after, shaded like a relief by light from the north-west, and the change beside them,
// each with its scale. Throws std::runtime_error if it cannot be encoded.
std::string draw_comparison(const std::vector<double>& before, const std::vector<double>& after, int nx,
                            int iterations);

} // namespace stencil
