// SPDX-License-Identifier: BSD-3-Clause
// Power iteration on all devices of a job: docs/guide/power_iteration.md.
#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/statistics.hpp"
#include "labels.hpp"
#include "models/model.hpp"
#include "power_kernel.hpp"
#include "report.hpp"
#include "setup.hpp"

namespace sparse {

__global__ void __launch_bounds__(most_threads) iterate(dcuda::context context, task work, goal wanted) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    common::progress reported(self, "power_iteration", "iteration", wanted.iterations, work.runs);
    iterate_as(self, work, wanted, [&](int done) { reported.done(done); });
}

namespace {

// The start of an iteration, of length 1. A matrix that turns one start into another eigenvector than the dominant one
// does not do so with both: elements of the first are positive, those of the second have either sign.
class start_vector {
public:
    start_vector(std::uint64_t seed, int number, int size) : seed_(seed), number_(number) {
        double squares = 0.0;
        for (int i = 0; i < size; ++i) squares += raw(i) * raw(i);
        length_ = std::sqrt(squares);
    }
    double operator()(int index) const { return raw(index) / length_; }

private:
    double raw(int index) const {
        const double random = random_element(seed_, number_, index);
        return number_ == 0 ? 0.5 + random : 2.0 * random - 1.0;
    }

    std::uint64_t seed_;
    int number_;
    double length_ = 1.0;
};

// Whether the iteration is done once more at the end, from another start, to see that both come to the same.
bool has_second_start(const power_options& chosen) { return chosen.tolerance > 0.0; }

// Runs the kernel on a device.
class solver {
public:
    solver(common::session& here, const power_options& chosen, const problem& from, const dcuda::launch_config& config)
        : here_(here), goal_{chosen.iterations, chosen.tolerance},
          part_(here, chosen, from, config,
                chosen.has_ranks() ? board::bytes(from.whole) : bytes_with_records(from.whole),
                chosen.repeat + (has_second_start(chosen) ? 1 : 0)) {
        if (chosen.model != "dcuda")
            model_ = models::make(chosen.model, {part_.work(), static_cast<int>(config.threads.x), 0, true, goal_});
    }

    // What the iteration came to; what it found is on process 0 alone.
    discovery run(const start_vector& start) {
        part_.set_vector(start);
        const board empty;
        part_.write(0, &empty, 1);
        if (model_) {
            milliseconds_ = model_->run();
        } else {
            milliseconds_ = part_.run(iterate, goal_);
            energy_ = here_.runtime.energy();
        }
        const board after = part_.read<board>();
        told_ = after.told;
        return {told_, after.found, {}};
    }

    // The vector that the last run ended with, on process 0.
    std::vector<double> collect() {
        std::vector<double> result = part_.collect(gathered::vector, told_.iterations % layout::vectors);
        for (double& element : result) element *= told_.factor;
        return result;
    }

    // What the exchanges of the last run alone take, where that is known. The vector is lost.
    double run_exchanges() { return model_ ? model_->exchange_alone() : 0.0; }

    double milliseconds() const { return milliseconds_; }
    const std::optional<dcuda::run_energy>& energy() const { return energy_; } // empty: of no run of dCUDA
    std::string describe_model() const { return model_ ? model_->describe() : ""; }
    const goal& wanted() const { return goal_; }
    int team() const { return part_.work().team; }

private:
    common::session& here_;
    goal goal_;
    device_part part_;
    std::unique_ptr<common::model> model_; // null: dCUDA
    double milliseconds_ = 0.0;
    std::optional<dcuda::run_energy> energy_;
    control told_;
};

std::vector<std::string> read_labels(const power_options& chosen, int rows) {
    if (chosen.labels.empty()) return {};
    std::vector<std::string> result = parse_labels(common::read_file(chosen.labels), chosen.labels);
    if (std::ssize(result) != rows)
        throw std::runtime_error(chosen.labels + " has " + std::to_string(result.size()) + " labels, but the matrix " +
                                 std::to_string(rows) + " rows");
    return result;
}

// Compares a run's result with the serial reference, which is computed at the first.
void verify(report& about, const power_options& chosen, const problem& from, const start_vector& start,
            const goal& wanted, iterated& expected, const discovery& seen, const std::vector<double>& vector) {
    if (!about.verified) {
        about.verified.emplace();
        const strips matrix = from.all(chosen);
        std::vector<double> x;
        for (int i = 0; i < about.whole.rows; ++i) x.push_back(start(i));
        about.verified->reference_seconds =
            measure::seconds_of([&] { expected = iterate_serially(matrix, about.whole, x, wanted); });
    }
    if (!about.verified->equal()) return;
    about.verified->worst = compare(expected.vector, vector);
    about.verified->same_course =
        expected.told.iterations == seen.told.iterations && expected.told.state == seen.told.state &&
        compare({expected.found.eigenvalue, expected.found.residual}, {seen.found.eigenvalue, seen.found.residual})
            .equal();
}

// Whether an iteration ended without an answer: all processes know.
bool has_failed(const control& told, const power_options& chosen) {
    return told.state == outcome::vanished || told.state == outcome::overflowed ||
           (told.state == outcome::enough && chosen.tolerance > 0.0);
}

int run(common::session& here, const power_options& chosen) {
    const bool first = here.first();
    std::vector<std::string> labels; // on process 0
    problem from = make_problem(here, chosen, 0, [&](const problem& read) {
        if (read.whole.rows != read.whole.columns)
            throw std::runtime_error(chosen.matrix + " is " + std::to_string(read.whole.rows) + " x " +
                                     std::to_string(read.whole.columns) + ": only a square matrix has eigenvalues");
        labels = read_labels(chosen, read.whole.rows);
    });
    const decomposition& whole = from.whole;
    const dcuda::launch_config config = choose_launch(here, chosen, from, iterate, {256, 1});
    solver solve(here, chosen, from, config);

    report about{whole,
                 0,
                 static_cast<int>(config.threads.x),
                 solve.team(),
                 config.shared_bytes > 0,
                 common::backend,
                 solve.describe_model(),
                 {},
                 {},
                 {}};
    const start_vector start(chosen.seed, 0, whole.rows);
    discovery seen;
    std::vector<double> vector;
    iterated expected;
    for (int i = 0; i < chosen.repeat; ++i) {
        seen = solve.run(start);
        about.milliseconds.push_back(solve.milliseconds());
        if (solve.energy()) about.energy.add(*solve.energy());
        if (has_failed(seen.told, chosen)) throw common::agreed_error(failure_of(seen, chosen));
        vector = solve.collect();
        if (first && chosen.verify) verify(about, chosen, from, start, solve.wanted(), expected, seen, vector);
        about.exchange_milliseconds.push_back(solve.run_exchanges());
    }
    if (has_second_start(chosen)) {
        const discovery second = solve.run(start_vector(chosen.seed, 1, whole.rows));
        const std::vector<double> other = solve.collect();
        common::do_on_first(here, [&] {
            const std::string failure = failure_of_second(second, distance(vector, other), chosen);
            if (!failure.empty()) throw std::runtime_error(failure);
        });
    }
    if (!first) return 0;
    about.entries = from.entries(chosen);
    seen.top = rank_rows(vector, labels, chosen.top);
    common::write_report(chosen.json, in_words(about, chosen, seen), as_json(about, chosen, seen));
    return about.verified && !about.verified->equal() ? 1 : 0;
}

} // namespace
} // namespace sparse

int main(int argc, char** argv) {
    common::start_program_of_model("power_iteration", argc, argv);
    return common::run_program("power_iteration", argc, argv, sparse::parse_power_iteration, sparse::run);
}
