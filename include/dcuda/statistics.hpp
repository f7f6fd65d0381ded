// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the ranks of a device have done, in operations, bytes and time: runtime::statistics.
#pragma once

#include <cstdint>
#include <vector>

namespace dcuda {

/// Messages to ranks that are reached the same way.
struct path_statistics {
    std::uint64_t puts = 0;          ///< without a notification
    std::uint64_t notified_puts = 0; ///< put_notify
    std::uint64_t notifications = 0; ///< notify and notify_relaxed
    std::uint64_t bytes = 0;         ///< of both kinds of puts
};

/// What one rank has done. Times are those that one thread of the rank, its leader, has seen, in nanoseconds.
struct rank_statistics {
    int rank = 0;                       ///< in the world
    path_statistics local,              ///< to ranks of this device
        peer,                           ///< to ranks of devices whose memory is mapped
        network;                        ///< to ranks that are reached over a network
    std::uint64_t through_mailbox = 0;  ///< of the notified puts and notifications those that went through a mailbox
    std::uint64_t waits = 0,            ///< calls of the functions that wait for notifications
        tests = 0,                      ///< calls of test_notifications and pending_notifications
        gets = 0,                       ///< calls of get and get_notify
        atomics = 0,                    ///< atomic operations, and calls of accumulate and accumulate_notify
        flushes = 0,                    ///< calls of flush
        barriers = 0,                   ///< calls of barrier
        windows = 0;                    ///< windows created
    std::uint64_t put_ns = 0,           ///< in puts and notifications
        access_ns = 0,                  ///< in gets and atomic operations
        wait_ns = 0,                    ///< in waits
        flush_ns = 0;                   ///< in flushes
    std::uint64_t barrier_ns = 0;       ///< with the start and the end of the kernel, where all ranks meet
    std::uint64_t window_ns = 0;        ///< creating and freeing windows
    std::uint64_t ring_full_ns = 0;     ///< of all that: waiting for space in the command ring
    std::uint64_t mailbox_full_ns = 0;  ///< of all that: waiting for space in a target's mailbox
    std::uint64_t mailbox_messages = 0, ///< most on the way to one target at a time (every 16th message is sampled)
        mailbox_packets = 0;            ///< most packets, likewise
};

/// What the ranks of one device have done: runtime::statistics.
struct statistics {
    int runs = 0;                       ///< runs that were counted
    double kernel_ms = 0;               ///< time of their kernels on this device, in milliseconds
    std::uint64_t ring_commands = 0;    ///< most that waited in the command ring when the host looked
    std::vector<rank_statistics> ranks; ///< of this process's device, summed over the runs; marks are maxima
    rank_statistics total() const;      ///< the sum over these ranks; `rank` is -1, of marks the largest
};

} // namespace dcuda
