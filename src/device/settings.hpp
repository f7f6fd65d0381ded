// SPDX-License-Identifier: BSD-3-Clause
// What a runtime was asked for: options of the program, then arguments, then environment variables, then defaults.
#pragma once

#include "dcuda/host.hpp"

#include <chrono>
#include <cstdint>
#include <string>

namespace dcuda {

enum class check_mode : int { off, stop, report };
enum class unconsumed_mode : int { ignore, report, error };

struct settings {
    int ranks_per_device; // 0: as many as fit
    int tags;
    int match_sources; // of these tags
    int max_windows;
    bool windows_may_fail;                      // DCUDA_WINDOWS_MAY_FAIL: one too many is a false window, and no error
    std::chrono::nanoseconds wait_timeout;      // 0: none
    std::chrono::nanoseconds watchdog_interval; // DCUDA_WATCHDOG_INTERVAL, seconds; 0: no watchdog
    std::chrono::nanoseconds abort_grace;       // DCUDA_ABORT_GRACE, seconds: how long a kernel may take to end
    bool measure_energy;                        // DCUDA_ENERGY
    std::string powercap;                       // DCUDA_POWERCAP: where the processors' counters are (tests)
    bool live_view;                             // DCUDA_TOP unset or 1: dcuda-top may look at this process
    bool peer_allowed;                          // DCUDA_DISABLE_PEER unset or 0
    std::string transport;                      // DCUDA_TRANSPORT: auto, or a transport, or transport:provider
    std::size_t network_ring_bytes; // DCUDA_NETWORK_RING_BYTES: of each direction of a connection; 0: by the processes
    int network_inline_bytes;       // DCUDA_NETWORK_INLINE_BYTES: puts up to this size take the command ring
    int mailbox_packets;            // DCUDA_MAILBOX_PACKETS: of a queue; 0: no messages; -1: by the device's memory
    int mailbox_queues;             // DCUDA_MAILBOX_QUEUES: of a device; -1: by its memory
    int small_put_bytes;            // DCUDA_SMALL_PUT_BYTES: notified puts that go as messages; -1: by the device
    std::size_t stream_put_bytes;   // DCUDA_STREAM_PUT_BYTES: puts of streams that a kernel makes, not the copy engine
    bool streams_wait_for_values;   // DCUDA_STREAM_OPS=memops: streams wait by the driver, not by kernels
    int bounce_bytes;               // DCUDA_BOUNCE_BYTES: arrays of that size are reduced through bounce buffers
    int leader_members;             // DCUDA_LEADER_MEMBERS: of so many on a device, values are combined by leaders
    int barrier_row;                // DCUDA_BARRIER_ROW: ranks of a row in barriers; 0: by their number (tests)
    check_mode check;               // DCUDA_CHECK: 1 or report (CPU backend)
    long check_seed;                // DCUDA_CHECK_SEED
    unconsumed_mode unconsumed;     // DCUDA_UNCONSUMED: what notifications are that nobody has waited for
    std::uint32_t counter_start;    // DCUDA_COUNTER_START: what counters and lanes start from (tests)
    std::string trace;              // DCUDA_TRACE: file for the timeline; empty: none
    std::uint32_t trace_events;     // DCUDA_TRACE_EVENTS: of a rank that are kept; 0: by the number of ranks
    bool count;                     // DCUDA_STATS set, or options::count
    std::string statistics;         // DCUDA_STATS: file for the statistics, "-" for standard error; empty: nowhere
};

// Takes --dcuda-... out of argv if there is one. Throws error(invalid_argument).
settings resolve_settings(const options& requested, int* argc, char** argv);

} // namespace dcuda
