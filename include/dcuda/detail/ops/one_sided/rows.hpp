// SPDX-License-Identifier: BSD-3-Clause
// Rows of one length that lie other distances apart at one end than at the other: copies of them, and their way over a
// network.
#pragma once

#include "dcuda/detail/ops/one_sided/network_requests.hpp"
#include "dcuda/detail/protocol/box.hpp"

namespace dcuda::detail {

// The smallest number of bits in which all numbers below `count` fit, at most `most`.
DCUDA_DEVICE unsigned bits_for(std::size_t count, unsigned most) {
    if (count > std::size_t{1} << most) return most;
    return count <= 1 ? 0 : 1 + highest(static_cast<unsigned>(count) - 1);
}

// How many rows a thread loads from before it stores.
inline constexpr unsigned rows_under_way = 4;

// Which threads copy a row: 2 to this power, as many as it has units, but no more than a warp has.
DCUDA_DEVICE unsigned unit_bits_of(std::size_t units, unsigned threads) {
    constexpr unsigned bits_of_warp = 5;
    const unsigned bits = highest(threads);
    return bits_for(units, bits < bits_of_warp ? bits : bits_of_warp);
}

// Copies rows of units, to which they are aligned at both ends. `thread` of `threads`: neighbours take neighbouring
// units, then rows. PERF: so a column is copied as fast as a row; and there is no division, which takes as long as 30
// additions.
template <class Unit>
DCUDA_DEVICE void copy_rows(std::byte* target, std::size_t on_target, const std::byte* source, std::size_t on_source,
                            unsigned width, unsigned height, unsigned thread, unsigned threads) {
    constexpr unsigned under_way = sizeof(Unit) > 8 ? 3 : rows_under_way;
    const unsigned bits = unit_bits_of(width / sizeof(Unit), threads), rows = threads >> bits;
    const unsigned first_row = thread >> bits,
                   first = (thread & ((1u << bits) - 1)) * static_cast<unsigned>(sizeof(Unit));
    if (first_row >= rows || first_row >= height) return; // a thread that no row is left for
    target += first_row * on_target, source += first_row * on_source;
    on_target *= rows, on_source *= rows;
    for (unsigned place = first; place < width; place += static_cast<unsigned>(sizeof(Unit)) << bits) {
        std::byte* into = target + place;
        const std::byte* from = source + place;
        for (unsigned row = first_row; row < height;) {
            Unit units[under_way];
            DCUDA_UNROLL
            for (unsigned i = 0; i < under_way; ++i, from += on_source)
                if (row + i * rows < height)
                    __builtin_memcpy(&units[i], __builtin_assume_aligned(from, sizeof(Unit)), sizeof(Unit));
            DCUDA_UNROLL
            for (unsigned i = 0; i < under_way; ++i, row += rows, into += on_target)
                if (row < height)
                    __builtin_memcpy(__builtin_assume_aligned(into, sizeof(Unit)), &units[i], sizeof(Unit));
        }
    }
}

// PERF: its registers are not those of who calls it, too.
template <class Unit>
DCUDA_COLD void copy_rows_apart(std::byte* target, std::size_t on_target, const std::byte* source,
                                std::size_t on_source, unsigned width, unsigned height, unsigned thread,
                                unsigned threads) {
    copy_rows<Unit>(target, on_target, source, on_source, width, height, thread, threads);
}

// The same of slices, each by as many threads as have rows to copy. All threads of the rank.
template <class Unit>
DCUDA_COLD void copy_slices_by(shared_state shared, std::byte* target, const pitch& at_target, const std::byte* source,
                               const pitch& at_source, const box& shape) {
    const exec::rank_group team = shared.get().group();
    const unsigned threads = static_cast<unsigned>(team.threads()), thread = static_cast<unsigned>(team.thread());
    if (shape.depth == 1)
        return copy_rows_apart<Unit>(target, at_target.row_bytes, source, at_source.row_bytes,
                                     static_cast<unsigned>(shape.width_bytes), static_cast<unsigned>(shape.height),
                                     thread, threads);
    const unsigned unit_bits = unit_bits_of(shape.width_bytes / sizeof(Unit), threads);
    const unsigned bits =
        unit_bits + bits_for((shape.height + rows_under_way - 1) / rows_under_way, highest(threads) - unit_bits);
    const unsigned slices = threads >> bits;
    if (thread >> bits >= slices) return;
    for (std::size_t slice = thread >> bits; slice < shape.depth; slice += slices)
        copy_rows_apart<Unit>(target + slice * at_target.slice_bytes, at_target.row_bytes,
                              source + slice * at_source.slice_bytes, at_source.row_bytes,
                              static_cast<unsigned>(shape.width_bytes), static_cast<unsigned>(shape.height),
                              thread & ((1u << bits) - 1), 1u << bits);
}

struct alignas(16) quad_unit {
    std::uint32_t words[4];
};

// Whether rows have units for all threads, which then copy one after the other.
DCUDA_DEVICE bool has_wide_rows(const exec::rank_group& team, const box& shape) {
    return shape.width_bytes >= rows_under_way * sizeof(quad_unit) * team.threads();
}

// What all rows at both ends are aligned to, in the bits below 16.
DCUDA_DEVICE std::size_t alignment_of(const std::byte* target, const pitch& at_target, const std::byte* source,
                                      const pitch& at_source, const box& shape) {
    return reinterpret_cast<std::uintptr_t>(target) | reinterpret_cast<std::uintptr_t>(source) | shape.width_bytes |
           distances(at_target, shape) | distances(at_source, shape);
}

// Rows of a slice are counted in 32 bits.
inline constexpr std::size_t most_rows = std::size_t{1} << 30;

// A box with no more rows in a slice. All threads of the rank; nobody waits.
DCUDA_COLD void copy_some_rows(shared_state shared, std::byte* target, const pitch& at_target, const std::byte* source,
                               const pitch& at_source, const box& shape) {
    if (has_wide_rows(shared.get().group(), shape)) {
        for (std::size_t slice = 0; slice < shape.depth; ++slice)
            for (std::size_t row = 0; row < shape.height; ++row)
                copy_behind(shared, target + place_in(at_target, row, slice), source + place_in(at_source, row, slice),
                            shape.width_bytes);
        return;
    }
    const std::size_t aligned_to = alignment_of(target, at_target, source, at_source, shape);
    if (aligned_to % 16 == 0) return copy_slices_by<quad_unit>(shared, target, at_target, source, at_source, shape);
    if (aligned_to % 8 == 0) return copy_slices_by<std::uint64_t>(shared, target, at_target, source, at_source, shape);
    if (aligned_to % 4 == 0) return copy_slices_by<std::uint32_t>(shared, target, at_target, source, at_source, shape);
    copy_slices_by<std::uint8_t>(shared, target, at_target, source, at_source, shape);
}

// All threads of the rank; nobody waits.
DCUDA_COLD void copy_box(shared_state shared, std::byte* target, const pitch& at_target, const std::byte* source,
                         const pitch& at_source, const box& shape) {
    if (is_empty(shape)) return;
    box part = shape;
    for (std::size_t row = 0; row < shape.height; row += part.height) {
        part.height = shape.height - row < most_rows ? shape.height - row : most_rows;
        copy_some_rows(shared, target + place_in(at_target, row, 0), at_target, source + place_in(at_source, row, 0),
                       at_source, part);
    }
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
