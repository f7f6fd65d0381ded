// SPDX-License-Identifier: BSD-3-Clause
#include "options.hpp"

#include <cmath>
#include <map>
#include <set>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "arithmetic.hpp"
#include "common/agreed_error.hpp"

namespace sparse {

namespace {

constexpr int largest_size = 1 << 30;

CLI::Range within(int least, int most) {
    CLI::Range result(least, most);
    result.description(""); // it is said with the option's name when it matters
    return result;
}

// The checks return text: CLI11 shows it with the option's name.
std::string check_density(const std::string& text) {
    double value = 0.0;
    if (CLI::detail::lexical_cast(text, value) && value >= 1e-6 && value <= 1.0) return {};
    return fmt::format("{} is not within 0.000001 to 1", text);
}

std::string check_tolerance(const std::string& text) {
    double value = 0.0;
    if (CLI::detail::lexical_cast(text, value) && value >= 0.0 && value < 1.0) return {};
    return fmt::format("{} is not 0 or a part of the eigenvalue, below 1", text);
}

bool read_grid(const std::string& text, grid& result) {
    return arguments::read_grid(text, result.rows, result.columns);
}

void add_model_option(CLI::App& app, matrix_options& chosen, const std::string& help,
                      const std::set<std::string>& names) {
    app.add_option("--model", chosen.model, help)->check(CLI::IsMember(names).description(""))->capture_default_str();
}

// Options of the random matrix exclude the file. Returns the file's.
CLI::Option* add_matrix_options(CLI::App& app, matrix_options& chosen) {
    auto* file = app.add_option("--matrix", chosen.matrix, "read this Matrix Market file instead of a random matrix");
    app.add_option("--size", chosen.size, "rows and columns of each device's part of a random matrix")
        ->check(within(1, largest_size))
        ->excludes(file)
        ->capture_default_str();
    app.add_option("--rows", chosen.rows, "rows of the whole random matrix (default: as --size says)")
        ->check(within(1, largest_size))
        ->excludes(file);
    app.add_option("--density", chosen.density, "part of the random matrix's places that are not zero")
        ->check(check_density)
        ->excludes(file)
        ->capture_default_str();
    app.add_option("--seed", chosen.seed, "of the random matrix and vector")
        ->check(CLI::Validator(CLI::NonNegativeNumber).description(""))
        ->capture_default_str();
    app.add_option_function<std::string>(
           "--grid", [&chosen](const std::string& text) { read_grid(text, chosen.devices); },
           "rows x columns of devices, such as 2x3 (default: as square as can be)")
        ->check([](const std::string& text) {
            grid read;
            return read_grid(text, read) ? std::string() : text + " is not ROWSxCOLUMNS, such as 2x3";
        });
    app.add_option("--team", chosen.team,
                   "threads that share a row: 1 or 8 (default: 8 on a GPU, 1 on the CPU backend)")
        ->check(CLI::IsMember({1, row_lanes}).description(""));
    app.add_option(
           "--entries", chosen.entries,
           "where ranks keep their rows of the matrix while they iterate: in shared memory, those that fit, or\n"
           "in device memory (default: on a GPU in shared memory if most fit)")
        ->transform(CLI::CheckedTransformer(
            std::map<std::string, residence>{{"shared", residence::shared}, {"device", residence::device}}))
        ->option_text("shared|device");
    return file;
}

} // namespace

int matrix_options::whole_rows(int device_count) const {
    if (rows > 0) return rows;
    const double result = std::round(size * std::sqrt(static_cast<double>(device_count)));
    if (result > largest_size)
        throw common::agreed_error("more than 2^30 rows (size times the root of the devices): use a smaller --size");
    return static_cast<int>(result);
}

spmv_command_line parse_spmv(int argc, char** argv) {
    spmv_options chosen;
    CLI::App app("Sparse matrix times vector on a grid of devices, in one long-running kernel per device.\n"
                 "Start one process per device: dcuda-run -n 4 spmv --verify",
                 "spmv");
    auto* file = add_matrix_options(app, chosen);
    app.add_option("--columns", chosen.columns, "columns of the whole random matrix (default: as many as rows)")
        ->check(within(1, largest_size))
        ->excludes(file);
    app.add_option("--repetitions", chosen.repetitions, "products in a run")
        ->check(within(1, 1 << 30))
        ->capture_default_str();
    add_model_option(app, chosen,
                     "what multiplies: dcuda; to compare with: plain, plain-graph (one device, no library), mpi, nccl, "
                     "nccl-graph, host (dCUDA's transports, called by the host)",
                     {"dcuda", "plain", "plain-graph", "mpi", "nccl", "nccl-graph", "host"});
    app.add_flag("--no-barrier", chosen.no_barrier,
                 "models mpi, nccl, nccl-graph: a repetition begins before all devices have ended the last");
    common::add_run_options(app, chosen, "rows");
    spmv_command_line result = common::parse(app, argc, argv, chosen);
    if (!result.chosen) return result;
    const std::string& model = result.chosen->model;
    if (result.chosen->no_barrier && model != "mpi" && !model.starts_with("nccl")) {
        result.text =
            fmt::format("--no-barrier is for mpi and nccl only, where sending waits for the receiver; not for "
                        "the model {}\n",
                        model);
        result.status = 2;
        result.chosen.reset();
    }
    return result;
}

power_command_line parse_power_iteration(int argc, char** argv) {
    power_options chosen;
    CLI::App app(
        "The dominant eigenvalue and eigenvector of a sparse matrix, by power iteration on a grid of devices,\n"
        "in one long-running kernel per device. Start one process per device:\n"
        "dcuda-run -n 4 power_iteration --matrix FILE.mtx --labels FILE.csv",
        "power_iteration");
    auto* file = add_matrix_options(app, chosen);
    app.add_option("--iterations", chosen.iterations, "iterations, at most (default: 100; with --matrix 1000)")
        ->check(within(1, 1 << 30));
    app.add_option("--tolerance", chosen.tolerance,
                   "stop when the residual is at most this part of the eigenvalue; 0: after all iterations\n"
                   "(default: 0; with --matrix 1e-12)")
        ->check(check_tolerance);
    app.add_option("--labels", chosen.labels, "CSV file whose first column names the matrix's rows, below a heading")
        ->needs(file);
    app.add_option("--top", chosen.top,
                   "how many rows with the largest elements of the eigenvector to print (default: with --matrix 10)")
        ->check(within(0, largest_size));
    add_model_option(app, chosen,
                     "what iterates: dcuda; to compare with: plain (one device, no library), mpi, nccl, host (dCUDA's "
                     "transports, called by the host), nvshmem",
                     {"dcuda", "plain", "mpi", "nccl", "host", "nvshmem"});
    common::add_run_options(app, chosen, "rows");
    power_command_line result = common::parse(app, argc, argv, chosen);
    if (!result.chosen) return result;
    power_options& taken = *result.chosen;
    if (taken.iterations == 0) taken.iterations = taken.matrix.empty() ? 100 : 1000;
    if (taken.tolerance < 0.0) taken.tolerance = taken.matrix.empty() ? 0.0 : 1e-12;
    if (taken.top < 0) taken.top = taken.matrix.empty() ? 0 : 10;
    return result;
}

grid choose_grid(grid asked, int device_count) {
    if (asked.rows > 0) {
        if (asked.devices() != device_count)
            throw common::agreed_error(fmt::format("--grid {}x{} takes {} processes, but {} were started", asked.rows,
                                                   asked.columns, asked.devices(), device_count));
        return asked;
    }
    int columns = 1;
    for (int divisor = 1; divisor * divisor <= device_count; ++divisor)
        if (device_count % divisor == 0) columns = divisor;
    return {device_count / columns, columns};
}

int choose_team(int asked, int threads, int usual) {
    if (asked == 0) return threads % usual == 0 ? usual : 1;
    if (threads % asked != 0)
        throw common::agreed_error(fmt::format("--team {} does not divide the {} threads of a rank", asked, threads));
    return asked;
}

} // namespace sparse
