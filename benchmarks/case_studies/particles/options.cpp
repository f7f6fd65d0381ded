// SPDX-License-Identifier: BSD-3-Clause
#include "options.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace particles {

namespace {

// Returned as text: CLI11 shows it with the option's name.
std::string check_time_step(const std::string& text) {
    double value = 0.0;
    if (CLI::detail::lexical_cast(text, value) && value > 0.0 && value * start_speed < cutoff) return {};
    return fmt::format(
        "{} is not above 0 and below {}, where even a particle that nobody pushes moves by the cut-off in "
        "one step",
        text, cutoff / start_speed);
}

void declare(CLI::App& app, options& chosen) {
    CLI::Range at_least_one(1, 1 << 30);
    at_least_one.description(""); // it is said with the option's name when it matters
    app.add_option("--width", chosen.width, "size in x, in cut-offs")->check(at_least_one)->capture_default_str();
    app.add_option("--height", chosen.height, "size in y of each device's part: its segments")
        ->check(at_least_one)
        ->capture_default_str();
    app.add_option("--particles", chosen.particles, "particles of each device at the start")
        ->check(at_least_one)
        ->capture_default_str();
    app.add_option("--steps", chosen.steps, "steps")
        ->check(CLI::Range(0, 1 << 30).description(""))
        ->capture_default_str();
    app.add_option("--time-step", chosen.time_step, "length of a step; no particle may move by a cut-off in one")
        ->check(check_time_step)
        ->capture_default_str();
    app.add_option("--seed", chosen.seed, "of the random start")
        ->check(CLI::Validator(CLI::NonNegativeNumber).description(""))
        ->capture_default_str();
    app.add_option("--capacity", chosen.capacity,
                   fmt::format("particles that a segment has room for (default: the average, a quarter more, in shared "
                               "memory a tenth more, and {})",
                               default_spare_count))
        ->check(at_least_one);
    common::add_place_option(
        app, "--memory", chosen.memory,
        "where ranks of dCUDA keep their particles from step to step: in shared memory or in device memory "
        "(default: shared if they fit)");
    app.add_option(
           "--model", chosen.model,
           "what moves the particles: dcuda; to compare with: plain, plain-graph (one device, no library), mpi, "
           "nccl, nccl-graph, host (dCUDA's transports, called by the host)")
        ->check(CLI::IsMember({"dcuda", "plain", "plain-graph", "mpi", "nccl", "nccl-graph", "host"}).description(""))
        ->capture_default_str();
    common::add_run_options(app, chosen, "segments");
}

} // namespace

command_line parse_command_line(int argc, char** argv) {
    options chosen;
    CLI::App app("Particles with short-range forces, in one long-running kernel per device.\n"
                 "Start one process per device: dcuda-run -n 4 particles --verify",
                 "particles");
    declare(app, chosen);
    command_line result = common::parse(app, argc, argv, chosen);
    if (result.chosen && app.count("--memory") > 0 && chosen.model != "dcuda")
        return common::refused<options>(common::only_for("--memory", "dcuda", chosen.model));
    return result;
}

} // namespace particles
