// SPDX-License-Identifier: BSD-3-Clause
// The windows that the host makes: they exist in every run until the host frees them.
#pragma once

#include "bootstrap/control.hpp"
#include "bootstrap/job.hpp"
#include "dcuda/types.hpp"
#include "device/host_window.hpp"
#include "device/settings.hpp"
#include "runtime/device_paths.hpp"
#include "transport/peer.hpp"

#include <memory>
#include <mutex>
#include <vector>

namespace dcuda {

class host_windows {
public:
    // At most `most`. `is_remote`, by process: reached over a network only.
    host_windows(bootstrap::control& control, int most, const std::vector<bool>& is_remote)
        : control_(control), most_(static_cast<std::uint32_t>(most)), is_remote_(is_remote) {}

    // Both are collective over the processes, while no kernel runs; what one process cannot do throws on all of them.
    window create(void* memory, std::size_t bytes, window_kind kind);
    void free(window win);

    // Null: there is no such window.
    const host_window* find(window win) const;

    // For the next run.
    std::vector<host_window> all() const;

    // Whether these bytes of this process's device lie in one of them. Any thread may ask. A window is known here
    // before another process can have it.
    bool holds(std::uint64_t place, std::uint64_t bytes) const;

private:
    struct open_window {
        host_window seen;
        std::unique_ptr<transport::peer_mappings> mappings; // of the other processes' memory
    };

    // With what each process has offered.
    window open(std::uint32_t slot, const std::vector<bootstrap::blob>& messages);

    // The window's memory in this process, which others may put into from now on, or no longer.
    void expose(const detail::window_entry& own);
    void hide(const detail::window_entry& own);

    std::vector<open_window>::const_iterator position_of(window win) const;

    // Highest slot that none of them has: ranks take the lowest. Throws error(out_of_resources).
    std::uint32_t find_slot(std::size_t bytes) const;

    bootstrap::control& control_;
    std::uint32_t most_;
    const std::vector<bool>& is_remote_;
    std::vector<open_window> open_;
    std::uint32_t made_ = 0; // so far
    mutable std::mutex exposed_mutex_;
    std::vector<detail::window_entry> exposed_; // of this process
};

// What a stream port has of its runtime. All of it outlives the port.
struct port_access {
    const settings& chosen;
    const bootstrap::job& job;
    const device_paths& paths;
    const host_windows& windows;
    int device; // the runtime's
};

} // namespace dcuda
