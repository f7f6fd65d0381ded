// SPDX-License-Identifier: BSD-3-Clause
// What a run costs in joules, from the counters of the GPU (NVML) and of the processors (RAPL).
#pragma once

#include "dcuda/energy.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dcuda {

class nvml; // the library, loaded at run time

// Where the counters are. Others than these in tests.
struct energy_sources {
    std::string nvml = "libnvidia-ml.so.1";
    std::string powercap = "/sys/class/powercap"; // DCUDA_POWERCAP
};

struct power_sample {
    std::uint64_t host_ns; // clock_ns() of this host
    double watts;
};

// Never throws: what cannot be read is a problem in the result. Used by one thread.
class energy_meter {
public:
    // The PCI bus id of the device; empty: it is none that has a counter.
    explicit energy_meter(const std::string& bus_id, const energy_sources& from = {});
    ~energy_meter();

    // `power`: whether to sample what the device draws.
    enum class power { not_sampled, sampled };
    void start(power wanted = power::not_sampled);
    // Call it while the run goes on: the processors' counters wrap around after minutes. Reads them every 10 s, and the
    // device's power every 20 ms.
    void poll();
    // This process's device and host, since start().
    run_energy stop();

    // What the device has drawn since start(). Of a long run less often than every 20 ms: at most 65536 samples.
    const std::vector<power_sample>& power_samples() const { return samples_; }

private:
    using clock = std::chrono::steady_clock;
    struct package {
        std::string folder;
        std::uint64_t range_uj; // it counts up to this and then from 0
        std::uint64_t last_uj;
    };
    void read_packages();
    void sample_power(clock::time_point now);

    std::unique_ptr<nvml> nvml_;
    std::string device_problem_;
    std::optional<std::uint64_t> device_start_mj_;
    std::vector<package> packages_;
    std::string no_packages_, cpu_problem_;
    double cpu_joules_ = 0;
    clock::time_point next_read_{};
    std::vector<power_sample> samples_;
    clock::duration sample_interval_{};
    clock::time_point next_sample_ = clock::time_point::max(); // never
};

} // namespace dcuda
