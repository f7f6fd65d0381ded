// Puts and notifications to ranks whose memory cannot be mapped here: the host sends them over a network.
//
// All of a device's ranks share one ring of commands, which the host takes in order; so what one rank sends to another
// leaves in order. docs/design/network.md has the whole way.
#pragma once

#include "dcuda/detail/mail_send.hpp"

namespace dcuda::detail {

DCUDA_DEVICE bool is_remote(const link& to) { return to.counters == nullptr; }

// A `send` command, with the payload that comes in packets: its own and those of the commands that follow.
struct outbound {
    std::uint32_t rank;   // that sends, on this device
    std::uint32_t target; // world rank
    std::uint32_t tag;
    std::uint64_t place; // of the payload, as the target addresses it
    const std::byte* source;
    std::uint64_t bytes;
    bool by_host; // the host reads the source

    DCUDA_DEVICE bool in_packets() const { return !by_host && bytes <= max_packet_bytes; }
    DCUDA_DEVICE std::uint32_t commands() const {
        return by_host ? 1 : commands_for(static_cast<std::uint32_t>(bytes));
    }
    DCUDA_DEVICE std::uint32_t packets() const { return (in_packets() ? commands() : 1) * packets_per_command; }

    // What the packet with this number holds: words of the command, then of the payload, which begins with the last
    // word of the third; or of its address.
    DCUDA_DEVICE chunk words(std::uint32_t number) const {
        chunk part{};
        const std::uint32_t at = number <= 2 ? 0 : number * mail_bytes - 8 * 4;
        if (in_packets() && number >= 2 && at < bytes) {
            const std::uint32_t most = number == 2 ? 4 : mail_bytes, left = static_cast<std::uint32_t>(bytes) - at;
            part = load_chunk(source + at, left < most ? left : most);
        }
        const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(source));
        if (number == 0) return {{static_cast<std::uint32_t>(opcode::send), rank, target}};
        if (number == 1) return {{tag, static_cast<std::uint32_t>(place), static_cast<std::uint32_t>(place >> 32)}};
        if (number == 2)
            return {{static_cast<std::uint32_t>(bytes), by_host ? static_cast<std::uint32_t>(bytes >> 32) : in_ring,
                     by_host ? static_cast<std::uint32_t>(address) : part.words[0]}};
        if (by_host) part.words[0] = static_cast<std::uint32_t>(address >> 32);
        return part;
    }
};

// The host cannot read a block's shared memory, and should not read what fits into the ring.
DCUDA_DEVICE bool reads_source(const rank_state& state, std::size_t bytes, const void* source) {
    return bytes > state.device.network.ring_bytes && exec::is_global_memory(source);
}

// One command, with at most max_ring_bytes of payload that the host does not read.
DCUDA_COLD void send_part_by_host(shared_state shared, std::uint32_t key, std::uint32_t target, std::size_t offset,
                                  std::size_t bytes, const void* source, std::uint32_t tag) {
    rank_state& state = shared.get();
    const target_entry& to = cached_target(state, key, target);
    const outbound what{state.device_rank,
                        to.world_rank,
                        tag,
                        static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(to.home)) + offset,
                        static_cast<const std::byte*>(source),
                        bytes,
                        reads_source(state, bytes, source)};
    const auto take_places = [&] {
        state.networked = 1;
        return take_tickets(state, what.commands(), state.result);
    };
    const bool behind = !what.by_host && !what.in_packets(); // all threads store the payload behind the command
    if (behind) {
        exec::sync_block();
        exec::run_then_sync(take_places);
        leave_if_ended(state);
        exec::copy_bytes(state.device.ring.payload(state.result), what.source, bytes);
    }
    exec::sync_then_team([&](const team& all) {
        // PERF: before there is a ticket, which takes as long.
        const chunk first = all.index < what.packets() ? what.words(all.index) : chunk{};
        if (all.leads()) {
            // ORDER command-publish: what the host will read is there before the command.
            if (!what.in_packets()) complete_writes();
            if (!behind) take_places();
        }
        sync(all);
        if (state.ended != 0) return;
        chunk words = first;
        for (std::uint32_t number = all.index; number < what.packets();) {
            const std::uint32_t command = state.result + number / packets_per_command;
            store_packet<order_tag::command_publish>(ring_slot(state, command) + number % packets_per_command,
                                                     words.words[0], words.words[1], words.words[2], command + 1);
            number += all.count;
            if (number < what.packets()) words = what.words(number);
        }
    });
}

// More than fits into one command.
DCUDA_COLD void send_parts_by_host(shared_state shared, std::uint32_t key, std::uint32_t target, std::size_t offset,
                                   std::size_t bytes, const void* source, std::uint32_t tag) {
    rank_state& state = shared.get();
    if (!reads_source(state, bytes, source))
        for (; bytes > max_ring_bytes; bytes -= max_ring_bytes, offset += max_ring_bytes) {
            send_part_by_host(state, key, target, offset, max_ring_bytes, source, no_tag);
            source = static_cast<const std::byte*>(source) + max_ring_bytes;
        }
    send_part_by_host(state, key, target, offset, bytes, source, tag);
}

// All threads arrive, then the host is told to send `bytes` bytes at `source` to the target, at `offset` in the window,
// and a notification unless the tag is no_tag. The target is in the cache, by this key. When a thread returns, others
// may still be reading the source, which is also read later if it is large: flush().
//
// ORDER command-publish: payload in packets vouches for itself. A source that the host will read, and payload that all
// threads have stored behind the command, is completed to the system by one thread, after the block's barrier and
// before the command leaves. ORDER slot-reuse: places behind commands are free when those are.
DCUDA_DEVICE void send_by_host(rank_state& state, std::uint32_t key, std::uint32_t target, std::size_t offset,
                               std::size_t bytes, const void* source, std::uint32_t tag) {
    if (bytes <= max_ring_bytes)
        exec::far(send_part_by_host)(state, key, target, offset, bytes, source, tag);
    else
        exec::far(send_parts_by_host)(state, key, target, offset, bytes, source, tag);
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
