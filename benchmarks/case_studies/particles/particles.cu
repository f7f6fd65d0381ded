// SPDX-License-Identifier: BSD-3-Clause
// Particles with short-range forces on all devices of a job: docs/guide/particles.md.
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
#include "kernels.hpp"
#include "models/model.hpp"
#include "on_chip.hpp"
#include "options.hpp"
#include "reference.hpp"
#include "report.hpp"
#include "start.hpp"

namespace particles {

using common::check_writable;
using common::device_buffer;

namespace {

// --- Sizes ---------------------------------------------------------------------------------------------------------

domain choose_domain(const options& chosen, int devices) {
    const long long segments = static_cast<long long>(chosen.height) * devices;
    if (segments > (1LL << 30))
        throw common::agreed_error("more than 2^30 segments (height times devices): use a smaller --height");
    return {chosen.width, static_cast<int>(segments), static_cast<long long>(chosen.particles) * devices};
}

int usual_capacity(const domain& whole, double spare) {
    const double usual = static_cast<double>(whole.particles) / whole.segments * (1.0 + spare);
    return static_cast<int>(std::min(usual, double(1 << 30))) + default_spare_count;
}

void refuse_too_small(int capacity, const domain& whole) {
    const int fullest = start_count(whole, 0); // the first segments get what does not divide
    if (capacity < fullest)
        throw std::runtime_error("segment 0 has " + std::to_string(fullest) +
                                 " particles at the start, more than its capacity of " + std::to_string(capacity) +
                                 ": raise --capacity");
}

// Who has which particles, and how the kernels of ranks are launched.
struct plan {
    dcuda::launch_config config;
    cell_partition parts;              // of segments; on a chip of cells
    int capacity = 0;                  // of a segment
    std::optional<chip_layout> layout; // where ranks keep their particles in shared memory
};

// Whether a rank sorts in shared memory: if four have room on a multiprocessor, and some is left for its cache.
std::size_t shared_bytes_for(const domain& whole, int capacity) {
    const std::size_t bytes = sort_space::bytes_of(whole.columns, capacity);
    return bytes <= most_sort_bytes ? bytes : 0;
}
auto kernel_for(const dcuda::launch_config& config) {
    return config.shared_bytes > 0 ? simulate<true> : simulate<false>;
}

// No rank is without a segment.
plan plan_in_memory(common::session& here, const options& chosen, const domain& whole) {
    const bool is_dcuda = chosen.model == "dcuda";
    const int capacity = chosen.capacity > 0 ? chosen.capacity : usual_capacity(whole, default_spare);
    const int threads = chosen.threads > 0 ? chosen.threads
                        : is_dcuda         ? common::default_threads
                                           : default_model_threads;
    const std::size_t shared_bytes = is_dcuda ? shared_bytes_for(whole, capacity) : 0;
    plan result{{dim3(static_cast<unsigned>(threads)), shared_bytes, is_dcuda ? chosen.ranks : 1},
                {{whole.segments, here.job.process_count, 1}},
                capacity,
                {}};
    if (is_dcuda) {
        const int ranks = common::choose_ranks(here, kernel_for(result.config), result.config, chosen.height);
        if (ranks > chosen.height)
            throw std::runtime_error(std::to_string(ranks) + " ranks per device, but only " +
                                     std::to_string(chosen.height) +
                                     " segments: ask for fewer --ranks or a larger --height");
        result.config.ranks_per_device = result.parts.ranks_per_device = ranks;
    }
    return result;
}

// With so many ranks of so many threads on a device, and their particles in shared memory. Nothing, or an error that
// says which resource is too small, if that cannot be.
std::optional<plan> plan_on_chip(common::session& here, const options& chosen, const domain& whole, int ranks,
                                 int threads) {
    const int capacity = chosen.capacity > 0 ? chosen.capacity : usual_capacity(whole, shared_spare);
    plan result{{dim3(static_cast<unsigned>(threads)), 0, ranks},
                {{whole.columns * whole.segments, here.job.process_count, ranks}},
                capacity,
                {}};
    // A neighbour sees the border of a rank, and nothing behind it.
    const int border = whole.columns + 1;
    const int usual = result.parts.of_device(0).count() / ranks;
    result.parts.relief = std::max(0, std::min(static_cast<int>(usual_relief * usual), usual - border - 1));
    int cells = 0, fewest = result.parts.rows;
    for (int rank = 0; rank < ranks * here.job.process_count; ++rank) {
        cells = std::max(cells, result.parts.of_rank(rank).count());
        fewest = std::min(fewest, result.parts.of_rank(rank).count());
    }
    if (fewest < border && ranks * here.job.process_count > 1) return {};
    const auto room_of = [&](int in_cells) { return static_cast<double>(capacity) * in_cells / whole.columns + 1.0; };
    if (room_of(cells) > sorted_per_thread * threads) return {};
    const int room = static_cast<int>(room_of(cells)), border_room = static_cast<int>(room_of(std::min(border, cells)));
    result.layout = chip_layout(cells, border, room, border_room);
    result.config.shared_bytes = static_cast<std::size_t>(result.layout->bytes);
    here.runtime.plan(simulate_on_chip, result.config);
    return result;
}

// The same with as many ranks as asked for; else with one on every multiprocessor.
std::optional<plan> plan_on_chip(common::session& here, const options& chosen, const domain& whole) try {
    // Cells are counted, and particles numbered, by int.
    constexpr long long most = 1LL << 30;
    if (static_cast<long long>(whole.columns) * whole.segments > most || whole.particles > most) return {};
    const int multiprocessors = here.multiprocessors(), device_cells = whole.columns * chosen.height;
    const int usual = DCUDA_BACKEND_CUDA ? most_threads : common::default_threads;
    const int threads = chosen.threads > 0 ? chosen.threads : usual;
    if (threads > most_threads) return {};
    int ranks = multiprocessors;
    if (chosen.ranks > 0 || here.asked_for_ranks || !DCUDA_BACKEND_CUDA) {
        const dcuda::launch_config config{dim3(static_cast<unsigned>(threads)), 0, chosen.ranks};
        ranks = common::choose_ranks(here, simulate_on_chip, config, device_cells / (whole.columns + 1));
    }
    return plan_on_chip(here, chosen, whole, ranks, threads);
} catch (const dcuda::error& problem) {
    if (problem.code() != dcuda::error_code::out_of_resources) throw;
    return {};
}

plan make_plan(common::session& here, const options& chosen, const domain& whole) {
    if (chosen.capacity > 0) refuse_too_small(chosen.capacity, whole);
    if (chosen.model == "dcuda" && chosen.memory != place::device) {
        if (const auto result = plan_on_chip(here, chosen, whole)) return *result;
        if (chosen.memory == place::shared)
            throw std::runtime_error(
                "--memory shared: the particles do not fit into the shared memory of a device, or there are so many "
                "ranks that one has no more cells than a segment: use other sizes, --ranks or --threads");
    }
    return plan_in_memory(here, chosen, whole);
}

// --- The run -------------------------------------------------------------------------------------------------------

// A device's particles.
class solver {
public:
    virtual ~solver() = default;
    // Moves the particles from their start; the milliseconds that the steps took. All processes get the same tallies.
    virtual double run() = 0;
    // What the exchanges alone take, where that is known.
    virtual double run_exchanges() { return 0.0; }
    virtual std::string describe_model() const { return {}; }
    // All particles on process 0, by number; none elsewhere.
    virtual std::vector<particle> collect() = 0;

protected:
    // `known` gets the tallies of the last run.
    solver(dcuda::runtime& runtime, const plan& planned, std::vector<tally>& known)
        : runtime_(runtime), config_(planned.config), device_(runtime.info().process_index),
          tallies_(static_cast<std::size_t>(planned.parts.ranks_per_device)),
          known_(tallies_.count() * static_cast<std::size_t>(planned.parts.devices)), known_by_all_(known) {}

    // The steps; the milliseconds that they took.
    template <class Task>
    double run_ranks(void (*kernel)(dcuda::context, Task), Task& work) {
        const std::vector<tally> empty(tallies_.count());
        tallies_.upload(empty.data(), empty.size());
        work.runs.next(measure::seconds_of([&] { runtime_.run(kernel, config_, work); }));
        known_by_all_.resize(known_.count());
        known_.download(known_by_all_.data(), known_by_all_.size());
        return runtime_.timings().at(0);
    }

    // The kernel puts lists of so many bytes to `all_`.
    template <class Task>
    std::vector<particle> collect_from(void (*kernel)(dcuda::context, Task, std::byte*), const Task& work,
                                       std::size_t list_bytes) {
        runtime_.run(kernel, {config_.threads, 0, config_.ranks_per_device}, work, all_.data());
        if (device_ != 0) return {};
        std::vector<std::byte> lists(all_.bytes());
        all_.download(lists.data(), lists.size());
        std::vector<particle> result(static_cast<std::size_t>(work.whole.particles), particle{{}, {}, -1});
        for (std::size_t at = 0; at < lists.size(); at += list_bytes) {
            const list_view list{reinterpret_cast<list_view::head*>(lists.data() + at)};
            for (const particle* p = list.items(); p != list.items() + list.count(); ++p)
                result.at(static_cast<std::size_t>(p->number)) = *p;
        }
        return result;
    }

    dcuda::runtime& runtime_;
    dcuda::launch_config config_;
    int device_;
    device_buffer<tally> tallies_, known_;
    device_buffer<std::byte> all_; // process 0's, to verify
    std::vector<tally>& known_by_all_;
};

// In device memory.
class solver_in_memory : public solver {
public:
    solver_in_memory(dcuda::runtime& runtime, const options& chosen, const domain& whole, const plan& planned,
                     std::vector<tally>& known)
        : solver(runtime, planned, known) {
        const partition& segments = planned.parts;
        const dcuda::launch_config& config = planned.config;
        const int capacity = planned.capacity;
        work_.whole = whole;
        work_.segments = segments;
        work_.device = device_;
        work_.stored = with_halo(segments.of_device(device_));
        work_.capacity = capacity;
        work_.steps = chosen.steps;
        work_.time_step = chosen.time_step;
        work_.runs = {chosen.repeat, chosen.progress};

        const auto stored = static_cast<std::size_t>(work_.stored.count());
        const auto ranks = static_cast<std::size_t>(segments.ranks_per_device);
        const std::size_t slots = stored * static_cast<std::size_t>(capacity);
        blocks_ = device_buffer<std::byte>(stored * work_.block_bytes());
        lists_ = device_buffer<std::byte>(stored * 3 * work_.list_bytes());
        moved_ = device_buffer<vector>(slots);
        for (int turn = 0; turn < 2; ++turn) {
            velocities_[turn] = device_buffer<vector>(slots);
            numbers_[turn] = device_buffer<long long>(slots);
            work_.velocities[turn] = velocities_[turn].data();
            work_.numbers[turn] = numbers_[turn].data();
        }
        forces_ = device_buffer<vector>(slots);
        if (chosen.model == "dcuda" && config.shared_bytes == 0)
            scratch_ = device_buffer<std::byte>(ranks * sort_space::bytes_of(whole.columns, capacity));
        work_.blocks = blocks_.data();
        work_.lists = lists_.data();
        work_.moved = moved_.data();
        work_.forces = forces_.data();
        work_.scratch = scratch_.data();
        work_.tallies = tallies_.data();
        work_.known = known_.data();

        // No particles beyond the walls: the blocks there stay as they are.
        blocks_.clear();
        first_lists_ = lists_at_start(chosen.seed);
        if (device_ == 0 && chosen.verify)
            all_ = device_buffer<std::byte>(static_cast<std::size_t>(whole.segments) * work_.list_bytes());
        if (chosen.model != "dcuda")
            model_ = models::make(chosen.model, {chosen, work_, static_cast<int>(config.threads.x), known});
    }

    double run() override {
        lists_.upload(first_lists_.data(), first_lists_.size());
        if (model_ != nullptr) return model_->run();
        return run_ranks(kernel_for(config_), work_);
    }

    double run_exchanges() override { return model_ != nullptr ? model_->exchange_alone() : 0.0; }
    std::string describe_model() const override { return model_ != nullptr ? model_->describe() : ""; }

    std::vector<particle> collect() override { return collect_from(gather, work_, work_.list_bytes()); }

private:
    // At the start all particles stay where they are.
    std::vector<std::byte> lists_at_start(std::uint64_t seed) const {
        std::vector<std::byte> lists(lists_.bytes());
        task here = work_;
        here.lists = lists.data();
        for (const particle& p : start_of(work_.whole, work_.segments.of_device(device_), seed)) {
            const list_view list = here.list(work_.whole.segment_of(p.at.y), leaving::not_at_all);
            list.items()[list.count()++] = p;
        }
        return lists;
    }

    device_buffer<std::byte> blocks_, lists_, scratch_;
    device_buffer<vector> moved_, velocities_[2], forces_;
    device_buffer<long long> numbers_[2];
    std::vector<std::byte> first_lists_;
    task work_;
    std::unique_ptr<common::model> model_; // null: dCUDA
};

// In shared memory.
class solver_on_chip : public solver {
public:
    solver_on_chip(dcuda::runtime& runtime, const options& chosen, const domain& whole, const plan& planned,
                   std::vector<tally>& known)
        : solver(runtime, planned, known) {
        work_.whole = whole;
        work_.cells = planned.parts;
        work_.layout = *planned.layout;
        work_.steps = chosen.steps;
        work_.time_step = chosen.time_step;
        work_.runs = {chosen.repeat, chosen.progress};

        const auto ranks = static_cast<std::size_t>(config_.ranks_per_device);
        const std::size_t places = 2 * (ranks + 2);
        particles_ = device_buffer<std::byte>(ranks * work_.particle_bytes());
        blocks_ = device_buffer<std::byte>(places * work_.block_bytes());
        lists_ = device_buffer<std::byte>(places * work_.list_bytes());
        forces_ = device_buffer<vector>(ranks * static_cast<std::size_t>(work_.layout.room));
        work_.particles = particles_.data();
        work_.blocks = blocks_.data();
        work_.lists = lists_.data();
        work_.forces = forces_.data();
        work_.tallies = tallies_.data();
        work_.known = known_.data();
        start_ = lists_at_start(chosen.seed);
        if (device_ == 0 && chosen.verify)
            all_ = device_buffer<std::byte>(ranks * static_cast<std::size_t>(work_.cells.devices) *
                                            work_.particle_bytes());
    }

    double run() override {
        particles_.upload(start_.data(), start_.size());
        // Where there is no neighbour, nothing comes from it.
        blocks_.clear();
        lists_.clear();
        return run_ranks(simulate_on_chip, work_);
    }

    std::vector<particle> collect() override { return collect_from(gather_from_ranks, work_, work_.particle_bytes()); }

private:
    std::vector<std::byte> lists_at_start(std::uint64_t seed) const {
        std::vector<std::byte> lists(particles_.bytes());
        chip_task here = work_;
        here.particles = lists.data();
        const partition segments{work_.whole.segments, work_.cells.devices, 1};
        for (const particle& p : start_of(work_.whole, segments.of_device(device_), seed)) {
            const int rank = work_.cells.owner(work_.whole.cell_of(p.at));
            const list_view list = here.particles_of(rank);
            if (list.count() == work_.layout.room)
                throw std::runtime_error("rank " + std::to_string(rank) + " has more than the " +
                                         std::to_string(work_.layout.room) +
                                         " particles at the start that it has room for: raise --capacity");
            list.items()[list.count()++] = p;
        }
        return lists;
    }

    device_buffer<std::byte> particles_, blocks_, lists_;
    device_buffer<vector> forces_;
    std::vector<std::byte> start_;
    chip_task work_;
};

// --- What the tallies say, on all processes alike ------------------------------------------------------------------

tally add_up(const std::vector<tally>& known) {
    tally sum;
    for (const tally& one : known) sum += one;
    return sum;
}

totals totals_of(const tally& sum) {
    return {static_cast<long long>(sum.count),
            static_cast<long long>(sum.partners / 2),
            sum.fullest,
            {sum.momentum_before, sum.energy_before},
            {sum.momentum, sum.energy},
            sum.walls};
}

// Why the run failed, as the rank that was first to fail tells it; nothing if it did not.
std::string tell(const failure& first, const options& chosen, int capacity) {
    const std::string when = "step " + std::to_string(first.step) + ": ";
    switch (first.cause) {
    case failure::overfull:
        return when + "segment " + std::to_string(first.segment) + " has " + std::to_string(first.count) +
               " particles, more than its capacity of " + std::to_string(capacity) + ": raise --capacity";
    case failure::too_fast:
        return when + "particle " + std::to_string(first.number) + " in segment " + std::to_string(first.segment) +
               " moves by " + std::to_string(first.velocity.x * chosen.time_step) + " in x and " +
               std::to_string(first.velocity.y * chosen.time_step) +
               " in y, but less than the cut-off of 1 is allowed: use a smaller --time-step";
    case failure::crowded:
        return when + "more than " + std::to_string(first.count) + " particles leave segment " +
               std::to_string(first.segment) +
               " for another device, for which its messages have no room: raise --capacity";
    case failure::full_rank:
        return when + "rank " + std::to_string(first.segment) + " gets " + std::to_string(first.count) +
               " particles, and it or its border has no room for them in shared memory: raise --capacity, or use "
               "--memory device";
    default:
        return {};
    }
}

// --- Results, on process 0 -----------------------------------------------------------------------------------------

// Compares a run's result with the serial reference, which is computed at the first.
void verify(report& about, const options& chosen, std::vector<particle>& expected, const std::vector<particle>& after) {
    if (!about.verified) {
        about.verified.emplace();
        expected = start_of(about.whole, {0, about.whole.segments}, chosen.seed);
        about.verified->reference_seconds =
            measure::seconds_of([&] { move_serially(expected, about.whole, chosen.steps, chosen.time_step); });
    }
    if (about.verified->worst.equal()) about.verified->worst = compare(expected, after);
}

} // namespace

int run(common::session& here, const options& chosen) {
    dcuda::runtime& runtime = here.runtime;
    const dcuda::rank_info job = here.job;
    const bool first = here.first();
    if (!chosen.json.empty() && chosen.json != "-") common::do_on_first(here, [&] { check_writable(chosen.json); });

    const domain whole = choose_domain(chosen, job.process_count);
    const bool is_dcuda = chosen.model == "dcuda";
    const plan planned = make_plan(here, chosen, whole);
    const int capacity = planned.capacity;
    std::vector<tally> known;
    std::unique_ptr<solver> solve;
    if (planned.layout)
        solve = std::make_unique<solver_on_chip>(runtime, chosen, whole, planned, known);
    else
        solve = std::make_unique<solver_in_memory>(runtime, chosen, whole, planned, known);

    report about{whole,
                 planned.parts,
                 planned.layout ? planned.layout->cells : planned.parts.of_rank(0).count(),
                 planned.layout.has_value(),
                 planned.layout ? planned.layout->room : capacity,
                 static_cast<int>(planned.config.threads.x),
                 common::backend,
                 solve->describe_model(),
                 0,
                 {},
                 {},
                 {},
                 {}};
    if (!is_dcuda) about.message_bytes = message_bytes(capacity, chosen.time_step);
    std::vector<particle> expected;
    for (int i = 0; i < chosen.repeat; ++i) {
        about.milliseconds.push_back(solve->run());
        if (is_dcuda) about.energy.add(runtime.energy());
        const tally sum = add_up(known);
        about.counted = totals_of(sum);
        std::string problem = tell(sum.failed, chosen, capacity);
        if (problem.empty()) problem = violated_conservation(about.counted, whole, chosen.steps);
        if (!problem.empty()) throw common::agreed_error(problem);
        about.exchange_milliseconds.push_back(solve->run_exchanges());
        if (!chosen.verify) continue;
        const std::vector<particle> after = solve->collect();
        if (first) verify(about, chosen, expected, after);
    }
    if (!first) return 0;
    common::write_report(chosen.json, in_words(about, chosen), as_json(about, chosen));
    return about.verified && !about.verified->worst.equal() ? 1 : 0;
}

} // namespace particles

int main(int argc, char** argv) {
    common::start_program_of_model("particles", argc, argv);
    return common::run_program("particles", argc, argv, particles::parse_command_line, particles::run);
}
