// SPDX-License-Identifier: BSD-3-Clause
// Which processes' devices this one reaches directly, and which over a network only.
#pragma once

#include "bootstrap/control.hpp"
#include "bootstrap/job.hpp"
#include "device/settings.hpp"

#include <vector>

namespace dcuda {

struct device_paths {
    std::vector<bool> is_remote; // by process: reached over a network only
    std::vector<bool> is_near;   // by process: another one of this host
    bool needs_network = false;  // some pair of processes of the job is reached over a network only
    int node_count = 1, node_index = 0;
};

// Every pair of processes needs a path between their devices: peer access, or else the network. Collective over the
// processes. `devices`: that this process sees.
device_paths find_device_paths(bootstrap::control& control, const bootstrap::job& job, const settings& chosen,
                               int devices);

} // namespace dcuda
