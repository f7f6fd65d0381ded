// SPDX-License-Identifier: BSD-3-Clause
// The targets of puts and notifications: what is asked of them, what is wrong with it, and how they are brought near.
#pragma once

#include "dcuda/detail/ops/mailbox_send.hpp"

namespace dcuda::detail {

// What a notification of this rank with such a tag travels by.
DCUDA_DEVICE std::uint32_t wire_tag(const rank_state& state, std::uint32_t tag) {
    return state.device.tags.wire_tag(tag, state.world_rank);
}

// The window in the device's table; a record with another id if there is no such window (any more).
DCUDA_DEVICE device_window find_window(const rank_state& state, window win) {
    const std::uint32_t index = slot_of_window(win.id);
    return index < state.device.max_windows ? device_window(state.device.windows[index]) : device_window{};
}

DCUDA_DEVICE bool is_window_open(const rank_state& state, std::uint32_t id) {
    return id != 0 && find_window(state, window{id}).id == id;
}

// Whether this rank is in the communicator of a window. Communicators of other ranks may have the same number, but not
// with the same first member.
DCUDA_DEVICE bool is_member(const rank_state& state, const device_window& opened) {
    const communicator_record* const comm = find_communicator(state, static_cast<communicator>(opened.comm));
    return comm != nullptr && comm->world_rank_of(0) == opened.first_rank;
}

// What is wrong with a request; fault::none if nothing is. `limit`: what would be right; of a window of others their
// communicator.
DCUDA_DEVICE fault find_fault(rank_state& state, const send_request& request, const device_window& opened,
                              std::uint64_t& limit) {
    limit = state.device.tags.count;
    if (request.notifies() && request.tag >= state.device.tags.count) return fault::tag;
    if (request.is_notification()) {
        limit = size_of(state, communicator_of(request.window));
        if (limit == 0) return fault::communicator;
        return request.rank >= limit ? fault::rank : fault::none;
    }
    if (request.window == 0 || opened.id != request.window) return fault::window;
    limit = opened.comm;
    if (opened.comm >= communicator_count && !is_member(state, opened)) return fault::window_member;
    limit = opened.rank_count;
    if (request.rank >= opened.rank_count) return fault::rank;
    limit = opened.entries[request.rank].bytes();
    return request.bytes > limit || request.offset > limit - request.bytes ? fault::bounds : fault::none;
}

// Reports it. The leader.
DCUDA_COLD void report_request(lone_thread leader, shared_state shared, fault kind, const send_request request,
                               std::uint64_t limit) {
    rank_state& state = shared.get();
    const bool notifies = request.is_notification();
    if (kind == fault::tag)
        return report_fault(leader, state, kind, request.kind, 0, request.rank, request.tag, 0, limit);
    if (kind == fault::communicator)
        return report_fault(leader, state, kind, request.kind, 0,
                            request.window == notify_unknown
                                ? static_cast<std::uint32_t>(request.offset)
                                : static_cast<std::uint32_t>(communicator_of(request.window)),
                            0, 0, 0);
    const std::uint32_t target = kind == fault::window_member ? static_cast<std::uint32_t>(limit) : request.rank;
    report_fault(leader, state, kind, request.kind, notifies ? 0 : request.window, target, request.offset,
                 request.bytes, limit);
}

// Checks a request and brings its target near. Its place among the targets, or cached_targets if a rule is broken,
// which ends the run if `Reports`. The lead warp. PERF: what is loaded for the window and for the connection is under
// way at a time.
template <bool Reports, class Warp>
DCUDA_COLD unsigned load_target(Warp warp, shared_state shared, const send_request request) {
    rank_state& state = shared.get();
    endpoint& own = state.own.of(warp);
    const index_probe ahead = probe_index(warp, state, request.rank);
    const device_window opened =
        request.is_notification() ? device_window{} : find_window(state, window{request.window});
#if DCUDA_CHECKS
    std::uint64_t limit = 0;
    if (const fault wrong = find_fault(state, request, opened, limit); wrong != fault::none) {
        if (Reports && warp.leads()) report_request(exec::lead_access::alone(), state, wrong, request, limit);
        return cached_targets;
    }
#endif
    const std::uint64_t key = target_key(request.window, request.rank);
    const communicator comm =
        request.is_notification() ? communicator_of(request.window) : static_cast<communicator>(opened.comm);
    const std::uint32_t world_rank = world_rank_of(state, comm, request.rank);
    const window_entry entry = request.is_notification() ? window_entry{} : opened.entries[request.rank];
    unsigned near = find_near_connection(warp, state, world_rank);
    if (near == cached_connections)
        near =
            load_connection(warp, state, ahead.world_rank == world_rank ? ahead : probe_index(warp, state, world_rank));
    const rank_connection& path = own.connections[near];
    const auto key_of = [&](unsigned number) { return own.targets[number].key; };
    unsigned place = find_key<cached_targets>(warp, key, key_of);
    if (place == cached_targets) place = find_key<cached_targets>(warp, no_target, key_of);
    if (place == cached_targets) place = entry_by_chance<cached_targets>(own);
    sync(warp);
    if (warp.leads()) {
        const std::uint64_t bytes = entry.bytes();
        const std::uint64_t largest = bytes < state.device.small_put_bytes ? bytes : state.device.small_put_bytes;
        const std::uint32_t small =
            path.queue != nullptr && !entry.is_direct() ? static_cast<std::uint32_t>(largest) + 1 : 0;
        own.targets[place] = {key, entry.base, bytes, entry.home, small, near, world_rank, is_remote(path) ? 1u : 0u};
        change_chance(own);
    }
    sync(warp);
    write_target_hint(warp, own, place);
    return place;
}

#if DCUDA_WARPS
// Whether the target is near. PERF: fast paths ask this only where they cannot go on; to keep it from before would take
// a register of every message.
DCUDA_DEVICE bool is_near(const full_warp& warp, rank_state& state, const send_request& request) {
    const endpoint& own = state.own.of(warp);
    const std::uint64_t key = target_key(request.window, request.rank);
    return own.targets[likely_target(own, key)].key == key;
}
#endif

// Whether a request to a target that is near breaks no rule.
DCUDA_DEVICE bool is_allowed(const rank_state& state, const target_entry& reached, const send_request& request) {
    return (request.bytes <= reached.bytes) & (request.offset <= reached.bytes - request.bytes) &
           (!request.notifies() | (request.tag < state.device.tags.count));
}

} // namespace dcuda::detail
