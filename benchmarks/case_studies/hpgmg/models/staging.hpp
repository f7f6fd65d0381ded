// SPDX-License-Identifier: BSD-3-Clause
// Where cells lie that travel between devices, in models whose carriers bring bytes from buffer to buffer: one area of
// each device, with room for all that goes and comes.
//
// A carrier may write into the area before its device asks for what comes. So exchanges of a level take turns in the
// area: neighbours are at most one exchange ahead. The first exchange of a solve has a place of its own, for the last
// one of the solve before may have any of the others. What travels between levels needs one place: the answer to it
// comes before the next is sent (ranks/rank_solver.hpp has the argument for cells that neighbours across corners read).
#pragma once

#include <cstddef>
#include <vector>

#include "decomposition.hpp"

namespace hpgmg {

class staging {
public:
    static constexpr int turns = 3;
    static int turn_of(int exchange) { return exchange == 0 ? turns - 1 : exchange % 2; }

    // Cells for or from one other device, side by side in the area.
    struct part {
        int peer = -1;
        region cells{};
        std::size_t at = 0;    // in the area, in cells
        std::size_t there = 0; // of what goes: in the peer's area
    };
    struct list {
        std::vector<part> out, in;
    };

    // Of one rank on each device.
    staging(const decomposition& cut, int device);

    // The number of what a level's exchange or delivery takes; turn 0 if it is no exchange.
    static std::size_t number_of(way why, int level, int turn) {
        constexpr std::size_t lists_of_level = turns + 2;
        const auto number = static_cast<std::size_t>(why == way::exchange ? turn : turns + static_cast<int>(why) - 1);
        return static_cast<std::size_t>(level) * lists_of_level + number;
    }
    // Calls action(why, level, turn) for all lists, by their numbers.
    template <class Action>
    static void for_each(int levels, const Action& action) {
        for (int level = 0; level < levels; ++level)
            for (const way why : {way::exchange, way::to_coarse, way::to_fine})
                for (int turn = 0; turn < (why == way::exchange ? turns : 1); ++turn) action(why, level, turn);
    }

    const std::vector<list>& lists() const { return lists_; }
    std::size_t cells() const { return cells_; } // of the area

private:
    std::vector<list> lists_;
    std::size_t cells_ = 0;
};

} // namespace hpgmg
