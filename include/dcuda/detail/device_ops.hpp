// The operations of a rank on other ranks: puts, notifications, flush. All threads of the rank call them.
#pragma once

#include "dcuda/detail/collectives.hpp"
#include "dcuda/detail/device_log.hpp"
#include "dcuda/detail/mail_wait.hpp"
#include "dcuda/detail/rank_state.hpp"

namespace dcuda::detail {

DCUDA_DEVICE int comm_rank(const rank_state& state, communicator comm) {
    return static_cast<int>(comm == world ? state.world_rank : state.device_rank);
}

DCUDA_DEVICE int comm_size(const rank_state& state, communicator comm) {
    return static_cast<int>(comm == world ? state.device.world_size : state.device.ranks_per_device);
}

DCUDA_DEVICE void* user_data(const rank_state& state) { return state.device.user_data; }

// --- Targets -------------------------------------------------------------------------------------------------------

DCUDA_DEVICE target_entry& cached_target(rank_state& state, std::uint32_t window, std::uint32_t rank) {
    return state.targets[(rank + window) % cached_targets];
}

// Finds a target that is not in the cache, and puts it there. All threads.
DCUDA_COLD void load_target(shared_state shared, std::uint32_t window, std::uint32_t rank, std::uint32_t world_rank,
                            window_entry place) {
    rank_state& state = shared.get();
    const link& path = find_link(state, world_rank);
    const std::uint64_t limit = place.bytes < state.device.small_put_bytes ? place.bytes : state.device.small_put_bytes;
    exec::sync_block(); // no thread still reads what the entry holds now
    exec::run_then_sync([&] {
        const auto small = path.lane != nullptr ? static_cast<std::uint32_t>(limit) + 1 : 0;
        cached_target(state, window, rank) = {window, rank, small, world_rank, place.base, place.bytes, place.home};
    });
}

// Checks a put and finds its target. All threads, with the same result.
DCUDA_DEVICE const target_entry& find_target(rank_state& state, operation where, window win, int target,
                                             std::size_t offset, std::size_t bytes) {
    const auto rank = static_cast<std::uint32_t>(target);
    const target_entry& cached = cached_target(state, win.id, rank);
    if (!win || cached.window != win.id || cached.rank != rank) {
        const window_slot slot = find_window(state, win);
#if DCUDA_CHECKS
        if (!win || slot.id != win.id) fail(state, fault::window, where, win.id, rank, offset, bytes, 0);
        if (rank >= slot.rank_count) fail(state, fault::rank, where, win.id, rank, offset, bytes, slot.rank_count);
#endif
        const bool in_world = static_cast<communicator>(slot.comm) == world;
        load_target(state, win.id, rank, in_world ? rank : state.device.first_rank + rank, slot.entries[rank]);
    }
#if DCUDA_CHECKS
    if (bytes > cached.bytes || offset > cached.bytes - bytes)
        fail(state, fault::bounds, where, win.id, rank, offset, bytes, cached.bytes);
#else
    (void)where, (void)offset, (void)bytes;
#endif
    return cached;
}

// --- Puts and notifications ----------------------------------------------------------------------------------------
//
// Small notified puts and notifications go by mail (mailbox.hpp). What is larger, or not notified, the threads of the
// source store straight into the target's memory:
//
// ORDER notify-publish -> notify-observe: all threads of the source copy; the block's barrier orders their stores
// before the one thread that releases: by an addition to the target's counter, or, where the source has a lane, by a
// fence before the message (device scope for a target on this device, system scope for one on another). The target's
// one thread loads the counter, or the message's header, with acquire at a scope that includes the source, and its
// block's barrier orders that before what all its threads do next. So whoever has seen the notification reads the data,
// also that of earlier puts of the source, since the release covers all of the block's earlier stores.
// Weaker: the target may read the window's old content.
//
// A source has either a lane for a target or none, and uses that for all its notifications there, so they stay in
// order.

// All threads arrive, then one notifies.
DCUDA_DEVICE void notify_by(rank_state& state, link& to, std::uint32_t tag) {
    if (to.lane != nullptr) return mail(state, to, nullptr, 0, nullptr, tag);
    exec::sync_then_team([&](const team& all) {
        if (!all.leads()) return;
        exec::complete_copies();
        add_release<order_tag::notify_publish>(to.reach, to.counters + tag, 1);
        if (DCUDA_BACKEND_CPU) ring_bell_of(state, to);
    });
}

// Stores straight into the target's memory. When a thread returns, others may still be copying.
DCUDA_DEVICE void put_directly(rank_state& state, link& to, std::byte* target, std::byte* home, const void* source,
                               std::size_t bytes) {
    exec::sync_block();
    if (crosses_mail(to, home, bytes)) {
        exec::run_then_sync([&] { await_placed(state, slot_of(to)); });
        leave_if_ended(state);
    }
    exec::copy(state.staging, target, source, bytes);
    if (exec::is_leader()) {
        to.direct = 1;
        state.unreleased |= 1u << static_cast<unsigned>(to.reach);
    }
}

DCUDA_COLD void put(shared_state shared, window win, int target, std::size_t offset, std::size_t bytes,
                    const void* source) {
    rank_state& state = shared.get();
    const target_entry& to = find_target(state, operation::put, win, target, offset, bytes);
    put_directly(state, find_link(state, to.world_rank), to.base + offset, to.home + offset, source, bytes);
}

// Whatever has to be checked, looked up, waited for or copied before.
DCUDA_COLD void put_notify_in_general(shared_state shared, window win, int target, std::size_t offset,
                                      std::size_t bytes, const void* source, int tag) {
    rank_state& state = shared.get();
    check_tag(state, operation::put_notify, tag, target);
    const target_entry& to = find_target(state, operation::put_notify, win, target, offset, bytes);
    std::byte *const place = to.base + offset, *const home = to.home + offset;
    const auto number = static_cast<std::uint32_t>(tag);
    const bool by_mail = bytes < to.small && place != source;
    link& path = find_link(state, to.world_rank);
    if (by_mail)
        return mail(state, path, home, static_cast<std::uint32_t>(bytes), static_cast<const std::byte*>(source),
                    number);
    put_directly(state, path, place, home, source, bytes);
    notify_by(state, path, number);
}

DCUDA_COLD void notify_in_general(shared_state shared, int target, communicator comm, int tag) {
    rank_state& state = shared.get();
    check_communicator(state, comm, operation::notify);
    check_tag(state, operation::notify, tag, target);
    const auto rank = static_cast<std::uint32_t>(target);
#if DCUDA_CHECKS
    const auto ranks = static_cast<std::uint32_t>(comm_size(state, comm));
    if (rank >= ranks) fail(state, fault::rank, operation::notify, 0, rank, 0, 0, ranks);
#endif
    const std::uint32_t key = notify_key + static_cast<std::uint32_t>(comm);
    const target_entry& cached = cached_target(state, key, rank);
    if (cached.window != key || cached.rank != rank)
        load_target(state, key, rank, comm == world ? rank : state.device.first_rank + rank, {});
    notify_by(state, find_link(state, cached.world_rank), static_cast<std::uint32_t>(tag));
}

// PERF: the target that was used last takes this short way; it was checked when it came into the cache.
DCUDA_DEVICE void put_notify(rank_state& state, window win, int target, std::size_t offset, std::size_t bytes,
                             const void* source, int tag) {
    const target_entry to = cached_target(state, win.id, static_cast<std::uint32_t>(target));
    const auto number = static_cast<std::uint32_t>(tag);
    // Without short cuts, so that nothing is read one after the other.
    if ((win.id != 0) & (to.window == win.id) & (to.rank == static_cast<std::uint32_t>(target)) & (bytes < to.small) &
        (offset <= to.bytes - bytes) & (number < state.device.tags) & (to.base + offset != source))
        mail(state, state.links[to.world_rank % cached_links], to.home + offset, static_cast<std::uint32_t>(bytes),
             static_cast<const std::byte*>(source), number);
    else
        put_notify_in_general(state, win, target, offset, bytes, source, tag);
}

DCUDA_DEVICE void notify(rank_state& state, int target, communicator comm, int tag) {
    const std::uint32_t key = notify_key + static_cast<std::uint32_t>(comm);
    const target_entry& to = cached_target(state, key, static_cast<std::uint32_t>(target));
    const auto number = static_cast<std::uint32_t>(tag);
    if ((to.window == key) & (to.rank == static_cast<std::uint32_t>(target)) & (to.small != 0) &
        (number < state.device.tags))
        mail(state, state.links[to.world_rank % cached_links], nullptr, 0, nullptr, number);
    else
        notify_in_general(state, target, comm, tag);
}

DCUDA_DEVICE void wait_notifications(rank_state& state, int tag, int count) {
    const bool going = exec::team_then_agree(state.result, [&](const team& all) {
#if defined(__CUDACC__)
        if (await_the_usual(all, state, static_cast<std::uint32_t>(tag), static_cast<std::uint32_t>(count)))
            return true;
#endif
        return await_notifications(all, state, tag, count);
    });
    if (!going) exec::exit_thread();
}

DCUDA_DEVICE bool test_notifications(rank_state& state, int tag, int count) {
    check_count(state, operation::test_notifications, tag, count);
    exec::sync_team_sync([&](const team& all) {
        if (all.leads() && load_relaxed(state.device.aborted) != 0) store_relaxed(&state.ended, 1);
        const auto wanted = static_cast<std::uint32_t>(tag), expected = static_cast<std::uint32_t>(count);
        std::uint32_t counter = known_counter(all, state, wanted), arrived = 0;
        bool enough = consume(all, state, wanted, expected, counter, arrived);
        if (!enough && look_for_notifications(all, state, wanted, counter))
            enough = consume(all, state, wanted, expected, counter, arrived);
        if (!enough) {
            give_credit(all, state, 1); // a source may wait for it, and who tests in vain has the time
            exec::relax();
        }
        if (all.leads()) state.result = enough ? 1 : 0;
    });
    leave_if_ended(state);
    return state.result != 0;
}

DCUDA_DEVICE void flush(rank_state& state, window win) {
#if DCUDA_CHECKS
    // A target in the cache belongs to a window that exists.
    bool known = false;
    for (const target_entry& target : state.targets) known |= target.window == win.id;
    if (!win || (!known && find_window(state, win).id != win.id))
        fail(state, fault::window, operation::flush, win.id, 0, 0, 0, 0);
#else
    (void)win;
#endif
    // The block's barrier makes the stores of all threads part of what the one thread completes.
    exec::sync_block();
    exec::run_then_sync([&] {
        exec::complete_copies();
        complete_writes();
        state.unreleased = 0;
        ++state.flushes;
    });
}

} // namespace dcuda::detail
