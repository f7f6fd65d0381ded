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

inline constexpr unsigned most_predicted_rows = 3; // of packets that a thread looks at in a predicted wait
inline constexpr unsigned predicted_polls = 64;    // about 30 us

// What a predicted wait expects, and what else may come.
struct prediction {
    const packet* header;  // the slots of the header,
    const packet* payload; // and of the queue's payload
    queue_position begin;  // of the message
    std::uint32_t packets; // of payload
    std::uint32_t tag;
    // What else may come ends the wait: a message in another queue; a request for credit, a notification that is
    // counted, another source. This thread's word of these becomes, or no longer is, the value.
    const std::uint32_t* word;
    std::uint32_t value;
    bool becomes;
};

// Looks until the message is there, with this many packets of payload for each thread, and places it. False if anything
// else has come, or nothing for long; then nothing has happened. `bytes`: of the message. The lead warp.
//
// PERF: to look at the header first and then at the payload costs another trip to the L2 cache, 0.16 us. All that can
// be is found before the polling: instructions after it are latency, about 5 cycles each (H200, 2026-11-21).
template <unsigned Rows>
DCUDA_DEVICE bool take_predicted(const full_warp& warp, rank_state& state, const prediction& expected,
                                 std::uint32_t& bytes) {
    const queue_shape rings = state.device.queues;
    const packet* slots[Rows + 1];
    DCUDA_UNROLL
    for (unsigned i = 0; i != Rows; ++i)
        slots[i] = expected.payload + rings.packet(expected.begin.packets + warp.index + 32 * i);
    packet head, parts[Rows + 1] = {};
    DCUDA_NO_UNROLL
    for (unsigned polls = 0;; ++polls) {
        head = load_packet<order_tag::message_observe>(expected.header, expected.begin.messages + 1);
        DCUDA_UNROLL
        for (unsigned i = 0; i != Rows; ++i)
            if (warp.index + 32 * i < expected.packets)
                parts[i] =
                    load_packet<order_tag::message_observe>(slots[i], expected.begin.packets + warp.index + 32 * i + 1);
        const std::uint32_t now = expected.word != nullptr ? load_relaxed(expected.word) : 0;
        bool complete = head.sequence == expected.begin.messages + 1;
        DCUDA_UNROLL
        for (unsigned i = 0; i != Rows; ++i) {
            const std::uint32_t number = warp.index + 32 * i;
            const bool needed = number < expected.packets && number * packet_payload_bytes < (head.payload[2] & 0xffff);
            complete = complete && (!needed || parts[i].sequence == expected.begin.packets + number + 1);
        }
        if (vote(warp, complete) == 0xffff'ffffu) break;
        const bool other = expected.word != nullptr && (now == expected.value) == expected.becomes;
        if (vote(warp, other) != 0 || polls == predicted_polls) return false;
        exec::relax();
    }
    const mailbox_header message{{head.payload[0], head.payload[1], head.payload[2]}};
    bytes = message.bytes();
    // More than was foreseen, another tag, bytes that are no words?
    if (!message.is_plain() || bytes > expected.packets * packet_payload_bytes || message.tag() != expected.tag ||
        ((message.words[0] | message.words[2]) & 3) != 0)
        return false;
    // ORDER notify-observe: what the source released before this message. Each thread has seen the header itself.
    if (message.releases()) acquire_packet<order_tag::message_observe>(state.notification_scope);
    DCUDA_UNROLL
    for (unsigned i = 0; i != Rows; ++i) {
        const std::uint32_t at = (warp.index + 32 * i) * packet_payload_bytes;
        if (at >= bytes) break;
        auto* const words = reinterpret_cast<std::uint32_t*>(message.target() + at);
        words[0] = parts[i].payload[0];
        if (at + 4 < bytes) words[1] = parts[i].payload[1];
        if (at + 8 < bytes) words[2] = parts[i].payload[2];
    }
    return true;
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

// The predicted wait: one notification is missing, and it comes soon, as a message like the last one with this tag:
// from the same source, and with at most as much payload. Each thread of the lead warp looks at the header and, at the
// same time, at its own packets of payload, at most `Rows` of them. False: it was not so, and nothing has happened. The
// lead warp.
//
// PERF: few rows need few registers, so a kernel can call that function directly. By exec::far, some 25 registers would
// be loaded again after the message has come.
template <unsigned Rows>
DCUDA_COLD bool await_predicted(lead_warp lead, shared_state shared, std::uint32_t tag, std::uint32_t count) {
    rank_state& state = shared.get();
    if (lead.count != 32) return false;
    const full_warp warp(lead);
    endpoint& own = state.own.of(warp);
    const unsigned place = find_near_tag(warp, own, tag);
    if (place == cached_tags) return false;
    if (own.queues == 0) return await_counter(warp, state, tag, place, count);
    tag_entry& entry = own.tags[place];
    const tag_record record = entry.record;
    const std::uint32_t number = entry.queue, packets = entry.packets;
    if (record.counter - record.consumed + 1 != count || number >= own.queues || packets > 32 * most_predicted_rows)
        return false;
    if constexpr (Rows != most_predicted_rows)
        if (packets > 32 * Rows) return exec::far(await_predicted<most_predicted_rows>)(lead, shared, tag, count);
    inbound_queue& queue = own.inbound[number];
    const queue_shape rings = state.device.queues;
    const packet* const slots = queue_at(state, number);
    prediction expected{
        slots + rings.header(queue.taken.messages), slots, queue.taken, packets, tag, nullptr, 0, warp.index < 29};
    if (warp.leads() && credit_due(queue, rings, 2)) send_credit(queue);
    if (warp.index < own.queues && warp.index != number) {
        const std::uint32_t position = own.inbound[warp.index].taken.messages;
        expected.word = &queue_at(state, warp.index)[rings.header(position)].sequence;
        expected.value = position + 1;
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
    std::uint32_t bytes = 0;
    const bool taken = Rows == 1 && packets == 0 ? take_predicted<0>(warp, state, expected, bytes)
                                                 : take_predicted<Rows>(warp, state, expected, bytes);
    if (!taken) return false;
    sync(warp); // all have read the books that now change
    if (warp.leads()) {
        const std::uint32_t came = packets_for(bytes);
        queue.taken = {expected.begin.messages + 1, expected.begin.packets + came};
        entry = {{record.counter, record.counter},
                 static_cast<std::uint16_t>(number),
                 static_cast<std::uint16_t>(came),
                 static_cast<std::uint16_t>(number + 1)};
    }
    return true;
}

#else

template <unsigned>
bool await_predicted(lead_warp, shared_state, std::uint32_t, std::uint32_t) {
    return false;
}

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
        if (await_predicted<1>(warp, state, wanted, expected)) return static_cast<unsigned>(wait_result::enough);
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
