// SPDX-License-Identifier: BSD-3-Clause
// The fast paths of puts that are no messages, and of flush. The block's threads or the copy engine store such a put,
// or it is in place; if it is notified, a message without payload follows. put.hpp has what goes on where it is not so.
#pragma once

#include "dcuda/detail/ops/fast/caller.hpp"
#include "dcuda/detail/ops/fast/fast_message.hpp"

namespace dcuda::detail {

#if DCUDA_WARPS

// What prepare_direct() has come to: the slow path must; nothing is to be stored; or all threads, or the copy engine,
// store the put that is posted there, in one of two places.
inline constexpr unsigned direct_is_slow = 0, direct_in_place = 1, direct_posted = 2, direct_posted_for_engine = 4;

// A put to a target that was used lately, and that no message under way can come over. If it is notified, makes the
// header of its message, which send_prepared() lets leave when the payload is stored. The lead warp, before the block's
// barrier. If it is slow, nothing has happened. `IsStraight`: of an operation by whose nature all threads access the
// memory (one_sided/straight.hpp), to a range that must be aligned so. PERF: see fast_message.
template <bool IsStraight = false>
DCUDA_DEVICE unsigned prepare_direct(const full_warp& warp, rank_state& state, const send_request& request,
                                     std::uint32_t alignment = 1) {
    endpoint& own = state.own.of(warp);
    const std::uint64_t key = target_key(request.window, request.rank);
    const std::uint32_t hint = own.target_hints.at[own.target_hints.slot(hash_of(key))];
    const target_entry entry = own.targets[hint & hint_entry];
    const std::uint32_t connection = hint >> 8;
    const rank_connection& path = own.connections[connection];
    std::byte* const target = entry.base + request.offset;
    const bool in_place = !IsStraight && target == request.source, notifies = request.notifies();
    const bool can_notify = (path.queue != nullptr) & (request.tag < state.device.tags.plain) &
                            (in_place ? entry.small != 0 : IsStraight || request.bytes >= entry.small);
    const bool can_leave = notifies ? can_notify : !in_place;
    const bool fits =
        (entry.key == key) & (entry.is_remote == 0) & (request.bytes != 0) & (request.bytes <= entry.bytes) &
        (request.offset <= entry.bytes - request.bytes) & can_leave &
        !may_be_under_way(path, reinterpret_cast<std::uintptr_t>(entry.home) + request.offset, request.bytes) &
        (!IsStraight || reinterpret_cast<std::uintptr_t>(target) % alignment == 0);
    if (!all(warp, fits)) return direct_is_slow;
    if (any(warp, notifies & !queue_has_room(state.device.queues, path, 0))) {
        if (!load_credit(warp, state, connection, 0)) return direct_is_slow;
        exec::order_before_engine(); // what this has acquired
    }
    exec::copy_way way = exec::copy_way::threads;
    if constexpr (!IsStraight)
        way = exec::choose_copy(state.group(), state.staging, target, request.source, request.bytes);
    const std::uint32_t turn = own.posted_turn;
    sync(warp); // all have read what now changes
    if (warp.leads()) {
        own.doing.target = hint & hint_entry;
        own.doing.is_direct = in_place ? 0 : 1;
        own.connections[connection].keeps_range = 1; // nothing is under way there that would not be in it
        if (notifies)
            own.ready = {path.queue + state.device.queues.header(path.sent.messages),
                         {{0, message_releases, request.tag << 16}},
                         path.sent.messages + 1,
                         1};
        else
            count_direct_store(own, own.connections[connection]);
        if (!in_place) {
            complete_before_words(state, way, target, request.bytes);
            state.puts[turn].put.target = target;
            own.posted_turn = 1 - turn;
        }
    }
    return in_place ? direct_in_place
                    : (way == exec::copy_way::engine ? direct_posted_for_engine : direct_posted) + turn;
}

// The header that prepare_direct() has made leaves. The lead warp, after the block's barrier. `requests`: what
// load_requests() has found.
DCUDA_DEVICE void send_prepared(const full_warp& warp, rank_state& state, std::uint32_t requests) {
    endpoint& own = state.own.of(warp);
    const bool is_new = requests != own.requests_seen;
    if (warp.leads()) {
        rank_connection& connection = own.connections[own.targets[own.doing.target].connection];
        own.has_stored = 1; // until something releases it for all
        store_header(state, own, connection, own.ready);
        count_sent(own, connection, 0, true);
    }
    if (any(warp, is_new)) answer_new_requests(warp, state);
}

// What comes after the block's threads have stored what prepare_direct() has prepared: the notification, or an answer
// to those who have asked. `requests`: what load_requests() has found. All threads of the rank.
DCUDA_DEVICE void end_direct(const caller& by, bool notifies, std::uint32_t requests) {
    rank_state& state = by.state();
    if (notifies)
        exec::meet_and_act(by, [&](const full_warp& warp) { send_prepared(warp, state, requests); });
    else
        exec::act_alone(by, [&](const full_warp& warp) {
            if (any(warp, requests != state.own.of(warp).requests_seen)) answer_new_requests(warp, state);
        });
}

// The fast path of flush: no payload is under way as a message, and nothing went over a network. False: it is not so,
// or there is no such window. The lead warp, after the block's barrier.
DCUDA_COLD bool complete_direct_puts(full_warp warp, shared_state shared, std::uint32_t window_id) {
    rank_state& state = shared.get();
    endpoint& own = state.own.of(warp);
    const bool is_busy = (own.undelivered | own.networked) != 0 ||
                         (warp.index < own.near_connections && has_undelivered(own.connections[warp.index]));
    static_assert(cached_connections <= 32);
    // PERF: what is far away is loaded before the fence, which takes as long, and looked at after it.
    const std::uint32_t requests = load_requests(state);
    const bool is_window = DCUDA_CHECKS == 0 || is_window_open(state, window_id);
    if (any(warp, is_busy)) return false;
    sync(warp); // all have read what now changes
    if (warp.leads()) complete_stores(state, own);
    if (any(warp, !is_window)) return false; // the slow path says so
    if (any(warp, requests != own.requests_seen)) answer_new_requests(warp, state);
    return true;
}

#endif

} // namespace dcuda::detail
