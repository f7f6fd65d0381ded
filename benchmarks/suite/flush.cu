// SPDX-License-Identifier: BSD-3-Clause
// A put and the flush that waits for its arrival.
#include "common/session.hpp"
#include "dcuda/dcuda.hpp"

namespace benchmark {
namespace {

// World rank 0 puts into the window of rank 1; all others watch. First and last word of the payload stand for
// the number of the round: after the flush the source may change.
__global__ void flushes(dcuda::context context, unsigned char* memory, std::size_t bytes, int rounds, int batches,
                        interval* stamps, mistake* wrong) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int id = self.id();
    auto* const landing = reinterpret_cast<std::uint32_t*>(memory + 2 * bytes * blockIdx.x);
    auto* const source = reinterpret_cast<std::uint32_t*>(memory + 2 * bytes * blockIdx.x + bytes);
    const auto last = static_cast<std::uint32_t>(bytes / sizeof(std::uint32_t) - 1);
    const dcuda::window window = self.create_window(dcuda::world, landing, 2 * bytes);
    for (int batch = -1; batch < batches; ++batch) {
        if (id == 0) fill(source, bytes, batch, 0);
        self.barrier(dcuda::world);
        if (id == 0) {
            const std::uint64_t start = now_ns();
            for (int round = 0; round < rounds; ++round) {
                if (threadIdx.x == 0)
                    source[0] = source[last] = stamp_of(static_cast<std::uint32_t>((batch + 1) * rounds + round));
                self.put(window, 1, 0, bytes, source);
                self.flush(window);
            }
            const std::uint64_t stop = now_ns();
            if (batch >= 0 && threadIdx.x == 0) stamps[batch] = {start, stop};
        }
        self.barrier(dcuda::world);
        if (id != 1) continue;
        for (std::uint32_t i = threadIdx.x; i <= last; i += blockDim.x) {
            const bool is_stamp = i == 0 || i == last;
            expect(wrong, batch, no_round, i,
                   is_stamp ? stamp_of(static_cast<std::uint32_t>((batch + 2) * rounds - 1)) : pattern(batch, 0, i),
                   landing[i]);
        }
    }
    self.free_window(window);
}

} // namespace

void measure_flush(session& suite) {
    const std::size_t bytes = suite.chosen.flush.bytes;
    const auto memory = allocate<unsigned char>(4 * bytes);
    for (const bool peer : {false, true}) {
        row entry{"flush",
                  peer ? suite.other_device() : "same device",
                  "put and flush",
                  bytes,
                  suite.chosen.flush.threads,
                  peer ? 1 : 2};
        if (peer && suite.job.process_count < 2) {
            entry.missing = needs_two_processes;
        } else {
            const int rounds = suite.rounds(1000, 100), batches = suite.batches(12, 6);
            const results measured(batches, 1);
            suite.run(entry, flushes, shape(entry.threads, entry.ranks), memory.get(), bytes, rounds, batches,
                      measured.stamps(), measured.wrong());
            measured.require_right(entry);
            entry.value = measure::summarise(scaled(measured.microseconds(), 1.0 / rounds));
        }
        suite.rows.push_back(entry);
    }
}

} // namespace benchmark
