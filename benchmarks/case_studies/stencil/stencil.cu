// SPDX-License-Identifier: BSD-3-Clause
// Horizontal diffusion on all devices of a job: docs/guide/stencil.md.
#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/deal.hpp"
#include "common/device_buffer.hpp"
#include "common/files.hpp"
#include "common/program.hpp"
#include "common/statistics.hpp"
#include "field.hpp"
#include "kernels.hpp"
#include "models/model.hpp"
#include "on_chip.hpp"
#include "options.hpp"
#include "pgm.hpp"
#include "picture.hpp"
#include "reference.hpp"
#include "report.hpp"

namespace stencil {

using common::check;
using common::check_writable;
using common::deal_out;
using common::device_buffer;
using common::piece;
using common::read_file;
using common::write_file;

namespace {

// --- The initial field ---------------------------------------------------------------------------------------------

void check_outputs(const options& chosen) {
    for (const std::string& path : {chosen.output, chosen.png, chosen.json})
        if (!path.empty() && path != "-") check_writable(path);
}

// Process 0 reads the map, if there is one, and sees whether it can write the results; all learn the map's size.
std::vector<double> open_files(common::session& here, const options& chosen, grid& whole) {
    std::vector<double> map;
    std::vector<int> size(4); // the rest fills 16 bytes
    common::do_on_first(here, [&] {
        check_outputs(chosen);
        if (chosen.input.empty()) return;
        const gray_map input = parse_pgm(read_file(chosen.input), chosen.input);
        map.assign(input.samples.begin(), input.samples.end());
        size[0] = input.width;
        size[1] = input.height;
    });
    if (chosen.input.empty()) return map;
    if (here.job.process_count > 1)
        deal_out(here.runtime, size, std::vector<piece>(static_cast<std::size_t>(here.job.process_count), {0, 16}));
    whole.nx = size[0];
    whole.ny = size[1];
    return map;
}

// Rows on either side of a device's. The models to compare with have a halo of their own.
int halo_of(const options& chosen) { return chosen.fused && chosen.model == "dcuda" ? 2 : 1; }

// The rows that exist among a device's stored rows, which include the halo.
range filled_rows(const partition& rows, int device, int halo) {
    const range own = rows.of_device(device);
    return own.empty() ? range{} : intersection(with_halo(own, halo), rows.all());
}

// Every process's rows of process 0's map.
std::vector<double> own_part(dcuda::runtime& runtime, const std::vector<double>& map, const partition& rows, int nx,
                             int halo) {
    const int process = runtime.info().process_index;
    const auto width = static_cast<std::size_t>(nx);
    const auto values = [&](range r) { return static_cast<std::size_t>(r.count()) * width; };
    const range filled = filled_rows(rows, process, halo);

    std::vector<double> part = process == 0 ? map : std::vector<double>(values(filled));
    std::vector<piece> pieces;
    for (int device = 0; device < rows.devices; ++device) {
        const range theirs = filled_rows(rows, device, halo);
        pieces.push_back(
            {static_cast<std::size_t>(theirs.first) * width * sizeof(double), values(theirs) * sizeof(double)});
    }
    if (rows.devices > 1) deal_out(runtime, part, pieces);
    part.resize(values(filled)); // process 0: its rows come first
    return part;
}

// --- The run -------------------------------------------------------------------------------------------------------

// A line for each warp.
dim3 shape_of(int threads) {
    const auto count = static_cast<unsigned>(threads);
    const unsigned along_x = std::min(count, 32u);
    return dim3(along_x, count / along_x);
}

// As many threads for a line as have work there.
dim3 long_shape(dim3 shape, int nx) {
    while (shape.y % 2 == 0 && static_cast<int>(shape.x) * columns_in_flight < nx)
        shape = dim3(2 * shape.x, shape.y / 2);
    return shape;
}

// The dCUDA kernels, with fields in device memory or in shared memory.
auto kernel_of(const options& chosen, bool in_bands) {
    return chosen.fused ? diffuse_at_once : in_bands ? diffuse<true> : diffuse<false>;
}
auto kernel_on_chip(const options& chosen) { return chosen.fused ? diffuse_at_once_on_chip : diffuse_on_chip; }

constexpr int all_rows = 1 << 30; // in one band

// Who computes what, and how the kernels of ranks are launched.
struct plan {
    division ranks;
    dcuda::launch_config config;
    bool on_chip = false;
    bool in_bands = false;
    int band_rows = all_rows; // of a band
};

// A device's fields.
class solver {
public:
    solver(dcuda::runtime& runtime, const options& chosen, const grid& whole, const plan& layout, const field& initial)
        : runtime_(runtime), chosen_(chosen), plan_(layout), initial_(initial), device_(runtime.info().process_index) {
        work_.whole = whole;
        work_.ranks = layout.ranks;
        work_.device = device_;
        work_.halo = halo_of(chosen);
        const std::size_t points = static_cast<std::size_t>(work_.stored_rows().count()) * whole.plane();
        for (device_buffer<double>* buffer : {&in_, &lap_, &fx_, &fy_}) {
            if (layout.on_chip && buffer != &in_) continue;
            *buffer = device_buffer<double>(points);
            buffer->clear();
        }
        if (layout.on_chip)
            arrivals_ = device_buffer<double>(
                static_cast<std::size_t>(layout.ranks.ranks_per_device()) *
                static_cast<std::size_t>(chosen.fused ? rows_received_at_once : rows_received_in_steps) *
                static_cast<std::size_t>(layout.ranks.levels_of(0).count() * whole.nx));
        work_.in = in_.data();
        work_.lap = lap_.data();
        work_.fx = fx_.data();
        work_.fy = fy_.data();
        work_.iterations = chosen.iterations;
        work_.coefficient = chosen.coefficient;
        work_.by_level = chosen.message_kind == message::level;
        work_.runs = {chosen.repeat, chosen.progress};
        work_.band_rows = layout.band_rows;
        if (device_ == 0 && chosen.needs_result()) whole_ = device_buffer<double>(whole.points());
        if (chosen.model != "dcuda") {
            const auto threads = static_cast<int>(layout.config.threads.x * layout.config.threads.y);
            model_ = models::make(chosen.model, {chosen, whole, layout.ranks, device_, threads, runtime, in_.data()});
        }
    }

    // Diffuses the initial field; the milliseconds that the iterations took.
    double run() {
        const auto above = static_cast<std::size_t>(initial_.rows().first - work_.stored_rows().first);
        in_.upload(initial_.values().data(), initial_.values().size(), above * work_.whole.plane());
        if (model_ != nullptr) return model_->run();
        // The rows that never change must be in both arrays of fused iterations.
        if (has_two_arrays())
            check(cudaMemcpy(lap_.data(), in_.data(), in_.bytes(), cudaMemcpyDeviceToDevice), "copying the field");
        work_.runs.next(measure::seconds_of([&] {
            if (plan_.on_chip)
                runtime_.run(kernel_on_chip(chosen_), plan_.config, work_, arrivals_.data());
            else
                runtime_.run(kernel_of(chosen_, plan_.in_bands), plan_.config, work_);
        }));
        return runtime_.timings().at(0);
    }

    // What the exchanges alone take, where that is known.
    double run_exchanges() { return model_ != nullptr ? model_->exchange_alone() : 0.0; }
    std::string describe_model() const { return model_ != nullptr ? model_->describe() : ""; }

    // The whole field on process 0, an empty one elsewhere.
    field collect() {
        task done = work_;
        if (has_two_arrays() && work_.iterations % 2 == 1) done.in = work_.lap;
        runtime_.run(gather, plan_.config, done, whole_.data());
        if (device_ != 0) return {};
        field result(work_.whole);
        whole_.download(result.values().data(), result.values().size());
        return result;
    }

private:
    // dCUDA's fused iterations write another array than they read; in shared memory, if fields are there.
    bool has_two_arrays() const { return work_.halo > 1 && !plan_.on_chip; }

    dcuda::runtime& runtime_;
    const options& chosen_;
    const plan& plan_;
    const field& initial_;
    int device_;
    device_buffer<double> in_, lap_, fx_, fy_, arrivals_, whole_;
    task work_;
    std::unique_ptr<common::model> model_; // null: dCUDA
};

bool asked_for_ranks(const common::session& here, const options& chosen) {
    return chosen.ranks > 0 || here.asked_for_ranks;
}

[[noreturn]] void refuse_level_parts(int parts, const std::string& reason) {
    throw std::runtime_error("--level-parts " + std::to_string(parts) + ": " + reason);
}

// Parts of the levels, with so many ranks on a device. On a GPU they have as few levels as can be: ranks of few rows
// read many of their neighbours'.
int level_parts_of(const common::session& here, const options& chosen, const grid& whole, int planned) {
    const bool asked = asked_for_ranks(here, chosen);
    int parts = chosen.level_parts;
    if (parts == 0) parts = DCUDA_BACKEND_CUDA && !asked && planned >= whole.nz ? whole.nz : 1;
    if (parts > whole.nz) refuse_level_parts(parts, "there are only " + std::to_string(whole.nz) + " levels");
    if (asked && planned % parts != 0)
        refuse_level_parts(parts, std::to_string(planned) + " ranks per device are no multiple of that");
    if (planned < parts) refuse_level_parts(parts, "only " + std::to_string(planned) + " ranks fit on a device");
    return parts;
}

// How many parts a device's rows have at most: none is without the rows that are exchanged.
int most_parts(const options& chosen, const partition& rows) {
    return std::max(1, rows.of_device(0).count() / (chosen.fused ? 2 : 1));
}

// What a row of all fields takes.
constexpr int fields_in_memory = 4;
std::size_t row_bytes(const grid& whole) { return fields_in_memory * whole.plane_bytes(); }

// Whether the cache does not hold so many of a device's fields.
bool exceeds_cache(const common::session& here, const grid& whole, const partition& rows, int fields) {
    return static_cast<std::size_t>(rows.of_device(0).count()) * static_cast<std::size_t>(fields) *
               whole.plane_bytes() >
           here.cache_bytes();
}

// Whether ranks go over fields in device memory in bands: if the cache does not hold them.
bool goes_in_bands(const common::session& here, const options& chosen, const grid& whole, const partition& rows) {
    if (chosen.model != "dcuda" || chosen.fused) return false;
    if (!DCUDA_BACKEND_CUDA || chosen.band_rows > 0) return chosen.band_rows > 0;
    return exceeds_cache(here, whole, rows, fields_in_memory);
}

// How many rows a band has: so many that those of all ranks stay in the cache together.
// PERF: then only `in` is read from memory, once. H200 (50 MB of cache), 2026-11-22, 1024 x 2048 x 64 points (1 GiB a
// field), 256 ranks, ms per iteration: 3.5 without bands; 3.8 with 8 rows (67 MB), 2.8 with 4, 2.5 with 2, 2.3 with 1.
int band_rows_of(const common::session& here, const grid& whole, const partition& rows, dim3 threads) {
    const std::size_t cache = here.cache_bytes();
    const std::size_t of_all = static_cast<std::size_t>(rows.ranks_per_device) * row_bytes(whole);
    if (of_all > cache / 2) return all_rows;
    const auto lines = static_cast<int>(threads.y); // at a time
    const auto most = std::max(1, static_cast<int>(cache / 4 / of_all));
    return most > lines ? most - most % lines : most;
}

// As many ranks per device as asked for, else all that fit together, but none without rows.
plan plan_in_memory(common::session& here, const options& chosen, const dcuda::launch_config& config,
                    const grid& whole) {
    plan result{{{whole.ny, here.job.process_count, 1}, whole.nz, 1}, config};
    division& ranks = result.ranks;
    result.config.ranks_per_device = ranks.ranks_per_device();
    if (!chosen.has_ranks()) return result;
    result.in_bands = goes_in_bands(here, chosen, whole, ranks.rows);
    const int planned = here.runtime.plan(kernel_of(chosen, result.in_bands), config).rank_responsible;
    ranks.level_parts = level_parts_of(here, chosen, whole, planned);
    const int parts = planned / ranks.level_parts;
    ranks.rows.ranks_per_device =
        asked_for_ranks(here, chosen) ? parts : std::min(parts, most_parts(chosen, ranks.rows));
    result.config.ranks_per_device = ranks.ranks_per_device();
    // PERF: memory is read in long pieces. 1024 x 2048 x 64 points on an H200: 4 % less time.
    if (chosen.model == "dcuda" && chosen.fused && exceeds_cache(here, whole, ranks.rows, 2))
        result.config.threads = long_shape(config.threads, whole.nx);
    if (result.in_bands) {
        const dim3 shape = long_shape(config.threads, whole.nx); // there are few lines at a time
        result.band_rows = chosen.band_rows > 0 ? chosen.band_rows : band_rows_of(here, whole, ranks.rows, shape);
        if (result.band_rows < ranks.rows_of(0).count()) result.config.threads = shape;
    }
    return result;
}

// The same, with the fields of all ranks in shared memory; nothing if they do not fit.
std::optional<plan> plan_on_chip(common::session& here, const options& chosen, const dcuda::launch_config& config,
                                 const grid& whole) {
    plan result{{{whole.ny, here.job.process_count, 1}, whole.nz, 1}, config, true};
    division& ranks = result.ranks;
    const int planned = here.runtime.plan(kernel_on_chip(chosen), config).rank_responsible;
    ranks.level_parts = level_parts_of(here, chosen, whole, planned);
    const bool asked = asked_for_ranks(here, chosen);
    const int most = planned / ranks.level_parts, fields = chosen.fused ? fields_at_once : fields_in_steps;
    for (int parts = asked ? most : std::min(most, most_parts(chosen, ranks.rows)); parts > 0; --parts) {
        ranks.rows.ranks_per_device = parts;
        result.config.ranks_per_device = ranks.ranks_per_device();
        result.config.shared_bytes =
            bytes_on_chip(fields, whole.nx, ranks.rows_of(0).count(), ranks.levels_of(0).count());
        try {
            here.runtime.plan(kernel_on_chip(chosen), result.config);
            return result;
        } catch (const dcuda::error& problem) {
            if (problem.code() != dcuda::error_code::out_of_resources) throw;
        }
        if (asked) break;
    }
    return {};
}

plan make_plan(common::session& here, const options& chosen, const grid& whole) {
    const int threads = chosen.threads > 0 ? chosen.threads : common::default_threads;
    const dcuda::launch_config config{shape_of(threads), 0, chosen.ranks};
    // A line is computed by a warp.
    const bool has_warps = !DCUDA_BACKEND_CUDA || config.threads.x == 32;
    if (chosen.model == "dcuda" && chosen.fields == place::shared && !has_warps)
        throw std::runtime_error("--fields shared: takes 32 threads or more on a GPU");
    // On the CPU backend it is memory like any other, and warps are slow.
    const bool is_worth_it = DCUDA_BACKEND_CUDA || chosen.fields == place::shared;
    if (chosen.model == "dcuda" && chosen.fields != place::device && has_warps && is_worth_it) {
        if (const auto result = plan_on_chip(here, chosen, config, whole)) return *result;
        if (chosen.fields == place::shared)
            throw std::runtime_error("--fields shared: they do not fit into the shared memory of a device: use smaller "
                                     "sizes or more devices");
    }
    return plan_in_memory(here, chosen, config, whole);
}

void refuse_too_large(const grid& whole) {
    // Lines of a device are counted by int.
    constexpr long long most_lines = 1LL << 30;
    if (static_cast<long long>(whole.ny) * whole.nz > most_lines)
        throw common::agreed_error("more than 2^30 lines (ny times devices times nz): use smaller sizes");
}

void refuse_too_few_rows(const partition& rows) {
    const int fewest = rows.of_device(rows.devices - 1).count() / rows.ranks_per_device;
    if (fewest < 2 && rows.devices * rows.ranks_per_device > 1)
        throw common::agreed_error(
            "--fused exchanges two rows, but some ranks or devices have less: use fewer of them");
}

// --- Results, on process 0 -----------------------------------------------------------------------------------------

void write_results(const options& chosen, const field& before, const field& after) {
    const grid& g = after.whole();
    if (!chosen.output.empty())
        write_file(chosen.output,
                   format_map(after.level(0), g.nx, chosen.input.empty() ? scaling::stretch : scaling::none));
    if (!chosen.png.empty())
        write_file(chosen.png, draw_comparison(before.level(0), after.level(0), g.nx, chosen.iterations));
}

// Compares a run's result with the serial reference, which is computed at the first.
void verify(report& about, const options& chosen, const field& before, field& expected, const field& after) {
    if (!about.verified) {
        about.verified.emplace();
        expected = before;
        about.verified->reference_seconds =
            measure::seconds_of([&] { diffuse_serially(expected, chosen.iterations, chosen.coefficient); });
    }
    if (about.verified->worst.equal()) about.verified->worst = compare(expected, after);
}

} // namespace

int run(common::session& here, const options& chosen) {
    dcuda::runtime& runtime = here.runtime;
    const dcuda::rank_info job = here.job;
    const bool first = here.first();
    grid whole{chosen.nx, 0, chosen.nz};
    const std::vector<double> map = open_files(here, chosen, whole);
    if (chosen.input.empty()) {
        const long long rows = static_cast<long long>(chosen.ny) * job.process_count;
        if (rows > (1LL << 30))
            throw common::agreed_error("more than 2^30 rows (ny times devices): use a smaller --ny");
        whole.ny = static_cast<int>(rows);
    }
    refuse_too_large(whole);

    const plan planned = make_plan(here, chosen, whole);
    const partition& rows = planned.ranks.rows;
    if (chosen.fused) refuse_too_few_rows(rows);

    const int halo = halo_of(chosen);
    const range filled = filled_rows(rows, job.process_index, halo);
    here.require_device_memory(static_cast<double>(filled.count()) * static_cast<double>(whole.plane()) *
                               sizeof(double));
    const field initial = chosen.input.empty()
                              ? smooth_field(whole, filled)
                              : repeated_map(whole, filled, own_part(runtime, map, rows, whole.nx, halo));
    solver solve(runtime, chosen, whole, planned, initial);

    // Process 0 has the whole field as well, for the reference and the picture.
    field before;
    if (first && chosen.needs_result())
        before = chosen.input.empty() ? smooth_field(whole, rows.all()) : repeated_map(whole, rows.all(), map);
    const auto threads = static_cast<int>(planned.config.threads.x * planned.config.threads.y);
    report about{whole, planned.ranks, threads, planned.on_chip, common::backend, solve.describe_model()};
    about.band_rows = planned.band_rows;
    field after, expected;
    for (int i = 0; i < chosen.repeat; ++i) {
        about.milliseconds.push_back(solve.run());
        if (chosen.model == "dcuda") about.energy.add(runtime.energy());
        about.exchange_milliseconds.push_back(solve.run_exchanges());
        if (!chosen.needs_result()) continue;
        after = solve.collect();
        if (first && chosen.verify) verify(about, chosen, before, expected, after);
    }
    if (!first) return 0;
    if (chosen.needs_result()) about.surveyed = survey(before, after);
    write_results(chosen, before, after);
    common::write_report(chosen.json, in_words(about, chosen), as_json(about, chosen));
    return about.verified && !about.verified->worst.equal() ? 1 : 0;
}

} // namespace stencil

int main(int argc, char** argv) {
    common::start_program_of_model("stencil", argc, argv);
    return common::run_program("stencil", argc, argv, stencil::parse_command_line, stencil::run);
}
