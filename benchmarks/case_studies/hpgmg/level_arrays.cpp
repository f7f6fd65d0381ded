// SPDX-License-Identifier: BSD-3-Clause
#include "level_arrays.hpp"

#include <algorithm>
#include <cmath>
#include <span>

namespace hpgmg {

namespace {

constexpr int arrays_of_level = 7; // u, its twin, f, 1/D, three times beta

// Of an array, on the device that has most: arrays begin in the same places on all devices.
std::size_t points_of(const decomposition& cut, int level) {
    std::int64_t most = 0;
    for (int device = 0; device < cut.devices(); ++device)
        most = std::max(most, cut.stored(level, device).stored.cells());
    return static_cast<std::size_t>(most);
}

} // namespace

level_arrays::level_arrays(dcuda::runtime& runtime, const options& chosen, const decomposition& cut, int device)
    : runtime_(runtime), cut_(cut), device_(device) {
    make_arrays();
    fill_arrays(chosen);
}

double level_arrays::bytes_for(const decomposition& cut) {
    double points = bottom_work_arrays * double(points_of(cut, cut.levels() - 1));
    for (int level = 0; level < cut.levels(); ++level) points += arrays_of_level * double(points_of(cut, level));
    return points * sizeof(double);
}

// Where array `number` of a level begins.
std::size_t level_arrays::place(int level, int number) const {
    std::size_t points = 0;
    for (int finer = 0; finer < level; ++finer) points += arrays_of_level * points_of(cut_, finer);
    return points + std::size_t(number) * points_of(cut_, level);
}

void level_arrays::make_arrays() {
    const int bottom = cut_.levels() - 1;
    arrays_ = common::device_buffer<double>(place(bottom, arrays_of_level + bottom_work_arrays));
    arrays_.clear();
    for (int number = 0; number < cut_.levels(); ++number) {
        device_level& level = levels_.emplace_back();
        level.side = cut_.level(number).side();
        level.order = order_of(cut_.level(number).box_side);
        level.in = cut_.stored(number, device_);
        const auto array = [&](int which) { return arrays_.data() + place(number, which); };
        for (int which = 0; which < 2; ++which) {
            level.u[which] = array(which);
            level.u_place[which] = static_cast<std::ptrdiff_t>(place(number, which));
        }
        level.source = array(2);
        level.source_place = static_cast<std::ptrdiff_t>(place(number, 2));
        level.inverse_diagonal = array(3);
        for (int d = 0; d < 3; ++d) level.beta.beta[d] = array(4 + d);
    }
    const device_level& last = levels_.back();
    const auto work = [&](int which) { return arrays_.data() + place(bottom, arrays_of_level + which); };
    bottom_ = {last.in,     last.side, last.order, last.beta, last.inverse_diagonal,
               last.source, last.u[0], work(0),    work(1),   work(2),
               work(3),     work(4),   work(5)};
}

// What does not change, and f on the finest level.
void level_arrays::fill_arrays(const options& chosen) {
    const problem of(cut_.level(0).side(), chosen.amplitude);
    for (int number = 0; number < cut_.levels(); ++number) {
        device_level& level = levels_[static_cast<std::size_t>(number)];
        const tables constant = make_tables(of, cut_.level(number), number, level.in);
        for (int d = 0; d < 3; ++d)
            arrays_.upload(constant.beta[d].data(), constant.beta[d].size(), place(number, 4 + d));
        arrays_.upload(constant.inverse_diagonal.data(), constant.inverse_diagonal.size(), place(number, 3));
        const std::vector<chebyshev_step> steps = chebyshev_steps(largest_of_all(constant.lambda));
        std::copy_n(steps.begin(), sweeps, level.steps);
    }
    const region cells = cut_.owned(0, device_);
    std::vector<double> source(points_of(cut_, 0));
    double largest_here = 0.0;
    for (int i = cells.first[0]; i < cells.last[0]; ++i)
        for (int j = cells.first[1]; j < cells.last[1]; ++j)
            for (int k = cells.first[2]; k < cells.last[2]; ++k) {
                const double value = of.source(i, j, k);
                source[static_cast<std::size_t>(levels_[0].in.place(i, j, k))] = value;
                largest_here = std::max(largest_here, std::abs(value));
            }
    arrays_.upload(source.data(), source.size(), place(0, 2));
    largest_source_ = largest_of_all(largest_here);
    level_buffer_ = on_device(levels_);
}

double level_arrays::largest_of_all(double own) const {
    double largest = 0.0;
    for (const double each : runtime_.gather(own)) largest = std::max(largest, each);
    runtime_.broadcast(largest);
    return largest;
}

std::vector<double> level_arrays::collect() const {
    std::vector<double> own(points_of(cut_, 0)), result;
    arrays_.download(own.data(), own.size());
    const std::vector<std::vector<double>> parts = runtime_.gather(std::span<const double>(own));
    const int side = cut_.level(0).side();
    if (!parts.empty()) result.resize(std::size_t(side) * std::size_t(side) * std::size_t(side));
    for (int device = 0; device < static_cast<int>(parts.size()); ++device) {
        const region cells = cut_.owned(0, device);
        const layout from = cut_.stored(0, device), all{cube(side)};
        for (int i = cells.first[0]; i < cells.last[0]; ++i)
            for (int j = cells.first[1]; j < cells.last[1]; ++j)
                std::copy_n(parts[static_cast<std::size_t>(device)].begin() + from.place(i, j, cells.first[2]),
                            cells.extent(2), result.begin() + all.place(i, j, cells.first[2]));
    }
    return result;
}

} // namespace hpgmg
