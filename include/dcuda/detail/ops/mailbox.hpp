// SPDX-License-Identifier: BSD-3-Clause
// Messages: small puts and notifications. Payload and sequence number travel in the same 128-bit packets, so nothing
// waits for an acknowledgement before it notifies. docs/design/mailbox.md has the protocol and its argument. Here is
// what a mailbox holds and how its rank takes it; mailbox_send.hpp sends.
//
// A source writes messages into its queue of the target's mailbox. The target looks at its mailbox in every operation,
// copies payload into its windows and counts notifications. A queue has one writer and one reader; so the messages of a
// source arrive in order.
//
// The functions of this file are called by all threads of a group, the lead warp or a lone thread, with the same
// arguments, unless they say otherwise.
#pragma once

#include "dcuda/detail/ops/commands/command_ring.hpp"

namespace dcuda::detail {

// --- Payload -------------------------------------------------------------------------------------------------------

struct chunk {
    std::uint32_t words[3];
};

// Whether an address or a number of bytes is no multiple of 4.
DCUDA_DEVICE bool is_unaligned(const std::byte* address, std::uint32_t bytes) {
    return ((static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(address)) | bytes) & 3) != 0;
}

DCUDA_COLD chunk load_unaligned_chunk(const std::byte* source, std::uint32_t bytes) {
    chunk result{};
    for (std::uint32_t i = bytes; i-- > 0;) { // the words move through the chunk, which has no index
        result.words[2] = result.words[2] << 8 | result.words[1] >> 24;
        result.words[1] = result.words[1] << 8 | result.words[0] >> 24;
        result.words[0] = result.words[0] << 8 | static_cast<std::uint32_t>(source[i]);
    }
    return result;
}

// At most 12 bytes of a payload that is made of words. PERF: three loads at once, without a branch: what is behind the
// end is the first word again.
DCUDA_DEVICE chunk load_words(const std::byte* source, std::uint32_t bytes) {
    const auto* words = reinterpret_cast<const std::uint32_t*>(source);
    return {{words[0], words[bytes > 4 ? 1 : 0], words[bytes > 8 ? 2 : 0]}};
}

// The same of any payload. Neighbouring threads load neighbouring chunks. One thread.
DCUDA_DEVICE chunk load_chunk(const std::byte* source, std::uint32_t bytes) {
    return is_unaligned(source, bytes) ? load_unaligned_chunk(source, bytes) : load_words(source, bytes);
}

DCUDA_COLD void store_unaligned_chunk(std::byte* target, std::uint32_t bytes, std::uint32_t a, std::uint32_t b,
                                      std::uint32_t c) {
    for (std::uint32_t i = 0; i < bytes; ++i) {
        target[i] = static_cast<std::byte>(a);
        a = a >> 8 | b << 24;
        b = b >> 8 | c << 24;
        c >>= 8;
    }
}

DCUDA_DEVICE void store_chunk(std::byte* target, std::uint32_t bytes, const std::uint32_t (&content)[3]) {
    if (is_unaligned(target, bytes)) return store_unaligned_chunk(target, bytes, content[0], content[1], content[2]);
    auto* words = reinterpret_cast<std::uint32_t*>(target);
    words[0] = content[0];
    if (bytes > 4) words[1] = content[1];
    if (bytes > 8) words[2] = content[2];
}

DCUDA_DEVICE std::uint32_t packets_for(std::uint32_t bytes) {
    return (bytes + packet_payload_bytes - 1) / packet_payload_bytes;
}

// Payload that a lead warp sends and takes alone on its fast paths.
inline constexpr std::uint32_t most_warp_bytes = 96 * packet_payload_bytes;

// What of `bytes` the chunk with this number holds.
DCUDA_DEVICE std::uint32_t chunk_bytes(std::uint32_t bytes, std::uint32_t number) {
    const std::uint32_t rest = bytes - number * packet_payload_bytes;
    return rest < packet_payload_bytes ? rest : packet_payload_bytes;
}

// --- Tags ----------------------------------------------------------------------------------------------------------

// Brings a tag near, in place of another.
template <class Group>
DCUDA_COLD unsigned load_tag(Group group, shared_state shared, std::uint32_t tag) {
    rank_state& state = shared.get();
    endpoint& own = state.own.of(group);
    const unsigned place = own.next_tag;
    sync(group); // nobody still reads what the entry holds now
    if (group.leads()) {
        tag_entry& entry = own.tags[place];
        const std::uint32_t before = own.tag_keys[place];
        if (before != no_tag_key) {
            state.tag_records[before] = entry.record;
            if (entry.record.counter != entry.record.consumed) own.all_near.count = 0;
            if (entry.origin != 0) own.forgotten_origins |= 1u << before % 32;
        }
        const bool forgotten = (own.forgotten_origins >> tag % 32 & 1) != 0;
        entry = {state.tag_records[tag], 0, forgotten ? forgotten_origin : 0};
        own.tag_keys[place] = tag;
        own.next_tag = (place + 1) % cached_tags;
    }
    sync(group);
    write_tag_hint(group, own, place);
    return place;
}

// What the rank knows of the tags that are near, into the table of all tags.
template <class Group>
DCUDA_DEVICE void save_tags(const Group& group, rank_state& state) {
    endpoint& own = state.own.of(group);
    sync(group); // what the leader has counted
    for (unsigned place = group.index; place < cached_tags; place += group.count)
        if (own.tag_keys[place] != no_tag_key) state.tag_records[own.tag_keys[place]] = own.tags[place].record;
    sync(group);
}
// And the other way, after the table has been changed.
template <class Group>
DCUDA_DEVICE void reload_tags(const Group& group, rank_state& state) {
    endpoint& own = state.own.of(group);
    sync(group);
    for (unsigned place = group.index; place < cached_tags; place += group.count)
        if (own.tag_keys[place] != no_tag_key) own.tags[place].record = state.tag_records[own.tag_keys[place]];
    sync(group);
}

// What this rank knows of a tag, which must exist.
template <class Group>
DCUDA_DEVICE tag_entry& find_tag(const Group& group, rank_state& state, std::uint32_t tag) {
    endpoint& own = state.own.of(group);
    unsigned place = find_near_tag(group, own, tag);
    if (place == cached_tags) place = load_tag(group, state, tag);
    return own.tags[place];
}

// A message of so much payload has come in this queue; the next one with its tag is expected to be like it, in the
// queue that followed this one the last time. The leader.
DCUDA_DEVICE void predict_next(const rank_state& state, endpoint& own, tag_entry& entry, std::uint32_t queue,
                               std::uint32_t bytes) {
    if (entry.origin - 1u < own.queues) queue_of(state, own, entry.origin - 1u).follower = queue;
    entry.expected = expectation(queue_of(state, own, queue).follower, bytes);
    entry.origin = queue + 1;
}

// That many more notifications with this tag have come as messages; the last of them in this queue, with so many bytes
// of payload.
template <class Group>
DCUDA_DEVICE void count_messages(const Group& group, rank_state& state, std::uint32_t tag, std::uint32_t count,
                                 std::uint32_t queue, std::uint32_t bytes) {
    tag_entry& entry = find_tag(group, state, tag);
    if (!group.leads()) return;
    entry.record.consumed -= count;
    predict_next(state, state.own.of(group), entry, queue, bytes);
}

// --- Looking -------------------------------------------------------------------------------------------------------

// A slot of the device's queue at this place. PERF: by numbers of 32 bits, as far as it goes.
DCUDA_DEVICE const packet* slot_at(const rank_state& state, std::uint32_t place, std::uint32_t slot) {
    return state.inbox.queues + (place * state.device.queues.size() + slot);
}

// Messages at the heads of queues, one for each thread of a group. Threads stand in rows: a row has a thread for each
// queue; a message in a row is taken after those of its queue in the rows before.
struct batch {
    unsigned mask;         // bit by thread: it has a message
    mailbox_header header; // this thread's; zero without one
    std::uint32_t queue;   // that it is in
    std::uint32_t place;   // of the queue
    std::uint32_t packet;  // position of its first packet of payload
    std::uint32_t end;     // packets of payload up to and with this thread's message
    std::uint32_t row, width;
};

// Sums over the rows of a batch, for each column; up to and with this row.
template <class Group>
DCUDA_DEVICE std::uint32_t sum_of_rows(const Group& group, std::uint32_t value, std::uint32_t row, std::uint32_t width,
                                       std::uint32_t rows) {
    for (unsigned step = 1; step < rows; step *= 2) {
        const std::uint32_t before = shift_up(group, value, step * width);
        if (row >= step) value += before;
    }
    return value;
}

// Works out what follows from the headers of a batch: where payload begins, and how much there is. `taken`: of this
// thread's queue, packets before the batch.
template <class Group>
DCUDA_DEVICE void locate_payload(const Group& group, batch& messages, std::uint32_t taken, std::uint32_t rows) {
    const std::uint32_t packets = messages.header.packets();
    messages.packet = taken + sum_of_rows(group, packets, messages.row, messages.width, rows) - packets;
    messages.end = sum_of_rows(group, packets, group.index, 1, group.count);
}

// The messages that have arrived in the queues from `first` on, `width` of them: no more than the group has threads.
// PERF: with `Near` only near ones, which takes fewer registers; likewise below.
template <bool Near, class Group>
DCUDA_DEVICE batch collect(const Group& group, rank_state& state, std::uint32_t first, std::uint32_t width,
                           std::uint32_t rows) {
    const std::uint32_t row = group.index / width, queue = first + group.index % width;
    endpoint& own = state.own.of(group);
    const inbound_queue& from = Near ? own.inbound[queue] : queue_of(state, own, queue);
    const queue_position taken = from.taken;
    const std::uint32_t position = taken.messages + row, place = from.place;
    packet head{};
    head.sequence = position; // not what is expected
    if (row < rows)
        head = load_packet<order_tag::message_observe>(slot_at(state, place, state.device.queues.header(position)),
                                                       position + 1);
    // Without a gap: in all rows before there is one, too.
    const std::uint32_t missing = sum_of_rows(group, head.sequence != position + 1 ? 1u : 0u, row, width, rows);
    const bool is_there = missing == 0 && row < rows;
    batch found{vote(group, is_there), {}, queue, place, 0, 0, row, width};
    if (is_there) found.header = {{head.payload[0], head.payload[1], head.payload[2]}};
    if (found.mask != 0) locate_payload(group, found, taken.packets, rows);
    return found;
}

template <class Group>
DCUDA_DEVICE std::uint32_t packets_of(const Group& group, const batch& messages) {
    return broadcast(group, messages.end, group.count - 1);
}

// Whether messages of one queue may overlap: unless each lies behind those before it. Then they are placed one after
// the other.
template <class Group>
DCUDA_DEVICE bool may_overlap(const Group& group, const batch& messages, std::uint32_t rows) {
    const std::uint64_t begin = messages.header.address();
    std::uint64_t end = messages.header.bytes() != 0 ? begin + messages.header.bytes() : 0;
    const auto above = [&](unsigned step) {
        const std::uint32_t low = shift_up(group, static_cast<std::uint32_t>(end), step * messages.width);
        const std::uint32_t high = shift_up(group, static_cast<std::uint32_t>(end >> 32), step * messages.width);
        return low | static_cast<std::uint64_t>(high) << 32;
    };
    for (unsigned step = 1; step < rows; step *= 2) {
        const std::uint64_t before = above(step);
        if (messages.row >= step && before > end) end = before;
    }
    const std::uint64_t before = above(1);
    return any(group, messages.row != 0 && messages.header.bytes() != 0 && begin < before);
}

// --- Taking --------------------------------------------------------------------------------------------------------

// Copies packet `number` of a message's payload to its target address; it is at `from`, with this sequence number.
// Waits for it if it is still on its way. One thread.
DCUDA_DEVICE void place_packet(rank_state& state, const packet* from, std::uint32_t sequence,
                               const mailbox_header& message, std::uint32_t number) {
    packet part = load_packet<order_tag::message_observe>(from, sequence);
    if (await_packet<order_tag::message_observe>(from, sequence, part, state.device.aborted))
        store_chunk(message.target() + number * packet_payload_bytes, chunk_bytes(message.bytes(), number),
                    part.payload);
    // Else the run has ended: who waits next sees it.
}

// Copies the payload of a batch to its target addresses: of all packets every `threads`-th from `first` on is this
// thread's. A group, or any warp, which has the batch of the lead warp.
template <class Group>
DCUDA_DEVICE void place(const Group& group, rank_state& state, const batch& messages, std::uint32_t first,
                        std::uint32_t threads) {
    const queue_shape rings = state.device.queues;
    const std::uint32_t packets = packets_of(group, messages);
    for (std::uint32_t begin = 0; begin < packets; begin += threads) { // the same for all of the group
        const std::uint32_t at = begin + first;
        // Whose packet is it? The first message up to and with which there are more.
        unsigned owner = 0;
        for (unsigned step = 16; step != 0; step /= 2) {
            const unsigned other = owner + step < group.count ? owner + step : group.count;
            if (broadcast(group, messages.end, other - 1) <= at && owner + step < group.count) owner += step;
        }
        const mailbox_header message{{broadcast(group, messages.header.words[0], owner),
                                      broadcast(group, messages.header.words[1], owner),
                                      broadcast(group, messages.header.words[2], owner)}};
        const std::uint32_t end = broadcast(group, messages.end, owner),
                            place_of_queue = broadcast(group, messages.place, owner);
        const std::uint32_t number = at + message.packets() - end;
        const std::uint32_t position = broadcast(group, messages.packet, owner) + number;
        if (at < packets)
            place_packet(state, slot_at(state, place_of_queue, rings.packet(position)), position + 1, message, number);
    }
}

// A connect message says who writes into the queue, and where that rank learns what has been taken. One thread.
DCUDA_DEVICE void connect_queue(rank_state& state, inbound_queue& queue, const mailbox_header& message) {
    const auto [process, source] = locate(state, message.words[2]);
    queue.credit = state.device.peers[process].credits + source * state.device.partner_limit + message.words[0];
    queue.world_rank = message.words[2];
    queue.reach = process == state.device.process_index ? scope::device : scope::system;
}

DCUDA_DEVICE bool credit_due(const inbound_queue& queue, const queue_shape& rings, std::uint32_t share) {
    const std::uint32_t messages = queue.taken.messages - queue.credited.messages;
    const std::uint32_t packets = queue.taken.packets - queue.credited.packets;
    const bool much = share == 0 || messages * share > rings.headers || packets * share > rings.packets;
    return queue.credit != nullptr && messages != 0 && much;
}

// Tells the source of a queue what we have taken. One thread.
DCUDA_DEVICE void send_credit(inbound_queue& queue) {
    queue.credited = queue.taken;
    store_release<order_tag::queue_free>(queue.reach, queue.credit, credit_of(queue.taken));
}

// Tells sources what we have taken, in queues where they do not know of messages that fill more than 1 / `share` of a
// ring; with 0: of any. True if there was such a queue. PERF: of queues that are not near only with 0: the others have
// told when it was taken (settle).
//
// ORDER queue-free -> queue-reuse: what the group has read out of the packets and written into windows is ordered
// before the credit (the group's sync, then release), hence before whatever the source does on the strength of it.
template <class Group>
DCUDA_COLD bool give_credit(Group group, shared_state shared, std::uint32_t share) {
    rank_state& state = shared.get();
    endpoint& own = state.own.of(group);
    sync(group);
    bool gives = false;
    const std::uint32_t queues = share == 0 ? own.queues : near_queues_of(own);
    for (std::uint32_t number = group.index; number < queues; number += group.count) {
        inbound_queue& queue = queue_of(state, own, number);
        if (!credit_due(queue, state.device.queues, share)) continue;
        gives = true;
        send_credit(queue);
    }
    return any(group, gives);
}

// Counts the messages of a batch that were in queues which are not near, and tells their sources if it is time to. Each
// thread, if it has the last message of a queue, has put down what was taken there.
template <class Group>
DCUDA_COLD void settle_far(Group group, shared_state shared, std::uint32_t number, bool is_there, bool is_last) {
    rank_state& state = shared.get();
    endpoint& own = state.own.of(group);
    inbound_queue& queue = queue_of(state, own, number);
    const bool is_far = is_there && number >= near_queues;
    sync(group); // a connect message says where its source is
    const unsigned on_device = vote(group, is_far && queue.reach == scope::device);
    const unsigned others = vote(group, is_far && queue.reach != scope::device);
    if (group.leads()) {
        own.far_taken[static_cast<unsigned>(scope::device)] += bits_in(on_device);
        own.far_taken[static_cast<unsigned>(scope::system)] += bits_in(others);
    }
    if (is_far && is_last && credit_due(queue, state.device.queues, 2)) send_credit(queue);
}

// After the payload of a batch is in place: takes its messages out of their queues and counts the notifications.
template <bool Near, class Group>
DCUDA_DEVICE void settle(const Group& group, rank_state& state, const batch& messages) {
    endpoint& own = state.own.of(group);
    inbound_queue& queue = Near ? own.inbound[messages.queue] : queue_of(state, own, messages.queue);
    const mailbox_header& header = messages.header;
    const bool is_there = (messages.mask >> group.index & 1) != 0;
    const unsigned below = group.index + messages.width;
    const bool is_last = is_there && (below >= group.count || (messages.mask >> below & 1) == 0);
    const bool asks = any(group, is_there && header.requests());
    sync(group); // all have read the books that now change, and all payload is in place
    if (is_there && header.connects()) connect_queue(state, queue, header);
    if (is_last) {
        queue.taken.messages += messages.row + 1;
        queue.taken.packets = messages.packet + header.packets();
    }
    if (!Near && any(group, is_there && messages.queue >= near_queues))
        settle_far(group, state, messages.queue, is_there, is_last);
    for (unsigned rest = vote(group, is_there && header.notifies()); rest != 0;) { // one tag after the other
        const std::uint32_t tag = broadcast(group, header.tag(), lowest(rest));
        const unsigned same = rest & vote(group, header.tag() == tag);
        unsigned last = lowest(same);
        for (unsigned others = same & (same - 1); others != 0; others &= others - 1) last = lowest(others);
        count_messages(group, state, tag, bits_in(same), broadcast(group, messages.queue, last),
                       broadcast(group, header.bytes(), last));
        rest &= ~same;
    }
    if (asks)
        give_credit(group, state, 0);
    else
        sync(group);
}

// Before anything of a batch is placed.
// ORDER notify-observe: what the sources released before these messages comes before their payload: of two puts to one
// address the later wins. The threads that have seen the headers acquire, and the group's sync passes it on.
template <class Group>
DCUDA_DEVICE void acquire_batch(const Group& group, rank_state& state, const batch& messages) {
    if (!any(group, messages.header.releases())) return;
    acquire_packet<order_tag::message_observe>(state.job_scope);
    sync(group);
}

// The messages that have arrived in the queues from `first` on; of those that overlap only the first.
template <bool Near, class Group>
DCUDA_DEVICE batch collect_disjoint(const Group& group, rank_state& state, std::uint32_t first, std::uint32_t width) {
    const std::uint32_t rows = group.count / width;
    const batch messages = collect<Near>(group, state, first, width, rows);
    if (messages.mask == 0 || rows == 1 || !may_overlap(group, messages, rows)) return messages;
    return collect<Near>(group, state, first, width, 1);
}

// Takes a batch. PERF: called by exec::far, it lets the functions that look for messages do with fewer registers.
template <class Group>
DCUDA_COLD void take_batch(Group group, shared_state shared, const batch messages) {
    rank_state& state = shared.get();
    acquire_batch(group, state, messages);
    place(group, state, messages, group.index, group.count);
    settle<false>(group, state, messages);
}

// Where a source's queue is, which has claimed its number. The source stores that in its next statement and waits for
// nothing before, so this waits for it: messages in queues with higher numbers would be hidden, and a barrier count
// them as taken. 0 if the run has ended.
DCUDA_DEVICE std::uint32_t await_place(const rank_state& state, const std::uint32_t* place) {
    return await_word(place, state.device.aborted);
}

// Learns of queues that sources have claimed since.
template <class Group>
DCUDA_COLD void add_queues(Group group, shared_state shared, std::uint32_t claimed) {
    rank_state& state = shared.get();
    endpoint& own = state.own.of(group);
    const std::uint32_t* const places =
        state.inbox.places + std::size_t(state.device_rank) * state.device.partner_limit;
    const std::uint32_t start = state.device.counter_start;
    for (bool more = true; more && own.queues != claimed;) {
        const std::uint32_t number = own.queues + group.index;
        const std::uint32_t place = number < claimed ? await_place(state, places + number) : 0;
        const unsigned missing = vote(group, place == 0);
        const unsigned known = missing == 0 ? group.count : lowest(missing);
        sync(group); // all have read the number of queues
        if (group.index < known)
            queue_of(state, own, number) = {{start, start}, {start, start}, nullptr, 0,
                                            scope::device,  place - 1,      number};
        if (group.leads()) own.queues += known;
        sync(group);
        more = known == group.count;
    }
}
template <class Group>
DCUDA_DEVICE void find_queues(const Group& group, rank_state& state) {
    std::uint32_t claimed = broadcast(group, group.leads() ? load_relaxed(&state.status->queues_claimed) : 0, 0);
    if (claimed > state.device.partner_limit) claimed = state.device.partner_limit;
    if (any(group, claimed != state.own.of(group).queues)) add_queues(group, state, claimed);
}

// Whether a message may be in a queue that is not near. Such messages are announced, by an addition to one word. The
// announcement of a message may come before or after it. So there may be one of which this does not know yet; it will.
template <class Group>
DCUDA_DEVICE bool is_announced(const Group& group, rank_state& state, std::uint32_t announced) {
    const endpoint& own = state.own.of(group);
    return any(group, static_cast<std::int32_t>(announced - own.far_taken[0] - own.far_taken[1]) > 0);
}

// Takes all messages that have arrived. True if there were any.
template <class Group>
DCUDA_COLD bool take_messages(Group group, shared_state shared) {
    rank_state& state = shared.get();
    if (state.device.queues.packets == 0) return false;
    find_queues(group, state);
    const std::uint32_t queues = state.own.of(group).queues;
    bool found = false;
    for (std::uint32_t first = 0; first < queues; first += group.count) {
        const std::uint32_t width = queues - first < group.count ? queues - first : group.count;
        for (;;) {
            const batch messages = collect_disjoint<false>(group, state, first, width);
            if (messages.mask == 0) break;
            exec::far(take_batch<Group>)(group, state, messages);
            found = true;
        }
    }
    return found;
}

// Takes all messages that have arrived, and tells their sources.
template <class Group>
DCUDA_COLD bool answer_sources(Group group, shared_state shared) {
    rank_state& state = shared.get();
    const bool found = take_messages(group, shared);
    return give_credit(group, state, 0) || found;
}

DCUDA_COLD bool receive_meanwhile(lone_thread leader, shared_state shared) { return answer_sources(leader, shared); }

// How often sources have asked for credit. PERF: loaded early in an operation, used late (answer_requests).
DCUDA_DEVICE std::uint32_t load_requests(const rank_state& state) { return load_relaxed(&state.status->requests); }

// In every operation: a source that waits for credit gets it. True if messages were taken, or credit given.
template <class Group>
DCUDA_DEVICE bool answer_requests(const Group& group, rank_state& state, std::uint32_t requests) {
    endpoint& own = state.own.of(group);
    if (!any(group, requests != own.requests_seen)) return false;
    sync(group);
    if (group.leads()) own.requests_seen = requests;
    return exec::far(answer_sources<lead_warp>)(group, state);
}

// The same as a function of its own, for fast paths that have seen that somebody asks. `IsFar`: for
// send_to_far_target().
template <bool IsFar = false>
DCUDA_COLD void answer_new_requests(lead_warp warp, shared_state shared) {
    rank_state& state = shared.get();
    answer_requests(warp, state, load_requests(state));
}

} // namespace dcuda::detail
