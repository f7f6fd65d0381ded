// SPDX-License-Identifier: BSD-3-Clause
// How much ranks that wait for notifications slow ranks that work.
#include "common/session.hpp"
#include "dcuda/dcuda.hpp"

namespace benchmark {
namespace {

constexpr int tag = 0;
constexpr int most_multiprocessors = 1024;

struct work {
    unsigned char* buffers; // of each busy rank: two, to copy from one to the other
    std::size_t bytes;      // of a buffer; 0: no copy
    int newton;             // iterations; 0: none
    int busy;               // ranks; the others of the device wait
    int repetitions, batches;
    int per_multiprocessor; // busy ranks there
    int* places;            // ranks on each multiprocessor so far, then how many work and how many wait
    int* ranks;             // by number: those that work, then those that wait
    std::uint32_t* tokens;  // one of each rank
    interval* stamps;
    mistake* wrong;
};

// A rank's number: below `busy` it works, else it waits. Those that work are spread over the multiprocessors, alone as
// beside others: ranks with neighbouring numbers may share one. One thread.
DCUDA_DEVICE int choose_number(const work& of, int rank, int size) {
    const int place = atomicAdd(&of.places[multiprocessor(rank) % most_multiprocessors], 1);
    int *const working = of.places + most_multiprocessors, *const waiting = working + 1;
    int number = place < of.per_multiprocessor ? atomicAdd(working, 1) : of.busy;
    if (number < of.busy) return number;
    number = of.busy + atomicAdd(waiting, 1);
    return number < size ? number : atomicAdd(working, 1);
}

// The busy ranks work. Then each puts the number of the batch to its share of the others, which have waited for it
// since the beginning.
__global__ void __launch_bounds__(most_threads) work_beside_waiters(dcuda::context context, work of) {
    __shared__ dcuda::state state;
    __shared__ int number;
    dcuda::rank self(context, state);
    const int rank = self.id(dcuda::device), size = self.size(dcuda::device);
    if (threadIdx.x == 0) {
        number = choose_number(of, rank, size);
        of.ranks[number] = rank;
    }
    __syncthreads();
    const int id = number;
    std::uint32_t* const token = of.tokens + rank;
    unsigned char* const from = of.buffers + 2 * of.bytes * static_cast<std::size_t>(id);
    unsigned char* const target = from + of.bytes;
    const double square = 2.0 + 1e-3 * static_cast<double>(threadIdx.x);
    const dcuda::window window = self.create_window(dcuda::device, token, sizeof *token); // all know their numbers then
    for (int batch = -1; batch < of.batches; ++batch) {
        if (id < of.busy) fill(from, of.bytes, batch, id);
        self.barrier(dcuda::device);
        if (id >= of.busy) {
            self.wait_notifications(tag, 1);
            if (threadIdx.x == 0)
                expect(of.wrong, batch, no_round, 0, stamp_of(static_cast<std::uint32_t>(batch)), *token);
        } else {
            double root = 0.0;
            const std::uint64_t start = now_ns();
            __syncthreads(); // no thread begins before the one that takes the time
            for (int i = 0; i < of.repetitions; ++i) {
                if (of.bytes != 0) copy_block(target, from, of.bytes);
                if (of.newton != 0) root = newton(square + 1e-30 * root, of.newton);
            }
            __syncthreads();
            const std::uint64_t stop = now_ns();
            if (of.newton != 0 && !(root * root > 0.999999 * square && root * root < 1.000001 * square))
                expect(of.wrong, batch, no_round, threadIdx.x, 1, 0);
            if (batch >= 0 && threadIdx.x == 0) of.stamps[batch * of.busy + id] = {start, stop};
            compare(of.wrong, target, of.bytes, batch, id);
            if (threadIdx.x == 0) *token = stamp_of(static_cast<std::uint32_t>(batch));
            for (int waiting = of.busy + id; waiting < size; waiting += of.busy)
                self.put_notify(window, of.ranks[waiting], 0, sizeof *token, token, tag);
        }
        self.barrier(dcuda::device);
    }
    self.free_window(window);
}

} // namespace

void measure_waiters(session& suite) {
    const auto& chosen = suite.chosen.waiters;
    const int busy = chosen.busy > 0 ? chosen.busy : suite.multiprocessors;
    const int most = suite.runtime.plan(work_beside_waiters, shape(chosen.threads, 0)).rank_responsible;
    const int batches = suite.batches(8, 6), repetitions = suite.rounds(20, 5);
    for (const bool copies : {true, false}) {
        // Copies come from memory, not from a cache: 132 ranks have 2 x 264 MiB.
        const std::size_t bytes = copies ? by_backend<std::size_t>(2 << 20, 64 << 10) : 0;
        const auto buffers = allocate<unsigned char>(2 * bytes * static_cast<std::size_t>(busy));
        double alone = 0.0;
        for (const int wanted : chosen.waiting) {
            // As many as fit, where fewer fit than were asked for.
            const int waiting = DCUDA_BACKEND_CUDA ? std::min(wanted, most - busy) : wanted;
            row entry{"waiters", "same device", copies ? "copy" : "newton", bytes, chosen.threads, busy, waiting};
            if (waiting < 0) {
                entry.missing = "at most " + std::to_string(most) + " ranks fit on the device";
                suite.rows.push_back(entry);
                break;
            }
            const results measured(batches, busy);
            const auto tokens = allocate<std::uint32_t>(static_cast<std::size_t>(busy + waiting));
            const auto ranks = allocate<int>(static_cast<std::size_t>(busy + waiting));
            const auto places = allocate<int>(most_multiprocessors + 2);
            const work of{buffers.get(),
                          bytes,
                          copies ? 0 : by_backend(2000, 500),
                          busy,
                          repetitions,
                          batches,
                          (busy + suite.multiprocessors - 1) / suite.multiprocessors,
                          places.get(),
                          ranks.get(),
                          tokens.get(),
                          measured.stamps(),
                          measured.wrong()};
            suite.runtime.run(work_beside_waiters, shape(chosen.threads, busy + waiting), of);
            measured.require_right(entry);
            const std::vector<double> times = scaled(measured.microseconds(), 1.0 / repetitions);
            entry.value = measure::summarise(times);
            suite.rows.push_back(entry);
            if (waiting == 0) alone = entry.value.median;
            if (waiting == 0 || alone == 0.0) continue;
            row slower = entry;
            slower.operation += ", slow-down";
            slower.unit = "times";
            slower.value = measure::summarise(scaled(times, 1.0 / alone));
            suite.rows.push_back(slower);
        }
    }
}

} // namespace benchmark
