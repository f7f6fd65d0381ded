// The operations of a rank on other ranks: puts, notifications, flush. All threads of the rank call them.
#pragma once

#include "dcuda/detail/collectives.hpp"
#include "dcuda/detail/device_log.hpp"
#include "dcuda/detail/rank_state.hpp"

namespace dcuda::detail {

DCUDA_DEVICE int comm_rank(const rank_state& state, communicator comm) {
    return static_cast<int>(comm == world ? state.world_rank : state.device_rank);
}

DCUDA_DEVICE int comm_size(const rank_state& state, communicator comm) {
    return static_cast<int>(comm == world ? state.world_size : state.ranks_per_device);
}

DCUDA_DEVICE void* user_data(const rank_state& state) { return state.device->user_data; }

// --- Targets -------------------------------------------------------------------------------------------------------

// Where notifications of one target rank go, and who sees them.
struct notification_target {
    std::uint32_t* counters; // [tag]
    scope reach;
};

// `target` counts in the communicator, and is there. Reads the device's tables: the cache of targets keeps the result.
DCUDA_DEVICE notification_target find_counters(const rank_state& state, communicator comm, std::uint32_t target) {
    const std::uint32_t world_target = comm == world ? target : state.first_rank + target;
    const std::uint32_t process = world_target / state.ranks_per_device;
    const std::uint32_t rank = world_target % state.ranks_per_device;
    return {state.device->peers[process].counters + std::size_t(rank) * state.tags,
            process == state.device->process_index ? scope::device : scope::system};
}

DCUDA_DEVICE void check_tag(rank_state& state, operation where, int tag, int target = 0) {
#if DCUDA_CHECKS
    if (static_cast<std::uint32_t>(tag) >= state.tags)
        fail(state, fault::tag, where, 0, static_cast<std::uint32_t>(target), static_cast<std::uint32_t>(tag), 0,
             state.tags);
#else
    (void)state, (void)where, (void)tag, (void)target;
#endif
}

// The target of a put, not in the cache: reads the device's tables. All threads, with the same result.
DCUDA_DEVICE void load_target(rank_state& state, operation where, window win, std::uint32_t rank, std::size_t offset,
                              std::size_t bytes) {
    const window_slot slot = find_window(state, win);
#if DCUDA_CHECKS
    if (!win || slot.id != win.id) fail(state, fault::window, where, win.id, rank, offset, bytes, 0);
    if (rank >= slot.rank_count) fail(state, fault::rank, where, win.id, rank, offset, bytes, slot.rank_count);
#else
    (void)where, (void)offset, (void)bytes;
#endif
    const window_entry entry = slot.entries[rank];
    const notification_target to = find_counters(state, static_cast<communicator>(slot.comm), rank);
    exec::sync_block(); // no thread still reads what the entry holds now
    exec::run_then_sync([&] {
        state.targets[(rank + win.id) % cached_targets] = {win.id,      rank,        entry.base,
                                                           entry.bytes, to.counters, to.reach};
    });
}

// Checks a put and finds its target. All threads, with the same result. By value: the cache may change after the next
// barrier of the block.
DCUDA_DEVICE target_entry find_target(rank_state& state, operation where, window win, int target, std::size_t offset,
                                      std::size_t bytes) {
    const auto rank = static_cast<std::uint32_t>(target);
    const target_entry& cached = state.targets[(rank + win.id) % cached_targets];
    if (!win || cached.window != win.id || cached.rank != rank) load_target(state, where, win, rank, offset, bytes);
#if DCUDA_CHECKS
    if (bytes > cached.bytes || offset > cached.bytes - bytes)
        fail(state, fault::bounds, where, win.id, rank, offset, bytes, cached.bytes);
#endif
    return cached;
}

// The same for a notification alone, which needs no window: the cache has it under a key that no window's id equals.
DCUDA_DEVICE target_entry find_notified(rank_state& state, communicator comm, int target) {
    const auto rank = static_cast<std::uint32_t>(target);
    const std::uint32_t key = 0xffff'fff0 + static_cast<std::uint32_t>(comm);
    target_entry& cached = state.targets[(rank + key) % cached_targets];
    if (cached.window != key || cached.rank != rank) {
#if DCUDA_CHECKS
        const auto ranks = static_cast<std::uint32_t>(comm_size(state, comm));
        if (rank >= ranks) fail(state, fault::rank, operation::notify, 0, rank, 0, 0, ranks);
#endif
        exec::sync_block(); // no thread still reads what the entry holds now
        exec::run_then_sync([&] {
            const notification_target to = find_counters(state, comm, rank);
            cached = {key, rank, nullptr, 0, to.counters, to.reach};
        });
    }
    return cached;
}

// How many notifications with this tag the rank has consumed. One thread.
DCUDA_DEVICE std::uint32_t& consumed_count(rank_state& state, int tag) {
    const auto wanted = static_cast<std::uint32_t>(tag);
    consumed_entry& entry = state.consumed_cache[wanted % cached_tags];
    if (entry.tag != wanted) {
        state.consumed[entry.tag] = entry.count;
        entry = {wanted, state.consumed[wanted]};
    }
    return entry.count;
}

// --- Puts and notifications ----------------------------------------------------------------------------------------
//
// ORDER notify-publish -> notify-observe: all threads of the source copy; the block's barrier orders their stores
// before the one thread that adds to the target's counter with release (device scope for a target on this device,
// system scope for one on another); the target's one thread loads the counter with acquire at a scope that includes the
// source, and its block's barrier orders that before what all its threads do next. So whoever has seen the count reads
// the data, also that of earlier puts of the source, since the release covers all of the block's earlier stores.
// Weaker: the target may read the window's old content.

DCUDA_DEVICE void publish(const target_entry& target, int tag) {
    add_release<order_tag::notify_publish>(target.reach, target.counters + tag, 1);
}

DCUDA_DEVICE void put(rank_state& state, window win, int target, std::size_t offset, std::size_t bytes,
                      const void* source) {
    const target_entry to = find_target(state, operation::put, win, target, offset, bytes);
    exec::copy(to.base + offset, source, bytes);
}

DCUDA_DEVICE void put_notify(rank_state& state, window win, int target, std::size_t offset, std::size_t bytes,
                             const void* source, int tag) {
    check_tag(state, operation::put_notify, tag, target);
    const target_entry to = find_target(state, operation::put_notify, win, target, offset, bytes);
    exec::copy_then_run(to.base + offset, source, bytes, [&] { publish(to, tag); });
}

DCUDA_DEVICE void notify(rank_state& state, int target, communicator comm, int tag) {
    check_communicator(state, comm, operation::notify);
    check_tag(state, operation::notify, tag, target);
    const target_entry to = find_notified(state, comm, target);
    exec::sync_then_run([&] { publish(to, tag); });
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

DCUDA_DEVICE void wait_notifications(rank_state& state, int tag, int count) {
    check_count(state, operation::wait_notifications, tag, count);
    exec::run_then_sync([&] {
        std::uint32_t& consumed = consumed_count(state, tag);
        const std::uint32_t base = consumed;
        const auto expected = static_cast<std::uint32_t>(count);
        patience until(state, waiting::notifications, static_cast<std::uint32_t>(tag), base, expected);
        // Counters wrap around; their difference does not as long as fewer than 2^32 notifications are unconsumed.
        const bool enough = poll<order_tag::notify_observe>(
            state.notification_scope, state.counters + tag,
            [&](std::uint32_t value) { return value - base >= expected; }, until);
        if (enough) consumed = base + expected;
        until.done();
        if (until.timed_out()) {
            report_fault(state, fault::timeout, operation::wait_notifications, 0, static_cast<std::uint32_t>(tag),
                         until.seen(), expected, state.device->wait_timeout_ns);
            store_relaxed(&state.ended, 1);
        }
    });
    leave_if_ended(state);
}

DCUDA_DEVICE bool test_notifications(rank_state& state, int tag, int count) {
    check_count(state, operation::test_notifications, tag, count);
    exec::sync_block(); // all threads have read the result of the test before
    exec::run_then_sync([&] {
        if (load_relaxed(state.device->aborted) != 0) store_relaxed(&state.ended, 1);
        std::uint32_t& consumed = consumed_count(state, tag);
        const auto expected = static_cast<std::uint32_t>(count);
        const std::uint32_t value =
            load_acquire<order_tag::notify_observe>(state.notification_scope, state.counters + tag);
        const bool enough = value - consumed >= expected;
        if (enough)
            consumed += expected;
        else
            exec::relax();
        state.result = enough ? 1 : 0;
    });
    leave_if_ended(state);
    return state.result != 0;
}

DCUDA_DEVICE void flush(rank_state& state, window win) {
#if DCUDA_CHECKS
    if (!win || find_window(state, win).id != win.id) fail(state, fault::window, operation::flush, win.id, 0, 0, 0, 0);
#else
    (void)win;
#endif
    // The block's barrier makes the stores of all threads part of what the one thread completes.
    exec::sync_block();
    exec::run_then_sync([] { complete_writes(); });
}

} // namespace dcuda::detail
