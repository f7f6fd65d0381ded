// SPDX-License-Identifier: BSD-3-Clause
// The Himeno benchmark, by ranks or by short kernels: docs/guide/himeno.md.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <span>
#include <string>
#include <sys/resource.h>
#include <vector>

#include "common/device_buffer.hpp"
#include "common/files.hpp"
#include "common/models/model.hpp"
#include "common/program.hpp"
#include "common/statistics.hpp"
#include "options.hpp"
#include "ranks.hpp"
#include "reference.hpp"
#include "report.hpp"
#include "short_kernels.hpp"

namespace himeno {

using common::device_buffer;

namespace {

auto kernel_of(const options& chosen) {
    if (chosen.devices.row_parts > 1) return chosen.is_fused ? solve<true, true> : solve<false, true>;
    return chosen.is_fused ? solve<true, false> : solve<false, false>;
}

// A device's arrays, in a window.
class slab_memory {
public:
    // Collective.
    slab_memory(dcuda::runtime& runtime, slab& described)
        : runtime_(runtime), slab_(described), points_(points_of(described)), pressure_(2 * points_) {
        for (int i = 0; i < coefficient_count; ++i) {
            coefficients_[i] = device_buffer<float>(points_);
            const std::vector<float> values(points_, coefficient(i));
            coefficients_[i].upload(values.data(), points_);
            slab_.coefficients[i] = coefficients_[i].data();
        }
        slab_.pressure[0] = pressure_.data();
        slab_.pressure[1] = pressure_.data() + points_;
        // Ranks of a device offer the same memory, and read what is put there without being told of it one by one.
        slab_.window = runtime_.create_window(pressure_.data(), pressure_.bytes(), dcuda::window_kind::direct);
    }
    // Collective, when nothing has failed. Then no other process maps the pressure any more.
    void close() { runtime_.free_window(slab_.window); }
    slab_memory(const slab_memory&) = delete;
    slab_memory& operator=(const slab_memory&) = delete;

    void load_start() {
        const range stored = slab_.stored(slab_.device);
        std::vector<float> start(points_);
        for (int i = stored.first; i < stored.last; ++i)
            std::fill_n(start.begin() + static_cast<std::ptrdiff_t>(slab_.place(slab_.device, i, slab_.first_row, 0)),
                        slab_.plane_stride, start_of(slab_.whole, i));
        for (const std::size_t at : {std::size_t{0}, start.size()}) pressure_.upload(start.data(), start.size(), at);
    }

    // All points after so many steps, on process 0; elsewhere nothing. Collective.
    outcome collect(int steps) {
        std::vector<float> own(points_);
        pressure_.download(own.data(), points_, steps % 2 == 0 ? 0 : points_);
        const std::vector<std::vector<float>> parts = runtime_.gather(std::span<const float>(own));
        outcome result;
        if (!parts.empty()) result.pressure.resize(slab_.whole.points());
        for (int device = 0; device < static_cast<int>(parts.size()); ++device)
            copy_part(device, parts[static_cast<std::size_t>(device)], result.pressure);
        survey(result);
        return result;
    }

private:
    // The planes and rows that a device computes, and the boundary's beside them, to the whole grid.
    void copy_part(int device, const std::vector<float>& part, std::vector<float>& pressure) const {
        const grid& whole = slab_.whole;
        const range planes = slab_.planes.of_device(slab_.plane_part(device));
        range rows = slab_.computed_rows(device);
        if (rows.first == 1) rows.first = 0;
        if (rows.last == whole.nj - 1) rows.last = whole.nj;
        const auto points = static_cast<std::ptrdiff_t>(rows.count()) * whole.nk;
        for (int i = planes.first; i < planes.last; ++i)
            std::copy_n(part.begin() + static_cast<std::ptrdiff_t>(slab_.place(device, i, rows.first, 0)), points,
                        pressure.begin() + static_cast<std::ptrdiff_t>(std::size_t(i) * whole.plane()) +
                            static_cast<std::ptrdiff_t>(rows.first) * whole.nk);
    }

    // Of an array. The device that has most decides for all.
    static std::size_t points_of(const slab& described) {
        std::size_t most = 0;
        for (int device = 0; device < described.device_count(); ++device)
            most = std::max(most, described.array_points(device));
        if (most >> 32 != 0)
            throw common::agreed_error("a device would have " + std::to_string(most) +
                                       " points, and can number 2^32: use more devices, or a smaller size");
        return described.array_points(described.device);
    }

    dcuda::runtime& runtime_;
    slab& slab_;
    std::size_t points_; // of an array
    std::array<device_buffer<float>, coefficient_count> coefficients_;
    device_buffer<float> pressure_;
};

// Seconds that the processor has worked for this process so far.
double processor_seconds() {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    };
    return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// So many that a thread has some points of a row in all planes of the device with the most.
int choose_threads(const task& work) {
    if (!DCUDA_BACKEND_CUDA) return common::default_threads;
    int planes = 0;
    for (int device = 0; device < work.device_count(); ++device)
        planes = std::max(planes, work.computed_by(device).count());
    const int points = planes * (work.whole.nk - 2);
    int threads = 1024;
    while (threads > common::default_threads && points < 3 * threads) threads /= 2;
    return threads;
}

void solve_by_ranks(common::session& here, const options& chosen, task& work, slab_memory& memory, report& about) {
    const int threads = chosen.threads > 0 ? chosen.threads : choose_threads(work);
    dcuda::launch_config config{dim3(static_cast<unsigned>(threads)),
                                static_cast<std::size_t>(threads) * sizeof(double), chosen.ranks};
    config.ranks_per_device = common::choose_ranks(here, kernel_of(chosen), config, work.rows.of_device(0).count());
    about.ranks_per_device = config.ranks_per_device;
    about.threads = threads;
    const device_buffer<double> gosa(1);
    work.rows.ranks_per_device = config.ranks_per_device;
    work.steps = chosen.steps;
    work.sums_every_step = chosen.sums_every_step;
    work.gosa = gosa.data();
    work.runs = {chosen.repeat, chosen.progress};
    for (int i = 0; i < chosen.repeat; ++i) {
        memory.load_start();
        const double before = processor_seconds();
        work.runs.next(measure::seconds_of([&] { here.runtime.run(kernel_of(chosen), config, work); }));
        about.processor_seconds = processor_seconds() - before;
        about.milliseconds.push_back(here.runtime.timings().at(0));
        about.energy.add(here.runtime.energy());
    }
    gosa.download(&about.found.gosa, 1);
}

void solve_by_short_kernels(common::session& here, const options& chosen, const slab& work, slab_memory& memory,
                            report& about) {
    const auto way = make_short_kernels(here.runtime, chosen, work);
    about.communication = way->describe();
    common::kernel_energy energy(!chosen.json.empty(), here.job);
    for (int i = 0; i < chosen.repeat; ++i) {
        memory.load_start();
        const double before = processor_seconds();
        const double own = way->run(energy);
        about.processor_seconds = processor_seconds() - before;
        about.energy.add(energy.last());
        double slowest = own;
        for (const double each : here.runtime.gather(own)) slowest = std::max(slowest, each);
        about.milliseconds.push_back(slowest);
    }
    for (const double each : here.runtime.gather(way->gosa())) about.found.gosa += each;
}

// Whether the result is the serial reference's: the changes are added in another order here, in double precision.
bool is_equal(const outcome& found, const outcome& expected) {
    return found.pressure == expected.pressure && found.crc == expected.crc &&
           std::abs(found.gosa - expected.gosa) <= 1e-12 * expected.gosa;
}

// Each device gets a plane, and a row that is computed.
void require_enough(int count, const char* lines, int parts) {
    if (count < parts)
        throw common::agreed_error(std::to_string(count) + " " + lines + " are too few for " + std::to_string(parts) +
                                   " devices: use a larger size, or fewer devices");
}

device_grid choose_grid(device_grid asked, int devices) {
    if (asked.plane_parts == 0) return {devices, 1};
    if (asked.plane_parts * asked.row_parts != devices)
        throw common::agreed_error("--grid " + std::to_string(asked.plane_parts) + "x" +
                                   std::to_string(asked.row_parts) + " takes " +
                                   std::to_string(asked.plane_parts * asked.row_parts) + " processes, but " +
                                   std::to_string(devices) + " were started");
    return asked;
}

} // namespace

int run(common::session& here, const options& chosen) {
    const device_grid devices = choose_grid(chosen.devices, here.job.process_count);
    require_enough(chosen.whole.ni, "planes", devices.plane_parts);
    require_enough(chosen.whole.nj - 2, "rows that are computed", devices.row_parts);
    task work{{chosen.whole, devices, here.job.process_index}};
    slab_memory memory(here.runtime, work);
    report about;
    about.devices = here.job.process_count;
    about.grid_of_devices = devices;
    about.backend = common::backend;
    if (chosen.control == "rank")
        solve_by_ranks(here, chosen, work, memory, about);
    else
        solve_by_short_kernels(here, chosen, work, memory, about);
    const double gosa = about.found.gosa;
    about.found = memory.collect(chosen.steps);
    about.found.gosa = gosa;
    memory.close();
    if (!here.first()) return 0;
    if (chosen.verify) {
        about.is_verified = true;
        about.is_equal = is_equal(about.found, solve_serially(chosen.whole, chosen.steps));
    }
    common::write_report(chosen.json, in_words(about, chosen), as_json(about, chosen));
    return about.is_verified && !about.is_equal ? 1 : 0;
}

} // namespace himeno

int main(int argc, char** argv) {
    const bool is_in_graphs = common::value_of("--control", argc, argv) == "host-graph";
    common::start_program_of_model("himeno", argc, argv, "--carrier", is_in_graphs ? "nccl" : "");
    return common::run_program("himeno", argc, argv, himeno::parse_command_line, himeno::run);
}
