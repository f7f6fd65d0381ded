// SPDX-License-Identifier: BSD-3-Clause
#include "report.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/times.hpp"
#include "common/wording.hpp"
#include "dcuda/config.hpp"

namespace stencil {

using common::counted;
using common::duration;
using common::grouped;

namespace {

bool exchanges_known(const report& about) {
    return !about.exchange_milliseconds.empty() && about.exchange_milliseconds.front() > 0.0;
}

// What the models to compare with send is a plane in one message. With --fused they send two rows in one, and so do
// ranks with fields in shared memory, where rows lie together.
traffic traffic_of_model(const report& about, const options& chosen) {
    const bool is_dcuda = chosen.model == "dcuda";
    const bool together = chosen.fused && (is_dcuda ? about.on_chip : about.ranks.level_parts == 1);
    return traffic_per_iteration(about.whole, about.ranks, is_dcuda ? chosen.message_kind : message::plane,
                                 together ? 2 : 1);
}

// Who computes what, and what is sent.
std::string division_in_words(const report& about, const options& chosen) {
    const int most = about.ranks.rows_of(0).count();
    const std::string devices =
        fmt::format("{} ({} backend)", counted(about.ranks.rows.devices, "device"), about.backend);
    std::string ranks =
        fmt::format("{} of {} each, at most {} per rank", counted(about.ranks.ranks_per_device(), "rank"),
                    counted(about.threads, "thread"), counted(most, "row"));
    if (about.ranks.level_parts > 1) ranks += " of " + counted(about.ranks.levels_of(0).count(), "level");
    if (about.band_rows < most) ranks += ", in bands of " + counted(about.band_rows, "row");
    if (about.on_chip) ranks += ", fields in shared memory";
    const traffic moved = traffic_of_model(about, chosen);
    const std::string between_devices =
        fmt::format("{} of them between devices, {} B", grouped(static_cast<std::size_t>(moved.puts_between_devices)),
                    grouped(static_cast<std::size_t>(moved.bytes_between_devices)));
    if (chosen.model == "dcuda")
        return fmt::format("on {} with {}\nin one iteration {} notified puts, one per {}{}; {}\n", devices, ranks,
                           grouped(static_cast<std::size_t>(moved.puts)), to_string(chosen.message_kind),
                           chosen.message_kind == message::plane && about.ranks.level_parts > 1 ? "'s part" : "",
                           between_devices);
    std::string text = fmt::format("model {}: {}\n", chosen.model, about.carrier);
    if (chosen.has_ranks())
        text += fmt::format("on {} with {}\n", devices, ranks);
    else
        text += fmt::format("on {}, {} of {} per block; an iteration is {}\n", devices, counted(most, "row"),
                            counted(about.threads, "thread"), chosen.fused ? "one kernel" : "three kernels");
    text += fmt::format("in one iteration {}, {} B\n",
                        counted(static_cast<int>(moved.puts_between_devices), "message") + " between devices",
                        grouped(static_cast<std::size_t>(moved.bytes_between_devices)));
    return text;
}

std::string verdict_in_words(const report& about) {
    const verdict& v = *about.verified;
    if (v.worst.equal())
        return fmt::format(
            "verified: all {} values equal the serial reference to the last bit (it took {} on one core)\n",
            grouped(about.whole.points()), duration(v.reference_seconds));
    const std::size_t plane = about.whole.plane();
    const auto nx = static_cast<std::size_t>(about.whole.nx);
    return fmt::format("WRONG: {} of {} values differ from the serial reference, by up to {:.3g}; the first at x = {}, "
                       "y = {}, level {}\n",
                       grouped(v.worst.differing), grouped(about.whole.points()), v.worst.largest, v.worst.first % nx,
                       v.worst.first / plane, v.worst.first % plane / nx);
}

} // namespace

values survey(const field& before, const field& after) {
    values result;
    const auto [low, high] = std::minmax_element(before.values().begin(), before.values().end());
    const auto [after_low, after_high] = std::minmax_element(after.values().begin(), after.values().end());
    result.before_low = *low;
    result.before_high = *high;
    result.after_low = *after_low;
    result.after_high = *after_high;
    for (std::size_t i = 0; i < before.values().size(); ++i)
        result.largest_change = std::max(result.largest_change, std::abs(after.values()[i] - before.values()[i]));
    return result;
}

traffic traffic_per_iteration(const grid& whole, const division& ranks, message kind, int rows_together) {
    // Across each border between two ranks go lap one way, fy the other, and the field both ways; or two rows of the
    // field both ways.
    constexpr long planes_per_border = 4;
    traffic result;
    for (int rank = 0; rank < ranks.ranks(); ++rank) {
        const range own = ranks.rows_of(rank);
        const int next = own.empty() ? -1 : ranks.beside(rank, own.last);
        if (next < 0) continue;
        const int levels = ranks.levels_of(rank).count();
        const int pieces = kind == message::level ? levels : 1;
        const long puts = pieces == 1 ? planes_per_border / rows_together : planes_per_border * pieces;
        result.puts += puts;
        if (ranks.device_of(next) == ranks.device_of(rank)) continue;
        result.puts_between_devices += puts;
        result.bytes_between_devices += planes_per_border * static_cast<long long>(sizeof(double)) * levels * whole.nx;
    }
    return result;
}

std::string in_words(const report& about, const options& chosen) {
    const grid& g = about.whole;
    const std::string subject = chosen.input.empty() ? "the smooth test field" : chosen.input;
    std::string text = fmt::format("stencil: diffused {}, {} x {} points on {}, {} with coefficient {}{}\n", subject,
                                   g.nx, g.ny, counted(g.nz, "level"), counted(chosen.iterations, "iteration"),
                                   chosen.coefficient, chosen.fused ? ", all three stencils at once" : "");
    text += division_in_words(about, chosen);

    text += common::times_in_words(about.milliseconds, chosen.iterations, "iteration") + '\n';
    if (exchanges_known(about))
        text += fmt::format(
            "exchanges alone: {} per iteration\n",
            duration(common::seconds_per_run(about.exchange_milliseconds).median / std::max(1, chosen.iterations)));

    if (about.verified) text += verdict_in_words(about);
    if (about.surveyed) {
        const values& v = *about.surveyed;
        text +=
            fmt::format("values: {:.5g} to {:.5g} before, {:.5g} to {:.5g} after; no point moved more than {:.4g}\n",
                        v.before_low, v.before_high, v.after_low, v.after_high, v.largest_change);
    }
    if (!chosen.output.empty()) text += fmt::format("map:     {}\n", chosen.output);
    if (!chosen.png.empty()) text += fmt::format("picture: {}\n", chosen.png);
    return text;
}

std::string as_json(const report& about, const options& chosen) {
    const traffic moved = traffic_of_model(about, chosen);
    nlohmann::ordered_json json = {
        {"program", "stencil"},
        {"version", DCUDA_VERSION_STRING},
        {"backend", about.backend},
        {"model", chosen.model},
        {"fused", chosen.fused},
        {"input", chosen.input.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(chosen.input)},
        {"nx", about.whole.nx},
        {"ny", about.whole.ny},
        {"nz", about.whole.nz},
        {"iterations", chosen.iterations},
        {"coefficient", chosen.coefficient},
        {"devices", about.ranks.rows.devices},
        {"ranks_per_device", about.ranks.ranks_per_device()},
        {"ranks", about.ranks.ranks()},
        {"level_parts", about.ranks.level_parts},
        {"threads_per_rank", about.threads},
        {"message", to_string(chosen.message_kind)},
        {"band_rows", std::min(about.band_rows, about.ranks.rows_of(0).count())},
        {"fields", to_string(about.on_chip ? place::shared : place::device)},
        {"field_bytes", about.whole.points() * sizeof(double)},
        {"puts_per_iteration", moved.puts},
        {"puts_between_devices_per_iteration", moved.puts_between_devices},
        {"bytes_between_devices_per_iteration", moved.bytes_between_devices},
        {"repeat", about.milliseconds.size()},
        {"time_per_iteration_us", common::times_as_json(about.milliseconds, chosen.iterations)},
        {"joules", about.energy.as_json()},
        {"verification", nullptr},
    };
    if (chosen.model != "dcuda") {
        json["carrier"] = about.carrier;
        json["message"] = "plane";
    }
    if (exchanges_known(about))
        json["exchanges_alone_per_iteration_us"] =
            1e6 * common::seconds_per_run(about.exchange_milliseconds).median / std::max(1, chosen.iterations);
    if (about.verified)
        json["verification"] = {{"equal", about.verified->worst.equal()},
                                {"differing_points", about.verified->worst.differing},
                                {"largest_difference", about.verified->worst.largest},
                                {"reference_ms", about.verified->reference_seconds * 1e3}};
    return json.dump(2) + "\n";
}

} // namespace stencil
