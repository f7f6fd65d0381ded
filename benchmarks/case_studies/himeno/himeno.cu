// SPDX-License-Identifier: BSD-3-Clause
// The Himeno benchmark by ranks: docs/guide/himeno.md.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "common/device_buffer.hpp"
#include "common/files.hpp"
#include "common/program.hpp"
#include "common/statistics.hpp"
#include "options.hpp"
#include "ranks.hpp"
#include "reference.hpp"
#include "report.hpp"

namespace himeno {

using common::device_buffer;

namespace {

auto kernel_of(const options& chosen) { return chosen.is_fused ? solve<true> : solve<false>; }

// A device's arrays.
class solver {
public:
    solver(dcuda::runtime& runtime, const options& chosen, const task& planned, const dcuda::launch_config& config)
        : runtime_(runtime), chosen_(chosen), work_(planned), config_(config),
          pressure_(2 * planned.array_points(planned.device)), gosa_(1) {
        const std::size_t points = work_.array_points(work_.device);
        for (int i = 0; i < coefficient_count; ++i) {
            coefficients_[i] = device_buffer<float>(points);
            const std::vector<float> values(points, coefficient(i));
            coefficients_[i].upload(values.data(), points);
            work_.coefficients[i] = coefficients_[i].data();
        }
        work_.pressure[0] = pressure_.data();
        work_.pressure[1] = pressure_.data() + points;
        work_.gosa = gosa_.data();
        work_.runs = {chosen.repeat, chosen.progress};
        // Ranks of a device offer the same memory, and read what is put there without being told of it one by one.
        work_.window = runtime_.create_window(pressure_.data(), pressure_.bytes(), dcuda::window_kind::direct);
    }
    // Collective, when nothing has failed. Then no other process maps the pressure any more.
    void close() { runtime_.free_window(work_.window); }
    solver(const solver&) = delete;
    solver& operator=(const solver&) = delete;

    // All steps, from the beginning; the milliseconds that they took.
    double run() {
        const range stored = work_.stored(work_.device);
        std::vector<float> start(work_.array_points(work_.device));
        for (int i = stored.first; i < stored.last; ++i)
            std::fill_n(start.begin() + static_cast<std::ptrdiff_t>(work_.place(work_.device, i, 0, 0)),
                        work_.whole.plane(), start_of(work_.whole, i));
        for (const std::size_t at : {std::size_t{0}, start.size()}) pressure_.upload(start.data(), start.size(), at);
        work_.runs.next(measure::seconds_of([&] { runtime_.run(kernel_of(chosen_), config_, work_); }));
        return runtime_.timings().at(0);
    }

    // On process 0; elsewhere nothing.
    outcome collect() {
        const std::size_t points = work_.array_points(work_.device), plane = work_.whole.plane();
        std::vector<float> own(points - 2 * plane);
        pressure_.download(own.data(), own.size(), (work_.steps % 2 == 0 ? 0 : points) + plane);
        outcome result;
        for (const std::vector<float>& part : runtime_.gather(std::span<const float>(own)))
            result.pressure.insert(result.pressure.end(), part.begin(), part.end());
        gosa_.download(&result.gosa, 1);
        survey(result);
        return result;
    }

private:
    dcuda::runtime& runtime_;
    const options& chosen_;
    task work_;
    dcuda::launch_config config_;
    std::array<device_buffer<float>, coefficient_count> coefficients_;
    device_buffer<float> pressure_;
    device_buffer<double> gosa_;
};

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
    work.steps = chosen.steps;
    work.sums_every_step = chosen.sums_every_step;
    const int threads = chosen.threads > 0 ? chosen.threads : common::default_threads;
    dcuda::launch_config config{dim3(static_cast<unsigned>(threads)),
                                static_cast<std::size_t>(threads) * sizeof(double), chosen.ranks};
    config.ranks_per_device = common::choose_ranks(here, kernel_of(chosen), config, std::max(1, chosen.whole.nj - 2));
    work.rows = {chosen.whole.nj - 2, 1, config.ranks_per_device};

    solver solve_it(here.runtime, chosen, work, config);
    report about{devices, config.ranks_per_device, threads, common::backend};
    for (int i = 0; i < chosen.repeat; ++i) about.milliseconds.push_back(solve_it.run());
    about.found = solve_it.collect();
    solve_it.close();
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
    return common::run_program("himeno", argc, argv, himeno::parse_command_line, himeno::run);
}
