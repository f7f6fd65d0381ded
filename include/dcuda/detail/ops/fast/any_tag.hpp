// SPDX-License-Identifier: BSD-3-Clause
// The fast path of waits for any of several tags: what is near the rank. wait_tags.hpp has what goes on where it is not
// so.
#pragma once

#include "dcuda/detail/ops/fast/predicted_wait.hpp"

namespace dcuda::detail {

// The thread that has the smallest value, among those with a bit in `hits`, of which there is one.
template <class Group>
DCUDA_DEVICE unsigned with_smallest(const Group& group, unsigned hits, std::uint32_t value) {
    unsigned thread = lowest(hits);
    std::uint32_t smallest = broadcast(group, value, thread);
    for (hits &= hits - 1; hits != 0; hits &= hits - 1) {
        const std::uint32_t other = broadcast(group, value, lowest(hits));
        if (other >= smallest) continue;
        smallest = other;
        thread = lowest(hits);
    }
    return thread;
}

DCUDA_DEVICE bool has_pending(const tag_record& record) { return record.counter != record.consumed; }

// The first of these tags, from number `begin` on and around, that is near and with which a notification is there: its
// number in the range, or tags.count. PERF: what a message has brought is near.
template <class Group>
DCUDA_DEVICE std::uint32_t find_near_pending(const Group& group, endpoint& own, const tag_range& tags,
                                             std::uint32_t begin) {
    sync(group); // what the leader has counted
    std::uint32_t nearest = tags.count, found = tags.count;
    for (unsigned first = 0; first < cached_tags; first += group.count) {
        const unsigned place = first + group.index;
        const std::uint32_t number = place < cached_tags ? own.tag_keys[place] - tags.first : tags.count;
        const bool is_pending = number < tags.count && has_pending(own.tags[place].record);
        const unsigned hits = vote(group, is_pending);
        if (hits == 0) continue;
        const unsigned thread = with_smallest(group, hits, tags.distance(begin, number));
        const std::uint32_t distance = broadcast(group, tags.distance(begin, number), thread);
        if (distance >= nearest) continue;
        nearest = distance;
        found = broadcast(group, number, thread);
    }
    return found;
}

#if DCUDA_WARPS

// Looks once at the next message of each queue that is near, and takes one that has one of these tags, if the lead
// warp can place the payload, the first tag from number `begin` on and around: the tag's number in the range, or
// tags.count, and then nothing has happened. The lead warp.
DCUDA_DEVICE std::uint32_t take_near_message(const full_warp& warp, rank_state& state, const tag_range& tags,
                                             std::uint32_t begin) {
    endpoint& own = state.own.of(warp);
    const bool is_queue = warp.index < near_queues_of(own);
    const inbound_queue& next = own.inbound[warp.index % near_queues];
    const std::uint32_t position = next.taken.messages;
    packet head{};
    if (is_queue)
        head = load_packet<order_tag::message_observe>(slot_at(state, next.place, state.device.queues.header(position)),
                                                       position + 1);
    const mailbox_header message{{head.payload[0], head.payload[1], head.payload[2]}};
    const bool fits =
        is_queue && head.sequence == position + 1 && tags.contains(message.tag()) && is_placed_by_words(message);
    const unsigned hits = vote(warp, fits);
    if (hits == 0) return tags.count;
    // With one tag, the queues in turn.
    const std::uint32_t turn = (warp.index - own.queue_of_any - 1) % near_queues;
    const unsigned number =
        with_smallest(warp, hits, tags.distance(begin, message.tag() - tags.first) * near_queues + turn);
    const std::uint32_t tag = broadcast(warp, message.tag(), number);
    take_next_message(warp, state, number);
    if (warp.leads()) own.queue_of_any = number;
    return tag - tags.first;
}

#endif

// Looks so often, or until there is such a message. The lead warp.
DCUDA_COLD std::uint32_t look_for_message(lead_warp warp, shared_state shared, tag_range tags, std::uint32_t begin,
                                          unsigned most_looks) {
    std::uint32_t number = tags.count;
#if DCUDA_WARPS
    DCUDA_NO_UNROLL
    for (unsigned looks = 0; warp.count == 32 && looks < most_looks && number == tags.count; ++looks)
        number = take_near_message(full_warp(warp), shared.get(), tags, begin);
#else
    (void)warp, (void)shared, (void)begin, (void)most_looks;
#endif
    return number;
}

} // namespace dcuda::detail
