// SPDX-License-Identifier: BSD-3-Clause
// How far work hides communication: every rank alternates work with an exchange of borders with its two neighbours,
// over the number of ranks that share a multiprocessor. And the exchange of borders between devices alone.
#include "common/session.hpp"
#include "dcuda/dcuda.hpp"

#include <sstream>

namespace benchmark {
namespace {

constexpr int from_below = 0, from_above = 1; // tags, and which landing buffers

// Of each rank, one after the other: landing buffers (two sides, in turn), sources (in turn), two buffers to copy.
struct task {
    unsigned char* memory;
    std::size_t rank_bytes;
    std::size_t halo_stride; // between halo buffers
    std::uint32_t halo_words;
    std::size_t copy_bytes; // 0: no copy
    int newton;             // iterations of Newton's; 0: none
    int multiply_add;       // of multiply_add(); 0: none
    int distance;           // world ranks to the neighbours; 0: no exchange
    int steps, batches;
    interval* stamps;
    mistake* wrong;
};

struct rank_memory {
    unsigned char* base;
    const task& of;

    DCUDA_DEVICE std::size_t landing_offset(int side, int turn) const {
        return static_cast<std::size_t>(2 * side + turn) * of.halo_stride;
    }
    DCUDA_DEVICE std::uint32_t* landing(int side, int turn) const { return words(landing_offset(side, turn)); }
    DCUDA_DEVICE std::uint32_t* source(int turn) const {
        return words(static_cast<std::size_t>(4 + turn) * of.halo_stride);
    }
    DCUDA_DEVICE unsigned char* copied(int which) const {
        return base + 6 * of.halo_stride + static_cast<std::size_t>(which) * of.copy_bytes;
    }
    DCUDA_DEVICE std::uint32_t* words(std::size_t offset) const {
        return reinterpret_cast<std::uint32_t*>(base + offset);
    }
};

// First and last word of a border stand for the number of the step: written before it is sent, compared when it has
// come. Buffers are used in turn: a neighbour that is one step ahead overwrites nothing that is still read.
DCUDA_DEVICE void exchange(dcuda::rank& self, const task& of, const rank_memory& mine, dcuda::window window, int below,
                           int above, int batch, int step) {
    const int turn = step & 1;
    const std::uint32_t last = of.halo_words - 1,
                        stamp = stamp_of(static_cast<std::uint32_t>((batch + 1) * of.steps + step));
    const std::size_t bytes = of.halo_words * sizeof(std::uint32_t);
    std::uint32_t* const source = mine.source(turn);
    if (threadIdx.x == 0) source[0] = source[last] = stamp;
    self.put_notify(window, below, mine.landing_offset(from_above, turn), bytes, source, from_above);
    self.put_notify(window, above, mine.landing_offset(from_below, turn), bytes, source, from_below);
    for (const int side : {from_below, from_above}) {
        self.wait_notifications(side, 1);
        const std::uint32_t* const landing = mine.landing(side, turn);
        if (threadIdx.x != 0) continue;
        expect(of.wrong, batch, step, 0, stamp, landing[0]);
        expect(of.wrong, batch, step, last, stamp, landing[last]);
    }
}

__global__ void __launch_bounds__(most_threads) alternate(dcuda::context context, task of) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int id = self.id(), size = self.size();
    const int below = (id - of.distance + size) % size, above = (id + of.distance) % size;
    const rank_memory mine{of.memory + blockIdx.x * of.rank_bytes, of};
    const dcuda::window window = self.create_window(dcuda::world, mine.base, 6 * of.halo_stride);
    const double square = 2.0 + 1e-3 * static_cast<double>(threadIdx.x);
    double root = 0.0;
    float sum = 0.0f;

    for (int batch = -1; batch < of.batches; ++batch) {
        const std::size_t halo_bytes = of.halo_words * sizeof(std::uint32_t);
        for (int turn = 0; turn < 2; ++turn) fill(mine.source(turn), halo_bytes, batch, id);
        fill(mine.copied(0), of.copy_bytes, batch, id);
        self.barrier(dcuda::world);
        const std::uint64_t start = now_ns();
        __syncthreads(); // no thread begins before the one that takes the time
        for (int step = 0; step < of.steps; ++step) {
            if (of.copy_bytes != 0) {
                __syncthreads();
                copy_block(mine.copied(1), mine.copied(0), of.copy_bytes);
            }
            // Each step's result has a part in the next, so that none can be left out.
            if (of.newton != 0) root = newton(square + 1e-30 * root, of.newton);
            if (of.multiply_add != 0) sum = multiply_add(1e-30f * sum, of.multiply_add);
            if (of.distance != 0) exchange(self, of, mine, window, below, above, batch, step);
        }
        __syncthreads();
        const std::uint64_t stop = now_ns();
        if (batch >= 0 && threadIdx.x == 0)
            of.stamps[batch * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x)] = {start, stop};

        if (of.copy_bytes != 0) compare(of.wrong, mine.copied(1), of.copy_bytes, batch, id);
        if (of.newton != 0 && !(root * root > 0.999999 * square && root * root < 1.000001 * square))
            expect(of.wrong, batch, no_round, threadIdx.x, 1, 0);
        if (of.multiply_add != 0 && !(sum > 15.999f && sum < 16.001f))
            expect(of.wrong, batch, no_round, threadIdx.x, 2, 0);
        for (int side = 0; of.distance != 0 && side < 2; ++side)
            for (std::uint32_t i = 1 + threadIdx.x; i + 1 < of.halo_words; i += blockDim.x)
                expect(of.wrong, batch, no_round, i, pattern(batch, side == from_below ? below : above, i),
                       mine.landing(side, (of.steps - 1) & 1)[i]);
        self.barrier(dcuda::world);
    }
    self.free_window(window);
}

// --- Host ------------------------------------------------------------------------------------------------------------

// Microseconds of a step, of each batch.
std::vector<double> time_steps(session& with, const row& what, task of) {
    const int steps = with.rounds(100, 20), batches = with.batches(8, 6);
    of.halo_stride = (of.halo_words * sizeof(std::uint32_t) + 255) / 256 * 256;
    of.rank_bytes = (6 * of.halo_stride + 2 * of.copy_bytes + 255) / 256 * 256;
    const auto memory = allocate<unsigned char>(of.rank_bytes * static_cast<std::size_t>(what.ranks));
    const results measured(batches, what.ranks);
    of.memory = memory.get();
    of.steps = steps;
    of.batches = batches;
    of.stamps = measured.stamps();
    of.wrong = measured.wrong();
    with.runtime.run(alternate, shape(what.threads, what.ranks), of);
    measured.require_right(what);
    return scaled(measured.microseconds(), 1.0 / steps);
}

// A rank's part of a device's work in a step, times `factor`.
void add_work(task& of, const options& chosen, const std::string& work, int ranks, double factor) {
    const auto& amounts = chosen.overlap;
    const auto part = [&](double amount) { return amount * factor / ranks; };
    if (work == "copy" || work == "stream") {
        const double bytes = part(static_cast<double>(work == "copy" ? amounts.copy_bytes : amounts.stream_bytes));
        of.copy_bytes = std::max<std::size_t>(16, static_cast<std::size_t>(bytes) / 16 * 16);
    } else if (work == "newton") {
        of.newton = std::max(8, static_cast<int>(part(amounts.newton))); // fewer do not converge
    } else {
        of.multiply_add = std::max(32, static_cast<int>(part(amounts.multiply_add))); // likewise
    }
}

double median_of(const std::vector<double>& samples) { return measure::summarise(samples).median; }

// The times of a step with work, with an exchange, and with both; and the share of the shorter one that both hides.
struct overlap_times {
    std::vector<double> work, exchange, both;

    std::vector<double> overlap() const {
        std::vector<double> shares;
        for (std::size_t i = 0; i < both.size(); ++i)
            shares.push_back((work[i] + exchange[i] - both[i]) / std::min(work[i], exchange[i]));
        return shares;
    }
    void report(session& with, const row& what) const {
        const auto add = [&](const char* part, const std::vector<double>& samples, const char* unit) {
            row one = what;
            one.operation += part;
            one.unit = unit;
            one.value = measure::summarise(samples);
            with.rows.push_back(one);
        };
        add(", work only", work, "us");
        add(", exchange only", exchange, "us");
        add(", both", both, "us");
        add(", overlap", overlap(), "ratio");
    }
};

// The same amount of work for a device, however many ranks share it; then, of the same kind, so much that it takes each
// of the amounts asked for, in times of the exchange. The work's microseconds; 0 if so many ranks do not fit.
double measure_oversubscription(session& with, const std::string& work, int per_multiprocessor) {
    const auto& chosen = with.chosen.overlap;
    const int ranks = per_multiprocessor * with.multiprocessors;
    row what{"overlap", "neighbours", work, chosen.halo_bytes, chosen.threads, ranks};
    const int most = with.runtime.plan(alternate, shape(chosen.threads, 0)).rank_responsible;
    if (DCUDA_BACKEND_CUDA && ranks > most) {
        what.missing = "at most " + std::to_string(most) + " ranks fit on the device";
        with.rows.push_back(what);
        return 0.0;
    }
    task only_exchange{};
    only_exchange.halo_words = static_cast<std::uint32_t>(chosen.halo_bytes / sizeof(std::uint32_t));
    only_exchange.distance = 1;
    overlap_times times{{}, time_steps(with, what, only_exchange), {}};
    const auto measure = [&](double factor) {
        task only_work = only_exchange, both = only_exchange;
        only_work.distance = 0;
        for (task* const one : {&only_work, &both}) add_work(*one, with.chosen, work, ranks, factor);
        times.work = time_steps(with, what, only_work);
        times.both = time_steps(with, what, both);
        times.report(with, what);
        return median_of(times.work);
    };
    const double usual = measure(1.0);
    for (const double amount : chosen.amounts) {
        std::ostringstream name;
        name << work << " x" << amount;
        what.operation = name.str();
        measure(amount * median_of(times.exchange) / usual);
    }
    return usual;
}

// From how many ranks per multiprocessor on the work takes no less time any more. Only ranks beyond these can hide the
// waiting of others.
void report_saturation(session& with, const std::string& work, const std::vector<double>& times) {
    constexpr double tolerance = 1.1;
    const auto& chosen = with.chosen.overlap;
    double least = 0.0;
    for (const double time : times)
        if (time > 0.0 && (least == 0.0 || time < least)) least = time;
    for (std::size_t i = 0; i < times.size(); ++i) {
        if (times[i] == 0.0 || times[i] > tolerance * least) continue;
        const int ranks = chosen.ranks_per_multiprocessor[i];
        row what{"overlap", "neighbours", work + ", saturated from", 0, chosen.threads, ranks * with.multiprocessors};
        what.unit = "ranks/SM";
        what.value = measure::summarise({static_cast<double>(ranks)});
        with.rows.push_back(what);
        return;
    }
}

// Every device exchanges borders of 26,624 B with the devices before and after it, in pieces by several ranks.
void measure_halo(session& with, int ranks) {
    constexpr std::size_t bytes = 26'624;
    row what{"overlap", with.other_device(), "halo exchange", bytes, with.chosen.overlap.threads, ranks};
    if (with.job.process_count < 2) {
        what.missing = needs_two_processes;
    } else {
        task of{};
        of.halo_words = static_cast<std::uint32_t>(bytes / sizeof(std::uint32_t)) / static_cast<unsigned>(ranks);
        of.distance = ranks;
        what.value = measure::summarise(time_steps(with, what, of));
    }
    with.rows.push_back(what);
}

} // namespace

void measure_overlap(session& with) {
    for (const std::string& work : with.chosen.overlap.work) {
        std::vector<double> times;
        for (const int ranks : with.chosen.overlap.ranks_per_multiprocessor)
            times.push_back(measure_oversubscription(with, work, ranks));
        report_saturation(with, work, times);
    }
    measure_halo(with, 1);
    measure_halo(with, by_backend(26, 4));
}

} // namespace benchmark
