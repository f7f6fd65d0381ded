// SPDX-License-Identifier: BSD-3-Clause
// The arithmetic of a cell, for the serial reference, for ranks and for tables: the operator, ghost cells at the
// boundary, interpolation. Additions are made in the order written.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dcuda/config.hpp"

namespace hpgmg {

inline constexpr int ghost_layers = 2;

// Cells first to last - 1 in each dimension; the last dimension's cells lie side by side.
struct region {
    int first[3] = {}, last[3] = {};

    DCUDA_HOST_DEVICE int extent(int dimension) const { return last[dimension] - first[dimension]; }
    DCUDA_HOST_DEVICE bool empty() const { return extent(0) <= 0 || extent(1) <= 0 || extent(2) <= 0; }
    DCUDA_HOST_DEVICE std::int64_t cells() const {
        return empty() ? 0 : std::int64_t{1} * extent(0) * extent(1) * extent(2);
    }
};

// A cube of cells at the origin, with `grown` layers more around it.
DCUDA_HOST_DEVICE region cube(int side, int grown = 0) {
    region result;
    for (int d = 0; d < 3; ++d) {
        result.first[d] = -grown;
        result.last[d] = side + grown;
    }
    return result;
}
DCUDA_HOST_DEVICE region grow(region cells, int layers) {
    for (int d = 0; d < 3; ++d) {
        cells.first[d] -= layers;
        cells.last[d] += layers;
    }
    return cells;
}
// Takes layers off a region at a side of a dimension, fewer where it has no more, and returns them.
DCUDA_HOST_DEVICE region cut_off(region& from, int dimension, bool is_low, int layers) {
    region result = from;
    const int taken = from.extent(dimension) < layers ? from.extent(dimension) : layers;
    if (is_low)
        result.last[dimension] = from.first[dimension] += taken;
    else
        result.first[dimension] = from.last[dimension] -= taken;
    return result;
}
// The coarse cells that such fine ones lie in.
DCUDA_HOST_DEVICE region halved(region cells) {
    for (int d = 0; d < 3; ++d) {
        cells.first[d] /= 2;
        cells.last[d] /= 2;
    }
    return cells;
}
DCUDA_HOST_DEVICE region intersection(region a, const region& b) {
    for (int d = 0; d < 3; ++d) {
        if (a.first[d] < b.first[d]) a.first[d] = b.first[d];
        if (a.last[d] > b.last[d]) a.last[d] = b.last[d];
    }
    return a;
}

// Where the cells of a region lie in an array.
struct layout {
    region stored{};

    DCUDA_HOST_DEVICE std::ptrdiff_t stride(int dimension) const {
        if (dimension == 2) return 1;
        const auto row = static_cast<std::ptrdiff_t>(stored.extent(2));
        return dimension == 1 ? row : row * stored.extent(1);
    }
    DCUDA_HOST_DEVICE std::ptrdiff_t place(int i, int j, int k) const {
        return (i - stored.first[0]) * stride(0) + (j - stored.first[1]) * stride(1) + (k - stored.first[2]);
    }
};

// --- The operator ----------------------------------------------------------------------------------------------------

// Faces in one dimension, of A u without its factor: those across from the cell, and the correction by the slope of
// beta along t, of each of the two other dimensions.
DCUDA_HOST_DEVICE double across(const double* u, const double* beta, std::ptrdiff_t e) {
    return beta[0] * (15.0 * (u[-e] - u[0]) - (u[-2 * e] - u[e])) +
           beta[e] * (15.0 * (u[e] - u[0]) - (u[2 * e] - u[-e]));
}
DCUDA_HOST_DEVICE double along(const double* u, const double* beta, std::ptrdiff_t e, std::ptrdiff_t t) {
    return (beta[t] - beta[-t]) * (u[-e + t] - u[t] - u[-e - t] + u[-t]) +
           (beta[e + t] - beta[e - t]) * (u[e + t] - u[t] - u[e - t] + u[-t]);
}

// beta at a cell's low face in each dimension; the high face is the next cell's.
struct faces {
    const double* beta[3] = {};
};

// A u in the cell at `at`; `squared` is 1 / h^2.
DCUDA_HOST_DEVICE double apply(const double* u, const faces& of, std::ptrdiff_t at, std::ptrdiff_t si,
                               std::ptrdiff_t sj, double squared) {
    const double *const v = u + at, *const b0 = of.beta[0] + at, *const b1 = of.beta[1] + at,
                        *const b2 = of.beta[2] + at;
    const double straight = across(v, b0, si) + across(v, b1, sj) + across(v, b2, 1);
    const double mixed = along(v, b0, si, sj) + along(v, b0, si, 1) + along(v, b1, sj, si) + along(v, b1, sj, 1) +
                         along(v, b2, 1, si) + along(v, b2, 1, sj);
    return -squared * (straight * (1.0 / 12.0) + mixed * (1.0 / 48.0));
}

// --- Ghost cells -----------------------------------------------------------------------------------------------------

// Of which order ghost cells continue the cells next to the boundary.
enum class ghosts { quadratic, quartic };

// In boxes too small for the fourth order the second is taken.
DCUDA_HOST_DEVICE ghosts order_of(int box_side) { return box_side < 4 ? ghosts::quadratic : ghosts::quartic; }

// Beyond which boundary a cell lies in one dimension: 0: inside; -1 and -2: in the first and second layer below the
// first cell; 1 and 2: above the last.
DCUDA_HOST_DEVICE int layer_of(int at, int side) { return at < 0 ? at : at < side ? 0 : at - side + 1; }

// What the cells next to the boundary count for in a ghost cell, from there inwards. `layer`: 1 or 2.
DCUDA_HOST_DEVICE int cells_for(ghosts order) { return order == ghosts::quartic ? 4 : 2; }
DCUDA_HOST_DEVICE double weight_of(int number, int layer, ghosts order) {
    if (order == ghosts::quadratic) return layer == 2 ? 0.0 : number == 0 ? -2.5 : 0.5;
    if (layer == 1)
        return number == 0 ? -77.0 / 12.0 : number == 1 ? 43.0 / 12.0 : number == 2 ? -17.0 / 12.0 : 3.0 / 12.0;
    return number == 0 ? -505.0 / 12.0 : number == 1 ? 335.0 / 12.0 : number == 2 ? -145.0 / 12.0 : 27.0 / 12.0;
}

// Which of the grid's six faces such cells touch: a bit for each, of low and high ones in turn.
DCUDA_HOST_DEVICE unsigned touched_faces(const region& cells, int side) {
    unsigned faces = 0;
    for (int d = 0; d < 3; ++d)
        faces |= (cells.first[d] == 0 ? 1U : 0U) << 2 * d | (cells.last[d] == side ? 2U : 0U) << 2 * d;
    return faces;
}

// The ghost cells beside such cells, at the grid's boundary, that A reads: across six faces, in two layers, and across
// twelve edges, in one. Interpolation reads more. Empty where the cells do not touch these faces.
inline constexpr int pieces_of_boundary = 18;
DCUDA_HOST_DEVICE region piece_of_boundary(const region& cells, int side, unsigned touched, int number) {
    const int edge = number - 6, along = edge / 4; // the dimension that an edge does not cross
    const int first = number < 6 ? number : 2 * (along == 0 ? 1 : 0) + edge % 2,
              second = number < 6 ? number : 2 * (along == 2 ? 1 : 2) + edge / 2 % 2;
    if ((touched >> first & touched >> second & 1U) == 0) return {};
    region result = cells;
    const int layers = number < 6 ? ghost_layers : 1;
    for (const int face : {first, second}) {
        result.first[face / 2] = face % 2 == 0 ? -layers : side;
        result.last[face / 2] = face % 2 == 0 ? 0 : side + layers;
    }
    return result;
}

// A cell of a level, or a ghost cell: where it lies in an array, and its layers in each dimension.
struct ghost_cell {
    std::ptrdiff_t place = 0;
    std::int8_t layers[3] = {};
};
DCUDA_HOST_DEVICE ghost_cell ghost_cell_at(int i, int j, int k, const layout& in, int side) {
    const auto layer = [&](int at) { return static_cast<std::int8_t>(layer_of(at, side)); };
    return {in.place(i, j, k), {layer(i), layer(j), layer(k)}};
}

// Its value, from the cells inside.
// PERF: loads that do not wait for each other, and no arrays, which would lie in local memory.
DCUDA_HOST_DEVICE double continued(const double* u, const layout& in, ghosts order, const ghost_cell& cell) {
    struct direction {
        int layer = 0;
        std::ptrdiff_t inwards = 0;
    };
    const auto beyond = [&](int d) {
        const int layer = cell.layers[d];
        return layer < 0 ? direction{-layer, in.stride(d)} : direction{layer, -in.stride(d)};
    };
    direction a = beyond(0), b = beyond(1), c = beyond(2);
    const double* const first = u + cell.place + a.layer * a.inwards + b.layer * b.inwards + c.layer * c.inwards;
    // Those in which it lies beyond the boundary come first.
    if (b.layer == 0) {
        b = c;
        c = {};
    }
    if (a.layer == 0) {
        a = b;
        b = c;
        c = {};
    }
    if (a.layer == 0) return *first;
    const auto sum = [&](const direction& of, const auto& value) {
        const auto term = [&](int number) { return weight_of(number, of.layer, order) * value(number * of.inwards); };
        const double near = term(0) + term(1);
        return order == ghosts::quartic ? near + term(2) + term(3) : near;
    };
    const auto line = [&](const double* from) { return sum(a, [&](std::ptrdiff_t at) { return from[at]; }); };
    const auto plane = [&](const double* from) {
        return b.layer == 0 ? line(from) : sum(b, [&](std::ptrdiff_t at) { return line(from + at); });
    };
    if (c.layer == 0) return plane(first);
    double value = 0.0;
    DCUDA_NO_UNROLL
    for (int number = 0; number < cells_for(order); ++number)
        value += weight_of(number, c.layer, order) * plane(first + number * c.inwards);
    return value;
}
DCUDA_HOST_DEVICE double continued(const double* u, const layout& in, int side, ghosts order, int i, int j, int k) {
    return continued(u, in, order, ghost_cell_at(i, j, k, in, side));
}

// --- Between levels --------------------------------------------------------------------------------------------------

// How a fine cell's value comes from the coarse ones around it in one dimension: `sign` is 1 for the lower fine cell of
// the coarse one, -1 for the upper.
struct of_v_cycle {
    template <class Value>
    static DCUDA_HOST_DEVICE double between(double sign, const Value& c) {
        return c(0) + sign * (c(-1) - c(1)) * 0.125;
    }
};
struct of_f_cycle {
    template <class Value>
    static DCUDA_HOST_DEVICE double between(double sign, const Value& c) {
        return c(0) + sign * (22.0 * (c(-1) - c(1)) - 3.0 * (c(-2) - c(2))) * (1.0 / 128.0);
    }
};

// The value of the fine cell (i, j, k) from the coarse ones.
template <class Cycle>
DCUDA_HOST_DEVICE double interpolate(const double* coarse, const layout& in, int i, int j, int k) {
    const double* const c = coarse + in.place(i >> 1, j >> 1, k >> 1);
    const auto sign = [](int fine) { return fine % 2 == 0 ? 1.0 : -1.0; };
    const std::ptrdiff_t si = in.stride(0), sj = in.stride(1);
    return Cycle::between(sign(i), [&](int x) {
        return Cycle::between(
            sign(j), [&](int y) { return Cycle::between(sign(k), [&](int z) { return c[x * si + y * sj + z]; }); });
    });
}

// The mean of what the 8 fine cells of the coarse cell (i, j, k) have: value(fine i, fine j, fine k).
template <class Value>
DCUDA_HOST_DEVICE double restricted(int i, int j, int k, const Value& value) {
    double sum = 0.0;
    for (int cell = 0; cell < 8; ++cell) sum += value(2 * i + (cell >> 2), 2 * j + (cell >> 1) % 2, 2 * k + cell % 2);
    return sum * 0.125;
}

} // namespace hpgmg
