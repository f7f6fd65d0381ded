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

// --- Targets
// ----------------------------------------------------------------------------------------------------------

// Where notifications of one target rank go, and who sees them.
struct notification_target {
    std::uint32_t* counter;
    scope reach;
};

// `target` counts in the communicator. All arguments are checked before.
DCUDA_DEVICE notification_target find_counter(const rank_state& state, communicator comm, int target, int tag) {
    const auto world_target = static_cast<std::uint32_t>(target) + (comm == world ? 0 : state.first_rank);
    const std::uint32_t local = world_target - state.first_rank;
    if (local < state.ranks_per_device) {
        std::uint32_t* const first = state.counters - std::size_t(state.device_rank) * state.tags;
        return {first + std::size_t(local) * state.tags + static_cast<std::uint32_t>(tag), scope::device};
    }
    const std::uint32_t process = world_target / state.ranks_per_device;
    const std::uint32_t rank = world_target - process * state.ranks_per_device;
    std::uint32_t* const first =
        process < cached_peers ? state.peer_counters[process] : state.device->peers[process].counters;
    return {first + std::size_t(rank) * state.tags + static_cast<std::uint32_t>(tag), scope::system};
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

struct put_target {
    std::byte* address;
    communicator comm;
};

// Checks a put and finds its address. All threads, with the same result.
DCUDA_DEVICE put_target find_address(rank_state& state, operation where, window win, int target, std::size_t offset,
                                     std::size_t bytes) {
    const window_slot slot = find_window(state, win);
    const auto rank = static_cast<std::uint32_t>(target);
#if DCUDA_CHECKS
    if (!win || slot.id != win.id) fail(state, fault::window, where, win.id, rank, offset, bytes, 0);
    if (rank >= slot.rank_count) fail(state, fault::rank, where, win.id, rank, offset, bytes, slot.rank_count);
#endif
    const window_entry entry = slot.entries[rank];
#if DCUDA_CHECKS
    if (bytes > entry.bytes || offset > entry.bytes - bytes)
        fail(state, fault::bounds, where, win.id, rank, offset, bytes, entry.bytes);
#endif
    return {entry.base + offset, static_cast<communicator>(slot.comm)};
}

// --- Puts and notifications
// -------------------------------------------------------------------------------------------
//
// ORDER notify-publish -> notify-observe: all threads of the source copy; the block's barrier orders their stores
// before the one thread that adds to the target's counter with release (device scope for a target on this device,
// system scope for one on another); the target's one thread loads the counter with acquire at a scope that includes the
// source, and its block's barrier orders that before what all its threads do next. So whoever has seen the count reads
// the data, also that of earlier puts of the source, since the release covers all of the block's earlier stores.
// Weaker: the target may read the window's old content.

DCUDA_DEVICE void publish(const notification_target& target) {
    add_release<order_tag::notify_publish>(target.reach, target.counter, 1);
}

DCUDA_DEVICE void put(rank_state& state, window win, int target, std::size_t offset, std::size_t bytes,
                      const void* source) {
    const put_target to = find_address(state, operation::put, win, target, offset, bytes);
    exec::copy(to.address, source, bytes);
}

DCUDA_DEVICE void put_notify(rank_state& state, window win, int target, std::size_t offset, std::size_t bytes,
                             const void* source, int tag) {
    check_tag(state, operation::put_notify, tag, target);
    const put_target to = find_address(state, operation::put_notify, win, target, offset, bytes);
    const notification_target counter = find_counter(state, to.comm, target, tag);
    exec::copy_then_run(to.address, source, bytes, [&] { publish(counter); });
}

DCUDA_DEVICE void notify(rank_state& state, int target, communicator comm, int tag) {
    check_communicator(state, comm, operation::notify);
    check_tag(state, operation::notify, tag, target);
#if DCUDA_CHECKS
    const auto ranks = static_cast<std::uint32_t>(comm_size(state, comm));
    if (static_cast<std::uint32_t>(target) >= ranks)
        fail(state, fault::rank, operation::notify, 0, static_cast<std::uint32_t>(target), 0, 0, ranks);
#endif
    const notification_target counter = find_counter(state, comm, target, tag);
    exec::sync_then_run([&] { publish(counter); });
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
        std::uint32_t& consumed = state.consumed[tag];
        const std::uint32_t base = consumed;
        const auto expected = static_cast<std::uint32_t>(count);
        patience until(state, waiting::notifications, static_cast<std::uint32_t>(tag), base, expected);
        // Counters wrap around; their difference does not as long as fewer than 2^32 notifications are unconsumed.
        if (poll<order_tag::notify_observe>(
                state.notification_scope, state.counters + tag,
                [&](std::uint32_t arrived) { return arrived - base >= expected; }, until))
            consumed = base + expected;
        until.done();
    });
    leave_if_ended(state);
}

DCUDA_DEVICE bool test_notifications(rank_state& state, int tag, int count) {
    check_count(state, operation::test_notifications, tag, count);
    exec::sync_block(); // all threads have read the result of the test before
    exec::run_then_sync([&] {
        std::uint32_t& consumed = state.consumed[tag];
        const auto expected = static_cast<std::uint32_t>(count);
        const std::uint32_t arrived =
            load_acquire<order_tag::notify_observe>(state.notification_scope, state.counters + tag);
        state.result = arrived - consumed >= expected ? 1 : 0;
        if (state.result != 0)
            consumed += expected;
        else
            exec::relax();
        if (load_relaxed(state.device->aborted) != 0) store_relaxed(&state.ended, 1);
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
