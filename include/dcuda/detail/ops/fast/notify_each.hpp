// SPDX-License-Identifier: BSD-3-Clause
// Notifications of several targets, which leave together. All threads of the rank call them.
#pragma once

#include "dcuda/detail/ops/put.hpp"

namespace dcuda::detail {

#if DCUDA_WARPS

// The headers of a batch, which go to the first targets of a list. A batch ends before a target that was not notified
// lately, whose queue is full or is not near its mailbox, or that the batch has already. Each thread of the lead warp
// looks up one target.
// PERF: one after the other, with a barrier of the block before each, 8 notifications take 4 us and more (H200).
class header_batch {
public:
    // exec::choose() brings numbers below 32.
    static constexpr unsigned most = exec::decisions - 1;

    // How many headers there are. Nothing has happened yet. `window`: notify_window() of the communicator.
    DCUDA_DEVICE unsigned prepare(const full_warp& warp, rank_state& state, const int* targets, unsigned count,
                                  std::uint32_t window, std::uint32_t tag) {
        endpoint& own = state.own.of(warp);
        const bool has_target = warp.index < count;
        const std::uint64_t key =
            target_key(window, has_target ? static_cast<std::uint32_t>(targets[warp.index]) : UINT32_MAX);
        const std::uint32_t hint = own.target_hints.at[own.target_hints.slot(hash_of(key))];
        requests_ = load_requests(state); // PERF: the trip to the L2 cache ends before it is needed
        const target_entry& entry = own.targets[hint & hint_entry];
        connection_ = hint >> 8;
        const rank_connection& path = own.connections[connection_];
        const bool fits = has_target & (entry.key == key) & (entry.small != 0) & (tag < state.device.tags.plain) &
                          (path.is_far == 0) & queue_has_room(state.device.queues, path, 0);
        slot_ = path.queue + state.device.queues.header(path.sent.messages);
        sequence_ = path.sent.messages + 1;
        releases_ = path.flushes != own.flushes;
        const unsigned misfits = vote(warp, !fits);
        const unsigned fitting = misfits == 0 ? most : lowest(misfits);
        static_assert(cached_connections <= 32);
        unsigned taken = 0; // connections
        for (count_ = 0; count_ < fitting; ++count_) {
            const unsigned connection = 1u << broadcast(warp, connection_, count_);
            if ((taken & connection) != 0) break;
            taken |= connection;
        }
        return count_;
    }

    // They leave; after the block's barrier.
    // ORDER message-publish: the leader stores all headers, behind the fence that they may need (store_header).
    DCUDA_DEVICE void send(const full_warp& warp, rank_state& state, std::uint32_t tag) const {
        endpoint& own = state.own.of(warp);
        const bool has_header = warp.index < count_;
        rank_connection& path = own.connections[connection_];
        const bool must_release = has_header && releases_ && has_unreleased(own, path);
        const unsigned system_releases = vote(warp, must_release && path.reach == scope::system);
        if (any(warp, must_release)) {
            sync(warp); // all have read what the leader now changes
            if (warp.leads()) release_stores(state, own, system_releases != 0 ? scope::system : scope::device);
        }
        const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(slot_));
        DCUDA_NO_UNROLL
        for (unsigned number = 0; number < count_; ++number) {
            const std::uint64_t low = broadcast(warp, static_cast<std::uint32_t>(address), number),
                                high = broadcast(warp, static_cast<std::uint32_t>(address >> 32), number);
            const std::uint32_t sequence = broadcast(warp, sequence_, number),
                                flags = broadcast(warp, releases_ ? message_releases : 0, number);
            if (warp.leads())
                store_packet<order_tag::message_publish>(
                    reinterpret_cast<packet*>(static_cast<std::uintptr_t>(high << 32 | low)), 0, flags, tag << 16,
                    sequence);
        }
        const unsigned to_system = vote(warp, has_header && path.reach == scope::system);
        const bool is_asked = requests_ != own.requests_seen;
        sync(warp); // the leader has looked at what now changes
        if (has_header) {
            path.sent.messages = sequence_;
            if (releases_) count_release(own, path);
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
    std::uint32_t connection_ = 0;
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
        // PERF: after two empty batches the other targets are notified one by one. Where a list has more of them than a
        // rank keeps near, and comes again and again, none is near when its turn comes.
        const unsigned sent = misses > 1 ? 0 : exec::choose(by, [&](const full_warp& warp) {
            return batch.prepare(warp, state, targets + done, left, notify_window(comm), number);
        });
        misses = sent == 0 ? misses + 1 : 0;
        if (sent != 0) exec::act_alone(by, [&](const full_warp& warp) { batch.send(warp, state, number); });
        done += sent;
        if (sent < left) notify(by, operation::notify, targets[done++], comm, tag);
    }
}

#endif

} // namespace dcuda::detail
