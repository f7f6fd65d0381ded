// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/device_paths.hpp"

#include "support/cuda.hpp"
#include "support/host.hpp"
#include "support/losses.hpp"
#include "support/wire.hpp"
#include "transport/peer.hpp"

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

namespace dcuda {
namespace {

// A process, for the others.
struct process_place {
    int device;
    int visible_devices;
    int peer_allowed;
    check_mode check;
    long check_seed;
    char bus_id[32];
    char host[128];
};

process_place describe_own_place(const settings& chosen, int devices) {
    process_place own{};
    support::host_identity().copy(own.host, sizeof own.host - 1);
    own.visible_devices = devices;
    own.peer_allowed = chosen.peer_allowed ? 1 : 0;
    own.check = chosen.check;
    own.check_seed = chosen.check_seed;
    own.device = cuda::device_in_use();
#if DCUDA_BACKEND_CUDA
    cuda::check(cudaDeviceGetPCIBusId(own.bus_id, sizeof own.bus_id, own.device), "asking for the device's bus id");
#endif
    return own;
}

// Whether the driver says that the device of a process of this host cannot be mapped.
bool has_no_peer_path(const process_place& own, const process_place& other) {
#if DCUDA_BACKEND_CUDA
    int other_device = -1;
    if (cudaDeviceGetByPCIBusId(&other_device, other.bus_id) != cudaSuccess) {
        cudaGetLastError(); // not visible to this process; opening its memory will tell
        return false;
    }
    return transport::path_between(own.device, other_device) == transport::path::none;
#else
    (void)own, (void)other;
    return false;
#endif
}

// Said by the first process that has another one's device, of that other one.
void warn_of_shared_device(const bootstrap::job& job, int process, const process_place& own,
                           const process_place& other) {
    if (!DCUDA_BACKEND_CUDA || std::string_view(own.bus_id) != other.bus_id || process >= job.index ||
        process % own.visible_devices != 0 || job.index != process + own.visible_devices)
        return;
    support::tell(fmt::format("{} processes share {} devices; their kernels take turns, which is slow", job.local_count,
                              own.visible_devices));
}

// Whether any process says so.
bool is_true_anywhere(bootstrap::control& control, bool here, std::string_view subject) {
    support::wire_writer message;
    message.put(here);
    bool anywhere = false;
    for (const bootstrap::blob& theirs : control.allgather(message.bytes(), subject))
        anywhere = support::wire_reader(theirs).get<bool>() || anywhere;
    return anywhere;
}

} // namespace

device_paths find_device_paths(bootstrap::control& control, const bootstrap::job& job, const settings& chosen,
                               int devices) {
    device_paths paths;
    paths.is_remote.assign(static_cast<std::size_t>(job.count), false);
    paths.is_near.assign(static_cast<std::size_t>(job.count), false);
    if (job.count == 1) return paths;
    const process_place own = describe_own_place(chosen, devices);
    support::wire_writer message;
    message.put(own);
    const auto all = control.allgather(message.bytes(), "finding paths between devices");
    std::vector<std::string> nodes;
    for (int process = 0; process < job.count; ++process) {
        const auto other = support::wire_reader(all[static_cast<std::size_t>(process)]).get<process_place>();
        support::require(other.check == own.check && other.check_seed == own.check_seed, error_code::invalid_argument,
                         "processes {} and {} disagree on DCUDA_CHECK or DCUDA_CHECK_SEED", job.index, process);
        const auto place = std::find(nodes.begin(), nodes.end(), other.host);
        if (process == job.index) paths.node_index = static_cast<int>(place - nodes.begin());
        if (place == nodes.end()) nodes.emplace_back(other.host); // a new one
        if (process == job.index) continue;
        const auto index = static_cast<std::size_t>(process);
        paths.is_near[index] = std::string_view(own.host) == other.host;
        paths.is_remote[index] =
            !paths.is_near[index] || other.peer_allowed == 0 || own.peer_allowed == 0 || has_no_peer_path(own, other);
        if (!paths.is_remote[index]) warn_of_shared_device(job, process, own, other);
    }
    paths.node_count = static_cast<int>(nodes.size());
    const bool has_remote = std::find(paths.is_remote.begin(), paths.is_remote.end(), true) != paths.is_remote.end();
    paths.needs_network = is_true_anywhere(control, has_remote, "looking for processes without peer access");
    return paths;
}

} // namespace dcuda
