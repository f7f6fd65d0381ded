// SPDX-License-Identifier: BSD-3-Clause
// Atomic operations on elements of windows of other ranks. All threads of the rank call them, one thread makes them.
//
// ORDER atomic-publish -> atomic-observe: what all threads have put comes before the block's barrier, and that before
// the leader, which completes it (a fence that is cumulative) and then makes the operation. Who sees its result by an
// atomic operation of its own acquires after that. So whoever has seen the result sees what the source had put straight
// into windows before. Weaker: who takes a ticket, or a lock, may find old data behind it. Small puts that travel as
// messages are placed by their target; only those to the element itself are waited for. Stores are no puts: flush()
// releases them, as before a notification.
// PERF: a fence takes as long as the operation. So there is none if nothing was put since the last one that covers all
// ranks. An operation whose result has come back is complete: the next one need not wait for it again.
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

// What an operation of the table does to the element.
DCUDA_HOST_DEVICE constexpr atomic_action action_of(operation kind) {
    switch (kind) {
    case operation::fetch_and:
        return atomic_action::bit_and;
    case operation::fetch_or:
        return atomic_action::bit_or;
    case operation::fetch_xor:
        return atomic_action::bit_xor;
    case operation::fetch_min:
        return atomic_action::minimum;
    case operation::fetch_max:
        return atomic_action::maximum;
    case operation::exchange:
        return atomic_action::exchange;
    case operation::compare_swap:
        return atomic_action::compare_swap;
    default:
        return atomic_action::add;
    }
}

// An atomic operation on an element of type T, with all that is not known when the program is compiled. PERF: as much
// as travels in registers from function to function; an update_request would lie on every thread's stack.
template <operation Kind, class T>
struct element_operation {
    static constexpr bool has_result = Kind != operation::add;
    std::uint32_t window, rank;
    std::size_t offset;
    T operand, expected; // expected: of compare_swap

    DCUDA_DEVICE atomic_update update() const {
        return {action_of(Kind), type_of<T>(), bits_of(operand), bits_of(expected)};
    }
    DCUDA_DEVICE update_request request() const {
        return {{window, rank, offset, sizeof(T), Kind}, update(), has_result ? 1u : 0u};
    }
};

// A look for the end of the run, and for messages, takes longer than an operation.
inline constexpr std::uint32_t updates_between_looks = 64;

// An atomic operation was made. The leader.
DCUDA_DEVICE void settle_update(endpoint& own, rank_connection& connection, bool has_result) {
    if (has_result)
        count_update(own, connection);
    else
        count_direct_store(own, connection);
}
DCUDA_DEVICE value_unit value_of_bits(std::uint64_t bits) {
    return {{static_cast<std::uint32_t>(bits), static_cast<std::uint32_t>(bits >> 32)}};
}

// --- Fast path ------------------------------------------------------------------------------------------------------

#if DCUDA_WARPS

// Makes an atomic operation on an element of a target that was used lately, and to which no message is under way.
// Returns 1 + the turn in which it has posted what the element held before, or 0, and then nothing has happened. The
// lead warp, after the block's barrier. PERF: see fast_message.
template <operation Kind, class T>
DCUDA_DEVICE unsigned update_near(const full_warp& warp, rank_state& state, const element_operation<Kind, T>& asked) {
    constexpr bool has_result = element_operation<Kind, T>::has_result;
    endpoint& own = state.own.of(warp);
    const std::uint64_t key = target_key(asked.window, asked.rank);
    const std::uint32_t hint = own.target_hints.at[own.target_hints.slot(hash_of(key))];
    const std::uint32_t requests = load_requests(state);
    const std::uint32_t calls = own.spinning_calls, turn = own.posted_turn;
    const target_entry entry = own.targets[hint & hint_entry];
    rank_connection& path = own.connections[hint >> 8];
    std::byte* const element = entry.base + asked.offset;
    const bool fits = (entry.key == key) & (entry.is_remote == 0) & (sizeof(T) <= entry.bytes) &
                      (asked.offset <= entry.bytes - sizeof(T)) &
                      (reinterpret_cast<std::uintptr_t>(element) % sizeof(T) == 0) &
                      (calls % updates_between_looks != 0) &
                      !may_be_under_way(path, reinterpret_cast<std::uintptr_t>(entry.home) + asked.offset, sizeof(T));
    if (!all(warp, fits)) return 0;
    sync(warp); // all have read what now changes
    if (warp.leads()) {
        own.spinning_calls = calls + 1;
        own.doing.target = hint & hint_entry;
        if (own.has_stored != 0) complete_stores(state, own);
        const std::uint64_t before = update_element(element, asked.update());
        settle_update(own, path, has_result);
        if constexpr (has_result) {
            acquire_after<order_tag::atomic_observe>(state.job_scope, reinterpret_cast<std::uint32_t*>(element));
            state.puts[turn].value = value_of_bits(before);
            own.posted_turn = 1 - turn;
        }
    }
    if (any(warp, requests != own.requests_seen)) answer_new_requests(warp, state);
    return 1 + turn;
}

#endif

// --- Slow path ------------------------------------------------------------------------------------------------------

// What is posted in a turn, of which 1 + its number is given.
DCUDA_DEVICE std::uint64_t bits_posted(const rank_state& state, unsigned posted_at) {
    const value_unit value = state.puts[posted_at - 1].value;
    return value.words[0] | static_cast<std::uint64_t>(value.words[1]) << 32;
}

// Makes an atomic operation. Returns 1 + the turn in which it has posted what the element held before, or 0 if the run
// has ended. The lead warp, after the block's barrier.
DCUDA_COLD unsigned update_at_target(lead_warp warp, shared_state shared, const update_request& request) {
    rank_state& state = shared.get();
    endpoint& own = state.own.of(warp);
    const std::uint32_t requests = load_requests(state); // PERF: the trip to the L2 cache ends before it is needed
    const unsigned target = exec::far(find_accessed)(warp, state, request.range);
    if (target == cached_targets) return 0;
    const target_entry& entry = own.targets[target];
    std::byte* const home = entry.home + request.range.offset;
    if (!is_aligned(warp, state, request.range, home, request.range.bytes)) return 0;
    std::uint64_t before = 0;
    if (entry.is_remote != 0) {
        if (!await_networked_gets(warp, state)) return 0;
        bool going = false;
        if (warp.leads()) {
            const lone_thread leader = exec::lead_access::alone();
            complete_stores(state, own);
            going = request.has_result != 0 ? fetch_from_far_away(leader, state, entry.world_rank, home, request.update,
                                                                  request.range.where, before)
                                            : update_far_away(leader, state, entry.world_rank, home, request.update);
        }
        if (!any(warp, going)) return 0;
    } else {
        if (!await_own_puts(warp, state, entry, request.range)) return 0;
        if (warp.leads()) {
            if (own.has_stored != 0) complete_stores(state, own);
            std::byte* const element = entry.base + request.range.offset;
            before = update_element(element, request.update);
            settle_update(own, own.connections[entry.connection], request.has_result != 0);
            if (request.has_result != 0)
                acquire_after<order_tag::atomic_observe>(state.job_scope, reinterpret_cast<std::uint32_t*>(element));
        }
    }
    sync(warp);
    answer_requests(warp, state, requests);
    if (has_ended_while_spinning(warp, state, updates_between_looks)) return 0;
    return 1 + post_value(warp, state, value_of_bits(before));
}

// The same for all threads of the rank, after the block's barrier: the bits that the element held before, if there is a
// result.
DCUDA_COLD std::uint64_t update_slowly(shared_state shared, const update_request request) {
    rank_state& state = shared.get();
    const unsigned posted_at = exec::decide(
        state.group(), state.decision, [&](const lead_warp& warp) { return update_at_target(warp, state, request); });
    if (posted_at == 0) exec::exit_thread();
    return bits_posted(state, posted_at);
}

// --- The operation --------------------------------------------------------------------------------------------------

// All threads of the rank: the bits that the element held before, if there is a result.
template <operation Kind, class T>
DCUDA_COLD std::uint64_t update_window(const caller by, const element_operation<Kind, T> asked) {
    rank_state& state = by.state();
    by.group().sync(); // what all threads have put is part of what the leader completes
#if DCUDA_WARPS
    const unsigned posted_at = exec::choose(by, [&](const full_warp& warp) { return update_near(warp, state, asked); });
    if (posted_at != 0) return asked.has_result ? bits_posted(state, posted_at) : 0; // without one, none is posted
#endif
    return exec::far(update_slowly)(state, asked.request());
}

} // namespace dcuda::detail
