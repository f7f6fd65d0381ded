// SPDX-License-Identifier: BSD-3-Clause
// Barriers: of the ranks of a device, beside the grid barrier of cooperative groups; and of all ranks of all devices.
#if defined(__CUDACC__)
#include <cooperative_groups.h>
#endif

#include "common/session.hpp"
#include "dcuda/dcuda.hpp"

namespace benchmark {
namespace {

// Of each rank: words for the checks, in turn, of what it got and what it sends.
struct slots {
    std::uint32_t landing[2], source[2];
};

// Before the timed barriers come some in which each rank puts a stamp of the round to the next one: after the
// barrier it must be there, also on another device.
__global__ void barriers(dcuda::context context, dcuda::communicator comm, int rounds, int batches, slots* all,
                         interval* stamps, mistake* wrong) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    slots* const own = all + blockIdx.x;
    const int next = (self.id(comm) + 1) % self.size(comm);
    const dcuda::window window = self.create_window(comm, own, sizeof(slots));
    for (int batch = -1; batch < batches; ++batch) {
        for (int round = 1; round <= 4; ++round) {
            const int turn = round & 1;
            const std::uint32_t stamp = stamp_of(static_cast<std::uint32_t>((batch + 1) * 4 + round));
            if (threadIdx.x == 0) own->source[turn] = stamp;
            self.put(window, next, static_cast<std::size_t>(turn) * sizeof stamp, sizeof stamp, &own->source[turn]);
            self.barrier(comm);
            if (threadIdx.x == 0) expect(wrong, batch, round, 0, stamp, own->landing[turn]);
        }
        self.barrier(comm);
        const std::uint64_t start = now_ns();
        for (int round = 0; round < rounds; ++round) self.barrier(comm);
        const std::uint64_t stop = now_ns();
        if (batch >= 0 && blockIdx.x == 0 && threadIdx.x == 0) stamps[batch] = {start, stop};
    }
    self.free_window(window);
}

#if DCUDA_BACKEND_CUDA
__global__ void grid_barriers(dcuda::context, int rounds, int batches, slots* all, interval* stamps, mistake* wrong) {
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    slots* const next = all + (blockIdx.x + 1) % gridDim.x;
    for (int batch = -1; batch < batches; ++batch) {
        for (int round = 1; round <= 4; ++round) {
            const int turn = round & 1;
            const std::uint32_t stamp = stamp_of(static_cast<std::uint32_t>((batch + 1) * 4 + round));
            if (threadIdx.x == 0) store_word(&next->landing[turn], stamp);
            grid.sync();
            if (threadIdx.x == 0) expect(wrong, batch, round, 0, stamp, load_word(&all[blockIdx.x].landing[turn]));
        }
        grid.sync();
        const std::uint64_t start = now_ns();
        for (int round = 0; round < rounds; ++round) grid.sync();
        const std::uint64_t stop = now_ns();
        if (batch >= 0 && blockIdx.x == 0 && threadIdx.x == 0) stamps[batch] = {start, stop};
    }
}
#endif

// --- Host ------------------------------------------------------------------------------------------------------------

template <class Run>
measure::summary time_barriers(session& suite, int ranks, const row& entry, const Run& run) {
    const int rounds = suite.rounds(500, 20), batches = suite.batches(12, 6);
    const results measured(batches, 1);
    const auto words = allocate<slots>(static_cast<std::size_t>(ranks));
    run(rounds, batches, words.get(), measured);
    measured.require_right(entry);
    return measure::summarise(scaled(measured.microseconds(), 1.0 / rounds));
}

row measure_ranks(session& suite, dcuda::communicator comm, int ranks) {
    const bool world = comm == dcuda::world;
    const int threads = suite.chosen.barrier.threads;
    row entry{"barrier", world ? "all devices" : "same device", "barrier", 0, threads, ranks};
    const int most = suite.runtime.plan(barriers, shape(threads, 0)).rank_responsible;
    if (DCUDA_BACKEND_CUDA && ranks > most) {
        entry.missing = "at most " + std::to_string(most) + " ranks fit on the device";
        return entry;
    }
    const dcuda::launch_config config = shape(threads, ranks);
    entry.value = time_barriers(suite, ranks, entry, [&](int rounds, int batches, slots* all, const results& into) {
        suite.run(entry, barriers, config, comm, rounds, batches, all, into.stamps(), into.wrong());
    });
#if DCUDA_BACKEND_CUDA
    if (!world) {
        const measure::summary grid =
            time_barriers(suite, ranks, entry, [&](int rounds, int batches, slots* all, const results& into) {
                suite.runtime.run(grid_barriers, config, rounds, batches, all, into.stamps(), into.wrong());
            });
        entry.rivals.push_back({"grid.sync", grid.median});
    }
#endif
    return entry;
}

} // namespace

void measure_barrier(session& suite) {
    for (const int ranks : suite.chosen.barrier.ranks) suite.rows.push_back(measure_ranks(suite, dcuda::device, ranks));
    if (suite.job.process_count < 2) {
        suite.add_missing({"barrier", "all devices", "barrier"});
        return;
    }
    for (const int ranks : suite.chosen.barrier.world_ranks)
        suite.rows.push_back(measure_ranks(suite, dcuda::world, ranks));
}

} // namespace benchmark
