// SPDX-License-Identifier: BSD-3-Clause
// The ring of commands from the ranks of a device to their host, and the faults that ranks report by it.
#pragma once

#include "dcuda/detail/ops/waits/long_wait.hpp"

namespace dcuda::detail {

// Waits until the host has taken what the places from `first` to `end` of the device's ring of commands held before.
// False if the run ended meanwhile. The leader.
//
// ORDER slot-reuse: the host has read what the slot held before it counts the slot as free (slot_free); the load
// acquires that, so the new command cannot overtake the host's reading of the old one.
DCUDA_COLD bool await_ring_space(lone_thread leader, shared_state shared, std::uint64_t first, std::uint64_t end) {
    rank_state& state = shared.get();
    std::uint64_t& ring_head = state.own.of(leader).ring_head;
    if (is_profiled(state)) begin_blocked(leader, state);
    const bool there = wait_for_word<order_tag::slot_reuse>(
        leader, state, scope::system, state.device.ring.head,
        [&](std::uint32_t head) {
            ring_head = first - static_cast<std::uint32_t>(static_cast<std::uint32_t>(first) - head);
            return end - ring_head <= ring_capacity;
        },
        waiting::ring_space, operation::none, 0,
        [](lone_thread asking, rank_state& own, std::uint32_t value) {
            return keep_waiting_for_host(asking, own, value);
        });
    if (is_profiled(state)) end_blocked(leader, state, waiting::ring_space);
    return there;
}

// Takes the next places in the device's ring of commands; waits until they are free. False if the run ended meanwhile.
// The leader.
//
// Tickets have 64 bits, so that what a rank has last seen of the ring's head stays comparable however long ago that
// was. The head that the host writes has 32: it is less than 2^32 behind any ticket.
DCUDA_DEVICE bool take_tickets(lone_thread leader, rank_state& state, std::uint32_t count, std::uint32_t& ticket) {
    const std::uint64_t first = fetch_add_relaxed(state.device.ring.tail, std::uint64_t{count}), end = first + count;
    ticket = static_cast<std::uint32_t>(first);
    return end - state.own.of(leader).ring_head <= ring_capacity ||
           exec::far(await_ring_space)(leader, state, first, end);
}

// The same for the lead warp, whose threads all get the first ticket.
DCUDA_DEVICE bool take_tickets_together(const lead_warp& warp, rank_state& state, std::uint32_t count,
                                        std::uint32_t& ticket) {
    bool going = true;
    if (warp.leads()) going = take_tickets(exec::lead_access::alone(), state, count, ticket);
    ticket = broadcast(warp, ticket, 0);
    return any(warp, warp.leads() && going);
}

DCUDA_DEVICE packet* ring_slot(const command_ring& ring, std::uint32_t ticket) {
    return ring.slots + std::size_t(ticket % ring_capacity) * packets_per_command;
}

// Writes a command into the place of the ring that this ticket is for. One thread.
DCUDA_DEVICE void store_command(const command_ring& ring, std::uint32_t ticket, const command& cmd) {
    packet* slot = ring_slot(ring, ticket);
    for (unsigned part = 0; part < packets_per_command; ++part) {
        std::uint32_t words[3];
        memcpy(words, reinterpret_cast<const std::byte*>(&cmd) + part * sizeof words, sizeof words);
        store_packet<order_tag::command_publish>(slot + part, words[0], words[1], words[2], ticket + 1);
    }
}

// Puts a command into the device's ring; waits while the ring is full. False if the run ended meanwhile. The leader.
DCUDA_COLD bool send_command(lone_thread leader, shared_state shared, const command& cmd) {
    rank_state& state = shared.get();
    std::uint32_t ticket = 0;
    if (!take_tickets(leader, state, 1, ticket)) return false;
    store_command(state.device.ring, ticket, cmd);
    return true;
}

DCUDA_COLD void report_fault(lone_thread leader, shared_state shared, fault kind, operation where,
                             std::uint32_t window_id, std::uint32_t target, std::uint64_t offset, std::uint64_t bytes,
                             std::uint64_t limit) {
    rank_state& state = shared.get();
    store_relaxed(&state.ended, 1);
    exec::far(send_command)(
        leader, state,
        make_command(state.device_rank, fault_fields{kind, where, window_id, target, offset, bytes, limit}));
    store_relaxed(state.device.aborted, 1);
}

// Reports a fault, and all threads of the rank, which call it, leave the kernel.
DCUDA_DEVICE void report_and_leave(rank_state& state, fault kind, operation where, std::uint32_t window_id,
                                   std::uint32_t target, std::uint64_t offset, std::uint64_t bytes,
                                   std::uint64_t limit = 0) {
    exec::leader_then_sync(state.group(), [&](lone_thread leader) {
        report_fault(leader, state, kind, where, window_id, target, offset, bytes, limit);
    });
    exec::exit_thread();
}

} // namespace dcuda::detail

// What waits call.
#include "dcuda/detail/ops/mailbox.hpp"
#include "dcuda/detail/ops/profile.hpp"
