// SPDX-License-Identifier: BSD-3-Clause
#include "report.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/wording.hpp"
#include "parts.hpp"

namespace hpgmg {

namespace {

// Unknowns of the finest level by the time of a solve.
double unknowns_per_second(const report& about, const options& chosen) {
    const double seconds = common::seconds_per_run(about.milliseconds).median / chosen.solves;
    return seconds > 0.0 ? about.levels.front().cells() / seconds : 0.0;
}

// Where the time of a solve goes: a line for each level, and one for all.
std::string parts_in_words(const report& about) {
    std::string text = "us of a solve, on the mean rank with cells:\n   cells  ranks";
    for (const char* name : part_names) text += fmt::format(" {:>13}", name);
    text += fmt::format(" {:>13}\n", "all");
    std::vector<double> sums(part_count);
    const auto add_line = [&](const std::string& name, int ranks, const double* parts) {
        text += fmt::format("{:>8} {:>6}", name, ranks);
        double all = 0.0;
        for (int part = 0; part < part_count; ++part) {
            text += fmt::format(" {:>13.1f}", parts[part]);
            all += parts[part];
        }
        text += fmt::format(" {:>13.1f}\n", all);
    };
    for (std::size_t level = 0; level < about.levels.size(); ++level) {
        const double* const parts = about.parts_us.data() + level * part_count;
        add_line(fmt::format("{}^3", about.levels[level].side()), about.ranks_of_levels[level], parts);
        for (int part = 0; part < part_count; ++part) sums[static_cast<std::size_t>(part)] += parts[part];
    }
    add_line("all", about.ranks_of_levels.front(), sums.data());
    return text;
}

bool has_exchanges(const report& about) {
    return !about.exchange_milliseconds.empty() && about.exchange_milliseconds.front() > 0.0;
}

const char* name_of(smoother by) { return by == smoother::chebyshev ? "chebyshev" : "red-black"; }

} // namespace

std::string in_words(const report& about, const options& chosen) {
    const level_shape finest = about.levels.front();
    std::string text = fmt::format("hpgmg: {0} x {0} x {0} cells, {1}, smoother {2}\non {3} ({4} backend)",
                                   finest.side(), common::counted(static_cast<int>(about.levels.size()), "level"),
                                   name_of(chosen.smooths_by), common::counted(about.devices, "device"), about.backend);
    if (chosen.model == "dcuda") {
        text += fmt::format(", by {} of {} each", common::counted(about.ranks_per_device, "rank"),
                            common::counted(about.threads, "thread"));
        if (about.ranks_with_cells < about.ranks_per_device)
            text += fmt::format(", {} with cells", about.ranks_with_cells);
    } else {
        text += fmt::format(", model {}: {}", chosen.model, about.carrier);
    }
    text += fmt::format("\n{}\n{:.4g} unknowns per second\n",
                        common::times_in_words(about.milliseconds, chosen.solves, "solve"),
                        unknowns_per_second(about, chosen));
    if (has_exchanges(about))
        text += fmt::format("exchanges alone, {}\n",
                            common::times_in_words(about.exchange_milliseconds, chosen.solves, "solve"));
    if (!about.parts_us.empty()) text += parts_in_words(about);
    if (about.is_verified)
        text += about.is_equal ? "verified: solution and residuals equal the serial reference to the last bit\n"
                               : "WRONG: the result differs from the serial reference\n";
    for (std::size_t cycle = 0; cycle < about.residuals.size(); ++cycle)
        text += fmt::format("residual after {}: {:.12e}\n",
                            cycle == 0 ? "the F-cycle" : fmt::format("V-cycle {}", cycle), about.residuals[cycle]);
    return text;
}

std::string as_json(const report& about, const options& chosen) {
    nlohmann::ordered_json sides = nlohmann::ordered_json::array();
    for (const level_shape& level : about.levels) sides.push_back(level.side());
    nlohmann::ordered_json json{{"side", about.levels.front().side()},
                                {"box_side", about.levels.front().box_side},
                                {"boxes_per_dimension", about.levels.front().boxes_per_dimension},
                                {"levels", sides},
                                {"model", chosen.model},
                                {"smoother", name_of(chosen.smooths_by)},
                                {"v_cycles", chosen.v_cycles},
                                {"solves", chosen.solves},
                                {"repeat", chosen.repeat},
                                {"joules", about.energy.as_json()},
                                {"backend", about.backend},
                                {"devices", about.devices},
                                {"residuals", about.residuals},
                                {"time_per_solve_us", common::times_as_json(about.milliseconds, chosen.solves)},
                                {"unknowns_per_second", unknowns_per_second(about, chosen)}};
    if (chosen.model == "dcuda") {
        json["ranks_per_device"] = about.ranks_per_device;
        json["ranks_with_cells"] = about.ranks_with_cells;
        json["threads"] = about.threads;
    } else {
        json["carrier"] = about.carrier;
        json["cpu_below"] = chosen.cpu_below;
    }
    if (has_exchanges(about))
        json["exchanges_alone_per_solve_us"] =
            common::seconds_per_run(about.exchange_milliseconds).median / chosen.solves * 1e6;
    for (std::size_t level = 0; level * part_count < about.parts_us.size(); ++level) {
        nlohmann::ordered_json line{{"side", about.levels[level].side()}, {"ranks", about.ranks_of_levels[level]}};
        for (std::size_t part = 0; part < part_count; ++part)
            line[part_names[part]] = about.parts_us[level * part_count + part];
        json["parts_us"].push_back(line);
    }
    if (about.is_verified) json["verification"] = {{"equal", about.is_equal}};
    return json.dump(2) + "\n";
}

} // namespace hpgmg
