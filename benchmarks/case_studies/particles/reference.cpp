// SPDX-License-Identifier: BSD-3-Clause
#include "reference.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace particles {

namespace {

// The numbers of the particles in each cell, in ascending order.
class cell_lists {
public:
    cell_lists(const std::vector<particle>& all, const domain& whole)
        : all_(all), whole_(whole),
          cells_(static_cast<std::size_t>(whole.columns) * static_cast<std::size_t>(whole.segments)) {
        for (std::size_t i = 0; i < all.size(); ++i) cell(column_of(all[i]), segment_of(all[i])).push_back(i);
    }

    influence on(const particle& here) {
        influence result;
        const int column = column_of(here), segment = segment_of(here);
        for (int y = std::max(segment - 1, 0); y <= std::min(segment + 1, whole_.segments - 1); ++y)
            for (int x = std::max(column - 1, 0); x <= std::min(column + 1, whole_.columns - 1); ++x)
                for (const std::size_t other : cell(x, y)) result.add(here.at, all_[other].at);
        return result;
    }

private:
    int column_of(const particle& p) const { return whole_.column_of(p.at.x); }
    int segment_of(const particle& p) const { return whole_.segment_of(p.at.y); }
    std::vector<std::size_t>& cell(int x, int y) {
        return cells_[static_cast<std::size_t>(y) * static_cast<std::size_t>(whole_.columns) +
                      static_cast<std::size_t>(x)];
    }

    const std::vector<particle>& all_;
    const domain& whole_;
    std::vector<std::vector<std::size_t>> cells_;
};

std::vector<influence> influences(const std::vector<particle>& all, const domain& whole) {
    cell_lists cells(all, whole);
    std::vector<influence> result;
    result.reserve(all.size());
    for (const particle& p : all) result.push_back(cells.on(p));
    return result;
}

} // namespace

vector move_serially(std::vector<particle>& all, const domain& whole, int steps, double time_step) {
    vector walls;
    std::vector<influence> felt = influences(all, whole);
    for (int step = 0; step < steps; ++step) {
        for (std::size_t i = 0; i < all.size(); ++i) {
            kick(all[i].velocity, felt[i].force, time_step);
            if (!is_slow(all[i].velocity, time_step))
                throw std::runtime_error("particle " + std::to_string(i) + " is too fast");
            const vector taken = drift(all[i], whole, time_step);
            walls.x += taken.x;
            walls.y += taken.y;
        }
        felt = influences(all, whole);
        for (std::size_t i = 0; i < all.size(); ++i) kick(all[i].velocity, felt[i].force, time_step);
    }
    return walls;
}

sums sum_up(const std::vector<particle>& all, const domain& whole) {
    sums result;
    const std::vector<influence> felt = influences(all, whole);
    for (std::size_t i = 0; i < all.size(); ++i) {
        const vector& v = all[i].velocity;
        result.momentum.x += mass * v.x;
        result.momentum.y += mass * v.y;
        result.energy += 0.5 * mass * (v.x * v.x + v.y * v.y) + 0.5 * felt[i].potential;
    }
    return result;
}

comparison compare(const std::vector<particle>& expected, const std::vector<particle>& seen) {
    comparison result;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const particle& a = expected[i];
        const particle& b = seen[i];
        bool equal = a.number == b.number;
        const auto look_at = [&](double x, double y) {
            if (std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y)) return;
            equal = false;
            const double difference = std::abs(x - y);
            if (!(difference <= result.largest)) result.largest = difference;
        };
        look_at(a.at.x, b.at.x);
        look_at(a.at.y, b.at.y);
        look_at(a.velocity.x, b.velocity.x);
        look_at(a.velocity.y, b.velocity.y);
        if (!equal && result.differing++ == 0) result.first = i;
    }
    return result;
}

} // namespace particles
