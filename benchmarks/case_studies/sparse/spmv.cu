// SPDX-License-Identifier: BSD-3-Clause
// Sparse matrix times vector on all devices of a job: docs/guide/spmv.md.
#include <memory>
#include <vector>

#include "common/statistics.hpp"
#include "models/model.hpp"
#include "report.hpp"
#include "setup.hpp"

namespace sparse {

// Keeps registers at 64 per thread, so that any number of threads can be launched.
constexpr int most_threads = 1024;

// Multiplies the vector that the first row of devices holds.
__global__ void __launch_bounds__(most_threads) multiply(dcuda::context context, task work, int repetitions) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);

    const exchange messages(self, work);
    const bool receives = messages.at().row > 0; // the first row has the vector
    common::progress reported(self, "spmv", "repetition", repetitions, work.runs);

    self.barrier(dcuda::world); // windows are open everywhere
    self.start_timer();
    for (int repetition = 0; repetition < repetitions; ++repetition) {
        messages.pass_down(0, receives ? 1 : 0);
        if (receives) self.barrier(dcuda::device); // every rank's part of the vector is there
        messages.multiply(messages.vector(0), messages.product(0), 1.0);
        messages.add_along_row(messages.product(0));
        self.barrier(dcuda::world);
        reported.done(repetition + 1);
    }
    self.stop_timer();
    messages.close();
}

namespace {

// Compares a run's product with the serial reference, which is computed at the first.
void verify(report& about, const spmv_options& chosen, const problem& from, std::vector<double>& expected,
            const std::vector<double>& seen) {
    if (!about.verified) {
        about.verified.emplace();
        const strips matrix = from.all(chosen);
        std::vector<double> x;
        for (int column = 0; column < about.whole.columns; ++column)
            x.push_back(random_element(chosen.seed, 0, column));
        about.verified->reference_seconds =
            measure::seconds_of([&] { expected = multiply_serially(matrix, about.whole, x, 1.0); });
    }
    if (about.verified->worst.equal()) about.verified->worst = compare(expected, seen);
}

int run(common::session& here, const spmv_options& chosen) {
    problem from = make_problem(here, chosen, chosen.columns, [](const problem&) {});
    const dcuda::launch_config config = choose_launch(here, chosen, from, multiply, {1024, 2});
    device_part part(here, chosen, from, config, 0, chosen.repeat);
    part.set_vector([&](int column) { return random_element(chosen.seed, 0, column); });

    const auto threads = static_cast<int>(config.threads.x);
    std::unique_ptr<common::model> model; // null: dCUDA
    if (chosen.model != "dcuda")
        model = models::make(chosen.model, {part.work(), threads, chosen.repetitions, !chosen.no_barrier, {}});

    report about{from.whole,
                 0,
                 threads,
                 part.work().team,
                 part.work().on_chip_bytes > 0,
                 common::backend,
                 model ? model->describe() : "",
                 {},
                 {},
                 {}};
    std::vector<double> expected;
    for (int i = 0; i < chosen.repeat; ++i) {
        if (model) {
            about.milliseconds.push_back(model->run());
        } else {
            about.milliseconds.push_back(part.run(multiply, chosen.repetitions));
            about.energy.add(here.runtime.energy());
        }
        if (chosen.verify) {
            const std::vector<double> seen = part.collect(gathered::product, 0);
            if (here.first()) verify(about, chosen, from, expected, seen);
        }
        if (model) about.exchange_milliseconds.push_back(model->exchange_alone());
    }
    if (!here.first()) return 0;
    about.entries = from.entries(chosen);
    common::write_report(chosen.json, in_words(about, chosen), as_json(about, chosen));
    return about.verified && !about.verified->equal() ? 1 : 0;
}

} // namespace
} // namespace sparse

int main(int argc, char** argv) {
    common::start_program_of_model("spmv", argc, argv);
    return common::run_program("spmv", argc, argv, sparse::parse_spmv, sparse::run);
}
