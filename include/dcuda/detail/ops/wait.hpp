// SPDX-License-Identifier: BSD-3-Clause
// Waiting for notifications: those that come as messages, and those that are counted.
#pragma once

#include "dcuda/detail/ops/check.hpp"
#include "dcuda/detail/ops/mailbox.hpp"

namespace dcuda::detail {

// Whether a rank may wait for that; else the run ends. The lead warp.
DCUDA_DEVICE bool check_wait(const lead_warp& warp, rank_state& state, operation where, std::uint32_t tag,
                             std::uint32_t count) {
#if DCUDA_CHECKS
    const bool bad_tag = tag >= state.device.tags;
    if (!bad_tag && static_cast<std::int32_t>(count) >= 0) return true;
    if (warp.leads()) {
        const lone_thread leader = exec::lead_access::alone();
        if (bad_tag)
            report_fault(leader, state, fault::tag, where, 0, 0, tag, 0, state.device.tags);
        else
            report_fault(leader, state, fault::count, where, 0, tag, count, 0, 0);
    }
    return false;
#else
    (void)warp, (void)state, (void)where, (void)tag, (void)count;
    return true;
#endif
}

// What a wait has come to.
enum class wait_result : unsigned {
    enough, // what was waited for has come, and is consumed
    ended,  // the run has ended
    share,  // all warps are to place state.messages
    none,   // a test: not enough has come
};

// Whether that many notifications are there; consumes them if so. `counter`: the last known value of the tag's counter;
// `arrived`: how many are there, for the leader.
template <class Group>
DCUDA_DEVICE bool consume(const Group& group, rank_state& state, std::uint32_t tag, std::uint32_t expected,
                          std::uint32_t counter, std::uint32_t& arrived) {
    tag_entry& entry = find_tag(group, state, tag);
    bool enough = false;
    if (group.leads()) {
        entry.record.counter = counter;
        // Counts wrap around; their difference does not as long as fewer than 2^32 notifications are unconsumed.
        arrived = counter - entry.record.consumed;
        enough = arrived >= expected;
        if (enough) entry.record.consumed += expected;
    }
    return any(group, enough);
}

// The last known value of the tag's counter.
template <class Group>
DCUDA_DEVICE std::uint32_t known_counter(const Group& group, rank_state& state, std::uint32_t tag) {
    const tag_entry& entry = find_tag(group, state, tag);
    return broadcast(group, group.leads() ? entry.record.counter : 0, 0);
}

// One poll of the tag's counter. If it has changed, what its sources had sent as messages before is taken first: a
// source whose queue is full counts its notifications, and they must not overtake its messages.
// ORDER notify-observe: one acquire synchronizes with the releases of all sources that the value counts.
template <class Group>
DCUDA_DEVICE bool poll_counter(const Group& group, rank_state& state, std::uint32_t now, std::uint32_t& counter,
                               std::uint32_t tag) {
    now = broadcast(group, now, 0);
    if (now == counter) return false;
    acquire_after<order_tag::notify_observe>(state.notification_scope, state.counters + tag);
    sync(group);
    counter = now;
    exec::far(take_messages<Group>)(group, state);
    return true;
}

enum class poll_outcome { nothing, something, share };

#if DCUDA_WARPS

// More payload than this in one batch is placed by all warps of the block.
inline constexpr std::uint32_t shared_batch_packets = 96;

// Leaves a batch to all warps of the block. The lead warp, before a barrier of the block.
DCUDA_DEVICE void post_batch(const lead_warp& warp, rank_state& state, const batch& messages) {
    mailbox_header header = messages.header;
    header.words[1] |= messages.queue << posted_queue_shift;
    state.messages[warp.index] = {header, messages.packet};
    sync(warp); // all have read the books that now change
    if (warp.leads()) {
        state.own.of(warp).posted_mask = messages.mask;
        state.own.of(warp).posted_width = messages.width;
    }
}

// That batch, as far as placing it goes. All threads of a full warp, after that barrier.
DCUDA_DEVICE batch posted_batch_of(const warp_group& warp, const rank_state& state) {
    const posted_message mine = state.messages[warp.index];
    batch messages{0, mine.header, mine.header.words[1] >> posted_queue_shift, mine.packet, 0, 0, 1};
    messages.header.words[1] &= (1u << posted_queue_shift) - 1;
    messages.end = sum_of_rows(warp, messages.header.packets(), warp.index, 1, warp.count);
    return messages;
}

// All full warps of the block place the batch, between two barriers of the block.
DCUDA_COLD void place_posted_batch(shared_state shared) {
    rank_state& state = shared.get();
    const unsigned index = state.group().thread(), threads = state.group().threads() / 32 * 32;
    if (index >= threads) return;
    const warp_group warp{index % 32, 32};
    place(warp, state, posted_batch_of(warp, state), index, threads);
}

#endif

// Looks once at everything. A batch with much payload is left to all warps if `may_share`.
template <class Group>
DCUDA_DEVICE poll_outcome poll_notifications(const Group& group, rank_state& state, std::uint32_t tag,
                                             std::uint32_t& counter, bool may_share) {
    endpoint& own = state.own.of(group);
    // PERF: these loads are under way at the same time as those of the headers.
    const std::uint32_t now = group.leads() ? load_relaxed(state.counters + tag) : 0;
    const std::uint32_t requests = load_requests(state);
    bool found = false;
    if (state.device.queues.packets != 0) find_queues(group, state);
    for (std::uint32_t first = 0; first < own.queues; first += group.count) {
        const std::uint32_t width = own.queues - first < group.count ? own.queues - first : group.count;
        const batch messages = collect_disjoint(group, state, first, width);
        if (messages.mask == 0) continue;
        found = true;
#if DCUDA_WARPS
        // PERF: a warp alone takes 0.4 us longer for three rows of packets than three warps (H200, 2026-11-21).
        if (may_share && packets_of(group, messages) > shared_batch_packets) {
            acquire_batch(group, state, messages);
            post_batch(group, state, messages);
            return poll_outcome::share;
        }
#endif
        exec::far(take_batch<Group>)(group, state, messages);
    }
    (void)may_share;
    if (poll_counter(group, state, now, counter, tag)) found = true;
    if (found) give_credit(group, state, 2);
    if (answer_requests(group, state, requests)) found = true;
    return found ? poll_outcome::something : poll_outcome::nothing;
}

// Waits in all cases; again, after all warps have placed a batch. The lead warp.
DCUDA_COLD unsigned await_notifications(lead_warp warp, shared_state shared, std::uint32_t tag, std::uint32_t expected,
                                        bool again) {
    rank_state& state = shared.get();
    if (!again && !check_wait(warp, state, operation::wait_notifications, tag, expected))
        return static_cast<unsigned>(wait_result::ended);
    endpoint& own = state.own.of(warp);
#if DCUDA_WARPS
    if (again) {
        batch messages = posted_batch_of(warp, state);
        messages.mask = own.posted_mask;
        messages.width = own.posted_width;
        messages.row = warp.index / messages.width;
        settle(warp, state, messages);
        give_credit(warp, state, 2);
        if (warp.leads()) count_as_new_wait(exec::lead_access::alone(), state);
    }
#endif
    const bool may_share = DCUDA_WARPS != 0 && state.group().threads() >= 64;
    std::uint32_t counter = known_counter(warp, state, tag), arrived = 0;
    bool enough =
        consume(warp, state, tag, expected, counter, arrived); // they came while we waited for others, or shared
    if (!enough && !again && warp.leads())
        begin_wait(own, waiting::notifications, operation::wait_notifications, tag, expected);
    if (!enough) give_credit(warp, state, 2);
    bool shares = false;
    if (!enough)
        poll_until(
            [&](unsigned) {
                const poll_outcome found = poll_notifications(warp, state, tag, counter, may_share);
                if (found == poll_outcome::nothing) return poll_result::nothing;
                if (warp.leads()) count_as_new_wait(exec::lead_access::alone(), state);
                shares = found == poll_outcome::share;
                enough = !shares && consume(warp, state, tag, expected, counter, arrived);
                return enough || shares ? poll_result::all : poll_result::something;
            },
            [&] {
                if (give_credit(warp, state, 0) && warp.leads()) count_as_new_wait(exec::lead_access::alone(), state);
                return any(warp, warp.leads() && keep_waiting(exec::lead_access::alone(), state, arrived));
            },
            &state.status->doorbell);
    if (shares) return static_cast<unsigned>(wait_result::share);
    if (warp.leads()) end_wait(exec::lead_access::alone(), state);
    return static_cast<unsigned>(enough ? wait_result::enough : wait_result::ended);
}

// The same by tests: whether as many have come. Now and then, as an unsuccessful poll costs others something, it also
// sees that the run has ended, and tells sources what it has taken. The lead warp.
DCUDA_COLD unsigned poll_once(lead_warp warp, shared_state shared, std::uint32_t tag, std::uint32_t expected) {
    constexpr std::uint32_t tests_between = DCUDA_BACKEND_CUDA ? 16 : 1;
    rank_state& state = shared.get();
    if (!check_wait(warp, state, operation::test_notifications, tag, expected))
        return static_cast<unsigned>(wait_result::ended);
    std::uint32_t counter = known_counter(warp, state, tag), arrived = 0;
    bool enough = consume(warp, state, tag, expected, counter, arrived);
    if (!enough && poll_notifications(warp, state, tag, counter, false) != poll_outcome::nothing)
        enough = consume(warp, state, tag, expected, counter, arrived);
    if (enough) return static_cast<unsigned>(wait_result::enough);
    const std::uint32_t tests = state.own.of(warp).unsuccessful_tests;
    sync(warp);
    if (warp.leads()) state.own.of(warp).unsuccessful_tests = tests + 1;
    exec::relax();
    if (tests % tests_between != 0) return static_cast<unsigned>(wait_result::none);
    give_credit(warp, state, 0);
    const bool ended = any(warp, warp.leads() && load_relaxed(state.device.aborted) != 0);
    if (ended && warp.leads()) store_relaxed(&state.ended, 1);
    return static_cast<unsigned>(ended ? wait_result::ended : wait_result::none);
}

#if DCUDA_WARPS

inline constexpr unsigned most_predicted_bytes = 96 * packet_payload_bytes;
inline constexpr unsigned most_predicted_messages = 64;
inline constexpr unsigned predicted_polls = 64; // some 80 us

// The message that a predicted wait expects, and what else each thread watches.
struct prediction {
    std::uint32_t queue;   // that the message comes in,
    const packet* header;  // its slot there,
    const packet* payload; // and the queue's slots
    queue_position begin;  // of the message
    std::uint32_t bytes;   // of payload, like the last one
    std::uint32_t tag;
    // A thread that watches another queue: where a message comes next, behind those with other tags.
    const packet* head;        // null: this thread watches another word, or nothing
    const std::uint32_t* word; // the sequence number there, or that word; null: nothing
    std::uint32_t value;       // what the number becomes; what the word is and must stay
};

enum class prediction_result {
    waiting, // nothing has come that matters
    taken,   // the message, and its payload is in place
    other,   // another message has the tag: in the queue, and with the bytes, that the prediction says now
    wrong,   // something else has come, or nothing for long
};

// This thread watches the place of its queue with this position.
DCUDA_DEVICE void watch_position(const full_warp& warp, const rank_state& state, prediction& expected,
                                 std::uint32_t position) {
    expected.head = queue_at(state, warp.index) + state.device.queues.header(position);
    expected.word = &expected.head->sequence;
    expected.value = position + 1;
}

// Something has come beside the expected message; the words of the threads in `mask` say so. A message with another tag
// is left for the wait that it belongs to, and its thread watches the place behind it. PERF: not on the expected
// message's way.
DCUDA_DEVICE prediction_result look_elsewhere(const full_warp& warp, rank_state& state, prediction& expected,
                                              unsigned mask) {
    if (mask >> queues_per_mailbox != 0) return prediction_result::wrong;
    const bool has_come = (mask >> warp.index & 1) != 0;
    mailbox_header found{};
    bool is_next = false;
    if (has_come) {
        const packet head = load_packet<order_tag::message_observe>(expected.head, expected.value);
        found = {{head.payload[0], head.payload[1], head.payload[2]}};
        if (head.sequence != expected.value) found.words[1] = message_is_quiet; // never: its number has been seen
        is_next = expected.value == state.own.of(warp).inbound[warp.index].taken.messages + 1;
    }
    const bool has_tag = has_come && found.tag() == expected.tag;
    // What has the tag and is behind others cannot be taken before them; quiet messages are nobody's.
    if (any(warp, !found.is_plain() || (has_tag && !is_next))) return prediction_result::wrong;
    const unsigned hits = vote(warp, has_tag);
    if (hits == 0) {
        if (has_come) watch_position(warp, state, expected, expected.value);
        return prediction_result::waiting;
    }
    expected.queue = lowest(hits);
    expected.bytes = broadcast(warp, found.bytes(), expected.queue);
    return prediction_result::other;
}

// Stores a packet of payload where it belongs. Addresses and sizes are multiples of 4.
DCUDA_DEVICE void place_words(std::byte* target, std::uint32_t bytes, std::uint32_t number, const packet& part) {
    const std::uint32_t at = number * packet_payload_bytes;
    auto* const words = reinterpret_cast<std::uint32_t*>(target + at);
    words[0] = part.payload[0];
    if (at + 4 < bytes) words[1] = part.payload[1];
    if (at + 8 < bytes) words[2] = part.payload[2];
}

// The payload of a message whose header has come: this thread's packets from `number` on. The lead warp.
// PERF: two loads are under way at a time.
DCUDA_DEVICE void place_rest(const full_warp& warp, rank_state& state, const prediction& expected, std::byte* target,
                             std::uint32_t number) {
    const queue_shape rings = state.device.queues;
    const std::uint32_t packets = packets_for(expected.bytes), begin = expected.begin.packets;
    DCUDA_NO_UNROLL
    for (; number < packets; number += 2 * warp.count) {
        const std::uint32_t other = number + warp.count;
        const packet* const slot = expected.payload + rings.packet(begin + number);
        const packet* const other_slot = expected.payload + rings.packet(begin + other);
        packet part = load_packet<order_tag::message_observe>(slot, begin + number + 1), other_part{};
        if (other < packets) other_part = load_packet<order_tag::message_observe>(other_slot, begin + other + 1);
        if (await_packet<order_tag::message_observe>(slot, begin + number + 1, part, state.device.aborted))
            place_words(target, expected.bytes, number, part);
        if (other < packets &&
            await_packet<order_tag::message_observe>(other_slot, begin + other + 1, other_part, state.device.aborted))
            place_words(target, expected.bytes, other, other_part);
    }
}

// Looks until the expected message is there, and places it. Unless it is taken, nothing has happened. The lead warp.
//
// PERF: to look at the header first and then at the payload costs another trip to the L2 cache, 0.2 us; to look for all
// payload of a large message takes so much of the multiprocessor that others come late (H200, 2026-11-24: 1 KiB with
// both neighbours at 16 ranks per multiprocessor 27.6 us, 22.8 without). So each thread looks for one packet. All that
// can be is found before the polling: instructions after it are latency, about 5 cycles each. That is why a message of
// another size is looked at again, with a prediction that fits.
DCUDA_DEVICE prediction_result take_predicted(const full_warp& warp, rank_state& state, prediction& expected) {
    const std::uint32_t packets = packets_for(expected.bytes);
    const bool looks = warp.index < packets;
    const std::uint32_t sequence = expected.begin.packets + warp.index + 1;
    const std::uint32_t tag_and_bytes = expected.tag << 16 | expected.bytes;
    const packet* const slot = expected.payload + state.device.queues.packet(sequence - 1);
    packet head, part{};
    DCUDA_NO_UNROLL
    for (unsigned polls = 0;; ++polls) {
        head = load_packet<order_tag::message_observe>(expected.header, expected.begin.messages + 1);
        if (looks) part = load_packet<order_tag::message_observe>(slot, sequence);
        const std::uint32_t now = expected.word != nullptr ? load_relaxed(expected.word) : 0;
        const bool needed = looks & (head.payload[2] == tag_and_bytes);
        const bool other = expected.word != nullptr && (now == expected.value) == (expected.head != nullptr);
        // A request, and what else is no message, does not wait until none of these comes at once.
        const bool complete = (head.sequence == expected.begin.messages + 1) & (!needed | (part.sequence == sequence)) &
                              !(other & (expected.head == nullptr));
        if (vote(warp, complete) == 0xffff'ffffu) break;
        if (const unsigned mask = vote(warp, other); mask != 0) {
            const prediction_result found = look_elsewhere(warp, state, expected, mask);
            if (found != prediction_result::waiting) return found;
        }
        if (polls == predicted_polls) return prediction_result::wrong;
        leave_to_others(polls);
        exec::relax();
    }
    const mailbox_header message{{head.payload[0], head.payload[1], head.payload[2]}};
    // Bytes that are no words, or of which one warp should not place so many?
    if (!message.is_plain() || ((message.words[0] | message.words[2]) & 3) != 0 ||
        message.bytes() > most_predicted_bytes)
        return prediction_result::wrong;
    if (message.words[2] != tag_and_bytes) {
        expected.bytes = message.bytes();
        return message.tag() == expected.tag ? prediction_result::other : prediction_result::wrong;
    }
    // ORDER notify-observe: what the source released before this message. Each thread has seen the header itself.
    if (message.releases()) acquire_packet<order_tag::message_observe>(state.notification_scope);
    if (looks) place_words(message.target(), expected.bytes, warp.index, part);
    if (packets > warp.count) place_rest(warp, state, expected, message.target(), warp.index + warp.count);
    return prediction_result::taken;
}

// Where no messages come at all: until as many have been counted as make the wait's end. The lead warp.
DCUDA_COLD bool await_counter(lead_warp warp, shared_state shared, std::uint32_t tag, unsigned place,
                              std::uint32_t expected) {
    rank_state& state = shared.get();
    tag_entry& entry = state.own.of(warp).tags[place];
    const std::uint32_t end = entry.record.consumed + expected;
    DCUDA_NO_UNROLL
    for (unsigned polls = 0; polls < predicted_polls; ++polls) {
        // Each thread loads for itself, so each one's fence acquires what it has seen.
        const std::uint32_t counter = load_relaxed(state.counters + tag);
        if (any(warp, static_cast<std::int32_t>(counter - end) < 0)) {
            exec::relax();
            continue;
        }
        acquire_after<order_tag::notify_observe>(state.notification_scope, state.counters + tag);
        // A source may have sent messages before it counted.
        if (any(warp, load_relaxed(&state.status->queues_claimed) != 0)) return false;
        sync(warp); // all have read the record
        if (warp.leads()) entry.record = {end, counter};
        return true;
    }
    return false;
}

// What the lead warp watches while it waits for a message of `record`'s tag in the queue with this number.
DCUDA_DEVICE prediction predict(const full_warp& warp, rank_state& state, std::uint32_t number, std::uint32_t bytes,
                                std::uint32_t tag, const tag_record& record) {
    endpoint& own = state.own.of(warp);
    const queue_shape rings = state.device.queues;
    const packet* const slots = queue_at(state, number);
    const queue_position begin = own.inbound[number].taken;
    prediction expected{number, slots + rings.header(begin.messages), slots, begin, bytes, tag, nullptr, nullptr, 0};
    if (warp.index < own.queues && warp.index != number) {
        watch_position(warp, state, expected, own.inbound[warp.index].taken.messages);
    } else if (warp.index == 29) {
        expected.word = &state.status->requests;
        expected.value = own.requests_seen;
    } else if (warp.index == 30) {
        expected.word = state.counters + tag;
        expected.value = record.counter;
    } else if (warp.index == 31 && own.queues < queues_per_mailbox) {
        expected.word = &state.status->queues_claimed;
        expected.value = own.queues;
    }
    return expected;
}
static_assert(queues_per_mailbox <= 29);

// The predicted wait: the missing notifications come soon, as messages in queues of which it is known that such come.
// False: it was not so; the general wait goes on. The lead warp.
//
// PERF: a kernel calls it directly. By exec::far, some 25 registers would be loaded again after the message has come.
DCUDA_COLD bool await_predicted(lead_warp lead, shared_state shared, std::uint32_t tag, std::uint32_t count) {
    rank_state& state = shared.get();
    if (lead.count != 32) return false;
    const full_warp warp(lead);
    endpoint& own = state.own.of(warp);
    const unsigned place = find_near_tag(warp, own, tag);
    if (place == cached_tags) return false;
    tag_entry& entry = own.tags[place];
    DCUDA_NO_UNROLL
    for (;;) {
        const tag_entry known = entry;
        const tag_record record = known.record;
        const std::uint32_t missing = count - (record.counter - record.consumed);
        if (static_cast<std::int32_t>(missing) <= 0 && static_cast<std::int32_t>(count) >= 0) { // they came before
            sync(warp); // all have read the entry
            if (warp.leads()) entry.record.consumed += count;
            return true;
        }
        if (own.queues == 0) return await_counter(warp, state, tag, place, count);
        const std::uint32_t number = known.queue;
        if (missing > most_predicted_messages || number >= own.queues) return false;
        inbound_queue& queue = own.inbound[number];
        prediction expected = predict(warp, state, number, known.bytes, tag, record);
        sync(warp); // all have read the queue
        if (warp.leads() && credit_due(queue, state.device.queues, 2)) send_credit(queue);
        const bool is_steady = known.origin == number + 1 && own.followers[number] == number;
        const prediction_result result = take_predicted(warp, state, expected);
        if (result == prediction_result::wrong) return false;
        sync(warp); // all have read the books that now change
        if (warp.leads()) {
            if (result == prediction_result::taken) {
                queue.taken = {expected.begin.messages + 1, expected.begin.packets + packets_for(known.bytes)};
                entry.record.consumed = record.consumed - 1 + (missing == 1 ? count : 0);
                if (!is_steady) predict_next(own, entry, number, known.bytes);
            } else {
                entry.queue = static_cast<std::uint16_t>(expected.queue);
                entry.bytes = static_cast<std::uint16_t>(expected.bytes);
            }
        }
        if (result == prediction_result::taken && missing == 1) return true;
        sync(warp);
    }
}

#else

inline bool await_predicted(lead_warp, shared_state, std::uint32_t, std::uint32_t) { return false; }

#endif

// What is left when the lead warp alone could not end a wait. All threads of the rank.
DCUDA_COLD void finish_wait(shared_state shared, std::uint32_t tag, std::uint32_t expected, unsigned result) {
    rank_state& state = shared.get();
    while (static_cast<wait_result>(result) == wait_result::share) {
#if DCUDA_WARPS
        place_posted_batch(state);
#endif
        state.group().sync();
        result = exec::decide(state.group(), state.decision, [&](const lead_warp& warp) {
            return await_notifications(warp, state, tag, expected, true);
        });
    }
    if (static_cast<wait_result>(result) == wait_result::ended) exec::exit_thread();
}

// Tells the host of notifications that have come and that the rank has not waited for. After the barrier of the rank's
// end, which all have come before. The lead warp.
DCUDA_COLD void report_unconsumed(lead_warp warp, shared_state shared) {
    rank_state& state = shared.get();
    endpoint& own = state.own.of(warp);
    if (warp.leads())
        for (unsigned place = 0; place < cached_tags; ++place)
            if (own.tag_keys[place] != no_tag_key) state.tag_records[own.tag_keys[place]] = own.tags[place].record;
    sync(warp);
    std::uint32_t tags = 0, first = 0, count = 0;
    for (std::uint32_t begin = 0; begin < state.device.tags; begin += warp.count) {
        const std::uint32_t tag = begin + warp.index;
        const std::uint32_t left =
            tag < state.device.tags ? load_relaxed(state.counters + tag) - state.tag_records[tag].consumed : 0;
        const unsigned hits = vote(warp, left != 0);
        if (tags == 0 && hits != 0) {
            first = begin + lowest(hits);
            count = broadcast(warp, left, lowest(hits));
        }
        tags += bits_in(hits);
    }
    if (tags != 0 && warp.leads())
        send_command(exec::lead_access::alone(), state,
                     make_command(state.device_rank, unconsumed_fields{count, first, tags}));
}

// All threads of the rank.
DCUDA_DEVICE void wait_notifications(rank_state& state, int tag, int count) {
    const auto wanted = static_cast<std::uint32_t>(tag), expected = static_cast<std::uint32_t>(count);
    const unsigned result = exec::decide(state.group(), state.decision, [&](const lead_warp& warp) {
        if (await_predicted(warp, state, wanted, expected)) return static_cast<unsigned>(wait_result::enough);
        return exec::far(await_notifications)(warp, state, wanted, expected, false);
    });
    if (static_cast<wait_result>(result) != wait_result::enough)
        exec::far(finish_wait)(state, wanted, expected, result);
}

// All threads of the rank, with the same result.
DCUDA_DEVICE bool test_notifications(rank_state& state, int tag, int count) {
    const unsigned result = exec::decide(state.group(), state.decision, [&](const lead_warp& warp) {
        return exec::far(poll_once)(warp, state, static_cast<std::uint32_t>(tag), static_cast<std::uint32_t>(count));
    });
    if (static_cast<wait_result>(result) == wait_result::ended) exec::exit_thread();
    return static_cast<wait_result>(result) == wait_result::enough;
}

} // namespace dcuda::detail
