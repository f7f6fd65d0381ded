// SPDX-License-Identifier: BSD-3-Clause
// The energy of the runs of a job: what the runtime calls at the start, during and at the end of each.
#pragma once

#include "bootstrap/control.hpp"
#include "dcuda/energy.hpp"
#include "device/settings.hpp"
#include "energy/energy_meter.hpp"

#include <memory>
#include <string>
#include <vector>

namespace dcuda {

// Used by one thread. Nothing is measured unless the settings ask for it; then all calls are cheap.
class job_energy {
public:
    // The PCI bus id of this process's device; empty: it is none that has a counter.
    job_energy(const settings& chosen, const std::string& bus_id);

    void begin_run(); // right before the kernel starts
    void poll();      // again and again while it runs
    void end_run();   // when it has ended

    // Adds up what all processes have measured. Collective over the processes. `node` is this process's host, of
    // `nodes`.
    void add_up(bootstrap::control& control, int node, int nodes);

    const run_energy& last() const { return last_; }
    const std::vector<power_sample>& power_samples() const; // of the last run; empty: not sampled

private:
    std::unique_ptr<energy_meter> meter_; // null: not asked for
    bool samples_power_;                  // for the timeline
    run_energy last_;
};

} // namespace dcuda
