// SPDX-License-Identifier: BSD-3-Clause
// Waiting for any of several tags, waiting for a limited time, and looking at how much has come.
#pragma once

#include "dcuda/detail/ops/fast/any_tag.hpp"
#include "dcuda/detail/ops/waits/wait.hpp"

namespace dcuda::detail {

// Whether a rank may wait for these; else the run ends. The lead warp.
DCUDA_DEVICE bool check_range(const lead_warp& warp, rank_state& state, operation where, const tag_range& tags) {
#if DCUDA_CHECKS
    const std::uint32_t limit = state.device.tags.count, plain = state.device.tags.plain;
    const bool is_tag = tags.first < limit, is_range = is_tag && tags.count != 0 && tags.count <= limit - tags.first;
    if (is_range && tags.first + tags.count <= plain) return true;
    const std::uint32_t matched = tags.first < plain ? plain : tags.first; // the first one
    if (warp.leads())
        report_fault(exec::lead_access::alone(), state,
                     is_range ? fault::matched_tag
                     : is_tag ? fault::tag_range
                              : fault::tag,
                     where, 0, tags.first,
                     is_range ? matched
                     : is_tag ? tags.count
                              : tags.first,
                     0, limit);
    return false;
#else
    (void)warp, (void)state, (void)where, (void)tags;
    return true;
#endif
}

inline constexpr unsigned tags_at_once = 4; // of each thread: that many loads are under way together

// The sum of this thread's part of the tags' counters: when it has changed, notifications have been counted.
template <class Group>
DCUDA_DEVICE std::uint32_t sum_of_counters(const Group& group, const rank_state& state, const tag_range& tags) {
    std::uint32_t sum = 0;
    for (std::uint32_t begin = group.index; begin < tags.count; begin += tags_at_once * group.count) {
        std::uint32_t counts[tags_at_once];
        DCUDA_UNROLL
        for (unsigned k = 0; k < tags_at_once; ++k) {
            const std::uint32_t number = begin + k * group.count;
            counts[k] = number < tags.count ? load_relaxed(state.counters + tags.first + number) : 0;
        }
        DCUDA_UNROLL
        for (unsigned k = 0; k < tags_at_once; ++k) sum += counts[k];
    }
    return sum;
}

// Brings the table of tags up to date: what has been taken as messages, and these tags' counters. Where a counter has
// changed, what its sources had sent as messages before is taken first, as in poll_counter(). The result is the sum of
// the counters that this thread has read, as sum_of_counters() gives it later.
// ORDER notify-observe: each thread acquires what the counters that it has read say; the group's sync passes that on.
template <class Group>
DCUDA_DEVICE std::uint32_t update_table(const Group& group, rank_state& state, const tag_range& tags) {
    save_tags(group, state);
    std::uint32_t sum = 0;
    bool has_changed = false;
    for (std::uint32_t number = group.index; number < tags.count; number += group.count) {
        const std::uint32_t tag = tags.first + number;
        const std::uint32_t now = load_relaxed(state.counters + tag);
        sum += now;
        if (now == state.tag_records[tag].counter) continue;
        acquire_after<order_tag::notify_observe>(state.job_scope, state.counters + tag);
        state.tag_records[tag].counter = now;
        has_changed = true;
    }
    if (any(group, has_changed)) {
        reload_tags(group, state);
        exec::far(take_messages<Group>)(group, state);
        save_tags(group, state);
    }
    return sum;
}

// The first of these tags, from number `begin` on and around, with which a notification is there: its number in the
// range, or tags.count. By the table, which is up to date.
template <class Group>
DCUDA_DEVICE std::uint32_t find_pending(const Group& group, const rank_state& state, const tag_range& tags,
                                        std::uint32_t begin) {
    const auto number_at = [&](std::uint32_t offset) {
        const std::uint32_t number = begin + offset;
        return number < tags.count ? number : number - tags.count;
    };
    for (std::uint32_t first = 0; first < tags.count; first += tags_at_once * group.count) {
        bool is_pending[tags_at_once];
        DCUDA_UNROLL
        for (unsigned k = 0; k < tags_at_once; ++k) {
            const std::uint32_t offset = first + k * group.count + group.index;
            is_pending[k] = offset < tags.count && has_pending(state.tag_records[tags.first + number_at(offset)]);
        }
        DCUDA_UNROLL
        for (unsigned k = 0; k < tags_at_once; ++k) {
            const unsigned hits = vote(group, is_pending[k]);
            if (hits != 0) return number_at(first + k * group.count + lowest(hits));
        }
    }
    return tags.count;
}

// Looks once at everything, and knows the first tag's counter then; whether something has come. The lead warp.
// PERF: called by exec::far, so that the waits here have a part of the registers.
DCUDA_COLD bool look_once(lead_warp warp, shared_state shared, tag_range tags) {
    rank_state& state = shared.get();
    std::uint32_t counter = known_counter(warp, state, tags.first), arrived = 0;
    const bool found = poll_notifications(warp, state, tags.first, counter, false) != poll_outcome::nothing;
    if (found) consume(warp, state, tags.first, 0, counter, arrived);
    return found;
}

// Whether that many notifications with a tag are there; consumes them if so. `arrived`: as for consume(). The lead
// warp.
DCUDA_DEVICE bool consume_known(const lead_warp& warp, rank_state& state, std::uint32_t tag, std::uint32_t expected,
                                std::uint32_t& arrived) {
    return consume(warp, state, tag, expected, known_counter(warp, state, tag), arrived);
}

inline constexpr std::uint32_t waits_for_table = 16; // of which one looks at the table, whatever is near
// PERF: a look takes 0.4 us, one at everything 2. The first looks are as many as two ranks that serve each other take.
inline constexpr unsigned first_looks = 16, looks_between = 4;

// The tag after the one that wait_any returned last: its number in the range.
DCUDA_DEVICE std::uint32_t next_of_any(const endpoint& own, const tag_range& tags) {
    const std::uint32_t next = own.last_of_any + 1 - tags.first;
    return next < tags.count ? next : 0;
}

// Waits until a notification with one of these tags is there: its number in the range, or tags.count if the run has
// ended. The lead warp.
//
// Fair: what is there already is taken from the tag after the last one on; what comes while the rank waits, in any
// order.
DCUDA_COLD std::uint32_t await_pending(lead_warp warp, shared_state shared, operation where, tag_range tags) {
    rank_state& state = shared.get();
    endpoint& own = state.own.of(warp);
    std::uint32_t known = update_table(warp, state, tags);
    std::uint32_t number = find_pending(warp, state, tags, next_of_any(own, tags));
    sync(warp); // all have read the books that now change
    if (warp.leads()) {
        own.all_near = {tags.first, number == tags.count ? tags.count : 0};
        own.quick_waits = 0;
    }
    if (number != tags.count) return number;
    if (warp.leads())
        begin_wait(exec::lead_access::alone(), state, waiting::notifications, where, tags.first, 1, tags.count);
    give_credit(warp, state, 2);
    poll_until(
        [&](unsigned polls) {
            // The first time everything is taken, so that no queue is left out for ever. The CPU backend sleeps after a
            // look at everything.
            if (DCUDA_BACKEND_CUDA && polls % 2 == 0) {
                number = exec::far(look_for_message)(warp, state, tags, next_of_any(own, tags), looks_between);
                if (number == tags.count) return poll_result::nothing;
                if (warp.leads()) count_as_new_wait(exec::lead_access::alone(), state);
                return poll_result::all;
            }
            const std::uint32_t now = sum_of_counters(warp, state, tags);
            const bool found = exec::far(look_once)(warp, state, tags), is_counted = any(warp, now != known);
            if (!found && !is_counted) return poll_result::nothing;
            if (warp.leads()) count_as_new_wait(exec::lead_access::alone(), state);
            number = find_near_pending(warp, own, tags, 0);
            if (number == tags.count || is_counted) {
                known = update_table(warp, state, tags);
                number = find_pending(warp, state, tags, 0);
            }
            return number != tags.count ? poll_result::all : poll_result::something;
        },
        [&] {
            if (give_credit(warp, state, 0) && warp.leads()) count_as_new_wait(exec::lead_access::alone(), state);
            return any(warp, warp.leads() && keep_waiting(exec::lead_access::alone(), state, 0));
        },
        &state.status->doorbell);
    sync(warp); // all have read the records that now change
    if (warp.leads()) end_wait(exec::lead_access::alone(), state);
    return number;
}

// The wait for any of these tags: the number in the range of one with which a notification is there, or tags.count if
// the run has ended. The lead warp. It looks at what is near, unless something may be there with a tag that is not; and
// in every sixteenth wait at everything: notifications that were counted, and not sent as messages, and those behind
// other messages, may be passed over up to 15 times.
DCUDA_DEVICE std::uint32_t find_or_await(const lead_warp& warp, rank_state& state, const tag_range& tags) {
    endpoint& own = state.own.of(warp);
    const std::uint32_t requests = load_requests(state); // PERF: the trip to the L2 cache ends before it is needed
    const std::uint32_t waits = own.quick_waits;
    std::uint32_t number = tags.count;
    if (own.all_near.is(tags) && waits < waits_for_table) {
        number = find_near_pending(warp, own, tags, next_of_any(own, tags));
        if (number == tags.count) number = look_for_message(warp, state, tags, next_of_any(own, tags), first_looks);
    }
    answer_requests(warp, state, requests);
    sync(warp); // all have read the books that now change
    if (warp.leads()) own.quick_waits = waits + 1;
    return number != tags.count ? number : exec::far(await_pending)(warp, state, operation::wait_any, tags);
}

// What the operations below tell all threads: a wait_result, and which of rank_state::answers has their number.
DCUDA_DEVICE unsigned with_answer(wait_result result, unsigned turn) {
    return static_cast<unsigned>(result) << 1 | turn;
}
DCUDA_DEVICE unsigned without_answer(wait_result result) { return static_cast<unsigned>(result) << 1; }

// The lead warp of an operation has chosen that; all threads get the answer, or leave the kernel with the run.
DCUDA_DEVICE std::uint32_t answer_or_leave(const rank_state& state, unsigned decision) {
    if (static_cast<wait_result>(decision >> 1) == wait_result::ended) exec::exit_thread();
    return state.answers[decision & 1];
}

// Consumes a notification with any of these tags. The lead warp.
DCUDA_COLD unsigned take_any(lead_warp warp, shared_state shared, std::uint32_t first, std::uint32_t count) {
    rank_state& state = shared.get();
    const tag_range tags{first, count};
    if (!check_range(warp, state, operation::wait_any, tags)) return without_answer(wait_result::ended);
    const std::uint32_t number = find_or_await(warp, state, tags);
    if (number == tags.count) return without_answer(wait_result::ended);
    const std::uint32_t tag = tags.first + number;
    std::uint32_t arrived = 0;
    consume_known(warp, state, tag, 1, arrived);
    if (warp.leads()) state.own.of(warp).last_of_any = tag;
    return with_answer(wait_result::enough, post_answer(warp, state, tag));
}

// Consumes a notification with each of these tags with which one is there, but at least with one; writes down which
// tags these are, and answers how many. The lead warp.
DCUDA_COLD unsigned take_some(lead_warp warp, shared_state shared, std::uint32_t first, std::uint32_t count,
                              int* arrived) {
    rank_state& state = shared.get();
    const tag_range tags{first, count};
    if (!check_range(warp, state, operation::wait_some, tags)) return without_answer(wait_result::ended);
    exec::far(look_once)(warp, state, tags); // all that has come is told
    if (exec::far(await_pending)(warp, state, operation::wait_some, tags) == tags.count)
        return without_answer(wait_result::ended);
    save_tags(warp, state);
    std::uint32_t found = 0;
    for (std::uint32_t begin = 0; begin < tags.count; begin += warp.count) {
        const std::uint32_t number = begin + warp.index, tag = tags.first + number;
        const bool is_pending = number < tags.count && has_pending(state.tag_records[tag]);
        const unsigned hits = vote(warp, is_pending);
        if (is_pending) {
            ++state.tag_records[tag].consumed;
            arrived[found + bits_in(hits & ((1u << warp.index) - 1))] = static_cast<int>(tag);
        }
        found += bits_in(hits);
    }
    reload_tags(warp, state);
    return with_answer(wait_result::enough, post_answer(warp, state, found));
}

// How many notifications with this tag are there. The lead warp.
DCUDA_COLD unsigned count_pending(lead_warp warp, shared_state shared, std::uint32_t tag) {
    rank_state& state = shared.get();
    if (!check_wait(warp, state, operation::pending_notifications, tag, 0)) return without_answer(wait_result::ended);
    const bool found = exec::far(look_once)(warp, state, tag_range{tag, 1});
    std::uint32_t arrived = 0;
    consume_known(warp, state, tag, 0, arrived);
    if (!found && has_ended_while_spinning(warp, state)) return without_answer(wait_result::ended);
    return with_answer(wait_result::enough, post_answer(warp, state, arrived));
}

// Waits for a limited time. The lead warp. The watchdog does not hear of it: such a wait ends by itself.
DCUDA_COLD unsigned await_for(lead_warp warp, shared_state shared, std::uint32_t tag, std::uint32_t expected,
                              std::uint64_t nanoseconds) {
    rank_state& state = shared.get();
    if (!check_wait(warp, state, operation::wait_notifications_for, tag, expected))
        return static_cast<unsigned>(wait_result::ended);
    const std::uint64_t begin_ns = clock_ns();
    std::uint32_t arrived = 0;
    wait_result result = consume_known(warp, state, tag, expected, arrived) ? wait_result::enough : wait_result::ended;
    if (result == wait_result::enough) return static_cast<unsigned>(result);
    give_credit(warp, state, 2);
    poll_until(
        [&](unsigned) {
            const bool found = exec::far(look_once)(warp, state, tag_range{tag, 1});
            if (found && consume_known(warp, state, tag, expected, arrived))
                result = wait_result::enough;
            else if (any(warp, warp.leads() && clock_ns() - begin_ns >= nanoseconds))
                result = wait_result::none;
            else
                return found ? poll_result::something : poll_result::nothing;
            return poll_result::all;
        },
        [&] {
            give_credit(warp, state, 0);
            return !has_ended(warp, state);
        },
        &state.status->doorbell,
        nanoseconds / 8 < usual_sleep_ns ? static_cast<long>(nanoseconds / 8 + 1) : usual_sleep_ns);
    if (result == wait_result::none && has_ended_while_spinning(warp, state)) result = wait_result::ended;
    return static_cast<unsigned>(result);
}

// --- The operations: all threads of the rank ------------------------------------------------------------------------

DCUDA_DEVICE int wait_any(rank_state& state, int first_tag, int tags) {
    const unsigned decision = exec::decide(state.group(), state.decision, [&](const lead_warp& warp) {
        return exec::far(take_any)(warp, state, static_cast<std::uint32_t>(first_tag),
                                   static_cast<std::uint32_t>(tags));
    });
    return static_cast<int>(answer_or_leave(state, decision));
}

// What wait_some writes to must be memory that all threads of the rank see.
DCUDA_DEVICE void check_results(rank_state& state, const int* arrived) {
#if DCUDA_CHECKS
    if (exec::is_local_memory(arrived))
        report_and_leave(state, fault::local_memory, operation::wait_some, 0, 0,
                         static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(arrived)), 0);
#else
    (void)state, (void)arrived;
#endif
}

DCUDA_DEVICE int wait_some(rank_state& state, int first_tag, int tags, int* arrived) {
    check_results(state, arrived);
    const unsigned decision = exec::decide(state.group(), state.decision, [&](const lead_warp& warp) {
        return exec::far(take_some)(warp, state, static_cast<std::uint32_t>(first_tag),
                                    static_cast<std::uint32_t>(tags), arrived);
    });
    return static_cast<int>(answer_or_leave(state, decision));
}

DCUDA_DEVICE int pending_notifications(rank_state& state, int tag) {
    const unsigned decision = exec::decide(state.group(), state.decision, [&](const lead_warp& warp) {
        return exec::far(count_pending)(warp, state, static_cast<std::uint32_t>(tag));
    });
    return static_cast<int>(answer_or_leave(state, decision));
}

DCUDA_DEVICE bool wait_notifications_for(rank_state& state, int tag, int count, std::uint64_t nanoseconds) {
    const unsigned result = exec::decide(state.group(), state.decision, [&](const lead_warp& warp) {
        return exec::far(await_for)(warp, state, static_cast<std::uint32_t>(tag), static_cast<std::uint32_t>(count),
                                    nanoseconds);
    });
    if (static_cast<wait_result>(result) == wait_result::ended) exec::exit_thread();
    return static_cast<wait_result>(result) == wait_result::enough;
}

} // namespace dcuda::detail
