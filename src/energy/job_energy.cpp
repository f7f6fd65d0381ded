// SPDX-License-Identifier: BSD-3-Clause
#include "energy/job_energy.hpp"

#include "support/wire.hpp"

#include <algorithm>
#include <numeric>

namespace dcuda {

namespace {

// What processes tell each other of a run; negative: not known.
struct process_energy {
    double device, cpu;
    int node;
};

} // namespace

job_energy::job_energy(const settings& chosen, const std::string& bus_id) : samples_power_(!chosen.trace.empty()) {
    last_.device_problem = last_.cpu_problem = "not measured: set DCUDA_ENERGY=1 or options::measure_energy";
    if (chosen.measure_energy)
        meter_ = std::make_unique<energy_meter>(
            bus_id, energy_sources{.nvml = "libnvidia-ml.so.1", .powercap = chosen.powercap});
}

void job_energy::begin_run() {
    if (meter_) meter_->start(samples_power_ ? energy_meter::power::sampled : energy_meter::power::not_sampled);
}

void job_energy::poll() {
    if (meter_) meter_->poll();
}

void job_energy::end_run() {
    if (meter_) last_ = meter_->stop();
}

void job_energy::add_up(bootstrap::control& control, int node_index, int nodes) {
    support::wire_writer own;
    own.put(process_energy{last_.device.value_or(-1), last_.cpu.value_or(-1), node_index});
    double devices = 0;
    bool devices_known = true;
    std::vector<double> by_node(static_cast<std::size_t>(nodes), -1);
    for (const auto& each : control.allgather(own.bytes(), "ending the run")) {
        const auto measured = support::wire_reader(each).get<process_energy>();
        devices_known = devices_known && measured.device >= 0;
        devices += measured.device;
        double& on_node = by_node.at(static_cast<std::size_t>(measured.node));
        on_node = std::max(on_node, measured.cpu); // its processes have seen the same counters
    }
    last_.all_devices = last_.all_cpus = std::nullopt;
    if (devices_known) last_.all_devices = devices;
    if (*std::min_element(by_node.begin(), by_node.end()) >= 0)
        last_.all_cpus = std::accumulate(by_node.begin(), by_node.end(), 0.0);
}

const std::vector<power_sample>& job_energy::power_samples() const {
    static const std::vector<power_sample> no_samples;
    return meter_ ? meter_->power_samples() : no_samples;
}

} // namespace dcuda
