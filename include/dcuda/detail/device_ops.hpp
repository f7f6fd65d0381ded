// The operations of a rank on other ranks: puts, notifications, flush. All threads of the rank call them.
#pragma once

#include "dcuda/detail/collectives.hpp"
#include "dcuda/detail/device_log.hpp"
#include "dcuda/detail/mail_send.hpp"
#include "dcuda/detail/mail_wait.hpp"
#include "dcuda/detail/network_ops.hpp"
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

// Finds a target that is not in the cache, and puts it there. All threads.
DCUDA_COLD void load_target(shared_state shared, std::uint32_t window, std::uint32_t rank, std::uint32_t world_rank,
                            window_entry place) {
    rank_state& state = shared.get();
    const link& path = find_link(state, world_rank);
    const std::uint64_t limit = place.bytes < state.device.small_put_bytes ? place.bytes : state.device.small_put_bytes;
    exec::sync_block(); // no thread still reads what the entry holds now
    exec::run_then_sync([&] {
        const auto small = path.lane != nullptr ? static_cast<std::uint32_t>(limit) + 1 : 0;
        cached_target(state, window, rank) = {window,     rank,        small,      world_rank,
                                              place.base, place.bytes, place.home, is_remote(path) ? 1u : 0u};
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
// fence before the message (device scope for a target on this device, system scope for one on another). Who sees the
// counter, or the message's header, acquires at a scope that includes the source (on a GPU by a fence after the load),
// and the block's barrier orders that before what all its threads do next. So whoever has seen the notification reads
// the data, also that of earlier puts of the source, since the release covers all of the block's earlier stores.
// Weaker: the target may read the window's old content.
//
// A source has either a lane for a target or none, and uses that for all its notifications there, so they stay in
// order.

// The team sends a message. All threads have arrived, as send_at_once leaves them.
DCUDA_DEVICE void send_by_team(rank_state& state, link& to, const letter& what) {
    exec::as_team([&](const team& all) { send_message(all, state, slot_of(to), what); });
}

// All threads arrive, then one notifies.
DCUDA_DEVICE void notify_by(rank_state& state, link& to, std::uint32_t tag) {
    if (to.lane != nullptr) {
        const letter what{nullptr, nullptr, nullptr, 0, tag};
        if (send_at_once(state, to, what) == sending::by_team) send_by_team(state, to, what);
        return;
    }
    exec::sync_then_team([&](const team& all) {
        if (!all.leads()) return;
        exec::complete_copies(state.staging, exec::is_leader());
        add_release<order_tag::notify_publish>(to.reach, to.counters + tag, 1u);
        if (DCUDA_BACKEND_CPU) ring_bell_of(state, to);
    });
}

// All threads arrive, then store straight into the target's memory. When a thread returns, others may still be copying.
DCUDA_DEVICE void put_directly(rank_state& state, link& to, std::byte* target, std::byte* home, const void* source,
                               std::size_t bytes) {
    exec::copy(state.staging, target, source, bytes, [&] {
        if (!crosses_mail(to, home, bytes)) return;
        exec::sync_team_sync([&](const team& all) { await_placed(all, state, slot_of(to)); });
        leave_if_ended(state);
    });
    if (exec::is_leader()) {
        state.doing.straight = 1;
        to.direct = 1;
        state.unreleased |= bit_of(to.reach);
    }
}

DCUDA_COLD void put_in_general(shared_state shared, window win, int target, std::size_t offset, std::size_t bytes,
                               const void* source) {
    rank_state& state = shared.get();
    const target_entry& to = find_target(state, operation::put, win, target, offset, bytes);
    if (to.remote != 0) {
        if (bytes != 0) send_by_host(state, to.window, to.rank, offset, bytes, source, no_tag);
        return;
    }
    put_directly(state, find_link(state, to.world_rank), to.base + offset, to.home + offset, source, bytes);
}

DCUDA_DEVICE void put(rank_state& state, window win, int target, std::size_t offset, std::size_t bytes,
                      const void* source) {
#if DCUDA_BACKEND_CPU
    if (check::is_on(state)) return check::put(state, win, target, offset, bytes, source);
#endif
    put_in_general(state, win, target, offset, bytes, source);
}

// A notified put straight into the target's memory.
DCUDA_COLD void put_notify_straight(shared_state shared, window win, int target, std::size_t offset, std::size_t bytes,
                                    const void* source, int tag) {
    rank_state& state = shared.get();
    check_tag(state, operation::put_notify, tag, target);
    const target_entry& to = find_target(state, operation::put_notify, win, target, offset, bytes);
    link& path = find_link(state, to.world_rank);
    put_directly(state, path, to.base + offset, to.home + offset, source, bytes);
    notify_by(state, path, static_cast<std::uint32_t>(tag));
}

// A small notified put: whatever has to be checked, looked up or waited for before. If `by_team` it is the team alone
// that calls it, after put_at_once. The result is `done`, or `by_host`, or `straight` if it is not small or there is no
// room for its payload: who puts waits for nobody as long as there is room for headers, unless it crosses mail.
DCUDA_COLD sending put_notify_in_general(shared_state shared, window win, int target, std::size_t offset,
                                         std::size_t bytes, const void* source, int tag, bool by_team) {
    rank_state& state = shared.get();
    if (!by_team) check_tag(state, operation::put_notify, tag, target);
    const target_entry& to = find_target(state, operation::put_notify, win, target, offset, bytes);
    link& path = find_link(state, to.world_rank);
    const letter what{to.base + offset, to.home + offset, static_cast<const std::byte*>(source),
                      static_cast<std::uint32_t>(bytes), static_cast<std::uint32_t>(tag)};
    if (by_team) {
        send_by_team(state, path, what);
        return sending::done;
    }
    if (to.remote != 0) return sending::by_host;
    if (bytes >= to.small) return sending::straight;
    const std::uint32_t packets = packets_for(what.mailed_bytes());
    sending how = send_at_once(state, path, what);
    if (how == sending::in_general) {
        exec::sync_team_sync([&](const team& all) {
            make_room(all, state, slot_of(path), packets);
            if (all.leads()) state.result = has_room_for_payload(state, path, packets) ? 1 : 0;
        });
        leave_if_ended(state);
        const bool fits = state.result != 0;
        exec::sync_block();
        if (!fits) return sending::straight;
        how = send_at_once(state, path, what);
        if (how == sending::in_general) how = sending::by_team; // its bytes are no words
    }
    if (how == sending::by_team) send_by_team(state, path, what);
    return sending::done;
}

// PERF: the target that was used last takes this short way; it was checked when it came into the cache.
DCUDA_DEVICE sending put_at_once(shared_state shared, window win, int target, std::size_t offset, std::size_t bytes,
                                 const void* source, int tag) {
    rank_state& state = shared.get();
    const target_entry to = cached_target(state, win.id, static_cast<std::uint32_t>(target));
    const auto number = static_cast<std::uint32_t>(tag);
    const bool is_known = (win.id != 0) & (to.window == win.id) & (to.rank == static_cast<std::uint32_t>(target));
    // Of what is in place nothing travels, however large it is.
    const bool is_in_place = (to.base + offset == source) & (to.small != 0) & (bytes <= to.bytes) & (bytes >> 32 == 0);
    // Without short cuts, so that nothing is read one after the other.
    if (is_known & ((bytes < to.small) | is_in_place) & (offset <= to.bytes - bytes) & (number < state.device.tags))
        return send_at_once(state, state.links[to.world_rank % cached_links],
                            {to.base + offset, to.home + offset, static_cast<const std::byte*>(source),
                             static_cast<std::uint32_t>(bytes), number});
    if (is_known & (to.remote != 0) & (bytes <= to.bytes) & (offset <= to.bytes - bytes) & (number < state.device.tags))
        return sending::by_host;
    return is_known & (bytes >= to.small) & (to.remote == 0) ? sending::straight : sending::in_general;
}

DCUDA_DEVICE void put_notify(rank_state& state, window win, int target, std::size_t offset, std::size_t bytes,
                             const void* source, int tag) {
#if DCUDA_BACKEND_CPU
    if (check::is_on(state)) return check::put_notify(state, win, target, offset, bytes, source, tag);
#endif
    sending how = put_at_once(state, win, target, offset, bytes, source, tag);
    if (how == sending::by_team || how == sending::in_general)
        how = exec::far(put_notify_in_general)(state, win, target, offset, bytes, source, tag, how == sending::by_team);
    if (how == sending::straight) exec::far(put_notify_straight)(state, win, target, offset, bytes, source, tag);
    if (how == sending::by_host)
        send_by_host(state, win.id, static_cast<std::uint32_t>(target), offset, bytes, source,
                     static_cast<std::uint32_t>(tag));
}

DCUDA_COLD void notify_in_general(shared_state shared, int target, communicator comm, int tag, bool by_team) {
    rank_state& state = shared.get();
    if (!by_team) {
        check_communicator(state, comm, operation::notify);
        check_tag(state, operation::notify, tag, target);
    }
    const auto rank = static_cast<std::uint32_t>(target);
#if DCUDA_CHECKS
    const auto ranks = static_cast<std::uint32_t>(comm_size(state, comm));
    if (rank >= ranks) fail(state, fault::rank, operation::notify, 0, rank, 0, 0, ranks);
#endif
    const std::uint32_t key = notify_key + static_cast<std::uint32_t>(comm);
    const target_entry& cached = cached_target(state, key, rank);
    if (cached.window != key || cached.rank != rank)
        load_target(state, key, rank, comm == world ? rank : state.device.first_rank + rank, {});
    const auto number = static_cast<std::uint32_t>(tag);
    if (cached.remote != 0) return send_by_host(state, key, rank, 0, 0, nullptr, number);
    link& to = find_link(state, cached.world_rank);
    if (by_team)
        send_by_team(state, to, {nullptr, nullptr, nullptr, 0, number});
    else
        notify_by(state, to, number);
}

DCUDA_DEVICE sending notify_at_once(shared_state shared, int target, communicator comm, int tag) {
    rank_state& state = shared.get();
    const std::uint32_t key = notify_key + static_cast<std::uint32_t>(comm);
    const target_entry& to = cached_target(state, key, static_cast<std::uint32_t>(target));
    const auto number = static_cast<std::uint32_t>(tag);
    const bool is_known =
        (to.window == key) & (to.rank == static_cast<std::uint32_t>(target)) & (number < state.device.tags);
    if (is_known & (to.small != 0))
        return send_at_once(state, state.links[to.world_rank % cached_links], {nullptr, nullptr, nullptr, 0, number});
    return is_known & (to.remote != 0) ? sending::by_host : sending::in_general;
}

DCUDA_DEVICE void notify(rank_state& state, int target, communicator comm, int tag) {
#if DCUDA_BACKEND_CPU
    if (check::is_on(state)) return check::notify(state, target, comm, tag);
#endif
    const sending how = notify_at_once(state, target, comm, tag);
    if (how == sending::by_team || how == sending::in_general)
        exec::far(notify_in_general)(state, target, comm, tag, how == sending::by_team);
    if (how == sending::by_host)
        send_by_host(state, notify_key + static_cast<std::uint32_t>(comm), static_cast<std::uint32_t>(target), 0, 0,
                     nullptr, static_cast<std::uint32_t>(tag));
}

DCUDA_DEVICE void wait_notifications(rank_state& state, int tag, int count) {
#if DCUDA_BACKEND_CPU
    if (check::is_on(state)) return check::wait_notifications(state, tag, count);
#endif
#if defined(__CUDACC__)
    exec::sync_block(); // all read what the leader has left
    // PERF: with several sources and no payload, another one than the last is as likely.
    const bool may_be_usual =
        state.lanes <= 1 || state.tag_cache[static_cast<std::uint32_t>(tag) % cached_tags].packets != 0;
    const auto wanted = static_cast<std::uint32_t>(tag), expected = static_cast<std::uint32_t>(count);
    if (may_be_usual && await_the_usual(state, wanted, expected)) return;
    if (await_messages(state, wanted, expected)) return;
#endif
    exec::far(wait_in_general)(state, tag, count);
}

DCUDA_DEVICE bool test_notifications(rank_state& state, int tag, int count) {
#if DCUDA_BACKEND_CPU
    if (check::is_on(state)) return check::test_notifications(state, tag, count);
#endif
    check_count(state, operation::test_notifications, tag, count);
    exec::sync_team_sync([&](const team& all) {
        if (all.leads() && load_relaxed(state.device.aborted) != 0) store_relaxed(&state.ended, 1);
        const auto wanted = static_cast<std::uint32_t>(tag), expected = static_cast<std::uint32_t>(count);
        std::uint32_t counter = known_counter(all, state, wanted), arrived = 0;
        bool enough = consume(all, state, wanted, expected, counter, arrived);
        if (!enough && look_for_notifications(all, state, wanted, counter, false))
            enough = consume(all, state, wanted, expected, counter, arrived);
        if (!enough) {
            give_credit(all, state, 0); // a source may wait for it, and who tests in vain has the time
            exec::relax();
        }
        if (all.leads()) state.result = enough ? 1 : 0;
    });
    leave_if_ended(state);
    return state.result != 0;
}

DCUDA_DEVICE void flush(rank_state& state, window win) {
#if DCUDA_BACKEND_CPU
    if (check::is_on(state)) return check::flush(state, win);
#endif
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
        exec::complete_copies(state.staging, exec::is_leader());
        complete_writes();
        state.unreleased = 0;
        ++state.flushes;
        if (state.networked != 0) exec::far(flush_network)(state);
    });
    leave_if_ended(state);
}

// --- In observed runs -----------------------------------------------------------------------------------------------
// The same, each between its two records (observe.hpp).
//
// PERF: each is a function of its own, which a kernel calls by exec::far instead of the operation. With the records
// around the operation in the kernel itself, an operation took up to 0.6 us more and an event 0.49 us instead of 0.24
// (H200, 2026-11-22).

// No other function has such a parameter. ptxas takes a function that is called by its address for any with the same
// parameters, so these would seem to call themselves, and the stack that they need could not be told.
struct observed_call {
    std::uint32_t words[3] = {};
};

DCUDA_COLD void observed_barrier(shared_state shared, observed_call, communicator comm) {
    rank_state& state = shared.get();
    begin_operation(state);
    barrier(state, comm);
    end_operation<event_kind::barrier>(state, static_cast<int>(comm));
}

DCUDA_COLD window observed_create_window(shared_state shared, observed_call, communicator comm, void* base,
                                         std::size_t bytes) {
    rank_state& state = shared.get();
    begin_operation(state);
    const window created = create_window(state, comm, base, bytes);
    end_operation<event_kind::create_window>(state, static_cast<int>(comm), 0, 0, bytes);
    return created;
}

DCUDA_COLD void observed_free_window(shared_state shared, observed_call, window win) {
    rank_state& state = shared.get();
    begin_operation(state);
    free_window(state, win);
    end_operation<event_kind::free_window>(state, 0, 0, win.id);
}

DCUDA_COLD void observed_put(shared_state shared, observed_call, window win, int target, std::size_t offset,
                             std::size_t bytes, const void* source) {
    rank_state& state = shared.get();
    begin_operation(state);
    put(state, win, target, offset, bytes, source);
    end_operation<event_kind::put>(state, 0, target, win.id, bytes);
}

DCUDA_COLD void observed_put_notify(shared_state shared, observed_call, window win, int target, std::size_t offset,
                                    std::size_t bytes, const void* source, int tag) {
    rank_state& state = shared.get();
    begin_operation(state);
    put_notify(state, win, target, offset, bytes, source, tag);
    end_operation<event_kind::put_notify>(state, tag, target, win.id, bytes);
}

DCUDA_COLD void observed_notify(shared_state shared, observed_call, int target, communicator comm, int tag) {
    rank_state& state = shared.get();
    begin_operation(state);
    notify(state, target, comm, tag);
    end_operation<event_kind::notify>(state, tag, target, static_cast<std::uint32_t>(comm));
}

DCUDA_COLD void observed_wait(shared_state shared, observed_call, int tag, int count) {
    rank_state& state = shared.get();
    begin_operation(state);
    wait_notifications(state, tag, count);
    end_operation<event_kind::wait>(state, tag, count);
}

// Looks in vain are counted, and leave no event.
DCUDA_COLD bool observed_test(shared_state shared, observed_call, int tag, int count) {
    rank_state& state = shared.get();
    begin_operation(state);
    const bool there = test_notifications(state, tag, count);
    if (exec::is_leader()) add_relaxed(&state.device.observer.counters->tests, 1);
    if (there) end_operation<event_kind::test>(state, tag, count);
    return there;
}

DCUDA_COLD void observed_flush(shared_state shared, observed_call, window win) {
    rank_state& state = shared.get();
    begin_operation(state);
    flush(state, win);
    end_operation<event_kind::flush>(state, 0, 0, win.id);
}

DCUDA_COLD void observed_start_timer(shared_state shared, observed_call) {
    rank_state& state = shared.get();
    begin_operation(state);
    start_timer(state);
    end_operation<event_kind::timer>(state);
}

DCUDA_COLD void observed_stop_timer(shared_state shared, observed_call) {
    rank_state& state = shared.get();
    begin_operation(state);
    stop_timer(state);
    end_operation<event_kind::timer>(state);
}

} // namespace dcuda::detail
