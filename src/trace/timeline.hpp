// SPDX-License-Identifier: BSD-3-Clause
// Makes operations on one clock of what ranks have written down, and finds which notification ended which wait.
#pragma once

#include "trace/process_profile.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace dcuda {

// An operation, a range, or the whole kernel of a rank.
struct slice {
    std::int64_t begin_ns, end_ns;
    detail::operation kind; // none: the kernel, or a range
    bool is_range;
    detail::event_path path;
    bool through_mailbox;
    bool unfinished; // it was under way when the run failed
    std::uint32_t tag, peer, window;
    std::uint64_t bytes;
    std::string name; // of a range
};

struct rank_timeline {
    int rank; // in the world
    int process;
    std::uint64_t dropped; // events
    std::vector<slice> slices;
};

// The timelines of a process's ranks. `clock` is added to its host's times.
std::vector<rank_timeline> make_timelines(const process_profile& part, std::int64_t clock);

// A notification and the wait, or successful test, that it ended or helped to end: places in the timelines.
struct arrow {
    std::size_t source, source_slice;
    std::size_t target, target_slice;
};

// Notifications are told apart by nothing but target and tag, so which one a wait has consumed is a matter of
// convention: those of one source in the order in which they were issued, those of several in the order of time. If
// nothing was dropped, the first notification goes to the first wait and so on; else the last to the last, since at the
// end of most programs none is left.
std::vector<arrow> match_notifications(const std::vector<rank_timeline>& ranks);

// How long a tick of this rank's clock lasts, from its two samples of the device's clock.
double ns_per_tick(const detail::rank_counters& counters);

} // namespace dcuda
