// SPDX-License-Identifier: BSD-3-Clause
// The energy of kernels that a program launches by itself, as the runtime measures that of its runs.
#pragma once

#include "bootstrap/control.hpp"
#include "dcuda/energy.hpp"
#include "dcuda/types.hpp"
#include "energy/job_energy.hpp"

namespace common {

class kernel_energy {
public:
    // Collective. Nothing is measured unless it is asked for, here or by DCUDA_ENERGY.
    kernel_energy(bool is_asked_for, const dcuda::rank_info& job);

    void begin() { energy_.begin_run(); }
    // Again and again meanwhile: the processors' counters wrap around after minutes.
    void poll() { energy_.poll(); }
    // Collective.
    void end() {
        energy_.end_run();
        energy_.add_up(control_, node_index_, node_count_);
    }
    // Between the last begin and end.
    const dcuda::run_energy& last() const { return energy_.last(); }

private:
    dcuda::bootstrap::control control_;
    dcuda::job_energy energy_;
    int node_index_, node_count_;
};

} // namespace common
