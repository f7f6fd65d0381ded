// SPDX-License-Identifier: BSD-3-Clause
#include "common/times.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/wording.hpp"

namespace common {

measure::summary seconds_per_run(const std::vector<double>& milliseconds) {
    std::vector<double> seconds;
    for (const double ms : milliseconds) seconds.push_back(ms * 1e-3);
    return measure::summarise(std::move(seconds));
}

std::string times_in_words(const std::vector<double>& milliseconds, int steps, const char* step) {
    const measure::summary time = seconds_per_run(milliseconds);
    const double count = std::max(1, steps);
    std::string text = fmt::format("time: {}, {} per {}", duration(time.median), duration(time.median / count), step);
    if (milliseconds.size() > 1)
        text += fmt::format(" (median of {} runs; {} {} to {})", milliseconds.size(),
                            time.confident ? "95 % interval" : "range", duration(time.low / count),
                            duration(time.high / count));
    return text;
}

nlohmann::ordered_json times_as_json(const std::vector<double>& milliseconds, int steps) {
    const measure::summary time = seconds_per_run(milliseconds);
    const double to_us = 1e6 / std::max(1, steps);
    nlohmann::ordered_json samples = nlohmann::ordered_json::array();
    for (const double ms : milliseconds) samples.push_back(ms * 1e-3 * to_us);
    return {{"median", time.median * to_us},
            {"low", time.low * to_us},
            {"high", time.high * to_us},
            {"interval", time.confident ? "95 % confidence" : "smallest and largest"},
            {"samples", samples}};
}

void joules::add(const dcuda::run_energy& of_run) {
    const auto add_to = [&](std::optional<double>& sum, const std::optional<double>& more) {
        if (runs_ == 0) sum = 0;
        sum = sum && more ? std::optional(*sum + *more) : std::nullopt;
    };
    add_to(devices_, of_run.all_devices);
    add_to(cpus_, of_run.all_cpus);
    ++runs_;
    const auto why = [](const std::string& here) {
        return here.empty() ? std::string("it is not known to another process") : here;
    };
    if (!of_run.all_devices) devices_problem_ = why(of_run.device_problem);
    if (!of_run.all_cpus) cpus_problem_ = why(of_run.cpu_problem);
}

nlohmann::ordered_json joules::as_json() const {
    if (runs_ == 0) return nullptr;
    nlohmann::ordered_json json = {{"devices", nullptr}, {"cpus", nullptr}};
    if (devices_) json["devices"] = *devices_;
    if (cpus_) json["cpus"] = *cpus_;
    if (!devices_) json["devices_problem"] = devices_problem_;
    if (!cpus_) json["cpus_problem"] = cpus_problem_;
    return json;
}

} // namespace common
