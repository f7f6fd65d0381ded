// SPDX-License-Identifier: BSD-3-Clause
// The fast path of waits: the message that is expected next. wait.hpp has what goes on where it is not so.
#pragma once

#include "dcuda/detail/ops/fast/caller.hpp"
#include "dcuda/detail/ops/mailbox.hpp"

namespace dcuda::detail {

#if DCUDA_WARPS

inline constexpr unsigned most_predicted_messages = 64;
inline constexpr unsigned most_empty_polls = 8;  // of all near queues
inline constexpr unsigned polls_for_watch = 4;   // of which one looks for other things, too
inline constexpr unsigned watches_in_round = 16; // some 20 us, and more with pauses
// Then the general wait goes on: on the CPU backend, where it sleeps.
inline constexpr unsigned most_rounds = DCUDA_BACKEND_CPU ? 2 : UINT32_MAX;

// The message that a predicted wait expects.
struct prediction {
    std::uint32_t queue;  // that it comes in
    queue_position begin; // there
    std::uint32_t bytes;  // of payload, like the last one
    std::uint32_t tag;
};

// What a thread watches beside the expected message: the sequence number of a queue's next header, which becomes
// `value`; or a word that is `value`, and whose change ends the prediction.
struct watched_word {
    const std::uint32_t* word;
    std::uint32_t value;
    bool is_sequence;
    DCUDA_DEVICE bool has_changed(std::uint32_t now) const { return (now == value) == is_sequence; }
};

// The word of this thread. `skipped`: messages with other tags that it has seen at the head of its queue, and left to
// the waits that they belong to; it watches the place behind them.
DCUDA_DEVICE watched_word watch(const full_warp& warp, const rank_state& state, endpoint& own,
                                const prediction& expected, std::uint32_t skipped, std::uint32_t counter) {
    const bool is_sequence = warp.index < near_queues_of(own) && warp.index != expected.queue;
    if (is_sequence) {
        const inbound_queue& queue = own.inbound[warp.index];
        const std::uint32_t position = queue.taken.messages + skipped;
        return {&slot_at(state, queue.place, state.device.queues.header(position))->sequence, position + 1, true};
    }
    if (warp.index == 29) return {&state.status->far_messages, own.far_taken[0] + own.far_taken[1], false};
    if (warp.index == 30) return {state.counters + expected.tag, counter, false};
    if (warp.index == 31 && own.queues < state.device.partner_limit)
        return {&state.status->queues_claimed, own.queues, false};
    return {&state.status->requests, own.requests_seen, false};
}
static_assert(near_queues <= 29);

// Whether the lead warp can place the message by words, and not too many of them.
DCUDA_DEVICE bool is_placed_by_words(const mailbox_header& message) {
    return message.is_plain() & (((message.words[0] | message.words[2]) & 3) == 0) &
           ((message.words[2] & 0xffff) <= most_warp_bytes);
}

// What has come beside the expected message, or in its place.
struct surprise {
    enum { none, other_tags, same_tag, before, unknown } kind; // before: in the expected queue, with another tag
    std::uint32_t queue, bytes; // of a message with the same tag: as it is to be expected now
    bool in_own_queue;          // other_tags: the queue that this thread watches has one
};

// Finds out. `has_changed`: this thread's word has. `skipped`: see watch(). The lead warp.
DCUDA_COLD surprise look_elsewhere(full_warp warp, shared_state shared, const prediction expected, bool has_changed,
                                   std::uint32_t skipped) {
    rank_state& state = shared.get();
    endpoint& own = state.own.of(warp);
    const bool is_expected_queue = warp.index == expected.queue, is_queue = warp.index < near_queues_of(own);
    if (any(warp, has_changed && !is_queue)) return {surprise::unknown, 0, 0, false};
    const std::uint32_t position = is_queue ? own.inbound[warp.index].taken.messages + skipped : 0;
    packet head{};
    if (is_queue && (has_changed || is_expected_queue))
        head = load_packet<order_tag::message_observe>(
            slot_at(state, own.inbound[warp.index].place, state.device.queues.header(position)), position + 1);
    const bool has_come = is_queue && (has_changed || is_expected_queue) && head.sequence == position + 1;
    const mailbox_header message{{head.payload[0], head.payload[1], head.payload[2]}};
    const bool has_tag = has_come && message.tag() == expected.tag;
    // Quiet messages are nobody's. In the expected queue nothing is left. What has the tag and is behind others cannot
    // be taken before them.
    const bool is_before = has_come && is_expected_queue && !has_tag;
    const bool is_unknown = has_come && (!message.is_plain() || (has_tag && skipped != 0) ||
                                         ((has_tag || is_before) && !is_placed_by_words(message)));
    if (any(warp, is_unknown)) return {surprise::unknown, 0, 0, false};
    const unsigned hits = vote(warp, has_tag && (!is_expected_queue || message.bytes() != expected.bytes));
    if (hits != 0) return {surprise::same_tag, lowest(hits), broadcast(warp, message.bytes(), lowest(hits)), false};
    if (any(warp, is_before)) return {surprise::before, expected.queue, 0, false};
    const bool is_other = has_come && !has_tag;
    return {any(warp, is_other) ? surprise::other_tags : surprise::none, 0, 0, is_other};
}

// Stores a packet of payload where it belongs, if there is one with this number; not with -1. Addresses and sizes are
// multiples of 4.
DCUDA_DEVICE void place_words(std::byte* target, std::uint32_t bytes, std::uint32_t number, const packet& part) {
    const std::uint32_t at = number * packet_payload_bytes;
    auto* const words = reinterpret_cast<std::uint32_t*>(target + at);
    exec::store_if(words, part.payload[0], at < bytes);
    exec::store_if(words + 1, part.payload[1], at + 4 < bytes);
    exec::store_if(words + 2, part.payload[2], at + 8 < bytes);
}

// The payload of a message whose header has come, or what of it is behind the first packet of each thread (`IsRest`).
// `begin`: position of the first packet. The lead warp. PERF: two loads are under way at a time, and all threads go the
// same way: a thread without a packet looks at the last one, too.
template <bool IsRest>
DCUDA_COLD void place_payload(full_warp warp, shared_state shared, std::uint32_t place, std::uint32_t begin,
                              std::uint32_t bytes, std::byte* target) {
    rank_state& state = shared.get();
    const std::uint32_t last = packets_for(bytes) - 1;
    // Whether this packet, or with a higher number the last one, is here: `part`.
    const auto look_at = [&](std::uint32_t number, packet& part) {
        const std::uint32_t position = begin + (number < last ? number : last);
        part = load_packet<order_tag::message_observe>(slot_at(state, place, state.device.queues.packet(position)),
                                                       position + 1);
        return part.sequence == position + 1;
    };
    DCUDA_NO_UNROLL
    for (std::uint32_t number = (IsRest ? warp.count - 1 : 0) + warp.index; any(warp, number <= last);
         number += 2 * warp.count) {
        packet part, other_part;
        DCUDA_NO_UNROLL
        while (!all(warp, look_at(number, part) & look_at(number + warp.count, other_part)))
            if (any(warp, load_relaxed(state.device.aborted) != 0)) return; // the run has ended: who waits next sees it
        place_words(target, bytes, number, part);
        place_words(target, bytes, number + warp.count, other_part);
    }
}

// Takes the next message of a near queue, which has come; the lead warp can place its payload. The lead warp, with 32
// threads. PERF: called by exec::far where a fast path needs it.
// ORDER notify-observe: what the source released before this message. The leader has seen the header and acquires, and
// the warp's sync passes that on, before anything is placed.
DCUDA_COLD void take_next_message(lead_warp warp, shared_state shared, std::uint32_t number) {
    rank_state& state = shared.get();
    endpoint& own = state.own.of(warp);
    inbound_queue& queue = own.inbound[number];
    const queue_position begin = queue.taken;
    const packet head = load_packet<order_tag::message_observe>(
        slot_at(state, queue.place, state.device.queues.header(begin.messages)), begin.messages + 1);
    const mailbox_header message{{head.payload[0], head.payload[1], head.payload[2]}};
    unsigned place = find_near_tag(warp, own, message.tag());
    if (place == cached_tags) place = load_tag<lead_warp>(warp, state, message.tag());
    acquire_if<order_tag::message_observe>(state.job_scope, warp.leads() && message.releases());
    sync(warp);
    if (message.bytes() != 0)
        place_payload<false>(full_warp(warp), state, queue.place, begin.packets, message.bytes(), message.target());
    sync(warp); // all have read the books that now change, and all payload is in place
    if (warp.leads()) {
        queue.taken = {begin.messages + 1, begin.packets + message.packets()};
        --own.tags[place].record.consumed;
        predict_next(state, own, own.tags[place], number, message.bytes());
        if (credit_due(queue, state.device.queues, 2)) send_credit(queue);
    }
    sync(warp);
}

// Where no messages come at all: until as many have been counted as make the wait's end. The lead warp.
DCUDA_DEVICE bool await_counter(const full_warp& warp, rank_state& state, std::uint32_t tag, tag_entry& entry,
                                std::uint32_t expected) {
    const std::uint32_t end = entry.record.consumed + expected;
    DCUDA_NO_UNROLL
    for (unsigned polls = 0; polls < polls_for_watch * watches_in_round; ++polls) {
        // Each thread loads for itself, so each one's fence acquires what it has seen.
        const std::uint32_t counter = load_relaxed(state.counters + tag);
        if (any(warp, static_cast<std::int32_t>(counter - end) < 0)) {
            exec::relax();
            continue;
        }
        acquire_after<order_tag::notify_observe>(state.job_scope, state.counters + tag);
        // A source may have sent messages before it counted.
        if (any(warp, load_relaxed(&state.status->queues_claimed) != 0)) return false;
        sync(warp); // all have read the record
        if (warp.leads()) entry.record = {end, counter};
        return true;
    }
    return false;
}

// A wait for which no message is expected (any more): what it waits for has come before, or is counted. False: neither.
// The lead warp.
DCUDA_COLD bool await_no_message(full_warp warp, shared_state shared, std::uint32_t tag, std::uint32_t count,
                                 unsigned rounds) {
    rank_state& state = shared.get();
    endpoint& own = state.own.of(warp);
    const unsigned place = find_near_tag(warp, own, tag);
    // The general wait finds out what is wrong with a tag or a count.
    if (place == cached_tags || tag == no_tag_key || static_cast<std::int32_t>(count) < 0) return false;
    tag_entry& entry = own.tags[place];
    const std::uint32_t missing = count - (entry.record.counter - entry.record.consumed);
    if (static_cast<std::int32_t>(missing) > 0) return own.queues == 0 && await_counter(warp, state, tag, entry, count);
    sync(warp); // all have read the entry
    if (warp.leads()) {
        entry.record.consumed += count;
        if (rounds != 0) end_wait(exec::lead_access::alone(), state);
    }
    answer_requests(warp, state, load_requests(state));
    return true;
}

// What the leader does beyond counting when an expected message has been placed: after one that is not like the last
// one, the last of them before credit is due, or a long wait. The leader.
DCUDA_COLD void settle_predicted(lone_thread leader, shared_state shared, unsigned place, std::uint32_t number,
                                 std::uint32_t bytes, unsigned rounds) {
    rank_state& state = shared.get();
    endpoint& own = state.own.of(leader);
    inbound_queue& queue = own.inbound[number];
    predict_next(state, own, own.tags[place], number, bytes);
    if (credit_due(queue, state.device.queues, 2)) send_credit(queue);
    if (rounds != 0) end_wait(leader, state);
}

// A round of polls has found nothing: takes what has come with other tags, so that its sources can go on, and sees
// whether the run has ended. `arrived`: notifications so far. False: the run has ended. The lead warp.
DCUDA_COLD bool wait_another_round(full_warp warp, shared_state shared, std::uint32_t tag, std::uint32_t count,
                                   std::uint32_t arrived, unsigned rounds) {
    rank_state& state = shared.get();
    if (rounds == 0 && warp.leads())
        begin_wait(exec::lead_access::alone(), state, waiting::notifications, operation::wait_notifications, tag, count,
                   1, arrived);
    if (answer_sources<lead_warp>(warp, state) && warp.leads()) count_as_new_wait(exec::lead_access::alone(), state);
    return any(warp, warp.leads() && keep_waiting(exec::lead_access::alone(), state, arrived));
}

// How much of what a wait is for.
enum class taken_together { nothing, some, all };

// Takes the notifications with this tag that are at the heads of near queues, or come there soon: those of all sources
// at the same time. Only where none has payload. The lead warp.
//
// PERF: to take one after the other takes 1.1 us each: an exchange with 8 neighbours takes 10.7 us instead of 2.0
// (H200, 2026-11-29). Where none comes for some polls, await_predicted looks at one queue, which costs others less.
// ORDER notify-observe: each thread whose header releases acquires what it has seen, and the warp's sync passes it on.
DCUDA_COLD taken_together take_together(full_warp warp, shared_state shared, std::uint32_t tag, std::uint32_t count,
                                        unsigned rounds) {
    rank_state& state = shared.get();
    endpoint& own = state.own.of(warp);
    const unsigned place = own.tag_hints.at[own.tag_hints.slot(hash_of(tag))];
    tag_entry& entry = own.tags[place];
    const std::uint32_t consumed = entry.record.consumed, missing = count - (entry.record.counter - consumed);
    const bool is_expected = (own.tag_keys[place] == tag) & (missing - 1 < most_predicted_messages) &
                             (tag != no_tag_key) & (entry.bytes() == 0) & (own.queues != 0);
    if (any(warp, !is_expected)) return taken_together::nothing;
    const bool is_queue = warp.index < near_queues_of(own);
    inbound_queue& queue = own.inbound[is_queue ? warp.index : 0];
    const std::uint32_t first = queue.taken.messages, requests = load_requests(state);
    std::uint32_t next = first, left = missing;
    unsigned last = 0;     // the queue of the last one
    unsigned empty = 0;    // polls in a row
    bool is_other = false; // there is a message with the tag, and payload
    // Whoever waits for long leaves the caches to others.
    const unsigned most_empty = rounds != 0 ? 1 : most_empty_polls;
    DCUDA_NO_UNROLL
    while (static_cast<std::int32_t>(left) > 0 && empty < most_empty && !is_other) {
        const packet head = load_packet<order_tag::message_observe>(
            slot_at(state, queue.place, state.device.queues.header(next)), next + 1);
        const mailbox_header message{{head.payload[0], head.payload[1], head.payload[2]}};
        const bool has_come = is_queue & (head.sequence == next + 1);
        const bool is_taken = has_come & is_placed_by_words(message) & (message.words[2] == tag << 16);
        acquire_if<order_tag::message_observe>(state.job_scope, is_taken & message.releases());
        next += is_taken ? 1 : 0;
        is_other = any(warp, has_come & !is_taken & message.notifies() & (message.tag() == tag));
        const unsigned hits = vote(warp, is_taken);
        left -= bits_in(hits);
        empty = hits != 0 ? 0 : empty + 1;
        if (hits != 0)
            last = lowest(hits);
        else
            exec::relax();
    }
    if (left == missing) return taken_together::nothing;
    const bool is_done = static_cast<std::int32_t>(left) <= 0;
    sync(warp); // all have read the books that now change
    if (is_queue && next != first) {
        queue.taken.messages = next;
        if (credit_due(queue, state.device.queues, 2)) send_credit(queue);
    }
    if (warp.leads()) {
        entry.record.consumed = consumed - (missing - left) + (is_done ? count : 0);
        predict_next(state, own, entry, last, 0);
        if (rounds != 0 && is_done)
            end_wait(exec::lead_access::alone(), state);
        else if (rounds != 0)
            count_as_new_wait(exec::lead_access::alone(), state);
    }
    if (any(warp, requests != own.requests_seen)) answer_new_requests(warp, state);
    sync(warp);
    return is_done ? taken_together::all : taken_together::some;
}

// The predicted wait: the missing notifications come soon, as messages in queues of which it is known that such come.
// False: it was not so, and nothing has happened; or less has come than is missing. The general wait goes on. The lead
// warp.
//
// PERF: the leader looks for the header, and each thread behind it for a packet of payload, in one instruction: as the
// source has stored them (fast_message). To look at the header first would cost another trip to the L2 cache, 0.2 us;
// to look for more in each poll takes so much of the caches' bandwidth that, where ranks crowd a multiprocessor, a poll
// takes 2 us instead of 0.3 (H100, 2026-11-24). So other words are watched now and then only. While the first load is
// under way the warp finds out whether the message is expected at all. See fast_message for what branches cost.
DCUDA_DEVICE bool await_predicted(const full_warp& warp, rank_state& state, std::uint32_t tag, std::uint32_t count) {
    endpoint& own = state.own.of(warp);
    std::uint32_t skipped = 0;
    unsigned rounds = 0; // of polls without success
    DCUDA_NO_UNROLL
    for (;;) {
        if (count > 1) {
            const taken_together taken = exec::far(take_together)(warp, state, tag, count, rounds);
            if (taken == taken_together::all) return true;
            if (taken == taken_together::some) skipped = 0; // it may have answered requests, which takes all messages
        }
        const unsigned place = own.tag_hints.at[own.tag_hints.slot(hash_of(tag))];
        const std::uint32_t queues = exec::load_now(own.queues), key = exec::load_now(own.tag_keys[place]);
        const std::uint32_t requests_seen = exec::load_now(own.requests_seen);
        const queue_shape rings{exec::load_now(state.device.queues.headers),
                                exec::load_now(state.device.queues.packets)};
        const tag_entry known = own.tags[place];
        const std::uint32_t number = known.queue() % near_queues;
        const inbound_queue& queue = own.inbound[number];
        const queue_position begin = queue.taken, credited = queue.credited;
        const std::uint32_t queue_place = queue.place;
        // What this thread looks for: the header, or a packet of payload.
        std::uint32_t bytes, position;
        const packet* slot;
        bool has_part;
        const auto expect = [&](std::uint32_t size) {
            bytes = size;
            // PERF: a thread without a packet of payload loads the header, too, rather than branch.
            has_part = !warp.leads() && (warp.index - 1) * packet_payload_bytes < bytes;
            position = has_part ? begin.packets + warp.index - 1 : begin.messages;
            // Where there is no queue, any packet may be loaded: it is not looked at.
            slot = queues == 0
                       ? reinterpret_cast<const packet*>(state.status)
                       : slot_at(state, queue_place, has_part ? rings.packet(position) : rings.header(position));
        };
        expect(known.bytes());
        const std::uint32_t missing = count - (known.record.counter - known.record.consumed);
        const bool is_expected = (key == tag) & (missing - 1 < most_predicted_messages) & (known.queue() < queues) &
                                 (known.queue() < near_queues);
        // Where the message of this queue was expected because of the one before, and comes, there is nothing to learn.
        const std::uint32_t origin = (known.origin - 1u) % near_queues;
        bool is_special = (missing != 1) | (known.origin != origin + 1) | (own.inbound[origin].follower != number) |
                          (rounds != 0) | (2 * (begin.messages - credited.messages) > rings.headers) |
                          (2 * (begin.packets - credited.packets) > rings.packets);

        packet part = load_packet<order_tag::message_observe>(slot, position + 1);
        const std::uint32_t requests = load_requests(state);
        if (any(warp, !is_expected)) return exec::far(await_no_message)(warp, state, tag, count, rounds);
        bool has_come = false, fits = false;
        const auto is_here = [&] {
            const mailbox_header message{{part.payload[0], part.payload[1], part.payload[2]}};
            has_come = part.sequence == position + 1;
            fits = has_part | ((message.words[2] == (tag << 16 | bytes)) & is_placed_by_words(message));
            return all(warp, has_come & fits);
        };
        const auto poll = [&] {
            part = load_packet<order_tag::message_observe>(slot, position + 1);
            return is_here();
        };
        // PERF: a message of another size takes one trip more.
        const auto poll_for_other_size = [&] {
            const mailbox_header message{{part.payload[0], part.payload[1], part.payload[2]}};
            if (!any(warp, warp.leads() & has_come & !fits & (message.tag() == tag) & is_placed_by_words(message)))
                return false;
            expect(broadcast(warp, message.bytes(), 0));
            return poll();
        };
        bool begins_again = false;
        if (!is_here()) {
            prediction expected{number, begin, bytes, tag};
            if (warp.index == number) skipped = 0;
            watched_word watched = watch(warp, state, own, expected, skipped, known.record.counter);
            unsigned polls = 0;
            DCUDA_NO_UNROLL
            for (;; ++polls) {
                const std::uint32_t now = load_relaxed(watched.word);
                if (poll()) break;
                const bool has_changed = watched.has_changed(now);
                if (any(warp, has_changed | (has_come & !fits))) {
                    if (poll_for_other_size()) break;
                    expected.bytes = bytes;
                    const surprise found = look_elsewhere(warp, state, expected, has_changed, skipped);
                    if (found.kind == surprise::unknown) return false;
                    if (found.kind == surprise::before) {
                        exec::far(take_next_message)(warp, state, number);
                        if (rounds != 0 && warp.leads()) count_as_new_wait(exec::lead_access::alone(), state);
                        begins_again = true;
                        break;
                    }
                    if (found.kind == surprise::same_tag) {
                        sync(warp); // all have read the entry
                        if (warp.leads()) {
                            own.tags[place].expected = expectation(found.queue, found.bytes);
                        }
                        sync(warp);
                        begins_again = true;
                        break;
                    }
                    skipped += found.in_own_queue ? 1 : 0;
                    watched = watch(warp, state, own, expected, skipped, known.record.counter);
                }
                if (polls == watches_in_round) {
                    if (rounds == most_rounds || !wait_another_round(warp, state, tag, count, count - missing, rounds))
                        return false;
                    ++rounds;
                    skipped = 0;
                    begins_again = true;
                    break;
                }
                leave_to_others(polls_for_watch * (rounds * watches_in_round + polls));
                exec::relax();
                // PERF: polls for nothing but the message take half of the time.
                if (poll() || poll() || poll()) break;
            }
        }
        if (begins_again) continue;

        // ORDER notify-observe: what the source released before this message. The leader has seen the header, and the
        // warp's sync passes on what it acquires, before anything is placed.
        acquire_if<order_tag::message_observe>(state.job_scope,
                                               warp.leads() && (part.payload[1] & message_releases) != 0);
        const mailbox_header message{
            {broadcast(warp, part.payload[0], 0), broadcast(warp, part.payload[1], 0), tag << 16 | bytes}};
        sync(warp);
        place_words(message.target(), bytes, warp.index - 1, part);
        is_special |= requests != requests_seen;
        if (any(warp, bytes > (warp.count - 1) * packet_payload_bytes))
            place_payload<true>(warp, state, queue_place, begin.packets, bytes, message.target());
        const queue_position end{begin.messages + 1, begin.packets + packets_for(bytes)};
        std::uint32_t& consumed = own.tags[place].record.consumed;
        if (!any(warp, is_special)) {
            sync(warp); // all have read the books that now change
            exec::store_near_if(&own.inbound[number].taken.messages, end.messages, end.packets, warp.leads());
            exec::store_near_if(&consumed, known.record.consumed + count - 1, warp.leads());
            exec::store_near_if(&own.tags[place].expected, expectation(own.inbound[number].follower, bytes), number + 1,
                                warp.leads());
            return true;
        }
        sync(warp); // all have read the books that now change
        if (warp.leads()) {
            own.inbound[number].taken = end;
            consumed = known.record.consumed - 1 + (missing == 1 ? count : 0);
            settle_predicted(exec::lead_access::alone(), state, place, number, bytes, rounds);
        }
        answer_new_requests(warp, state);
        if (any(warp, missing == 1)) return true;
        sync(warp);
    }
}

#endif

} // namespace dcuda::detail
