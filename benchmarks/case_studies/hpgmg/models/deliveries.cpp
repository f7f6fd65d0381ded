// SPDX-License-Identifier: BSD-3-Clause
#include "models/deliveries.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace hpgmg {

namespace {

// The ghost cells of the grid's boundary beside a device's cells: those that A reads, or all.
std::vector<region> ghosts_of(const decomposition& cut, int level, int device, bool has_all) {
    std::vector<region> result;
    region done = cut.owned(level, device);
    const int side = cut.level(level).side();
    const unsigned touched = touched_faces(done, side);
    if (!has_all)
        for (int number = 0; number < pieces_of_boundary; ++number)
            if (const region one = piece_of_boundary(done, side, touched, number); !one.empty()) result.push_back(one);
    const region all = cut.with_ghosts(level, done);
    for (int d = 0; has_all && d < 3; ++d) {
        region low = done, high = done;
        low.first[d] = all.first[d];
        low.last[d] = done.first[d];
        high.first[d] = done.last[d];
        high.last[d] = all.last[d];
        for (const region& layers : {low, high})
            if (!layers.empty()) result.push_back(layers);
        done.first[d] = all.first[d];
        done.last[d] = all.last[d];
    }
    return result;
}

std::size_t bytes_of(const staging::part& one) { return static_cast<std::size_t>(one.cells.cells()) * sizeof(double); }

} // namespace

deliveries::deliveries(const decomposition& cut, int device, const staging& where, double* area) {
    const auto add = [&](const region& cells, double* message, std::int64_t& most) {
        pieces_.push_back({cells, message});
        most = std::max(most, cells.cells());
    };
    staging::for_each(cut.levels(), [&](way why, int level, int) {
        const staging::list& list = where.lists()[all_.size()];
        delivery next;
        next.packed = pieces_.size();
        for (const staging::part& one : list.out) {
            add(one.cells, area + one.at, next.most_packed);
            common::message out{one.peer};
            out.out = area + one.at;
            out.out_bytes = bytes_of(one);
            out.there = one.there * sizeof(double);
            next.messages.push_back(out);
        }
        next.unpacked = pieces_.size();
        if (why != way::to_coarse && !cut.owned(level, device).empty())
            for (const region& layers : ghosts_of(cut, level, device, why == way::to_fine))
                add(layers, nullptr, next.most_unpacked);
        for (const staging::part& one : list.in) {
            add(one.cells, area + one.at, next.most_unpacked);
            common::message in{one.peer};
            in.in = area + one.at;
            in.in_bytes = bytes_of(one);
            next.messages.push_back(in);
        }
        next.packed_count = static_cast<int>(next.unpacked - next.packed);
        next.unpacked_count = static_cast<int>(pieces_.size() - next.unpacked);
        all_.push_back(std::move(next));
    });
}

std::vector<common::route> deliveries::routes() const {
    std::map<int, common::route> by_peer;
    for (const delivery& each : all_)
        for (const common::message& one : each.messages) {
            common::route& way_there = by_peer[one.peer];
            way_there.peer = one.peer;
            way_there.out_bytes = std::max(way_there.out_bytes, one.out_bytes);
            way_there.in_bytes = std::max(way_there.in_bytes, one.in_bytes);
        }
    std::vector<common::route> result;
    for (const auto& [peer, each] : by_peer) result.push_back(each);
    return result;
}

} // namespace hpgmg
