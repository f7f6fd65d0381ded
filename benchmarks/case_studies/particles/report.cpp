// SPDX-License-Identifier: BSD-3-Clause
#include "report.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/times.hpp"
#include "common/wording.hpp"
#include "dcuda/config.hpp"

namespace particles {

using common::counted;
using common::duration;
using common::grouped;

namespace {

// Steps of particles, and pairs that a force acted on, in each second.
struct rates {
    double particles = 0.0;
    double pairs = 0.0;
};
rates rates_of(const report& about, const options& chosen, double seconds) {
    if (!(seconds > 0.0)) return {};
    return {static_cast<double>(about.whole.particles) * chosen.steps / seconds,
            static_cast<double>(about.counted.pairs) / seconds};
}

bool exchanges_known(const report& about) {
    return !about.exchange_milliseconds.empty() && about.exchange_milliseconds.front() > 0.0;
}
double seconds_of_exchanges(const report& about, const options& chosen) { // in a step
    return common::seconds_per_run(about.exchange_milliseconds).median / std::max(1, chosen.steps);
}

std::string verdict_in_words(const report& about) {
    const verdict& v = *about.verified;
    if (v.worst.equal())
        return fmt::format(
            "verified: all {} particles equal the serial reference to the last bit (it took {} on one core)\n",
            grouped(about.whole.particles), duration(v.reference_seconds));
    return fmt::format("WRONG: {} of {} particles differ from the serial reference, by up to {:.3g}; the first is "
                       "number {}\n",
                       grouped(v.worst.differing), grouped(about.whole.particles), v.worst.largest, v.worst.first);
}

} // namespace

double momentum_error(const totals& seen) {
    return std::max(std::abs(seen.after.momentum.x + seen.walls.x - seen.before.momentum.x),
                    std::abs(seen.after.momentum.y + seen.walls.y - seen.before.momentum.y));
}

double momentum_tolerance(const totals& seen, int steps) {
    // Every particle's speed is rounded a few times in a step. Speeds are as the energy says.
    const auto count = static_cast<double>(seen.particles);
    const double speeds = count + std::sqrt(2.0 * count * std::abs(seen.after.energy) / mass);
    return 16.0 * std::numeric_limits<double>::epsilon() * mass * speeds * (steps + 1.0);
}

std::string violated_conservation(const totals& seen, const domain& whole, int steps) {
    if (seen.particles != whole.particles)
        return fmt::format("{} particles at the start, but {} at the end", whole.particles, seen.particles);
    const double error = momentum_error(seen), tolerance = momentum_tolerance(seen, steps);
    if (!(error <= tolerance))
        return fmt::format("momentum, with that of the walls, changed by {:.3g}, more than rounding explains ({:.3g})",
                           error, tolerance);
    return {};
}

traffic traffic_per_step(const partition& parts, const std::string& model) {
    // Across each border between two ranks go a list and a block, both ways; of models to compare with one message.
    const long puts_per_border = model == "dcuda" ? 4 : 2;
    traffic result;
    for (int rank = 0; rank + 1 < parts.devices * parts.ranks_per_device; ++rank) {
        result.puts += puts_per_border;
        if ((rank + 1) % parts.ranks_per_device == 0) result.puts_between_devices += puts_per_border;
    }
    return result;
}

std::string in_words(const report& about, const options& chosen) {
    const domain& d = about.whole;
    const totals& t = about.counted;
    std::string text = fmt::format("particles: moved {} particles in {} x {}, {} of {}\n", grouped(d.particles),
                                   d.columns, d.segments, counted(chosen.steps, "step"), chosen.time_step);
    const std::string devices = fmt::format("{} ({} backend)", counted(about.parts.devices, "device"), about.backend);
    const traffic moved = traffic_per_step(about.parts, chosen.model);
    if (chosen.model == "dcuda")
        text += fmt::format("on {} with {} of {} each, at most {} per rank{}\n"
                            "in one step {} notified puts, {} of them between devices",
                            devices, counted(about.parts.ranks_per_device, "rank"), counted(about.threads, "thread"),
                            counted(about.most_parts, about.on_chip ? "cell" : "segment"),
                            about.on_chip ? ", its particles in shared memory" : "", grouped(moved.puts),
                            grouped(moved.puts_between_devices));
    else
        text +=
            fmt::format("model {}: {}\non {}, at most {} of each, {} per block\n"
                        "in one step {} between devices, each of {} B",
                        chosen.model, about.carrier, devices, counted(about.parts.of_device(0).count(), "segment"),
                        counted(about.threads, "thread"),
                        counted(static_cast<int>(moved.puts_between_devices), "message"), grouped(about.message_bytes));
    text += fmt::format("; at most {} particles in a {}, which has room for {}\n", t.fullest,
                        about.on_chip ? "rank" : "segment", about.capacity);

    text += common::times_in_words(about.milliseconds, chosen.steps, "step");
    const rates speed = rates_of(about, chosen, common::seconds_per_run(about.milliseconds).median);
    text += fmt::format("; in a second {:.4g} million particles and {:.4g} million pairs\n", speed.particles * 1e-6,
                        speed.pairs * 1e-6);
    if (exchanges_known(about))
        text += fmt::format("exchanges alone: {} per step\n", duration(seconds_of_exchanges(about, chosen)));

    text += fmt::format("conserved: the number of particles; momentum, with that of the walls, to {:.2g}\n",
                        momentum_error(t));
    text += fmt::format("energy: {:.6g} before, {:.6g} after\n", t.before.energy, t.after.energy);
    if (about.verified) text += verdict_in_words(about);
    return text;
}

std::string as_json(const report& about, const options& chosen) {
    const rates speed = rates_of(about, chosen, common::seconds_per_run(about.milliseconds).median);
    const traffic moved = traffic_per_step(about.parts, chosen.model);
    const totals& t = about.counted;
    nlohmann::ordered_json json = {
        {"program", "particles"},
        {"version", DCUDA_VERSION_STRING},
        {"backend", about.backend},
        {"model", chosen.model},
        {"width", about.whole.columns},
        {"height", about.whole.segments},
        {"particles", about.whole.particles},
        {"steps", chosen.steps},
        {"time_step", chosen.time_step},
        {"seed", chosen.seed},
        {"memory", to_string(about.on_chip ? place::shared : place::device)},
        {about.on_chip ? "capacity_of_rank" : "capacity", about.capacity},
        {about.on_chip ? "fullest_rank" : "fullest_segment", t.fullest},
        {"devices", about.parts.devices},
        {"ranks_per_device", about.parts.ranks_per_device},
        {"ranks", about.parts.devices * about.parts.ranks_per_device},
        {"threads_per_rank", about.threads},
        {"puts_per_step", moved.puts},
        {"puts_between_devices_per_step", moved.puts_between_devices},
        {"pairs", t.pairs},
        {"repeat", about.milliseconds.size()},
        {"time_per_step_us", common::times_as_json(about.milliseconds, chosen.steps)},
        {"joules", about.energy.as_json()},
        {"particles_per_second", speed.particles},
        {"pairs_per_second", speed.pairs},
        {"momentum_error", momentum_error(t)},
        {"momentum_tolerance", momentum_tolerance(t, chosen.steps)},
        {"energy_before", t.before.energy},
        {"energy_after", t.after.energy},
        {"verification", nullptr},
    };
    if (chosen.model != "dcuda") {
        json["carrier"] = about.carrier;
        json["message_bytes"] = about.message_bytes;
    }
    if (exchanges_known(about)) json["exchanges_alone_per_step_us"] = 1e6 * seconds_of_exchanges(about, chosen);
    if (about.verified)
        json["verification"] = {{"equal", about.verified->worst.equal()},
                                {"differing_particles", about.verified->worst.differing},
                                {"largest_difference", about.verified->worst.largest},
                                {"reference_ms", about.verified->reference_seconds * 1e3}};
    return json.dump(2) + "\n";
}

} // namespace particles
