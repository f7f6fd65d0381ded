// SPDX-License-Identifier: BSD-3-Clause
// The fast path of notified puts that are no messages: the block's threads store them, or they are in place, and a
// message without payload follows. put.hpp has what goes on where it is not so.
#pragma once

#include "dcuda/detail/ops/fast/fast_message.hpp"

namespace dcuda::detail {

#if DCUDA_WARPS

// What prepare_direct() has come to: the slow path must; nothing is to be stored; or all threads store the put that is
// posted there, in one of two places.
inline constexpr unsigned direct_is_slow = 0, direct_in_place = 1, direct_is_posted = 2;

// A notified put to a target that was used lately, and that no message under way can come over: makes the header of its
// message, which send_prepared() lets leave when the payload is stored. The lead warp, before the block's barrier. If
// it is slow, nothing has happened. PERF: see fast_message.
DCUDA_DEVICE unsigned prepare_direct(const full_warp& warp, rank_state& state, const send_request& request) {
    endpoint& own = state.own.of(warp);
    const std::uint64_t key = target_key(request.window, request.rank);
    const std::uint32_t hint = own.target_hints.at[own.target_hints.slot(hash_of(key))];
    const target_entry to = own.targets[hint & hint_entry];
    const std::uint32_t connection = hint >> 8;
    const rank_connection& path = own.connections[connection];
    std::byte* const target = to.base + request.offset;
    const bool in_place = target == request.source;
    const bool is_threads_copy = exec::choose_copy(state.group(), state.staging, target, request.source,
                                                   request.bytes) == exec::copy_way::threads;
    const bool fits = (to.key == key) & (to.is_remote == 0) & (request.tag < state.device.tags.plain) &
                      (request.bytes != 0) & (request.bytes <= to.bytes) &
                      (request.offset <= to.bytes - request.bytes) & (path.queue != nullptr) & !has_undelivered(path) &
                      (in_place ? to.small != 0 : is_threads_copy & (request.bytes >= to.small));
    if (!all(warp, fits)) return direct_is_slow;
    if (any(warp, !queue_has_room(state.device.queues, path, 0)) && !load_credit(warp, state, connection, 0))
        return direct_is_slow;
    const std::uint32_t turn = own.posted_turn;
    sync(warp); // all have read what now changes
    if (warp.leads()) {
        own.doing.target = hint & hint_entry;
        own.doing.is_direct = in_place ? 0 : 1;
        own.ready = {path.queue + state.device.queues.header(path.sent.messages),
                     {{0, message_releases, request.tag << 16}},
                     path.sent.messages + 1,
                     1};
        if (!in_place) {
            exec::complete_copies(state.staging); // ORDER bulk-then-words
            state.puts[turn].put.target = target;
            own.posted_turn = 1 - turn;
        }
    }
    return in_place ? direct_in_place : direct_is_posted + turn;
}

// The header that prepare_direct() has made leaves. The lead warp, after the block's barrier.
DCUDA_DEVICE void send_prepared(const full_warp& warp, rank_state& state) {
    endpoint& own = state.own.of(warp);
    const std::uint32_t requests = load_requests(state); // PERF: the trip to the L2 cache ends before it is needed
    const bool is_new = requests != own.requests_seen;
    if (warp.leads()) {
        rank_connection& to = own.connections[own.targets[own.doing.target].connection];
        store_header(state, own, to, own.ready);
        count_sent(own, to, 0, true);
    }
    if (any(warp, is_new)) answer_new_requests(warp, state);
}

#endif

} // namespace dcuda::detail
