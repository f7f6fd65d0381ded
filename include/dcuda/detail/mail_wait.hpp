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

// Looks once at everything. True if something has come. If `may_share`, all warps may have to help then: state.batch.
// The team.
DCUDA_DEVICE bool look_for_notifications(const team& all, rank_state& state, std::uint32_t tag, std::uint32_t& counter,
                                         bool may_share) {
    const std::uint32_t* const word = state.counters + tag;
    // PERF: under way together with the loads of look_at_lanes.
    std::uint32_t now = all.leads() ? load_relaxed(word) : 0;
    const unsigned arrived = look_at_lanes(all, state);
    now = broadcast(all, now, 0);
    const bool changed = now != counter;
    // ORDER notify-observe: one acquire synchronizes with the releases of all sources that the value counts.
    if (changed && all.leads()) acquire_after<order_tag::notify_observe>(state.notification_scope, word);
    counter = now;
    for (unsigned lane = 0; arrived >> lane != 0; ++lane)
        if ((arrived >> lane & 1) != 0 && take_lane(all, state, lane, may_share)) return true;
    if (arrived != 0) give_credit(all, state, 2);
    return arrived != 0 || changed;
}

#if defined(__CUDACC__)

// The usual wait: one notification is missing, and it comes soon. By mail: with the tag that is waited for, from the
// source that sent the last message with this tag, with at most as much payload; each thread looks at the header and at
// its own packets of the payload that is foreseen. Or by the counter, from a source that has no lane. False if it is
// not so: then nothing has happened, whatever has been placed already. All threads of the block, after its barrier.
//
// PERF: to look at the header first and then at the payload costs another trip to the L2 cache, 0.16 us; a warp that
// places three rows of packets takes 0.4 us longer than three warps. All that can be is found before the polling:
// instructions after it are latency, about 5 cycles each (H200, 2026-11-21).
DCUDA_DEVICE bool await_the_usual(shared_state shared, std::uint32_t tag, std::uint32_t expected) {
    rank_state& state = shared.get();
    constexpr unsigned most_looks = 64, all_threads = 0xffff'ffff; // looks: about 30 us
    const unsigned index = exec::thread_index(), in_warp = index % 32, threads = exec::block_threads() / 32 * 32;
    const tag_entry& entry = state.tag_cache[tag % cached_tags];
    const tag_record known = entry.record;
    const std::uint32_t lanes = state.lanes, favourite = entry.lane, foreseen = entry.packets;
    const std::uint32_t number = state.usual_waits + 1;
    const lane_position begin = state.inbound[favourite].taken;
    const lane_shape rings = state.device.lanes;
    if ((entry.tag != tag) | (known.counter - known.consumed + 1 != expected) | (rings.packets == 0) |
        (foreseen > packets_in_flight * threads) | (threads == 0))
        return false;
    const packet* const lane = lane_at(state, favourite);
    const packet* const head_place = lane + rings.header(begin.messages);
    const packet* sources[packets_in_flight];
    DCUDA_UNROLL
    for (unsigned i = 0; i < packets_in_flight; ++i) {
        const std::uint32_t part = index + i * threads;
        sources[i] = part < foreseen ? lane + rings.packet(begin.packets + part) : nullptr;
    }
    // What ends the wait if it becomes, or no longer is, as given: the other lanes' headers, the counter and the number
    // of lanes for the first warp, and for the others that this one has called the wait off.
    const std::uint32_t* word = nullptr;
    std::uint32_t value = 0;
    bool becomes = true;
    if (index < 32) {
        if (in_warp < lanes && in_warp != favourite) {
            const std::uint32_t position = state.inbound[in_warp].taken.messages;
            word = &lane_at(state, in_warp)[rings.header(position)].sequence;
            value = position + 1;
        } else if (in_warp >= 30) {
            word = in_warp == 30 ? state.counters + tag : &state.status->lanes_taken;
            value = in_warp == 30 ? known.counter : lanes;
            becomes = false;
            if (in_warp == 31 && lanes == lanes_per_rank) word = nullptr;
        }
        if (index == 0 && owes_credit(state.inbound[favourite], rings, 2)) send_credit(state, favourite);
    } else if (in_warp == 0) {
        word = &state.called_off;
        value = number;
    }
    std::uint32_t bytes = 0, counter = known.counter;
    bool usual = true;
    if (index < 32 || (index < threads && index - in_warp < foreseen)) { // the other warps have nothing to do
        packet head, parts[packets_in_flight];
        for (unsigned looks = 0;; ++looks) {
            head = load_packet<order_tag::mail_observe>(head_place, 0);
            DCUDA_UNROLL
            for (unsigned i = 0; i < packets_in_flight; ++i)
                if (sources[i] != nullptr) parts[i] = load_packet<order_tag::mail_observe>(sources[i], 0);
            const std::uint32_t now = word != nullptr ? load_relaxed(word) : 0;
            bytes = head.payload[2] & 0xffff;
            bool complete = head.sequence == begin.messages + 1;
            DCUDA_UNROLL
            for (unsigned i = 0; i < packets_in_flight; ++i) {
                const std::uint32_t part = index + i * threads;
                complete = complete && (sources[i] == nullptr || part * mail_bytes >= bytes ||
                                        parts[i].sequence == begin.packets + part + 1);
            }
            if (__all_sync(all_threads, complete)) break;
            if (__any_sync(all_threads, word != nullptr && (now == value) == becomes) || looks == most_looks) {
                usual = false;
                if (index < 32) counter = __shfl_sync(all_threads, now, 30);
                break;
            }
        }
        const header message{{head.payload[0], head.payload[1], head.payload[2]}};
        // More than was foreseen, another tag, bytes that are no words, a hello, payload that comes after other puts?
        usual = usual & (bytes <= foreseen * mail_bytes) & (message.tag() == tag) &
                (((message.words[0] | message.words[2]) & 3) == 0) & !message.is_hello() &
                (!message.vouches() | (bytes == 0));
        if (usual) {
            DCUDA_UNROLL
            for (unsigned i = 0; i < packets_in_flight; ++i) {
                const std::uint32_t at = (index + i * threads) * mail_bytes;
                if (at >= bytes) break;
                auto* const words = reinterpret_cast<std::uint32_t*>(message.target() + at);
                words[0] = parts[i].payload[0];
                if (at + 4 < bytes) words[1] = parts[i].payload[1];
                if (at + 8 < bytes) words[2] = parts[i].payload[2];
            }
            // ORDER notify-observe: what the source released before this message.
            if (message.vouches()) acquire_packet<order_tag::mail_observe>(state.notification_scope);
        } else if (in_warp == 0) {
            // ORDER notify-observe: what the source released before it added to the counter.
            if (counter != known.counter) {
                acquire_after<order_tag::notify_observe>(state.notification_scope, state.counters + tag);
                state.counted = number;
            }
            store_relaxed(&state.called_off, number);
        }
    }
    const std::uint32_t packets = packets_for(bytes);
    exec::sync_block();
    usual = load_in_block(&state.called_off) != number;
    const bool by_counter = load_in_block(&state.counted) == number;
    if (index == 0) {
        state.usual_waits = number;
        if (by_counter) state.tag_cache[tag % cached_tags].record = {known.consumed + expected, counter};
        if (usual) {
            state.inbound[favourite].taken = {begin.messages + 1, begin.packets + packets};
            tag_entry& used = state.tag_cache[tag % cached_tags];
            used.packets = static_cast<std::uint16_t>(packets);
            used.origin = static_cast<std::uint16_t>(favourite + 1);
            used.record.consumed = known.counter;
        }
    }
    return usual || by_counter;
}

// What a look at the lanes' headers has come to: what was waited for is there; messages with payload have come
// (state.arrivals); or something else, or nothing for long.
enum class look_outcome : std::uint32_t { enough, payload, other };

// Looks for messages of any tags, from all sources at once: each thread watches a lane's next header. What comes
// without payload is counted, until as many as expected have come with this tag; then they are consumed. The team, a
// whole warp.
DCUDA_DEVICE look_outcome look_at_headers(const team& all, rank_state& state, std::uint32_t tag,
                                          std::uint32_t expected) {
    constexpr unsigned most_looks = 64; // about 30 us
    const lane_shape rings = state.device.lanes;
    // Unknown tags are checked elsewhere.
    if (rings.packets == 0 || state.tag_cache[tag % cached_tags].tag != tag) return look_outcome::other;
    std::uint32_t counter = known_counter(all, state, tag), arrived = 0;
    if (consume(all, state, tag, expected, counter, arrived)) return look_outcome::enough;
    const std::uint32_t missing = expected - broadcast(all, arrived, 0), lanes = state.lanes;
    const bool watches = all.index < lanes;
    inbound_lane& lane = state.inbound[watches ? all.index : 0];
    if (watches && owes_credit(lane, rings, 2)) send_credit(state, all.index);
    std::uint32_t position = lane.taken.messages;
    const packet* const headers = lane_at(state, watches ? all.index : 0);
    // The last two threads watch the counter and whether there are new lanes.
    const std::uint32_t* const word = all.index == 30   ? state.counters + tag
                                      : all.index == 31 ? &state.status->lanes_taken
                                                        : nullptr;
    std::uint32_t found = 0, mailed = 0; // notifications of the tag; those by mail
    unsigned last = 0;                   // lanes that brought the last ones of the tag
    unsigned with_payload = 0;           // lanes
    bool vouched = false, enough = false, other = false;
    for (unsigned looks = 0; looks < most_looks && !enough && !other && with_payload == 0; ++looks) {
        packet head{};
        head.sequence = position; // not what is expected
        if (watches) head = load_packet<order_tag::mail_observe>(headers + rings.header(position), position + 1);
        const std::uint32_t now = word != nullptr ? load_relaxed(word) : 0;
        const header message{{head.payload[0], head.payload[1], head.payload[2]}};
        const bool is_new = head.sequence == position + 1, has_payload = is_new && message.bytes() != 0;
        const bool is_plain = is_new && !message.is_hello() && message.bytes() == 0;
        if (is_plain) ++position;
        vouched = vouched || (is_new && message.vouches());
        const unsigned plain = vote(all, is_plain), same = vote(all, is_plain && message.tag() == tag);
        for (unsigned rest = plain & ~same; rest != 0;) { // of other tags
            const std::uint32_t theirs = broadcast(all, message.tag(), lowest(rest));
            const unsigned those = rest & vote(all, message.tag() == theirs);
            if (all.leads()) count_mail(state, theirs, bits_in(those), lowest(those));
            rest &= ~those;
        }
        if (same != 0) last = same;
        mailed += bits_in(same);
        const std::uint32_t counted = broadcast(all, now, 30);
        if (counted != counter) vouched = vouched || all.leads();
        found += bits_in(same) + (counted - counter);
        counter = counted;
        enough = found >= missing;
        if (has_payload) state.arrivals[all.index] = message;
        with_payload = vote(all, has_payload);
        other = vote(all, (is_new && message.is_hello()) ||
                              (all.index == 31 && now != lanes && lanes < lanes_per_rank)) != 0;
    }
    // ORDER notify-observe: what the sources released before these messages, or before they added to the counter, and
    // before their payload is placed: of two puts to one place the later wins.
    if (vouched) acquire_packet<order_tag::mail_observe>(state.notification_scope);
    sync(all);
    if (watches) lane.taken.messages = position;
    if (all.leads()) {
        tag_record& record = notifications(state, tag);
        record = {record.consumed - mailed + (enough ? expected : 0), counter};
        if (last != 0) {
            foresee(state, tag, lowest(last), 0);
            state.tag_cache[tag % cached_tags].origin = static_cast<std::uint16_t>(lowest(last) + 1);
        }
        state.arrived_lanes = with_payload;
    }
    sync(all);
    if (enough) return look_outcome::enough;
    return with_payload != 0 && !other ? look_outcome::payload : look_outcome::other;
}

// All threads of the block place the payload of state.arrivals; then these messages are taken. The block's barrier
// comes before.
//
// ORDER mail-free: all have read the packets, and placed them, before the team counts the messages as taken.
DCUDA_COLD void take_arrivals(shared_state shared) {
    rank_state& state = shared.get();
    const lane_shape rings = state.device.lanes;
    for (unsigned rest = state.arrived_lanes; rest != 0; rest &= rest - 1) {
        const std::uint32_t number = lowest(rest), position = state.inbound[number].taken.packets;
        const header message = state.arrivals[number];
        const packet* const lane = lane_at(state, number);
        for (std::uint32_t i = exec::thread_index(); i < packets_for(message.bytes()); i += exec::block_threads()) {
            const packet* const place = lane + rings.packet(position + i);
            place_packet(state, place, position + i + 1, load_packet<order_tag::mail_observe>(place, position + i + 1),
                         message, i);
        }
    }
    exec::sync_block();
    exec::as_team([&](const team& all) {
        const unsigned arrived = state.arrived_lanes;
        if ((arrived >> all.index & 1) != 0) {
            lane_position& taken = state.inbound[all.index].taken;
            taken = {taken.messages + 1, taken.packets + packets_for(state.arrivals[all.index].bytes())};
        }
        if (all.leads())
            for (unsigned rest = arrived; rest != 0; rest &= rest - 1) {
                const header& message = state.arrivals[lowest(rest)];
                count_mail(state, message.tag(), 1, lowest(rest));
                foresee(state, message.tag(), lowest(rest), packets_for(message.bytes()));
            }
        sync(all);
    });
}

// Waits for messages of any kind from all sources that are known. True if as many as expected have come; then they are
// consumed. False if something else has come, or nothing for long; what was taken until then is counted. All threads of
// the block, after its barrier.
DCUDA_DEVICE bool await_messages(rank_state& state, std::uint32_t tag, std::uint32_t expected) {
    if (exec::block_threads() < 32) return false;
    for (;;) {
        exec::as_team([&](const team& all) {
            sync(all);
            const look_outcome outcome = look_at_headers(all, state, tag, expected);
            if (all.leads()) state.result = static_cast<std::uint32_t>(outcome);
        });
        exec::sync_block();
        const auto outcome = static_cast<look_outcome>(state.result);
        if (outcome != look_outcome::payload) return outcome == look_outcome::enough;
        exec::far(take_arrivals)(state);
    }
}

#endif

// What a wait has come to: the run has ended; all that was waited for is there; all warps are to place state.batch.
enum class wait_verdict : std::uint32_t { ended, enough, share };

// The team of wait_notifications; again after a batch was shared.
DCUDA_COLD wait_verdict await_notifications(team all, shared_state shared, int waited_tag, int count, bool again) {
    rank_state& state = shared.get();
    const auto tag = static_cast<std::uint32_t>(waited_tag), expected = static_cast<std::uint32_t>(count);
#if defined(__CUDACC__)
    if (again) {
        settle_shared_batch(all, state);
        if (all.leads()) count_as_new_wait(state);
    } else if (all.leads()) {
        state.batch.count = 0; // what another wait has left to this one
    }
    const bool may_share = all.count == 32;
#else
    const bool may_share = false;
#endif
    std::uint32_t counter = known_counter(all, state, tag), arrived = 0;
    if (consume(all, state, tag, expected, counter, arrived)) {
        if (again && all.leads()) end_wait(state);
        return wait_verdict::enough; // they came while we waited for others, or shared
    }
    if (!again && all.leads()) begin_wait(state, waiting::notifications, tag, expected);
    give_credit(all, state, 2);
    wait_verdict verdict = wait_verdict::ended;
    look_until(
        [&](unsigned) {
            if (!look_for_notifications(all, state, tag, counter, may_share)) return look_result::nothing;
            if (all.leads()) count_as_new_wait(state);
            if (consume(all, state, tag, expected, counter, arrived)) {
                verdict = wait_verdict::enough;
                return look_result::all;
            }
            if (broadcast(all, state.batch.count, 0) == 0) return look_result::something;
            verdict = wait_verdict::share;
            return look_result::all;
        },
        [&] {
            if (give_credit(all, state, 0) && all.leads()) count_as_new_wait(state);
            return vote(all, all.leads() && keep_waiting(state, arrived)) != 0;
        },
        &state.status->bell);
    if (verdict == wait_verdict::share) return verdict;
    if (all.leads()) end_wait(state);
    if (verdict == wait_verdict::ended && all.leads() && state.wait.timed_out != 0) {
        report_fault(state, fault::timeout, operation::wait_notifications, 0, tag, state.wait.seen, expected,
                     state.device.wait_timeout_ns);
        store_relaxed(&state.ended, 1);
    }
    return verdict;
}

// Waits in all cases. All threads of the rank.
DCUDA_COLD void wait_in_general(shared_state shared, int tag, int count) {
    rank_state& state = shared.get();
    check_count(state, operation::wait_notifications, tag, count);
    for (bool again = false;; again = true) {
        // All threads have read the state that now changes, or have placed their share.
        exec::sync_team_sync([&](const team& all) {
            const wait_verdict verdict = await_notifications(all, state, tag, count, again);
            if (all.leads()) state.result = static_cast<std::uint32_t>(verdict);
        });
        const auto verdict = static_cast<wait_verdict>(state.result);
        if (verdict == wait_verdict::enough) return;
        if (verdict == wait_verdict::ended) exec::exit_thread();
#if defined(__CUDACC__)
        place_shared_batch(state);
#endif
    }
}

} // namespace dcuda::detail
