// All operations of a rank, and the same in observed runs.
#pragma once

#include "dcuda/detail/collectives.hpp"
#include "dcuda/detail/device_log.hpp"
#include "dcuda/detail/put.hpp"
#include "dcuda/detail/wait.hpp"
#include "dcuda/detail/windows.hpp"

namespace dcuda::detail {

DCUDA_DEVICE int comm_rank(const rank_state& state, communicator comm) {
    return static_cast<int>(comm == world ? state.world_rank : state.device_rank);
}

DCUDA_DEVICE int comm_size(const rank_state& state, communicator comm) {
    return static_cast<int>(comm == world ? state.device.world_size : state.device.ranks_per_device);
}

DCUDA_DEVICE void* user_data(const rank_state& state) { return state.device.user_data; }

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
                                         std::size_t bytes, window_kind kind) {
    rank_state& state = shared.get();
    begin_operation(state);
    const window created = create_window(state, comm, base, bytes, kind);
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
