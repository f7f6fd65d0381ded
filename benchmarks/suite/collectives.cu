// SPDX-License-Identifier: BSD-3-Clause
// Reductions, broadcasts, scans, barriers and data movement of communicators: of one value, and of arrays, by one rank
// of each device, by columns and by all ranks.
#include "common/session.hpp"
#include "dcuda/dcuda.hpp"

#include <algorithm>

namespace benchmark {
namespace {

enum class action : int {
    allreduce_value,
    allreduce_array,
    broadcast_value,
    scan_value,
    all_gather,
    all_to_all,
    barrier
};
// Whether members have so many values for each member.
DCUDA_HOST_DEVICE bool has_pieces(action act) { return act == action::all_gather || act == action::all_to_all; }

// Which ranks are in a communicator: all; those of a device; those with the same number on every device; or the first
// ones of each device.
enum class group : int { world, device, columns, first };

struct task {
    action act;
    group members;
    int first;         // of group::first: so many of each device
    std::size_t count; // of doubles; of all_gather and all_to_all, for each member
    std::size_t members_at_most = 0;
    // Of all that a member has in memory.
    DCUDA_HOST_DEVICE std::size_t values() const { return has_pieces(act) ? count * members_at_most : count; }
};

DCUDA_DEVICE dcuda::communicator make_group(dcuda::rank& self, const task& what) {
    const int number = self.id(dcuda::device);
    if (what.members == group::world) return dcuda::world;
    if (what.members == group::device) return dcuda::device;
    if (what.members == group::columns) return self.split(dcuda::world, number, 0);
    return self.split(dcuda::world, number < what.first ? 0 : -1, 0);
}

DCUDA_DEVICE void act_once(dcuda::rank& self, dcuda::communicator comm, const task& what, const double* in, double* out,
                           double value, double& result) {
    if (what.act == action::allreduce_value)
        result = self.allreduce(comm, value, dcuda::sum{});
    else if (what.act == action::broadcast_value)
        result = self.broadcast(comm, value, 0);
    else if (what.act == action::allreduce_array)
        self.allreduce(comm, out, in, what.count, dcuda::sum{});
    else if (what.act == action::scan_value)
        result = self.scan(comm, value, dcuda::sum{});
    else if (what.act == action::all_gather)
        self.all_gather(comm, out, in, what.count);
    else if (what.act == action::all_to_all)
        self.all_to_all(comm, out, in, what.count);
    else
        self.barrier(comm);
}

// Members have the values number + 1, and place + number + 1, whose sums are exact.
__global__ void __launch_bounds__(128, 8) collectives(dcuda::context context, task what, int rounds, int batches,
                                                      double* memory, interval* stamps, mistake* wrong) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const std::size_t place = 2 * what.values() * blockIdx.x;
    double *const in = memory + place, *const out = in + what.values();
    const dcuda::communicator comm = make_group(self, what);
    if (comm != dcuda::none) {
        const int number = self.id(comm), size = self.size(comm);
        const double sum = 0.5 * size * (size + 1);
        for (std::size_t i = threadIdx.x; i < what.values(); i += blockDim.x)
            in[i] = static_cast<double>(i) + number + 1;
        double result = 0;
        for (int batch = -1; batch < batches; ++batch) {
            self.barrier(comm);
            const std::uint64_t start = now_ns();
            for (int round = 0; round < rounds; ++round) act_once(self, comm, what, in, out, number + 1, result);
            const std::uint64_t stop = now_ns();
            if (batch >= 0 && number == 0 && blockIdx.x == 0 && threadIdx.x == 0) stamps[batch] = {start, stop};
            if (threadIdx.x == 0 && what.act == action::allreduce_value)
                expect(wrong, batch, 0, 0, static_cast<std::uint32_t>(sum), static_cast<std::uint32_t>(result));
            if (threadIdx.x == 0 && what.act == action::broadcast_value)
                expect(wrong, batch, 0, 0, 1, static_cast<std::uint32_t>(result));
            if (threadIdx.x == 0 && what.act == action::scan_value)
                expect(wrong, batch, 0, 0, static_cast<std::uint32_t>(0.5 * (number + 1) * (number + 2)),
                       static_cast<std::uint32_t>(result));
            if (has_pieces(what.act))
                for (std::size_t i = threadIdx.x; i < what.count * size; i += blockDim.x) {
                    const std::size_t sender = i / what.count,
                                      first = what.act == action::all_gather ? 0 : number * what.count;
                    expect(wrong, batch, 0, i, static_cast<std::uint32_t>(first + i % what.count + sender + 1),
                           static_cast<std::uint32_t>(out[i]));
                }
            if (what.act == action::allreduce_array)
                for (std::size_t i = threadIdx.x; i < what.count; i += blockDim.x)
                    expect(wrong, batch, 0, i, static_cast<std::uint32_t>(size * static_cast<double>(i) + sum),
                           static_cast<std::uint32_t>(out[i]));
        }
    }
}

void measure(session& with, const char* path, const char* operation, task what, int ranks) {
    what.members_at_most = static_cast<std::size_t>(what.members == group::first ? what.first : ranks) *
                           static_cast<std::size_t>(with.job.process_count);
    // As many as fit beside each other.
    const int threads = ranks > 1056 ? std::min(64, with.chosen.collectives.threads) : with.chosen.collectives.threads;
    const bool has_bytes = what.act != action::barrier;
    row result{"collectives", path, operation, has_bytes ? what.count * sizeof(double) : 0, threads, ranks};
    const int most = with.runtime.plan(collectives, shape(threads, 0)).rank_responsible;
    if (DCUDA_BACKEND_CUDA && ranks > most) {
        result.missing = "at most " + std::to_string(most) + " ranks fit on the device";
        with.rows.push_back(result);
        return;
    }
    const int rounds = what.count > 1 ? with.rounds(100, 5) : with.rounds(500, 20);
    const int batches = with.batches(12, 6);
    const results measured(batches, 1);
    const auto memory = allocate<double>(2 * what.values() * static_cast<std::size_t>(ranks));
    with.run(result, collectives, shape(threads, ranks), what, rounds, batches, memory.get(), measured.stamps(),
             measured.wrong());
    if (result.measured()) {
        measured.require_right(result);
        result.value = measure::summarise(scaled(measured.microseconds(), 1.0 / rounds));
    }
    with.rows.push_back(result);
}

} // namespace

void measure_collectives(session& with) {
    const auto& chosen = with.chosen.collectives;
    for (const int ranks : chosen.ranks)
        measure(with, "same device", "allreduce", {action::allreduce_value, group::device, 0, 1}, ranks);
    if (with.job.process_count < 2) {
        with.add_missing({"collectives", "all devices", "allreduce"});
        return;
    }
    measure(with, "all devices", "allreduce", {action::allreduce_value, group::world, 0, 1}, 1);
    measure(with, "all devices", "allreduce", {action::allreduce_array, group::world, 0, chosen.large_count}, 1);
    measure(with, "all devices", "broadcast", {action::broadcast_value, group::world, 0, 1}, 1);
    measure(with, "all devices", "all_gather", {action::all_gather, group::world, 0, 128}, 1);
    measure(with, "all devices", "all_to_all", {action::all_to_all, group::world, 0, 128}, 1);
    for (const int ranks : chosen.world_ranks) {
        measure(with, "all devices", "allreduce", {action::allreduce_value, group::world, 0, 1}, ranks);
        measure(with, "all devices", "allreduce", {action::allreduce_array, group::world, 0, chosen.large_count},
                ranks);
        measure(with, "all devices", "broadcast", {action::broadcast_value, group::world, 0, 1}, ranks);
        measure(with, "columns", "allreduce", {action::allreduce_value, group::columns, 0, 1}, ranks);
        measure(with, "columns", "allreduce", {action::allreduce_array, group::columns, 0, chosen.column_count}, ranks);
        measure(with, "columns", "barrier", {action::barrier, group::columns, 0, 0}, ranks);
        measure(with, "all devices", "scan", {action::scan_value, group::world, 0, 1}, ranks);
        measure(with, "all devices", "all_gather", {action::all_gather, group::world, 0, 1}, ranks);
    }
    measure(with, "columns", "allreduce", {action::allreduce_array, group::columns, 0, chosen.many_count},
            chosen.world_ranks.front());
    const int few = 16 / with.job.process_count;
    measure(with, "16 ranks", "all_to_all", {action::all_to_all, group::first, few, 128}, chosen.world_ranks.front());
    measure(with, "16 ranks", "all_gather", {action::all_gather, group::first, few, 128}, chosen.world_ranks.front());
    measure(with, "16 ranks", "allreduce", {action::allreduce_array, group::first, few, chosen.large_count},
            chosen.world_ranks.front());
    measure(with, "8 ranks", "barrier", {action::barrier, group::first, 8 / with.job.process_count, 0},
            chosen.world_ranks.front());
}

} // namespace benchmark
