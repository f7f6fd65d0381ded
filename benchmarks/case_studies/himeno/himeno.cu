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

auto kernel_of(const options& chosen) { return chosen.is_fused ? solve<true> : solve<false>; }

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
            std::fill_n(start.begin() + static_cast<std::ptrdiff_t>(slab_.place(slab_.device, i, 0, 0)),
                        slab_.whole.plane(), start_of(slab_.whole, i));
        for (const std::size_t at : {std::size_t{0}, start.size()}) pressure_.upload(start.data(), start.size(), at);
    }

    // All points after so many steps, on process 0; elsewhere nothing. Collective.
    outcome collect(int steps) {
        const std::size_t plane = slab_.whole.plane();
        std::vector<float> own(points_ - 2 * plane);
        pressure_.download(own.data(), own.size(), (steps % 2 == 0 ? 0 : points_) + plane);
        outcome result;
        for (const std::vector<float>& part : runtime_.gather(std::span<const float>(own)))
            result.pressure.insert(result.pressure.end(), part.begin(), part.end());
        survey(result);
        return result;
    }

private:
    // Of an array. The device that has most decides for all.
    static std::size_t points_of(const slab& described) {
        std::size_t most = 0;
        for (int device = 0; device < described.planes.devices; ++device)
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
    for (int device = 0; device < work.planes.devices; ++device)
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
    config.ranks_per_device = common::choose_ranks(here, kernel_of(chosen), config, std::max(1, chosen.whole.nj - 2));
    about.ranks_per_device = config.ranks_per_device;
    about.threads = threads;
    const device_buffer<double> gosa(1);
    work.rows = {chosen.whole.nj - 2, 1, config.ranks_per_device};
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

} // namespace

int run(common::session& here, const options& chosen) {
    const int devices = here.job.process_count;
    if (chosen.whole.ni < devices)
        throw common::agreed_error(std::to_string(chosen.whole.ni) + " planes are too few for " +
                                   std::to_string(devices) + " devices: use a larger size, or fewer devices");
    task work;
    work.whole = chosen.whole;
    work.planes = {chosen.whole.ni, devices, 1};
    work.device = here.job.process_index;
    slab_memory memory(here.runtime, work);
    report about;
    about.devices = devices;
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
