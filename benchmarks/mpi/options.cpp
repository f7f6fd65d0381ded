// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/options.hpp"

#include <algorithm>

#include <CLI/CLI.hpp>

#include "mpi/ways.hpp"

namespace benchmark {

bool mpi_options::wants(const std::string& measurement) const {
    return std::find(measurements.begin(), measurements.end(), measurement) != measurements.end();
}

arguments::command_line<mpi_options> parse_mpi_command_line(int argc, char** argv) {
    mpi_options chosen;
    for (const way& one : all_ways) chosen.ways.emplace_back(one.name);
    chosen.common.subcommand = "mpi";
    const auto known_measurements = chosen.measurements, known_ways = chosen.ways;
    const CLI::Range at_least_one(1, 1'000'000);
    const CLI::Range bytes(std::size_t{1}, std::size_t{256} << 20);

    CLI::App app("MPI with host and device memory beside dCUDA and NCCL, between the memories of two devices.\n"
                 "Where MPI takes part, its launcher starts it: mpirun -n 2 dcuda-bench mpi",
                 "dcuda-bench mpi");
    app.set_version_flag("--version", "dcuda-bench " DCUDA_VERSION_STRING);
    const auto add = [&](const char* name, auto& value, const char* text) {
        return app.add_option(name, value, text)->capture_default_str();
    };
    const auto add_list = [&](const char* name, auto& values, const char* text) {
        return app.add_option(name, values, text)->delimiter(',')->option_text("NAME,...");
    };
    add_list("--measure", chosen.measurements, "latency, bandwidth, jacobi (default: all)")
        ->check(CLI::IsMember(known_measurements));
    add_list("--ways", chosen.ways, "ways to compare, see below (default: all)")->check(CLI::IsMember(known_ways));
    add_list("--sizes", chosen.sizes, "bytes of a message, up to 256 MiB (default: 1 B to 64 MiB)")
        ->option_text("N,...")
        ->check(bytes);
    add("--window", chosen.window, "messages before an answer (bandwidth)")->check(CLI::Range(1, 4096));
    add("--piece", chosen.piece_bytes, "bytes of a piece (mpi-pipeline)")->check(bytes);
    add("--points", chosen.points, "points of a process along each side (jacobi)")->check(CLI::Range(4, 32768));
    add("--steps", chosen.steps, "steps at most (jacobi)")->check(at_least_one);
    app.add_option("--ranks", chosen.ranks, "ranks of a device (default: by its multiprocessors)")
        ->check(CLI::Range(1, 4096));
    app.add_option("--rounds", chosen.common.rounds, "rounds of a batch (default: by size)")->check(at_least_one);
    app.add_option("--batches", chosen.common.batches, "batches, after one to warm up (default: by measurement)")
        ->check(at_least_one);
    app.add_flag("--csv", chosen.common.csv, "print comma-separated values instead of a table");
    app.add_option("--json", chosen.common.json, "write the results to this file");
    app.add_option("--commit", chosen.common.commit, "commit of the sources, for the record")->envname("DCUDA_COMMIT");
    std::string ways = "Ways:\n";
    for (const way& one : all_ways) ways += "  " + std::string(one.name) + ": " + one.title + "\n";
    app.footer(ways);
    return arguments::parse(app, argc, argv, chosen);
}

} // namespace benchmark
