// SPDX-License-Identifier: BSD-3-Clause
// Puts and gets of boxes: rows of one length, which lie at other distances at the target than here.
#pragma once

#include "dcuda/detail/ops/one_sided/get.hpp"
#include "dcuda/detail/ops/one_sided/rows.hpp"
#include "dcuda/detail/ops/one_sided/straight.hpp"

namespace dcuda::detail {

// --- Fast path ------------------------------------------------------------------------------------------------------

#if DCUDA_WARPS

// As begin_near(), of the box that lies in shared memory. The lead warp.
DCUDA_DEVICE unsigned prepare_box(const full_warp& warp, rank_state& state) {
    const box_request& request = state.moved_box();
    const accessed_range& range = request.range;
    const bool fits = !range.is_got() && !is_empty(request.shape) && request.shape.height <= most_rows &&
                      is_plainly_apart(request.shape, request.at_target) &&
                      is_plainly_apart(request.shape, request.here);
    if (!all(warp, fits)) return direct_is_slow;
    return prepare_direct<true>(warp, state, range.as_put());
}

#endif

// --- Slow path ------------------------------------------------------------------------------------------------------

inline constexpr std::size_t wide_row_bytes = 4096;

// Wide rows travel by themselves; of narrow ones of a slice as many in a command as have room. All threads of the rank.
// The request stays in memory, as the registers of these loops are every kernel's.
DCUDA_COLD void send_row_far_away(shared_state shared, const posted_put& place, const box_request& request,
                                  std::size_t row, std::size_t slice) {
    posted_put part = place;
    part.home += place_in(request.at_target, row, slice);
    send_through_host(shared.get(), part, request.memory + place_in(request.here, row, slice),
                      request.shape.width_bytes, no_tag);
}
DCUDA_COLD void send_slice_far_away(shared_state shared, const posted_put& place, const box_request& request,
                                    std::size_t slice) {
    const auto width = static_cast<std::uint32_t>(request.shape.width_bytes);
    const std::size_t most = max_ring_bytes / width;
    for (std::size_t row = 0; row < request.shape.height; row += most) {
        const std::size_t left = request.shape.height - row;
        if (left == 1) return send_row_far_away(shared, place, request, row, slice);
        send_rows(shared, {place.rank, no_update, place.home + place_in(request.at_target, row, slice),
                           request.at_target.row_bytes, request.memory + place_in(request.here, row, slice),
                           request.here.row_bytes, width, static_cast<std::uint32_t>(left < most ? left : most)});
    }
}
DCUDA_COLD void send_box_far_away(shared_state shared, const posted_put& place, box_request request) {
    const box& shape = request.shape;
    if (shape.depth > shape.height) { // the same box: what were slices are rows, and there are few slices
        request.shape = {shape.width_bytes, shape.depth, shape.height};
        request.at_target = {request.at_target.slice_bytes, request.at_target.row_bytes};
        request.here = {request.here.slice_bytes, request.here.row_bytes};
    }
    for (std::size_t slice = 0; slice < request.shape.depth; ++slice)
        if (request.shape.width_bytes < wide_row_bytes)
            send_slice_far_away(shared, place, request, slice);
        else
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

// Whatever the fast path cannot do. All threads of the rank. The request is in shared memory, and `memory` the
// caller's.
DCUDA_COLD void move_box_slowly(shared_state shared, std::byte* memory) {
    rank_state& state = shared.get();
    state.group().sync(); // the leader has written it
#if DCUDA_BACKEND_CPU
    box_request request = state.moved_box();
    request.memory = memory; // a thread's may be a variable of its own
#else
    const box_request& request = state.moved_box();
#endif
    const accessed_range& range = request.range;
    check_box(state, request);
    const unsigned begun = exec::far(begin_straight)(shared, {range, 1});
    const posted_put place = posted(state, begun / post_turn);
    if (!is_empty(request.shape)) {
        if (route_of(begun) == route::proxied && range.is_got())
            return exec::leader_then_sync(
                state.group(), [&](lone_thread leader) { get_box_from_far_away(leader, shared, place, request); });
        if (route_of(begun) == route::proxied)
            send_box_far_away(shared, place, request);
        else if (range.is_got())
            copy_box(shared, memory, request.here, place.target, request.at_target, request.shape);
        else
            copy_box(shared, place.target, request.at_target, memory, request.here, request.shape);
    }
    exec::far(end_straight)(shared, range, route_of(begun), place);
}

// --- The operation --------------------------------------------------------------------------------------------------

#if DCUDA_WARPS

// Stores the rows of a put that prepare_box() has posted. All threads of the rank. PERF: functions that nothing else
// calls, as store_posted.
template <class Unit>
DCUDA_COLD void store_box_by(const caller by, const std::byte* memory, unsigned turn) {
    rank_state& state = by.state();
    const std::uint32_t requests = load_requests(state); // PERF: on its way while the rows are
    const box_request& request = state.moved_box();
    copy_rows<Unit>(posted(state, turn).target, request.at_target.row_bytes, memory, request.here.row_bytes,
                    static_cast<unsigned>(request.shape.width_bytes), static_cast<unsigned>(request.shape.height),
                    static_cast<unsigned>(by.group().thread()), static_cast<unsigned>(by.group().threads()));
    end_direct(by, request.range.notifies(), requests);
}
DCUDA_COLD void store_any_box(const caller by, const std::byte* memory, unsigned turn) {
    rank_state& state = by.state();
    const std::uint32_t requests = load_requests(state);
    const box_request& request = state.moved_box();
    exec::far(copy_box)(state, posted(state, turn).target, request.at_target, memory, request.here, request.shape);
    end_direct(by, request.range.notifies(), requests);
}
DCUDA_COLD void store_box(const caller by, const std::byte* memory, unsigned turn) {
    rank_state& state = by.state();
    const box_request& request = state.moved_box();
    const std::size_t aligned_to =
        alignment_of(posted(state, turn).target, request.at_target, memory, request.here, request.shape);
    if (request.shape.depth > 1 || has_wide_rows(state.group(), request.shape) || aligned_to % 4 != 0)
        return store_any_box(by, memory, turn);
    if (aligned_to % 16 == 0) return store_box_by<quad_unit>(by, memory, turn);
    if (aligned_to % 8 == 0) return store_box_by<std::uint64_t>(by, memory, turn);
    store_box_by<std::uint32_t>(by, memory, turn);
}

#endif

// All threads of the rank. When a thread returns, others may still be reading the source of a put. The leader has
// written the request, where all threads read it, after they had met: so nobody read the one before any more.
DCUDA_COLD void move_box(const caller by, std::byte* memory) {
    rank_state& state = by.state();
#if DCUDA_WARPS
    const unsigned chosen = exec::choose(by, [&](const full_warp& warp) { return prepare_box(warp, state); });
    if (chosen != direct_is_slow) return store_box(by, memory, chosen % 2);
#endif
    exec::far(move_box_slowly)(state, memory);
}

} // namespace dcuda::detail
