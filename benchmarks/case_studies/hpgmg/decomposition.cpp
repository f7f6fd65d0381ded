// SPDX-License-Identifier: BSD-3-Clause
#include "decomposition.hpp"

#include <algorithm>
#include <stdexcept>

namespace hpgmg {

namespace {

std::vector<int> prime_factors(int number) {
    std::vector<int> factors;
    for (int factor = 2; number > 1; ++factor)
        for (; number % factor == 0; number /= factor) factors.insert(factors.begin(), factor);
    return factors; // the largest first
}

// In how many dimensions two regions have no common place.
int apart(const region& a, const region& b) {
    int count = 0;
    for (int d = 0; d < 3; ++d) count += a.first[d] >= b.last[d] || b.first[d] >= a.last[d] ? 1 : 0;
    return count;
}

bool meet(const region& a, const region& b) { return !a.empty() && !b.empty() && !intersection(a, b).empty(); }

// Whether one reads the other's cells in a sweep: across a face or an edge, not across a corner.
bool are_neighbours(const region& a, const region& b) { return meet(grow(a, ghost_layers), b) && apart(a, b) <= 2; }

// The coarse cells that a fine brick is interpolated from.
region read_of_coarse(const region& fine) { return fine.empty() ? fine : grow(halved(fine), ghost_layers); }

// What a sweep costs a rank that has so many cells a side, in cells. One of eight arrays is read around them, too; a
// piece of a row begins and ends within 4 cells that memory brings together; and each neighbour takes a notification
// and gives one.
// PERF: so rows stay whole where the other two dimensions give ranks enough: bricks have 8 neighbours on their device
// then, not 18.
double cost_of(const int (&cells)[3], const int (&parts)[3]) {
    constexpr double cost_of_neighbour = 100.0; // 0.2 us, where 264 ranks of a device have 2 ns for a cell
    constexpr int neighbours[] = {0, 2, 8, 18}; // across faces and edges, by the dimensions that are cut
    const double more_of_row = parts[2] > 1 ? 4.0 : 0.0;
    double own = cells[2] + more_of_row, around = cells[2] + more_of_row + 2.0 * ghost_layers;
    for (int d = 0; d < 2; ++d) {
        own *= cells[d];
        around *= cells[d] + 2.0 * ghost_layers;
    }
    const auto cuts = std::count_if(parts, parts + 3, [](int count) { return count > 1; });
    return own * 0.875 + around * 0.125 + cost_of_neighbour * neighbours[cuts];
}

std::string cubed(int side) { return std::to_string(side) + "^3"; }

} // namespace

decomposition::decomposition(const std::vector<level_shape>& levels, int devices, int ranks_per_device,
                             int one_rank_side)
    : levels_(levels), devices_(devices), ranks_per_device_(ranks_per_device), one_rank_side_(one_rank_side) {
    choose_devices();
    const auto is_wide = [&](int side) {
        return side % least_brick == 0 && side / least_brick >= *std::max_element(grid_, grid_ + 3);
    };
    if (!is_wide(level(0).side()))
        throw std::runtime_error(cubed(level(0).side()) + " cells are too few for " + std::to_string(devices) +
                                 " devices: use more boxes, or fewer devices");
    while (divided_ < this->levels() && level(divided_).side() > side_of_one_device && is_wide(level(divided_).side()))
        ++divided_;
    choose_ranks();
}

// Each factor of their number cuts the longest side.
void decomposition::choose_devices() {
    for (const int factor : prime_factors(devices_)) *std::min_element(grid_, grid_ + 3) *= factor;
}

// As many ranks as there are, by what costs least.
void decomposition::choose_ranks() {
    int most[3], cells[3];
    for (int d = 0; d < 3; ++d) {
        cells[d] = level(0).side();
        for (int part = 0; part < grid_[d]; ++part) cells[d] = std::min(cells[d], owned_along(0, d, part).count());
        most[d] = cells[d] / least_brick;
    }
    const std::int64_t most_ranks = std::int64_t{1} * most[0] * most[1] * most[2];
    if (most_ranks < ranks_per_device_)
        throw std::runtime_error("a device has " + std::to_string(cells[0]) + " x " + std::to_string(cells[1]) + " x " +
                                 std::to_string(cells[2]) + " cells, which are too few for " +
                                 std::to_string(ranks_per_device_) + " ranks: each takes " + cubed(least_brick) +
                                 "; use fewer --ranks (at most " + std::to_string(most_ranks) + ") or larger boxes");
    double least = 0.0;
    for (int a = 1; a <= std::min(most[0], ranks_per_device_); ++a)
        for (int b = 1; b <= std::min(most[1], ranks_per_device_ / a); ++b) {
            const int c = std::min(most[2], ranks_per_device_ / (a * b));
            const auto longest = [&](int d, int parts) { return (most[d] + parts - 1) / parts * least_brick; };
            const double cost = cost_of({longest(0, a), longest(1, b), longest(2, c)}, {a, b, c});
            if (least != 0.0 && cost >= least) continue;
            least = cost;
            ranks_[0] = a;
            ranks_[1] = b;
            ranks_[2] = c;
        }
}

// Cuts lie in the same places on all divided levels.
common::range decomposition::owned_along(int number, int dimension, int part) const {
    const int side = level(number).side(), unit = least_brick << (divided_ - 1 - number);
    const common::range units = common::part_of({0, side / unit}, grid_[dimension], part);
    return {units.first * unit, units.last * unit};
}

region decomposition::owned(int number, int device) const {
    if (!is_divided(number)) return device == 0 ? cube(level(number).side()) : region{};
    const int at[3] = {device / (grid_[1] * grid_[2]), device / grid_[2] % grid_[1], device % grid_[2]};
    region result;
    for (int d = 0; d < 3; ++d) {
        const common::range along = owned_along(number, d, at[d]);
        result.first[d] = along.first;
        result.last[d] = along.last;
    }
    return result;
}

layout decomposition::stored(int number, int device) const {
    return {grow(is_divided(number) ? owned(number, device) : cube(level(number).side()), ghost_layers)};
}

int decomposition::parts_of_ranks(int number, int dimension) const {
    int least = level(number).side();
    if (least % least_brick != 0 || (!is_divided(number) && least <= one_rank_side_)) return 1;
    if (is_divided(number))
        for (int part = 0; part < grid_[dimension]; ++part)
            least = std::min(least, owned_along(number, dimension, part).count());
    return std::max(1, std::min(ranks_[dimension], least / least_brick));
}

region decomposition::brick(int number, int rank) const {
    const region whole = owned(number, device_of(rank));
    const int own = rank % ranks_per_device_;
    const int at[3] = {own / (ranks_[1] * ranks_[2]), own / ranks_[2] % ranks_[1], own % ranks_[2]};
    region result;
    if (whole.empty() || own >= used_ranks()) return result;
    for (int d = 0; d < 3; ++d) {
        const int parts = parts_of_ranks(number, d), unit = parts == 1 ? 1 : least_brick;
        if (at[d] >= parts) return {};
        const common::range units = common::part_of({whole.first[d] / unit, whole.last[d] / unit}, parts, at[d]);
        result.first[d] = units.first * unit;
        result.last[d] = units.last * unit;
    }
    return result;
}

std::int64_t decomposition::largest_brick() const {
    std::int64_t largest = 0;
    for (int rank = 0; rank < devices_ * ranks_per_device_; ++rank) largest = std::max(largest, brick(0, rank).cells());
    return largest;
}

int decomposition::ranks_with_cells(int number) const {
    int count = 0;
    for (int rank = 0; rank < devices_ * ranks_per_device_; ++rank) count += brick(number, rank).empty() ? 0 : 1;
    return count;
}

region decomposition::with_ghosts(int number, const region& cells) const {
    region result = cells;
    for (int d = 0; d < 3; ++d) {
        if (cells.first[d] == 0) result.first[d] -= ghost_layers;
        if (cells.last[d] == level(number).side()) result.last[d] += ghost_layers;
    }
    return result;
}

parcel decomposition::make_parcel(int number, int rank, int device, const region& cells) const {
    const layout here = stored(number, device_of(rank)), there = stored(number, device);
    parcel result;
    result.target = device * ranks_per_device_;
    result.source = here.place(cells.first[0], cells.first[1], cells.first[2]);
    result.destination = there.place(cells.first[0], cells.first[1], cells.first[2]);
    for (int d = 0; d < 3; ++d) result.extent[d] = cells.extent(d);
    for (int d = 0; d < 2; ++d) {
        result.here[d] = here.stride(d);
        result.there[d] = there.stride(d);
    }
    return result;
}

void decomposition::connect(route& by, int rank, int other) const {
    (device_of(other) == device_of(rank) ? by.near : by.far).push_back(other);
}

share decomposition::share_of(int number, int rank) const {
    share result;
    result.brick = brick(number, rank);
    if (result.brick.empty()) return result;
    const int device = device_of(rank);
    const bool has_finer = number > 0, has_coarser = number + 1 < levels();
    const region own = result.brick, to_coarse = halved(own);
    const auto read_of = [&](int other) { return has_finer ? read_of_coarse(brick(number - 1, other)) : region{}; };
    for (int other = 0; other < devices_ * ranks_per_device_; ++other) {
        if (other == rank) continue;
        if (are_neighbours(own, brick(number, other))) {
            connect(result.exchange, rank, other);
            ++result.exchange.expected;
        }
        if (has_coarser && meet(to_coarse, brick(number + 1, other))) connect(result.to_coarse, rank, other);
        if (has_coarser && meet(read_of_coarse(own), brick(number + 1, other))) ++result.to_fine.expected;
        if (meet(read_of(other), own)) connect(result.to_fine, rank, other);
        if (has_finer && meet(halved(brick(number - 1, other)), own)) ++result.to_coarse.expected;
    }
    for (int other = 0; other < devices_; ++other) {
        if (other == device) continue;
        const auto put = [&](route& by, way why, int on_level) {
            const region cells = sent(why, number, rank, other);
            if (!cells.empty()) by.parcels.push_back(make_parcel(on_level, rank, other, cells));
        };
        put(result.exchange, way::exchange, number);
        put(result.to_coarse, way::to_coarse, number + 1);
        put(result.to_fine, way::to_fine, number);
    }
    result.sections = sections_of(number, rank);
    return result;
}

std::vector<section> decomposition::sections_of(int number, int rank) const {
    const int device = device_of(rank), side = level(number).side();
    const region whole = owned(number, device), own = brick(number, rank);
    std::vector<section> result;
    region inside = own;
    for (int d = 0; d < 3; ++d)
        for (const bool is_low : {true, false}) {
            const bool is_beside_device = is_low ? own.first[d] == whole.first[d] && own.first[d] != 0
                                                 : own.last[d] == whole.last[d] && own.last[d] != side;
            if (is_beside_device && !inside.empty())
                result.push_back({cut_off(inside, d, is_low, ghost_layers), {}, 0});
        }
    result.push_back({inside.empty() ? region{} : inside, {}, 0});
    for (section& one : result) add_ghosts(one, number, device);
    return result;
}

void decomposition::add_ghosts(section& one, int number, int device) const {
    if (one.cells.empty()) return;
    const layout in = stored(number, device);
    const region all = with_ghosts(number, one.cells);
    const int side = level(number).side();
    for (int i = all.first[0]; i < all.last[0]; ++i)
        for (int j = all.first[1]; j < all.last[1]; ++j)
            for (int k = all.first[2]; k < all.last[2]; ++k) {
                if (layer_of(i, side) == 0 && layer_of(j, side) == 0 && layer_of(k, side) == 0)
                    k = one.cells.last[2] - 1; // all of the row that are inside
                else
                    one.ghosts.push_back(ghost_cell_at(i, j, k, in, side));
            }
    // 0: read by A, two layers across faces; 1: by A, one layer across edges; 2: by interpolation alone.
    const auto group = [](const ghost_cell& cell) {
        int crossed = 0, second_layers = 0;
        for (const int layer : cell.layers) {
            crossed += layer != 0 ? 1 : 0;
            second_layers += std::abs(layer) == 2 ? 1 : 0;
        }
        return crossed == 1 ? 0 : crossed == 2 && second_layers == 0 ? 1 : 2;
    };
    // PERF: threads side by side do the same.
    std::stable_sort(one.ghosts.begin(), one.ghosts.end(),
                     [&](const ghost_cell& a, const ghost_cell& b) { return group(a) < group(b); });
    one.read_by_a = static_cast<int>(
        std::count_if(one.ghosts.begin(), one.ghosts.end(), [&](const ghost_cell& cell) { return group(cell) < 2; }));
}

region decomposition::sent(way why, int number, int rank, int device) const {
    const region own = brick(number, rank);
    if (own.empty() || device == device_of(rank)) return {};
    switch (why) {
    case way::exchange: {
        const region beside = owned(number, device);
        return are_neighbours(own, beside) ? intersection(with_ghosts(number, own), grow(beside, ghost_layers))
                                           : region{};
    }
    case way::to_coarse:
        return number + 1 < levels() ? intersection(halved(own), owned(number + 1, device)) : region{};
    case way::to_fine: {
        const region read = number > 0 ? read_of_coarse(owned(number - 1, device)) : region{};
        return read.empty() ? read : intersection(with_ghosts(number, own), read);
    }
    }
    return {};
}

} // namespace hpgmg
