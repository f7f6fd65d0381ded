// SPDX-License-Identifier: BSD-3-Clause
// Atomic operations on elements of windows of other ranks. All threads of the rank call them, one thread makes them.
//
// ORDER atomic-publish -> atomic-observe: what all threads have written, put or seen comes before the block's barrier,
// and that before the leader, which completes it (a fence that is cumulative) and then makes the operation. Who sees
// its result by an atomic operation of its own acquires after that. So whoever has seen the result sees what the source
// had put straight into windows, or stored there, before. Weaker: who takes a ticket, or a lock, may find old data
// behind it. Small puts that travel as messages are placed by their target; only those to the element itself are waited
// for. PERF: the fence is needed even if this rank has put nothing: it may have stored to a window of its own, or pass
// on what it has learned of others.
#pragma once

#include "dcuda/detail/ops/one_sided/accessed.hpp"
#include "dcuda/detail/ops/one_sided/network_requests.hpp"
#include "dcuda/detail/ops/waits/wait.hpp"
#include "dcuda/detail/protocol/atomics.hpp"

namespace dcuda::detail {

struct update_request {
    accessed_range range; // the element
    atomic_update update;
    std::uint32_t has_result; // 1: somebody wants the value that the element held before
};

// Makes an atomic operation. Returns 1 + the turn in which it has posted what the element held before, or 0 if the run
// has ended. The lead warp, after the block's barrier.
DCUDA_COLD unsigned update_at_target(lead_warp warp, shared_state shared, const update_request request) {
    rank_state& state = shared.get();
    endpoint& own = state.own.of(warp);
    const std::uint32_t requests = load_requests(state); // PERF: the trip to the L2 cache ends before it is needed
    const unsigned target = exec::far(find_accessed)(warp, state, request.range);
    if (target == cached_targets) return 0;
    const target_entry& to = own.targets[target];
    std::byte* const home = to.home + request.range.offset;
    if (!is_aligned(warp, state, request.range, home, request.range.bytes)) return 0;
    std::uint64_t before = 0;
    if (to.is_remote != 0) {
        if (!await_networked_gets(warp, state)) return 0;
        bool going = false;
        if (warp.leads()) {
            const lone_thread leader = exec::lead_access::alone();
            complete_stores(state, own);
            going = request.has_result != 0 ? fetch_from_far_away(leader, state, to.world_rank, home, request.update,
                                                                  request.range.where, before)
                                            : update_far_away(leader, state, to.world_rank, home, request.update);
        }
        if (!any(warp, going)) return 0;
    } else {
        if (!await_own_puts(warp, state, to, request.range)) return 0;
        if (warp.leads()) {
            complete_stores(state, own);
            std::byte* const element = to.base + request.range.offset;
            before = update_element(element, request.update);
            count_direct_store(own, own.connections[to.connection]); // a notification releases it
            if (request.has_result != 0)
                acquire_after<order_tag::atomic_observe>(state.job_scope, reinterpret_cast<std::uint32_t*>(element));
        }
    }
    sync(warp);
    answer_requests(warp, state, requests);
    constexpr std::uint32_t calls_between_looks = 16;
    if (has_ended_while_spinning(warp, state, calls_between_looks)) return 0;
    const value_unit value{{static_cast<std::uint32_t>(before), static_cast<std::uint32_t>(before >> 32)}};
    return 1 + post_value(warp, state, value);
}

// All threads of the rank: the bits that the element held before, if the request has a result.
DCUDA_COLD std::uint64_t update_window(shared_state shared, const update_request request) {
    rank_state& state = shared.get();
    state.group().sync(); // the stores of all threads are part of what the leader completes
    const unsigned posted_at = exec::decide(
        state.group(), state.decision, [&](const lead_warp& warp) { return update_at_target(warp, state, request); });
    if (posted_at == 0) exec::exit_thread();
    const value_unit value = state.puts[posted_at - 1].value;
    return value.words[0] | static_cast<std::uint64_t>(value.words[1]) << 32;
}

} // namespace dcuda::detail
