// SPDX-License-Identifier: BSD-3-Clause
// Gets and atomic operations: how long one takes, and how many atomic operations on one word a device takes from all.
// Notified accumulates and boxes: there and back.
#include "common/session.hpp"
#include "common/turns.hpp"
#include "dcuda/dcuda.hpp"

namespace benchmark {
namespace {

enum class kind : int { get, fetch_add, compare_swap, add };

struct one_sided_run {
    kind operation;
    int source, target; // world ranks; source -1: all
    std::size_t bytes;  // of a get
    int rounds, batches;
};

// Each source works on the window of the target: its first word is for atomic operations, and a pattern follows.
__global__ void operate(dcuda::context context, one_sided_run suite, unsigned char* memory, interval* stamps,
                        mistake* wrong) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int id = self.id();
    const bool is_source = suite.source < 0 || id == suite.source;
    const std::size_t room = suite.bytes + 256;
    auto* const own = reinterpret_cast<std::uint32_t*>(memory + 2 * room * blockIdx.x);
    auto* const copy = reinterpret_cast<std::uint32_t*>(memory + 2 * room * blockIdx.x + room);
    if (id == suite.target) fill(own + 64, suite.bytes, 0, 0);
    if (threadIdx.x == 0) own[0] = 0;
    const dcuda::window window = self.create_window(dcuda::world, own, room);
    std::uint32_t sum = 0;
    for (int batch = -1; batch < suite.batches; ++batch) {
        self.barrier(dcuda::world);
        if (is_source) {
            const std::uint64_t start = now_ns();
            for (int round = 0; round < suite.rounds; ++round) {
                if (suite.operation == kind::get) {
                    self.get(window, suite.target, 256, suite.bytes, copy + 64);
                    self.flush(window);
                } else if (suite.operation == kind::fetch_add) {
                    sum += self.fetch_add(window, suite.target, 0, 1u);
                } else if (suite.operation == kind::compare_swap) {
                    sum += self.compare_swap(window, suite.target, 0, sum, sum + 1);
                } else {
                    self.add(window, suite.target, 0, 1u);
                }
            }
            if (suite.operation == kind::add) self.flush(window);
            const std::uint64_t stop = now_ns();
            if (batch >= 0 && threadIdx.x == 0)
                stamps[suite.source >= 0 ? batch : batch * self.size(dcuda::device) + self.id(dcuda::device)] = {start,
                                                                                                                 stop};
        }
        self.barrier(dcuda::world);
        if (is_source && suite.operation == kind::get)
            for (std::uint32_t i = threadIdx.x; i < suite.bytes / sizeof(std::uint32_t); i += blockDim.x)
                expect(wrong, batch, no_round, i, pattern(0, 0, i), copy[64 + i]);
    }
    // Nothing was lost: all additions are there.
    const bool counts = suite.operation == kind::fetch_add || suite.operation == kind::add;
    if (counts && id == suite.target && threadIdx.x == 0) {
        const int sources = suite.source < 0 ? self.size() : 1;
        expect(wrong, suite.batches, no_round, 0,
               static_cast<std::uint32_t>(sources * suite.rounds * (suite.batches + 1)), own[0]);
    }
    if (threadIdx.x == 0) copy[0] = sum;
    self.free_window(window);
}

void measure_one(session& suite, bool peer, const char* name, kind operation, std::size_t bytes) {
    constexpr int threads = 128;
    row entry{"one_sided", peer ? suite.other_device() : "same device", name, bytes, threads, peer ? 1 : 2};
    if (peer && suite.job.process_count < 2) return suite.add_missing(entry);
    const int rounds = suite.rounds(bytes > 100000 ? 50 : 500, 20), batches = suite.batches(12, 4);
    const auto memory = allocate<unsigned char>(4 * (bytes + 256));
    const results measured(batches, 1);
    suite.run(entry, operate, shape(threads, entry.ranks),
              one_sided_run{operation, 0, 1, operation == kind::get ? bytes : 0, rounds, batches}, memory.get(),
              measured.stamps(), measured.wrong());
    measured.require_right(entry);
    entry.value = measure::summarise(scaled(measured.microseconds(), 1.0 / rounds));
    suite.rows.push_back(entry);
}

// All ranks of all devices on one word of rank 0.
void measure_all(session& suite, kind operation, const char* name) {
    constexpr int threads = 32;
    const int ranks = by_backend(suite.multiprocessors, 4), rounds = suite.rounds(200, 20),
              batches = suite.batches(12, 4);
    const bool peer = suite.job.process_count > 1;
    row entry{
        "one_sided", peer ? suite.other_device() : "same device", name, 4, threads, ranks * suite.job.process_count};
    const auto memory = allocate<unsigned char>(static_cast<std::size_t>(ranks) * 512);
    const results measured(batches, ranks);
    suite.run(entry, operate, shape(threads, ranks), one_sided_run{operation, -1, 0, 0, rounds, batches}, memory.get(),
              measured.stamps(), measured.wrong());
    measured.require_right(entry);
    entry.unit = "M/s";
    entry.value = measure::summarise(
        rate(static_cast<double>(rounds) * ranks * suite.job.process_count, measured.microseconds()));
    suite.rows.push_back(entry);
}

// What rank 0 sends to rank 1, and back.
struct message_channel {
    static constexpr int tag = 0;
    dcuda::rank& self;
    dcuda::window window;
    layout of;
    const std::uint32_t* source;
    int peer;

    DCUDA_DEVICE void send() {
        const dcuda::pitch distance{of.pitch * sizeof(std::uint32_t)};
        if (of.is_sum)
            self.accumulate_notify(window, peer, 0, of.width, reinterpret_cast<const float*>(source), dcuda::sum{},
                                   tag);
        else
            self.put_notify(window, peer, 0, distance, dcuda::box{of.width * sizeof(std::uint32_t), of.rows}, source,
                            distance, tag);
    }
    DCUDA_DEVICE void wait() { self.wait_notifications(tag, 1); }
    DCUDA_DEVICE void barrier() { self.barrier(dcuda::world); }
};

// All ranks; those after 0 and 1 watch. The memory of a device holds landing and source of each player that it has.
__global__ void take_turns_of_ranks(dcuda::context context, layout of, int rounds, int batches, unsigned char* memory,
                                    interval* stamps, mistake* wrong) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int id = self.id();
    const bool plays = id < 2;
    auto* const landing = reinterpret_cast<std::uint32_t*>(memory + 2 * of.span() * blockIdx.x);
    auto* const source = reinterpret_cast<std::uint32_t*>(memory + 2 * of.span() * blockIdx.x + of.span());
    const dcuda::window window = self.create_window(dcuda::world, plays ? landing : nullptr, plays ? of.span() : 0);
    message_channel channel{self, window, of, source, 1 - id};
    if (plays)
        take_turns(channel, {static_cast<side>(id), of, rounds, batches, landing, source, stamps, wrong});
    else
        watch_turns(channel, batches);
    self.free_window(window);
}

void measure_turns(session& suite, bool peer, const char* name, const layout& of) {
    constexpr int threads = 128;
    row entry{"one_sided", peer ? suite.other_device() : "same device", name, of.bytes(), threads, peer ? 1 : 2};
    if (peer && suite.job.process_count < 2) return suite.add_missing(entry);
    const int rounds = suite.rounds(500, 5), batches = suite.batches(12, 4);
    const auto memory = allocate<unsigned char>(4 * of.span());
    const results measured(batches, 1);
    suite.run(entry, take_turns_of_ranks, shape(threads, entry.ranks), of, rounds, batches, memory.get(),
              measured.stamps(), measured.wrong());
    measured.require_right(entry);
    entry.value = measure::summarise(scaled(measured.microseconds(), 0.5 / rounds));
    suite.rows.push_back(entry);
}

} // namespace

void measure_one_sided(session& suite) {
    for (const bool peer : {false, true}) {
        measure_one(suite, peer, "fetch_add", kind::fetch_add, 4);
        measure_one(suite, peer, "compare_swap", kind::compare_swap, 4);
        measure_one(suite, peer, "add", kind::add, 4);
        for (const std::size_t bytes : {std::size_t{8}, std::size_t{1024}, std::size_t{65536}, std::size_t{1} << 20})
            measure_one(suite, peer, "get and flush", kind::get, bytes);
        measure_turns(suite, peer, "accumulate_notify", floats_to_add);
        measure_turns(suite, peer, "put_notify of a column", column_of_doubles);
        measure_turns(suite, peer, "put_notify of rows", rows_of_a_face);
    }
    measure_all(suite, kind::fetch_add, "fetch_add by all on one word");
    measure_all(suite, kind::add, "add by all to one word");
}

} // namespace benchmark
