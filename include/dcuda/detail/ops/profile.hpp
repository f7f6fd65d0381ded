// SPDX-License-Identifier: BSD-3-Clause
// Profiled runs: each operation of a rank is counted (rank_counters) and, in a traced run, written down (trace_event).
//
// On a GPU the rank's leader does all of it: what it sees of an operation includes waiting for the rank's other
// threads. On the CPU backend the threads meet before the begin and after the end.
#pragma once

#include "dcuda/detail/ops/mailbox.hpp"

namespace dcuda::detail {

// Between two samples of both clocks, so that their relation stays known: a few hundredths of a second.
inline constexpr std::uint64_t ticks_between_clock_samples = std::uint64_t{1} << 26;

// PERF: a load of the credit takes a trip to the L2 cache, so only one in so many messages loads it.
inline constexpr std::uint32_t messages_between_credit_samples = 16;

// The leader's books, for the functions here: all of them are the leader's.
DCUDA_DEVICE endpoint& books_of(rank_state& state) { return state.own.of(exec::lead_access::alone()); }

// Writes an event over the oldest.
DCUDA_DEVICE void store_event(rank_state& state, const trace_event& event) {
    endpoint& own = books_of(state);
    const profiler_view& records = state.device.profiler;
    auto* const words = reinterpret_cast<std::uint32_t*>(records.events + (own.doing.events & (records.capacity - 1)));
    store_relaxed(words, static_cast<std::uint32_t>(event.begin), static_cast<std::uint32_t>(event.begin >> 32),
                  event.ticks, event.kind);
    store_relaxed(words + 4, event.tag, event.peer, event.bytes, event.window);
    ++own.doing.events;
    add_relaxed(&records.counters->events, 1);
}

// --- Clocks --------------------------------------------------------------------------------------------------------

// Samples both clocks. `exactly`: where time is plenty.
DCUDA_COLD clock_pair sample_clocks(shared_state shared, bool exactly) {
    rank_state& state = shared.get();
    endpoint& own = books_of(state);
    rank_counters& counters = *state.device.profiler.counters;
    clock_pair now{clock_ticks(), clock_ns()};
    // The device's clock goes in steps, on some devices of a microsecond: this is the moment of one.
    const clock_pair start = now;
    while (DCUDA_BACKEND_CUDA && exactly && now.ns == start.ns && now.ticks - start.ticks < 10000)
        now = {clock_ticks(), clock_ns()};
    store_relaxed(&counters.last.ticks, now.ticks);
    store_relaxed(&counters.last.ns, now.ns);
    own.doing.clock_at = now.ticks;
    return now;
}

// The host notes when it gets these: so it learns what the device's clock shows at a time of its own. One thread of
// rank 0 of the device. On the CPU backend it is the same clock.
DCUDA_COLD void send_clock(shared_state shared) {
    rank_state& state = shared.get();
    if (!DCUDA_BACKEND_CUDA || state.device_rank != 0 || state.device.profiler.traced == 0) return;
    for (unsigned i = 0; i < 8; ++i) { // the quickest counts
        send_command(exec::lead_access::alone(), state, make_command(state.device_rank, clock_fields{clock_ns()}));
        pause_ns(4000);
    }
}

// At the begin of an profiled run, which is that of the operation `init`. One thread.
DCUDA_COLD void begin_profile(lone_thread, shared_state shared) {
    rank_state& state = shared.get();
    endpoint& own = books_of(state);
    // PERF: from here on the copy of the view that is near is one of this rank's own part.
    profiler_view& view = state.device.profiler;
    view.counters += state.device_rank;
    if (view.traced != 0) view.events += std::size_t(state.device_rank) * view.capacity;
    rank_counters& counters = *view.counters;
    own.doing.events = 0;
    const clock_pair now = sample_clocks(state, true);
    store_relaxed(&counters.first.ticks, now.ticks);
    store_relaxed(&counters.first.ns, now.ns);
    own.doing.begin = now.ticks;
    send_clock(state);
}

// From time to time, and at the end of a run: notes how the clocks relate. One thread.
DCUDA_COLD void relate_clocks(shared_state shared, bool is_last) {
    rank_state& state = shared.get();
    const clock_pair pair = sample_clocks(state, is_last);
    if (is_last)
        send_clock(state);
    else if (DCUDA_BACKEND_CUDA && state.device.profiler.traced != 0)
        store_event(state, {pair.ticks, 0, static_cast<std::uint32_t>(marker::clock),
                            static_cast<std::uint32_t>(pair.ns), static_cast<std::uint32_t>(pair.ns >> 32), 0, 0});
}

// --- Waiting for space in queues -----------------------------------------------------------------------------------

DCUDA_COLD void begin_blocked(lone_thread leader, shared_state shared) {
    shared.get().own.of(leader).doing.blocked_since = clock_ticks();
}

DCUDA_COLD void end_blocked(lone_thread leader, shared_state shared, waiting kind) {
    rank_state& state = shared.get();
    const endpoint& own = state.own.of(leader);
    rank_counters& counters = *state.device.profiler.counters;
    add_relaxed(kind == waiting::ring_space ? &counters.ring_full_ticks : &counters.mailbox_full_ticks,
                clock_ticks() - own.doing.blocked_since);
}

// --- Operations ----------------------------------------------------------------------------------------------------

// All threads of the rank, when an operation begins in an profiled run.
DCUDA_DEVICE void begin_operation(rank_state& state) {
    exec::align_turns(state.group()); // the operation itself begins with a barrier
    if (!state.group().leads()) return;
    endpoint& own = books_of(state);
    own.doing.begin = clock_ticks();
    own.doing.is_direct = 0;
}

// Counts a put or a notification, and completes the event, also that of an access: which way it went, and to which
// world rank. One thread.
template <operation Kind>
DCUDA_DEVICE void count_message(rank_state& state, rank_counters& counters, trace_event& event, std::size_t bytes) {
    const endpoint& own = books_of(state);
    const target_entry& target = own.targets[own.doing.target];
    const rank_connection& way = own.connections[target.connection];
    const event_path path = target.is_remote != 0        ? event_path::network
                            : way.reach == scope::device ? event_path::local
                                                         : event_path::peer;
    path_counters& ways = path == event_path::network ? counters.network
                          : path == event_path::local ? counters.local
                                                      : counters.peer;
    if (!has_window<Kind>) event.window = 0;
    event.peer = target.world_rank;
    event.kind |= static_cast<std::uint32_t>(path) << 8;
    if (is_access<Kind>) return;
    add_relaxed(Kind == operation::put          ? &ways.puts
                : Kind == operation::put_notify ? &ways.notified_puts
                                                : &ways.notifications,
                1);
    if (bytes != 0) add_relaxed(&ways.bytes, bytes);
    if (Kind == operation::put || path == event_path::network || way.queue == nullptr) return;
    if (own.doing.is_direct == 0) {
        event.kind |= event_through_mailbox;
        add_relaxed(&counters.through_mailbox, 1);
    }
    if (way.sent.messages % messages_between_credit_samples != 0) return;
    const std::uint32_t credit = load_relaxed(way.credit);
    raise_relaxed(&counters.mailbox_messages, (way.sent.messages - credit) & 0xffff);
    raise_relaxed(&counters.mailbox_packets, (way.sent.packets - (credit >> 16)) & 0xffff);
}

// One thread.
DCUDA_DEVICE void count_operation(rank_state& state, operation kind) {
    add_relaxed(&state.device.profiler.counters->operations[static_cast<unsigned>(kind)].count, 1);
}

// What an event says of its operation, beside its kind and time.
struct event_fields {
    int tag = 0;              // or the communicator of a collective operation
    int peer = 0;             // the target's number in its communicator, or how many notifications were waited for
    std::uint32_t window = 0; // its id; of notify the communicator; of init the multiprocessor
    std::size_t bytes = 0;    // or the world rank of the source whose notifications were waited for
};

// All threads of the rank, when the operation has ended.
// PERF: the kind is known when this is compiled, since one thread's instructions are what an event costs.
template <operation Kind>
DCUDA_DEVICE void end_operation(rank_state& state, const event_fields& fields) {
    exec::align_turns(state.group()); // another thread may have acted for the rank
    if (state.group().leads()) {
        endpoint& own = books_of(state);
        const profiler_view& records = state.device.profiler;
        rank_counters& counters = *records.counters;
        const std::uint64_t now = clock_ticks(), ticks = now - own.doing.begin;
        trace_event event{own.doing.begin,
                          static_cast<std::uint32_t>(ticks),
                          static_cast<std::uint32_t>(Kind) | static_cast<std::uint32_t>(ticks >> 32) << 16,
                          static_cast<std::uint32_t>(fields.tag),
                          static_cast<std::uint32_t>(fields.peer),
                          static_cast<std::uint32_t>(fields.bytes),
                          fields.window};
        if constexpr (is_message<Kind>) count_message<Kind>(state, counters, event, fields.bytes);
        // By the path, or by perform_profiled().
        constexpr bool is_counted = (is_message<Kind> && !is_access<Kind>) || is_test<Kind>;
        if constexpr (!is_counted) count_operation(state, Kind);
        event.window = (event.window & 0xffff) | static_cast<std::uint32_t>(fields.bytes >> 32) << 16;
        add_relaxed(&counters.operations[static_cast<unsigned>(Kind)].ticks, ticks);
        if (records.traced != 0) store_event(state, event);
        if (Kind == operation::finish || now - own.doing.clock_at >= ticks_between_clock_samples)
            exec::far(relate_clocks)(state, Kind == operation::finish);
    }
    exec::align_turns(state.group());
}

// --- Ranges of the user --------------------------------------------------------------------------------------------

// The name stays where it is; the host reads it there after the kernel. One thread.
DCUDA_COLD void begin_range(shared_state shared, const char* name, std::uint32_t length_and_flags,
                            std::uint32_t number) {
    rank_state& state = shared.get();
    if (state.device.profiler.traced == 0) return;
    const auto place = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(name));
    store_event(state,
                {clock_ticks(), 0, static_cast<std::uint32_t>(marker::range_begin), static_cast<std::uint32_t>(place),
                 number, static_cast<std::uint32_t>(place >> 32), length_and_flags});
}

DCUDA_COLD void end_range(shared_state shared) {
    rank_state& state = shared.get();
    if (state.device.profiler.traced == 0) return;
    store_event(state, {clock_ticks(), 0, static_cast<std::uint32_t>(marker::range_end), 0, 0, 0, 0});
}

// From its construction to its end; rank::range.
class range_scope {
public:
    DCUDA_DEVICE range_scope(shared_state state, std::uint32_t profiled, const char* name,
                             std::uint32_t length_and_flags, std::uint32_t number)
        : state_(state), profiled_(profiled) {
        if (profiled_ == 0) return;
        exec::align_turns(state_.get().group());
        if (state_.get().group().leads()) exec::far(begin_range)(state_, name, length_and_flags, number);
        exec::align_turns(state_.get().group());
    }
    DCUDA_DEVICE ~range_scope() { end(); }
    range_scope(const range_scope&) = delete;
    range_scope& operator=(const range_scope&) = delete;

    // Ends the range before its scope does.
    DCUDA_DEVICE void end() {
        if (profiled_ == 0 || exec::is_unwinding()) return; // a run that fails leaves it open
        profiled_ = 0;
        exec::align_turns(state_.get().group());
        if (state_.get().group().leads()) exec::far(end_range)(state_);
        exec::align_turns(state_.get().group());
    }

private:
    shared_state state_;
    std::uint32_t profiled_;
};

} // namespace dcuda::detail
