// What a runtime was asked for: options of the program, then arguments, then environment variables, then defaults.
#pragma once

#include "dcuda/host.hpp"

#include <chrono>
#include <cstdint>

namespace dcuda {

struct settings {
    int ranks_per_device; // 0: as many as fit
    int tags;
    int max_windows;
    std::chrono::nanoseconds wait_timeout;      // 0: none
    std::chrono::nanoseconds watchdog_interval; // DCUDA_WATCHDOG_INTERVAL, seconds; 0: no watchdog
    std::chrono::nanoseconds abort_grace;       // DCUDA_ABORT_GRACE, seconds: how long a kernel may take to end
    bool peer_allowed;                          // DCUDA_DISABLE_PEER unset or 0
    std::uint32_t counter_start;                // DCUDA_COUNTER_START: what notification counters start from (tests)
};

// Takes --dcuda-... out of argv if there is one. Throws error(invalid_argument).
settings resolve_settings(const options& requested, int* argc, char** argv);

} // namespace dcuda
