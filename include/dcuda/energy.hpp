// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a run costs in joules: the result of runtime::energy. Programs that ask for it include this header themselves.
#pragma once

#include <optional>
#include <string>

namespace dcuda {

/// The energy of a run, in joules, as the machine's own counters have it. What is empty is not known; the text beside
/// it says why, and how to get it. Counters are read before and after the kernel, and what else uses the device or the
/// processors counts as well. NVIDIA's counter advances in steps of some 100 ms, so only runs of seconds tell
/// something.
struct run_energy {
    std::optional<double> device;      ///< of this process's device
    std::string device_problem;        ///< why it is not known
    std::optional<double> cpu;         ///< of all processors of this host
    std::string cpu_problem;           ///< why it is not known
    std::optional<double> all_devices, ///< of the job
        all_cpus;                      ///< of the job; each host counts once
};

} // namespace dcuda
