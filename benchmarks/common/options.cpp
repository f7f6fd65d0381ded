// SPDX-License-Identifier: BSD-3-Clause
#include "common/options.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "dcuda/config.hpp"

namespace benchmark {
namespace {

// Returned as text: CLI11 shows it with the option's name.
std::string check_size(const std::string& text) {
    std::size_t value = 0;
    const bool fits = CLI::detail::lexical_cast(text, value) && value >= 4 && value <= (std::size_t{1} << 30);
    if (fits && value % 4 == 0) return {};
    return fmt::format("{} is not a payload: a multiple of 4 B, up to 1 GiB", text);
}

std::string check_aligned_size(const std::string& text) {
    std::size_t value = 0;
    if (check_size(text).empty() && CLI::detail::lexical_cast(text, value) && value % 16 == 0) return {};
    return fmt::format("{} is no such size: a multiple of 16 B, up to 1 GiB", text);
}

std::string check_threads(const std::string& text) {
    int value = 0;
    if (CLI::detail::lexical_cast(text, value) && value >= 32 && value <= 1024 && value % 32 == 0) return {};
    return fmt::format("{} is not a number of threads: a multiple of 32, up to 1024", text);
}

const CLI::Range at_least_one(1, 1'000'000);

// Programs of their own, which are chosen before options are read (main.cu).
constexpr const char *applications = "apps", *with_mpi = "mpi";

void set_defaults(options& chosen) {
    const auto pick = [](auto& values, auto gpu, auto cpu) { values = DCUDA_BACKEND_CUDA ? gpu : cpu; };
    using sizes = std::vector<std::size_t>;
    using counts = std::vector<int>;
    pick(chosen.latency.sizes, sizes{4, 64, 384, 512, 1024, 4096, 65536}, sizes{4, 384, 4096});
    pick(chosen.latency.threads, counts{32, 128, 256}, counts{32, 128});
    pick(chosen.bandwidth.sizes, sizes{64 << 10, 1 << 20, 16 << 20}, sizes{64 << 10, 1 << 20});
    pick(chosen.barrier.ranks, counts{1, 132, 1056, 2112}, counts{1, 4, 8});
    pick(chosen.barrier.world_ranks, counts{132, 1056}, counts{1, 4});
    pick(chosen.collectives.ranks, counts{1, 8, 132, 1056, 2112}, counts{1, 4, 8});
    pick(chosen.collectives.world_ranks, counts{132, 1056}, counts{4});
    pick(chosen.partners.partners, counts{1, 2, 8, 16, 17, 26, 27, 32, 64, 500}, counts{1, 2, 9, 27});
    pick(chosen.overlap.ranks_per_multiprocessor, counts{1, 2, 4, 8, 12, 16}, counts{1, 2});
    pick(chosen.waiters.waiting, counts{0, 1, 132, 1900}, counts{0, 1, 8});
}

void add_common(CLI::App& app, options& chosen) {
    app.add_option("--rounds", chosen.rounds, "rounds of a batch (default: the benchmark's own)")->check(at_least_one);
    app.add_option("--batches", chosen.batches, "batches, after one to warm up (default: the benchmark's own)")
        ->check(at_least_one);
    app.add_flag("--csv", chosen.csv, "print comma-separated values instead of a table");
    app.add_option("--json", chosen.json, "write the results to this file");
    app.add_option("--plot", chosen.plot, "draw the results into this directory (needs python3 with matplotlib)");
    app.add_option("--rival", chosen.rivals, "results of bench_nvshmem or bench_nccl, to stand beside ours")
        ->check(CLI::ExistingFile);
    app.add_option("--compare", chosen.compare, "results of dcuda-bench-unchecked: shows what the checks cost")
        ->check(CLI::ExistingFile);
    app.add_option("--commit", chosen.commit, "commit of the sources, for the record")->envname("DCUDA_COMMIT");
}

void add_subcommands(CLI::App& app, options& chosen) {
    CLI::App* const latency = app.add_subcommand("latency", "one-way latency of notify and put_notify: ping-pong");
    latency->add_option("--sizes", chosen.latency.sizes, "payload bytes")->delimiter(',')->check(check_size);
    latency->add_option("--threads", chosen.latency.threads, "of a rank")->delimiter(',')->check(check_threads);

    CLI::App* const bandwidth = app.add_subcommand("bandwidth", "bandwidth of puts by 1, 16, half and all ranks");
    bandwidth->add_option("--sizes", chosen.bandwidth.sizes, "bytes of a put")
        ->delimiter(',')
        ->check(check_aligned_size);
    bandwidth->add_option("--threads", chosen.bandwidth.threads, "of a rank")->check(check_threads);

    // Of a benchmark by ranks of one device, and by those of all devices.
    const auto add_ranks = [&](const char* name, const char* description, auto& group) {
        CLI::App* const ranks = app.add_subcommand(name, description);
        ranks->add_option("--ranks", group.ranks, "of a device")->delimiter(',')->check(at_least_one);
        ranks->add_option("--world-ranks", group.world_ranks, "of a device, where all devices take part")
            ->delimiter(',')
            ->check(at_least_one);
        ranks->add_option("--threads", group.threads, "of a rank")->check(check_threads);
    };
    add_ranks("barrier", "barriers of a device and of all devices", chosen.barrier);
    add_ranks("collectives", "reductions, broadcasts and barriers of groups", chosen.collectives);

    CLI::App* const flush = app.add_subcommand("flush", "a put and its flush");
    flush->add_option("--size", chosen.flush.bytes, "bytes of the put")->check(check_size);
    flush->add_option("--threads", chosen.flush.threads, "of a rank")->check(check_threads);

    app.add_subcommand("one_sided", "gets and atomic operations");

    app.add_subcommand("stream", "puts, notifications and waits in stream order, between two processes");

    CLI::App* const partners =
        app.add_subcommand("partners", "notified puts to many ranks in turn, and waits for messages of many");
    partners->add_option("--partners", chosen.partners.partners, "numbers of other ranks")
        ->delimiter(',')
        ->check(at_least_one);
    partners->add_option("--size", chosen.partners.bytes, "bytes of a message")->check(check_size);
    partners->add_option("--threads", chosen.partners.threads, "of a rank")->check(check_threads);

    CLI::App* const overlap = app.add_subcommand("overlap", "how far work hides a halo exchange");
    overlap->add_option("--work", chosen.overlap.work, "kinds of work")
        ->delimiter(',')
        ->check(CLI::IsMember({"copy", "stream", "newton", "fma"}));
    overlap->add_option("--oversubscription", chosen.overlap.ranks_per_multiprocessor, "ranks per multiprocessor")
        ->delimiter(',')
        ->check(CLI::Range(1, 1024));
    overlap->add_option("--threads", chosen.overlap.threads, "of a rank")->check(check_threads);
    overlap->add_option("--halo", chosen.overlap.halo_bytes, "bytes to each neighbour")->check(check_size);
    overlap->add_option("--copy", chosen.overlap.copy_bytes, "bytes that a device copies in a step")
        ->check(check_aligned_size);
    overlap->add_option("--stream", chosen.overlap.stream_bytes, "the same, out of cache")->check(check_aligned_size);
    overlap->add_option("--newton", chosen.overlap.newton, "iterations of a device's ranks in a step")
        ->check(CLI::Range(1, 1'000'000'000));
    overlap->add_option("--fma", chosen.overlap.multiply_add, "the same, of eight multiplications and additions")
        ->check(CLI::Range(1, 1'000'000'000));
    overlap
        ->add_option("--amounts", chosen.overlap.amounts, "further amounts of work, in times of the exchange: 0.1,1,10")
        ->delimiter(',')
        ->check(CLI::Range(0.001, 1000.0));

    app.add_subcommand("warps", "ranks of one warp, beside others that compute");
    app.add_subcommand("host", "round trips between host and device; timers; log");

    CLI::App* const waiters = app.add_subcommand("waiters", "how much waiting ranks slow busy ones");
    waiters->add_option("--busy", chosen.waiters.busy, "busy ranks (default: one per multiprocessor)")
        ->check(at_least_one);
    waiters->add_option("--waiting", chosen.waiters.waiting, "waiting ranks")
        ->delimiter(',')
        ->check(CLI::Range(0, 1'000'000));
    waiters->add_option("--threads", chosen.waiters.threads, "of a rank")->check(check_threads);

    CLI::App* const messages = app.add_subcommand(
        "messages", "how many small messages ranks exchange, and halos in pieces between two devices");
    messages->add_option("--size", chosen.messages.bytes, "bytes of a message")->check(check_size);

    app.add_subcommand("trace", "what an event of the timeline costs (DCUDA_TRACE)");

    app.add_subcommand("all", "all of these");
    app.add_subcommand(applications,
                       "the case studies, without a launcher; it has options of its own: dcuda-bench apps --help");
    app.add_subcommand(with_mpi, "MPI with host and device memory: mpirun -n 2 dcuda-bench mpi; see its own --help");
    for (CLI::App* const sub : app.get_subcommands([](CLI::App*) { return true; }))
        for (CLI::Option* const option : sub->get_options())
            if (option->get_name() != "--help") option->capture_default_str();
}

} // namespace

command_line parse_command_line(int argc, char** argv) {
    options chosen;
    set_defaults(chosen);
    CLI::App app("Benchmarks of dCUDA, alone or on several devices: dcuda-run -n 2 dcuda-bench all", "dcuda-bench");
    app.set_version_flag("--version", "dcuda-bench " DCUDA_VERSION_STRING);
    app.require_subcommand(1);
    app.fallthrough();
    add_common(app, chosen);
    add_subcommands(app, chosen);

    command_line result = arguments::parse(app, argc, argv, chosen);
    if (!result.chosen) return result;
    result.chosen->subcommand = app.get_subcommands().front()->get_name();
    const std::string& name = result.chosen->subcommand;
    if (name == applications || name == with_mpi)
        return {{name + " comes first: dcuda-bench " + name + " OPTIONS\n", 2}, {}};
    return result;
}

command_line parse_rival_command_line(int argc, char** argv, const std::string& program,
                                      const std::string& description) {
    options chosen;
    set_defaults(chosen);
    chosen.subcommand = "all";
    CLI::App app(description, program);
    std::vector<std::string> names = all_subcommands;
    names.push_back(chosen.subcommand);
    app.add_option("benchmark", chosen.subcommand, "the one to measure beside (default: all)")
        ->check(CLI::IsMember(names));
    app.add_option("--json", chosen.json, "write the results to this file");
    app.add_option("--commit", chosen.commit, "commit of the sources, for the record")->envname("DCUDA_COMMIT");
    return arguments::parse(app, argc, argv, chosen);
}

} // namespace benchmark
