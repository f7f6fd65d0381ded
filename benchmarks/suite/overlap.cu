// SPDX-License-Identifier: BSD-3-Clause
// How far work hides communication: every rank alternates work with an exchange of borders with its two neighbours,
// over the number of ranks that share a multiprocessor; with the library's calls, and with flags as one would write
// them by hand. And the exchange of borders between devices alone.
#include "common/session.hpp"
#include "dcuda/dcuda.hpp"

#include <sstream>

namespace benchmark {
namespace {

constexpr int from_below = 0, from_above = 1; // tags, and which landing buffers

enum class work_kind { copy, newton, multiply_add };

// What Newton's iterations of a thread find the root of.
DCUDA_DEVICE double square() { return 2.0 + 1e-3 * static_cast<double>(threadIdx.x); }

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
    std::uint32_t* flags;   // [rank][side][flag_stride]: by_hand's numbers of steps
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

constexpr std::size_t flag_stride = 32; // words

// First and last word of a border stand for the number of the step: written before it is sent, compared when it has
// come. Buffers are used in turn: a neighbour that is one step ahead overwrites nothing that is still read.
DCUDA_DEVICE std::uint32_t number_of(const task& of, int batch, int step) {
    return static_cast<std::uint32_t>((batch + 1) * of.steps + step);
}
DCUDA_DEVICE std::uint32_t* stamped_source(const task& of, const rank_memory& own, std::uint32_t stamp, int turn) {
    std::uint32_t* const source = own.source(turn);
    if (threadIdx.x == 0) source[0] = source[of.halo_words - 1] = stamp;
    return source;
}
DCUDA_DEVICE void compare_stamps(const task& of, const rank_memory& own, std::uint32_t stamp, int side, int batch,
                                 int step) {
    if (threadIdx.x != 0) return;
    const std::uint32_t last = of.halo_words - 1;
    const std::uint32_t* const landing = own.landing(side, step & 1);
    expect(of.wrong, batch, step, 0, stamp, landing[0]);
    expect(of.wrong, batch, step, last, stamp, landing[last]);
}

// The ranks before and after.
DCUDA_DEVICE int neighbour(const dcuda::rank& self, int distance) {
    const int number = self.id() + distance, size = self.size();
    return number < 0 ? number + size : number >= size ? number - size : number;
}

// The ways to exchange borders.
struct by_library {
    DCUDA_DEVICE static void exchange(dcuda::rank& self, const task& of, const rank_memory& own, dcuda::window window,
                                      int batch, int step) {
        const int turn = step & 1;
        const std::uint32_t stamp = stamp_of(number_of(of, batch, step));
        const std::size_t bytes = of.halo_words * sizeof(std::uint32_t);
        const std::uint32_t* const source = stamped_source(of, own, stamp, turn);
        self.put_notify(window, neighbour(self, -of.distance), own.landing_offset(from_above, turn), bytes, source,
                        from_above);
        self.put_notify(window, neighbour(self, of.distance), own.landing_offset(from_below, turn), bytes, source,
                        from_below);
        for (const int side : {from_below, from_above}) {
            self.wait_notifications(side, 1);
            compare_stamps(of, own, stamp, side, batch, step);
        }
    }
};

// Without the library, between ranks of one device: all threads store both borders, and one fence stands before both
// flags. ORDER: stores, the block's barrier, fence, flag; flag, fence, the block's barrier, loads.
struct by_hand {
    DCUDA_DEVICE static void exchange(dcuda::rank& self, const task& of, const rank_memory& own, dcuda::window,
                                      int batch, int step) {
        const int turn = step & 1;
        const std::uint32_t number = number_of(of, batch, step), stamp = stamp_of(number);
        const std::uint32_t* const source = stamped_source(of, own, stamp, turn);
        __syncthreads();
        const int below = neighbour(self, -of.distance), above = neighbour(self, of.distance);
        std::uint32_t* const low = memory_of(of, below).landing(from_above, turn);
        std::uint32_t* const high = memory_of(of, above).landing(from_below, turn);
        for (std::uint32_t i = threadIdx.x; i < of.halo_words; i += blockDim.x) low[i] = high[i] = source[i];
        __syncthreads();
        if (threadIdx.x == 0) {
            order_on_device();
            store_word(flag(of, below, from_above), number + 1);
            store_word(flag(of, above, from_below), number + 1);
            for (const int side : {from_below, from_above})
                poll_until([&] {
                    return static_cast<std::int32_t>(load_word(flag(of, self.id(), side)) - (number + 1)) >= 0;
                });
            order_on_device();
        }
        __syncthreads();
        for (const int side : {from_below, from_above}) compare_stamps(of, own, stamp, side, batch, step);
    }
    DCUDA_DEVICE static std::uint32_t* flag(const task& of, int rank, int side) {
        return of.flags + (static_cast<std::size_t>(rank) * 2 + static_cast<std::size_t>(side)) * flag_stride;
    }
    DCUDA_DEVICE static rank_memory memory_of(const task& of, int rank) {
        return {of.memory + static_cast<std::size_t>(rank) * of.rank_bytes, of};
    }
};

// A kernel for each kind of work, as a user would write it: one for all would keep more in registers than it needs. At
// most `Threads` threads are to share a multiprocessor, which decides how many registers each may have.
template <work_kind Work, class Exchange, int Threads>
__global__ void BENCHMARK_REGISTERS(registers_for(Threads)) alternate(dcuda::context context, const task of) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const rank_memory own{of.memory + blockIdx.x * of.rank_bytes, of};
    const dcuda::window window = self.create_window(dcuda::world, own.base, 6 * of.halo_stride);
    double root = 0.0;
    float sum = 0.0f;

    for (int batch = -1; batch < of.batches; ++batch) {
        const std::size_t halo_bytes = of.halo_words * sizeof(std::uint32_t);
        for (int turn = 0; turn < 2; ++turn) fill(own.source(turn), halo_bytes, batch, self.id());
        if (Work == work_kind::copy) fill(own.copied(0), of.copy_bytes, batch, self.id());
        self.barrier(dcuda::world);
        const std::uint64_t start = now_ns();
        __syncthreads(); // no thread begins before the one that takes the time
        for (int step = 0; step < of.steps; ++step) {
            if (Work == work_kind::copy && of.copy_bytes != 0) {
                __syncthreads();
                copy_block(own.copied(1), own.copied(0), of.copy_bytes);
            }
            // Each step's result has a part in the next, so that none can be left out.
            if (Work == work_kind::newton && of.newton != 0) root = newton(square() + 1e-30 * root, of.newton);
            if (Work == work_kind::multiply_add && of.multiply_add != 0)
                sum = multiply_add(1e-30f * sum, of.multiply_add);
            if (of.distance != 0) Exchange::exchange(self, of, own, window, batch, step);
        }
        __syncthreads();
        const std::uint64_t stop = now_ns();
        if (batch >= 0 && threadIdx.x == 0)
            of.stamps[batch * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x)] = {start, stop};

        if (Work == work_kind::copy && of.copy_bytes != 0)
            compare(of.wrong, own.copied(1), of.copy_bytes, batch, self.id());
        if (Work == work_kind::newton && of.newton != 0 &&
            !(root * root > 0.999999 * square() && root * root < 1.000001 * square()))
            expect(of.wrong, batch, no_round, threadIdx.x, 1, 0);
        if (Work == work_kind::multiply_add && of.multiply_add != 0 && !(sum > 15.999f && sum < 16.001f))
            expect(of.wrong, batch, no_round, threadIdx.x, 2, 0);
        for (int side = 0; of.distance != 0 && side < 2; ++side)
            for (std::uint32_t i = 1 + threadIdx.x; i + 1 < of.halo_words; i += blockDim.x)
                expect(of.wrong, batch, no_round, i,
                       pattern(batch, neighbour(self, side == from_below ? -of.distance : of.distance), i),
                       own.landing(side, (of.steps - 1) & 1)[i]);
        self.barrier(dcuda::world);
    }
    self.free_window(window);
}

// --- Host ------------------------------------------------------------------------------------------------------------

using kernel = void (*)(dcuda::context, task);

template <work_kind Work, class Exchange>
kernel kernel_for(int threads_of_multiprocessor) {
    if (threads_of_multiprocessor <= 512) return alternate<Work, Exchange, 512>;
    if (threads_of_multiprocessor <= 768) return alternate<Work, Exchange, 768>;
    return alternate<Work, Exchange, 1024>;
}
template <class Exchange>
kernel kernel_for(const std::string& work, int threads_of_multiprocessor) {
    if (work == "newton") return kernel_for<work_kind::newton, Exchange>(threads_of_multiprocessor);
    if (work == "fma") return kernel_for<work_kind::multiply_add, Exchange>(threads_of_multiprocessor);
    return kernel_for<work_kind::copy, Exchange>(threads_of_multiprocessor);
}

// Microseconds of a step, of each batch.
std::vector<double> time_steps(session& suite, const row& entry, kernel alternates, task of) {
    const int steps = suite.rounds(100, 20), batches = suite.batches(8, 6);
    of.halo_stride = (of.halo_words * sizeof(std::uint32_t) + 255) / 256 * 256;
    of.rank_bytes = (6 * of.halo_stride + 2 * of.copy_bytes + 255) / 256 * 256;
    const auto ranks = static_cast<std::size_t>(entry.ranks);
    const auto memory = allocate<unsigned char>(of.rank_bytes * ranks);
    const auto flags = allocate<std::uint32_t>(ranks * 2 * flag_stride);
    const results measured(batches, entry.ranks);
    of.memory = memory.get();
    of.flags = flags.get();
    of.steps = steps;
    of.batches = batches;
    of.stamps = measured.stamps();
    of.wrong = measured.wrong();
    suite.runtime.run(alternates, shape(entry.threads, entry.ranks), of);
    measured.require_right(entry);
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
};

void report(session& suite, row entry, const char* part, const std::vector<double>& samples, const char* unit = "us") {
    entry.operation += part;
    entry.unit = unit;
    entry.value = measure::summarise(samples);
    suite.rows.push_back(entry);
}

// Where the neighbours are with which a rank exchanges borders: on its device, or, of several processes, the ranks with
// its number on the devices before and after it.
std::string path_to_neighbours(const session& suite) {
    return suite.job.process_count == 1 ? "neighbours" : suite.other_device();
}

// The same amount of work for a device, however many ranks share it; then, of the same kind, so much that it takes each
// of the amounts asked for, in times of the exchange. The work's microseconds; 0 if so many ranks do not fit.
double measure_oversubscription(session& suite, const std::string& work, int per_multiprocessor) {
    const auto& chosen = suite.chosen.overlap;
    const int ranks = per_multiprocessor * suite.multiprocessors;
    row entry{"overlap", path_to_neighbours(suite), work, chosen.halo_bytes, chosen.threads, ranks};
    const int threads = per_multiprocessor * chosen.threads;
    const kernel alternates = kernel_for<by_library>(work, threads);
    const int most = suite.runtime.plan(alternates, shape(chosen.threads, 0)).rank_responsible;
    if (DCUDA_BACKEND_CUDA && ranks > most) {
        entry.missing = "at most " + std::to_string(most) + " ranks fit on the device";
        suite.rows.push_back(entry);
        return 0.0;
    }
    task only_exchange{};
    only_exchange.halo_words = static_cast<std::uint32_t>(chosen.halo_bytes / sizeof(std::uint32_t));
    only_exchange.distance = suite.job.process_count == 1 ? 1 : ranks;
    overlap_times times{{}, time_steps(suite, entry, alternates, only_exchange), {}};
    const auto measure = [&](double factor) {
        task only_work = only_exchange, both = only_exchange;
        only_work.distance = 0;
        for (task* const one : {&only_work, &both}) add_work(*one, suite.chosen, work, ranks, factor);
        times.work = time_steps(suite, entry, alternates, only_work);
        times.both = time_steps(suite, entry, alternates, both);
        report(suite, entry, ", work only", times.work);
        report(suite, entry, ", exchange only", times.exchange);
        report(suite, entry, ", both", times.both);
        report(suite, entry, ", overlap", times.overlap(), "ratio");
        return both;
    };
    const task both = measure(1.0);
    const double usual = median_of(times.work);
    if (suite.job.process_count == 1) {
        const kernel flags = kernel_for<by_hand>(work, threads);
        report(suite, entry, ", exchange by hand", time_steps(suite, entry, flags, only_exchange));
        report(suite, entry, ", both by hand", time_steps(suite, entry, flags, both));
    }
    for (const double amount : chosen.amounts) {
        std::ostringstream name;
        name << work << " x" << amount;
        entry.operation = name.str();
        measure(amount * median_of(times.exchange) / usual);
    }
    return usual;
}

// From how many ranks per multiprocessor on the work takes no less time any more. Only ranks beyond these can hide the
// waiting of others.
void report_saturation(session& suite, const std::string& work, const std::vector<double>& times) {
    constexpr double tolerance = 1.1;
    const auto& chosen = suite.chosen.overlap;
    double least = 0.0;
    for (const double time : times)
        if (time > 0.0 && (least == 0.0 || time < least)) least = time;
    for (std::size_t i = 0; i < times.size(); ++i) {
        if (times[i] == 0.0 || times[i] > tolerance * least) continue;
        const int ranks = chosen.ranks_per_multiprocessor[i];
        row entry{"overlap",      path_to_neighbours(suite),    work + ", saturated from", 0,
                  chosen.threads, ranks * suite.multiprocessors};
        entry.unit = "ranks/SM";
        entry.value = measure::summarise({static_cast<double>(ranks)});
        suite.rows.push_back(entry);
        return;
    }
}

// Every device exchanges borders of 26,624 B with the devices before and after it, in pieces by several ranks.
void measure_halo(session& suite, int ranks) {
    constexpr std::size_t bytes = 26'624;
    row entry{"overlap", suite.other_device(), "halo exchange", bytes, suite.chosen.overlap.threads, ranks};
    if (suite.job.process_count < 2) return suite.add_missing(entry);
    task of{};
    of.halo_words = static_cast<std::uint32_t>(bytes / sizeof(std::uint32_t)) / static_cast<unsigned>(ranks);
    of.distance = ranks;
    const kernel alternates = kernel_for<by_library>("copy", entry.threads); // of which a multiprocessor has one
    entry.value = measure::summarise(time_steps(suite, entry, alternates, of));
    suite.rows.push_back(entry);
}

} // namespace

void measure_overlap(session& suite) {
    for (const std::string& work : suite.chosen.overlap.work) {
        std::vector<double> times;
        for (const int ranks : suite.chosen.overlap.ranks_per_multiprocessor)
            times.push_back(measure_oversubscription(suite, work, ranks));
        report_saturation(suite, work, times);
    }
    measure_halo(suite, 1);
    measure_halo(suite, by_backend(26, 4));
}

} // namespace benchmark
