// SPDX-License-Identifier: BSD-3-Clause
// dcuda-bench mpi: messages between the memories of two devices by MPI, by dCUDA and by NCCL, and a solver that
// exchanges its borders by each of them. ../README.md says what is measured and how.
#include <cstdio>
#include <exception>

#include "common/device_memory.hpp"
#include "common/machine.hpp"
#include "common/record.hpp"
#include "mpi/ways.hpp"

namespace {

using namespace benchmark;

void report(comparison& of) {
    const mpi_options& chosen = of.chosen;
    record results{"dcuda-bench mpi"};
    results.processes = of.all.count();
    results.rows = std::move(of.rows);
    results.clocks_mhz.emplace_back("mpi", clock_mhz());
    results.parameters = {{"window", std::to_string(chosen.window)},
                          {"piece_bytes", std::to_string(chosen.piece_bytes)},
                          {"points", std::to_string(chosen.points)},
                          {"steps", std::to_string(chosen.steps)}};
    for (const auto& plate : of.checksums) results.parameters.push_back(plate);
    const std::string text = chosen.common.csv ? format_csv(results) : format_table(results, chosen.common);
    std::fputs(text.c_str(), stdout);
    if (!chosen.common.csv)
        for (const auto& [name, value] : of.checksums)
            std::printf("%s: %s, by all ways\n", name.c_str(), value.c_str());
    if (!chosen.common.json.empty()) write_record(chosen.common.json, results, chosen.common);
}

int run_program(int argc, char** argv) {
    if (asks_for_help(argc, argv) || arguments::asks_for_version(argc, argv)) {
        std::fputs(parse_mpi_command_line(argc, argv).text.c_str(), stdout);
        return 0;
    }
    dcuda::runtime runtime(argc, argv);
    common::processes all;
    const arguments::command_line<mpi_options> command = parse_mpi_command_line(argc, argv);
    if (!command.chosen) {
        if (all.index() == 0) std::fputs(command.text.c_str(), stderr);
        return command.status;
    }
    int device = 0, multiprocessors = 0;
    check(cudaGetDevice(&device), "no device");
    check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
          "cannot ask for the multiprocessors");
    comparison of{runtime, all, *command.chosen, multiprocessors, {}, {}};
    measure_messages(of);
    if (command.chosen->wants("jacobi")) measure_jacobi(of);
    if (of.first()) report(of);
    return 0;
}

} // namespace

int main(int argc, char** argv) {
    try {
        return run_program(argc, argv);
    } catch (const std::exception& reason) {
        std::fprintf(stderr, "dcuda-bench mpi: %s\n", reason.what());
        return 1;
    }
}
