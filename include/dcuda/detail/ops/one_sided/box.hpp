// SPDX-License-Identifier: BSD-3-Clause
// Puts and gets of boxes: rows of one length, which lie at other distances at the target than here.
#pragma once

#include "dcuda/detail/ops/one_sided/get.hpp"
#include "dcuda/detail/ops/one_sided/network_requests.hpp"
#include "dcuda/detail/ops/one_sided/straight.hpp"
#include "dcuda/detail/protocol/box.hpp"

namespace dcuda::detail {

struct box_request {
    accessed_range range; // at the target, from the first byte of the box to its last
    box shape;
    pitch at_target, here;
    std::byte* memory; // of this rank
};

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

// One row of it. All threads of the rank.
DCUDA_COLD void send_row_far_away(shared_state shared, const posted_put& place, const box_request& request,
                                  std::size_t row, std::size_t slice) {
    posted_put part = place;
    part.home += place_in(request.at_target, row, slice);
    send_through_host(shared.get(), part, request.memory + place_in(request.here, row, slice),
                      request.shape.width_bytes, no_tag);
}

// A command for each row. All threads of the rank. PERF: rows could be gathered into one command, and scattered there.
// The request stays in memory, as the registers of this loop are every kernel's.
DCUDA_COLD void send_box_far_away(shared_state shared, const posted_put& place, const box_request& request) {
    for (std::size_t slice = 0; slice < request.shape.depth; ++slice)
        for (std::size_t row = 0; row < request.shape.height; ++row)
            send_row_far_away(shared, place, request, row, slice);
}

// One row of it; the last one with the notification, which comes after all that the target's host has read. False if
// the run ended. The leader.
DCUDA_COLD bool get_row_from_far_away(lone_thread leader, shared_state shared, const posted_put& place,
                                      const box_request& request, std::size_t row, std::size_t slice) {
    const bool is_last = slice + 1 == request.shape.depth && row + 1 == request.shape.height;
    accessed_range range = request.range;
    range.bytes = request.shape.width_bytes;
    if (!is_last) range.where = operation::get;
    posted_put part = place;
    part.home += place_in(request.at_target, row, slice);
    return get_from_far_away(leader, shared, part, range, request.memory + place_in(request.here, row, slice));
}

// A command for each row. The leader. If the run ends, who waits next sees it.
DCUDA_COLD void get_box_from_far_away(lone_thread leader, shared_state shared, const posted_put& place,
                                      const box_request& request) {
    for (std::size_t slice = 0; slice < request.shape.depth; ++slice)
        for (std::size_t row = 0; row < request.shape.height; ++row)
            if (!get_row_from_far_away(leader, shared, place, request, row, slice)) return;
}

// If rows of a box overlap all threads of the rank leave the kernel.
DCUDA_DEVICE void check_pitch(rank_state& state, const box_request& request, const pitch& distance) {
#if DCUDA_CHECKS
    const box& shape = request.shape;
    const accessed_range& range = request.range;
    if (is_apart(shape, distance)) return;
    if (shape.height > 1 && distance.row_bytes < shape.width_bytes)
        report_and_leave(state, fault::pitch, range.where, range.window, range.rank, distance.row_bytes,
                         shape.width_bytes);
    report_and_leave(state, fault::pitch, range.where, range.window, range.rank, distance.slice_bytes,
                     span_of({shape.width_bytes, shape.height, 1}, distance), 1);
#else
    (void)state, (void)request, (void)distance;
#endif
}
DCUDA_DEVICE void check_box(rank_state& state, const box_request& request) {
    check_pitch(state, request, request.at_target);
    check_pitch(state, request, request.here);
    if (request.range.is_got() && !is_empty(request.shape)) check_destination(state, {request.range, request.memory});
}

// All threads of the rank. When a thread returns, others may still be reading the source of a put. PERF: the request is
// passed in memory: by value it would be in 28 registers of every kernel that calls this.
DCUDA_COLD void move_box(const caller by, const box_request& request) {
    rank_state& state = by.state();
    const shared_state shared(state);
    check_box(state, request);
#if DCUDA_WARPS
    if (const unsigned chosen = begin_near(by, {request.range, 1}); chosen != direct_is_slow) {
        const std::uint32_t requests = load_requests(state); // PERF: on its way while the rows are
        copy_box(shared, posted(state, chosen % 2).target, request.at_target, request.memory, request.here,
                 request.shape);
        return end_direct(by, request.range.notifies(), requests);
    }
#endif
    const unsigned begun = exec::far(begin_straight)(shared, {request.range, 1});
    const posted_put place = posted(state, begun / post_turn);
    if (!is_empty(request.shape)) {
        if (route_of(begun) == route::proxied && request.range.is_got())
            return exec::leader_then_sync(
                state.group(), [&](lone_thread leader) { get_box_from_far_away(leader, shared, place, request); });
        if (route_of(begun) == route::proxied)
            send_box_far_away(shared, place, request);
        else if (request.range.is_got())
            copy_box(shared, request.memory, request.here, place.target, request.at_target, request.shape);
        else
            copy_box(shared, place.target, request.at_target, request.memory, request.here, request.shape);
    }
    exec::far(end_straight)(shared, request.range, route_of(begun), place);
}

} // namespace dcuda::detail
