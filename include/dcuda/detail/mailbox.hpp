// Small puts and notifications by mail: payload and sequence number travel in the same 128-bit packets, so nothing
// waits for an acknowledgement before it notifies. docs/design/mailbox.md has the protocol and its argument. Here is
// what a mailbox holds and how its rank takes it; mail_send.hpp sends.
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

// Payload packets that each thread takes at once in the usual wait (await_the_usual).
inline constexpr unsigned packets_in_flight = 3;

// --- Payload -------------------------------------------------------------------------------------------------------

struct chunk {
    std::uint32_t words[3];
};

// Whether a place or a number of bytes is no multiple of 4.
DCUDA_DEVICE bool is_odd(const std::byte* place, std::uint32_t bytes) {
    return ((static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(place)) | bytes) & 3) != 0;
}

DCUDA_COLD chunk load_odd_chunk(const std::byte* source, std::uint32_t bytes) {
    chunk result{};
    for (std::uint32_t i = bytes; i-- > 0;) { // the words move through the chunk, which has no index
        result.words[2] = result.words[2] << 8 | result.words[1] >> 24;
        result.words[1] = result.words[1] << 8 | result.words[0] >> 24;
        result.words[0] = result.words[0] << 8 | static_cast<std::uint32_t>(source[i]);
    }
    return result;
}

// At most 12 bytes of a payload. Neighbouring threads load neighbouring chunks.
DCUDA_DEVICE chunk load_chunk(const std::byte* source, std::uint32_t bytes) {
    if (is_odd(source, bytes)) return load_odd_chunk(source, bytes);
    const auto* words = reinterpret_cast<const std::uint32_t*>(source);
    return {{words[0], bytes > 4 ? words[1] : 0, bytes > 8 ? words[2] : 0}};
}

DCUDA_COLD void store_odd_chunk(std::byte* target, std::uint32_t bytes, std::uint32_t a, std::uint32_t b,
                                std::uint32_t c) {
    for (std::uint32_t i = 0; i < bytes; ++i) {
        target[i] = static_cast<std::byte>(a);
        a = a >> 8 | b << 24;
        b = b >> 8 | c << 24;
        c >>= 8;
    }
}

DCUDA_DEVICE void store_chunk(std::byte* target, std::uint32_t bytes, const std::uint32_t (&content)[3]) {
    if (is_odd(target, bytes)) return store_odd_chunk(target, bytes, content[0], content[1], content[2]);
    auto* words = reinterpret_cast<std::uint32_t*>(target);
    words[0] = content[0];
    if (bytes > 4) words[1] = content[1];
    if (bytes > 8) words[2] = content[2];
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
        if (entry.origin != 0) state.forgotten_origins |= 1u << entry.tag % 32;
        const bool forgotten = (state.forgotten_origins >> tag % 32 & 1) != 0;
        entry = {tag, state.tag_records[tag], 0, 0, forgotten ? forgotten_origin : std::uint16_t{0}};
    }
    return entry.record;
}

// That many more have come with this tag than the program has consumed, by this lane. One thread.
DCUDA_DEVICE void count_mail(rank_state& state, std::uint32_t tag, std::uint32_t count, std::uint32_t lane) {
    notifications(state, tag).consumed -= count;
    state.tag_cache[tag % cached_tags].origin = static_cast<std::uint16_t>(lane + 1);
}

// A lane of this rank's mailbox.
DCUDA_DEVICE const packet* lane_at(const rank_state& state, std::uint32_t lane) {
    return state.mail + lane * state.device.lanes.size();
}

// Looks which lanes have mail; bit by lane.
template <class Team>
DCUDA_DEVICE unsigned look_at_lanes(const Team& all, rank_state& state) {
    const lane_shape rings = state.device.lanes;
    if (rings.packets == 0) return 0;
    for (;;) {
        const std::uint32_t known = state.lanes;
        // PERF: these loads are under way at the same time.
        std::uint32_t taken = all.leads() ? load_relaxed(&state.status->lanes_taken) : 0;
        unsigned arrived = 0;
        for (std::uint32_t begin = 0; begin < known; begin += all.count) {
            const std::uint32_t lane = begin + all.index;
            bool mine = false;
            if (lane < known) {
                const std::uint32_t position = state.inbound[lane].taken.messages;
                mine = load_relaxed(&lane_at(state, lane)[rings.header(position)].sequence) == position + 1;
            }
            arrived |= vote(all, mine) << begin;
        }
        taken = broadcast(all, taken, 0);
        if (taken > lanes_per_rank) taken = lanes_per_rank;
        if (taken == known) return arrived;
        sync(all);
        if (all.leads()) state.lanes = taken;
        sync(all);
    }
}

// A hello says who writes into the lane, and where that rank learns what has been taken. One thread.
DCUDA_DEVICE void meet_source(rank_state& state, std::uint32_t lane, const header& hello) {
    const auto [process, source] = place_of(state, hello.words[2]);
    state.inbound[lane].credit = state.device.peers[process].credits + source * links_per_rank + hello.words[0];
    state.lane_sources[lane] = hello.words[2];
    if (process != state.device.process_index) state.remote_lanes |= 1u << lane;
}

// The next message with this tag is expected in that lane, with so much payload. One thread.
DCUDA_DEVICE void foresee(rank_state& state, std::uint32_t tag, std::uint32_t lane, std::uint32_t packets) {
    tag_entry& entry = state.tag_cache[tag % cached_tags];
    if (entry.tag != tag) return;
    entry.lane = lane;
    entry.packets = static_cast<std::uint16_t>(packets);
}

// Copies packet `number` of the message's payload to its place. It lies at `from`, with this sequence number; `part` is
// what was seen there. Waits for it if it is still on its way. One thread.
DCUDA_DEVICE void place_packet(rank_state& state, const packet* from, std::uint32_t sequence, packet part,
                               const header& message, std::uint32_t number) {
    if (await_packet<order_tag::mail_observe>(from, sequence, part, state.device.aborted))
        store_chunk(message.target() + number * mail_bytes, chunk_bytes(message.bytes(), number), part.payload);
    else
        store_relaxed(&state.ended, 1);
}

// Takes all messages that have arrived in one lane. One thread, with few registers: this is called in the middle of
// waits, whose registers it adds its own to. Its variables are in shared memory.
DCUDA_COLD bool take_lane(lone_thread, shared_state shared, std::uint32_t number, bool) {
    rank_state& state = shared.get();
    in_memory<courier>& at = state.meanwhile;
    for (at.lane = number;;) {
        at.position = state.inbound[at.lane].taken.messages;
        {
            const packet head = load_packet<order_tag::mail_observe>(
                lane_at(state, at.lane) + state.device.lanes.header(at.position), at.position + 1);
            if (head.sequence != at.position + 1) return false;
            for (unsigned i = 0; i < 3; ++i) at.message.words[i] = head.payload[i];
        }
        // ORDER notify-observe: what the source released before this message, and before its payload is placed: of two
        // puts to one place the later wins.
        if (state.meanwhile.message.vouches()) acquire_packet<order_tag::mail_observe>(state.notification_scope);
        at.position = state.inbound[at.lane].taken.packets;
        at.number = 0;
        while (at.number < packets_for(state.meanwhile.message.bytes())) {
            packet part{};
            part.sequence = at.position; // none that is expected
            place_packet(state, lane_at(state, at.lane) + state.device.lanes.packet(at.position), at.position + 1, part,
                         state.meanwhile.message, at.number);
            at.position = at.position + 1;
            at.number = at.number + 1;
        }
        if (state.meanwhile.message.is_hello())
            meet_source(state, at.lane, state.meanwhile.message);
        else
            count_mail(state, state.meanwhile.message.tag(), 1, at.lane);
        state.inbound[at.lane].taken.packets = at.position;
        ++state.inbound[at.lane].taken.messages;
    }
}

DCUDA_DEVICE bool owes_credit(const inbound_lane& to, const lane_shape& rings, std::uint32_t share) {
    const std::uint32_t messages = to.taken.messages - to.credited.messages;
    const std::uint32_t packets = to.taken.packets - to.credited.packets;
    const bool much = share == 0 || messages * share > rings.headers || packets * share > rings.packets;
    return to.credit != nullptr && messages != 0 && much;
}

// Tells the source of a lane what we have taken. One thread.
DCUDA_DEVICE void send_credit(rank_state& state, std::uint32_t lane) {
    inbound_lane& to = state.inbound[lane];
    to.credited = to.taken;
    const scope reach = (state.remote_lanes >> lane & 1) != 0 ? scope::system : scope::device;
    store_release<order_tag::mail_free>(reach, to.credit, credit_of(to.taken));
}

// Tells sources what we have taken, in lanes where they do not know of messages that fill more than 1 / `share` of a
// ring; with 0: of any. True if there was such a lane.
//
// ORDER mail-free -> mail-reuse: what the team has read out of the packets and written into windows is ordered before
// the credit (the team's sync, then release), hence before whatever the source does on the strength of it.
template <class Team>
DCUDA_DEVICE bool give_credit(const Team& all, rank_state& state, std::uint32_t share) {
    sync(all);
    bool any = false;
    for (std::uint32_t lane = all.index; lane < state.lanes; lane += all.count)
        if (owes_credit(state.inbound[lane], state.device.lanes, share)) {
            any = true;
            send_credit(state, lane);
        }
    return vote(all, any) != 0;
}

#if defined(__CUDACC__)

// The messages of a lane that a team takes together: each of its threads has the header of one.
struct batch {
    unsigned count;
    header mine;
    std::uint32_t packets; // of payload, up to and with this thread's message
};

// Messages that have arrived, from the next one on; count is 0 if there is none. With a count, these.
DCUDA_DEVICE batch look_at_batch(const team& all, const rank_state& state, std::uint32_t lane,
                                 unsigned known_count = 0) {
    const std::uint32_t at = state.inbound[lane].taken.messages + all.index;
    const packet head =
        load_packet<order_tag::mail_observe>(lane_at(state, lane) + state.device.lanes.header(at), at + 1);
    const unsigned count = known_count != 0 ? known_count : agreeing(all, head.sequence == at + 1);
    batch found{count, {{head.payload[0], head.payload[1], head.payload[2]}}, 0};
    if (all.index >= count) found.mine = {{0, 0, 0}};
    found.packets = packets_for(found.mine.bytes());
    for (unsigned step = 1; step < 32; step *= 2) {
        const std::uint32_t before = shift_up(all, found.packets, step);
        if (all.index >= step) found.packets += before;
    }
    return found;
}

DCUDA_DEVICE std::uint32_t packets_of(const team& all, const batch& messages) {
    return broadcast(all, messages.packets, messages.count - 1);
}

// Whether no payload overlaps another: each lies behind those before. Then they may be placed at the same time.
DCUDA_DEVICE bool are_disjoint(const team& all, const batch& messages) {
    // By the lower half of their addresses; all of them within 4 GiB.
    const std::uint32_t bytes = messages.mine.bytes(), begin = messages.mine.words[0];
    const unsigned with_payload = vote(all, bytes != 0);
    std::uint32_t end = bytes != 0 ? begin + bytes : 0;
    const bool wraps = bytes != 0 && end < begin;
    for (unsigned step = 1; step < 32; step *= 2) {
        const std::uint32_t before = shift_up(all, end, step);
        if (all.index >= step && before > end) end = before;
    }
    const std::uint32_t before = shift_up(all, end, 1);
    const std::uint32_t upper = broadcast(all, messages.mine.words[1], with_payload != 0 ? lowest(with_payload) : 0);
    const bool overlaps = bytes != 0 && (wraps || ((upper ^ messages.mine.words[1]) & 0xfffff) != 0 ||
                                         (all.index != 0 && begin < before));
    return vote(all, overlaps) == 0;
}

// Copies packets of a batch's payload to their places: of those in [begin, end), counted from the batch's first one,
// every `threads`-th from `first` on is this thread's. Waits for what is still on its way.
DCUDA_DEVICE void place_packets(const team& all, rank_state& state, std::uint32_t number, const batch& messages,
                                std::uint32_t begin, std::uint32_t end, std::uint32_t first, std::uint32_t threads) {
    const packet* const lane = lane_at(state, number);
    const lane_shape rings = state.device.lanes;
    const std::uint32_t position = state.inbound[number].taken.packets;
    for (; begin < end; begin += threads) { // the same for all of the team
        const std::uint32_t at = begin + first;
        packet part{};
        if (at < end) part = load_packet<order_tag::mail_observe>(lane + rings.packet(position + at), 0);
        // Whose packet is it? The first message up to and with which there are more.
        unsigned owner = 0;
        for (unsigned step = 16; step != 0; step /= 2)
            if (broadcast(all, messages.packets, owner + step - 1) <= at && owner + step < messages.count)
                owner += step;
        const header message{{broadcast(all, messages.mine.words[0], owner),
                              broadcast(all, messages.mine.words[1], owner),
                              broadcast(all, messages.mine.words[2], owner)}};
        const std::uint32_t after = broadcast(all, messages.packets, owner);
        if (at >= end) continue;
        place_packet(state, lane + rings.packet(position + at), position + at + 1, part, message,
                     at + packets_for(message.bytes()) - after);
    }
}

// After the payload of a batch is in place: counts the notifications and takes the messages out of the lane.
DCUDA_DEVICE void settle_batch(const team& all, rank_state& state, std::uint32_t number, const batch& messages) {
    const bool valid = all.index < messages.count;
    const header& mine = messages.mine;
    const std::uint32_t packets = packets_of(all, messages);
    const std::uint32_t last = broadcast(all, packets_for(mine.bytes()), messages.count - 1);
    const std::uint32_t last_tag = broadcast(all, mine.tag(), messages.count - 1);
    if (valid && mine.is_hello()) meet_source(state, number, mine);
    sync(all); // all have read the state that now changes, and all payload is in place
    unsigned rest = vote(all, valid && !mine.is_hello());
    while (rest != 0) { // one tag after the other
        const std::uint32_t tag = broadcast(all, mine.tag(), lowest(rest));
        const unsigned same = rest & vote(all, mine.tag() == tag);
        if (all.leads()) count_mail(state, tag, bits_in(same), number);
        rest &= ~same;
    }
    if (all.leads()) {
        lane_position& taken = state.inbound[number].taken;
        taken = {taken.messages + messages.count, taken.packets + packets};
        foresee(state, last_tag, number, last);
    }
    sync(all);
}

// The same as above by the team, as many messages at a time as it has threads. If `may_share`, a large batch is left
// for all warps: then it is in state.batch, and the result is true.
DCUDA_COLD bool take_lane(team all, shared_state shared, std::uint32_t number, bool may_share) {
    rank_state& state = shared.get();
    for (;;) {
        const batch messages = look_at_batch(all, state, number);
        if (messages.count == 0) return false;
        // ORDER notify-observe: as above, once for all of them.
        if (messages.mine.vouches()) acquire_packet<order_tag::mail_observe>(state.notification_scope);
        const std::uint32_t packets = packets_of(all, messages);
        sync(all);
        if (packets != 0) {
            const bool disjoint = are_disjoint(all, messages);
            if (may_share && disjoint && packets > 4 * all.count && exec::block_threads() >= 64) {
                if (all.leads()) state.batch = {number, messages.count};
                return true;
            }
            std::uint32_t begin = 0;
            for (unsigned i = disjoint ? messages.count - 1 : 0; i < messages.count; ++i) {
                const std::uint32_t end = broadcast(all, messages.packets, i);
                place_packets(all, state, number, messages, begin, end, all.index, all.count);
                begin = end;
                sync(all); // of two that overlap the later stays
            }
        }
        settle_batch(all, state, number, messages);
        if (messages.count < all.count) return false;
    }
}

// All warps of the block place state.batch. A barrier of the block comes before and after.
DCUDA_COLD void place_shared_batch(shared_state shared) {
    rank_state& state = shared.get();
    const unsigned index = exec::thread_index(), threads = exec::block_threads() / 32 * 32;
    if (index >= threads) return;
    const team all{index % 32, 32};
    const batch messages = look_at_batch(all, state, state.batch.lane, state.batch.count);
    place_packets(all, state, state.batch.lane, messages, 0, packets_of(all, messages), index, threads);
}

// The team, after that.
DCUDA_DEVICE void settle_shared_batch(const team& all, rank_state& state) {
    const auto [number, count] = state.batch;
    if (count == 0) return;
    settle_batch(all, state, number, look_at_batch(all, state, number, count));
    if (all.leads()) state.batch.count = 0;
    give_credit(all, state, 2);
}

#endif

// Takes all mail that has arrived, and gives credit (see there). True if there was any mail or credit.
template <class Team>
DCUDA_COLD bool take_mail(Team all, shared_state shared, std::uint32_t share) {
    rank_state& state = shared.get();
    if (state.device.lanes.packets == 0) return false;
    const unsigned arrived = look_at_lanes(all, state);
    for (unsigned lane = 0; arrived >> lane != 0; ++lane)
        if ((arrived >> lane & 1) != 0) take_lane(all, state, lane, false);
    return give_credit(all, state, share) || arrived != 0;
}

DCUDA_COLD bool receive_meanwhile(shared_state shared) { return take_mail(lone_thread{}, shared, 0); }

} // namespace dcuda::detail
