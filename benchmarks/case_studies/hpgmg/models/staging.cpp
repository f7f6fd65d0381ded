// SPDX-License-Identifier: BSD-3-Clause
#include "models/staging.hpp"

namespace hpgmg {

staging::staging(const decomposition& cut, int device) {
    // All devices lay out their areas in the same way, what comes first.
    std::vector<std::size_t> ends(static_cast<std::size_t>(cut.devices()));
    const auto take = [&](int owner, const region& cells) {
        std::size_t& end = ends[static_cast<std::size_t>(owner)];
        const std::size_t begin = end;
        end += static_cast<std::size_t>(cells.cells());
        return begin;
    };
    for_each(cut.levels(), [&](way why, int level, int) {
        list& here = lists_.emplace_back();
        for (int source = 0; source < cut.devices(); ++source)
            for (int target = 0; target < cut.devices(); ++target) {
                const region cells = cut.sent(why, level, source, target);
                if (cells.empty()) continue;
                const std::size_t there = take(target, cells);
                if (target == device) here.in.push_back({source, cells, there, 0});
                if (source == device) here.out.push_back({target, cells, 0, there});
            }
    });
    for (list& each : lists_)
        for (part& one : each.out) one.at = take(device, one.cells);
    cells_ = ends[static_cast<std::size_t>(device)];
}

} // namespace hpgmg
