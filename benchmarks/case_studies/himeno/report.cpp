// SPDX-License-Identifier: BSD-3-Clause
#include "report.hpp"

#include <numeric>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/wording.hpp"

namespace himeno {

namespace {

// Of a run: by the official figure, or of all points that are computed.
double million_operations(const options& chosen, double points) {
    return 1e-6 * operations_of_point * points * chosen.steps;
}

double mflops(const report& about, const options& chosen, double points) {
    const double seconds = common::seconds_per_run(about.milliseconds).median;
    return seconds > 0.0 ? million_operations(chosen, points) / seconds : 0.0;
}

struct energy_figures {
    double joules_per_device; // in all runs
    double mflop_per_joule;   // by the official count
};

// Nothing if there is no counter, if it has not moved, or if it moved a few times only: it does so every 100 ms.
std::optional<energy_figures> find_energy_figures(const report& about, const options& chosen) {
    constexpr double enough_milliseconds = 1000.0;
    const double joules = about.energy.devices().value_or(0.0);
    const double milliseconds = std::accumulate(about.milliseconds.begin(), about.milliseconds.end(), 0.0);
    if (joules <= 0.0 || milliseconds < enough_milliseconds) return {};
    const double all_runs = million_operations(chosen, chosen.whole.counted_points()) * chosen.repeat;
    return energy_figures{joules / about.devices, all_runs / joules};
}

} // namespace

std::string in_words(const report& about, const options& chosen) {
    const grid& whole = chosen.whole;
    const auto [plane_parts, row_parts] = about.grid_of_devices;
    const std::string cut = row_parts > 1 ? fmt::format(", {}x{}", plane_parts, row_parts) : "";
    std::string text = fmt::format("himeno: {} x {} x {} points, {}, {}\non {}{} ({} backend), ", whole.ni, whole.nj,
                                   whole.nk, common::counted(chosen.steps, "step"),
                                   chosen.is_fused ? "fused multiply-add" : "every product rounded",
                                   common::counted(about.devices, "device"), cut, about.backend);
    if (chosen.control == "rank")
        text += fmt::format("by {} of {} each\n", common::counted(about.ranks_per_device, "rank"),
                            common::counted(about.threads, "thread"));
    else
        text += fmt::format("by short kernels, control: {} ({})\n", chosen.control, about.communication);
    if (chosen.steps > 0)
        text +=
            fmt::format("{}\n{:.0f} MFLOPS by the official count, {:.0f} with all points\n",
                        common::times_in_words(about.milliseconds, chosen.steps, "step"),
                        mflops(about, chosen, whole.counted_points()), mflops(about, chosen, whole.computed_points()));
    if (const auto figures = find_energy_figures(about, chosen))
        text += fmt::format("{:.3g} J per device in {}, {:.4g} MFLOP per joule\n", figures->joules_per_device,
                            common::counted(chosen.repeat, "run"), figures->mflop_per_joule);
    text += fmt::format("{:.3g} s of the processor's time on process 0\n", about.processor_seconds);
    if (about.is_verified)
        text += about.is_equal ? "verified: pressure, sum and CRC equal the serial reference to the last bit\n"
                               : "WRONG: the result differs from the serial reference\n";
    return text +
           fmt::format("gosa {:.9e} sum {:.12e} crc {:08x}\n", about.found.gosa, about.found.sum, about.found.crc);
}

std::string as_json(const report& about, const options& chosen) {
    nlohmann::ordered_json json{{"size", {chosen.whole.ni, chosen.whole.nj, chosen.whole.nk}},
                                {"steps", chosen.steps},
                                {"control", chosen.control},
                                {"communication", about.communication},
                                {"processor_seconds", about.processor_seconds},
                                {"joules", about.energy.as_json()},
                                {"fused", chosen.is_fused},
                                {"backend", about.backend},
                                {"devices", about.devices},
                                {"grid", {about.grid_of_devices.plane_parts, about.grid_of_devices.row_parts}},
                                {"ranks_per_device", about.ranks_per_device},
                                {"threads", about.threads},
                                {"gosa", about.found.gosa},
                                {"sum", about.found.sum},
                                {"crc", fmt::format("{:08x}", about.found.crc)}};
    if (chosen.steps > 0) {
        json["time_per_step_us"] = common::times_as_json(about.milliseconds, chosen.steps);
        json["mflops"] = mflops(about, chosen, chosen.whole.counted_points());
    }
    if (const auto figures = find_energy_figures(about, chosen)) {
        json["joules_per_device"] = figures->joules_per_device;
        json["mflop_per_joule"] = figures->mflop_per_joule;
    }
    if (about.is_verified) json["verification"] = {{"equal", about.is_equal}};
    return json.dump(2) + "\n";
}

} // namespace himeno
