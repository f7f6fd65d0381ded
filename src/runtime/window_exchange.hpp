// SPDX-License-Identifier: BSD-3-Clause
// The host's part in create_window over several processes: exchanges what the ranks offer and maps it.
#pragma once

#include "bootstrap/control.hpp"
#include "device/device_access.hpp"
#include "device/device_state.hpp"
#include "network/network_path.hpp"
#include "trace/profiler.hpp"

#include <compare>
#include <map>

namespace dcuda {

class window_exchange {
public:
    // `network`: null if all processes map each other's memory. `may_fail`: a window for which there is no slot is a
    // window that is false, and a line on standard error; else it is an error of the run.
    window_exchange(bootstrap::control& control, device_state& state, device_access& link, network_path* network,
                    profiler& profiler, bool may_fail)
        : control_(control), state_(state), link_(link), network_(network), profiler_(profiler), may_fail_(may_fail),
          replies_(static_cast<std::size_t>(state.ranks())) {}

    // The communicator's members on this device have made their exports for the window in this slot, or have no slot
    // for it (max_windows). `rank`: of this device, that asks. A window of the world is opened by complete(), one of
    // another communicator when the last of its processes has posted its exports.
    void begin(std::uint32_t slot, std::uint32_t rank, communicator comm);

    // All processes have begun a window of the world: fills the slot's entries and lets the ranks go on, without a
    // window if one process has no slot and windows may fail. Throws error(out_of_resources) if they may not.
    void complete(const std::vector<bootstrap::blob>& exports);

    // What another process has posted. False: it is not about a window. Throws as complete() does.
    bool receive(int process, const std::string& message);

    // This device has no slot for another window, of so many bytes, that this rank of the device asks for. Throws
    // error(out_of_resources), or says so if windows may fail.
    void report_full(std::uint32_t rank, std::uint64_t bytes) const { report_full(describe_full(rank, bytes)); }

    // Unmaps everything. No kernel may be running.
    void close() { mappings_.close(); }

private:
    struct rank_export;
    struct process_exports;
    // A window that some processes have begun to open.
    struct opening {
        std::uint32_t size = 0;      // ranks of the communicator
        std::uint64_t processes = 0; // bit by process: it has members; 0: this process has not begun
        std::uint32_t slot = 0, rank = 0;
        std::uint64_t begin_ns = 0;
        std::map<int, bootstrap::blob> exports{}; // by process
    };
    // Tells a communicator from all others at a time.
    struct group {
        std::uint32_t number, first_rank; // the world rank of its first member
        auto operator<=>(const group&) const = default;
    };
    struct group_members;

    group_members read_members(std::uint32_t rank, communicator comm);
    std::vector<detail::window_entry> read_exports(const group_members& members);
    process_exports make_exports(const group_members& members, const std::vector<detail::window_entry>& entries) const;
    void post_exports(const group& name, const opening& window, const bootstrap::blob& exports);
    void open_if_complete(const group& name);
    void open(const opening& window);
    std::string describe_full(std::uint32_t rank, std::uint64_t bytes) const;
    void report_full(const std::string& sentence) const;
    void reply(const opening& window, std::uint32_t success);

    bootstrap::control& control_;
    device_state& state_;
    device_access& link_;
    network_path* network_;
    profiler& profiler_;
    bool may_fail_;
    transport::peer_mappings mappings_;
    opening of_world_;
    std::uint64_t windows_ = 0; // of the world, begun; the same on all processes, since create_window is collective
    std::map<group, opening> of_groups_;
    std::vector<std::uint32_t> replies_; // by rank of this device: the last one
};

} // namespace dcuda
