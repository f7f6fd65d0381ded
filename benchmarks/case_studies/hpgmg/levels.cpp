// SPDX-License-Identifier: BSD-3-Clause
#include "levels.hpp"

#include <stdexcept>
#include <string>

namespace hpgmg {

namespace {

int odd_part(int number) {
    while (number % 2 == 0) number /= 2;
    return number;
}

bool can_be_coarsened(level_shape shape) { return odd_part(shape.side()) <= largest_bottom; }

// The next coarser level, or the same one at the bottom.
level_shape next(level_shape fine) {
    const auto [box, boxes] = fine;
    const int odd = odd_part(fine.side());
    if (box % 2 == 0 && box > 8) return {box / 2, boxes};
    if (boxes % 2 == 0) return {box, boxes / 2};
    if (fine.side() == 2 * odd && odd != 1) return {odd, 1};
    if (box % 2 == 0 && box / 2 >= 2) return {box / 2, boxes};
    return fine;
}

} // namespace

std::vector<level_shape> coarsen(level_shape finest) {
    if (!can_be_coarsened(finest))
        throw std::runtime_error("a grid of " + std::to_string(finest.side()) +
                                 " cells a side cannot be coarsened: halved while it is even, it ends at " +
                                 std::to_string(odd_part(finest.side())) + ", above " + std::to_string(largest_bottom));
    std::vector<level_shape> levels{finest};
    while (next(levels.back()) != levels.back()) levels.push_back(next(levels.back()));
    return levels;
}

level_shape choose_finest(int box_side, long long boxes) {
    level_shape finest{box_side, 1};
    for (long long count = 1; count * count * count <= boxes && count * box_side <= largest_side; ++count)
        if (const level_shape larger{box_side, static_cast<int>(count)}; can_be_coarsened(larger)) finest = larger;
    return finest;
}

} // namespace hpgmg
