// SPDX-License-Identifier: BSD-3-Clause
// What it costs a rank to have many targets, and many sources: a notified put to each of them in turn, and a wait for
// each message when all have arrived; notifications of all of them, one after the other and in one call. And an
// exchange of notifications of all ranks with so many neighbours each.
#include "common/ping_pong.hpp"
#include "common/session.hpp"
#include "dcuda/dcuda.hpp"

namespace benchmark {
namespace {

struct party {
    int partners, laps, batches;
    int first_partner; // world rank
    std::size_t bytes; // of a message
};

// How long the messages of all partners may take: more than a rank that waits for long sleeps between two looks.
constexpr std::uint64_t arrival_ns = 20'000;

// World rank 0 sends to each partner; all answer; when the answers are there, it waits for one after the other. All
// other ranks watch. Each partner has a place of its own in the window of rank 0. Then, in laps of their own, it
// notifies them, one after the other and by one call with the list of them: a rank keeps 26 targets near, of which puts
// to a window are others than notifications. How long those of a batch took: puts, waits, notifications, lists.
constexpr int measured_parts = 4;
__global__ void in_turn(dcuda::context context, party of, unsigned char* memory, int* list, interval* taken,
                        mistake* wrong) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int id = self.id(), partner = id - of.first_partner;
    const bool plays = partner >= 0 && partner < of.partners;
    const std::size_t stride = stride_bytes(of.bytes);
    unsigned char* const source = memory + self.id(dcuda::device) * 2 * stride;
    unsigned char* const landing = id == 0 ? memory + self.size(dcuda::device) * 2 * stride : source + stride;
    const dcuda::window window = self.create_window(dcuda::world, landing,
                                                    id == 0 ? of.partners * stride
                                                    : plays ? stride
                                                            : 0);
    for (int i = threadIdx.x; id == 0 && i < of.partners; i += blockDim.x) list[i] = of.first_partner + i;
    for (int batch = -1; batch < of.batches; ++batch) {
        if (id == 0 || plays) fill(source, of.bytes, batch, plays ? 1 + partner : 0);
        self.barrier(dcuda::world);
        std::uint64_t part_ns[measured_parts] = {};
        for (int lap = 0; lap < of.laps; ++lap) {
            if (id == 0) {
                const std::uint64_t start = now_ns();
                for (int i = 0; i < of.partners; ++i)
                    self.put_notify(window, of.first_partner + i, 0, of.bytes, source, 0);
                const std::uint64_t sent = now_ns();
                while (now_ns() - sent < arrival_ns) {
                }
                const std::uint64_t arrived = now_ns();
                for (int i = 0; i < of.partners; ++i) self.wait_notifications(0, 1);
                part_ns[0] += sent - start;
                part_ns[1] += now_ns() - arrived;
            } else if (plays) {
                self.wait_notifications(0, 1);
                self.put_notify(window, 0, partner * stride, of.bytes, source, 0);
            }
        }
        for (int lap = -1; lap < of.laps; ++lap) { // one to bring the targets near
            if (id == 0) {
                const std::uint64_t start = now_ns();
                for (int i = 0; i < of.partners; ++i) self.notify(of.first_partner + i, dcuda::world, 1);
                const std::uint64_t notified = now_ns();
                self.notify_each(list, of.partners, dcuda::world, 1);
                if (lap >= 0) {
                    part_ns[2] += notified - start;
                    part_ns[3] += now_ns() - notified;
                }
                self.wait_notifications(2, of.partners); // so no queue stays full
            } else if (plays) {
                self.wait_notifications(1, 2);
                self.notify(0, dcuda::world, 2);
            }
        }
        if (id == 0 && batch >= 0 && threadIdx.x == 0)
            for (int part = 0; part < measured_parts; ++part) taken[part * of.batches + batch] = {0, part_ns[part]};
        self.barrier(dcuda::world);
        if (plays) compare(wrong, landing, of.bytes, batch, 0);
        for (int i = 0; id == 0 && i < of.partners; ++i) compare(wrong, landing + i * stride, of.bytes, batch, 1 + i);
    }
    self.free_window(window);
}

void measure_partners_of(session& suite, bool peer, int partners) {
    const auto& chosen = suite.chosen.partners;
    row put{"partners",
            peer ? suite.other_device() : "same device",
            "put_notify to one of " + std::to_string(partners),
            chosen.bytes,
            chosen.threads,
            peer ? partners : 1 + partners};
    const int laps = std::max(4, suite.rounds(2000, 60) / partners), batches = suite.batches(12, 6);
    const party of{partners, laps, batches, peer ? put.ranks : 1, chosen.bytes};
    const std::size_t stride = stride_bytes(chosen.bytes);
    const auto memory = allocate<unsigned char>(static_cast<std::size_t>(2 * put.ranks + partners) * stride);
    const auto list = allocate<int>(static_cast<std::size_t>(partners));
    const results taken(measured_parts * batches, 1);
    suite.run(put, in_turn, shape(chosen.threads, put.ranks), of, memory.get(), list.get(), taken.stamps(),
              taken.wrong());
    taken.require_right(put);
    const std::vector<double> all = taken.microseconds();
    const char* const operations[measured_parts] = {"put_notify to one of ", "wait for one of ", "notify to one of ",
                                                    "notify_each to one of "};
    for (int part = 0; part < measured_parts; ++part) {
        row next = put;
        next.operation = operations[part] + std::to_string(partners);
        if (part >= 2) next.bytes = 0;
        const auto first = all.begin() + part * batches;
        next.value = measure::summarise(scaled({first, first + batches}, 1.0 / laps / partners));
        suite.rows.push_back(next);
    }
}

// Each rank of a device notifies its neighbours by one call and waits for as many notifications, as in an exchange of
// ghost cells. They are the ranks next to it, in a ring.
__global__ void with_neighbours(dcuda::context context, int neighbours, int laps, int batches, int* lists,
                                interval* taken) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int id = self.id(dcuda::device), ranks = self.size(dcuda::device);
    int* const list = lists + id * neighbours;
    for (int i = threadIdx.x; i < neighbours; i += blockDim.x)
        list[i] = (id + ranks - neighbours / 2 + i + (i < neighbours / 2 ? 0 : 1)) % ranks;
    __syncthreads();
    for (int batch = -1; batch < batches; ++batch) {
        self.barrier(dcuda::device);
        const std::uint64_t start = now_ns();
        for (int lap = 0; lap < laps; ++lap) {
            self.notify_each(list, neighbours, dcuda::device, lap % 2);
            self.wait_notifications(lap % 2, neighbours);
        }
        if (self.id() == 0 && batch >= 0 && threadIdx.x == 0) taken[batch] = {start, now_ns()};
    }
}

void measure_exchange(session& suite, int neighbours) {
    constexpr int ranks = 132;
    const int threads = suite.chosen.partners.threads, laps = suite.rounds(2000, 20), batches = suite.batches(12, 6);
    row next{"partners", "same device", "exchange of notifications with " + std::to_string(neighbours),
             0,          threads,       DCUDA_BACKEND_CUDA ? ranks : neighbours + 1};
    const auto lists = allocate<int>(static_cast<std::size_t>(next.ranks * neighbours));
    const results taken(batches, 1);
    suite.run(next, with_neighbours, shape(threads, next.ranks), neighbours, laps, batches, lists.get(),
              taken.stamps());
    next.value = measure::summarise(scaled(taken.microseconds(), 1.0 / laps));
    suite.rows.push_back(next);
}

} // namespace

void measure_partners(session& suite) {
    for (const int neighbours : {2, 4, 8, 18, 26}) measure_exchange(suite, neighbours);
    for (const bool peer : {false, true}) {
        if (peer && suite.job.process_count < 2) {
            suite.add_missing({"partners", suite.other_device(), "put_notify"});
            continue;
        }
        for (const int partners : suite.chosen.partners.partners) measure_partners_of(suite, peer, partners);
    }
}

} // namespace benchmark
