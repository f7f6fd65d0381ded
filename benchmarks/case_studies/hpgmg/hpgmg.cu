// SPDX-License-Identifier: BSD-3-Clause
// HPGMG-FV on all devices of a job: docs/guide/hpgmg.md.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "common/deal.hpp"
#include "common/files.hpp"
#include "common/models/kernel_energy.hpp"
#include "common/program.hpp"
#include "findings.hpp"
#include "level_arrays.hpp"
#include "models/model.hpp"
#include "options.hpp"
#include "ranks/rank_memory.hpp"
#include "ranks/rank_solver.hpp"
#include "reference.hpp"
#include "report.hpp"

namespace hpgmg {

namespace {

// What arrays may take of the device that has least. A little is left for what is smaller. Devices of the CPU backend
// have one memory together.
double device_bytes(common::session& here) {
    std::size_t free = 0, all = 0;
    common::check(cudaMemGetInfo(&free, &all), "asking for the device's memory");
    const int sharers = DCUDA_BACKEND_CUDA ? 1 : here.job.process_count;
    double least = 0.97 * static_cast<double>(free) / sharers;
    for (const double each : here.runtime.gather(least)) least = std::min(least, each);
    here.runtime.broadcast(least);
    return least;
}

std::string gigabytes(double rounded) { return std::to_string(static_cast<long long>(rounded)) + " GB"; }

decomposition make_decomposition(level_shape finest, int devices, int ranks, int one_rank_side = least_brick) {
    try {
        return {coarsen(finest), devices, ranks, one_rank_side};
    } catch (const std::runtime_error& reason) {
        throw common::agreed_error(reason.what()); // all processes find the same
    }
}

// More boxes would change nothing: the grid has a largest side.
void require_used_boxes(const options& chosen, int devices) {
    const long long count = (largest_side >> chosen.log2_box) + 1;
    const long long most = std::max(1LL, (count * count * count - 1) / devices);
    if (chosen.boxes > most)
        throw common::agreed_error(
            "--boxes " + std::to_string(chosen.boxes) + " are more than a grid of " + std::to_string(largest_side) +
            " cells a side has, the largest: use smaller boxes, or at most --boxes " + std::to_string(most));
}

// Before anything is made that no memory holds.
void require_memory(common::session& here, level_shape finest, const decomposition& cut) {
    const int devices = here.job.process_count;
    const double there = device_bytes(here), needed = level_arrays::bytes_for(cut);
    if (needed <= there) return;
    std::string advice = "use smaller boxes";
    for (int count = finest.boxes_per_dimension - 1; count >= 1; --count) {
        const long long boxes = (1LL * count * count * count + devices - 1) / devices;
        const level_shape smaller = choose_finest(finest.box_side, boxes * devices);
        if (smaller.boxes_per_dimension != count) continue;
        if (level_arrays::bytes_for(make_decomposition(smaller, devices, 1)) > there) continue;
        advice = "at most --boxes " + std::to_string(boxes) + " fit";
        break;
    }
    throw common::agreed_error("the grid's " + std::to_string(finest.boxes_per_dimension) + "^3 boxes, " +
                               std::to_string(finest.side()) + "^3 cells, take " + gigabytes(std::ceil(needed / 1e9)) +
                               " of a device's memory, which has " + gigabytes(std::floor(there / 1e9)) +
                               " left for them: " + advice);
}

// A rank's threads count its cells in an int, which is to hold one step of theirs more.
void require_countable_bricks(const decomposition& cut) {
    constexpr std::int64_t most = (std::int64_t{1} << 31) - 1024;
    if (cut.largest_brick() > most)
        throw common::agreed_error("a rank has " + std::to_string(cut.largest_brick()) + " cells, more than " +
                                   std::to_string(most) + ": use more --ranks, more devices or fewer --boxes");
}

dcuda::launch_config choose_launch(common::session& here, const options& chosen, const decomposition& alone) {
    dcuda::launch_config config{
        dim3(static_cast<unsigned>(chosen.threads > 0 ? chosen.threads : common::default_threads)), 0, chosen.ranks};
    const region smallest = alone.owned(0, here.job.process_count - 1); // the last part is no larger than others
    std::int64_t most = smallest.cells() / (least_brick * least_brick * least_brick);
    // PERF: two ranks on a multiprocessor pay with many cells only. H200, 2026-11-28, 132 ranks instead of 264: 64^3
    // cells on two devices 11 % less time, 128^3 2 % less; 128^3 on one device 6 % more.
    if (DCUDA_BACKEND_CUDA && smallest.cells() < 1 << 21) most = std::min<std::int64_t>(most, here.multiprocessors());
    config.ranks_per_device =
        common::choose_ranks(here, solve, config, static_cast<int>(std::min<std::int64_t>(most, 1 << 20)));
    return config;
}

// All runs by ranks of one kernel. Collective.
void run_ranks(common::session& here, const options& chosen, const decomposition& cut, const level_arrays& arrays,
               const dcuda::launch_config& config, findings& found, report& about) {
    found.clear();
    rank_memory memory(here.runtime, chosen, cut, arrays, here.job.process_index, config.ranks_per_device);
    task& work = memory.prepare(found.view());
    work.runs = {chosen.repeat, chosen.progress};
    for (int i = 0; i < chosen.repeat; ++i) {
        here.runtime.run(solve, config, work);
        about.milliseconds.push_back(here.runtime.timings().at(0));
        about.energy.add(here.runtime.energy());
        work.runs.next(about.milliseconds.back() * 1e-3);
    }
    if (chosen.tells_parts)
        for (const double each : memory.part_times()) about.parts_us.push_back(each / chosen.repeat / chosen.solves);
    for (int level = 0; level < cut.levels(); ++level) about.ranks_of_levels.push_back(cut.ranks_with_cells(level));
    memory.close();
}

// By kernels that the host launches: all runs. Collective.
void run_model(common::session& here, const options& chosen, const decomposition& alone, const level_arrays& arrays,
               findings& found, report& about) {
    const auto model = models::make(chosen.model, {chosen, alone, arrays, here.job.process_index, here.runtime, found});
    about.carrier = model->describe();
    common::kernel_energy energy(!chosen.json.empty(), here.job);
    for (int i = 0; i < chosen.repeat; ++i) {
        found.clear();
        energy.begin();
        about.milliseconds.push_back(model->run());
        energy.end();
        about.energy.add(energy.last());
        about.exchange_milliseconds.push_back(model->exchange_alone());
    }
}

// Whether the result is the serial reference's.
bool is_equal(const std::vector<double>& residuals, const std::vector<double>& solution, level_shape finest,
              const options& chosen) {
    serial_solver expected(finest, chosen.smooths_by, chosen.amplitude);
    std::vector<double> expected_residuals{expected.solve()};
    for (int cycle = 0; cycle < chosen.v_cycles; ++cycle) expected_residuals.push_back(expected.improve());
    return expected_residuals == residuals && solution == expected.solution();
}

int run(common::session& here, const options& chosen) {
    common::do_on_first(here, [&] {
        if (!chosen.json.empty() && chosen.json != "-") common::check_writable(chosen.json);
    });
    const int devices = here.job.process_count;
    require_used_boxes(chosen, devices);
    const level_shape finest = choose_finest(1 << chosen.log2_box, chosen.boxes * devices);
    const decomposition alone = make_decomposition(finest, devices, 1);
    require_memory(here, finest, alone);

    report about;
    about.levels = coarsen(finest);
    about.devices = devices;
    about.backend = common::backend;
    dcuda::launch_config config;
    decomposition cut = alone;
    if (chosen.model == "dcuda") {
        config = choose_launch(here, chosen, alone);
        cut = make_decomposition(finest, devices, config.ranks_per_device, chosen.one_rank_side);
        require_countable_bricks(cut);
        about.ranks_per_device = config.ranks_per_device;
        about.ranks_with_cells = cut.used_ranks();
        about.threads = static_cast<int>(config.threads.x);
    }
    const level_arrays arrays(here.runtime, chosen, alone, here.job.process_index);
    findings found(chosen.v_cycles);
    if (chosen.model == "dcuda")
        run_ranks(here, chosen, cut, arrays, config, found, about);
    else
        run_model(here, chosen, alone, arrays, found, about);
    const int failed = found.failed_level(here.runtime);
    const std::vector<double> solution = chosen.verify ? arrays.collect() : std::vector<double>();
    about.residuals = found.relative_residuals(here.runtime, arrays.largest_source());
    if (!here.first()) return 0;
    if (failed >= 0)
        throw std::runtime_error("the residual is no number on level " + std::to_string(failed) + ", of " +
                                 std::to_string(alone.level(failed).side()) +
                                 "^3 cells: choose an --amplitude nearer to 1");
    if (chosen.verify) {
        about.is_verified = true;
        about.is_equal = is_equal(about.residuals, solution, finest, chosen);
    }
    common::write_report(chosen.json, in_words(about, chosen), as_json(about, chosen));
    return about.is_verified && !about.is_equal ? 1 : 0;
}

} // namespace
} // namespace hpgmg

int main(int argc, char** argv) {
    common::start_program_of_model("hpgmg", argc, argv);
    return common::run_program("hpgmg", argc, argv, hpgmg::parse_command_line, hpgmg::run);
}
