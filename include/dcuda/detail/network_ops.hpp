// Puts and notifications to ranks whose memory cannot be mapped here: the host sends them over a network.
//
// All of a device's ranks share one ring of commands, which the host takes in order; so what one rank sends to another
// leaves in order. docs/design/network.md has the whole way.
#pragma once

#include "dcuda/detail/mail_send.hpp"

namespace dcuda::detail {

DCUDA_DEVICE bool is_remote(const link& to) { return to.counters == nullptr; }

// The words of the packet with this number, of a `send` command and its payload.
struct send_words {
    std::uint32_t head[8];
    const std::byte* payload; // in the ring
    std::uint32_t bytes;      // of it
    std::uint64_t address;    // of the payload, if it is not in the ring

    // Word by word: the first packets hold words of the command, then of the payload; or the address.
    DCUDA_DEVICE std::uint32_t word(std::uint32_t index) const {
        if (index < 8) return head[index];
        if (head[7] != in_ring)
            return index == 8 ? static_cast<std::uint32_t>(address) : static_cast<std::uint32_t>(address >> 32);
        const std::uint32_t at = 4 * (index - 8);
        if (at >= bytes) return 0;
        const std::byte* const place = payload + at;
        if (at + 4 <= bytes && (reinterpret_cast<std::uintptr_t>(place) & 3) == 0)
            return *reinterpret_cast<const std::uint32_t*>(place);
        std::uint32_t value = 0;
        for (std::uint32_t i = 0; i < 4 && at + i < bytes; ++i) value |= static_cast<std::uint32_t>(place[i]) << 8 * i;
        return value;
    }
};

// All threads arrive, then the host is told to send `bytes` bytes at `source` to `home`, as the target addresses it,
// and a notification unless the tag is no_tag. When a thread returns, others may still be reading the source, which is
// also read later if it is large: flush().
//
// ORDER command-publish: payload in the ring travels in packets that vouch for themselves. A source that the host will
// read is completed to the system before the command leaves.
DCUDA_COLD void send_by_host(shared_state shared, std::uint32_t world_rank, std::byte* home, const void* source,
                             std::size_t bytes, std::uint32_t tag) {
    rank_state& state = shared.get();
    const auto* from = static_cast<const std::byte*>(source);
    // The host cannot read a block's shared memory.
    const bool by_host = bytes > state.device.network.ring_bytes && exec::is_global_memory(source);
    exec::sync_then_team([&](const team& all) {
        for (std::size_t done = 0;;) {
            const std::size_t left = bytes - done;
            const bool in_parts = !by_host && left > max_ring_bytes;
            const std::size_t part = in_parts ? max_ring_bytes : left;
            const std::uint32_t commands = by_host ? 1 : commands_for(static_cast<std::uint32_t>(part));
            std::uint32_t ticket = 0;
            bool taken = true;
            if (all.leads()) {
                state.networked = 1;
                if (by_host) complete_writes();
                taken = take_tickets(state, commands, ticket);
            }
            if (vote(all, !taken) != 0) return; // the run has ended
            ticket = broadcast(all, ticket, 0);
            sync(all);
            const auto place = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(home)) + done;
            const send_words words{{static_cast<std::uint32_t>(opcode::send), state.device_rank, world_rank,
                                    in_parts ? no_tag : tag, static_cast<std::uint32_t>(place),
                                    static_cast<std::uint32_t>(place >> 32), static_cast<std::uint32_t>(part),
                                    by_host ? static_cast<std::uint32_t>(std::uint64_t{part} >> 32) : in_ring},
                                   from + done,
                                   static_cast<std::uint32_t>(part),
                                   static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(from))};
            for (std::uint32_t i = all.index; i < commands * packets_per_command; i += all.count) {
                const std::uint32_t command = ticket + i / packets_per_command;
                store_packet<order_tag::command_publish>(ring_slot(state, command) + i % packets_per_command,
                                                         words.word(3 * i), words.word(3 * i + 1),
                                                         words.word(3 * i + 2), command + 1);
            }
            done += part;
            if (done == bytes) return;
        }
    });
}

// Waits until all puts of this rank over the network have arrived. One thread.
DCUDA_COLD void flush_network(shared_state shared) {
    rank_state& state = shared.get();
    const std::uint32_t number = ++state.network_flushes;
    state.networked = 0;
    if (!send_command(state, command{{static_cast<std::uint32_t>(opcode::flush), state.device_rank, number}})) return;
    // ORDER reply-publish -> reply-observe: the host has seen the arrivals.
    wait_for_word<order_tag::reply_observe>(
        state, scope::system, state.device.network.flushed + state.device_rank,
        [&](std::uint32_t value) { return value == number; }, waiting::flush, 0);
}

} // namespace dcuda::detail
