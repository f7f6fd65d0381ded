// Small puts and notifications by mail: payload and sequence number travel in the same 128-bit packets, so nothing
// waits for an acknowledgement before it notifies. docs/design/mailbox.md has the protocol and its argument.
//
// A source writes messages into its lane of the target's mailbox. The target looks at its mailbox whenever it waits,
// copies payload into its windows and counts notifications. A lane has one writer and one reader and is a queue; so the
// messages of a source arrive in order.
//
// The functions of this file are called by a team (team.hpp), with the same arguments, unless they say otherwise.
#pragma once

#include "dcuda/detail/rank_state.hpp"
#include "dcuda/detail/team.hpp"

namespace dcuda::detail {

// Packets that one thread of a warp has in flight.
inline constexpr unsigned packets_in_flight = 3;

// --- Payload -------------------------------------------------------------------------------------------------------

struct chunk {
    std::uint32_t words[3];
};

// Whether a place or a number of bytes is no multiple of 4.
DCUDA_DEVICE bool is_odd(const std::byte* place, std::uint32_t bytes) {
    return ((static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(place)) | bytes) & 3) != 0;
}

// At most 12 bytes of a payload. Neighbouring threads load neighbouring chunks.
DCUDA_DEVICE chunk load_chunk(const std::byte* source, std::uint32_t bytes) {
    if (!is_odd(source, bytes)) {
        const auto* words = reinterpret_cast<const std::uint32_t*>(source);
        return {{words[0], bytes > 4 ? words[1] : 0, bytes > 8 ? words[2] : 0}};
    }
    chunk result{};
    for (std::uint32_t i = bytes; i-- > 0;) { // the words move through the chunk, which has no index
        result.words[2] = result.words[2] << 8 | result.words[1] >> 24;
        result.words[1] = result.words[1] << 8 | result.words[0] >> 24;
        result.words[0] = result.words[0] << 8 | static_cast<std::uint32_t>(source[i]);
    }
    return result;
}

DCUDA_DEVICE void store_chunk(std::byte* target, std::uint32_t bytes, const std::uint32_t (&content)[3]) {
    if (!is_odd(target, bytes)) {
        auto* words = reinterpret_cast<std::uint32_t*>(target);
        words[0] = content[0];
        if (bytes > 4) words[1] = content[1];
        if (bytes > 8) words[2] = content[2];
        return;
    }
    std::uint32_t a = content[0], b = content[1], c = content[2];
    for (std::uint32_t i = 0; i < bytes; ++i) {
        target[i] = static_cast<std::byte>(a);
        a = a >> 8 | b << 24;
        b = b >> 8 | c << 24;
        c >>= 8;
    }
}

DCUDA_DEVICE std::uint32_t packets_for(std::uint32_t bytes) { return (bytes + mail_bytes - 1) / mail_bytes; }

// What of `bytes` the chunk with this number holds.
DCUDA_DEVICE std::uint32_t chunk_bytes(std::uint32_t bytes, std::uint32_t number) {
    const std::uint32_t rest = bytes - number * mail_bytes;
    return rest < mail_bytes ? rest : mail_bytes;
}

// --- The receiving side --------------------------------------------------------------------------------------------

// The notifications of a tag, as this rank knows them. One thread.
DCUDA_DEVICE tag_record& notifications(rank_state& state, std::uint32_t tag) {
    tag_entry& entry = state.tag_cache[tag % cached_tags];
    if (entry.tag != tag) {
        state.tag_records[entry.tag] = entry.record;
        entry = {tag, state.tag_records[tag]};
    }
    return entry.record;
}

DCUDA_DEVICE const packet* packet_at(const rank_state& state, std::uint32_t lane, std::uint32_t position) {
    return state.mail + (lane * state.device.lane_packets + (position & (state.device.lane_packets - 1)));
}

// Copies one payload packet of the message at `position` to its place; waits for it if it is still on its way.
DCUDA_DEVICE void place_payload(rank_state& state, std::uint32_t lane, std::uint32_t position, const header& message,
                                std::uint32_t number, packet& part) {
    const std::uint32_t at = position + 1 + number;
    if (await_packet<order_tag::mail_observe>(packet_at(state, lane, at), at + 1, part, state.device.aborted))
        store_chunk(message.target() + number * mail_bytes, chunk_bytes(message.bytes(), number), part.payload);
    else
        store_relaxed(&state.ended, 1);
}

// After the payload is in place: counts the notification and takes the message out of the lane.
DCUDA_DEVICE void settle_message(const team& all, rank_state& state, std::uint32_t lane, std::uint32_t position,
                                 const header& message) {
    sync(all); // all have read the state that now changes, and all payload is in place
    if (all.leads()) {
        inbound_lane& from = state.inbound[lane];
        const std::uint32_t count = packets_for(message.bytes());
        if (message.is_hello()) {
            const std::uint32_t process = message.words[2] / state.device.ranks_per_device;
            const std::uint32_t source = message.words[2] % state.device.ranks_per_device;
            from.credit = state.device.peers[process].credits + source * links_per_rank + message.words[0];
            if (process != state.device.process_index) state.remote_lanes |= 1u << lane;
        } else {
            // One more has come than the program has consumed.
            --notifications(state, message.tag()).consumed;
        }
        from.received = position + 1 + count;
        state.favourite = lane;
        state.foreseen = count;
    }
    sync(all);
}

// Takes the message at this position out of the lane, one packet per thread at a time.
DCUDA_COLD void take_message(team all, shared_state shared, std::uint32_t lane, std::uint32_t position,
                             header message) {
    rank_state& state = shared.get();
    // ORDER notify-observe: what the source released before this message, and before its payload is placed: of two puts
    // to one place the later wins.
    if (message.vouches()) {
        if (all.leads()) acquire_packet<order_tag::mail_observe>(packet_at(state, lane, position), position + 1);
        sync(all);
    }
    for (std::uint32_t number = all.index; number < packets_for(message.bytes()); number += all.count) {
        packet part{};
        part.sequence = position; // none that is expected
        place_payload(state, lane, position, message, number, part);
    }
    settle_message(all, state, lane, position, message);
}

// Tells sources what we have taken, in lanes where that is at least `least` packets that they do not know of. True if
// there was such a lane.
//
// ORDER mail-free -> mail-reuse: what the team has read out of the packets and written into windows is ordered before
// the credit (the team's sync, then release), hence before whatever the source does on the strength of it.
DCUDA_DEVICE bool give_credit(const team& all, rank_state& state, std::uint32_t least) {
    sync(all);
    bool any = false;
    for (std::uint32_t lane = all.index; lane < state.lanes; lane += all.count) {
        inbound_lane& to = state.inbound[lane];
        if (to.credit == nullptr || to.received - to.credited < least) continue;
        any = true;
        to.credited = to.received;
        const scope reach = (state.remote_lanes >> lane & 1) != 0 ? scope::system : scope::device;
        store_release<order_tag::mail_free>(reach, to.credit, to.received);
    }
    return vote(all, any) != 0;
}

#if defined(__CUDACC__)

// Takes the messages that have arrived in one lane. A full warp. PERF: it loads as many packets as fit into registers,
// whatever messages they belong to: one trip to the L2 cache for several small messages, or for one large one.
DCUDA_COLD void take_lane(team all, shared_state shared, std::uint32_t lane) {
    rank_state& state = shared.get();
    constexpr std::uint32_t batch = 32 * packets_in_flight;
    for (;;) {
        const std::uint32_t position = state.inbound[lane].received;
        packet seen[packets_in_flight];
        DCUDA_UNROLL
        for (unsigned i = 0; i < packets_in_flight; ++i) {
            const std::uint32_t at = position + all.index + i * 32;
            seen[i] = load_packet<order_tag::mail_observe>(packet_at(state, lane, at), at + 1);
        }
        std::uint32_t taken = 0; // packets of the batch
        for (;;) {
            packet first = seen[0];
            DCUDA_UNROLL
            for (unsigned i = 1; i < packets_in_flight; ++i)
                if (taken / 32 == i) first = seen[i];
            const unsigned holder = taken % 32;
            const header message{{broadcast(all, first.payload[0], holder), broadcast(all, first.payload[1], holder),
                                  broadcast(all, first.payload[2], holder)}};
            if (broadcast(all, first.sequence, holder) != position + taken + 1) return; // nothing (more) has come
            const std::uint32_t bytes = message.bytes(), count = packets_for(bytes);
            const bool odd = ((message.words[0] | bytes) & 3) != 0;
            if (taken + 1 + count > batch || odd || message.is_hello() || message.vouches()) {
                if (taken != 0) break; // with a batch of its own
                take_message(all, state, lane, position, message);
                taken = batch;
                break;
            }
            DCUDA_UNROLL
            for (unsigned i = 0; i < packets_in_flight; ++i) {
                const std::uint32_t number = all.index + i * 32 - taken - 1;
                if (number < count) place_payload(state, lane, position + taken, message, number, seen[i]);
            }
            settle_message(all, state, lane, position + taken, message);
            taken += 1 + count;
            if (taken >= batch) break;
        }
    }
}

#endif

// Takes all mail that has arrived, and gives credit where at least so many packets are owed. True if either was so.
DCUDA_COLD bool take_mail(team all, shared_state shared, std::uint32_t least_credit) {
    rank_state& state = shared.get();
    if (state.device.lane_packets == 0) return false;
    if (all.leads()) {
        const std::uint32_t taken = load_relaxed(&state.status->lanes_taken);
        state.lanes = taken < lanes_per_rank ? taken : lanes_per_rank;
    }
    sync(all);
    bool any = false;
#if defined(__CUDACC__)
    if (all.count == 32) {
        // The heads of all lanes at the same time.
        bool mine = false;
        if (all.index < state.lanes) {
            const std::uint32_t position = state.inbound[all.index].received;
            const packet head =
                load_packet<order_tag::mail_observe>(packet_at(state, all.index, position), position + 1);
            mine = head.sequence == position + 1;
        }
        for (unsigned full = vote(all, mine); full != 0; full &= full - 1) {
            take_lane(all, state, lowest(full));
            any = true;
        }
        return give_credit(all, state, least_credit) || any;
    }
#endif
    for (std::uint32_t lane = 0; lane < state.lanes; ++lane) {
        for (;;) {
            const std::uint32_t position = state.inbound[lane].received;
            const packet first = load_packet<order_tag::mail_observe>(packet_at(state, lane, position), position + 1);
            // All, or it has only just come: then it is left for the next time.
            if (vote(all, first.sequence != position + 1) != 0) break;
            take_message(all, state, lane, position, {{first.payload[0], first.payload[1], first.payload[2]}});
            any = true;
        }
    }
    return give_credit(all, state, least_credit) || any;
}

// The same by one thread, with few registers: its variables are in shared memory.
DCUDA_COLD bool receive_meanwhile(shared_state shared) {
    rank_state& state = shared.get();
    if (state.device.lane_packets == 0) return false;
    const std::uint32_t taken = load_relaxed(&state.status->lanes_taken);
    state.lanes = taken < lanes_per_rank ? taken : lanes_per_rank;
    in_memory<courier>& at = state.meanwhile;
    at.any = 0;
    at.lane = 0;
    while (at.lane < state.lanes) {
        for (;;) {
            at.position = state.inbound[at.lane].received;
            {
                const packet first =
                    load_packet<order_tag::mail_observe>(packet_at(state, at.lane, at.position), at.position + 1);
                if (first.sequence != at.position + 1) break;
                for (unsigned i = 0; i < 3; ++i) at.message.words[i] = first.payload[i];
            }
            if (state.meanwhile.message.vouches())
                acquire_packet<order_tag::mail_observe>(packet_at(state, at.lane, at.position), at.position + 1);
            at.number = 0;
            while (at.number < packets_for(state.meanwhile.message.bytes())) {
                packet part{};
                part.sequence = at.position; // none that is expected
                place_payload(state, at.lane, at.position, state.meanwhile.message, at.number, part);
                at.number = at.number + 1;
            }
            settle_message(team{0, 1}, state, at.lane, at.position, state.meanwhile.message);
            at.any = 1;
        }
        at.lane = at.lane + 1;
    }
    return give_credit(team{0, 1}, state, 1) || at.any != 0;
}

// --- The sending side ----------------------------------------------------------------------------------------------

DCUDA_DEVICE std::uint32_t slot_of(const link& entry) { return entry.world_rank % cached_links; }

// Finds the link to a rank that is not near: in the rank's table, or a new one. All threads of the rank.
DCUDA_COLD void load_link(shared_state shared, std::uint32_t world_rank) {
    rank_state& state = shared.get();
    exec::sync_block(); // no thread still reads what the entry holds now
    exec::team_then_sync([&](const team& all) {
        const device_context& device = state.device;
        link& entry = state.links[world_rank % cached_links];
        link_record* const records = device.links + std::size_t(state.device_rank) * links_per_rank;
        if (all.leads())
            for (target_entry& target : state.targets)
                if (target.world_rank % cached_links == world_rank % cached_links) target.window = 0;
        if (all.leads() && entry.world_rank != no_rank && entry.record != links_per_rank) {
            link_record& old = records[entry.record];
            old.sent = entry.sent;
            old.puts =
                (entry.direct != 0 ? direct_puts : no_puts) | (entry.mailed_to != nullptr ? mailed_puts : no_puts);
        }
        sync(all);
        std::uint32_t record = links_per_rank;
        for (std::uint32_t begin = 0; begin < state.link_count && record == links_per_rank; begin += all.count) {
            const std::uint32_t mine = begin + all.index;
            const unsigned hits = vote(all, mine < state.link_count && records[mine].world_rank == world_rank);
            if (hits != 0) record = begin + lowest(hits);
        }
        sync(all);
        if (!all.leads()) return;
        const std::uint32_t process = world_rank / state.device.ranks_per_device,
                            rank = world_rank % state.device.ranks_per_device;
        const peer_view& peer = device.peers[process];
        const std::uint32_t start = device.counter_start;
        const bool is_new = record == links_per_rank;
        if (is_new && state.device.lane_packets != 0 && state.link_count < links_per_rank) {
            // Relaxed: the lane's words are nobody else's, and nothing was written there.
            const std::uint32_t lane = fetch_add_relaxed_system(&peer.status[rank].lanes_taken, 1);
            record = state.link_count++;
            records[record] = {world_rank, lane < lanes_per_rank ? lane : no_lane, start, no_puts};
        }
        link found{};
        found.world_rank = world_rank;
        found.record = record;
        found.counters = peer.counters + std::size_t(rank) * state.device.tags;
        found.reach = process == device.process_index ? scope::device : scope::system;
        if (record != links_per_rank && records[record].lane != no_lane) {
            const link_record& known = records[record];
            found.lane = peer.mail + (std::size_t(rank) * lanes_per_rank + known.lane) * state.device.lane_packets;
            found.credit = state.mine.credits + std::size_t(state.device_rank) * links_per_rank + record;
            found.sent = found.last_put = known.sent;
            found.freed = load_acquire<order_tag::mail_reuse>(found.reach, found.credit);
            found.direct = (known.puts & direct_puts) != 0 ? 1 : 0;
            // Where is forgotten: anywhere.
            if ((known.puts & mailed_puts) != 0) found.mailed_to = reinterpret_cast<std::byte*>(~std::uintptr_t{0});
            if (is_new) {
                store_packet<order_tag::mail_publish>(found.lane + (start & (state.device.lane_packets - 1)), record,
                                                      mail_hello, state.world_rank, start + 1);
                ++found.sent;
            }
        }
        entry = found;
    });
}

// All threads of the rank, with the same result.
DCUDA_DEVICE link& find_link(rank_state& state, std::uint32_t world_rank) {
    link& entry = state.links[world_rank % cached_links];
    if (entry.world_rank != world_rank) load_link(state, world_rank);
    return entry;
}

// Waits until the target has taken all packets before `position` out of our lane. False if the run ended. One thread.
DCUDA_COLD bool await_credit(shared_state shared, std::uint32_t slot, std::uint32_t position) {
    rank_state& state = shared.get();
    link& to = state.links[slot];
    return wait_for_word<order_tag::mail_reuse>(
        state, scope::system, to.credit,
        [&](std::uint32_t freed) {
            to.freed = freed;
            return static_cast<std::int32_t>(freed - position) >= 0;
        },
        waiting::mailbox, to.world_rank);
}

// Whether a put straight into the target's memory, to these bytes as the target addresses them, might be overwritten by
// one that went there by mail before. All threads of the rank, after the block's barrier.
DCUDA_DEVICE bool crosses_mail(const link& to, const std::byte* home, std::size_t bytes) {
    return home < to.mailed_to && to.mailed_from < home + bytes;
}

// Waits until nothing that went by mail can overwrite later puts any more. One thread.
DCUDA_COLD void await_placed(shared_state shared, std::uint32_t slot) {
    rank_state& state = shared.get();
    link& to = state.links[slot];
    if (await_credit(state, slot, to.last_put)) to.mailed_from = to.mailed_to = nullptr;
}

DCUDA_DEVICE void ring_bell_of(const rank_state& state, const link& to) {
    const peer_view& peer = state.device.peers[to.world_rank / state.device.ranks_per_device];
    ring_bell(&peer.status[to.world_rank % state.device.ranks_per_device].bell);
}

// Makes room for packets in the lane. False if the run ended.
DCUDA_DEVICE bool make_room(const team& all, rank_state& state, link& to, std::uint32_t packets) {
    if (to.sent + packets - to.freed <= state.device.lane_packets) return true;
    bool free = false;
    if (all.leads()) free = await_credit(state, slot_of(to), to.sent + packets - state.device.lane_packets);
    sync(all);
    return vote(all, free) != 0;
}

// After the packets of a message have left. One thread.
DCUDA_DEVICE void count_as_sent(rank_state& state, link& to, std::byte* home, std::uint32_t bytes,
                                std::uint32_t packets) {
    const std::uint32_t before = to.sent;
    to.sent = before + packets;
    to.direct = 0;
    to.flushes = state.flushes;
    state.mailed |= 1u << static_cast<unsigned>(to.reach);
    // Positions are compared by their difference, so `last_put` must not grow old, whatever is sent.
    if (static_cast<std::int32_t>(to.freed - to.last_put) >= 0) {
        to.mailed_from = to.mailed_to = nullptr;
        to.last_put = to.freed;
    }
    if (bytes != 0) {
        to.mailed_from = to.mailed_to == nullptr || home < to.mailed_from ? home : to.mailed_from;
        to.mailed_to = home + bytes > to.mailed_to ? home + bytes : to.mailed_to;
        to.last_put = before + packets;
    }
    if (DCUDA_BACKEND_CPU) ring_bell_of(state, to);
}

// Orders puts that went straight into the memory of targets of this reach before the messages that follow.
DCUDA_COLD void release_puts(team all, shared_state shared, scope reach) {
    rank_state& state = shared.get();
    exec::complete_copies();
    fence_release<order_tag::mail_publish>(reach);
    if (all.leads()) state.unreleased &= reach == scope::system ? 0 : ~(1u << static_cast<unsigned>(reach));
}

// Sends a message: `bytes` bytes at `source` for `home` in the target's memory, and a notification.
//
// ORDER mail-publish -> mail-observe: each packet vouches for its own payload. Puts that went another way are released
// before the header leaves, if there were any: fence, then the header's strong store; the target acquires the header.
DCUDA_COLD void send_message(team all, shared_state shared, std::uint32_t slot, std::byte* home, std::uint32_t bytes,
                             const std::byte* source, std::uint32_t tag) {
    rank_state& state = shared.get();
    link& to = state.links[slot];
    const std::uint32_t count = packets_for(bytes), mask = state.device.lane_packets - 1;
    if (!make_room(all, state, to, 1 + count)) return;
    const std::uint32_t position = to.sent;
    const std::uint32_t reach_bit = 1u << static_cast<unsigned>(to.reach);
    constexpr unsigned flight = DCUDA_BACKEND_CUDA ? 2 : 1;
    const std::uint32_t flags = to.direct != 0 || to.flushes != state.flushes ? mail_vouches : 0;
    packet* const ring = to.lane;
    if ((state.unreleased & reach_bit) != 0) release_puts(all, state, to.reach);
    const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(home));
    for (std::uint32_t begin = all.index; begin <= count; begin += flight * all.count) {
        chunk parts[flight];
        DCUDA_UNROLL
        for (unsigned u = 0; u < flight; ++u) {
            const std::uint32_t number = begin + u * all.count;
            if (number == 0)
                parts[u] = {{static_cast<std::uint32_t>(address), static_cast<std::uint32_t>(address >> 32) | flags,
                             tag << 16 | bytes}};
            else if (number <= count)
                parts[u] = load_chunk(source + (number - 1) * mail_bytes, chunk_bytes(bytes, number - 1));
        }
        DCUDA_UNROLL
        for (unsigned u = 0; u < flight; ++u) {
            const std::uint32_t number = begin + u * all.count, at = position + number;
            if (number <= count)
                store_packet<order_tag::mail_publish>(ring + (at & mask), parts[u].words[0], parts[u].words[1],
                                                      parts[u].words[2], at + 1);
        }
    }
    sync(all);
    if (!all.leads()) return;
    count_as_sent(state, to, home, bytes, 1 + count);
}

// All threads of the rank arrive, then the team sends a message.
DCUDA_DEVICE void mail(rank_state& state, link& to, std::byte* home, std::uint32_t bytes, const std::byte* source,
                       std::uint32_t tag) {
#if defined(__CUDACC__)
    // A full warp sends it at once if one round of stores will do: there is room, and the message is of whole words.
    // PERF: all that need not wait for the other threads comes before the block's barrier; what lies between that and
    // the stores is latency.
    const unsigned index = exec::thread_index();
    if (index >= 32) {
        exec::sync_block();
        return;
    }
    const team all{index, exec::block_threads() < 32 ? exec::block_threads() : 32};
    sync(all); // the leader has counted the message before
    const std::uint32_t packets = 1 + packets_for(bytes), position = to.sent, mask = state.device.lane_packets - 1;
    const bool at_once = (all.count == 32) & (packets <= 32 * packets_in_flight) &
                         (position + packets - to.freed <= state.device.lane_packets) & !is_odd(source, bytes);
    const bool unreleased = (state.unreleased >> static_cast<unsigned>(to.reach) & 1) != 0;
    const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(home));
    const auto* const words = reinterpret_cast<const std::uint32_t*>(source);
    packet* const ring = to.lane;
    const std::uint32_t word_count = bytes / 4,
                        flags = to.direct != 0 || to.flushes != state.flushes ? mail_vouches : 0;
    exec::sync_block();
    if (!at_once) return send_message(all, state, slot_of(to), home, bytes, source, tag);
    if (unreleased) release_puts(all, state, to.reach);
    chunk parts[packets_in_flight];
    DCUDA_UNROLL
    for (unsigned i = 0; i < packets_in_flight; ++i) {
        const std::uint32_t word = 3 * (index + i * 32 - 1); // huge for the header
        if (word < word_count) parts[i].words[0] = words[word];
        if (word < word_count && word + 1 < word_count) parts[i].words[1] = words[word + 1];
        if (word < word_count && word + 2 < word_count) parts[i].words[2] = words[word + 2];
    }
    if (index == 0)
        parts[0] = {{static_cast<std::uint32_t>(address), static_cast<std::uint32_t>(address >> 32) | flags,
                     tag << 16 | bytes}};
    // The header last: who sees it will find the payload.
    DCUDA_UNROLL
    for (unsigned i = packets_in_flight; i-- > 0;) {
        const std::uint32_t number = index + i * 32, at = position + number;
        if (number < packets)
            store_packet<order_tag::mail_publish>(ring + (at & mask), parts[i].words[0], parts[i].words[1],
                                                  parts[i].words[2], at + 1);
    }
    if (index == 0) count_as_sent(state, to, home, bytes, packets);
#else
    exec::sync_then_team([&](const team& all) { send_message(all, state, slot_of(to), home, bytes, source, tag); });
#endif
}

} // namespace dcuda::detail
