// SPDX-License-Identifier: BSD-3-Clause
// The kernels of a solve that the host launches, each over the cells of a region; on the CPU backend they are loops.
#pragma once

#include <algorithm>
#include <cstddef>

#include "block_of_threads.hpp"
#include "common/models/streams.hpp"
#include "findings.hpp"
#include "level_arrays.hpp"
#include "models/deliveries.hpp"

namespace hpgmg {

// --- What is done in a cell ------------------------------------------------------------------------------------------
// `reach`: how many layers at the sides of a device's cells are computed from cells beside them.

struct sweep_from_zero {
    static constexpr int reach = 0;

    device_level on;
    bool is_chebyshev;

    DCUDA_DEVICE void operator()(int i, int j, int k) const {
        const std::ptrdiff_t at = on.in.place(i, j, k);
        on.u[1][at] = swept_from_zero(on, is_chebyshev, i + j + k, at);
    }
};

// A sweep from one array of u to the other.
struct red_black_sweep {
    static constexpr int reach = ghost_layers;

    device_level on;
    int sweep;

    DCUDA_DEVICE void operator()(int i, int j, int k) const {
        const double* const u = on.u[sweep % 2];
        const std::ptrdiff_t at = on.in.place(i, j, k);
        const bool changes = (i + j + k + sweep) % 2 == 0;
        on.u[1 - sweep % 2][at] =
            changes ? u[at] + (on.source[at] - image(on, u, at)) * on.inverse_diagonal[at] : u[at];
    }
};
struct chebyshev_sweep {
    static constexpr int reach = ghost_layers;

    device_level on;
    int sweep;

    DCUDA_DEVICE void operator()(int i, int j, int k) const {
        const double* const u = on.u[sweep % 2];
        double* const twin = on.u[1 - sweep % 2];
        const std::ptrdiff_t at = on.in.place(i, j, k);
        const chebyshev_step step = on.steps[sweep];
        const double change = (on.source[at] - image(on, u, at)) * on.inverse_diagonal[at];
        twin[at] = u[at] + step.before * (u[at] - twin[at]) + step.change * change;
    }
};

// In coarse cells: f from f, and from the residual.
struct restrict_source {
    static constexpr int reach = 0;

    device_level fine, coarse;

    DCUDA_DEVICE void operator()(int i, int j, int k) const {
        coarse.source[coarse.in.place(i, j, k)] =
            restricted(i, j, k, [&](int x, int y, int z) { return fine.source[fine.in.place(x, y, z)]; });
    }
};
struct restrict_residual {
    static constexpr int reach = ghost_layers / 2;

    device_level fine, coarse;
    findings_view found;
    int failure; // what it is if a number is none

    DCUDA_DEVICE void operator()(int i, int j, int k) const {
        const double value =
            restricted(i, j, k, [&](int x, int y, int z) { return residual_at(fine, fine.in.place(x, y, z)); });
        if (value - value != 0.0) atomicMin(found.failure, failure);
        coarse.source[coarse.in.place(i, j, k)] = value;
    }
};

struct note_failure {
    findings_view found;
    int failure;

    DCUDA_DEVICE void operator()(int, int, int) const { atomicMin(found.failure, failure); }
};

template <class Cycle>
struct interpolate_to_fine {
    static constexpr int reach = 2 * ghost_layers;

    device_level fine, coarse;
    bool adds;

    DCUDA_DEVICE void operator()(int i, int j, int k) const {
        double& value = fine.u[0][fine.in.place(i, j, k)];
        value = (adds ? value : 0.0) + interpolate<Cycle>(coarse.u[0], coarse.in, i, j, k);
    }
};

// What goes to other devices, with ghost cells of the grid's boundary: all from the cells inside.
struct pack {
    layout in;
    int side;
    ghosts order;
    const double* array;

    DCUDA_DEVICE void operator()(const piece& one, int i, int j, int k) const {
        one.message[place_in(one, i, j, k)] = continued(array, in, side, order, i, j, k);
    }
};
// What has come, and the device's own ghost cells at the grid's boundary.
struct unpack_and_fill {
    layout in;
    int side;
    ghosts order;
    double* array;

    DCUDA_DEVICE void operator()(const piece& one, int i, int j, int k) const {
        array[in.place(i, j, k)] =
            one.message != nullptr ? one.message[place_in(one, i, j, k)] : continued(array, in, side, order, i, j, k);
    }
};

// --- Launches --------------------------------------------------------------------------------------------------------

// Tiles of cells, each for the threads of a block.
struct tiles {
    int extent[3] = {}; // of a tile
    int along[3] = {};  // each dimension

    tiles() = default;
    // Threads lie along rows first: a power of two of them that is no more than twice the cells.
    tiles(const region& cells, int threads) {
        for (int d = 2; d >= 0; --d) {
            extent[d] = 1;
            while (extent[d] < cells.extent(d) && extent[d] < threads && (d != 2 || extent[d] < 32)) extent[d] *= 2;
            threads /= extent[d];
            along[d] = (cells.extent(d) + extent[d] - 1) / extent[d];
        }
    }
    DCUDA_HOST_DEVICE int count() const { return along[0] * along[1] * along[2]; }
};

#if DCUDA_BACKEND_CUDA

inline constexpr int kernel_threads = 256;

template <class Action>
__global__ void __launch_bounds__(kernel_threads) at_cells(region cells, const Action action) {
    const int i = cells.first[0] + static_cast<int>(blockIdx.z * blockDim.z + threadIdx.z);
    const int j = cells.first[1] + static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
    const int k = cells.first[2] + static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < cells.last[0] && j < cells.last[1] && k < cells.last[2]) action(i, j, k);
}

template <class Action>
void launch(const region& cells, const Action& action, cudaStream_t stream) {
    const tiles by(cells, kernel_threads);
    const auto in_row = [](const int(&along)[3]) {
        return dim3(static_cast<unsigned>(along[2]), static_cast<unsigned>(along[1]), static_cast<unsigned>(along[0]));
    };
    at_cells<<<in_row(by.along), in_row(by.extent), 0, stream>>>(cells, action);
    common::check(cudaGetLastError(), "launching a kernel");
}

template <class Action>
__global__ void __launch_bounds__(kernel_threads) at_pieces(const piece* pieces, const Action action) {
    const piece one = pieces[blockIdx.y];
    const int rows = one.cells.extent(1), columns = one.cells.extent(2), count = static_cast<int>(one.cells.cells());
    const auto thread = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    for (int n = thread; n < count; n += static_cast<int>(gridDim.x * blockDim.x)) {
        const int row = n / columns;
        action(one, one.cells.first[0] + row / rows, one.cells.first[1] + row % rows, one.cells.first[2] + n % columns);
    }
}

// `most`: cells of the largest piece.
template <class Action>
void launch(const piece* pieces, int count, std::int64_t most, const Action& action, cudaStream_t stream) {
    if (count == 0) return;
    constexpr std::int64_t most_blocks = 256; // for a piece
    const auto blocks = std::min(most_blocks, (most + kernel_threads - 1) / kernel_threads);
    at_pieces<<<dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(count)), kernel_threads, 0, stream>>>(pieces,
                                                                                                                action);
    common::check(cudaGetLastError(), "launching a kernel");
}

#else

template <class Action>
void launch(const region& cells, const Action& action, cudaStream_t stream) {
    common::launch_on_host([=] { one_worker().for_each_cell(cells, action); }, stream);
}

template <class Action>
void launch(const piece* pieces, int count, std::int64_t, const Action& action, cudaStream_t stream) {
    if (count == 0) return;
    const auto loop = [=] {
        for (int n = 0; n < count; ++n)
            one_worker().for_each_cell(pieces[n].cells, [&](int i, int j, int k) { action(pieces[n], i, j, k); });
    };
    common::launch_on_host(loop, stream);
}

#endif

// The bottom solver, by a block. `failure`: what it is if a number is none.
void launch_bottom(const bottom_arrays& arrays, const findings_view& found, int failure, cudaStream_t stream);

// max|f - A u| of some cells, as the residual of a cycle.
void launch_largest(const region& cells, const device_level& on, const findings_view& found, int cycle, int failure,
                    cudaStream_t stream);

} // namespace hpgmg
