// SPDX-License-Identifier: BSD-3-Clause
#include "energy/run_energy.hpp"

#include <nlohmann/json.hpp>

namespace dcuda {

void add_energy(run_energy& sum, const run_energy& of_run, bool is_first) {
    const auto add_one = [&](std::optional<double>& total, std::string& problem, const std::optional<double>& joules,
                             const std::string& why) {
        if (is_first) total = 0;
        total = total && joules ? std::optional(*total + *joules) : std::nullopt;
        if (!joules) problem = why;
    };
    add_one(sum.device, sum.device_problem, of_run.device, of_run.device_problem);
    add_one(sum.cpu, sum.cpu_problem, of_run.cpu, of_run.cpu_problem);
}

nlohmann::ordered_json energy_in_json(const run_energy& joules) {
    nlohmann::ordered_json result = {{"device", nullptr}, {"cpu", nullptr}};
    if (joules.device)
        result["device"] = *joules.device;
    else
        result["device_problem"] = joules.device_problem;
    if (joules.cpu)
        result["cpu"] = *joules.cpu;
    else
        result["cpu_problem"] = joules.cpu_problem;
    return result;
}

} // namespace dcuda
