// SPDX-License-Identifier: BSD-3-Clause
// What another process may send to a stream port over a network. Nothing is done with a message that is refused here.
#pragma once

#include "network/inbound_check.hpp"

#include <cstdint>
#include <functional>
#include <string>

namespace dcuda {

// A get of this process.
struct pending_get {
    std::uint32_t piece;
    std::uint64_t destination, bytes;
};

// What a port knows of the other process. Of the queues of sends: the numbers of the next pieces.
struct port_expectation {
    std::uint32_t tags;
    std::uint32_t next_send, received_there; // this process's sends; of them the other has told that they are received
    std::uint32_t next_arrival, told_received; // the other's sends; of them this process has told
    const pending_get* oldest_get;             // or null
};

// What is wrong with a message; empty: nothing. `holds`: whether these bytes lie in a window of the host.
std::string find_port_fault(const port_expectation& expected,
                            const std::function<bool(std::uint64_t place, std::uint64_t bytes)>& holds,
                            const message_header& head, const std::byte* payload);

} // namespace dcuda
