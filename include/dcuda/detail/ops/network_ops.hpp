// SPDX-License-Identifier: BSD-3-Clause
// Puts and notifications to ranks whose memory cannot be mapped here: the host sends them over a network.
//
// All of a device's ranks share one ring of commands, which the host takes in order; so what one rank sends to another
// leaves in order. docs/design/network.md has the whole way.
#pragma once

#include "dcuda/detail/ops/mailbox.hpp"

namespace dcuda::detail {

inline constexpr std::uint32_t networked_puts = 1, networked_gets = 2; // endpoint::networked

// A `send` command, with the payload that comes in packets: its own and those of the commands that follow.
struct outbound {
    std::uint32_t rank;   // that sends, on this device
    std::uint32_t target; // world rank
    std::uint32_t tag;
    std::uint64_t home; // of the payload: the target address, as the target addresses it
    const std::byte* source;
    std::uint64_t bytes;
    bool through_host; // the host reads the source

    DCUDA_DEVICE bool in_packets() const { return !through_host && bytes <= max_packet_bytes; }
    DCUDA_DEVICE std::uint32_t commands() const {
        return through_host ? 1 : commands_for(static_cast<std::uint32_t>(bytes));
    }
    DCUDA_DEVICE std::uint32_t packets() const { return (in_packets() ? commands() : 1) * packets_per_command; }

    // What the packet with this number holds: words of the command (send_fields), then of the payload, which begins
    // with the last word of the third; or of its address.
    DCUDA_DEVICE chunk words(std::uint32_t number) const {
        chunk part{};
        const std::uint32_t at = number <= 2 ? 0 : number * packet_payload_bytes - 8 * 4;
        if (in_packets() && number >= 2 && at < bytes) {
            const std::uint32_t most = number == 2 ? 4 : packet_payload_bytes,
                                left = static_cast<std::uint32_t>(bytes) - at;
            part = load_chunk(source + at, left < most ? left : most);
        }
        const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(source));
        if (number == 0) return {{static_cast<std::uint32_t>(opcode::send), rank, target}};
        if (number == 1) return {{tag, static_cast<std::uint32_t>(home), static_cast<std::uint32_t>(home >> 32)}};
        if (number == 2)
            return {{static_cast<std::uint32_t>(bytes),
                     through_host ? static_cast<std::uint32_t>(bytes >> 32) : in_ring,
                     through_host ? static_cast<std::uint32_t>(address) : part.words[0]}};
        if (through_host) part.words[0] = static_cast<std::uint32_t>(address >> 32);
        return part;
    }
};

// The host cannot read a block's shared memory, and should not read what fits into the ring.
DCUDA_DEVICE bool reads_source(const rank_state& state, std::size_t bytes, const void* source) {
    return bytes > state.device.network.ring_bytes && exec::is_global_memory(source);
}

// The packets of a command, and those behind it, by the lead warp.
//
// ORDER command-publish: number and payload of a packet are stored at once. A source that the host will read, and
// payload that all threads have stored behind the command, is completed to the system by one thread, after the block's
// barrier and before the command leaves. ORDER slot-reuse: places behind commands are free when those are.
DCUDA_COLD void store_commands(lead_warp warp, shared_state shared, const outbound message, bool has_ticket,
                               std::uint32_t ticket) {
    rank_state& state = shared.get();
    // PERF: before there is a ticket, which takes as long.
    chunk words = warp.index < message.packets() ? message.words(warp.index) : chunk{};
    bool going = true;
    if (warp.leads()) {
        if (!message.in_packets()) complete_writes(scope::system);
        if (!has_ticket) going = take_tickets(exec::lead_access::alone(), state, message.commands(), ticket);
        state.own.of(warp).networked |= networked_puts;
    }
    ticket = broadcast(warp, ticket, 0);
    if (!any(warp, warp.leads() && going)) return; // who waits next sees that the run has ended
    for (std::uint32_t number = warp.index; number < message.packets();) {
        const std::uint32_t command = ticket + number / packets_per_command;
        store_packet<order_tag::command_publish>(ring_slot(state.device.ring, command) + number % packets_per_command,
                                                 words.words[0], words.words[1], words.words[2], command + 1);
        number += warp.count;
        if (number < message.packets()) words = message.words(number);
    }
}

// What a put leaves behind its command. All threads of the rank. PERF: a function of its own, as above.
DCUDA_COLD void copy_behind(shared_state shared, std::byte* target, const std::byte* source, std::size_t bytes) {
    exec::copy_bytes(shared.get().group(), target, source, bytes);
}

// So many places of the ring: `target` is their payload, `position` the ticket of the first. All threads of the rank.
// If the run has ended they leave the kernel.
DCUDA_DEVICE posted_put take_ring_payload(rank_state& state, std::uint32_t places) {
    const unsigned decision = exec::decide(state.group(), state.decision, [&](const lead_warp& warp) {
        std::uint32_t ticket = 0;
        if (!take_tickets_together(warp, state, places, ticket)) return 0u;
        return 1 + post(warp, state, {state.device.ring.payload(ticket), 0, nullptr, ticket, 0});
    });
    if (decision == 0) exec::exit_thread();
    return posted(state, decision - 1);
}

// All threads store the payload of a command behind it in the ring. The command's ticket. PERF: a function of its own,
// as its registers are every kernel's.
DCUDA_COLD std::uint32_t store_behind(shared_state shared, const outbound message) {
    rank_state& state = shared.get();
    const posted_put put = take_ring_payload(state, message.commands());
    copy_behind(state, put.target, message.source, message.bytes);
    return put.position;
}

// One command, with at most max_ring_bytes of payload that the host does not read. All threads of the rank.
DCUDA_COLD void send_part_through_host(shared_state shared, const outbound message) {
    rank_state& state = shared.get();
    const bool is_behind = !message.through_host && !message.in_packets();
    const std::uint32_t ticket = is_behind ? exec::far(store_behind)(shared, message) : 0;
    const unsigned has_ended = exec::decide(
        state.group(), state.decision, [&](const lead_warp&) { return load_in_block(&state.ended); },
        [&](const lead_warp& warp, unsigned ended) {
            if (ended == 0) store_commands(warp, state, message, is_behind, ticket);
        });
    if (has_ended != 0) exec::exit_thread(); // else who sends many parts would find it out for each
}

// All threads arrive, then the host is told to send `bytes` bytes at `source` to where `put` says, and a notification
// unless the tag is no_tag. When a thread returns, others may still be reading the source, which is also read later if
// it is large: flush().
DCUDA_DEVICE void send_through_host(rank_state& state, const posted_put& put, const void* source, std::size_t bytes,
                                    std::uint32_t tag) {
    outbound message{state.device_rank,
                     put.rank,
                     no_tag,
                     put.home,
                     static_cast<const std::byte*>(source),
                     bytes,
                     reads_source(state, bytes, source)};
    if (!message.through_host)
        for (; bytes > max_ring_bytes; bytes -= max_ring_bytes) { // more than fits into one command
            message.bytes = max_ring_bytes;
            send_part_through_host(state, message);
            message.home += max_ring_bytes;
            message.source += max_ring_bytes;
        }
    message.bytes = bytes;
    message.tag = tag;
    send_part_through_host(state, message);
}

// Waits until all puts of this rank over the network have arrived. False if the run ended. The leader.
DCUDA_COLD bool flush_network(lone_thread leader, shared_state shared) {
    rank_state& state = shared.get();
    endpoint& own = state.own.of(leader);
    const std::uint32_t number = ++own.network_flushes;
    own.networked = 0;
    if (!send_command(leader, state, make_command(state.device_rank, flush_fields{number}))) return false;
    // ORDER reply-publish -> reply-observe: the host has seen the arrivals.
    return wait_for_word<order_tag::reply_observe>(
        leader, state, scope::system, state.device.network.flushed + state.device_rank,
        [&](std::uint32_t value) { return value == number; }, waiting::flush, operation::flush, 0);
}

// Waits until what this rank gets over the network is there: the target's host may not have read it yet, and what the
// rank sends next might overwrite it. False if the run ended. The lead warp.
DCUDA_DEVICE bool await_networked_gets(const lead_warp& warp, rank_state& state) {
    if ((state.own.of(warp).networked & networked_gets) == 0) return true;
    sync(warp);
    return any(warp, warp.leads() && flush_network(exec::lead_access::alone(), state));
}

} // namespace dcuda::detail
