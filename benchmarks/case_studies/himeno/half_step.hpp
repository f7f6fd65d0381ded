// SPDX-License-Identifier: BSD-3-Clause
// Half of a step, as the blocks of a short kernel compute it, wait for it and send it.
#pragma once

#include "dcuda/trigger.hpp"
#include "slab.hpp"

namespace himeno {

// A block computes a tile of rows and columns, in some planes, along which its threads walk.
inline constexpr int tile_columns = DCUDA_BACKEND_CUDA ? 64 : 8, tile_rows = DCUDA_BACKEND_CUDA ? 4 : 2;
inline constexpr int block_threads = tile_columns * tile_rows;

// Some planes of a step.
struct half_step {
    range planes;
    int planes_of_block;
    int parity; // of the step: which array is read

    DCUDA_HOST_DEVICE int tiles_along(int points, int tile) const { return (points - 2 + tile - 1) / tile; }
    DCUDA_HOST_DEVICE int tiles(const grid& whole) const {
        return tiles_along(whole.nk, tile_columns) * tiles_along(whole.nj, tile_rows);
    }
    DCUDA_HOST_DEVICE int blocks(const grid& whole) const {
        return tiles(whole) * ((planes.count() + planes_of_block - 1) / planes_of_block);
    }
};

// Squares of the changes are added up by the parity of their step; the lower half of a step clears the sum for the next
// one, whose last use is over.
struct sums {
    double* of_parity;
    bool clears;
};

template <bool IsFused>
DCUDA_DEVICE void compute(const slab& work, const half_step& part, const sums& squares) {
    __shared__ double parts[block_threads];
    const int tile = static_cast<int>(blockIdx.x) % part.tiles(work.whole),
              across = part.tiles_along(work.whole.nk, tile_columns),
              segment = static_cast<int>(blockIdx.x) / part.tiles(work.whole);
    const int k = 1 + tile % across * tile_columns + static_cast<int>(threadIdx.x) % tile_columns,
              j = 1 + tile / across * tile_rows + static_cast<int>(threadIdx.x) / tile_columns;
    const int first = part.planes.first + segment * part.planes_of_block,
              last = min(first + part.planes_of_block, part.planes.last);
    double own = 0.0;
    if (k < work.whole.nk - 1 && j < work.whole.nj - 1) {
        std::uint32_t at = work.index(first, j, k);
        for (int i = first; i < last; ++i, at = work.next_plane(at))
            own += static_cast<double>(
                compute_point<IsFused>(work, work.pressure[part.parity], work.pressure[1 - part.parity], at));
    }
    const double sum = sum_of_block(parts, own);
    if (threadIdx.x != 0) return;
    atomicAdd(squares.of_parity + part.parity, sum);
    if (squares.clears && blockIdx.x == 0) squares.of_parity[1 - part.parity] = 0.0;
}

// What a kernel waits for and sends by itself: of one neighbour, or of both.
struct triggers {
    dcuda::wait_trigger waits[2];
    dcuda::put_trigger puts[2];
    int wait_count, put_count;
};

// All blocks wait; the last one sends.
template <bool IsFused>
DCUDA_DEVICE void compute_and_send(const slab& work, const half_step& part, const sums& squares, const triggers& by,
                                   dcuda::role_words* words) {
    const unsigned blocks[1] = {gridDim.x};
    dcuda::roles<1> role(words, blocks);
    if (threadIdx.x < 32)
        for (int i = 0; i < by.wait_count; ++i) dcuda::await(by.waits[i]);
    __syncthreads();
    compute<IsFused>(work, part, squares);
    if (!role.finish()) return;
    for (int i = 0; i < by.wait_count; ++i)
        if (threadIdx.x == 0) dcuda::consume(by.waits[i]);
    for (int i = 0; i < by.put_count; ++i) dcuda::trigger_by_block(by.puts[i]);
}

} // namespace himeno
