// SPDX-License-Identifier: BSD-3-Clause
// The command line of dcuda-bench.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "case_studies/common/command_line.hpp"
#include "dcuda/config.hpp"

namespace benchmark {

// What is chosen where the user chooses nothing: for a GPU, or for a few cores.
template <class Value>
constexpr Value by_backend(Value gpu, Value cpu) {
    return DCUDA_BACKEND_CUDA ? gpu : cpu;
}

inline const std::vector<std::string> all_subcommands{"latency",   "bandwidth", "barrier", "collectives", "flush",
                                                      "one_sided", "partners",  "overlap", "host",        "waiters",
                                                      "warps",     "messages",  "stream",  "trace"};

// Zero rounds or batches: as the benchmark has it.
struct options {
    std::string subcommand; // one of the above or "all"
    int rounds = 0;         // of a batch
    int batches = 0;        // that are timed, after one to warm up
    bool csv = false;
    std::string json, plot, commit, compare;
    std::vector<std::string> rivals;

    bool wants(const char* name) const { return subcommand == "all" || subcommand == name; }

    struct {
        std::vector<std::size_t> sizes;
        std::vector<int> threads{32, 128, 256};
    } latency;
    struct {
        std::vector<std::size_t> sizes;
        int threads = by_backend(128, 32);
    } bandwidth;
    struct {
        std::vector<int> ranks, world_ranks;
        int threads = 32;
    } barrier;
    struct {
        std::vector<int> ranks, world_ranks;
        int threads = by_backend(128, 32);
        std::size_t column_count = 128;                                 // doubles of a rank: 1 KiB
        std::size_t many_count = by_backend<std::size_t>(63550, 1000);  // of a rank: 64 MiB of 132 ranks
        std::size_t large_count = by_backend<std::size_t>(16384, 1000); // doubles of the one rank of a device
    } collectives;
    struct {
        std::size_t bytes = 1024;
        int threads = by_backend(128, 32);
    } flush;
    struct {
        std::vector<int> partners;
        std::size_t bytes = 64;
        int threads = by_backend(64, 32);
    } partners;
    struct {
        std::vector<std::string> work{"copy", "stream", "newton", "fma"};
        std::vector<int> ranks_per_multiprocessor;
        int threads = by_backend(64, 32);
        std::size_t halo_bytes = 1024;
        std::size_t copy_bytes = by_backend<std::size_t>(16 << 20, 1 << 20); // of a device and step
        std::size_t stream_bytes =
            by_backend<std::size_t>(128 << 20, 4 << 20); // likewise, more than the L2 cache holds
        int newton = by_backend(64 * 2112, 500);         // iterations of a device and step
        int multiply_add = by_backend(320 * 2112, 2000); // likewise
        std::vector<double> amounts;                     // of work, in times of the exchange, beside the amounts above
    } overlap;
    struct {
        int busy = 0; // ranks; 0: one per multiprocessor
        std::vector<int> waiting;
        int threads = by_backend(64, 32);
    } waiters;
    struct {
        std::size_t bytes = 64;
    } messages;
};

using command_line = arguments::command_line<options>;
command_line parse_command_line(int argc, char** argv);
// The same for a rival's program, which has the name of a benchmark, or all, and the options of its record.
command_line parse_rival_command_line(int argc, char** argv, const std::string& program,
                                      const std::string& description);
using arguments::asks_for_help;

} // namespace benchmark
