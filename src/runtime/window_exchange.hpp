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
    // `network`: null if all processes map each other's memory. `may_fail`: a window for which there is no slot is a
    // window that is false, and a line on standard error; else it is an error of the run.
    window_exchange(bootstrap::control& control, device_state& state, device_access& link, network_path* network,
                    bool may_fail)
        : control_(control), state_(state), link_(link), network_(network), may_fail_(may_fail) {}

    // The ranks of this device have made their exports for the window in this slot, or have no slot for it
    // (max_windows). `rank`: of this device, that asks.
    void begin(std::uint32_t slot, std::uint32_t rank);

    // All processes have: fills the slot's entries and lets the ranks go on, without a window if one process has no
    // slot and windows may fail. Throws error(out_of_resources) if they may not.
    void complete(const std::vector<bootstrap::blob>& exports);

    // This device has no slot for another window, of so many bytes, that this rank of the device asks for. Throws
    // error(out_of_resources), or says so if windows may fail.
    void report_full(std::uint32_t rank, std::uint64_t bytes) const { report_full(describe_full(rank, bytes)); }

    // Unmaps everything. No kernel may be running.
    void close() { mappings_.close(); }

private:
    std::string describe_full(std::uint32_t rank, std::uint64_t bytes) const;
    void report_full(const std::string& sentence) const;
    void reply(std::uint32_t success);

    bootstrap::control& control_;
    device_state& state_;
    device_access& link_;
    network_path* network_;
    bool may_fail_;
    transport::peer_mappings mappings_;
    std::uint32_t slot_ = 0;
    std::uint64_t windows_ = 0; // begun; the same on all processes, since create_window is collective
    std::uint32_t reply_ = 0;
};

} // namespace dcuda
