// Sending small puts and notifications by mail (mailbox.hpp has the receiving side).
//
// The functions of this file are called by a team (team.hpp), with the same arguments, unless they say otherwise.
#pragma once

#include "dcuda/detail/mailbox.hpp"

namespace dcuda::detail {

DCUDA_DEVICE std::uint32_t slot_of(const link& entry) { return entry.world_rank % cached_links; }

// Learns from a credit what the target has taken. The source knows the rest of the numbers: it has sent less than 2^16
// more.
DCUDA_DEVICE void use_credit(link& to, std::uint32_t credit) {
    to.freed = {to.sent.messages - ((to.sent.messages - credit) & 0xffff),
                to.sent.packets - ((to.sent.packets - (credit >> 16)) & 0xffff)};
}

DCUDA_DEVICE bool has_room_for_header(const rank_state& state, const link& to) {
    return to.sent.messages - to.freed.messages < state.device.lanes.headers;
}
DCUDA_DEVICE bool has_room_for_payload(const rank_state& state, const link& to, std::uint32_t packets) {
    return to.sent.packets + packets - to.freed.packets <= state.device.lanes.packets;
}

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
        const auto [process, rank] = place_of(state, world_rank);
        const peer_view& peer = device.peers[process];
        const std::uint32_t start = device.counter_start;
        const bool is_new = record == links_per_rank;
        const bool has_mailbox = device.lanes.packets != 0 && peer.counters != nullptr;
        if (is_new && has_mailbox && state.link_count < links_per_rank) {
            // Relaxed: the lane's words are nobody else's, and nothing was written there.
            const std::uint32_t lane = fetch_add_relaxed_system(&peer.status[rank].lanes_taken, 1);
            record = state.link_count++;
            records[record] = {world_rank, lane < lanes_per_rank ? lane : no_lane, no_puts, {start, start}};
        }
        link found{};
        found.world_rank = world_rank;
        found.record = record;
        found.counters = peer.counters != nullptr ? peer.counters + std::size_t(rank) * state.device.tags : nullptr;
        found.reach = process == device.process_index ? scope::device : scope::system;
        if (record != links_per_rank && records[record].lane != no_lane) {
            const link_record& known = records[record];
            found.lane = peer.mail + (std::size_t(rank) * lanes_per_rank + known.lane) * device.lanes.size();
            found.credit = state.mine.credits + std::size_t(state.device_rank) * links_per_rank + record;
            found.sent = known.sent;
            found.last_put = known.sent.messages;
            forget_mailed_puts(found);
            use_credit(found, load_acquire<order_tag::mail_reuse>(found.reach, found.credit));
            found.direct = (known.puts & direct_puts) != 0 ? 1 : 0;
            // Where is forgotten: anywhere.
            if ((known.puts & mailed_puts) != 0) {
                found.mailed_from = nullptr;
                found.mailed_to = reinterpret_cast<std::byte*>(~std::uintptr_t{0});
            }
            if (is_new) {
                store_packet<order_tag::mail_publish>(found.lane + device.lanes.header(start), record, mail_hello,
                                                      state.world_rank, start + 1);
                ++found.sent.messages;
                ++state.sent[static_cast<unsigned>(found.reach)];
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

// Waits until ready(link), looking at what the target has taken out of our lane, and taking our own mail meanwhile: it
// may come from that target, which then waits for us. False if the run ended.
template <class Team, class Ready>
DCUDA_DEVICE bool await_credit(const Team& all, rank_state& state, link& to, const Ready& ready) {
    const auto look = [&](unsigned) {
        if (all.leads()) use_credit(to, load_acquire<order_tag::mail_reuse>(scope::system, to.credit));
        sync(all);
        return ready(to) ? look_result::all : look_result::nothing;
    };
    if (look(0) == look_result::all) return true;
    if (all.leads()) begin_wait(state, waiting::mailbox, to.world_rank);
    if (all.leads() && is_observed(state)) begin_blocked(state);
    const bool there = look_until(
        [&](unsigned looks) {
            if (looks % 4 == 0 && take_mail(all, state, 0) && all.leads()) count_as_new_wait(state);
            return look(looks);
        },
        [&] { return vote(all, all.leads() && keep_waiting(state, credit_of(to.freed))) != 0; }, to.credit);
    if (all.leads() && is_observed(state)) end_blocked(state, waiting::mailbox);
    if (all.leads()) end_wait(state);
    return there;
}

// Whether a put straight into the target's memory, to these bytes as the target addresses them, might be overwritten by
// one that went there by mail before. One thread.
DCUDA_DEVICE bool crosses_mail(const link& to, const std::byte* home, std::size_t bytes) {
    return home < to.mailed_to && to.mailed_from < home + bytes;
}

// Waits until nothing that went by mail can overwrite later puts any more.
DCUDA_COLD void await_placed(team all, shared_state shared, std::uint32_t slot) {
    rank_state& state = shared.get();
    link& to = state.links[slot];
    const bool placed = await_credit(
        all, state, to, [](const link& at) { return static_cast<std::int32_t>(at.freed.messages - at.last_put) >= 0; });
    if (placed && all.leads()) forget_mailed_puts(to);
    sync(all);
}

DCUDA_DEVICE void ring_bell_of(const rank_state& state, const link& to) {
    const auto [process, rank] = place_of(state, to.world_rank);
    ring_bell(&state.device.peers[process].status[rank].bell);
}

// A message: `bytes` bytes at `source` go to `home` in the target's memory, which is `place` here; then a notification.
struct letter {
    std::byte* place;
    std::byte* home;
    const std::byte* source;
    std::uint32_t bytes;
    std::uint32_t tag;
    DCUDA_DEVICE bool is_in_place() const { return place == source && bytes != 0; } // nothing has to be copied
    // Payload that travels.
    DCUDA_DEVICE std::uint32_t mailed_bytes() const { return is_in_place() ? 0 : bytes; }
};

DCUDA_DEVICE std::uint32_t flags_of(const rank_state& state, const link& to, const letter& what) {
    return to.direct != 0 || to.flushes != state.flushes || what.is_in_place() ? mail_vouches : 0;
}

// Whether something has to be released before a message leaves.
DCUDA_DEVICE bool must_release(const rank_state& state, const link& to, const letter& what) {
    return (to.direct != 0 && (state.unreleased & bit_of(to.reach)) != 0) || what.is_in_place();
}

// Orders puts that went straight into the memory of targets of this reach before the messages that follow. One thread,
// after the block's barrier.
DCUDA_DEVICE void release_puts(rank_state& state, scope reach) {
    exec::complete_copies(state.staging, exec::is_leader());
    fence_release<order_tag::mail_publish>(reach);
    state.unreleased &= reach == scope::system ? 0 : ~bit_of(reach);
}

// A message on its way out: all about it that can be found before it leaves.
struct outgoing {
    packet* place; // of the header
    header head;
    lane_position after; // the lane's next position
    std::byte *mailed_from, *mailed_to;
    bool is_put;

    DCUDA_DEVICE outgoing(const rank_state& state, const link& to, const letter& what, std::uint32_t bytes,
                          std::uint32_t flags)
        : place(to.lane + state.device.lanes.header(to.sent.messages)), after{to.sent.messages + 1,
                                                                              to.sent.packets + packets_for(bytes)},
          mailed_from(what.home < to.mailed_from ? what.home : to.mailed_from),
          mailed_to(what.home + bytes > to.mailed_to ? what.home + bytes : to.mailed_to), is_put(bytes != 0) {
        const auto home = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(what.home));
        head = {
            {static_cast<std::uint32_t>(home), static_cast<std::uint32_t>(home >> 32) | flags, what.tag << 16 | bytes}};
    }

    // The header leaves; what it speaks of was released before. One thread.
    DCUDA_DEVICE void store() const {
        store_packet<order_tag::mail_publish>(place, head.words[0], head.words[1], head.words[2], after.messages);
    }

    // After that. One thread.
    DCUDA_DEVICE void count(rank_state& state, link& to) const {
        to.sent = after;
        ++state.sent[static_cast<unsigned>(to.reach)];
        if (head.vouches()) {
            to.direct = 0;
            to.flushes = state.flushes;
        }
        if (is_put) {
            to.mailed_from = mailed_from;
            to.mailed_to = mailed_to;
            to.last_put = after.messages;
        } else if ((after.messages & 0xffff) == 0 && static_cast<std::int32_t>(to.freed.messages - to.last_put) >= 0) {
            // Positions are compared by their difference, so `last_put` must not grow old.
            to.last_put = to.freed.messages;
            forget_mailed_puts(to);
        }
        if (DCUDA_BACKEND_CPU) ring_bell_of(state, to);
    }
};

// Makes room for a message with so many packets of payload, if there is any: waits for room for the header.
DCUDA_COLD void make_room(team all, shared_state shared, std::uint32_t slot, std::uint32_t packets) {
    rank_state& state = shared.get();
    link& to = state.links[slot];
    if (has_room_for_header(state, to) && has_room_for_payload(state, to, packets)) return;
    await_credit(all, state, to, [&](const link& at) { return has_room_for_header(state, at); });
}

// Sends a message. If its payload does not fit into the lane, that goes straight into the target's memory: who puts
// waits for nobody as long as there is room for headers, unless it crosses mail.
//
// ORDER mail-publish -> mail-observe: each packet vouches for its own payload. Puts that went another way are released
// before the header leaves, if there were any: fence, then the header's strong store; the target acquires after the
// header.
DCUDA_COLD void send_message(team all, shared_state shared, std::uint32_t slot, letter what) {
    rank_state& state = shared.get();
    link& to = state.links[slot];
    std::uint32_t bytes = what.mailed_bytes(), flags = flags_of(state, to, what);
    make_room(all, state, slot, packets_for(bytes));
    if (!has_room_for_header(state, to)) return; // the run has ended
    bool release = must_release(state, to, what);
    const bool straight = !has_room_for_payload(state, to, packets_for(bytes)) || what.is_in_place();
    if (straight) {
        if (all.leads() && bytes != 0) state.doing.straight = 1;
        exec::complete_copies(state.staging, exec::is_leader()); // ORDER bulk-then-words
        if (crosses_mail(to, what.home, what.bytes)) await_placed(all, state, slot);
        sync(all);
        for (std::uint32_t i = all.index; i < bytes; i += all.count) what.place[i] = what.source[i];
        bytes = 0;
        flags = mail_vouches;
        release = true;
        sync(all);
    }
    const lane_shape rings = state.device.lanes;
    for (std::uint32_t number = all.index; number < packets_for(bytes); number += all.count) {
        const chunk part = load_chunk(what.source + number * mail_bytes, chunk_bytes(bytes, number));
        const std::uint32_t at = to.sent.packets + number;
        store_packet<order_tag::mail_publish>(to.lane + rings.packet(at), part.words[0], part.words[1], part.words[2],
                                              at + 1);
    }
    sync(all); // all have read the link
    if (!all.leads()) return;
    if (release) release_puts(state, to.reach);
    const outgoing message(state, to, what, bytes, flags);
    message.store();
    message.count(state, to);
}

// What has become of a message.
enum class sending {
    done,
    by_team,    // all threads have arrived (CPU backend: as_team waits for them), the team must send it: send_message
    straight,   // nothing has happened: it is no message for a mailbox
    by_host,    // nothing has happened: the target is reached over the network
    in_general, // nothing has happened: something has to be looked up, or there is no room
};

// All threads of the rank arrive, then it sends a message, if that can be done at once.
// PERF: nothing is called here, so that it takes few registers. All that need not wait for the other threads comes
// before the block's barrier; what lies between that and the stores is latency.
DCUDA_DEVICE sending send_at_once(rank_state& state, link& to, const letter& what) {
#if defined(__CUDACC__)
    const std::uint32_t bytes = what.mailed_bytes(), packets = packets_for(bytes);
    const unsigned index = exec::thread_index(), threads = exec::block_threads();
    const auto load_words = [&](std::uint32_t number) {
        const std::uint32_t left = bytes / 4 - 3 * number;
        const auto* const words = reinterpret_cast<const std::uint32_t*>(what.source) + 3 * number;
        chunk part;
        part.words[0] = words[0];
        if (left > 1) part.words[1] = words[1];
        if (left > 2) part.words[2] = words[2];
        return part;
    };
    if (packets > 32) {
        // Many packets: by all threads.
        if (is_odd(what.source, bytes)) return sending::in_general;
        exec::sync_block(); // the source is ready, and the link as the leader left it
        if (!has_room_for_header(state, to) || !has_room_for_payload(state, to, packets)) return sending::in_general;
        const lane_shape rings = state.device.lanes;
        const outgoing message(state, to, what, bytes, flags_of(state, to, what));
        if (index == 0 && must_release(state, to, what)) release_puts(state, to.reach);
        for (std::uint32_t number = index; number < packets; number += threads) {
            const chunk part = load_words(number);
            const std::uint32_t at = to.sent.packets + number;
            store_packet<order_tag::mail_publish>(to.lane + rings.packet(at), part.words[0], part.words[1],
                                                  part.words[2], at + 1);
        }
        if (index == 0) message.store();
        exec::sync_block(); // all have read the link
        if (index == 0) message.count(state, to);
        return sending::done;
    }
    // A full warp.
    if (index >= 32) {
        exec::sync_block();
        return sending::done;
    }
    const team all{index, threads < 32 ? threads : 32};
    sync(all); // the leader has counted the message before
    const bool at_once = (all.count == 32) & has_room_for_header(state, to) & has_room_for_payload(state, to, packets) &
                         !is_odd(what.source, bytes) & !(what.is_in_place() && crosses_mail(to, what.home, what.bytes));
    const bool release = must_release(state, to, what);
    const outgoing message(state, to, what, bytes, flags_of(state, to, what));
    const std::uint32_t at = to.sent.packets + index;
    packet* const place = to.lane + state.device.lanes.packet(at);
    exec::sync_block();
    if (!at_once) return sending::by_team;
    if (release && all.leads()) release_puts(state, to.reach);
    if (index < packets) {
        const chunk part = load_words(index);
        store_packet<order_tag::mail_publish>(place, part.words[0], part.words[1], part.words[2], at + 1);
    }
    if (all.leads()) {
        message.store();
        message.count(state, to);
    }
    return sending::done;
#else
    (void)state, (void)to, (void)what;
    return sending::by_team;
#endif
}

} // namespace dcuda::detail
