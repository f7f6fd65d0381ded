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
    slots* const mine = all + blockIdx.x;
    const int next = (self.id(comm) + 1) % self.size(comm);
    const dcuda::window window = self.create_window(comm, mine, sizeof(slots));
    for (int batch = -1; batch < batches; ++batch) {
        for (int round = 1; round <= 4; ++round) {
            const int turn = round & 1;
            const std::uint32_t stamp = stamp_of(static_cast<std::uint32_t>((batch + 1) * 4 + round));
            if (threadIdx.x == 0) mine->source[turn] = stamp;
            self.put(window, next, static_cast<std::size_t>(turn) * sizeof stamp, sizeof stamp, &mine->source[turn]);
            self.barrier(comm);
            if (threadIdx.x == 0) expect(wrong, batch, round, 0, stamp, mine->landing[turn]);
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
measure::summary time_barriers(session& with, int ranks, const row& what, const Run& run) {
    const int rounds = with.rounds(500, 20), batches = with.batches(12, 6);
    const results measured(batches, 1);
    const auto words = allocate<slots>(static_cast<std::size_t>(ranks));
    run(rounds, batches, words.get(), measured);
    measured.require_right(what);
    return measure::summarise(scaled(measured.microseconds(), 1.0 / rounds));
}

row measure_ranks(session& with, dcuda::communicator comm, int ranks) {
    const bool world = comm == dcuda::world;
    const int threads = with.chosen.barrier.threads;
    row what{"barrier", world ? "all devices" : "same device", "barrier", 0, threads, ranks};
    const int most = with.runtime.plan(barriers, shape(threads, 0)).rank_responsible;
    if (DCUDA_BACKEND_CUDA && ranks > most) {
        what.missing = "at most " + std::to_string(most) + " ranks fit on the device";
        return what;
    }
    const dcuda::launch_config config = shape(threads, ranks);
    what.value = time_barriers(with, ranks, what, [&](int rounds, int batches, slots* all, const results& to) {
        with.run(what, barriers, config, comm, rounds, batches, all, to.stamps(), to.wrong());
    });
#if DCUDA_BACKEND_CUDA
    if (!world) {
        const measure::summary grid =
            time_barriers(with, ranks, what, [&](int rounds, int batches, slots* all, const results& to) {
                with.runtime.run(grid_barriers, config, rounds, batches, all, to.stamps(), to.wrong());
            });
        what.rivals.push_back({"grid.sync", grid.median});
    }
#endif
    return what;
}

} // namespace

void measure_barrier(session& with) {
    for (const int ranks : with.chosen.barrier.ranks) with.rows.push_back(measure_ranks(with, dcuda::device, ranks));
    if (with.job.process_count < 2) {
        with.add_missing({"barrier", "all devices", "barrier"});
        return;
    }
    for (const int ranks : with.chosen.barrier.world_ranks)
        with.rows.push_back(measure_ranks(with, dcuda::world, ranks));
}

} // namespace benchmark
