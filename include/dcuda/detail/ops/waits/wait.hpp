// SPDX-License-Identifier: BSD-3-Clause
// Waiting for notifications: those that come as messages, and those that are counted.
#pragma once

#include "dcuda/detail/ops/check.hpp"
#include "dcuda/detail/ops/fast/predicted_wait.hpp"
#include "dcuda/detail/ops/mailbox.hpp"

namespace dcuda::detail {

// Whether a rank may wait for that; else the run ends. The lead warp.
DCUDA_DEVICE bool check_wait(const lead_warp& warp, rank_state& state, operation where, std::uint32_t tag,
                             std::uint32_t count) {
#if DCUDA_CHECKS
    const tag_numbers& tags = state.device.tags;
    if (tag < tags.plain && static_cast<std::int32_t>(count) >= 0) return true;
    if (warp.leads()) {
        const lone_thread leader = exec::lead_access::alone();
        if (tag >= tags.plain)
            report_fault(leader, state, tag < tags.count ? fault::matched_tag : fault::tag, where, 0, 0, tag, 0,
                         tags.count);
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
    acquire_after<order_tag::notify_observe>(state.job_scope, state.counters + tag);
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
    state.messages[warp.index] = {messages.header, messages.packet, messages.place};
    sync(warp); // all have read the books that now change
    if (warp.leads()) {
        endpoint& own = state.own.of(warp);
        own.posted_mask = messages.mask;
        own.posted_width = messages.width;
        own.posted_queue = messages.queue;
    }
}

// That batch, as far as placing it goes: without its queues. All threads of a full warp, after that barrier.
DCUDA_DEVICE batch posted_batch_of(const warp_group& warp, const rank_state& state) {
    const posted_message ours = state.messages[warp.index];
    batch messages{0, ours.header, 0, ours.place, ours.packet, 0, 0, 1};
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
    const std::uint32_t requests = load_requests(state), announced = load_relaxed(&state.status->far_messages);
    bool found = false;
    if (state.device.queues.packets != 0) find_queues(group, state);
    const std::uint32_t queues = near_queues_of(own);
    for (std::uint32_t first = 0; first < queues; first += group.count) {
        const std::uint32_t width = queues - first < group.count ? queues - first : group.count;
        const batch messages = collect_disjoint<true>(group, state, first, width);
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
    if (is_announced(group, state, announced) && exec::far(take_messages<Group>)(group, state)) found = true;
    if (poll_counter(group, state, now, counter, tag)) found = true;
    if (found) give_credit(group, state, 2);
    if (answer_requests(group, state, requests)) found = true;
    return found ? poll_outcome::something : poll_outcome::nothing;
}

// Where the lead warp begins with a wait.
enum class wait_entry : unsigned {
    unchecked, // of what the program gave
    checked,   // the caller has
    again,     // after all warps have placed a batch
};

// Waits in all cases. The lead warp.
DCUDA_COLD unsigned await_notifications(lead_warp warp, shared_state shared, std::uint32_t tag, std::uint32_t expected,
                                        wait_entry entry) {
    rank_state& state = shared.get();
    const bool again = entry == wait_entry::again;
    if (entry == wait_entry::unchecked && !check_wait(warp, state, operation::wait_notifications, tag, expected))
        return static_cast<unsigned>(wait_result::ended);
    // PERF: found here, where ptxas takes 58 registers; 63, if it is found where it is used.
    [[maybe_unused]] const endpoint& own = state.own.of(warp);
#if DCUDA_WARPS
    if (again) {
        batch messages = posted_batch_of(warp, state);
        messages.mask = own.posted_mask;
        messages.width = own.posted_width;
        messages.row = warp.index / messages.width;
        messages.queue = own.posted_queue + warp.index % messages.width;
        settle<true>(warp, state, messages);
        give_credit(warp, state, 2);
        if (warp.leads()) count_as_new_wait(exec::lead_access::alone(), state);
    }
#endif
    const bool may_share = DCUDA_WARPS != 0 && state.group().threads() >= 64;
    std::uint32_t counter = known_counter(warp, state, tag), arrived = 0;
    bool enough =
        consume(warp, state, tag, expected, counter, arrived); // they came while we waited for others, or shared
    if (!enough && !again && warp.leads())
        begin_wait(exec::lead_access::alone(), state, waiting::notifications, operation::wait_notifications, tag,
                   expected, 1, arrived);
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

// Whether the run has ended. The lead warp.
DCUDA_DEVICE bool has_ended(const lead_warp& warp, rank_state& state) {
    const bool ended = any(warp, warp.leads() && load_relaxed(state.device.aborted) != 0);
    if (ended && warp.leads()) store_relaxed(&state.ended, 1);
    return ended;
}

// After an unsuccessful test, or another call that ranks spin with. Once in so many calls, as that costs others
// something, the rank leaves the processor to others, sees whether the run has ended, and tells sources what it has
// taken. The lead warp.
inline constexpr std::uint32_t tests_between_looks = DCUDA_BACKEND_CUDA ? 16 : 1;
DCUDA_DEVICE bool has_ended_while_spinning(const lead_warp& warp, rank_state& state,
                                           std::uint32_t calls_between = tests_between_looks) {
    const std::uint32_t calls = state.own.of(warp).spinning_calls;
    sync(warp);
    if (warp.leads()) state.own.of(warp).spinning_calls = calls + 1;
    if (calls % calls_between != 0) return false;
    exec::relax();
    give_credit(warp, state, 0);
    return has_ended(warp, state);
}

// The wait by a test: whether as many have come. The lead warp.
DCUDA_COLD unsigned poll_once(lead_warp warp, shared_state shared, std::uint32_t tag, std::uint32_t expected) {
    rank_state& state = shared.get();
    if (!check_wait(warp, state, operation::test_notifications, tag, expected))
        return static_cast<unsigned>(wait_result::ended);
    std::uint32_t counter = known_counter(warp, state, tag), arrived = 0;
    bool enough = consume(warp, state, tag, expected, counter, arrived);
    if (!enough && poll_notifications(warp, state, tag, counter, false) != poll_outcome::nothing)
        enough = consume(warp, state, tag, expected, counter, arrived);
    if (enough) return static_cast<unsigned>(wait_result::enough);
    return static_cast<unsigned>(has_ended_while_spinning(warp, state) ? wait_result::ended : wait_result::none);
}

// What is left when the lead warp alone could not end a wait. All threads of the rank.
DCUDA_COLD void finish_wait(shared_state shared, std::uint32_t tag, std::uint32_t expected, unsigned result) {
    rank_state& state = shared.get();
    while (static_cast<wait_result>(result) == wait_result::share) {
#if DCUDA_WARPS
        place_posted_batch(state);
#endif
        state.group().sync();
        result = exec::decide(state.group(), state.decision, [&](const lead_warp& warp) {
            return await_notifications(warp, state, tag, expected, wait_entry::again);
        });
    }
    if (static_cast<wait_result>(result) == wait_result::ended) exec::exit_thread();
}

// Tells the host of notifications that have come and that the rank has not waited for. After the barrier of the rank's
// end, which all have come before. The lead warp.
DCUDA_COLD void report_unconsumed(lead_warp warp, shared_state shared) {
    rank_state& state = shared.get();
    save_tags(warp, state);
    std::uint32_t tags = 0, first = 0, count = 0;
    for (std::uint32_t begin = 0; begin < state.device.tags.wire_count(); begin += warp.count) {
        const std::uint32_t tag = begin + warp.index;
        const std::uint32_t left = tag < state.device.tags.wire_count()
                                       ? load_relaxed(state.counters + tag) - state.tag_records[tag].consumed
                                       : 0;
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

// The wait in all cases. All threads of the rank.
DCUDA_COLD void wait_slowly(shared_state shared, std::uint32_t tag, std::uint32_t expected, wait_entry entry) {
    rank_state& state = shared.get();
    const unsigned result = exec::decide(state.group(), state.decision, [&](const lead_warp& warp) {
        return await_notifications(warp, state, tag, expected, entry);
    });
    if (static_cast<wait_result>(result) != wait_result::enough) finish_wait(state, tag, expected, result);
}

// All threads of the rank. PERF: that the tag is one is checked where nothing is predicted. So a number that is no tag,
// but the wire tag of a source from which something has come, is waited for: a check would cost every wait a load.
template <wait_entry Entry>
DCUDA_COLD void await(const caller by, std::uint32_t tag, std::uint32_t count) {
#if DCUDA_WARPS
    if (exec::attempt(
            by, [&](const full_warp& warp) { return await_predicted(warp, by.state(), tag, count); },
            [](const full_warp&) {}))
        return;
#endif
    exec::far(wait_slowly)(by.state(), tag, count, Entry);
}

DCUDA_DEVICE void wait_notifications(const caller& by, int tag, int count) {
    await<wait_entry::unchecked>(by, static_cast<std::uint32_t>(tag), static_cast<std::uint32_t>(count));
}

// Ends the run unless notifications with this tag can be told apart by this member as their source. All threads.
DCUDA_DEVICE void check_source(rank_state& state, operation where, std::uint32_t source, communicator comm,
                               std::uint32_t tag, std::uint32_t count) {
#if DCUDA_CHECKS
    const tag_numbers& tags = state.device.tags;
    if (tag >= tags.count) report_and_leave(state, fault::tag, where, 0, 0, tag, 0, tags.count);
    if (tag < tags.plain) report_and_leave(state, fault::plain_tag, where, 0, 0, tag, 0, tags.count);
    if (static_cast<std::int32_t>(count) < 0) report_and_leave(state, fault::count, where, 0, tag, count, 0, 0);
    const std::uint32_t members = size_of(state, comm);
    if (members == 0) report_and_leave(state, fault::communicator, where, 0, static_cast<std::uint32_t>(comm), 0, 0, 0);
    if (source >= members) report_and_leave(state, fault::rank, where, 0, source, 0, 0, members);
#else
    (void)state, (void)where, (void)source, (void)comm, (void)tag, (void)count;
#endif
}

// Waits for notifications from one source: those with the wire tag that they have. All threads of the rank.
DCUDA_COLD void await_from(const caller by, std::uint32_t source, communicator comm, std::uint32_t tag,
                           std::uint32_t count) {
    rank_state& state = by.state();
    check_source(state, operation::wait_notifications_from, source, comm, tag, count);
    await<wait_entry::checked>(by, state.device.tags.wire_tag(tag, world_rank_of(state, comm, source)), count);
}

DCUDA_DEVICE void wait_notifications_from(const caller& by, int source, communicator comm, int tag, int count) {
    await_from(by, static_cast<std::uint32_t>(source), comm, static_cast<std::uint32_t>(tag),
               static_cast<std::uint32_t>(count));
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
