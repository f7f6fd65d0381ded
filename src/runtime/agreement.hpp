// SPDX-License-Identifier: BSD-3-Clause
// What the processes of a job agree on before each run.
#pragma once

#include "bootstrap/control.hpp"
#include "dcuda/host.hpp"
#include "device/settings.hpp"

namespace dcuda {

// The number of ranks per device for this kernel, the same on all processes, or the same error on all. `with_network`:
// the network's delivery kernel runs beside it.
int agree_on_ranks(bootstrap::control& control, const settings& chosen, bool with_network, const void* kernel,
                   const launch_config& config);

} // namespace dcuda
