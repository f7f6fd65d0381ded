// SPDX-License-Identifier: BSD-3-Clause
#include "reference.hpp"

#include <algorithm>
#include <cmath>

namespace hpgmg {

namespace {

constexpr one_worker alone;

} // namespace

serial_solver::serial_solver(level_shape finest, smoother chosen, double amplitude, int first) : first_(first) {
    const std::vector<level_shape> shapes = coarsen(finest);
    const problem of(finest.side(), amplitude);
    for (int number = first; number < static_cast<int>(shapes.size()); ++number) {
        grid_level& next = levels_.emplace_back();
        next.shape = shapes[static_cast<std::size_t>(number)];
        next.in = {cube(next.shape.side(), ghost_layers)};
        next.constant = make_tables(of, next.shape, number, next.in);
        for (std::vector<double>* array : {&next.u, &next.twin, &next.source})
            array->assign(static_cast<std::size_t>(next.in.stored.cells()), 0.0);
        if (chosen == smoother::chebyshev) next.steps = chebyshev_steps(next.constant.lambda);
    }
    for (std::vector<double>& array : work_) array.assign(at(bottom()).u.size(), 0.0);
    if (first > 0) return; // f comes from others
    grid_level& all = at(0);
    alone.for_each_cell(cube(finest.side()), [&](int i, int j, int k) {
        all.source[static_cast<std::size_t>(all.in.place(i, j, k))] = of.source(i, j, k);
    });
}

// A u in a cell.
double serial_solver::image(const grid_level& on, std::ptrdiff_t at) {
    return apply(on.u.data(), on.constant.low_faces(), at, on.in.stride(0), on.in.stride(1),
                 inverse_square(on.shape.side()));
}

void serial_solver::fill_ghosts(grid_level& on, ghosts order) {
    const int side = on.shape.side();
    alone.for_each_cell(cube(side, ghost_layers), [&](int i, int j, int k) {
        if (i >= 0 && i < side && j >= 0 && j < side && k >= 0 && k < side) return;
        on.u[static_cast<std::size_t>(on.in.place(i, j, k))] = continued(on.u.data(), on.in, side, order, i, j, k);
    });
}

void serial_solver::smooth(grid_level& on) {
    for (int sweep = 0; sweep < sweeps; ++sweep) {
        fill_ghosts(on);
        alone.for_each_cell(cube(on.shape.side()), [&](int i, int j, int k) {
            const std::ptrdiff_t place = on.in.place(i, j, k);
            const auto at = static_cast<std::size_t>(place);
            const auto change = [&] { return (on.source[at] - image(on, place)) * on.constant.inverse_diagonal[at]; };
            if (on.steps.empty()) {
                on.twin[at] = (i + j + k + sweep) % 2 == 0 ? on.u[at] + change() : on.u[at];
            } else {
                const chebyshev_step step = on.steps[static_cast<std::size_t>(sweep)];
                on.twin[at] = on.u[at] + step.before * (on.u[at] - on.twin[at]) + step.change * change();
            }
        });
        std::swap(on.u, on.twin);
    }
}

void serial_solver::restrict_sources() {
    for (int fine = first_; fine < bottom(); ++fine) {
        const grid_level& from = at(fine);
        grid_level& coarse = at(fine + 1);
        alone.for_each_cell(cube(coarse.shape.side()), [&](int i, int j, int k) {
            coarse.source[static_cast<std::size_t>(coarse.in.place(i, j, k))] =
                restricted(i, j, k, [&](int x, int y, int z) {
                    return from.source[static_cast<std::size_t>(from.in.place(x, y, z))];
                });
        });
    }
}

void serial_solver::restrict_residual(int fine) {
    grid_level& from = at(fine);
    grid_level& coarse = at(fine + 1);
    fill_ghosts(from);
    bool is_finite = true;
    alone.for_each_cell(cube(coarse.shape.side()), [&](int i, int j, int k) {
        const double value = restricted(i, j, k, [&](int x, int y, int z) {
            const std::ptrdiff_t place = from.in.place(x, y, z);
            return from.source[static_cast<std::size_t>(place)] - image(from, place);
        });
        is_finite = is_finite && std::isfinite(value);
        coarse.source[static_cast<std::size_t>(coarse.in.place(i, j, k))] = value;
    });
    if (!is_finite && !failed_) failed_ = fine;
}

template <class Cycle>
void serial_solver::interpolate_to(int fine, bool adds) {
    grid_level& on = at(fine);
    const grid_level& coarse = at(fine + 1);
    alone.for_each_cell(cube(on.shape.side()), [&](int i, int j, int k) {
        double& value = on.u[static_cast<std::size_t>(on.in.place(i, j, k))];
        value = (adds ? value : 0.0) + interpolate<Cycle>(coarse.u.data(), coarse.in, i, j, k);
    });
}

void serial_solver::solve_bottom() {
    grid_level& on = at(bottom());
    const bottom_arrays arrays{on.in,
                               on.shape.side(),
                               order_of(on.shape.box_side),
                               on.constant.low_faces(),
                               on.constant.inverse_diagonal.data(),
                               on.source.data(),
                               on.u.data(),
                               work_[0].data(),
                               work_[1].data(),
                               work_[2].data(),
                               work_[3].data(),
                               work_[4].data(),
                               work_[5].data()};
    if (!bottom_solver(alone, arrays).solve() && !failed_) failed_ = bottom();
}

void serial_solver::v_cycle(int finest) {
    for (int number = finest; number < bottom(); ++number) {
        smooth(at(number));
        restrict_residual(number);
        std::fill(at(number + 1).u.begin(), at(number + 1).u.end(), 0.0);
    }
    solve_bottom();
    for (int number = bottom() - 1; number >= finest; --number) {
        fill_ghosts(at(number + 1), ghosts::quadratic);
        interpolate_to<of_v_cycle>(number, true);
        smooth(at(number));
    }
}

double serial_solver::relative_residual(int number) {
    grid_level& on = at(number);
    fill_ghosts(on);
    const auto size = [](double value) { return std::abs(value); };
    const double residual = alone.largest(on.shape.side(), [&](int i, int j, int k) {
        const std::ptrdiff_t place = on.in.place(i, j, k);
        return size(on.source[static_cast<std::size_t>(place)] - image(on, place));
    });
    if (!std::isfinite(residual) && !failed_) failed_ = number;
    return residual / alone.largest(on.shape.side(), [&](int i, int j, int k) {
        return size(on.source[static_cast<std::size_t>(on.in.place(i, j, k))]);
    });
}

void serial_solver::f_cycle(int finest) {
    restrict_sources();
    solve_bottom();
    for (int number = bottom() - 1; number >= finest; --number) {
        fill_ghosts(at(number + 1));
        interpolate_to<of_f_cycle>(number, false);
        v_cycle(number);
    }
}

double serial_solver::solve(int level) {
    f_cycle(level);
    return relative_residual(level);
}

void serial_solver::solve_coarse() { f_cycle(first_); }

void serial_solver::correct_coarse() {
    std::fill(at(first_).u.begin(), at(first_).u.end(), 0.0);
    v_cycle(first_);
}

double serial_solver::improve() {
    v_cycle(0);
    return relative_residual(0);
}

std::vector<double> serial_solver::solution(int level) const {
    const grid_level& on = at(level);
    std::vector<double> result;
    alone.for_each_cell(cube(on.shape.side()), [&](int i, int j, int k) {
        result.push_back(on.u[static_cast<std::size_t>(on.in.place(i, j, k))]);
    });
    return result;
}

} // namespace hpgmg
