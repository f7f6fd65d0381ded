// SPDX-License-Identifier: BSD-3-Clause
// The bottom level's solver: BiCGStab, right-preconditioned by 1/D, from u = 0. The same for the serial reference and
// for the rank that has the bottom: sums are made in one order, whoever makes them.
#pragma once

#include "arithmetic.hpp"

namespace hpgmg {

inline constexpr int most_bottom_steps = 200;
inline constexpr int sum_lanes = 32; // partial sums: every 32nd value

// The arrays of the bottom level, with ghost cells. The last ones are the solver's own.
struct bottom_arrays {
    layout in{};
    int side = 0;
    ghosts order{};
    faces beta{};
    const double *inverse_diagonal = nullptr, *source = nullptr;
    double* u = nullptr;
    double *first_residual = nullptr, *residual = nullptr, *direction = nullptr, *scaled = nullptr,
           *image_of_direction = nullptr, *image_of_residual = nullptr;
};
inline constexpr int bottom_work_arrays = 6;

// `Crew` computes values in all places of a cube of cells, for_each_cell(region, action(i, j, k)), and sums and maxima
// of values over its cells, sum(side, value(i, j, k)) and largest(side, value(i, j, k)). All have come to the end of
// each.
template <class Crew>
class bottom_solver {
public:
    DCUDA_HOST_DEVICE bottom_solver(Crew& crew, const bottom_arrays& arrays) : crew_(crew), a_(arrays) {}

    // Leaves ghost cells of u to the caller. Returns false if a number is none any more.
    DCUDA_HOST_DEVICE bool solve() {
        crew_.for_each_cell(inside(), [&](int i, int j, int k) {
            const std::ptrdiff_t at = place(i, j, k);
            a_.u[at] = 0.0;
            a_.first_residual[at] = a_.residual[at] = a_.direction[at] = a_.source[at];
        });
        const double start = largest(a_.residual);
        double product = dot(a_.residual, a_.first_residual), now = start;
        for (int step = 0; step < most_bottom_steps && is_above(now, start); ++step) {
            apply_scaled(a_.direction, a_.image_of_direction);
            const double alpha = product / dot(a_.image_of_direction, a_.first_residual);
            advance(alpha, a_.image_of_direction);
            now = largest(a_.residual);
            if (!is_above(now, start)) break;
            apply_scaled(a_.residual, a_.image_of_residual);
            const double omega =
                dot(a_.image_of_residual, a_.residual) / dot(a_.image_of_residual, a_.image_of_residual);
            advance(omega, a_.image_of_residual);
            now = largest(a_.residual);
            if (!is_above(now, start)) break;
            const double next = dot(a_.residual, a_.first_residual), beta = next / product * alpha / omega;
            product = next;
            crew_.for_each_cell(inside(), [&](int i, int j, int k) {
                const std::ptrdiff_t at = place(i, j, k);
                a_.direction[at] = a_.residual[at] + beta * (a_.direction[at] - omega * a_.image_of_direction[at]);
            });
        }
        return now - now == 0.0;
    }

private:
    DCUDA_HOST_DEVICE region inside() const { return cube(a_.side); }
    DCUDA_HOST_DEVICE std::ptrdiff_t place(int i, int j, int k) const { return a_.in.place(i, j, k); }
    // Also false for what is no number.
    DCUDA_HOST_DEVICE static bool is_above(double now, double start) { return start > 0.0 && now >= 1e-3 * start; }

    DCUDA_HOST_DEVICE double dot(const double* x, const double* y) {
        return crew_.sum(a_.side, [&](int i, int j, int k) { return x[place(i, j, k)] * y[place(i, j, k)]; });
    }
    DCUDA_HOST_DEVICE double largest(const double* x) {
        return crew_.largest(a_.side, [&](int i, int j, int k) {
            const double value = x[place(i, j, k)];
            return value < 0.0 ? -value : value;
        });
    }
    // scaled = x / D with ghost cells; image = A of it.
    DCUDA_HOST_DEVICE void apply_scaled(const double* x, double* image) {
        crew_.for_each_cell(inside(), [&](int i, int j, int k) {
            a_.scaled[place(i, j, k)] = x[place(i, j, k)] * a_.inverse_diagonal[place(i, j, k)];
        });
        crew_.for_each_cell(cube(a_.side, ghost_layers), [&](int i, int j, int k) {
            const bool is_inside = i >= 0 && i < a_.side && j >= 0 && j < a_.side && k >= 0 && k < a_.side;
            if (!is_inside) a_.scaled[place(i, j, k)] = continued(a_.scaled, a_.in, a_.side, a_.order, i, j, k);
        });
        const double squared = double(a_.side) * double(a_.side);
        crew_.for_each_cell(inside(), [&](int i, int j, int k) {
            image[place(i, j, k)] =
                apply(a_.scaled, a_.beta, place(i, j, k), a_.in.stride(0), a_.in.stride(1), squared);
        });
    }
    // One step along what was last scaled.
    DCUDA_HOST_DEVICE void advance(double length, const double* image) {
        crew_.for_each_cell(inside(), [&](int i, int j, int k) {
            const std::ptrdiff_t at = place(i, j, k);
            a_.u[at] += length * a_.scaled[at];
            a_.residual[at] -= length * image[at];
        });
    }

    Crew& crew_;
    const bottom_arrays& a_;
};

// The larger one; what is no number is larger than all that are.
DCUDA_HOST_DEVICE double larger(double a, double b) { return a - a != 0.0 && !(a > 0.0) ? a : (b <= a ? a : b); }

// A crew of one, on the host.
struct one_worker {
    template <class Action>
    void for_each_cell(const region& cells, const Action& action) const {
        for (int i = cells.first[0]; i < cells.last[0]; ++i)
            for (int j = cells.first[1]; j < cells.last[1]; ++j)
                for (int k = cells.first[2]; k < cells.last[2]; ++k) action(i, j, k);
    }
    template <class Value>
    double sum(int side, const Value& value) const {
        double lanes[sum_lanes] = {};
        int number = 0;
        for_each_cell(cube(side), [&](int i, int j, int k) { lanes[number++ % sum_lanes] += value(i, j, k); });
        double result = 0.0;
        for (const double lane : lanes) result += lane;
        return result;
    }
    template <class Value>
    double largest(int side, const Value& value) const {
        double result = 0.0;
        for_each_cell(cube(side), [&](int i, int j, int k) { result = larger(result, value(i, j, k)); });
        return result;
    }
};

} // namespace hpgmg
