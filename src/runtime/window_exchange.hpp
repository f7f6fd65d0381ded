// SPDX-License-Identifier: BSD-3-Clause
// The host's part in create_window over several processes: exchanges what the ranks offer and maps it.
#pragma once

#include "bootstrap/control.hpp"
#include "device/device_access.hpp"
#include "device/device_state.hpp"
#include "network/network_path.hpp"

#include <deque>

namespace dcuda {

class window_exchange {
public:
    // `network`: null if all processes map each other's memory.
    window_exchange(bootstrap::control& control, device_state& state, device_access& link, network_path* network)
        : control_(control), state_(state), link_(link), network_(network) {}

    // The ranks of this device have made their exports for the window in this slot, or have no slot for it
    // (max_windows).
    void begin(std::uint32_t slot);

    // All processes have: fills the slot's entries and lets the ranks go on, without a window if one process has no
    // slot.
    void complete(const std::vector<bootstrap::blob>& exports);

    // Says that this device has no slot for another window.
    void report_full() const;

    // Unmaps everything. No kernel may be running.
    void close() { mappings_.close(); }

private:
    void reply(std::uint32_t success);

    bootstrap::control& control_;
    device_state& state_;
    device_access& link_;
    network_path* network_;
    transport::peer_mappings mappings_;
    std::uint32_t slot_ = 0;
    std::uint64_t windows_ = 0; // begun; the same on all processes, since create_window is collective
    std::uint32_t reply_ = 0;
};

} // namespace dcuda
