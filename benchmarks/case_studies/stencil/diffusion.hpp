// SPDX-License-Identifier: BSD-3-Clause
// The mathematics of horizontal diffusion, for host and device: COSMO's fourth-order scheme with flux limiter.
//
// Three stencils follow each other in every iteration, on every level k by itself:
//     lap      from the field's four neighbours
//     fx, fy   differences of lap, zero where they would steepen the field
//     field    less the coefficient times the divergence of the fluxes
//
// Boundary: the two outermost rows and columns keep their initial values. So no stencil reads outside the grid, and a
// grid with fewer than five rows or columns does not change.
//
// Compile without contraction to fused multiply-add (nvcc -fmad=false, host -ffp-contract=off): then every backend
// rounds alike and results are equal to the last bit, however the grid is divided.
#pragma once

#include <cstddef>

#include "common/partition.hpp"

namespace stencil {

using common::partition;
using common::range;

// Points in each direction. A field stores x fastest and y slowest, so that the row y of all levels is one contiguous
// plane of x by z: what neighbours in y exchange.
struct grid {
    int nx = 0;
    int ny = 0;
    int nz = 0;

    DCUDA_HOST_DEVICE std::size_t plane() const { return static_cast<std::size_t>(nx) * static_cast<std::size_t>(nz); }
    DCUDA_HOST_DEVICE std::size_t plane_bytes() const { return plane() * sizeof(double); }
    DCUDA_HOST_DEVICE std::size_t points() const { return plane() * static_cast<std::size_t>(ny); }

    // Where each stencil is computed.
    DCUDA_HOST_DEVICE range lap_columns() const { return {1, nx - 1}; }
    DCUDA_HOST_DEVICE range lap_rows() const { return {1, ny - 1}; }
    DCUDA_HOST_DEVICE range flux_columns() const { return {1, nx - 2}; }
    DCUDA_HOST_DEVICE range flux_rows() const { return {1, ny - 2}; }
    DCUDA_HOST_DEVICE range inner_columns() const { return {2, nx - 2}; }
    DCUDA_HOST_DEVICE range inner_rows() const { return {2, ny - 2}; }
};

// Rows of a field in memory, addressed by their coordinates in the whole grid.
struct field_view {
    double* data = nullptr; // the point (0, first_row, 0)
    int first_row = 0;
    int nx = 0;
    std::size_t plane = 0;

    DCUDA_HOST_DEVICE double* row(int y) const { return data + static_cast<std::size_t>(y - first_row) * plane; }
    DCUDA_HOST_DEVICE std::size_t offset(int x, int k) const { // in a row
        return static_cast<std::size_t>(k) * static_cast<std::size_t>(nx) + static_cast<std::size_t>(x);
    }
    DCUDA_HOST_DEVICE double& operator()(int x, int y, int k) const { return row(y)[offset(x, k)]; }
};

// Field: field_view, or what has the same call.
template <class Field>
DCUDA_HOST_DEVICE double laplacian(const Field& in, int x, int y, int k) {
    return in(x - 1, y, k) + in(x + 1, y, k) + in(x, y - 1, k) + in(x, y + 1, k) - 4.0 * in(x, y, k);
}

// Zero if the flux goes up the gradient.
DCUDA_HOST_DEVICE double limited(double flux, double gradient) { return flux * gradient > 0.0 ? 0.0 : flux; }

template <class Field>
DCUDA_HOST_DEVICE double flux_x(const Field& in, const Field& lap, int x, int y, int k) {
    return limited(lap(x + 1, y, k) - lap(x, y, k), in(x + 1, y, k) - in(x, y, k));
}

template <class Field>
DCUDA_HOST_DEVICE double flux_y(const Field& in, const Field& lap, int x, int y, int k) {
    return limited(lap(x, y + 1, k) - lap(x, y, k), in(x, y + 1, k) - in(x, y, k));
}

struct fluxes {
    double x, y;
};
DCUDA_HOST_DEVICE fluxes flux(const field_view& in, const field_view& lap, int x, int y, int k) {
    return {flux_x(in, lap, x, y, k), flux_y(in, lap, x, y, k)};
}

template <class Field, class FluxX>
DCUDA_HOST_DEVICE double diffused(const Field& in, const FluxX& fx, const Field& fy, double coefficient, int x, int y,
                                  int k) {
    return in(x, y, k) - coefficient * (fx(x, y, k) - fx(x - 1, y, k) + fy(x, y, k) - fy(x, y - 1, k));
}

// All three at one point: the same operations in the same order, with the stencils in between computed where they are
// needed.
template <class Field>
DCUDA_HOST_DEVICE double diffused_at_once(const Field& in, double coefficient, int x, int y, int k) {
    const double here = in(x, y, k), lap = laplacian(in, x, y, k);
    const double east = limited(laplacian(in, x + 1, y, k) - lap, in(x + 1, y, k) - here);
    const double west = limited(lap - laplacian(in, x - 1, y, k), here - in(x - 1, y, k));
    const double after = limited(laplacian(in, x, y + 1, k) - lap, in(x, y + 1, k) - here);
    const double before = limited(lap - laplacian(in, x, y - 1, k), here - in(x, y - 1, k));
    return here - coefficient * (east - west + after - before);
}

} // namespace stencil
