// SPDX-License-Identifier: BSD-3-Clause
// A libnvidia-ml.so.1 of one device, whose counters tests set.
#include <cstring>

namespace {

unsigned long long energy_mj = 0;
unsigned power_mw = 0;
int energy_result = 0, init_result = 0;
int opened = 0;
int device = 0;

} // namespace

extern "C" {

void fake_nvml_set(unsigned long long energy, unsigned power, int result_of_energy, int result_of_init) {
    energy_mj = energy;
    power_mw = power;
    energy_result = result_of_energy;
    init_result = result_of_init;
}
int fake_nvml_opened() { return opened; }

int nvmlInit_v2() {
    if (init_result == 0) ++opened;
    return init_result;
}
int nvmlShutdown() {
    --opened;
    return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** result) {
    *result = &device;
    return std::strcmp(bus_id, "0000:3B:00.0") == 0 ? 0 : 6;
}
int nvmlDeviceGetTotalEnergyConsumption(void*, unsigned long long* result) {
    *result = energy_mj;
    return energy_result;
}
int nvmlDeviceGetPowerUsage(void*, unsigned* result) {
    *result = power_mw;
    return 0;
}
const char* nvmlErrorString(int result) {
    return result == 3 ? "Not Supported" : result == 6 ? "Not Found" : "Unknown Error";
}

} // extern "C"
