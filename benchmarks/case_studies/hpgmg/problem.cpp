// SPDX-License-Identifier: BSD-3-Clause
#include "problem.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <numbers>
#include <system_error>
#include <thread>

namespace hpgmg {

namespace {

constexpr double two_pi = 2.0 * std::numbers::pi;

double power(double base, int exponent) {
    double result = 1.0;
    for (int i = 0; i < exponent; ++i) result *= base;
    return result;
}

// The value beyond an end of a row of `count` values, from those next to that end, by a polynomial.
template <class Value>
double extrapolate(int count, bool is_low, const Value& value) {
    const auto b = [&](int number) { return value(is_low ? number : count - 1 - number); };
    if (count >= 5) return 5.0 * b(0) - 10.0 * b(1) + 10.0 * b(2) - 5.0 * b(3) + b(4);
    if (count == 4) return 4.0 * b(0) - 6.0 * b(1) + 4.0 * b(2) - b(3);
    return 2.0 * b(0) - b(1);
}

// The row of A that belongs to a cell, added up by colours: cells whose distances are multiples of `period` have the
// same. With u = 1 in the cells of a colour and 0 elsewhere, A u in this cell is that colour's sum.
class operator_row {
public:
    operator_row(const tables& of, const layout& in, const level_shape& shape, int i, int j, int k)
        : cell_{i, j, k}, side_(shape.side()), period_(std::min(4, side_)), order_(order_of(shape.box_side)) {
        const std::ptrdiff_t at = in.place(i, j, k);
        const double factor = -inverse_square(side_);
        for (int d = 0; d < 3; ++d) {
            const double* const beta = of.beta[d].data() + at;
            const std::ptrdiff_t e = in.stride(d);
            const double low = beta[0], high = beta[e], whole = factor / 12.0;
            add(d, 0, d, 0, -15.0 * whole * (low + high));
            add(d, -1, d, 0, whole * (15.0 * low + high));
            add(d, 1, d, 0, whole * (15.0 * high + low));
            add(d, -2, d, 0, -whole * low);
            add(d, 2, d, 0, -whole * high);
            for (int t = 0; t < 3; ++t) {
                if (t == d) continue;
                const std::ptrdiff_t s = in.stride(t);
                const double slope_low = factor / 48.0 * (beta[s] - beta[-s]),
                             slope_high = factor / 48.0 * (beta[e + s] - beta[e - s]);
                for (const int side : {-1, 1}) {
                    add(d, -1, t, side, side * slope_low);
                    add(d, 1, t, side, side * slope_high);
                    add(d, 0, t, side, -side * (slope_low + slope_high));
                }
            }
        }
    }
    double diagonal() const { return sums_[colour(cell_[0], cell_[1], cell_[2])]; }
    double others() const {
        double result = 0.0;
        for (const double sum : sums_) result += std::abs(sum);
        return result - std::abs(diagonal());
    }

private:
    int colour(int i, int j, int k) const { return (i % period_ * 4 + j % period_) * 4 + k % period_; }
    // The cells that a cell's value comes from in one dimension: itself, or the ones next to the boundary.
    struct sources {
        int at, side, layer, count;
        ghosts order;

        int cell(int number) const { return layer == 0 ? at : layer < 0 ? number : side - 1 - number; }
        double weight(int number) const { return layer == 0 ? 1.0 : weight_of(number, std::abs(layer), order); }
    };
    sources sources_of(int at) const {
        const int layer = layer_of(at, side_);
        return {at, side_, layer, layer == 0 ? 1 : cells_for(order_), order_};
    }
    // The coefficient of the cell at those distances in two dimensions, which for a ghost cell goes to others.
    void add(int d, int distance, int t, int beside, double coefficient) {
        int at[3] = {cell_[0], cell_[1], cell_[2]};
        at[d] += distance;
        at[t] += beside;
        const sources a = sources_of(at[0]), b = sources_of(at[1]), c = sources_of(at[2]);
        for (int x = 0; x < a.count; ++x)
            for (int y = 0; y < b.count; ++y)
                for (int z = 0; z < c.count; ++z)
                    sums_[colour(a.cell(x), b.cell(y), c.cell(z))] +=
                        coefficient * a.weight(x) * b.weight(y) * c.weight(z);
    }

    int cell_[3];
    int side_, period_;
    ghosts order_;
    double sums_[64] = {};
};

// Calls action(i, j, k) for all cells, by all of the host's cores if they are many: those of a plane by one.
template <class Action>
void for_each_cell(const region& cells, const Action& action) {
    std::atomic<int> next = cells.first[0];
    const auto take_planes = [&] {
        for (int i = next++; i < cells.last[0]; i = next++)
            for (int j = cells.first[1]; j < cells.last[1]; ++j)
                for (int k = cells.first[2]; k < cells.last[2]; ++k) action(i, j, k);
    };
    constexpr std::int64_t cells_of_thread = 1 << 15;
    const auto most = std::min<std::int64_t>(std::thread::hardware_concurrency(), cells.cells() / cells_of_thread);
    std::vector<std::jthread> others;
    try {
        while (static_cast<std::int64_t>(others.size()) + 1 < most) others.emplace_back(take_planes);
    } catch (const std::system_error&) { // the system gives no more threads
    }
    take_planes();
}

// beta where at most one of the two dimensions along the face leaves the grid; ghost cells continue it there.
double continued_beta(const problem& of, const level_shape& shape, int level, int dimension, const int (&at)[3]) {
    const int side = shape.side();
    for (int d = 0; d < 3; ++d) {
        if (d == dimension || (at[d] >= 0 && at[d] < side)) continue;
        return extrapolate(std::min(shape.box_side, side), at[d] < 0, [&](int number) {
            int inside[3] = {at[0], at[1], at[2]};
            inside[d] = at[d] < 0 ? number : side - shape.box_side + number;
            return of.beta(level, dimension, inside[0], inside[1], inside[2]);
        });
    }
    return of.beta(level, dimension, at[0], at[1], at[2]);
}

int outside(const int (&at)[3], int dimension, int side) {
    int count = 0;
    for (int d = 0; d < 3; ++d) count += d != dimension && (at[d] < 0 || at[d] >= side) ? 1 : 0;
    return count;
}

} // namespace

problem::problem(int side, double amplitude) : side_(side), amplitude_(amplitude) {
    const double h = 1.0 / side;
    for (int i = 0; i < side; ++i) {
        const double angle = two_pi * (i + 0.5) * h, sine = std::sin(angle), cosine = std::cos(angle);
        sines_[0].push_back(sine);
        powers_[0].push_back(power(sine, 7));
        powers_[1].push_back(two_pi * two_pi * (42.0 * power(sine, 5) * cosine * cosine - 7.0 * power(sine, 7)));
    }
    for (int i = 0; i <= side; ++i) sines_[1].push_back(std::sin(two_pi * i * h));
}

double problem::source(int i, int j, int k) const {
    const auto g = [&](int derivative, int at) { return powers_[derivative][static_cast<std::size_t>(at)]; };
    const double h = 1.0 / side_;
    const double bent = g(1, i) * g(0, j) * g(0, k) + g(0, i) * g(1, j) * g(0, k) + g(0, i) * g(0, j) * g(1, k);
    return amplitude_ * (g(0, i) * g(0, j) * g(0, k) + h * h / 24.0 * bent);
}

double problem::face(int dimension, int i, int j, int k) const {
    const auto sine = [&](int d, int at) { return sines_[d == dimension ? 1 : 0][static_cast<std::size_t>(at)]; };
    const double h = 1.0 / side_, s = sine(0, i) * sine(1, j) * sine(2, k);
    return 1.0 + s / 4.0 - std::numbers::pi * std::numbers::pi * h * h * s / 12.0;
}

double problem::beta(int level, int dimension, int i, int j, int k) const {
    if (level == 0) return face(dimension, i, j, k);
    double sum = 0.0;
    for (int fine = 0; fine < 4; ++fine) {
        const int low = fine / 2, high = fine % 2;
        sum += beta(level - 1, dimension, 2 * i + (dimension == 0 ? 0 : low),
                    2 * j + (dimension == 1   ? 0
                             : dimension == 0 ? low
                                              : high),
                    2 * k + (dimension == 2 ? 0 : high));
    }
    return sum * 0.25;
}

tables make_tables(const problem& of, const level_shape& shape, int level, const layout& in) {
    const int side = shape.side();
    const auto points = static_cast<std::size_t>(in.stored.cells());
    tables result;
    for (int d = 0; d < 3; ++d) {
        result.beta[d].assign(points, 0.0);
        region with_faces = cube(side, 1);
        with_faces.first[d] = 0;
        for_each_cell(intersection(in.stored, with_faces), [&](int i, int j, int k) {
            if (const int at[3] = {i, j, k}; outside(at, d, side) < 2)
                result.beta[d][static_cast<std::size_t>(in.place(i, j, k))] = continued_beta(of, shape, level, d, at);
        });
    }
    result.inverse_diagonal.assign(points, 0.0);
    const region inside = grow(in.stored, -ghost_layers);
    std::vector<double> largest(static_cast<std::size_t>(std::max(0, inside.extent(0)))); // of each plane
    for_each_cell(inside, [&](int i, int j, int k) {
        const operator_row row(result, in, shape, i, j, k);
        result.inverse_diagonal[static_cast<std::size_t>(in.place(i, j, k))] = 1.0 / row.diagonal();
        double& of_plane = largest[static_cast<std::size_t>(i - inside.first[0])];
        of_plane = std::max(of_plane, 1.0 + row.others() / row.diagonal());
    });
    for (const double each : largest) result.lambda = std::max(result.lambda, each);
    return result;
}

std::vector<chebyshev_step> chebyshev_steps(double lambda) {
    const double b = lambda, a = b / 8.0, theta = (b + a) / 2.0, delta = (b - a) / 2.0, sigma = theta / delta;
    double rho = 1.0 / sigma;
    std::vector<chebyshev_step> steps{{0.0, 1.0 / theta}};
    while (static_cast<int>(steps.size()) < sweeps) {
        const double next = 1.0 / (2.0 * sigma - rho);
        steps.push_back({next * rho, 2.0 * next / delta});
        rho = next;
    }
    return steps;
}

} // namespace hpgmg
