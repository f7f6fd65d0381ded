// Observed runs: each operation of a rank is counted (rank_counters) and, in a traced run, written down (trace_event).
//
// An operation leaves in shared memory when it began and what it is, and one cold function takes that at its end. So an
// operation costs a test where nothing is observed, and no registers while it lasts where it is. On a GPU the rank's
// leader does all of it: what it sees of an operation includes waiting for the rank's other threads. On the CPU backend
// the threads meet before the begin and after the end.
#pragma once

#include "dcuda/detail/mailbox.hpp"

namespace dcuda::detail {

// Between two looks at both clocks, so that their relation stays known: a few hundredths of a second.
inline constexpr std::uint64_t ticks_between_looks = std::uint64_t{1} << 26;

// PERF: a look at the credit takes a trip to the L2 cache, so only one in so many messages is looked after.
inline constexpr std::uint32_t messages_between_looks = 16;

// Writes an event over the oldest. One thread.
DCUDA_DEVICE void store_event(rank_state& state, const trace_event& event) {
    const observer_view& to = state.device.observer;
    auto* const words = reinterpret_cast<std::uint32_t*>(to.events + (state.doing.events & (to.capacity - 1)));
    store_relaxed(words, static_cast<std::uint32_t>(event.begin), static_cast<std::uint32_t>(event.begin >> 32),
                  event.ticks, event.kind);
    store_relaxed(words + 4, event.tag, event.peer, event.bytes, event.window);
    ++state.doing.events;
    add_relaxed(&to.counters->events, 1);
}

// --- Clocks --------------------------------------------------------------------------------------------------------

// Looks at both clocks. `exactly`: where time is plenty. One thread.
DCUDA_COLD clock_pair look_at_clocks(shared_state shared, bool exactly) {
    rank_state& state = shared.get();
    rank_counters& counters = *state.device.observer.counters;
    clock_pair now{clock_ticks(), clock_ns()};
    // The device's clock goes in steps, on some devices of a microsecond: this is the moment of one.
    const clock_pair start = now;
    while (DCUDA_BACKEND_CUDA && exactly && now.ns == start.ns && now.ticks - start.ticks < 10000)
        now = {clock_ticks(), clock_ns()};
    store_relaxed(&counters.last.ticks, now.ticks);
    store_relaxed(&counters.last.ns, now.ns);
    state.doing.clock_at = now.ticks;
    return now;
}

// The host notes when it gets these: so it learns what the device's clock shows at a time of its own. One thread of
// rank 0 of the device. On the CPU backend it is the same clock.
DCUDA_COLD void send_clock(shared_state shared) {
    rank_state& state = shared.get();
    if (!DCUDA_BACKEND_CUDA || state.device_rank != 0 || state.device.observer.traced == 0) return;
    for (unsigned i = 0; i < 8; ++i) { // the quickest counts
        const std::uint64_t now_ns = clock_ns();
        send_command(state, command{{static_cast<std::uint32_t>(opcode::clock), state.device_rank, 0, 0,
                                     static_cast<std::uint32_t>(now_ns), static_cast<std::uint32_t>(now_ns >> 32)}});
        pause_ns(4000);
    }
}

// At the begin of an observed run, which is that of the operation `init`. One thread.
DCUDA_COLD void begin_observing(shared_state shared) {
    rank_state& state = shared.get();
    // PERF: from here on the copy of the view that is near is one of this rank's own part.
    observer_view& own = state.device.observer;
    own.counters += state.device_rank;
    if (own.traced != 0) own.events += std::size_t(state.device_rank) * own.capacity;
    rank_counters& counters = *own.counters;
    state.doing.events = 0;
    const clock_pair now = look_at_clocks(state, true);
    store_relaxed(&counters.first.ticks, now.ticks);
    store_relaxed(&counters.first.ns, now.ns);
    state.doing.event = {now.ticks, 0, static_cast<std::uint32_t>(event_kind::init), 0, 0, 0, processor_number()};
    send_clock(state);
}

// --- Waiting for space in queues -----------------------------------------------------------------------------------

DCUDA_COLD void begin_blocked(shared_state shared) { shared.get().doing.blocked_since = clock_ticks(); }

DCUDA_COLD void end_blocked(shared_state shared, waiting what) {
    rank_state& state = shared.get();
    rank_counters& counters = *state.device.observer.counters;
    add_relaxed(what == waiting::ring_space ? &counters.ring_full_ticks : &counters.mailbox_full_ticks,
                clock_ticks() - state.doing.blocked_since);
}

// --- Operations ----------------------------------------------------------------------------------------------------

// All threads of the rank, when an operation begins in an observed run. `peer`: the target's number in its
// communicator, or how many notifications are waited for; `window`: its id, or of notify the communicator.
DCUDA_DEVICE void begin_operation(rank_state& state, event_kind kind, std::uint32_t tag = 0, std::uint32_t peer = 0,
                                  std::uint32_t window = 0, std::size_t bytes = 0) {
    if (!is_observed(state)) return;
    exec::align_turns(); // the operation itself begins with a barrier
    if (!exec::is_leader()) return;
    // Bytes beyond 48 bits are a mistake that the operation reports.
    state.doing.event = {clock_ticks(),
                         static_cast<std::uint32_t>(bytes >> 32),
                         static_cast<std::uint32_t>(kind),
                         tag,
                         peer,
                         static_cast<std::uint32_t>(bytes),
                         window};
    state.doing.straight = 0;
}

// Counts a put or a notification, and completes the event: which way it went, and to which world rank. One thread.
DCUDA_DEVICE void count_message(rank_state& state, rank_counters& counters, event_kind kind) {
    trace_event& event = state.doing.event;
    const std::uint32_t key = kind == event_kind::notify ? notify_key + event.window : event.window;
    const target_entry& target = cached_target(state, key, event.peer);
    const link& way = state.links[target.world_rank % cached_links];
    const bool is_known = target.window == key && target.rank == event.peer;
    if (!is_known) return; // never: the operation has just used it
    const event_path path = target.remote != 0           ? event_path::network
                            : way.reach == scope::device ? event_path::local
                                                         : event_path::peer;
    path_counters& ways = path == event_path::network ? counters.network
                          : path == event_path::local ? counters.local
                                                      : counters.peer;
    if (kind == event_kind::notify) event.window = 0;
    event.peer = target.world_rank;
    event.kind |= static_cast<std::uint32_t>(path) << 8;
    const std::uint64_t bytes = event.bytes | static_cast<std::uint64_t>(event.ticks) << 32;
    add_relaxed(kind == event_kind::put          ? &ways.puts
                : kind == event_kind::put_notify ? &ways.notified_puts
                                                 : &ways.notifications,
                1);
    if (bytes != 0) add_relaxed(&ways.bytes, bytes);
    const bool uses_lane = kind != event_kind::put && path != event_path::network && way.lane != nullptr;
    if (!uses_lane) return;
    if (state.doing.straight == 0) {
        event.kind |= event_mailed;
        add_relaxed(&counters.mailed, 1);
    }
    if (way.sent.messages % messages_between_looks != 0) return;
    const std::uint32_t credit = load_relaxed(way.credit);
    raise_relaxed(&counters.mailbox_messages, (way.sent.messages - credit) & 0xffff);
    raise_relaxed(&counters.mailbox_packets, (way.sent.packets - (credit >> 16)) & 0xffff);
}

// The operation has ended. One thread.
DCUDA_COLD void record_operation(shared_state shared) {
    rank_state& state = shared.get();
    const std::uint64_t now = clock_ticks();
    trace_event& event = state.doing.event;
    const observer_view& to = state.device.observer;
    rank_counters& counters = *to.counters;
    const std::uint64_t ticks = now - event.begin;
    const auto kind = static_cast<event_kind>(event.kind);
    switch (kind) {
    case event_kind::put:
    case event_kind::put_notify:
    case event_kind::notify:
        count_message(state, counters, kind);
        add_relaxed(&counters.put_ticks, ticks);
        break;
    case event_kind::wait:
        add_relaxed(&counters.waits, 1);
        add_relaxed(&counters.wait_ticks, ticks);
        break;
    case event_kind::flush:
        add_relaxed(&counters.flushes, 1);
        add_relaxed(&counters.flush_ticks, ticks);
        break;
    case event_kind::create_window:
    case event_kind::free_window:
        if (kind == event_kind::create_window) add_relaxed(&counters.windows, 1);
        add_relaxed(&counters.window_ticks, ticks);
        break;
    case event_kind::barrier:
        add_relaxed(&counters.barriers, 1);
        [[fallthrough]];
    case event_kind::init:
    case event_kind::finish:
        add_relaxed(&counters.barrier_ticks, ticks);
        break;
    default: // test: counted by its caller; timer
        break;
    }
    if (to.traced != 0) {
        const std::uint32_t more_bytes = event.ticks << 16, more_ticks = static_cast<std::uint32_t>(ticks >> 32) << 16;
        store_event(state, {event.begin, static_cast<std::uint32_t>(ticks), event.kind | more_ticks, event.tag,
                            event.peer, event.bytes, (event.window & 0xffff) | more_bytes});
    }
    const bool is_last = kind == event_kind::finish;
    if (!is_last && now - state.doing.clock_at < ticks_between_looks) return;
    const clock_pair pair = look_at_clocks(state, is_last);
    if (is_last)
        send_clock(state);
    else if (DCUDA_BACKEND_CUDA && to.traced != 0)
        store_event(state, {pair.ticks, 0, static_cast<std::uint32_t>(event_kind::clock),
                            static_cast<std::uint32_t>(pair.ns), static_cast<std::uint32_t>(pair.ns >> 32), 0, 0});
}

// All threads of the rank, when an operation of an observed run has ended.
DCUDA_DEVICE void end_operation(rank_state& state) {
    if (!is_observed(state)) return;
    exec::align_turns(); // another thread may have been the team
    if (exec::is_leader()) exec::far(record_operation)(state);
    exec::align_turns();
}

// A look for notifications, in vain or not. All threads.
DCUDA_DEVICE void count_test(rank_state& state) {
    if (exec::is_leader()) add_relaxed(&state.device.observer.counters->tests, 1);
}

// --- Ranges of the user --------------------------------------------------------------------------------------------

// The name stays where it is; the host reads it there after the kernel. One thread.
DCUDA_COLD void begin_range(shared_state shared, const char* name, std::uint32_t length_and_flags,
                            std::uint32_t number) {
    rank_state& state = shared.get();
    if (state.device.observer.traced == 0) return;
    const auto place = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(name));
    store_event(state,
                {clock_ticks(), 0, static_cast<std::uint32_t>(event_kind::range_begin),
                 static_cast<std::uint32_t>(place), number, static_cast<std::uint32_t>(place >> 32), length_and_flags});
}

DCUDA_COLD void end_range(shared_state shared) {
    rank_state& state = shared.get();
    if (state.device.observer.traced == 0) return;
    store_event(state, {clock_ticks(), 0, static_cast<std::uint32_t>(event_kind::range_end), 0, 0, 0, 0});
}

// From its construction to its end; rank::range.
class range_scope {
public:
    DCUDA_DEVICE range_scope(shared_state state, std::uint32_t observed, const char* name,
                             std::uint32_t length_and_flags, std::uint32_t number)
        : state_(state), observed_(observed) {
        if (observed_ == 0) return;
        exec::align_turns();
        if (exec::is_leader()) exec::far(begin_range)(state_, name, length_and_flags, number);
        exec::align_turns();
    }
    DCUDA_DEVICE ~range_scope() { end(); }
    range_scope(const range_scope&) = delete;
    range_scope& operator=(const range_scope&) = delete;

    // Ends the range before its scope does.
    DCUDA_DEVICE void end() {
        if (observed_ == 0 || exec::is_unwinding()) return; // a run that fails leaves it open
        observed_ = 0;
        exec::align_turns();
        if (exec::is_leader()) exec::far(end_range)(state_);
        exec::align_turns();
    }

private:
    shared_state state_;
    std::uint32_t observed_;
};

} // namespace dcuda::detail
