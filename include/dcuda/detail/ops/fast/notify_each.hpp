// SPDX-License-Identifier: BSD-3-Clause
// Notifications of several targets, which leave together. All threads of the rank call them.
#pragma once

#include "dcuda/detail/ops/put.hpp"

namespace dcuda::detail {

#if DCUDA_WARPS

// A connection that this rank has: its place among those that are near, or cached_connections and the number of its
// record in the rank's table.
inline constexpr std::uint32_t no_connection = UINT32_MAX;
DCUDA_DEVICE rank_connection& connection_at(const rank_state& state, endpoint& own, std::uint32_t number) {
    return number < cached_connections ? own.connections[number] : connections_of(state)[number - cached_connections];
}

// The connection to a rank of a communicator, or no_connection: there is none yet, or it is not found at once. Each
// thread of the lead warp asks for a rank of its own; UINT32_MAX: for none.
// PERF: all loads of a step are under way at a time, for all threads: two trips to the L2 cache for the whole list.
DCUDA_COLD std::uint32_t find_own_connection(full_warp warp, shared_state shared, communicator comm,
                                             std::uint32_t rank) {
    constexpr unsigned probes = 4;
    rank_state& state = shared.get();
    const endpoint& own = state.own.of(warp);
    if (rank >= size_of(state, comm)) return no_connection;
    const std::uint32_t world_rank = world_rank_of(state, comm, rank), first = hash_of(world_rank);
    connection_slot seen[probes];
    for (unsigned probe = 0; probe < probes; ++probe) seen[probe] = index_slot(state, first + probe);
    std::uint32_t found = no_connection;
    for (unsigned probe = 0; probe < probes; ++probe)
        if (seen[probe].rank == world_rank + 1) found = cached_connections + seen[probe].record;
    // PERF: unrolled, since a thread then loads four keys at a time.
    DCUDA_UNROLL
    for (unsigned place = 0; place < cached_connections; ++place)
        if (own.connection_keys[place] == world_rank) found = place;
    return found;
}

// The headers of a batch, which go to the first targets of a list. A batch ends before a target to which there is no
// connection yet, or whose queue is full, or that the batch has already. Each thread of the lead warp looks up one
// target. Connections that are not near are used where they lie: the lead warp alone reads and writes them, with a
// barrier of the warp between one batch and what comes next.
// PERF: one after the other, with a barrier of the block before each, 8 notifications take 4 us (H200, 2026-11-28), and
// 3 us each if their targets are not near, as with more than 26 in turn.
class header_batch {
public:
    // exec::choose() brings numbers below 32.
    static constexpr unsigned most = exec::decisions - 1;

    // How many headers there are. Nothing has happened yet.
    DCUDA_DEVICE unsigned prepare(const full_warp& warp, rank_state& state, const int* targets, unsigned count,
                                  communicator comm, std::uint32_t tag) {
        endpoint& own = state.own.of(warp);
        const bool has_target = warp.index < count;
        const std::uint32_t target = has_target ? static_cast<std::uint32_t>(targets[warp.index]) : UINT32_MAX;
        const std::uint64_t key = target_key(notify_window(comm), target);
        const std::uint32_t hint = own.target_hints.at[own.target_hints.slot(hash_of(key))];
        connection_ = own.targets[hint & hint_entry].key == key ? hint >> 8 : no_connection;
        const bool is_sought = has_target & (connection_ == no_connection);
        if (any(warp, is_sought)) {
            const std::uint32_t found =
                exec::far(find_own_connection)(warp, state, comm, is_sought ? target : UINT32_MAX);
            if (is_sought) connection_ = found;
        }
        requests_ = load_requests(state); // PERF: the trip to the L2 cache ends before it is needed
        const bool is_known = connection_ != no_connection;
        const rank_connection& path = connection_at(state, own, is_known ? connection_ : 0);
        const bool fits = has_target & is_known & (tag < state.device.tags.plain) & has_room(state, path, 0);
        slot_ = path.queue + state.device.queues.header(path.sent.messages);
        sequence_ = path.sent.messages + 1;
        releases_ = path.flushes != own.flushes;
        const bool is_first = lowest_with(warp, connection_) == warp.index; // no earlier thread has this target
        const unsigned misfits = vote(warp, !(fits & is_first));
        count_ = misfits == 0 ? most : lowest(misfits);
        return count_;
    }

    // They leave, all at the same time; after the block's barrier.
    // ORDER message-publish: each thread stores a header, behind a fence of its own if the header releases. A fence
    // that the leader has executed before, as for a flush, releases by later stores of the leader only. The block's
    // barrier has ordered before these fences what the other threads have stored, and the warp's sync what the leader
    // has waited for.
    DCUDA_DEVICE void send(const full_warp& warp, rank_state& state, std::uint32_t tag) const {
        endpoint& own = state.own.of(warp);
        const bool has_header = warp.index < count_;
        rank_connection& path = connection_at(state, own, has_header ? connection_ : 0);
        const bool must_release = has_header && releases_ && (!warp.leads() || has_unreleased(own, path));
        const unsigned system_releases = vote(warp, must_release && path.reach == scope::system);
        if (any(warp, must_release)) {
            const scope reach = system_releases != 0 ? scope::system : scope::device;
            if (warp.leads()) exec::complete_copies(state.staging);
            sync(warp); // what the leader has waited for comes before every thread's fence
            fence_release<order_tag::message_publish>(reach);
            if (warp.leads()) count_as_released(own, reach);
        }
        if (has_header)
            store_packet<order_tag::message_publish>(slot_, 0, releases_ ? message_releases : 0, tag << 16, sequence_);
        const unsigned to_system = vote(warp, has_header && path.reach == scope::system);
        const bool is_asked = requests_ != own.requests_seen;
        sync(warp); // the leader has looked at what now changes
        if (has_header) {
            path.sent.messages = sequence_;
            if (releases_) count_release(own, path);
            if (path.is_far != 0) announce_message(path);
            if (DCUDA_BACKEND_CPU) ring_doorbell(&path.status->doorbell);
        }
        if (warp.leads()) {
            own.sent[static_cast<unsigned>(scope::system)] += bits_in(to_system);
            own.sent[static_cast<unsigned>(scope::device)] += count_ - bits_in(to_system);
        }
        sync(warp);
        if (any(warp, is_asked)) answer_new_requests<false>(warp, state);
    }

private:
    packet* slot_ = nullptr; // of this thread's header
    std::uint32_t sequence_ = 0;
    std::uint32_t connection_ = no_connection;
    std::uint32_t requests_ = 0; // as load_requests() has found them
    unsigned count_ = 0;         // of headers
    bool releases_ = false;      // this thread's header
};

// Notifies each of these ranks of a communicator, in turn. All threads of the rank.
DCUDA_COLD void notify_each(const caller by, const int* targets, unsigned count, communicator comm, int tag) {
    rank_state& state = by.state();
    const auto number = static_cast<std::uint32_t>(tag);
    unsigned done = 0, misses = 0; // of batches in a row
    DCUDA_NO_UNROLL
    while (done < count) {
        const unsigned left = count - done < header_batch::most ? count - done : header_batch::most;
        header_batch batch;
        // PERF: after two empty batches the other targets are notified one by one. Targets of a list have queues, or
        // none; and are notified equally often, so that their queues seem full at the same time.
        const unsigned sent = misses > 1 ? 0 : exec::choose(by, [&](const full_warp& warp) {
            return batch.prepare(warp, state, targets + done, left, comm, number);
        });
        misses = sent == 0 ? misses + 1 : 0;
        if (sent != 0) exec::act_alone(by, [&](const full_warp& warp) { batch.send(warp, state, number); });
        done += sent;
        if (sent < left) notify(by, operation::notify, targets[done++], comm, tag);
    }
}

#endif

} // namespace dcuda::detail
