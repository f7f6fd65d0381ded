// SPDX-License-Identifier: BSD-3-Clause
// Gets: all threads of the rank, or the copy engine, load from the target's memory; or its host sends what lies there
// over the network.
//
// ORDER: what this rank has put there before is in its place: small puts on their way are waited for, and what it has
// stored straight is completed. What others have put there it sees if it has learned of it before, by a notification, a
// barrier or an atomic operation, which have acquired. The leader acquires once more, so that no copy of the memory is
// read that a cache has kept from earlier.
#pragma once

#include "dcuda/detail/ops/one_sided/accessed.hpp"
#include "dcuda/detail/ops/one_sided/network_requests.hpp"
#include "dcuda/detail/ops/put.hpp"

namespace dcuda::detail {

struct get_request {
    accessed_range range;
    std::byte* destination;
};

// --- Fast path ------------------------------------------------------------------------------------------------------

#if DCUDA_WARPS

// A get, without a notification, from a target that was used lately. No message to the range is under way, and all that
// the rank has stored anywhere is completed. As prepare_direct(). PERF: see fast_message.
DCUDA_DEVICE unsigned prepare_get(const full_warp& warp, rank_state& state, const get_request& request) {
    endpoint& own = state.own.of(warp);
    const accessed_range& range = request.range;
    const std::uint64_t key = target_key(range.window, range.rank);
    const std::uint32_t hint = own.target_hints.at[own.target_hints.slot(hash_of(key))];
    const target_entry from = own.targets[hint & hint_entry];
    const std::byte* const source = from.base + range.offset;
    const bool fits = (from.key == key) & (from.is_remote == 0) & (range.bytes != 0) & (range.bytes <= from.bytes) &
                      (range.offset <= from.bytes - range.bytes) & !range.notifies() &
                      ((own.unreleased == 0) | (own.has_stored == 0)) &
                      !may_be_under_way(own.connections[hint >> 8],
                                        reinterpret_cast<std::uintptr_t>(from.home) + range.offset, range.bytes);
    if (!all(warp, fits)) return direct_is_slow;
    exec::copy_way way = exec::copy_way::threads;
    if (exec::is_global_memory(request.destination))
        way = exec::choose_copy(state.group(), state.staging, request.destination, source, range.bytes);
    const std::uint32_t turn = own.posted_turn;
    sync(warp); // all have read what now changes
    if (warp.leads()) {
        own.doing.target = hint & hint_entry;
        acquire_after<order_tag::notify_observe>(state.job_scope, &state.status->doorbell);
        if (way == exec::copy_way::engine) exec::order_before_engine(); // what it has acquired
        complete_before_words(state, way, request.destination, range.bytes);
        state.puts[turn].put.target = const_cast<std::byte*>(source);
        own.posted_turn = 1 - turn;
    }
    return (way == exec::copy_way::engine ? direct_posted_for_engine : direct_posted) + turn;
}

#endif

// --- Slow path ------------------------------------------------------------------------------------------------------

// How a get is made, and what it reads: posted. The lead warp.
DCUDA_COLD unsigned choose_get(lead_warp warp, shared_state shared, const get_request& request) {
    rank_state& state = shared.get();
    endpoint& own = state.own.of(warp);
    const accessed_range& range = request.range;
    const unsigned target = exec::far(find_accessed)(warp, state, range);
    if (target == cached_targets) return static_cast<unsigned>(route::ended);
    const target_entry& from = own.targets[target];
    posted_put place{from.base + range.offset, reinterpret_cast<std::uintptr_t>(from.home + range.offset), nullptr, 0,
                     from.world_rank};
    if (from.is_remote != 0) {
        // Of no bytes only the notification is left, which comes after earlier gets.
        if (range.bytes == 0 && !await_networked_gets(warp, state)) return static_cast<unsigned>(route::ended);
        bool going = false;
        if (warp.leads())
            going = get_from_far_away(exec::lead_access::alone(), state, place, range, request.destination);
        return static_cast<unsigned>(any(warp, going) ? route::proxied : route::ended);
    }
    if (!await_own_puts(warp, state, from, range)) return static_cast<unsigned>(route::ended);
    exec::copy_way way = exec::copy_way::threads;
    if (exec::is_global_memory(request.destination))
        way = exec::choose_copy(state.group(), state.staging, request.destination, place.target, range.bytes);
    if (warp.leads()) {
        if (own.unreleased != 0) complete_stores(state, own);
        acquire_after<order_tag::notify_observe>(state.job_scope, &state.status->doorbell);
        if (way == exec::copy_way::engine) exec::order_before_engine(); // what it has acquired
        complete_before_words(state, way, request.destination, range.bytes);
    }
    return post(warp, state, way == exec::copy_way::engine ? route::direct_by_engine : route::direct, place);
}

// All threads of the rank leave the kernel if the destination is one thread's own.
DCUDA_DEVICE void check_destination(rank_state& state, const get_request& request) {
#if DCUDA_CHECKS
    const accessed_range& range = request.range;
    if (range.bytes != 0 && exec::is_local_memory(request.destination))
        report_and_leave(state, fault::local_memory, range.where, range.window, range.rank,
                         reinterpret_cast<std::uintptr_t>(request.destination), range.bytes);
#else
    (void)state, (void)request;
#endif
}

// Whatever the fast path cannot do. All threads of the rank.
//
// ORDER notify-publish: a notification of get_notify comes after all that was read, as if it had been stored there.
DCUDA_COLD void get_slowly(shared_state shared, const get_request request) {
    rank_state& state = shared.get();
    const accessed_range& range = request.range;
    state.group().sync(); // what all threads have stored before, and read of the destination
    const unsigned decision = exec::decide(
        state.group(), state.decision, [&](const lead_warp& warp) { return choose_get(warp, state, request); },
        [&](const lead_warp& warp, unsigned chosen) {
            const route way = route_of(chosen);
            if (warp.leads() && range.notifies() && (way == route::direct || way == route::direct_by_engine))
                count_direct_put(state.own.of(warp));
            if (way != route::ended) answer_requests(warp, state, load_requests(state));
        });
    const route way = route_of(decision);
    if (way == route::ended) exec::exit_thread();
    if (way == route::proxied) return;
    exec::copy(state.group(), state.staging, way == route::direct ? exec::copy_way::threads : exec::copy_way::engine,
               request.destination, posted(state, decision / post_turn).target, range.bytes);
    // What the rank sends next may overwrite what the engine reads.
    if (state.group().leads()) exec::complete_copies(state.staging);
    if (range.notifies()) arrive_and_notify(state, range.tag);
}

// --- The operation --------------------------------------------------------------------------------------------------

#if DCUDA_WARPS
// Loads what prepare_get() has posted. All threads of the rank.
DCUDA_COLD void load_posted(const caller by, std::byte* destination, std::size_t bytes, unsigned chosen) {
    rank_state& state = by.state();
    const std::uint32_t requests = load_requests(state); // PERF: on its way while the payload is
    exec::copy(by.group(), state.staging,
               chosen >= direct_posted_for_engine ? exec::copy_way::engine : exec::copy_way::threads, destination,
               posted(state, chosen % 2).target, bytes);
    exec::act_alone(by, [&](const full_warp& warp) {
        if (warp.leads()) exec::complete_copies(state.staging); // what the rank sends next may overwrite what it reads
        if (any(warp, requests != state.own.of(warp).requests_seen)) answer_new_requests(warp, state);
    });
}
#endif

// All threads of the rank.
DCUDA_COLD void get_from_window(const caller by, const get_request request) {
    rank_state& state = by.state();
    check_destination(state, request);
    exec::prepare_copy(by.group(), request.range.bytes);
#if DCUDA_WARPS
    const unsigned chosen = exec::choose(by, [&](const full_warp& warp) { return prepare_get(warp, state, request); });
    if (chosen != direct_is_slow) return load_posted(by, request.destination, request.range.bytes, chosen);
#endif
    exec::far(get_slowly)(state, request);
}

} // namespace dcuda::detail
