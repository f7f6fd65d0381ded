// SPDX-License-Identifier: BSD-3-Clause
// A window that the host has made: every rank of a process offers the memory of its process.
#pragma once

#include "dcuda/detail/protocol/protocol.hpp"

#include <vector>

namespace dcuda {

struct host_window {
    std::uint32_t id;                          // the same in all processes
    std::vector<detail::window_entry> entries; // by process, as this one addresses its memory
    std::uint32_t slot() const { return detail::slot_of_window(id); }
};

} // namespace dcuda
