// SPDX-License-Identifier: BSD-3-Clause
#include "common/models/kernel_energy.hpp"

#include "common/device_buffer.hpp"
#include "device/settings.hpp"

namespace common {

namespace {

dcuda::settings settings_for(bool is_asked_for) {
    return dcuda::resolve_settings({.measure_energy = is_asked_for}, nullptr, nullptr);
}

// Of this process's device; empty: it has no counter.
std::string find_bus_id() {
    char bus_id[32] = {};
#if DCUDA_BACKEND_CUDA
    int device = 0;
    check(cudaGetDevice(&device), "asking for the device");
    check(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, device), "asking for the device's bus id");
#endif
    return bus_id;
}

} // namespace

kernel_energy::kernel_energy(bool is_asked_for, const dcuda::rank_info& job)
    : control_(dcuda::bootstrap::detect_job(), "energy"), energy_(settings_for(is_asked_for), find_bus_id()),
      node_index_(job.node_index), node_count_(job.node_count) {}

} // namespace common
