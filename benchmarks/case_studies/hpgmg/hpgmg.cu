// SPDX-License-Identifier: BSD-3-Clause
// HPGMG-FV by ranks, on all devices of a job: docs/guide/hpgmg.md.
#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "common/deal.hpp"
#include "common/device_buffer.hpp"
#include "common/files.hpp"
#include "common/program.hpp"
#include "options.hpp"
#include "ranks.hpp"
#include "reference.hpp"
#include "report.hpp"

namespace hpgmg {

using common::device_buffer;

namespace {

constexpr int arrays_of_level = 7; // u, its twin, f, 1/D, three times beta

template <class Element>
device_buffer<Element> on_device(const std::vector<Element>& values) {
    device_buffer<Element> buffer(values.size());
    buffer.upload(values.data(), values.size());
    return buffer;
}

// Of an array, on the device that has most: arrays begin in the same places on all devices.
std::size_t points_of(const decomposition& cut, int level) {
    std::int64_t most = 0;
    for (int device = 0; device < cut.devices(); ++device)
        most = std::max(most, cut.stored(level, device).stored.cells());
    return static_cast<std::size_t>(most);
}

double bytes_of(const decomposition& cut) {
    double points = bottom_work_arrays * double(points_of(cut, cut.levels() - 1));
    for (int level = 0; level < cut.levels(); ++level) points += arrays_of_level * double(points_of(cut, level));
    return points * sizeof(double);
}

// A device's routes, in arrays that its ranks walk through.
class route_table {
public:
    device_route add(const route& one) {
        const device_route result{static_cast<int>(parcels_.size()),
                                  static_cast<int>(one.parcels.size()),
                                  static_cast<int>(ranks_.size()),
                                  static_cast<int>(one.far.size()),
                                  static_cast<int>(ranks_.size() + one.far.size()),
                                  static_cast<int>(one.near.size()),
                                  one.expected};
        parcels_.insert(parcels_.end(), one.parcels.begin(), one.parcels.end());
        ranks_.insert(ranks_.end(), one.far.begin(), one.far.end());
        ranks_.insert(ranks_.end(), one.near.begin(), one.near.end());
        return result;
    }
    const std::vector<parcel>& parcels() const { return parcels_; }
    const std::vector<int>& ranks() const { return ranks_; }

private:
    std::vector<parcel> parcels_;
    std::vector<int> ranks_;
};

// A device's arrays and tables.
class device_memory {
public:
    // Collective.
    device_memory(common::session& here, const options& chosen, const decomposition& cut, int ranks_per_device)
        : runtime_(here.runtime), cut_(cut), device_(here.job.process_index),
          residuals_(std::size_t(chosen.v_cycles) + 1), failure_(1) {
        work_.levels = cut.levels();
        work_.v_cycles = chosen.v_cycles;
        work_.solves = chosen.solves;
        work_.is_chebyshev = chosen.smooths_by == smoother::chebyshev;
        work_.residuals = residuals_.data();
        work_.failure = failure_.data();
        make_arrays();
        fill_arrays(chosen);
        make_shares(ranks_per_device);
        if (chosen.tells_parts) {
            parts_ = device_buffer<std::uint64_t>(std::size_t(ranks_per_device) * table_size());
            work_.parts = parts_.data();
        }
        work_.window = runtime_.create_window(arrays_.data(), arrays_.bytes(), dcuda::window_kind::direct);
    }
    // Collective, when nothing has failed. Then no other process maps the arrays any more.
    void close() { runtime_.free_window(work_.window); }
    device_memory(const device_memory&) = delete;
    device_memory& operator=(const device_memory&) = delete;

    // To begin a run with.
    task& prepare() {
        failure_.upload(&no_failure, 1);
        if (work_.parts != nullptr) parts_.clear();
        return work_;
    }
    std::vector<double> residuals() const {
        std::vector<double> result(residuals_.count());
        residuals_.download(result.data(), result.size());
        for (double& residual : result) residual /= largest_source_;
        return result;
    }
    // The level whose residual was no number before all others were, or -1; on process 0 alone. Collective.
    int failed_level() const {
        int own = no_failure;
        failure_.download(&own, 1);
        int first = no_failure;
        for (const int each : runtime_.gather(own)) first = std::min(first, each);
        return first == no_failure ? -1 : first % most_levels;
    }
    // Microseconds of all runs by level and part, the mean of the ranks with cells, on process 0. Collective.
    std::vector<double> part_times() const {
        std::vector<std::uint64_t> all(parts_.count());
        parts_.download(all.data(), all.size());
        std::vector<double> sums(table_size()), mean(table_size());
        const auto ranks = static_cast<std::size_t>(cut_.used_ranks());
        for (std::size_t n = 0; n < ranks * sums.size(); ++n) sums[n % sums.size()] += 1e-3 * double(all[n]);
        for (const std::vector<double>& of_device : runtime_.gather(std::span<const double>(sums)))
            for (std::size_t n = 0; n < mean.size(); ++n)
                mean[n] += of_device[n] / (double(ranks) * double(cut_.devices()));
        return mean;
    }
    // The solution, on process 0; elsewhere nothing. Collective.
    std::vector<double> collect() const {
        std::vector<double> own(points_of(cut_, 0)), result;
        arrays_.download(own.data(), own.size());
        const std::vector<std::vector<double>> parts = runtime_.gather(std::span<const double>(own));
        const int side = cut_.level(0).side();
        if (!parts.empty()) result.resize(std::size_t(side) * std::size_t(side) * std::size_t(side));
        for (int device = 0; device < static_cast<int>(parts.size()); ++device) {
            const region cells = cut_.owned(0, device);
            const layout from = cut_.stored(0, device), all{cube(side)};
            for (int i = cells.first[0]; i < cells.last[0]; ++i)
                for (int j = cells.first[1]; j < cells.last[1]; ++j)
                    std::copy_n(parts[static_cast<std::size_t>(device)].begin() + from.place(i, j, cells.first[2]),
                                cells.extent(2), result.begin() + all.place(i, j, cells.first[2]));
        }
        return result;
    }

private:
    std::size_t table_size() const { return static_cast<std::size_t>(cut_.levels()) * part_count; }

    // Where array `number` of a level begins.
    std::size_t place(int level, int number) const {
        std::size_t points = 0;
        for (int finer = 0; finer < level; ++finer) points += arrays_of_level * points_of(cut_, finer);
        return points + std::size_t(number) * points_of(cut_, level);
    }

    void make_arrays() {
        const int bottom = cut_.levels() - 1;
        arrays_ = device_buffer<double>(place(bottom, arrays_of_level + bottom_work_arrays));
        arrays_.clear();
        for (int number = 0; number < cut_.levels(); ++number) {
            device_level& level = levels_.emplace_back();
            level.side = cut_.level(number).side();
            level.order = order_of(cut_.level(number).box_side);
            level.in = cut_.stored(number, device_);
            const auto array = [&](int which) { return arrays_.data() + place(number, which); };
            for (int which = 0; which < 2; ++which) {
                level.u[which] = array(which);
                level.u_place[which] = static_cast<std::ptrdiff_t>(place(number, which));
            }
            level.source = array(2);
            level.source_place = static_cast<std::ptrdiff_t>(place(number, 2));
            level.inverse_diagonal = array(3);
            for (int d = 0; d < 3; ++d) level.beta.beta[d] = array(4 + d);
        }
        const device_level& last = levels_.back();
        const auto work = [&](int which) { return arrays_.data() + place(bottom, arrays_of_level + which); };
        work_.bottom = {last.in,     last.side, last.order, last.beta, last.inverse_diagonal,
                        last.source, last.u[0], work(0),    work(1),   work(2),
                        work(3),     work(4),   work(5)};
    }

    // What does not change, and f on the finest level.
    void fill_arrays(const options& chosen) {
        const problem of(cut_.level(0).side(), chosen.amplitude);
        for (int number = 0; number < cut_.levels(); ++number) {
            device_level& level = levels_[static_cast<std::size_t>(number)];
            const tables constant = make_tables(of, cut_.level(number), number, level.in);
            for (int d = 0; d < 3; ++d)
                arrays_.upload(constant.beta[d].data(), constant.beta[d].size(), place(number, 4 + d));
            arrays_.upload(constant.inverse_diagonal.data(), constant.inverse_diagonal.size(), place(number, 3));
            const std::vector<chebyshev_step> steps = chebyshev_steps(largest_of_all(constant.lambda));
            std::copy_n(steps.begin(), sweeps, level.steps);
        }
        const region cells = cut_.owned(0, device_);
        std::vector<double> source(points_of(cut_, 0));
        double largest_here = 0.0;
        for (int i = cells.first[0]; i < cells.last[0]; ++i)
            for (int j = cells.first[1]; j < cells.last[1]; ++j)
                for (int k = cells.first[2]; k < cells.last[2]; ++k) {
                    const double value = of.source(i, j, k);
                    source[static_cast<std::size_t>(levels_[0].in.place(i, j, k))] = value;
                    largest_here = std::max(largest_here, std::abs(value));
                }
        arrays_.upload(source.data(), source.size(), place(0, 2));
        largest_source_ = largest_of_all(largest_here);
        level_buffer_ = on_device(levels_);
        work_.level = level_buffer_.data();
    }

    void make_shares(int ranks_per_device) {
        std::vector<device_share> shares;
        route_table routes;
        for (int rank = 0; rank < ranks_per_device; ++rank)
            for (int number = 0; number < cut_.levels(); ++number) {
                const share one = cut_.share_of(number, device_ * ranks_per_device + rank);
                device_share& next = shares.emplace_back();
                next.brick = one.brick;
                std::copy(&one.far_sides[0][0], &one.far_sides[0][0] + 6, &next.far_sides[0][0]);
                next.exchange = routes.add(one.exchange);
                next.to_coarse = routes.add(one.to_coarse);
                next.to_fine = routes.add(one.to_fine);
            }
        shares_ = on_device(shares);
        parcels_ = on_device(routes.parcels());
        ranks_ = on_device(routes.ranks());
        work_.shares = shares_.data();
        work_.parcels = parcels_.data();
        work_.ranks = ranks_.data();
    }

    double largest_of_all(double own) const {
        double largest = 0.0;
        for (const double each : runtime_.gather(own)) largest = std::max(largest, each);
        runtime_.broadcast(largest);
        return largest;
    }

    dcuda::runtime& runtime_;
    const decomposition& cut_;
    int device_;
    task work_{};
    double largest_source_ = 0.0; // of all devices
    std::vector<device_level> levels_;
    device_buffer<double> arrays_, residuals_;
    device_buffer<int> failure_, ranks_;
    device_buffer<std::uint64_t> parts_;
    device_buffer<device_level> level_buffer_;
    device_buffer<device_share> shares_;
    device_buffer<parcel> parcels_;
};

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

decomposition make_decomposition(level_shape finest, int devices, int ranks) {
    try {
        return {coarsen(finest), devices, ranks};
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
    const double there = device_bytes(here), needed = bytes_of(cut);
    if (needed <= there) return;
    std::string advice = "use smaller boxes";
    for (int count = finest.boxes_per_dimension - 1; count >= 1; --count) {
        const long long boxes = (1LL * count * count * count + devices - 1) / devices;
        const level_shape smaller = choose_finest(finest.box_side, boxes * devices);
        if (smaller.boxes_per_dimension != count) continue;
        if (bytes_of(make_decomposition(smaller, devices, 1)) > there) continue;
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

// Whether the result is the serial reference's.
bool is_equal(const device_memory& memory, const std::vector<double>& solution, level_shape finest,
              const options& chosen) {
    serial_solver expected(finest, chosen.smooths_by, chosen.amplitude);
    std::vector<double> residuals{expected.solve()};
    for (int cycle = 0; cycle < chosen.v_cycles; ++cycle) residuals.push_back(expected.improve());
    return residuals == memory.residuals() && solution == expected.solution();
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

    dcuda::launch_config config{
        dim3(static_cast<unsigned>(chosen.threads > 0 ? chosen.threads : common::default_threads)), 0, chosen.ranks};
    const region smallest = alone.owned(0, devices - 1); // the last part is no larger than others
    const std::int64_t most = smallest.cells() / (least_brick * least_brick * least_brick);
    config.ranks_per_device =
        common::choose_ranks(here, solve, config, static_cast<int>(std::min<std::int64_t>(most, 1 << 20)));
    const decomposition cut = make_decomposition(finest, devices, config.ranks_per_device);
    require_countable_bricks(cut);
    device_memory memory(here, chosen, cut, config.ranks_per_device);

    report about;
    about.levels = coarsen(finest);
    about.devices = devices;
    about.ranks_per_device = config.ranks_per_device;
    about.ranks_with_cells = cut.used_ranks();
    about.threads = static_cast<int>(config.threads.x);
    about.backend = common::backend;
    task& work = memory.prepare();
    work.runs = {chosen.repeat, chosen.progress};
    for (int i = 0; i < chosen.repeat; ++i) {
        here.runtime.run(solve, config, work);
        about.milliseconds.push_back(here.runtime.timings().at(0));
        about.energy.add(here.runtime.energy());
        work.runs.next(about.milliseconds.back() * 1e-3);
    }
    const int failed = memory.failed_level();
    const std::vector<double> solution = chosen.verify ? memory.collect() : std::vector<double>();
    if (chosen.tells_parts)
        for (const double each : memory.part_times()) about.parts_us.push_back(each / chosen.repeat / chosen.solves);
    memory.close();
    if (!here.first()) return 0;
    if (failed >= 0)
        throw std::runtime_error("the residual is no number on level " + std::to_string(failed) + ", of " +
                                 std::to_string(cut.level(failed).side()) +
                                 "^3 cells: choose an --amplitude nearer to 1");
    about.residuals = memory.residuals();
    if (chosen.verify) {
        about.is_verified = true;
        about.is_equal = is_equal(memory, solution, finest, chosen);
    }
    common::write_report(chosen.json, in_words(about, chosen), as_json(about, chosen));
    return about.is_verified && !about.is_equal ? 1 : 0;
}

} // namespace
} // namespace hpgmg

int main(int argc, char** argv) {
    return common::run_program("hpgmg", argc, argv, hpgmg::parse_command_line, hpgmg::run);
}
