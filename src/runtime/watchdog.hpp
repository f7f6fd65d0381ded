// SPDX-License-Identifier: BSD-3-Clause
// Finds out that every rank of the system waits and nothing moves any more, and says who waits for what.
#pragma once

#include "bootstrap/control.hpp"
#include "device/device_access.hpp"
#include "device/device_state.hpp"

#include <chrono>
#include <vector>

namespace dcuda {

// Samples the wait records of this device's ranks. A rank that waits advances its heartbeat each time it has polled in
// vain, so a sample with all heartbeats advanced and all epochs unchanged means: nobody moved, and everybody looked
// again after the sample before. Two of these on every process, after all were quiet at one time (the control plane
// counts), are a deadlock: at some moment between, all ranks waited and nothing was left under way that could end a
// wait. docs/design/protocol.md has the argument in full.
class watchdog {
public:
    watchdog(bootstrap::control& control, const device_state& state, device_access& link,
             std::chrono::nanoseconds interval)
        : control_(control), state_(state), link_(link), interval_(interval), next_(clock::now() + interval),
          previous_(static_cast<std::size_t>(state.ranks())), sightings_(previous_.size()) {}

    // Takes a sample if it is time and reports it to the control plane. `is_quiet`: nothing that ranks may wait for is
    // on its way over a network.
    void poll(bool is_quiet);

    // The waits of this device's ranks now, and for how long they have been seen in them.
    std::vector<detail::wait_record> read_waits();

private:
    using clock = std::chrono::steady_clock;
    bootstrap::control& control_;
    const device_state& state_;
    device_access& link_;
    std::chrono::nanoseconds interval_;
    clock::time_point next_;
    std::vector<detail::wait_record> previous_; // at the last sample
    struct sighting {
        detail::waiting kind = detail::waiting::no;
        std::uint32_t epoch = 0;
        clock::time_point first;
    };
    std::vector<sighting> sightings_; // by rank: the wait that it was in when it was last looked at
};

} // namespace dcuda
