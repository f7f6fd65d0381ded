// SPDX-License-Identifier: BSD-3-Clause
// Accumulates: all threads of the rank combine elements of the target's memory with the source's; or the delivery
// kernel of its device does, an element for each command.
//
// ORDER notify-publish: as of puts that are stored straight. The block's next barrier comes after what its threads have
// changed, and the leader's release after that barrier. No element is a release: who wants to know that all are there
// waits for a notification, or a barrier. What this rank has put to the same elements before is in its place, and the
// copy engine has finished.
#pragma once

#include "dcuda/detail/ops/one_sided/atomics.hpp"
#include "dcuda/detail/ops/put.hpp"

namespace dcuda::detail {

struct accumulate_request {
    accessed_range range;
    const std::byte* source;
    std::uint32_t code; // update_code

    DCUDA_DEVICE element_type type() const { return update_of(code, 0, 0).type; }
    DCUDA_DEVICE std::uint32_t element_bytes() const { return size_of_element(type()); }
    DCUDA_DEVICE std::size_t count() const { return range.bytes / element_bytes(); }
    // Of one element, with this number.
    DCUDA_DEVICE atomic_update update(std::size_t element) const {
        const std::uint64_t operand = element_bytes() == 4
                                          ? bits_of(reinterpret_cast<const std::uint32_t*>(source)[element])
                                          : reinterpret_cast<const std::uint64_t*>(source)[element];
        return update_of(code, operand, 0);
    }
};

// PERF: a command for each element. One with the elements behind it, as puts have, would be quicker.
DCUDA_COLD bool accumulate_far_away(lone_thread leader, shared_state shared, std::uint32_t target,
                                    const std::byte* home, const accumulate_request request) {
    rank_state& state = shared.get();
    state.own.of(leader).networked |= networked_puts;
    for (std::size_t i = 0; i < request.count(); ++i)
        if (!send_update(leader, state, target, home + i * request.element_bytes(), request.update(i), no_answer))
            return false;
    return true;
}

// How it is made, and where: posted. The lead warp.
DCUDA_COLD unsigned choose_accumulate(lead_warp warp, shared_state shared, const accumulate_request request) {
    constexpr auto ended = static_cast<unsigned>(route::ended);
    rank_state& state = shared.get();
    endpoint& own = state.own.of(warp);
    const accessed_range& range = request.range;
    const unsigned target = exec::far(find_accessed)(warp, state, range);
    if (target == cached_targets) return ended;
    const target_entry& to = own.targets[target];
    std::byte* const home = to.home + range.offset;
    if (!is_aligned(warp, state, range, home, request.element_bytes())) return ended;
    const posted_put place{to.base + range.offset, reinterpret_cast<std::uintptr_t>(home), nullptr, 0, to.world_rank};
    if (to.is_remote != 0) {
        if (!await_networked_gets(warp, state)) return ended;
        bool going = false;
        if (warp.leads()) {
            complete_stores(state, own);
            going = accumulate_far_away(exec::lead_access::alone(), state, place.rank, home, request);
        }
        return any(warp, going) ? post(warp, state, route::proxied, place) : ended;
    }
    if (!await_own_puts(warp, state, to, range)) return ended;
    if (warp.leads()) exec::complete_copies(state.staging);
    return post(warp, state, route::direct, place);
}

// All threads of the rank. When a thread returns, others may still be reading the source.
DCUDA_COLD void accumulate_in_window(shared_state shared, const accumulate_request request) {
    rank_state& state = shared.get();
    const std::uint32_t tag = request.range.tag;
    state.group().sync(); // what all threads have stored before, in the source as well
    const unsigned decision = exec::decide(
        state.group(), state.decision, [&](const lead_warp& warp) { return choose_accumulate(warp, state, request); },
        [&](const lead_warp& warp, unsigned chosen) {
            if (warp.leads() && route_of(chosen) == route::direct) count_direct_put(state.own.of(warp));
            if (route_of(chosen) != route::ended) answer_requests(warp, state, load_requests(state));
        });
    if (route_of(decision) == route::ended) exec::exit_thread();
    const posted_put place = posted(state, decision / post_turn);
    if (route_of(decision) == route::proxied) {
        if (tag != no_tag) send_through_host(state, place, nullptr, 0, wire_tag(state, tag));
        return;
    }
    for (std::size_t i = state.group().thread(); i < request.count(); i += state.group().threads())
        update_element(place.target + i * request.element_bytes(), request.update(i));
    if (tag == no_tag) return;
    exec::decide(
        state.group(), state.decision, [](const lead_warp&) { return 0u; },
        [&](const lead_warp& warp, unsigned) { notify_target(warp, state, tag); });
}

} // namespace dcuda::detail
