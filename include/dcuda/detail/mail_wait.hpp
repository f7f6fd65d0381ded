// Waiting for notifications: by mail, and by the counters.
#pragma once

#include "dcuda/detail/mailbox.hpp"

namespace dcuda::detail {

DCUDA_DEVICE void check_tag(rank_state& state, operation where, int tag, int target = 0) {
#if DCUDA_CHECKS
    if (static_cast<std::uint32_t>(tag) >= state.device.tags)
        fail(state, fault::tag, where, 0, static_cast<std::uint32_t>(target), static_cast<std::uint32_t>(tag), 0,
             state.device.tags);
#else
    (void)state, (void)where, (void)tag, (void)target;
#endif
}

DCUDA_DEVICE void check_count(rank_state& state, operation where, int tag, int count) {
    check_tag(state, where, tag);
#if DCUDA_CHECKS
    if (count < 0)
        fail(state, fault::count, where, 0, static_cast<std::uint32_t>(tag), static_cast<std::uint32_t>(count), 0, 0);
#else
    (void)state, (void)where, (void)tag, (void)count;
#endif
}

// Whether that many notifications are there; consumes them if so. `counter`: the last known value of the tag's counter.
// The team.
DCUDA_DEVICE bool consume(const team& all, rank_state& state, std::uint32_t tag, std::uint32_t expected,
                          std::uint32_t counter, std::uint32_t& arrived) {
    bool enough = false;
    if (all.leads()) {
        tag_record& record = notifications(state, tag);
        record.counter = counter;
        // Counts wrap around; their difference does not as long as fewer than 2^32 notifications are unconsumed.
        arrived = counter - record.consumed;
        enough = arrived >= expected;
        if (enough) record.consumed += expected;
    }
    return vote(all, enough) != 0;
}

DCUDA_DEVICE std::uint32_t known_counter(const team& all, rank_state& state, std::uint32_t tag) {
    return broadcast(all, all.leads() ? notifications(state, tag).counter : 0, 0);
}

// Looks once at everything. True if something has come. The team.
DCUDA_DEVICE bool look_for_notifications(const team& all, rank_state& state, std::uint32_t tag,
                                         std::uint32_t& counter) {
    const bool mail = take_mail(all, state, state.device.lane_packets / 2 + 1);
    // ORDER notify-observe: one acquire synchronizes with the releases of all sources that the value counts.
    std::uint32_t now = 0;
    if (all.leads()) now = load_acquire<order_tag::notify_observe>(state.notification_scope, state.counters + tag);
    now = broadcast(all, now, 0);
    const bool changed = now != counter;
    counter = now;
    return mail || changed;
}

#if defined(__CUDACC__)

// Copies the payload packet with this number, if the message has it, to its place. The message is of whole words.
DCUDA_DEVICE void place_words(rank_state& state, std::byte* target, std::uint32_t bytes, std::uint32_t number,
                              const packet* source, std::uint32_t sequence, packet& part) {
    const std::uint32_t begin = number * mail_bytes;
    if (begin >= bytes) return;
    if (!await_packet<order_tag::mail_observe>(source, sequence, part, state.device.aborted))
        store_relaxed(&state.ended, 1);
    auto* const words = reinterpret_cast<std::uint32_t*>(target + begin);
    words[0] = part.payload[0];
    if (begin + 4 < bytes) words[1] = part.payload[1];
    if (begin + 8 < bytes) words[2] = part.payload[2];
}

// The usual wait: one notification is missing, it comes with the tag that is waited for, from the source that sent the
// last one, with at most as much payload, and soon. False if it is not so: then nothing has happened. A full warp.
//
// PERF: the threads load the next packet of every lane in use and, with the same instructions, the packets that follow
// the next one of the lane that brought the last message: to look at the header first and then at the payload costs
// another trip to the L2 cache, 0.16 us of 0.86 (4 B to a peer, H200, 2026-11-21). All that can be is found before the
// polling: every instruction after it is latency, and so is a call, hence this function beside await_by_warp.
DCUDA_DEVICE bool await_the_usual(const team& all, rank_state& state, std::uint32_t tag, std::uint32_t expected) {
    constexpr unsigned flight = 2;
    constexpr std::uint32_t none = 1u << 28;
    tag_entry& entry = state.tag_cache[tag % cached_tags];
    const tag_record known = entry.record;
    const std::uint32_t lanes = state.lanes, favourite = state.favourite, foreseen = state.foreseen;
    const std::uint32_t position = state.inbound[favourite].received, mask = state.device.lane_packets - 1;
    if ((all.count != 32) | (entry.tag != tag) | (known.counter - known.consumed + 1 != expected) | (lanes == 0) |
        (lanes > 8) | (foreseen > 32 * flight - 8))
        return false;
    const packet* const ring = state.mail + favourite * state.device.lane_packets;
    const std::uint32_t numbers[flight] = {all.index < lanes ? none : all.index - lanes, 32 - lanes + all.index};
    const packet* sources[flight];
    DCUDA_UNROLL
    for (unsigned i = 0; i < flight; ++i)
        sources[i] = numbers[i] < foreseen ? ring + (position + 1 + numbers[i] & mask) : nullptr;
    std::uint32_t wanted = 0;
    if (all.index < lanes) {
        wanted = state.inbound[all.index].received;
        sources[0] = packet_at(state, all.index, wanted++);
    }
    const std::uint32_t in_reach = foreseen * mail_bytes;
    packet seen[flight];
    const unsigned found = poll_packets<order_tag::mail_observe>(
        sources, seen, [&](const packet& first) { return (all.index < lanes) & (first.sequence == wanted); },
        [](unsigned) { return false; });
    if (found != 1u << favourite) return false;
    const header message{{broadcast(all, seen[0].payload[0], favourite), broadcast(all, seen[0].payload[1], favourite),
                          broadcast(all, seen[0].payload[2], favourite)}};
    const std::uint32_t bytes = message.words[2] & 0xffff;
    // A hello, bytes that are no words, another tag, more than was foreseen, payload that comes after other puts?
    if (((message.words[1] & mail_hello) | ((message.words[0] | message.words[2]) & 3) |
         (message.words[2] >> 16 ^ tag)) != 0 ||
        bytes > in_reach || (message.vouches() && bytes != 0))
        return false;
    DCUDA_UNROLL
    for (unsigned i = 0; i < flight; ++i)
        place_words(state, message.target(), bytes, numbers[i], sources[i], position + 2 + numbers[i], seen[i]);
    if (all.leads()) {
        // ORDER notify-observe: what the source released before this message.
        if (message.vouches()) acquire_packet<order_tag::mail_observe>(ring + (position & mask), position + 1);
        const std::uint32_t count = packets_for(bytes);
        state.inbound[favourite].received = position + 1 + count;
        state.foreseen = count;
        entry.record.consumed = known.counter;
    }
    return true;
}

enum class wait_event { enough, other, ended };

// As before, for as many notifications as are missing, and the threads also look at the mailbox's status and at the
// counter. Ends with `enough`, which are consumed, or when something comes that is less usual.
DCUDA_DEVICE wait_event watch_mail(const team& all, rank_state& state, std::uint32_t tag, std::uint32_t expected) {
    constexpr std::uint32_t first_control = 30; // threads: the counter, the status
    constexpr std::uint32_t none = 1u << 28;
    const std::uint32_t* const word = state.counters + tag;
    const auto* const counters =
        reinterpret_cast<const packet*>(reinterpret_cast<std::uintptr_t>(word) & ~std::uintptr_t{15});
    tag_record& record = state.tag_cache[tag % cached_tags].record; // consume() has brought it there
    for (;;) {
        give_credit(all, state, state.device.lane_packets / 2);
        const tag_record known = record;
        const std::uint32_t missing = expected - (known.counter - known.consumed);
        const std::uint32_t lanes = state.lanes, favourite = state.favourite;
        const std::uint32_t foreseen = lanes != 0 ? state.foreseen : 0;
        const bool is_head = all.index < lanes;
        // The payload packets of the message that is foreseen: the first ones are those of the threads between heads
        // and controls.
        const std::uint32_t received = state.inbound[is_head ? all.index : favourite].received;
        const std::uint32_t head = broadcast(all, received, favourite); // of the favourite
        const std::uint32_t in_first = first_control - lanes;
        const std::uint32_t numbers[packets_in_flight] = {is_head || all.index >= first_control ? none
                                                                                                : all.index - lanes,
                                                          in_first + all.index, in_first + 32 + all.index};
        const packet* sources[packets_in_flight];
        DCUDA_UNROLL
        for (unsigned i = 0; i < packets_in_flight; ++i)
            sources[i] = numbers[i] < foreseen ? packet_at(state, favourite, head + 1 + numbers[i]) : nullptr;
        if (is_head) sources[0] = packet_at(state, all.index, received);
        if (all.index == first_control) sources[0] = counters;
        if (all.index == first_control + 1) sources[0] = reinterpret_cast<const packet*>(state.status);
        // What a head's packet must show; and what the words of the controls must not show.
        const std::uint32_t wanted = is_head ? received + 1 : all.index == first_control ? known.counter : lanes;
        const std::uint32_t place_of_word =
            all.index == first_control ? static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(word) / 4 % 4) : 0;
        const bool is_control = all.index == first_control || (all.index > first_control && lanes != lanes_per_rank);

        packet seen[packets_in_flight];
        bool patient = false;
        const unsigned found = poll_packets<order_tag::mail_observe>(
            sources, seen,
            [&](const packet& first) {
                const std::uint32_t low = place_of_word == 0 ? first.payload[0] : first.payload[1];
                const std::uint32_t high = place_of_word == 2 ? first.payload[2] : first.sequence;
                const std::uint32_t shown = place_of_word < 2 ? low : high;
                return is_head ? first.sequence == wanted : is_control && shown != wanted;
            },
            [&](unsigned looks) {
                patient = true;
                give_credit(all, state, looks == 32 ? state.device.lane_packets / 4 : 1);
                return vote(all, all.leads() && keep_waiting(state, expected - missing)) != 0;
            });
        if (found == 0) return wait_event::ended;
        if (patient && all.leads()) count_as_new_wait(state);
        const unsigned lane = lowest(found);
        const header message{{broadcast(all, seen[0].payload[0], lane), broadcast(all, seen[0].payload[1], lane),
                              broadcast(all, seen[0].payload[2], lane)}};
        const std::uint32_t bytes = message.words[2] & 0xffff;
        // As in await_the_usual.
        if (lane != favourite || lane >= lanes || bytes > mail_bytes * foreseen || (message.vouches() && bytes != 0) ||
            ((message.words[1] & mail_hello) | ((message.words[0] | message.words[2]) & 3) |
             (message.words[2] >> 16 ^ tag)) != 0)
            return wait_event::other;
        DCUDA_UNROLL
        for (unsigned i = 0; i < packets_in_flight; ++i)
            place_words(state, message.target(), bytes, numbers[i], sources[i], head + 2 + numbers[i], seen[i]);
        sync(all);
        if (all.leads()) {
            if (message.vouches()) acquire_packet<order_tag::mail_observe>(packet_at(state, favourite, head), head + 1);
            const std::uint32_t count = packets_for(bytes);
            state.inbound[favourite].received = head + 1 + count;
            state.foreseen = count;
            record.consumed = missing == 1 ? known.counter : known.consumed - 1;
        }
        sync(all);
        if (missing == 1) return wait_event::enough;
    }
}

#endif

// The team of wait_notifications. False if the run has ended.
DCUDA_COLD bool await_notifications(team all, shared_state shared, int waited_tag, int count) {
    rank_state& state = shared.get();
    check_count(state, operation::wait_notifications, waited_tag, count);
    const auto tag = static_cast<std::uint32_t>(waited_tag), expected = static_cast<std::uint32_t>(count);
    std::uint32_t counter = known_counter(all, state, tag), arrived = 0;
    if (consume(all, state, tag, expected, counter, arrived)) return true; // they came while we waited for others
    if (all.leads()) begin_wait(state, waiting::notifications, tag, 0, expected);
    bool enough = false;
#if defined(__CUDACC__)
    for (wait_event event = wait_event::other; all.count == 32;) {
        event = watch_mail(all, state, tag, expected);
        if (event == wait_event::other) {
            look_for_notifications(all, state, tag, counter);
            if (!consume(all, state, tag, expected, counter, arrived)) continue;
            event = wait_event::enough;
        }
        if (all.leads()) end_wait(state);
        enough = event == wait_event::enough;
        break;
    }
    if (all.count != 32)
#endif
    {
        enough = look_until(
            [&](unsigned) {
                if (!look_for_notifications(all, state, tag, counter)) return look_result::nothing;
                if (all.leads()) count_as_new_wait(state);
                return consume(all, state, tag, expected, counter, arrived) ? look_result::all : look_result::something;
            },
            [&] {
                give_credit(all, state, 1);
                return vote(all, all.leads() && keep_waiting(state, arrived)) != 0;
            },
            &state.status->bell);
        if (all.leads()) end_wait(state);
    }
    if (!enough && all.leads() && state.wait.timed_out != 0) {
        report_fault(state, fault::timeout, operation::wait_notifications, 0, tag, state.wait.seen, expected,
                     state.device.wait_timeout_ns);
        store_relaxed(&state.ended, 1);
    }
    return enough;
}

} // namespace dcuda::detail
