// SPDX-License-Identifier: BSD-3-Clause
// How operations begin whose threads access the target's memory themselves, and never by message: accumulates and
// boxes. Over a network they are commands of parts.
//
// ORDER notify-publish, notify-observe: as of puts that are stored straight, and of gets. What this rank has put to the
// range before is in its place, and the copy engine has finished; what the threads access after the block's barrier
// comes after that. What they store is released by the leader's next notification or flush, which comes after the
// block's next barrier.
#pragma once

#include "dcuda/detail/ops/one_sided/accessed.hpp"
#include "dcuda/detail/ops/put.hpp"

namespace dcuda::detail {

struct straight_access {
    accessed_range range;
    std::uint32_t element_bytes; // to which the range must be aligned

    // Whether a notification or a flush that comes later has something to release.
    DCUDA_DEVICE bool is_to_release() const { return !range.is_got() || range.notifies(); }
};

// --- Fast path: of what is not got ----------------------------------------------------------------------------------

#if DCUDA_WARPS

// What begin_straight() does where the target is near: direct_is_slow, and nothing has happened, or direct_posted with
// one of two places. All threads of the rank.
DCUDA_DEVICE unsigned begin_near(const caller& by, const straight_access& access) {
    return exec::choose(by, [&](const full_warp& warp) {
        return access.range.is_got()
                   ? direct_is_slow
                   : prepare_direct<true>(warp, by.state(), access.range.as_put(), access.element_bytes);
    });
}

#endif

// --- Slow path ------------------------------------------------------------------------------------------------------

// How it is made, and where: posted. The lead warp.
DCUDA_COLD unsigned choose_straight(lead_warp warp, shared_state shared, const straight_access access) {
    constexpr auto ended = static_cast<unsigned>(route::ended);
    rank_state& state = shared.get();
    endpoint& own = state.own.of(warp);
    const accessed_range& range = access.range;
    const unsigned target = exec::far(find_accessed)(warp, state, range);
    if (target == cached_targets) return ended;
    const target_entry& entry = own.targets[target];
    std::byte* const home = entry.home + range.offset;
    if (!is_aligned(warp, state, range, home, access.element_bytes)) return ended;
    const posted_put place{entry.base + range.offset, reinterpret_cast<std::uintptr_t>(home), nullptr, 0,
                           entry.world_rank};
    if (entry.is_remote != 0)
        return await_networked_gets(warp, state) ? post(warp, state, route::proxied, place) : ended;
    if (!await_own_puts(warp, state, entry, range)) return ended;
    if (warp.leads()) {
        exec::complete_copies(state.staging);
        if (range.is_got()) {
            if (own.unreleased != 0) complete_stores(state, own);
            acquire_after<order_tag::notify_observe>(state.job_scope, &state.status->doorbell);
        }
    }
    return post(warp, state, route::direct, place);
}

// All threads of the rank. The route, direct or proxied; its place is posted(state, result / post_turn). If the run
// ends the threads leave the kernel.
DCUDA_COLD unsigned begin_straight(shared_state shared, const straight_access access) {
    rank_state& state = shared.get();
    const std::uint32_t requests = load_requests(state); // PERF: the trip to the L2 cache ends before it is needed
    state.group().sync();                                // what all threads have stored before, in the source as well
    const unsigned decision = exec::decide(
        state.group(), state.decision, [&](const lead_warp& warp) { return choose_straight(warp, state, access); },
        [&](const lead_warp& warp, unsigned chosen) {
            if (warp.leads() && route_of(chosen) == route::direct) {
                state.own.of(warp).doing.is_direct = 1;
                if (access.is_to_release()) count_direct_put(state.own.of(warp));
            }
            if (route_of(chosen) != route::ended) answer_requests(warp, state, requests);
        });
    if (route_of(decision) == route::ended) exec::exit_thread();
    return decision;
}

// Notifies the target after all that the threads have accessed, if the operation notifies. All threads of the rank.
DCUDA_COLD void end_straight(shared_state shared, const accessed_range range, route way, const posted_put place) {
    rank_state& state = shared.get();
    if (!range.notifies()) return;
    if (way == route::proxied) return send_through_host(state, place, nullptr, 0, wire_tag(state, range.tag));
    arrive_and_notify(state, range.tag);
}

} // namespace dcuda::detail
