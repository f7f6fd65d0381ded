// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The published dCUDA interface, device side (Gysi, Baer, Hoefler: dCUDA, SC16, and the optimised-dCUDA thesis): thin
/// forwarders to dcuda/device.hpp, whose comments state every guarantee. All threads of the rank call these functions,
/// unless they are marked (thread). Sizes and offsets are in bytes; they are wider than published, so that windows may
/// exceed 2 GiB. An error ends the run: dcuda_host_run prints the message and exits.
#pragma once

#include "dcuda/device.hpp"

/// What the host gives to a kernel.
using dcuda_context = dcuda::detail::kernel_context;
/// The kernel's argument.
using dcuda_context_handle = dcuda::context;
using dcuda_state = dcuda::state; ///< one per rank: `__shared__ dcuda_state state;`
/// A group of ranks: one of those below, or what dcuda_comm_split has made.
using dcuda_comm = int;
/// A handle to memory that the ranks of a communicator opened for puts.
using dcuda_win = dcuda::window;

inline constexpr dcuda_comm DCUDA_COMM_WORLD = static_cast<dcuda_comm>(dcuda::world);   ///< all ranks
inline constexpr dcuda_comm DCUDA_COMM_DEVICE = static_cast<dcuda_comm>(dcuda::device); ///< the ranks of this device
inline constexpr dcuda_comm DCUDA_COMM_NODE = static_cast<dcuda_comm>(dcuda::node);     ///< the ranks of this host
inline constexpr dcuda_comm DCUDA_COMM_NONE = static_cast<dcuda_comm>(dcuda::none);     ///< no ranks
inline constexpr dcuda_win DCUDA_WIN_NONE{};                                            ///< creation failed

/// The first call of a kernel; `state` lies in the block's shared memory. A barrier over all ranks of the system.
DCUDA_DEVICE void dcuda_gpu_init(dcuda_context_handle context, dcuda_state& state) {
    dcuda::detail::init(context, state);
}

/// The last call of a kernel. A barrier over all ranks of the system.
DCUDA_DEVICE void dcuda_gpu_finish(dcuda_state& state) { dcuda::detail::finish(state); }

/// The device's copy of the data given to dcuda_host_run, shared by its ranks; null if none was given. (thread)
DCUDA_DEVICE void dcuda_get_data(dcuda_state& state, void** gpu_data) { *gpu_data = dcuda::detail::user_data(state); }

/// Ranks in the communicator. (thread)
DCUDA_DEVICE void dcuda_comm_size(dcuda_state& state, dcuda_comm comm, int* size) {
    *size = dcuda::detail::comm_size(state, static_cast<dcuda::communicator>(comm));
}
/// This rank's number in the communicator, from 0. (thread)
DCUDA_DEVICE void dcuda_comm_rank(dcuda_state& state, dcuda_comm comm, int* rank) {
    *rank = dcuda::detail::comm_rank(state, static_cast<dcuda::communicator>(comm));
}

/// A barrier. All ranks of the communicator call it; rank::barrier says what is visible on return.
DCUDA_DEVICE void dcuda_comm_barrier(dcuda_state& state, dcuda_comm comm) {
    dcuda::detail::perform_in_run<dcuda::detail::barrier_operation>(state, static_cast<dcuda::communicator>(comm));
}

/// Makes communicators of the ranks of another one, by color and key: rank::split. All ranks of `comm`.
DCUDA_DEVICE void dcuda_comm_split(dcuda_state& state, dcuda_comm comm, int color, int key, dcuda_comm* newcomm) {
    *newcomm = static_cast<dcuda_comm>(dcuda::detail::perform_in_run<dcuda::detail::split_operation>(
        state, static_cast<dcuda::communicator>(comm), color, key));
}
/// Ends a communicator that dcuda_comm_split has made. All of its ranks.
DCUDA_DEVICE void dcuda_comm_free(dcuda_state& state, dcuda_comm comm) {
    dcuda::detail::perform_in_run<dcuda::detail::free_communicator_operation>(state,
                                                                              static_cast<dcuda::communicator>(comm));
}

/// Opens `size` bytes at `winbase` for puts. All ranks of `comm` call it; `comm` is DCUDA_COMM_WORLD or
/// DCUDA_COMM_DEVICE. Base and size may differ per rank, size may be 0. One window too many ends the run; with
/// DCUDA_WINDOWS_MAY_FAIL=1 *win is DCUDA_WIN_NONE instead on all ranks, and the host prints the reason.
DCUDA_DEVICE void dcuda_win_create(dcuda_state& state, dcuda_comm comm, void* winbase, std::size_t size,
                                   dcuda_win* win) {
    *win = dcuda::detail::perform_in_run<dcuda::detail::create_window_operation>(
        state, static_cast<dcuda::communicator>(comm), winbase, size, dcuda::window_kind::usual);
}

/// Closes the window. All ranks of the window's communicator. On return all puts to it are complete.
DCUDA_DEVICE void dcuda_win_free(dcuda_state& state, dcuda_win win) {
    dcuda::detail::perform_in_run<dcuda::detail::free_window_operation>(state, win);
}

/// Copies `size` bytes at `buffer` to the target rank's window, `offset` bytes from its base. `rank` counts in the
/// window's communicator. Returns once issued.
DCUDA_DEVICE void dcuda_put(dcuda_state& state, dcuda_win win, int rank, std::size_t offset, std::size_t size,
                            const void* buffer) {
    dcuda::detail::perform_in_run<dcuda::detail::put_operation>(state, win, rank, offset, size, buffer);
}

/// Notifies the target rank after all earlier puts of this rank to it. Returns once issued.
DCUDA_DEVICE void dcuda_notify(dcuda_state& state, int rank, dcuda_comm comm, int tag) {
    dcuda::detail::perform_in_run<dcuda::detail::notify_operation>(state, rank, static_cast<dcuda::communicator>(comm),
                                                                   tag);
}

/// dcuda_put, then dcuda_notify with this tag: rank::put_notify says when the data is in the window. Returns once
/// issued.
DCUDA_DEVICE void dcuda_put_notify(dcuda_state& state, dcuda_win win, int rank, std::size_t offset, std::size_t size,
                                   const void* buffer, int tag) {
    dcuda::detail::perform_in_run<dcuda::detail::put_notify_operation>(state, win, rank, offset, size, buffer, tag);
}

/// Returns when all earlier puts of this rank on this window are complete; then their source buffers may change.
DCUDA_DEVICE void dcuda_win_flush(dcuda_state& state, dcuda_win win) {
    dcuda::detail::perform_in_run<dcuda::detail::flush_operation>(state, win);
}

/// 1, and consumes them, if `count` notifications with this tag have arrived; else 0.
DCUDA_DEVICE int dcuda_test_notifications(dcuda_state& state, int tag, int count) {
    return dcuda::detail::perform_in_run<dcuda::detail::test_operation>(state, tag, count) ? 1 : 0;
}

/// Waits until `count` notifications with this tag have arrived, and consumes them.
DCUDA_DEVICE void dcuda_wait_notifications(dcuda_state& state, int tag, int count) {
    dcuda::detail::perform_in_run<dcuda::detail::wait_operation>(state, tag, count);
}

/// Starts the timer. All ranks of the device. The time to its stop is an entry of dcuda_host_get_timings.
DCUDA_DEVICE void dcuda_start_cpu_timer(dcuda_state& state) {
    dcuda::detail::perform_in_run<dcuda::detail::start_timer_operation>(state);
}
/// Stops the timer. All ranks of the device.
DCUDA_DEVICE void dcuda_stop_cpu_timer(dcuda_state& state) {
    dcuda::detail::perform_in_run<dcuda::detail::stop_timer_operation>(state);
}

/// A line of text that the host prints while the kernel runs: log << "x = " << x << log.flush. Thread 0 of the rank
/// writes it; other threads may call it, too.
class dcuda_log {
public:
    /// The type of `flush`.
    struct flush_type {};
    flush_type flush; ///< ends the line when it is written to the log

    /// A log of this rank: dcuda_log_get. (thread)
    DCUDA_DEVICE explicit dcuda_log(dcuda_state& state) : line_(state) {}
    /// Adds a number, character, C string or pointer to the line. (thread)
    template <class Value>
    DCUDA_DEVICE dcuda_log& operator<<(const Value& value) {
        line_ << value;
        return *this;
    }
    /// Ends the line; the host prints it. (thread)
    DCUDA_DEVICE dcuda_log& operator<<(flush_type) {
        line_.end();
        return *this;
    }

private:
    dcuda::detail::log_line line_;
};

/// The rank's log. (thread)
DCUDA_DEVICE dcuda_log dcuda_log_get(dcuda_state& state) { return dcuda_log(state); }
