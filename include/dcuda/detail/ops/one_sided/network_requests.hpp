// SPDX-License-Identifier: BSD-3-Clause
// Gets and atomic operations on windows of ranks whose memory cannot be mapped here. The host passes them on; the
// target's host reads, and the delivery kernel of its device makes atomic operations. docs/design/network.md has the
// whole way.
#pragma once

#include "dcuda/detail/ops/network_ops.hpp"
#include "dcuda/detail/ops/one_sided/accessed.hpp"
#include "dcuda/detail/protocol/atomics.hpp"

namespace dcuda::detail {

// An atomic operation of the element at `home`, as the target addresses it, behind all that this rank has sent there.
// False if the run ended. The leader.
DCUDA_DEVICE bool send_update(lone_thread leader, rank_state& state, std::uint32_t target, const std::byte* home,
                              const atomic_update& update, std::uint32_t answer) {
    const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(home));
    return send_command(leader, state,
                        make_command(state.device_rank, update_fields{target, update_code(update), address,
                                                                      update.operand, update.expected, answer}));
}

// The same without a result, and with one: the bits that the element held before.
DCUDA_COLD bool update_far_away(lone_thread leader, shared_state shared, std::uint32_t target, const std::byte* home,
                                const atomic_update& update) {
    rank_state& state = shared.get();
    state.own.of(leader).networked |= networked_puts;
    return send_update(leader, state, target, home, update, no_answer);
}
DCUDA_COLD bool fetch_from_far_away(lone_thread leader, shared_state shared, std::uint32_t target,
                                    const std::byte* home, const atomic_update& update, operation where,
                                    std::uint64_t& before) {
    rank_state& state = shared.get();
    endpoint& own = state.own.of(leader);
    if (++own.network_requests == no_answer) ++own.network_requests;
    const std::uint32_t number = own.network_requests;
    if (!send_update(leader, state, target, home, update, number)) return false;
    // ORDER reply-publish -> reply-observe: the host has placed the result; what others had put before the operation
    // has come before it.
    if (!wait_for_word<order_tag::reply_observe>(
            leader, state, scope::system, state.device.network.answered + state.device_rank,
            [&](std::uint32_t value) { return value == number; }, waiting::answer, where, target))
        return false;
    before = load_relaxed(state.device.network.results + state.device_rank);
    return true;
}

// A get of what lies at `place`, behind all that this rank has sent there. False if the run ended. The leader.
DCUDA_COLD bool get_from_far_away(lone_thread leader, shared_state shared, const posted_put place,
                                  const accessed_range range, std::byte* destination) {
    rank_state& state = shared.get();
    if (range.bytes != 0 && !exec::is_global_memory(destination)) {
        report_fault(leader, state, fault::destination, range.where, range.window, range.rank,
                     reinterpret_cast<std::uintptr_t>(destination), range.bytes, 0);
        return false;
    }
    endpoint& own = state.own.of(leader);
    own.networked |= networked_gets;
    complete_stores(state, own); // what all threads wrote to the destination before comes before what arrives there
    return send_command(
        leader, state,
        make_command(state.device_rank,
                     get_fields{place.rank, range.notifies() ? wire_tag(state, range.tag) : no_tag, place.home,
                                range.bytes, reinterpret_cast<std::uintptr_t>(destination)}));
}

} // namespace dcuda::detail
