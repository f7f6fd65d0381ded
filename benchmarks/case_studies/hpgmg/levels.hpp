// SPDX-License-Identifier: BSD-3-Clause
// The levels of the grid: cubes of cells, cut into equal boxes, from the finest to the bottom.
#pragma once

#include <vector>

#include "dcuda/config.hpp"

namespace hpgmg {

// A level: boxes_per_dimension^3 boxes of box_side^3 cells. The side of a box matters for the boundary alone: formulas
// of fourth order take more cells than small boxes have. Who owns which cells is another matter.
struct level_shape {
    int box_side = 0, boxes_per_dimension = 0;

    int side() const { return box_side * boxes_per_dimension; }
    double cells() const { return double(side()) * double(side()) * double(side()); }
    bool operator==(const level_shape&) const = default;
};

inline constexpr int largest_bottom = 11; // cells a side that are solved for without a coarser level
inline constexpr int most_levels = 16;
inline constexpr int largest_side = 1 << 14;

// All levels from this one to the bottom. Throws std::runtime_error if the grid cannot be coarsened.
std::vector<level_shape> coarsen(level_shape finest);

// The largest grid of at most so many boxes that can be coarsened.
level_shape choose_finest(int box_side, long long boxes);

} // namespace hpgmg
