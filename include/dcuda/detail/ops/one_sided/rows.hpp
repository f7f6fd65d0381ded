// SPDX-License-Identifier: BSD-3-Clause
// Rows of one length that lie other distances apart at one end than at the other: copies of them, and their way over a
// network.
#pragma once

#include "dcuda/detail/ops/one_sided/network_requests.hpp"
#include "dcuda/detail/protocol/box.hpp"

namespace dcuda::detail {

// Loads and stores of `Unit`, to which all rows at both ends are aligned. PERF: neighbouring threads take neighbouring
// units, of rows as of a column; a thread has several loads under way; places are counted on, as divisions are slow.
template <class Unit>
DCUDA_COLD void copy_box_by(const exec::rank_group team, std::byte* target, const pitch& at_target,
                            const std::byte* source, const pitch& at_source, const box& shape) {
    constexpr unsigned under_way = sizeof(Unit) > 8 ? 3 : 4; // as registers allow
    const std::size_t columns = shape.width_bytes / sizeof(Unit);
    // PERF: what is more than all threads of a block gives the same quotients as any larger number, in 32 bits.
    const auto divisor = [](std::size_t number) { return static_cast<unsigned>(number < 2048 ? number : 2048); };
    const unsigned wide = divisor(columns), tall = divisor(shape.height);
    const unsigned step = static_cast<unsigned>(team.threads()), first = static_cast<unsigned>(team.thread());
    const unsigned step_columns = step % wide, step_rows = step / wide % tall, step_slices = step / wide / tall;
    std::size_t column = first % wide, row = first / wide % tall, slice = first / wide / tall;
    while (slice < shape.depth) {
        Unit units[under_way];
        std::byte* places[under_way];
        DCUDA_UNROLL
        for (unsigned i = 0; i < under_way; ++i) {
            places[i] = nullptr;
            if (slice >= shape.depth) continue;
            const std::size_t in_row = column * sizeof(Unit);
            places[i] = target + place_in(at_target, row, slice) + in_row;
            __builtin_memcpy(&units[i],
                             __builtin_assume_aligned(source + place_in(at_source, row, slice) + in_row, sizeof(Unit)),
                             sizeof(Unit));
            column += step_columns;
            row += step_rows;
            slice += step_slices;
            if (column >= columns) {
                column -= columns;
                ++row;
            }
            if (row >= shape.height) {
                row -= shape.height;
                ++slice;
            }
        }
        DCUDA_UNROLL
        for (unsigned i = 0; i < under_way; ++i)
            if (places[i] != nullptr)
                __builtin_memcpy(__builtin_assume_aligned(places[i], sizeof(Unit)), &units[i], sizeof(Unit));
    }
}

// All threads of the rank; nobody waits.
DCUDA_COLD void copy_box(shared_state shared, std::byte* target, const pitch at_target, const std::byte* source,
                         const pitch at_source, const box shape) {
    struct alignas(16) quad {
        std::uint32_t words[4];
    };
    const exec::rank_group team = shared.get().group();
    if (is_empty(shape)) return;
    const std::size_t aligned_to = reinterpret_cast<std::uintptr_t>(target) | reinterpret_cast<std::uintptr_t>(source) |
                                   shape.width_bytes | distances(at_target, shape) | distances(at_source, shape);
    if (aligned_to % 16 == 0) return copy_box_by<quad>(team, target, at_target, source, at_source, shape);
    if (aligned_to % 8 == 0) return copy_box_by<std::uint64_t>(team, target, at_target, source, at_source, shape);
    if (aligned_to % 4 == 0) return copy_box_by<std::uint32_t>(team, target, at_target, source, at_source, shape);
    copy_box_by<std::uint8_t>(team, target, at_target, source, at_source, shape);
}

// Rows for a rank that is reached over a network; at most max_ring_bytes in all.
struct distant_rows {
    std::uint32_t target;        // world rank
    std::uint32_t update;        // update_code of their elements, or no_update: they are stored
    std::uint64_t home;          // of the first row, as the target addresses it
    std::uint64_t home_distance; // from row to row there, and here
    const std::byte* source;
    std::size_t distance;
    std::uint32_t width, count; // bytes of a row; rows
};

// The rows lie one after the other behind a command, which the target's delivery kernel takes apart. All threads of the
// rank. If the run has ended the threads leave the kernel.
//
// ORDER command-publish, slot-reuse: as of payload behind other commands (store_commands).
DCUDA_COLD void send_rows(shared_state shared, const distant_rows& rows) {
    rank_state& state = shared.get();
    const std::uint32_t bytes = rows.width * rows.count;
    const posted_put behind = take_ring_payload(state, slots_for(bytes));
    copy_box(shared, behind.target, {rows.width}, rows.source, {rows.distance}, {rows.width, rows.count});
    const auto send = [&](const lead_warp& warp, unsigned has_ended) {
        if (has_ended != 0 || !warp.leads()) return;
        complete_writes(scope::system);
        state.own.of(warp).networked |= networked_puts;
        store_command(state.device.ring, behind.position,
                      make_command(state.device_rank, rows_fields{rows.target, rows.update, rows.home,
                                                                  rows.home_distance, rows.width, bytes}));
    };
    if (exec::decide(
            state.group(), state.decision, [&](const lead_warp&) { return load_in_block(&state.ended); }, send) != 0)
        exec::exit_thread();
}

} // namespace dcuda::detail
