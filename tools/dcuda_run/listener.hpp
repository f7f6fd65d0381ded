// SPDX-License-Identifier: BSD-3-Clause
// The socket by which the processes of the other hosts find process 0.
#pragma once

#include "io.hpp"

#include <string>

namespace launch {

struct listener {
    unique_fd socket;
    std::string address; // address:port or [address]:port
};

// Listens on the one address by which other hosts reach this one, which the user calls `host`: that of `interface` (its
// name or an address) if given; else that which `host` means here; else that by which ssh came; else the only one.
listener listen_for_others(const std::string& host, const std::string& interface);

} // namespace launch
