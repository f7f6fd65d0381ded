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

DCUDA_DEVICE dcuda::communicator make_group(dcuda::rank& self, const task& asked) {
    const int number = self.id(dcuda::device);
    if (asked.members == group::world) return dcuda::world;
    if (asked.members == group::device) return dcuda::device;
    if (asked.members == group::columns) return self.split(dcuda::world, number, 0);
    return self.split(dcuda::world, number < asked.first ? 0 : -1, 0);
}

DCUDA_DEVICE void act_once(dcuda::rank& self, dcuda::communicator comm, const task& asked, const double* in,
                           double* out, double value, double& result) {
    if (asked.act == action::allreduce_value)
        result = self.allreduce(comm, value, dcuda::sum{});
    else if (asked.act == action::broadcast_value)
        result = self.broadcast(comm, value, 0);
    else if (asked.act == action::allreduce_array)
        self.allreduce(comm, out, in, asked.count, dcuda::sum{});
    else if (asked.act == action::scan_value)
        result = self.scan(comm, value, dcuda::sum{});
    else if (asked.act == action::all_gather)
        self.all_gather(comm, out, in, asked.count);
    else if (asked.act == action::all_to_all)
        self.all_to_all(comm, out, in, asked.count);
    else
        self.barrier(comm);
}

// Members have the values number + 1, and place + number + 1, whose sums are exact.
__global__ void __launch_bounds__(128, 8) collectives(dcuda::context context, task asked, int rounds, int batches,
                                                      double* memory, interval* stamps, mistake* wrong) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const std::size_t place = 2 * asked.values() * blockIdx.x;
    double *const in = memory + place, *const out = in + asked.values();
    const dcuda::communicator comm = make_group(self, asked);
    if (comm != dcuda::none) {
        const int number = self.id(comm), size = self.size(comm);
        const double sum = 0.5 * size * (size + 1);
        for (std::size_t i = threadIdx.x; i < asked.values(); i += blockDim.x)
            in[i] = static_cast<double>(i) + number + 1;
        double result = 0;
        for (int batch = -1; batch < batches; ++batch) {
            self.barrier(comm);
            const std::uint64_t start = now_ns();
            for (int round = 0; round < rounds; ++round) act_once(self, comm, asked, in, out, number + 1, result);
            const std::uint64_t stop = now_ns();
            if (batch >= 0 && number == 0 && blockIdx.x == 0 && threadIdx.x == 0) stamps[batch] = {start, stop};
            if (threadIdx.x == 0 && asked.act == action::allreduce_value)
                expect(wrong, batch, 0, 0, static_cast<std::uint32_t>(sum), static_cast<std::uint32_t>(result));
            if (threadIdx.x == 0 && asked.act == action::broadcast_value)
                expect(wrong, batch, 0, 0, 1, static_cast<std::uint32_t>(result));
            if (threadIdx.x == 0 && asked.act == action::scan_value)
                expect(wrong, batch, 0, 0, static_cast<std::uint32_t>(0.5 * (number + 1) * (number + 2)),
                       static_cast<std::uint32_t>(result));
            if (has_pieces(asked.act))
                for (std::size_t i = threadIdx.x; i < asked.count * size; i += blockDim.x) {
                    const std::size_t sender = i / asked.count,
                                      first = asked.act == action::all_gather ? 0 : number * asked.count;
                    expect(wrong, batch, 0, i, static_cast<std::uint32_t>(first + i % asked.count + sender + 1),
                           static_cast<std::uint32_t>(out[i]));
                }
            if (asked.act == action::allreduce_array)
                for (std::size_t i = threadIdx.x; i < asked.count; i += blockDim.x)
                    expect(wrong, batch, 0, i, static_cast<std::uint32_t>(size * static_cast<double>(i) + sum),
                           static_cast<std::uint32_t>(out[i]));
        }
    }
}

void measure(session& suite, const char* path, const char* operation, task asked, int ranks) {
    asked.members_at_most = static_cast<std::size_t>(asked.members == group::first ? asked.first : ranks) *
                            static_cast<std::size_t>(suite.job.process_count);
    // As many as fit beside each other.
    const int threads =
        ranks > 1056 ? std::min(64, suite.chosen.collectives.threads) : suite.chosen.collectives.threads;
    const bool has_bytes = asked.act != action::barrier;
    row result{"collectives", path, operation, has_bytes ? asked.count * sizeof(double) : 0, threads, ranks};
    const int most = suite.runtime.plan(collectives, shape(threads, 0)).rank_responsible;
    if (DCUDA_BACKEND_CUDA && ranks > most) {
        result.missing = "at most " + std::to_string(most) + " ranks fit on the device";
        suite.rows.push_back(result);
        return;
    }
    const int rounds = asked.count > 1 ? suite.rounds(100, 5) : suite.rounds(500, 20);
    const int batches = suite.batches(12, 6);
    const results measured(batches, 1);
    const auto memory = allocate<double>(2 * asked.values() * static_cast<std::size_t>(ranks));
    suite.run(result, collectives, shape(threads, ranks), asked, rounds, batches, memory.get(), measured.stamps(),
              measured.wrong());
    if (result.measured()) {
        measured.require_right(result);
        result.value = measure::summarise(scaled(measured.microseconds(), 1.0 / rounds));
    }
    suite.rows.push_back(result);
}

} // namespace

void measure_collectives(session& suite) {
    const auto& chosen = suite.chosen.collectives;
    for (const int ranks : chosen.ranks)
        measure(suite, "same device", "allreduce", {action::allreduce_value, group::device, 0, 1}, ranks);
    if (suite.job.process_count < 2) {
        suite.add_missing({"collectives", "all devices", "allreduce"});
        return;
    }
    measure(suite, "all devices", "allreduce", {action::allreduce_value, group::world, 0, 1}, 1);
    measure(suite, "all devices", "allreduce", {action::allreduce_array, group::world, 0, chosen.large_count}, 1);
    measure(suite, "all devices", "broadcast", {action::broadcast_value, group::world, 0, 1}, 1);
    measure(suite, "all devices", "all_gather", {action::all_gather, group::world, 0, 128}, 1);
    measure(suite, "all devices", "all_to_all", {action::all_to_all, group::world, 0, 128}, 1);
    for (const int ranks : chosen.world_ranks) {
        measure(suite, "all devices", "allreduce", {action::allreduce_value, group::world, 0, 1}, ranks);
        measure(suite, "all devices", "allreduce", {action::allreduce_array, group::world, 0, chosen.large_count},
                ranks);
        measure(suite, "all devices", "broadcast", {action::broadcast_value, group::world, 0, 1}, ranks);
        measure(suite, "columns", "allreduce", {action::allreduce_value, group::columns, 0, 1}, ranks);
        measure(suite, "columns", "allreduce", {action::allreduce_array, group::columns, 0, chosen.column_count},
                ranks);
        measure(suite, "columns", "barrier", {action::barrier, group::columns, 0, 0}, ranks);
        measure(suite, "all devices", "scan", {action::scan_value, group::world, 0, 1}, ranks);
        measure(suite, "all devices", "all_gather", {action::all_gather, group::world, 0, 1}, ranks);
    }
    measure(suite, "columns", "allreduce", {action::allreduce_array, group::columns, 0, chosen.many_count},
            chosen.world_ranks.front());
    const int few = 16 / suite.job.process_count;
    measure(suite, "16 ranks", "all_to_all", {action::all_to_all, group::first, few, 128}, chosen.world_ranks.front());
    measure(suite, "16 ranks", "all_gather", {action::all_gather, group::first, few, 128}, chosen.world_ranks.front());
    measure(suite, "16 ranks", "allreduce", {action::allreduce_array, group::first, few, chosen.large_count},
            chosen.world_ranks.front());
    measure(suite, "8 ranks", "barrier", {action::barrier, group::first, 8 / suite.job.process_count, 0},
            chosen.world_ranks.front());
}

} // namespace benchmark
