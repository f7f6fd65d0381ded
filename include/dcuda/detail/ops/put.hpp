// SPDX-License-Identifier: BSD-3-Clause
// Puts and notifications. All threads of the rank call them.
//
// They go one of three ways (route). As messages: notifications, and small notified puts, to targets in whose mailboxes
// this rank has a queue (mailbox_send.hpp). Directly: all threads store into the target's memory, and then one
// notifies. Proxied: the host sends what goes to targets that are reached over a network.
//
// ORDER notify-publish -> notify-observe: all threads of the source copy; the block's barrier orders their stores
// before the one thread that releases: by an addition to the target's counter, or by a fence before a message's header
// (device scope for a target on this device, system scope for one on another). Who sees the counter, or the header,
// acquires at a scope that includes the source (on a GPU by a fence after the load, of the same thread), and the
// block's barrier orders that before what all its threads do next. So whoever has seen the notification reads the data,
// also that of earlier puts of the source, since the release covers all of the block's earlier stores. Weaker: the
// target may read the window's old content.
#pragma once

#include "dcuda/detail/ops/check.hpp"
#include "dcuda/detail/ops/fast/caller.hpp"
#include "dcuda/detail/ops/fast/fast_direct.hpp"
#include "dcuda/detail/ops/fast/fast_message.hpp"
#include "dcuda/detail/ops/mailbox_send.hpp"
#include "dcuda/detail/ops/network_ops.hpp"
#include "dcuda/detail/ops/targets.hpp"

namespace dcuda::detail {

// How a put or a notification leaves. What the lead warp decides; with post_turn, if a put was posted there.
enum class route : unsigned {
    ended,            // not at all: the run has ended, or a rule was broken
    packets,          // as a message, by the lead warp
    packets_by_block, // as a message with much payload, by all threads
    direct,           // all threads store it into the target's memory
    direct_by_engine, // or the copy engine does
    proxied,          // the host sends it
};
inline constexpr unsigned post_turn = 8;
// As far as a message can say how much payload it has.
inline constexpr std::uint32_t max_message_bytes = 0xffff;
DCUDA_DEVICE route route_of(unsigned decision) { return static_cast<route>(decision % post_turn); }

DCUDA_DEVICE unsigned post(const lead_warp& warp, rank_state& state, route way, const posted_put& put) {
    return static_cast<unsigned>(way) + post_turn * post(warp, state, put);
}

// Leaves the payload of the next message on this connection to all threads of the block; and what they do then.
DCUDA_DEVICE unsigned post_payload(const lead_warp& warp, rank_state& state, const rank_connection& path) {
    return post(warp, state, route::packets_by_block, {nullptr, 0, path.queue, path.sent.packets, 0});
}
DCUDA_DEVICE void store_posted_payload(const rank_state& state, const posted_put& put, const send_request& request) {
    store_payload(state, put.queue, put.position, request.source, static_cast<std::uint32_t>(request.bytes),
                  state.group().thread(), state.group().threads());
}

// All threads have stored into a target's memory, or will. The leader.
DCUDA_DEVICE void count_direct_put(endpoint& own) {
    count_direct_store(own, own.connections[own.targets[own.doing.target].connection]);
}

// --- Slow path -----------------------------------------------------------------------------------------------------

// Chooses how a message or a put leaves, and makes room for it, or waits until it can. The lead warp.
//
// A put that is stored directly must not be overwritten later by payload that went as a message before. Where these
// overlap the put goes as a message, too, behind the others; if it is too large for that it waits until the target has
// taken them.
DCUDA_COLD unsigned choose_route(lead_warp warp, shared_state shared, const send_request request) {
    rank_state& state = shared.get();
    endpoint& own = state.own.of(warp);
    target_entry found;
    unsigned target = find_near_target(warp, own, target_key(request.window, request.rank), found);
    if (target == cached_targets || !is_allowed(state, found, request))
        target = exec::far(load_target<true, lead_warp>)(warp, state, request);
    if (target == cached_targets) return static_cast<unsigned>(route::ended);
    sync(warp);
    if (warp.leads()) {
        own.doing.target = target;
        own.doing.is_direct = 0;
    }
    const target_entry& entry = own.targets[target];
    const auto home = reinterpret_cast<std::uintptr_t>(entry.home + request.offset);
    posted_put place{nullptr, static_cast<std::uint64_t>(home), nullptr, 0, entry.world_rank};
    if (entry.is_remote != 0)
        return await_networked_gets(warp, state) ? post(warp, state, route::proxied, place)
                                                 : static_cast<unsigned>(route::ended);

    place.target = entry.base + request.offset;
    rank_connection& path = own.connections[entry.connection];
    const bool in_place = place.target == request.source && request.bytes != 0;
    const std::uint32_t packets = in_place ? 0 : packets_for(static_cast<std::uint32_t>(request.bytes));
    const auto by_message = [&] {
        return packets > 32 && state.group().threads() > 32 ? post_payload(warp, state, path)
                                                            : static_cast<unsigned>(route::packets);
    };
    if (request.notifies() && !in_place && (request.bytes == 0 || request.bytes < entry.small) &&
        find_room(warp, state, path, packets))
        return by_message();
    if (is_under_way(warp, state, entry.connection, entry.home + request.offset, request.bytes)) {
        if (!in_place && request.bytes <= max_message_bytes && find_room(warp, state, path, packets))
            return by_message();
        if (!await_delivery(warp, state, entry.connection, request.kind)) return static_cast<unsigned>(route::ended);
    }
    if (in_place && warp.leads()) own.has_stored = 1; // the message does not release it for all
    if (request.notifies() && in_place && find_room(warp, state, path, 0)) return by_message();
    const exec::copy_way way =
        exec::choose_copy(state.group(), state.staging, place.target, request.source, request.bytes);
    if (warp.leads()) {
        own.doing.is_direct = 1;
        if (way == exec::copy_way::engine) exec::order_before_engine(); // what it has acquired since prepare_copy()
        complete_before_words(state, way, place.target, request.bytes);
    }
    return post(warp, state, way == exec::copy_way::engine ? route::direct_by_engine : route::direct, place);
}

// The lead warp sends what choose_route() has found room for; `by_block`: but its payload.
DCUDA_COLD void send_message(lead_warp warp, shared_state shared, const send_request request, bool by_block) {
    rank_state& state = shared.get();
    endpoint& own = state.own.of(warp);
    const target_entry& entry = own.targets[own.doing.target];
    const rank_connection& path = own.connections[entry.connection];
    const message_content content{entry.base + request.offset,
                                  entry.home + request.offset,
                                  static_cast<const std::byte*>(request.source),
                                  static_cast<std::uint32_t>(request.bytes),
                                  request.notifies() ? wire_tag(state, request.tag) : 0,
                                  request.notifies() ? 0 : message_is_quiet};
    if (!by_block)
        store_payload(state, path.queue, path.sent.packets, request.source, content.payload_bytes(), warp.index,
                      warp.count);
    if (warp.leads() && !request.notifies()) own.has_sent_quietly = 1;
    send_header(warp, state, entry.connection, content);
}

// A notification that tells of what was stored directly, or for which there is no room as a message. After the block's
// barrier. The lead warp.
//
// A source may notify by a message once and by the counter the next time: what it has sent as messages before it counts
// is released with the addition, and a target that sees the counter change takes its messages first; what it has
// counted before a message is released with that.
DCUDA_COLD void notify_target(lead_warp warp, shared_state shared, std::uint32_t tag) {
    rank_state& state = shared.get();
    endpoint& own = state.own.of(warp);
    const std::uint32_t wire = wire_tag(state, tag);
    const unsigned place = own.targets[own.doing.target].connection;
    rank_connection& connection = own.connections[place];
    if (find_room(warp, state, connection, 0))
        return send_header(warp, state, place, {nullptr, nullptr, nullptr, 0, wire, 0});
    if (!warp.leads()) return;
    exec::complete_copies(state.staging);
    add_release<order_tag::notify_publish>(connection.reach, connection.counters + wire, 1u);
    count_direct_store(own, connection);
    if (DCUDA_BACKEND_CPU) ring_doorbell(&connection.status->doorbell);
}

// Notifies the target of this operation after all that the rank's threads have stored and read. All of them.
DCUDA_DEVICE void arrive_and_notify(rank_state& state, std::uint32_t tag) {
    exec::decide(
        state.group(), state.decision, [](const lead_warp&) { return 0u; },
        [&](const lead_warp& warp, unsigned) { notify_target(warp, state, tag); });
}

// Stores a put directly, and notifies. All threads of the rank.
DCUDA_DEVICE void copy_and_notify(rank_state& state, const posted_put& put, route way, const send_request& request) {
    exec::copy(state.group(), state.staging, way == route::direct ? exec::copy_way::threads : exec::copy_way::engine,
               put.target, static_cast<const std::byte*>(request.source), request.bytes);
    if (request.notifies()) arrive_and_notify(state, request.tag);
}

// Whatever the fast path cannot do. All threads of the rank.
DCUDA_COLD void send_slowly(shared_state shared, const send_request request) {
    rank_state& state = shared.get();
    exec::prepare_copy(state.group(), request.bytes);
    const unsigned decision = exec::decide(
        state.group(), state.decision, [&](const lead_warp& warp) { return choose_route(warp, state, request); },
        [&](const lead_warp& warp, unsigned chosen) {
            const route way = route_of(chosen);
            if (way == route::packets || way == route::packets_by_block)
                send_message(warp, state, request, way == route::packets_by_block);
            if (warp.leads() && (way == route::direct || way == route::direct_by_engine))
                count_direct_put(state.own.of(warp));
            // Not while payload of a message is missing, which may be one to this rank itself.
            if (way != route::ended && way != route::packets_by_block)
                answer_requests(warp, state, load_requests(state));
        });
    const route way = route_of(decision);
    if (way == route::ended) exec::exit_thread();
    if (way == route::packets) return;
    const posted_put put = posted(state, decision / post_turn);
    if (way == route::packets_by_block) return store_posted_payload(state, put, request);
    if (way == route::proxied) {
        if (request.bytes != 0 || request.notifies())
            send_through_host(state, put, request.source, request.bytes,
                              request.notifies() ? wire_tag(state, request.tag) : no_tag);
        return;
    }
    copy_and_notify(state, put, way, request);
}

// --- Operations ----------------------------------------------------------------------------------------------------

#if DCUDA_WARPS
// Stores a put that prepare_direct() has posted, and notifies if it is notified. All threads of the rank.
DCUDA_COLD void store_posted(const caller by, const std::byte* source, std::size_t bytes, unsigned chosen,
                             bool notifies) {
    rank_state& state = by.state();
    const std::uint32_t requests = load_requests(state); // PERF: on its way while the payload is
    exec::copy(by.group(), state.staging,
               chosen >= direct_posted_for_engine ? exec::copy_way::engine : exec::copy_way::threads,
               posted(state, chosen % 2).target, source, bytes);
    end_direct(by, notifies, requests);
}
#endif

// Of send_to_far_target(). PERF: no other function has such a parameter: profiled_call says why.
struct far_call {
    send_request request;
    caller by;
};

// What the fast paths have not done: if it is a message whose target is not near, brings that near and tries again. All
// threads of the rank.
// PERF: to a target that is not near a notification takes 4.6 us on the slow path, a put of 64 B 5.2 (H100,
// 2026-11-26). The request lies in shared memory, and what is called has instances of its own (IsFar): else this
// function would take more registers than kernels shall have, and the fast path 25 more where the kernel has many.
template <bool HasPayload>
DCUDA_COLD void send_to_far_target(const far_call call) {
    rank_state& state = call.by.state();
#if DCUDA_WARPS
    const caller by = call.by;
    if (by.has_full_warp() && call.request.notifies() && call.request.bytes <= state.device.small_put_bytes &&
        call.request.tag < state.device.tags.plain && state.device.queues.packets != 0) {
        const send_request& request = state.far_request;
        if (by.group().leads()) state.far_request = call.request;
        fast_message<HasPayload, true> message;
        if (exec::attempt(
                by,
                [&](const full_warp& warp) {
                    return !is_near(warp, state, request) &&
                           exec::far(load_target<false, full_warp>)(warp, state, request) != cached_targets &&
                           message.prepare_near(warp, state, request);
                },
                [&](const full_warp& warp) { message.send(warp, state, request); }))
            return;
        // The leader posts nothing there before all have met again. On the CPU backend each thread's source may be a
        // variable of its own, at another address.
        return exec::far(send_slowly)(state, DCUDA_BACKEND_CPU ? call.request : request);
    }
#endif
    exec::far(send_slowly)(state, call.request);
}

// A put that is no message, or that cannot leave as one at once. All threads of the rank.
DCUDA_COLD void send_directly(const caller by, const send_request request) {
#if DCUDA_WARPS
    rank_state& state = by.state();
    exec::prepare_copy(by.group(), request.bytes);
    const unsigned chosen =
        exec::choose(by, [&](const full_warp& warp) { return prepare_direct(warp, state, request); });
    if (chosen >= direct_posted)
        return store_posted(by, static_cast<const std::byte*>(request.source), request.bytes, chosen,
                            request.notifies());
    if (chosen == direct_in_place)
        return exec::act_alone(by, [&](const full_warp& warp) { send_prepared(warp, state, load_requests(state)); });
#endif
    exec::far(send_to_far_target<true>)({request, by});
}

// A notification, or a notified put. All threads of the rank.
template <bool HasPayload>
DCUDA_COLD void send_notified(const caller by, const send_request request) {
    rank_state& state = by.state();
    // PERF: not two functions for callers: each would have registers of its own for its arguments.
    if (HasPayload && request.bytes > state.device.small_put_bytes) return send_directly(by, request);
#if DCUDA_WARPS
    fast_message<HasPayload> message;
    if (exec::attempt(
            by, [&](const full_warp& warp) { return message.prepare(warp, state, request); },
            [&](const full_warp& warp) { message.send(warp, state, request); }))
        return;
#endif
    // PERF: what is called by exec::far comes last, so that nothing must be kept for after it.
    if (HasPayload) return send_directly(by, request);
    exec::far(send_to_far_target<false>)({request, by});
}

DCUDA_DEVICE void put(const caller& by, window win, int target, std::size_t offset, std::size_t bytes,
                      const void* source) {
    send_directly(by, {win.id, static_cast<std::uint32_t>(target), offset, bytes, source, operation::put, 0});
}

DCUDA_DEVICE void put_notify(const caller& by, window win, int target, std::size_t offset, std::size_t bytes,
                             const void* source, int tag) {
    send_notified<true>(by, {win.id, static_cast<std::uint32_t>(target), offset, bytes, source, operation::put_notify,
                             static_cast<std::uint32_t>(tag)});
}

// `kind`: notify; or notify_relaxed, whose message leaves without releasing anything. The slow path has none such.
DCUDA_DEVICE void notify(const caller& by, operation kind, int target, communicator comm, int tag) {
    const std::uint32_t window = notify_window(comm);
    send_notified<false>(by, {window, static_cast<std::uint32_t>(target),
                              window == notify_unknown ? static_cast<std::uint32_t>(comm) : 0, 0, nullptr, kind,
                              static_cast<std::uint32_t>(tag)});
}

// What the rank's threads have stored without a put, the next message to each target releases. All threads.
DCUDA_DEVICE void release(const caller& by) {
    exec::leader_alone(by.group(), [&](const auto& leader) {
        rank_state& state = by.state();
        count_own_stores(state, state.own.of(leader));
    });
}

// All that this rank has put is complete on return, to the window or to any other. False if the run ended. The lead
// warp, after the block's barrier.
DCUDA_COLD bool complete_puts(lead_warp warp, shared_state shared, std::uint32_t window_id) {
    rank_state& state = shared.get();
    endpoint& own = state.own.of(warp);
    if (DCUDA_CHECKS != 0 && !is_window_open(state, window_id)) {
        if (warp.leads())
            report_fault(exec::lead_access::alone(), state, fault::window, operation::flush, window_id, 0, 0, 0, 0);
        return false;
    }
    const bool waits = find_undelivered(warp, own);
    if (waits) request_all_credit(warp, state);
    sync(warp);
    if (warp.leads()) complete_stores(state, own);
    sync(warp);
    if (waits && !await_all_deliveries(warp, state, operation::flush)) return false;
    answer_requests(warp, state, load_requests(state));
    if (own.networked == 0) return true;
    sync(warp);
    return any(warp, warp.leads() && flush_network(exec::lead_access::alone(), state));
}

// Waits until all that this rank has put there is complete. All threads.
DCUDA_DEVICE void flush(const caller& by, window win) {
    rank_state& state = by.state();
    by.group().sync(); // the stores of all threads are part of what the leader completes
#if DCUDA_WARPS
    if (exec::choose(by, [&](const full_warp& warp) { return complete_direct_puts(warp, state, win.id) ? 1u : 0u; }))
        return;
#endif
    const bool going = exec::decide(state.group(), state.decision, [&](const lead_warp& warp) {
                           return exec::far(complete_puts)(warp, state, win.id) ? 1u : 0u;
                       }) != 0;
    if (!going) exec::exit_thread();
}

} // namespace dcuda::detail
