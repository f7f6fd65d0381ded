// SPDX-License-Identifier: BSD-3-Clause
// The protocol checker (src/checker/) in a job: its memory is device memory of process 0 that all processes map.
#pragma once

#include "bootstrap/control.hpp"
#include "dcuda/detail/protocol/protocol.hpp"
#include "device/host_window.hpp"
#include "device/settings.hpp"
#include "support/cuda.hpp"
#include "transport/peer.hpp"

#include <memory>
#include <vector>

namespace dcuda {

#if DCUDA_BACKEND_CPU

class checker {
public:
    // `maps_all`: every process can map the memory of every other one. Throws error(invalid_argument) if not.
    checker(bootstrap::control& control, const settings& chosen, bool maps_all);
    ~checker();

    // Collective over the processes. No rank may begin before all processes have returned. `windows` exist already.
    detail::check::session* begin_run(int ranks_per_device, const detail::tag_numbers& tags,
                                      const std::vector<host_window>& windows);
    // After the kernel of this process has ended: says what was found, if it has not ended the run.
    void end_run();

private:
    bootstrap::control& control_;
    settings settings_;
    std::unique_ptr<detail::check::session> session_;
    cuda::device_array<std::byte> own_;
    transport::peer_mappings others_;
    std::byte* memory_ = nullptr;
    int ranks_ = 0; // that the memory is for
};

#endif

} // namespace dcuda
