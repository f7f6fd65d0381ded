// SPDX-License-Identifier: BSD-3-Clause
// The operations of a rank, as both interfaces call them: perform<put_operation>(...). This is the one place where the
// profiler and the checker step between a program and the library.
#pragma once

#include "dcuda/detail/ops/collectives/collectives.hpp"
#include "dcuda/detail/ops/collectives/windows.hpp"
#include "dcuda/detail/ops/commands/device_log.hpp"
#include "dcuda/detail/ops/fast/notify_each.hpp"
#include "dcuda/detail/ops/one_sided/operations.hpp"
#include "dcuda/detail/ops/put.hpp"
#include "dcuda/detail/ops/waits/wait.hpp"
#include "dcuda/detail/ops/waits/wait_tags.hpp"

#include <type_traits>

namespace dcuda::detail {

DCUDA_DEVICE void* user_data(const rank_state& state) { return state.device.user_data; }

// --- The operations -------------------------------------------------------------------------------------------------
// Of each: what it does (run), what it does in a checked run (check, CPU backend), and what its event says (kind,
// event). Operations whose event says what they have come to, or what the rank must look up, end it themselves (end).

struct barrier_operation {
    static constexpr operation kind = operation::barrier;
    DCUDA_DEVICE static event_fields event(communicator comm) { return {.tag = static_cast<int>(comm)}; }
    DCUDA_DEVICE static void run(rank_state& state, communicator comm) { barrier(state, comm); }
#if DCUDA_BACKEND_CPU
    static void check(rank_state& state, communicator comm) {
        check_communicator(state, comm, operation::barrier);
        check::enter(state, {operation::barrier, comm});
    }
#endif
};

struct create_window_operation {
    static constexpr operation kind = operation::create_window;
    DCUDA_DEVICE static void end(rank_state& state, window, communicator comm, void*, std::size_t bytes, window_kind) {
        end_operation<kind>(state, {.tag = static_cast<int>(comm), .bytes = bytes});
    }
    DCUDA_DEVICE static window run(rank_state& state, communicator comm, void* base, std::size_t bytes,
                                   window_kind placing) {
        return exec::far(create_window)(state, comm, base, bytes, placing);
    }
#if DCUDA_BACKEND_CPU
    static window check(rank_state& state, communicator comm, void* base, std::size_t bytes, window_kind placing) {
        check_communicator(state, comm, operation::create_window);
        check_window_memory(state, base, bytes);
        check::enter(state, {operation::create_window, comm});
        const window made = create_window(state, comm, base, bytes, placing);
        check::leave(state, made, base, bytes);
        return made;
    }
#endif
};

struct free_window_operation {
    static constexpr operation kind = operation::free_window;
    DCUDA_DEVICE static event_fields event(window win) { return {.window = win.id}; }
    DCUDA_DEVICE static void run(rank_state& state, window win) { free_window(state, win); }
#if DCUDA_BACKEND_CPU
    static void check(rank_state& state, window win) {
        check::enter_free(state, win);
        free_window(state, win);
        check::leave(state);
    }
#endif
};

// What the members of a communicator do together, and in a checked run in the library's own way. The communicator is
// the operation's first argument.
template <class Operation, operation Kind>
struct member_operation {
    static constexpr operation kind = Kind;
#if DCUDA_BACKEND_CPU
    template <class... Arguments>
    static auto check(rank_state& state, communicator comm, Arguments... arguments) {
        check_communicator(state, comm, Kind);
        return check::collectively(state, {Kind, comm}, [&] { return Operation::run(state, comm, arguments...); });
    }
#endif
};

struct split_operation : member_operation<split_operation, operation::split> {
    DCUDA_DEVICE static void end(rank_state& state, communicator, communicator parent, int, int) {
        end_operation<kind>(state, {.tag = static_cast<int>(parent)});
    }
    DCUDA_DEVICE static communicator run(rank_state& state, communicator parent, int color, int key) {
        return exec::far(split)(state, parent, color, key);
    }
};

struct free_communicator_operation : member_operation<free_communicator_operation, operation::free_communicator> {
    DCUDA_DEVICE static event_fields event(communicator comm) { return {.tag = static_cast<int>(comm)}; }
    DCUDA_DEVICE static void run(rank_state& state, communicator comm) { exec::far(free_communicator)(state, comm); }
};

template <class T, class Op>
struct allreduce_value_operation : member_operation<allreduce_value_operation<T, Op>, operation::allreduce> {
    using allreduce_value_operation::member_operation::kind;
    DCUDA_DEVICE static void end(rank_state& state, const T&, communicator comm, const T&, const Op&) {
        end_operation<kind>(state, {.tag = static_cast<int>(comm), .bytes = sizeof(T)});
    }
    DCUDA_DEVICE static T run(rank_state& state, communicator comm, T value, Op op) {
        return allreduce_value(state, comm, value, op);
    }
};

template <class T, class Op>
struct allreduce_array_operation : member_operation<allreduce_array_operation<T, Op>, operation::allreduce> {
    using allreduce_array_operation::member_operation::kind;
    DCUDA_DEVICE static event_fields event(communicator comm, T*, const T*, std::size_t count, const Op&) {
        return {.tag = static_cast<int>(comm), .bytes = count * sizeof(T)};
    }
    DCUDA_DEVICE static void run(rank_state& state, communicator comm, T* out, const T* in, std::size_t count, Op op) {
        allreduce_array(state, comm, out, in, count, op);
    }
};

// An allreduce in two parts. A checked run makes all of it in the second one: only there it may wait for all members.
struct start_operation {
    static constexpr operation kind = operation::start_allreduce;
#if DCUDA_BACKEND_CPU
    template <class... Arguments>
    static unsigned check(rank_state& state, communicator comm, Arguments...) {
        return answer_of_start(state, exec::decide(state.group(), state.decision, [&](const lead_warp& warp) {
                                   return begin_start(warp, state, comm, false);
                               }));
    }
    static void check_finish(rank_state& state, communicator comm, unsigned start) {
        leave(exec::decide(state.group(), state.decision,
                           [&](const lead_warp& warp) { return mark_finished(warp, state, comm, start) ? 1u : 0u; }));
    }
#endif
};
template <class T, class Op>
struct start_value_operation : start_operation {
    DCUDA_DEVICE static void end(rank_state& state, unsigned, communicator comm, const T&, const Op&) {
        end_operation<kind>(state, {.tag = static_cast<int>(comm), .bytes = sizeof(T)});
    }
    DCUDA_DEVICE static unsigned run(rank_state& state, communicator comm, T value, Op op) {
        return start_allreduce_value(state, comm, value, op);
    }
};
template <class T, class Op>
struct finish_value_operation {
    static constexpr operation kind = operation::finish_allreduce;
    DCUDA_DEVICE static void end(rank_state& state, const T&, communicator comm, const T&, const Op&, unsigned) {
        end_operation<kind>(state, {.tag = static_cast<int>(comm), .bytes = sizeof(T)});
    }
    DCUDA_DEVICE static T run(rank_state& state, communicator comm, T value, Op op, unsigned start) {
        return finish_allreduce_value(state, comm, value, op, start);
    }
#if DCUDA_BACKEND_CPU
    static T check(rank_state& state, communicator comm, T value, Op op, unsigned start) {
        start_value_operation<T, Op>::check_finish(state, comm, start);
        return allreduce_value_operation<T, Op>::check(state, comm, value, op);
    }
#endif
};
template <class T, class Op>
struct start_array_operation : start_operation {
    DCUDA_DEVICE static void end(rank_state& state, unsigned, communicator comm, T*, const T*, std::size_t count,
                                 const Op&) {
        end_operation<kind>(state, {.tag = static_cast<int>(comm), .bytes = count * sizeof(T)});
    }
    DCUDA_DEVICE static unsigned run(rank_state& state, communicator comm, T* out, const T* in, std::size_t count,
                                     Op op) {
        return start_allreduce_array(state, comm, out, in, count, op);
    }
};
template <class T, class Op>
struct finish_array_operation {
    static constexpr operation kind = operation::finish_allreduce;
    DCUDA_DEVICE static event_fields event(communicator comm, T*, const T*, std::size_t count, const Op&, unsigned) {
        return {.tag = static_cast<int>(comm), .bytes = count * sizeof(T)};
    }
    DCUDA_DEVICE static void run(rank_state& state, communicator comm, T* out, const T* in, std::size_t count, Op op,
                                 unsigned start) {
        finish_allreduce_array(state, comm, out, in, count, op, start);
    }
#if DCUDA_BACKEND_CPU
    static void check(rank_state& state, communicator comm, T* out, const T* in, std::size_t count, Op op,
                      unsigned start) {
        start_array_operation<T, Op>::check_finish(state, comm, start);
        allreduce_array_operation<T, Op>::check(state, comm, out, in, count, op);
    }
#endif
};

template <class T, class Op>
struct reduce_operation : member_operation<reduce_operation<T, Op>, operation::reduce> {
    using reduce_operation::member_operation::kind;
    DCUDA_DEVICE static event_fields event(communicator comm, T*, const T*, std::size_t count, const Op&, int) {
        return {.tag = static_cast<int>(comm), .bytes = count * sizeof(T)};
    }
    DCUDA_DEVICE static void run(rank_state& state, communicator comm, T* out, const T* in, std::size_t count, Op op,
                                 int root) {
        reduce_array(state, comm, out, in, count, op, root);
    }
};

template <class T>
struct broadcast_value_operation : member_operation<broadcast_value_operation<T>, operation::broadcast> {
    using broadcast_value_operation::member_operation::kind;
    DCUDA_DEVICE static void end(rank_state& state, const T&, communicator comm, const T&, int) {
        end_operation<kind>(state, {.tag = static_cast<int>(comm), .bytes = sizeof(T)});
    }
    DCUDA_DEVICE static T run(rank_state& state, communicator comm, T value, int root) {
        return broadcast_value(state, comm, value, root);
    }
};

template <class T>
struct broadcast_array_operation : member_operation<broadcast_array_operation<T>, operation::broadcast> {
    using broadcast_array_operation::member_operation::kind;
    DCUDA_DEVICE static event_fields event(communicator comm, T*, std::size_t count, int) {
        return {.tag = static_cast<int>(comm), .bytes = count * sizeof(T)};
    }
    DCUDA_DEVICE static void run(rank_state& state, communicator comm, T* data, std::size_t count, int root) {
        broadcast_array(state, comm, data, count, root);
    }
};

template <class T, class Op>
struct reduce_scatter_operation : member_operation<reduce_scatter_operation<T, Op>, operation::reduce_scatter> {
    using reduce_scatter_operation::member_operation::kind;
    DCUDA_DEVICE static event_fields event(communicator comm, T*, const T*, std::size_t count, const Op&) {
        return {.tag = static_cast<int>(comm), .bytes = count * sizeof(T)};
    }
    DCUDA_DEVICE static void run(rank_state& state, communicator comm, T* out, const T* in, std::size_t count, Op op) {
        reduce_scatter_array(state, comm, out, in, count, op);
    }
};

// `Kind`: scan, or exclusive_scan, in which member 0 gets `first`.
template <operation Kind, class T, class Op>
struct scan_operation : member_operation<scan_operation<Kind, T, Op>, Kind> {
    DCUDA_DEVICE static void end(rank_state& state, const T&, communicator comm, const T&, const Op&, const T&) {
        end_operation<Kind>(state, {.tag = static_cast<int>(comm), .bytes = sizeof(T)});
    }
    DCUDA_DEVICE static T run(rank_state& state, communicator comm, T value, Op op, T first) {
        return scan_value(state, Kind, comm, value, operator_traits<Op>::of(op), first);
    }
};

// Of gather, all_gather, scatter and all_to_all, with pieces of `count` elements.
template <operation Kind, class T>
struct move_operation : member_operation<move_operation<Kind, T>, Kind> {
    DCUDA_DEVICE static event_fields event(communicator comm, T*, const T*, std::size_t count, int) {
        return {.tag = static_cast<int>(comm), .bytes = count * sizeof(T)};
    }
    DCUDA_DEVICE static void run(rank_state& state, communicator comm, T* out, const T* in, std::size_t count,
                                 int root) {
        move_pieces<Kind>(state, comm, root, out, in, count);
    }
};

// The same with pieces that differ.
template <operation Kind, class T>
struct move_differing_operation : member_operation<move_differing_operation<Kind, T>, Kind> {
    DCUDA_DEVICE static event_fields event(communicator comm, int, T*, const T*, const differing_pieces& pieces) {
        return {.tag = static_cast<int>(comm), .bytes = pieces.count * sizeof(T)};
    }
    DCUDA_DEVICE static void run(rank_state& state, communicator comm, int root, T* out, const T* in,
                                 differing_pieces pieces) {
        move_differing<Kind>(state, comm, root, out, in, pieces);
    }
};

struct put_operation {
    static constexpr operation kind = operation::put;
    DCUDA_DEVICE static event_fields event(window win, int target, std::size_t, std::size_t bytes, const void*) {
        return {.peer = target, .window = win.id, .bytes = bytes};
    }
    DCUDA_DEVICE static void run(const caller& by, window win, int target, std::size_t offset, std::size_t bytes,
                                 const void* source) {
        put(by, win, target, offset, bytes, source);
    }
#if DCUDA_BACKEND_CPU
    static void check(rank_state& state, window win, int target, std::size_t offset, std::size_t bytes,
                      const void* source) {
        check::put(state, win, target, offset, bytes, source);
    }
#endif
};

struct put_notify_operation {
    static constexpr operation kind = operation::put_notify;
    DCUDA_DEVICE static event_fields event(window win, int target, std::size_t, std::size_t bytes, const void*,
                                           int tag) {
        return {.tag = tag, .peer = target, .window = win.id, .bytes = bytes};
    }
    DCUDA_DEVICE static void run(const caller& by, window win, int target, std::size_t offset, std::size_t bytes,
                                 const void* source, int tag) {
        put_notify(by, win, target, offset, bytes, source, tag);
    }
#if DCUDA_BACKEND_CPU
    static void check(rank_state& state, window win, int target, std::size_t offset, std::size_t bytes,
                      const void* source, int tag) {
        check::put_notify(state, win, target, offset, bytes, source, tag);
    }
#endif
};

// notify, notify_relaxed.
template <operation Kind>
struct notify_alone_operation {
    static constexpr operation kind = Kind;
    DCUDA_DEVICE static event_fields event(int target, communicator comm, int tag) {
        return {.tag = tag, .peer = target, .window = static_cast<std::uint32_t>(comm)};
    }
    DCUDA_DEVICE static void run(const caller& by, int target, communicator comm, int tag) {
        notify(by, Kind, target, comm, tag);
    }
#if DCUDA_BACKEND_CPU
    static void check(rank_state& state, int target, communicator comm, int tag) {
        check::notify(state, Kind, target, comm, tag);
    }
#endif
};
using notify_operation = notify_alone_operation<operation::notify>;
using notify_relaxed_operation = notify_alone_operation<operation::notify_relaxed>;

struct wait_operation {
    static constexpr operation kind = operation::wait_notifications;
    DCUDA_DEVICE static event_fields event(int tag, int count) { return {.tag = tag, .peer = count}; }
    DCUDA_DEVICE static void run(const caller& by, int tag, int count) { wait_notifications(by, tag, count); }
#if DCUDA_BACKEND_CPU
    static void check(rank_state& state, int tag, int count) { check::wait_notifications(state, tag, count); }
#endif
};

struct wait_from_operation {
    static constexpr operation kind = operation::wait_notifications_from;
    DCUDA_DEVICE static void run(const caller& by, int source, communicator comm, int tag, int count) {
        wait_notifications_from(by, source, comm, tag, count);
    }
    DCUDA_DEVICE static void end(rank_state& state, int source, communicator comm, int tag, int count) {
        const std::uint32_t world_rank = world_rank_of(state, comm, static_cast<std::uint32_t>(source));
        end_operation<kind>(state, {.tag = tag, .peer = count, .bytes = world_rank});
    }
#if DCUDA_BACKEND_CPU
    static void check(rank_state& state, int source, communicator comm, int tag, int count) {
        check::wait_notifications_from(state, source, comm, tag, count);
    }
#endif
};

struct wait_for_operation {
    static constexpr operation kind = operation::wait_notifications_for;
    DCUDA_DEVICE static void end(rank_state& state, bool came, int tag, int count, std::uint64_t) {
        end_operation<kind>(state, {.tag = tag, .peer = came ? count : 0});
    }
    DCUDA_DEVICE static bool run(rank_state& state, int tag, int count, std::uint64_t nanoseconds) {
        return wait_notifications_for(state, tag, count, nanoseconds);
    }
#if DCUDA_BACKEND_CPU
    static bool check(rank_state& state, int tag, int count, std::uint64_t nanoseconds) {
        return check::wait_notifications_for(state, tag, count, nanoseconds);
    }
#endif
};

struct wait_any_operation {
    static constexpr operation kind = operation::wait_any;
    DCUDA_DEVICE static void end(rank_state& state, int tag, int, int) {
        end_operation<kind>(state, {.tag = tag, .peer = 1});
    }
    DCUDA_DEVICE static int run(rank_state& state, int first_tag, int tags) { return wait_any(state, first_tag, tags); }
#if DCUDA_BACKEND_CPU
    static int check(rank_state& state, int first_tag, int tags) { return check::wait_any(state, first_tag, tags); }
#endif
};

struct wait_some_operation {
    static constexpr operation kind = operation::wait_some;
    DCUDA_DEVICE static void end(rank_state& state, int count, int, int, const int* arrived) {
        for (int i = 0; i < count; ++i) {
            if (i != 0) begin_operation(state);
            end_operation<kind>(state, {.tag = arrived[i], .peer = 1});
        }
    }
    DCUDA_DEVICE static int run(rank_state& state, int first_tag, int tags, int* arrived) {
        return wait_some(state, first_tag, tags, arrived);
    }
#if DCUDA_BACKEND_CPU
    static int check(rank_state& state, int first_tag, int tags, int* arrived) {
        check_results(state, arrived);
        return check::wait_some(state, first_tag, tags, arrived);
    }
#endif
};

struct test_operation {
    static constexpr operation kind = operation::test_notifications;
    DCUDA_DEVICE static void end(rank_state& state, bool came, int tag, int count) {
        if (came) end_operation<kind>(state, {.tag = tag, .peer = count});
    }
    DCUDA_DEVICE static bool run(rank_state& state, int tag, int count) {
        return test_notifications(state, tag, count);
    }
#if DCUDA_BACKEND_CPU
    static bool check(rank_state& state, int tag, int count) { return check::test_notifications(state, tag, count); }
#endif
};

struct pending_operation {
    static constexpr operation kind = operation::pending_notifications;
    DCUDA_DEVICE static void end(rank_state&, int, int) {}
    DCUDA_DEVICE static int run(rank_state& state, int tag) { return pending_notifications(state, tag); }
#if DCUDA_BACKEND_CPU
    static int check(rank_state& state, int tag) { return check::pending_notifications(state, tag); }
#endif
};

struct flush_operation {
    static constexpr operation kind = operation::flush;
    DCUDA_DEVICE static event_fields event(window win) { return {.window = win.id}; }
    DCUDA_DEVICE static void run(const caller& by, window win) { flush(by, win); }
#if DCUDA_BACKEND_CPU
    static void check(rank_state& state, window win) { check::flush(state, win); }
#endif
};

// The device's timers: start and stop.
template <operation Kind, class Fields>
struct timer_operation {
    static constexpr operation kind = Kind;
    DCUDA_DEVICE static event_fields event() { return {}; }
    DCUDA_DEVICE static void run(rank_state& state) { send_time<Fields>(state, Kind); }
#if DCUDA_BACKEND_CPU
    static void check(rank_state& state) {
        check::enter(state, {Kind, device});
        run(state);
        check::leave(state);
    }
#endif
};
using start_timer_operation = timer_operation<operation::start_timer, start_timer_fields>;
using stop_timer_operation = timer_operation<operation::stop_timer, stop_timer_fields>;

// --- Performing one -------------------------------------------------------------------------------------------------

// The operation itself, or the checker's way of it.
template <class Operation, class... Arguments>
DCUDA_DEVICE auto run_or_check(const caller& by, Arguments... arguments) {
#if DCUDA_BACKEND_CPU
    if (check::is_on(by)) return Operation::check(by, arguments...);
#endif
    return Operation::run(by, arguments...);
}

// No other function has such a parameter. ptxas takes a function that is called by its address for any with the same
// parameters, so these would seem to call themselves, and the stack that they need could not be told.
struct profiled_call {
    std::uint32_t words[3] = {};
};

// The operation between its two records (profile.hpp).
//
// PERF: a function of its own, which a kernel calls by exec::far. With the records around the operation in the kernel
// itself, an operation took up to 0.6 us more and an event 0.49 us instead of 0.24 (H200, 2026-11-22).
template <class Operation, class... Arguments>
DCUDA_COLD auto perform_profiled(shared_state shared, profiled_call, Arguments... arguments) {
    rank_state& state = shared.get();
    const caller by(state);
    begin_operation(state);
    if constexpr (std::is_void_v<decltype(run_or_check<Operation>(by, arguments...))>) {
        run_or_check<Operation>(by, arguments...);
        if constexpr (requires { Operation::end(state, arguments...); })
            Operation::end(state, arguments...);
        else
            end_operation<Operation::kind>(state, Operation::event(arguments...));
    } else {
        const auto result = run_or_check<Operation>(by, arguments...);
        if constexpr (is_test<Operation::kind>)
            if (state.group().leads()) count_operation(state, Operation::kind);
        Operation::end(state, result, arguments...);
        return result;
    }
}

// What each operation of either interface calls, in all threads of the rank. `is_profiled`: of the run (is_profiled).
template <class Operation, class... Arguments>
DCUDA_DEVICE auto perform(const caller& by, bool is_profiled, Arguments... arguments) {
#if DCUDA_BACKEND_CPU
    const exec::operation_scope named(traits_of(Operation::kind).name);
#endif
    if (is_profiled) return exec::far(perform_profiled<Operation, Arguments...>)(by.state(), {}, arguments...);
    return run_or_check<Operation>(by, arguments...);
}

// A notification of each target. Where somebody observes the rank, each is an operation of its own.
DCUDA_DEVICE void perform_notify_each(const caller& by, bool is_profiled, const int* targets, int count,
                                      communicator comm, int tag) {
#if DCUDA_BACKEND_CPU
    const exec::operation_scope named(traits_of(operation::notify).name);
#endif
    if (DCUDA_CHECKS != 0 && count < 0)
        report_and_leave(by.state(), fault::count, operation::notify, 0, static_cast<std::uint32_t>(tag),
                         static_cast<std::uint32_t>(count), 0, 0);
#if DCUDA_WARPS
    bool is_observed = is_profiled;
#if DCUDA_BACKEND_CPU
    is_observed = is_observed || check::is_on(by);
#endif
    if (!is_observed) return notify_each(by, targets, static_cast<unsigned>(count < 0 ? 0 : count), comm, tag);
#endif
    for (int i = 0; i < count; ++i) perform<notify_operation>(by, is_profiled, targets[i], comm, tag);
}

// The same for an interface whose objects keep nothing.
template <class Operation, class... Arguments>
DCUDA_DEVICE auto perform_in_run(rank_state& state, Arguments... arguments) {
    return perform<Operation>(caller(state), is_profiled(state), arguments...);
}

} // namespace dcuda::detail
