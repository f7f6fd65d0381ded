// SPDX-License-Identifier: BSD-3-Clause
// What is done with joules that have been measured: they are sent, added up and told.
#pragma once

#include "dcuda/energy.hpp"
#include "support/wire.hpp"

#include <nlohmann/json_fwd.hpp>

namespace dcuda {

// Of one process: its device and its host.
inline void put_energy(support::wire_writer& message, const run_energy& joules) {
    message.put(joules.device.value_or(-1));
    message.put(std::string_view(joules.device_problem));
    message.put(joules.cpu.value_or(-1));
    message.put(std::string_view(joules.cpu_problem));
}

inline run_energy get_energy(support::wire_reader& message) {
    run_energy result;
    if (const auto joules = message.get<double>(); joules >= 0) result.device = joules;
    result.device_problem = message.get_text();
    if (const auto joules = message.get<double>(); joules >= 0) result.cpu = joules;
    result.cpu_problem = message.get_text();
    return result;
}

// Adds a run of a process to the sum of those before it. What is not known of one run is not known of all.
void add_energy(run_energy& sum, const run_energy& of_run, bool is_first);

// `cpu` is of the process's host, and the same for all processes there.
nlohmann::ordered_json energy_in_json(const run_energy& joules);

} // namespace dcuda
