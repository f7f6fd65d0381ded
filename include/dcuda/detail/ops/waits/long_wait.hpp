// SPDX-License-Identifier: BSD-3-Clause
// What a rank does in a wait from time to time: it sees whether the run has ended and whether the user's bound is
// reached, takes messages that others wait for, and publishes for the host what it waits for.
#pragma once

#include "dcuda/detail/ops/rank_state.hpp"

namespace dcuda::detail {

// Takes the messages that have come while the rank waits for something else, so that sources do not wait for space for
// ever. True if that made a difference to anybody. The leader; mailbox.hpp.
DCUDA_COLD bool receive_meanwhile(lone_thread leader, shared_state shared);

// In a profiled run: the rank waits for space in a queue, or does so no longer. The leader; profile.hpp.
DCUDA_COLD void begin_blocked(lone_thread leader, shared_state shared);
DCUDA_COLD void end_blocked(lone_thread leader, shared_state shared, waiting kind);

// Tells the host what this rank did wrong and ends the run on this device. The leader.
DCUDA_COLD void report_fault(lone_thread leader, shared_state shared, fault kind, operation where,
                             std::uint32_t window_id, std::uint32_t target, std::uint64_t offset, std::uint64_t bytes,
                             std::uint64_t limit);

#if DCUDA_BACKEND_CUDA
inline constexpr std::uint32_t calls_per_publication = 32; // of keep_waiting; times 64 polls: about a millisecond
#else
inline constexpr std::uint32_t calls_per_publication = 1; // begin_wait publishes, and so does each call
#endif

// Something has happened in the wait that may end that of another rank: it is no longer the same wait. The leader.
DCUDA_DEVICE void count_as_new_wait(lone_thread leader, rank_state& state) {
    wait_record& record = state.device.waits[state.device_rank];
    if (state.own.of(leader).wait.calls >= calls_per_publication)
        store_relaxed(&record.epoch, load_relaxed(&record.epoch) + 1);
}

// Who has sent the last notification with this tag, as wait_record::source. The leader.
DCUDA_DEVICE std::uint32_t last_source(lone_thread leader, rank_state& state, std::uint32_t tag) {
    endpoint& own = state.own.of(leader);
    const unsigned place = find_key<cached_tags>(leader, tag, [&](unsigned entry) { return own.tag_keys[entry]; });
    if (place == cached_tags) return unknown_source;
    const tag_entry& entry = own.tags[place];
    const std::uint32_t queue = entry.origin - 1u;
    if (queue < own.queues) return queue_of(state, own, queue).world_rank + 1;
    const bool counted = entry.record.counter != state.device.counter_start; // the counter does not tell by whom
    return entry.origin == 0 && !counted ? no_source : unknown_source;
}

// Tells the host what this rank waits for; `value` was there. The leader.
DCUDA_DEVICE void publish_wait(lone_thread leader, rank_state& state, std::uint32_t value) {
    const current_wait& wait = state.own.of(leader).wait;
    wait_record& record = state.device.waits[state.device_rank];
    if (wait.calls == calls_per_publication) count_as_new_wait(leader, state);
    store_relaxed(&record.where, wait.where);
    store_relaxed(&record.detail, wait.detail);
    store_relaxed(&record.expected, wait.expected);
    store_relaxed(&record.seen, value);
    store_relaxed(&record.tags, wait.tags);
    if (wait.kind == waiting::notifications)
        store_relaxed(&record.source, wait.tags == 1 ? last_source(leader, state, wait.detail) : unknown_source);
    if (is_profiled(state)) {
        const std::uint64_t begin = state.own.of(leader).doing.begin;
        store_relaxed(&record.since[0], static_cast<std::uint32_t>(begin));
        store_relaxed(&record.since[1], static_cast<std::uint32_t>(begin >> 32));
    }
    store_relaxed(&record.kind, wait.kind);
}

// What is waited for: protocol.hpp, wait_record. `seen`: how much of it is there. The leader.
DCUDA_DEVICE void begin_wait(lone_thread leader, rank_state& state, waiting kind, operation where, std::uint32_t detail,
                             std::uint32_t expected = 0, std::uint32_t tags = 1,
                             [[maybe_unused]] std::uint32_t seen = 0) {
    current_wait& wait = state.own.of(leader).wait;
    wait = {kind, where, detail, expected, tags, 0, 0};
#if !DCUDA_BACKEND_CUDA
    // A source that is a thread of the CPU may be stopped between two packets of a message. Who takes the message then
    // waits for the rest of it without asking to keep waiting. Where the run has ended, what the rank has waited for
    // remains to be read.
    if (load_relaxed(state.device.aborted) != 0) return;
    ++wait.calls;
    publish_wait(leader, state, seen);
#endif
}

// The user's bound has been reached: the run ends, with the reason. The leader.
DCUDA_COLD void report_timeout(lone_thread leader, shared_state shared, std::uint32_t seen) {
    rank_state& state = shared.get();
    current_wait& wait = state.own.of(leader).wait;
    wait.calls = 0; // what the rank has waited for remains to be read
    const current_wait ended = wait;
    report_fault(leader, state, fault::timeout, ended.where, static_cast<std::uint32_t>(ended.kind), ended.detail, seen,
                 ended.expected, state.device.wait_timeout_ns);
}

// Asked from time to time, while a word holds `value`, which is not what is waited for. False: the run has ended;
// state.ended says so. The leader.
DCUDA_COLD bool has_not_ended(lone_thread leader, shared_state shared, std::uint32_t value) {
    rank_state& state = shared.get();
    current_wait& wait = state.own.of(leader).wait;
    if (wait.kind != waiting::notifications && exec::far(receive_meanwhile)(leader, state))
        count_as_new_wait(leader, state);
    if (load_relaxed(state.device.aborted) != 0) {
        store_relaxed(&state.ended, 1);
        wait.calls = 0; // what the rank has waited for remains to be read
        return false;
    }
    // Publishing costs a few stores: only long waits do it, and the watchdog looks for no others.
    if (++wait.calls % calls_per_publication == 0) {
        publish_wait(leader, state, value);
        std::uint32_t& looks = state.device.waits[state.device_rank].heartbeat;
        store_relaxed(&looks, load_relaxed(&looks) + 1);
    }
    return true;
}

// Whether the user's bound is reached; state.ended says so then. The leader.
DCUDA_COLD bool is_overdue(lone_thread leader, shared_state shared) {
    rank_state& state = shared.get();
    current_wait& wait = state.own.of(leader).wait;
    const std::uint64_t bound_ns = state.device.wait_timeout_ns;
    // How long others take to start, and how long they work after this rank is done, is nothing that the user's bound
    // on waits is about.
    if (bound_ns == 0 || wait.where == operation::init || wait.where == operation::finish) return false;
    const std::uint64_t now_ns = clock_ns();
    if (wait.start_ns == 0) wait.start_ns = now_ns;
    if (now_ns - wait.start_ns < bound_ns) return false;
    store_relaxed(&state.ended, 1);
    return true;
}

// Both, in all waits but that for space in the command ring, by which the reason would be told. False: give up.
DCUDA_COLD bool keep_waiting(lone_thread leader, shared_state shared, std::uint32_t value) {
    if (!has_not_ended(leader, shared, value)) return false;
    if (!is_overdue(leader, shared)) return true;
    exec::far(report_timeout)(leader, shared, value);
    return false;
}

// The wait is over. Only a wait that was published takes it back. The leader.
DCUDA_DEVICE void end_wait(lone_thread leader, rank_state& state) {
    if (state.own.of(leader).wait.calls < calls_per_publication) return;
    store_relaxed(&state.device.waits[state.device_rank].kind, waiting::no);
}

// Waits until ready(value) accepts the word's value. False if the run ended: `keep` has said so. The leader.
template <order_tag Tag, class Word, class Ready, class Keep>
DCUDA_DEVICE bool wait_for_word(lone_thread leader, rank_state& state, scope reach, const Word* word,
                                const Ready& ready, waiting kind, operation where, std::uint32_t detail,
                                const Keep& keep) {
    bool long_wait = false;
    const bool there = poll<Tag>(reach, word, ready, [&](Word value) {
        if (!long_wait) begin_wait(leader, state, kind, where, detail, 0, 1, static_cast<std::uint32_t>(value));
        long_wait = true;
        return keep(leader, state, static_cast<std::uint32_t>(value));
    });
    if (long_wait) end_wait(leader, state);
    return there;
}
template <order_tag Tag, class Word, class Ready>
DCUDA_DEVICE bool wait_for_word(lone_thread leader, rank_state& state, scope reach, const Word* word,
                                const Ready& ready, waiting kind, operation where, std::uint32_t detail) {
    const auto keep = [](lone_thread asking, rank_state& own, std::uint32_t value) {
        return keep_waiting(asking, own, value);
    };
    return wait_for_word<Tag>(leader, state, reach, word, ready, kind, where, detail, keep);
}

// For the wait for space in the command ring: nobody listens, so all that can be done is to end the run. The leader.
DCUDA_COLD bool keep_waiting_for_host(lone_thread leader, shared_state shared, std::uint32_t value) {
    if (!has_not_ended(leader, shared, value)) return false;
    if (!is_overdue(leader, shared)) return true;
    store_relaxed(shared.get().device.aborted, 1);
    return false;
}

} // namespace dcuda::detail

// What reports the faults.
#include "dcuda/detail/ops/commands/command_ring.hpp"
