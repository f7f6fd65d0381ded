// SPDX-License-Identifier: BSD-3-Clause
#include "options.hpp"

#include <map>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace stencil {

namespace {

// Returned as text: CLI11 shows it with the option's name.
std::string check_coefficient(const std::string& text) {
    double value = 0.0;
    if (CLI::detail::lexical_cast(text, value) && value >= 0.0 && value <= 1.0 / 32.0) return {};
    return fmt::format("{} is not within 0 to 1/32 = 0.03125, where the scheme is stable", text);
}

void declare(CLI::App& app, options& chosen) {
    CLI::Range at_least_one(1, 1 << 30);
    at_least_one.description(""); // it is said with the option's name when it matters
    auto* input = app.add_option("--input", chosen.input, "diffuse this PGM map instead of the smooth test field");
    app.add_option("--nx", chosen.nx, "points in x")->check(at_least_one)->excludes(input)->capture_default_str();
    app.add_option("--ny", chosen.ny, "points in y on each device")
        ->check(at_least_one)
        ->excludes(input)
        ->capture_default_str();
    app.add_option("--nz", chosen.nz, "levels (default: 26; with --input 1, else that many copies of the map)")
        ->check(at_least_one);
    app.add_option(
           "--model", chosen.model,
           "what runs the iterations: dcuda; to compare with: plain, plain-graph (one device, no library), mpi, "
           "nccl, nccl-graph, host (dCUDA's transports, called by the host), stream, stream-graph (dCUDA's "
           "puts in stream order), nvshmem")
        ->check(CLI::IsMember({"dcuda", "plain", "plain-graph", "mpi", "nccl", "nccl-graph", "host", "stream",
                               "stream-graph", "nvshmem"})
                    .description(""))
        ->capture_default_str();
    auto* fused =
        app.add_flag("--fused", chosen.fused, "all three stencils at once, and one exchange of two rows per iteration");
    app.add_option("--rows-per-thread", chosen.rows_per_thread, "of the fused kernel that the host launches: 1, 2 or 4")
        ->check(CLI::IsMember({1, 2, 4}).description(""))
        ->capture_default_str();
    app.add_flag("--stores", chosen.stores, "model nvshmem: store border rows into the other device, then signal");
    app.add_option("--iterations", chosen.iterations, "iterations")
        ->check(CLI::Range(0, 1 << 30).description(""))
        ->capture_default_str();
    app.add_option("--coefficient", chosen.coefficient, "diffusion coefficient, at most 1/32")
        ->check(check_coefficient)
        ->capture_default_str();
    app.add_option("--message", chosen.message_kind, "what one put of dCUDA carries of a border plane: level or plane")
        ->transform(CLI::CheckedTransformer(
            std::map<std::string, message>{{"level", message::level}, {"plane", message::plane}}))
        ->option_text("level|plane=level");
    common::add_place_option(
        app, "--fields", chosen.fields,
        "where ranks of dCUDA keep their fields while they iterate: in shared memory or in device memory "
        "(default: on a GPU in shared memory if they fit)");
    app.add_option("--level-parts", chosen.level_parts,
                   "ranks that share rows, each with a part of the levels (default: 1; on a GPU a rank for each level, "
                   "unless --ranks says how many there are)")
        ->check(at_least_one);
    app.add_option(
           "--band-rows", chosen.band_rows,
           "rows that a rank of dCUDA takes through all three steps before the next, with fields in device "
           "memory (default: all; on a GPU, if its L2 cache does not hold the fields, as many as it is good for)")
        ->check(at_least_one)
        ->excludes(fused);
    common::add_run_options(app, chosen, "rows, or rows times --level-parts");
    app.add_option("--output", chosen.output, "write level 0 of the result as a 16-bit PGM map");
    app.add_option("--png", chosen.png, "write a picture: before, after and the change");
}

} // namespace

const char* to_string(message kind) { return kind == message::level ? "level" : "plane"; }

command_line parse_command_line(int argc, char** argv) {
    options chosen;
    CLI::App app("Horizontal diffusion of a 3-D field, or of a map, in one long-running kernel per device.\n"
                 "Start one process per device: dcuda-run -n 4 stencil --verify",
                 "stencil");
    declare(app, chosen);
    command_line result = common::parse(app, argc, argv, chosen);
    if (!result.chosen) return result;
    options& taken = *result.chosen;
    const auto refuse = [&](const char* option, const char* models) {
        return common::refused<options>(common::only_for(option, models, chosen.model));
    };
    if (taken.stores && taken.model != "nvshmem") return refuse("--stores", "nvshmem");
    if (app.count("--message") > 0 && taken.model != "dcuda") return refuse("--message", "dcuda");
    if (app.count("--fields") > 0 && taken.model != "dcuda") return refuse("--fields", "dcuda");
    if (app.count("--band-rows") > 0 && taken.model != "dcuda") return refuse("--band-rows", "dcuda");
    if (taken.band_rows > 0) {
        if (taken.fields == place::shared)
            return common::refused<options>("--band-rows is for fields in device memory\n");
        taken.fields = place::device;
    }
    if (taken.nz == 0) taken.nz = taken.input.empty() ? 26 : 1;
    return result;
}

} // namespace stencil
