// SPDX-License-Identifier: BSD-3-Clause
#include "options.hpp"

#include <algorithm>
#include <string_view>

#include <CLI/CLI.hpp>

namespace himeno {

namespace {

// On the command line. DCUDA_RANKS_PER_DEVICE, which may be set for other programs, gives the same value.
bool is_given(std::string_view option, int argc, char** argv) {
    return std::any_of(argv, argv + argc,
                       [&](std::string_view word) { return word.substr(0, word.find('=')) == option; });
}

} // namespace

command_line parse_command_line(int argc, char** argv) {
    options chosen;
    bool is_exact = false;
    std::string gosa = "every";
    CLI::App app("The Himeno benchmark: Jacobi's method for a pressure on a grid, by ranks of one long-running kernel "
                 "per device,\n"
                 "or by short kernels, to compare who controls communication.\n"
                 "Start one process per device: dcuda-run -n 2 himeno --size M --no-fma --verify",
                 "himeno");
    app.add_option("--size", chosen.size, "XS, S, M, L, XL, or I,J,K points, of which K lie side by side")
        ->check([](const std::string& text) {
            return parse_size(text)
                       ? std::string()
                       : "'" + text + "' is none of XS, S, M, L, XL, nor I,J,K with 3 to 32768 points each";
        })
        ->capture_default_str();
    app.add_option("--steps", chosen.steps, "steps")
        ->check(CLI::Range(0, 1 << 30).description(""))
        ->capture_default_str();
    app.add_option("--control", chosen.control,
                   "who decides when planes travel: rank (dCUDA's ranks); or, with two short kernels for\n"
                   "each step, stream (the stream's order), stream-graph, kernel (the kernels themselves),\n"
                   "host, host-graph, device-graph (the device launches the next steps), while-graph,\n"
                   "device-tail (a kernel launches those of a step, and itself for the next one)")
        ->check(CLI::IsMember({"rank", "stream", "stream-graph", "kernel", "host", "host-graph", "device-graph",
                               "while-graph", "device-tail"})
                    .description(""))
        ->capture_default_str();
    app.add_option("--carrier", chosen.carrier,
                   "what brings planes with --control host and host-graph: host (dCUDA's transports), mpi,\n"
                   "nccl, plain (one device)")
        ->check(CLI::IsMember({"host", "mpi", "nccl", "plain"}).description(""));
    app.add_option_function<std::string>(
           "--grid",
           [&chosen](const std::string& text) {
               arguments::read_grid(text, chosen.devices.plane_parts, chosen.devices.row_parts);
           },
           "with --control rank: parts of the planes x parts of the rows that devices take, such as\n"
           "2x2 (default: planes alone are cut)")
        ->check([](const std::string& text) {
            device_grid read;
            return arguments::read_grid(text, read.plane_parts, read.row_parts)
                       ? std::string()
                       : text + " is not PLANESxROWS, such as 2x2";
        });
    app.add_flag("--no-fma", is_exact,
                 "round each product by itself: the result is the serial reference's, bit for bit\n"
                 "(always so on CPUs)");
    app.add_option("--gosa", gosa, "add up the changes of every step, or of the last one: every or last")
        ->check(CLI::IsMember({"every", "last"}).description(""))
        ->capture_default_str();
    common::add_run_options(app, chosen, "rows");
    command_line result = common::parse(app, argc, argv, chosen);
    if (!result.chosen) return result;
    options& taken = *result.chosen;
    taken.whole = *parse_size(taken.size);
    taken.is_fused = taken.is_fused && !is_exact;
    taken.sums_every_step = gosa == "every";
    const bool is_of_host = taken.control.starts_with("host");
    if (!is_of_host && !taken.carrier.empty())
        return common::refused<options>("--carrier is for --control host and host-graph only\n");
    if (taken.control == "host-graph" && (taken.carrier == "host" || taken.carrier == "mpi"))
        return common::refused<options>("--carrier " + taken.carrier +
                                        " is called by the host for every step: no graph can hold it\n");
    if (is_of_host && taken.carrier.empty()) taken.carrier = taken.control == "host" ? "host" : "nccl";
    if (taken.control != "rank" && (is_given("--ranks", argc, argv) || taken.threads != 0))
        return common::refused<options>("--ranks and --threads are for --control rank only\n");
    if (taken.control != "rank" && taken.devices.plane_parts != 0)
        return common::refused<options>("--grid is for --control rank only\n");
    if (taken.control != "rank" && !taken.sums_every_step)
        return common::refused<options>("--gosa last is for --control rank only\n");
    if (taken.verify && taken.is_fused)
        return common::refused<options>("--verify compares bit for bit, which takes --no-fma\n");
    return result;
}

} // namespace himeno
