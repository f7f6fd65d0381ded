// SPDX-License-Identifier: BSD-3-Clause
// What the host of a process does while a kernel runs, for the timeline.
#pragma once

#include "dcuda/detail/protocol/memory.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace dcuda {

enum class host_event_kind : std::uint32_t {
    window,           // all processes open a window
    network_put,      // what a rank sends is handed to its connection
    delivery,         // what has come is handed to the device
    fragment_sent,    // the network has taken a fragment,
    fragment_arrived, // or has brought one
};

struct host_event {
    std::uint64_t begin_ns, end_ns; // on this host's clock
    host_event_kind kind;
    std::uint32_t rank;    // on its device
    std::uint32_t process; // the other one
    std::uint32_t tag;
    std::uint64_t bytes;
};

// Keeps the latest events. Used by one thread.
class host_track {
public:
    explicit host_track(std::size_t capacity) : capacity_(capacity) {}

    bool is_on() const { return is_on_; }
    void turn(bool on) { is_on_ = on; }

    // From `begin_ns` until now.
    void record(std::uint64_t begin_ns, host_event_kind kind, std::uint32_t rank, std::uint32_t process,
                std::uint32_t tag, std::uint64_t bytes) {
        const host_event event{begin_ns, detail::clock_ns(), kind, rank, process, tag, bytes};
        if (events_.size() < capacity_)
            events_.push_back(event);
        else
            events_[recorded_ % capacity_] = event;
        ++recorded_;
    }

    // What was recorded, oldest first, and how many events were overwritten. Forgets them.
    std::vector<host_event> take(std::uint64_t& dropped) {
        dropped = recorded_ - events_.size();
        std::vector<host_event> taken = std::move(events_);
        if (dropped != 0)
            std::rotate(taken.begin(), taken.begin() + static_cast<std::ptrdiff_t>(recorded_ % capacity_), taken.end());
        events_.clear();
        recorded_ = 0;
        return taken;
    }

private:
    std::size_t capacity_;
    bool is_on_ = false;
    std::uint64_t recorded_ = 0;
    std::vector<host_event> events_;
};

} // namespace dcuda
