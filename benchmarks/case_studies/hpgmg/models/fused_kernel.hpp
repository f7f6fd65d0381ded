// SPDX-License-Identifier: BSD-3-Clause
// A kernel that brings an array to other devices and computes from it: some of its blocks pack what other devices read
// and send it, others compute the cells that read nothing of what comes, then some wait for what comes and unpack it,
// and the last ones compute the rest.
#pragma once

#include "common/block.hpp"
#include "dcuda/trigger.hpp"
#include "models/kernels.hpp"

namespace hpgmg {

inline constexpr int fused_threads = DCUDA_BACKEND_CUDA ? 256 : 32;

// What blocks do, in the order in which they start: none waits for a later one.
enum role_of_block : unsigned { packs, computes_inside, unpacks, computes_outside, role_count };

inline constexpr int most_parts = 7; // of the cells: what lies inside, and layers at six sides

struct fused_step {
    // The array that is delivered, in pieces of few cells, each for a warp.
    layout in;
    int side = 0;
    ghosts order{};
    double* array = nullptr;
    const piece *packed = nullptr, *filled = nullptr, *unpacked = nullptr;
    int packed_count = 0, filled_count = 0, unpacked_count = 0; // filled: ghost cells of the grid's boundary
    const dcuda::put_trigger* puts = nullptr;
    int put_count = 0;
    dcuda::wait_trigger arrived; // of 0: nothing comes

    // The cells that are computed. The first part reads nothing of what comes. If there are no blocks for the other
    // parts, the last block that unpacks computes them.
    region parts[most_parts];
    tiles tiles_of[most_parts];
    int part_count = 0;

    // By the device itself, when all is filled and unpacked.
    dcuda::put_trigger is_there;
    dcuda::wait_trigger all_there;

    unsigned blocks[role_count] = {};
    unsigned filling_blocks = 0; // the first ones of those that unpack
    dcuda::role_words* words = nullptr;
};

DCUDA_DEVICE void await_by_block(const dcuda::wait_trigger& awaited) {
    if (common::thread() < 32) dcuda::await(awaited);
    __syncthreads();
}

// Calls action(piece) by a warp for each.
template <class Action>
DCUDA_DEVICE void for_each_piece(const piece* pieces, int count, unsigned block, unsigned blocks,
                                 const Action& action) {
    const int warps = common::threads() / 32;
    for (int n = static_cast<int>(block) * warps + common::thread() / 32; n < count;
         n += static_cast<int>(blocks) * warps)
        action(pieces[n]);
}
// Calls action(i, j, k) for the cells of a piece, by the lanes of a warp.
template <class Action>
DCUDA_DEVICE void for_each_cell_of(const region& cells, const Action& action) {
    const int rows = cells.extent(1), columns = cells.extent(2), count = static_cast<int>(cells.cells());
    for (int n = common::thread() % 32; n < count; n += 32) {
        const int row = n / columns;
        action(cells.first[0] + row / rows, cells.first[1] + row % rows, cells.first[2] + n % columns);
    }
}

// Unpacks pieces of messages, or fills pieces of ghost cells, by some blocks.
DCUDA_DEVICE void unpack_pieces(const fused_step& step, const piece* pieces, int count, unsigned block,
                                unsigned blocks) {
    for_each_piece(pieces, count, block, blocks, [&](const piece& one) {
        for_each_cell_of(one.cells, [&](int i, int j, int k) {
            unpack_and_fill{step.in, step.side, step.order, step.array}(one, i, j, k);
        });
    });
}

// Parts `first` to `last` - 1, by some blocks.
template <class Action>
DCUDA_DEVICE void compute_parts(const fused_step& step, int first, int last, unsigned block, unsigned blocks,
                                const Action& action) {
    int at = static_cast<int>(block);
    for (int part = first; part < last; ++part) {
        const region& cells = step.parts[part];
        const tiles& by = step.tiles_of[part];
        const int thread = common::thread(), count = by.count();
        for (; at < count; at += static_cast<int>(blocks)) {
            const int tile_row = at / by.along[2], thread_row = thread / by.extent[2];
            const int i = cells.first[0] + tile_row / by.along[1] * by.extent[0] + thread_row / by.extent[1],
                      j = cells.first[1] + tile_row % by.along[1] * by.extent[1] + thread_row % by.extent[1],
                      k = cells.first[2] + at % by.along[2] * by.extent[2] + thread % by.extent[2];
            if (thread_row < by.extent[0] * by.extent[1] && i < cells.last[0] && j < cells.last[1] && k < cells.last[2])
                action(i, j, k);
        }
        at -= count;
    }
}

// The last block that packs. What others have stored into mapped memory of the target is there before it hears of it.
DCUDA_DEVICE void send_packed(const fused_step& step) {
    for (int n = common::thread(); n < step.put_count; n += common::threads())
        if (step.puts[n].target != nullptr) dcuda::notify(step.puts[n]);
    for (int n = 0; n < step.put_count; ++n)
        if (step.puts[n].target == nullptr) dcuda::trigger_by_block(step.puts[n]);
}

// PERF: with the parameter copied to each thread's memory, which nvcc does where its address is taken, a thread has 640
// B of it. With a fourth block on a multiprocessor, which takes 14 registers of a thread, a solve takes 6 % more (H200,
// 2026-11-28).
template <class Action>
__global__ void __launch_bounds__(fused_threads, 3)
    deliver_and_compute(const __grid_constant__ fused_step step, const Action action) {
    dcuda::roles<role_count> own(step.words, step.blocks);
    const unsigned role = own.role();
    unsigned index = own.index(), blocks = step.blocks[role];
    if (role == packs) {
        for_each_piece(step.packed, step.packed_count, index, blocks, [&](const piece& one) {
            for_each_cell_of(one.cells, [&](int i, int j, int k) {
                pack{step.in, step.side, step.order, step.array}(one, i, j, k);
            });
        });
        if (own.finish()) send_packed(step);
        return;
    }
    int first = 0, last = step.part_count == 0 ? 0 : 1; // of the parts that the block computes
    if (role == unpacks) {
        const bool fills = index < step.filling_blocks;
        if (!fills) await_by_block(step.arrived);
        const unsigned before = fills ? 0 : step.filling_blocks, behind = fills ? step.filling_blocks : blocks;
        unpack_pieces(step, fills ? step.filled : step.unpacked, fills ? step.filled_count : step.unpacked_count,
                      index - before, behind - before);
        // Only the last one sees what the others have unpacked.
        if (!own.finish()) return;
        if (common::thread() == 0 && step.unpacked_count > 0) dcuda::consume(step.arrived);
        if (step.blocks[computes_outside] > 0) {
            if (common::thread() == 0) dcuda::notify(step.is_there);
            return;
        }
        index = 0;
        blocks = 1;
    }
    if (role == computes_outside) await_by_block(step.all_there);
    if (role != computes_inside) {
        first = last;
        last = step.part_count;
    }
    compute_parts(step, first, last, index, blocks, action);
    if (role == unpacks) return; // has finished
    if (own.finish() && role == computes_outside && common::thread() == 0) dcuda::consume(step.all_there);
}

} // namespace hpgmg
