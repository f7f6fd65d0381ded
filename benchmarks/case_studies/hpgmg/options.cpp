// SPDX-License-Identifier: BSD-3-Clause
#include "options.hpp"

#include <cmath>

#include <CLI/CLI.hpp>

#include "decomposition.hpp"

namespace hpgmg {

namespace {

// For CLI11: what is wrong with an amplitude, or nothing. Dot products have its square.
std::string check_amplitude(const std::string& text) {
    double value = 0.0;
    const bool is_read = CLI::detail::lexical_cast(text, value);
    if (is_read && std::abs(value) >= 1e-100 && std::abs(value) <= 1e100) return {};
    return text + " is not within 1e-100 to 1e100 in magnitude, beyond which squares are no numbers or 0: choose one "
                  "nearer to 1";
}

// Beyond what the solver's kernel can have.
std::string check_few_threads(const std::string& text) {
    int value = 0;
    if (CLI::detail::lexical_cast(text, value) && value <= most_threads) return {};
    return text + " is not a number of threads up to " + std::to_string(most_threads);
}

} // namespace

command_line parse_command_line(int argc, char** argv) {
    options chosen;
    std::string smooths_by = "red-black";
    CLI::App app(
        "HPGMG-FV: full multigrid of fourth order for a Poisson problem with variable coefficients, by ranks of "
        "one\n"
        "long-running kernel per device.\n"
        "Start one process per device: dcuda-run -n 2 hpgmg --log2-box 5 --boxes 8 --verify",
        "hpgmg");
    app.add_option("--log2-box", chosen.log2_box, "boxes have 2^b cells a side, b from 4 to 12")
        ->check(CLI::Range(4, 12).description(""))
        ->option_text("B [5]");
    app.add_option("--boxes", chosen.boxes,
                   "boxes per device; the grid is the largest cube of no more boxes that can be coarsened")
        ->check(CLI::Range(1LL, 1LL << 30).description(""))
        ->capture_default_str();
    app.add_option("--v-cycles", chosen.v_cycles, "V-cycles after the F-cycle")
        ->check(CLI::Range(0, 1000).description(""))
        ->capture_default_str();
    app.add_option("--smoother", smooths_by, "red-black or chebyshev")
        ->check(CLI::IsMember({"red-black", "chebyshev"}).description(""))
        ->capture_default_str();
    app.add_option("--amplitude", chosen.amplitude, "what f is multiplied by, and so the solution")
        ->check(check_amplitude)
        ->capture_default_str();
    app.add_option("--model", chosen.model,
                   "what solves: dcuda; to compare with: plain, plain-graph (one device, no library), mpi, nccl, "
                   "nccl-graph, host (dCUDA's transports, called by the host), stream, stream-graph (dCUDA's puts in "
                   "stream order), fused, fused-graph (kernels that put and wait by themselves)")
        ->check(CLI::IsMember({"dcuda", "plain", "plain-graph", "mpi", "nccl", "nccl-graph", "host", "stream",
                               "stream-graph", "fused", "fused-graph"})
                    .description(""))
        ->capture_default_str();
    app.add_option("--cpu-below", chosen.cpu_below,
                   "levels of one device with fewer cells, and all coarser ones, are computed by the host's processor; "
                   "0: none (default: 10000 for the models host, mpi and nccl, the only ones that can)")
        ->check(CLI::Range(0, 1 << 30).description(""));
    app.add_option("--one-rank-side", chosen.one_rank_side,
                   "of ranks: coarse levels of so many cells a side, and all coarser ones, are one rank's; 4 to 16")
        ->check(CLI::Range(4, side_of_one_device).description(""))
        ->capture_default_str();
    app.add_option("--overlap-from", chosen.overlap_from,
                   "of models whose kernels do not communicate: where a device has so many cells of a level, it "
                   "computes first what others read, and the rest while that travels")
        ->check(CLI::Range(0LL, 1LL << 60).description(""))
        ->capture_default_str();
    app.add_option("--solves", chosen.solves, "solves in a run")
        ->check(CLI::Range(1, 1 << 24).description(""))
        ->capture_default_str();
    app.add_flag("--parts", chosen.tells_parts,
                 "a table of where the time goes, by level and part; measuring takes some");
    common::add_run_options(app, chosen, "bricks of 4^3 cells");
    app.get_option("--threads")
        ->check(check_few_threads)
        ->description("threads of a rank, up to " + std::to_string(most_threads) +
                      " (default: 256 on a GPU, 8 on the CPU backend)");
    command_line result = common::parse(app, argc, argv, chosen);
    if (!result.chosen) return result;
    options& taken = *result.chosen;
    if (smooths_by == "chebyshev") taken.smooths_by = smoother::chebyshev;
    const auto refuse = [&](const char* option, const char* models) {
        return common::refused<options>(common::only_for(option, models, taken.model));
    };
    const bool has_ranks = taken.model == "dcuda";
    const bool is_host_controlled = taken.model == "host" || taken.model == "mpi" || taken.model == "nccl";
    if (taken.tells_parts && !has_ranks) return refuse("--parts", "dcuda");
    if (taken.ranks > 0 && !has_ranks) return refuse("--ranks", "dcuda");
    if (app.count("--one-rank-side") > 0 && !has_ranks) return refuse("--one-rank-side", "dcuda");
    if (taken.threads > 0 && !has_ranks) return refuse("--threads", "dcuda");
    if (app.count("--overlap-from") > 0 && (has_ranks || taken.model.starts_with("fused")))
        return refuse("--overlap-from", "models whose kernels do not communicate");
    if (taken.cpu_below > 0 && !is_host_controlled) return refuse("--cpu-below", "host, mpi and nccl");
    if (app.count("--cpu-below") == 0 && is_host_controlled) taken.cpu_below = 10000;
    return result;
}

} // namespace hpgmg
