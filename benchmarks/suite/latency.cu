// SPDX-License-Identifier: BSD-3-Clause
// One-way latency of notify and put_notify: half of a round trip between two ranks, timed by the rank itself, in the
// kernel. Same device: both ranks on one device. Peer: on two devices. Beside: the same without the library. And what
// these latencies become in a run that is traced.
#include "suite/ping_pong.hpp"

namespace benchmark {
namespace {

// `relaxed`: of notifications alone.
__global__ void ping_pong(dcuda::context context, game of, bool relaxed, const board* board) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    play_or_watch(self, of, relaxed, board);
}

// The waiting side does not know which tag comes: any of so many.
struct any_tag_channel {
    dcuda::rank& self;
    int peer, tags;

    DCUDA_DEVICE void send(const void*, int) { self.notify(peer, dcuda::world, tag); }
    DCUDA_DEVICE void wait() { self.wait_any(tag, tags); }
    DCUDA_DEVICE void complete() {}
    DCUDA_DEVICE void barrier() { self.barrier(dcuda::world); }
};

__global__ void ping_pong_any(dcuda::context context, game of, int tags, const board* board) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int id = self.id();
    if (id < 2) {
        any_tag_channel channel{self, 1 - id, tags};
        play(channel, of, board->players[id]);
    } else {
        for (int batch = -1; batch < of.batches; ++batch) self.barrier(dcuda::world);
    }
}

// --- Without the library: the floor ----------------------------------------------------------------------------------

struct raw_player {
    side which;
    packet* landing; // of this side
    packet* target;  // landing of the other side
    interval* stamps;
    mistake* wrong;
};
struct raw_board {
    raw_player players[2];
};

// The flag alone: one thread stores the number of the round and looks for the answer. The payload: each thread stores
// 12 bytes and the number at once, and looks for its own part of the answer; then the threads meet, for only then has
// the block got all of it.
__global__ void raw_ping_pong(dcuda::context context, game of, const raw_board* board) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int id = self.id();
    const raw_player me = board->players[id < 2 ? id : 0];
    const bool is_ping = id == 0;
    const std::uint32_t thread = threadIdx.x;
    const std::uint32_t packets = (of.words + 2) / 3;
    const bool moves = id < 2 && thread < packets;
    bool answered = true;

    for (int batch = -1; batch < of.batches; ++batch) {
        const std::uint32_t number = static_cast<std::uint32_t>(batch + 1) * static_cast<std::uint32_t>(of.rounds) + 1;
        const auto send = [&](int round) {
            const std::uint32_t sequence = number + static_cast<std::uint32_t>(round);
            if (of.words == 0) {
                if (thread == 0) store_word(&me.target->sequence, sequence);
            } else if (moves) {
                store_packet(me.target + thread, {{sequence ^ thread, sequence + thread, ~sequence}, sequence});
            }
        };
        const auto wait = [&](int round) {
            const std::uint32_t sequence = number + static_cast<std::uint32_t>(round);
            packet seen{{0, 0, 0}, 0};
            if (answered && of.words == 0 && thread == 0)
                answered = poll_until([&] { return load_word(&me.landing->sequence) == sequence; });
            if (answered && moves)
                answered = poll_until([&] {
                    seen = load_packet(me.landing + thread);
                    return seen.sequence == sequence;
                });
            __syncthreads();
            if (!answered) {
                expect(me.wrong, batch, round, thread, sequence, 0);
            } else if (moves) {
                expect(me.wrong, batch, round, 3 * thread, sequence ^ thread, seen.payload[0]);
                expect(me.wrong, batch, round, 3 * thread + 1, sequence + thread, seen.payload[1]);
                expect(me.wrong, batch, round, 3 * thread + 2, ~sequence, seen.payload[2]);
            }
        };

        self.barrier(dcuda::world);
        if (id >= 2) continue;
        const std::uint64_t start = now_ns();
        if (is_ping) send(0);
        for (int round = 0; round < of.rounds; ++round) {
            wait(round);
            const int next = is_ping ? round + 1 : round;
            if (next < of.rounds) send(next);
        }
        const std::uint64_t stop = now_ns();
        if (is_ping && batch >= 0 && thread == 0) me.stamps[batch] = {start, stop};
    }
}

// --- Ranges of the timeline ------------------------------------------------------------------------------------------

// One rank alone begins and ends ranges.
__global__ void ranges(dcuda::context context, int rounds, int batches, interval* stamps) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    if (self.id() != 0) return;
    for (int batch = -1; batch < batches; ++batch) {
        const std::uint64_t start = now_ns();
        for (int round = 0; round < rounds; ++round) auto one = self.range("one");
        const std::uint64_t stop = now_ns();
        if (batch >= 0 && threadIdx.x == 0) stamps[batch] = {start, stop};
    }
}

// --- Host ------------------------------------------------------------------------------------------------------------

struct memory {
    device_array<unsigned char> players; // both players' buffers
    device_array<board> game_board;
    device_array<raw_board> raw_game_board;
};

// Leaves in `measured` how long each batch took.
row play_library(session& suite, const memory& used, bool peer, std::size_t bytes, int threads, bool relaxed,
                 bool traced, const results& measured) {
    const char* const operation = bytes != 0 ? "put_notify" : relaxed ? "notify_relaxed" : "notify";
    row entry{"latency", peer ? suite.other_device() : "same device", operation, bytes, threads, peer ? 1 : 2};
    const game of = choose_game(suite, bytes);
    set_board(used.game_board.get(), used.players.get(), bytes, measured);
    dcuda::launch_config config = shape(threads, entry.ranks);
    config.profiled = traced;
    suite.run(entry, ping_pong, config, of, relaxed, used.game_board.get());
    summarise_latency(measured, of, entry);
    return entry;
}

row measure_library(session& suite, const memory& used, bool peer, std::size_t bytes, int threads,
                    bool relaxed = false) {
    return play_library(suite, used, peer, bytes, threads, relaxed, false,
                        results(choose_game(suite, bytes).batches, 1));
}

row measure_any(session& suite, const memory& used, bool peer, int tags, int threads) {
    row entry{
        "latency",   peer ? suite.other_device() : "same device", "notify, any of " + std::to_string(tags), 0, threads,
        peer ? 1 : 2};
    const game of = choose_game(suite, 0);
    const results measured(of.batches, 1);
    set_board(used.game_board.get(), used.players.get(), 0, measured);
    suite.run(entry, ping_pong_any, shape(threads, entry.ranks), of, tags, used.game_board.get());
    summarise_latency(measured, of, entry);
    return entry;
}

row measure_raw(session& suite, const memory& used, const neighbour_memory* neighbour, std::size_t bytes, int threads) {
    const bool peer = neighbour != nullptr;
    row entry{"latency",   peer ? "peer" : "same device", bytes == 0 ? "raw flag" : "raw packets", bytes, threads,
              peer ? 1 : 2};
    const game of = choose_game(suite, bytes);
    const results measured(of.batches, 1);
    const auto own = allocate<packet>(2 * 1024);
    raw_board pieces;
    for (int i = 0; i < 2; ++i) {
        packet* const landing = peer ? reinterpret_cast<packet*>(neighbour->own()) : own.get() + i * 1024;
        packet* const target = peer ? reinterpret_cast<packet*>(neighbour->theirs()) : own.get() + (1 - i) * 1024;
        pieces.players[i] = {static_cast<side>(i), landing, target, measured.stamps(), measured.wrong()};
    }
    // What an earlier game left there must not look like an answer.
    if (peer) {
        check(cudaMemset(neighbour->own(), 0, 1024 * sizeof(packet)), "cannot clear device memory");
        check(cudaDeviceSynchronize(), "cannot clear device memory");
    }
    check(cudaMemcpy(used.raw_game_board.get(), &pieces, sizeof pieces, cudaMemcpyHostToDevice),
          "cannot copy parameters");
    suite.runtime.run(raw_ping_pong, shape(threads, entry.ranks), of, used.raw_game_board.get());
    summarise_latency(measured, of, entry);
    return entry;
}

// Rows of the same without and with tracing, and what each of `events` in a round then takes, batch by batch.
void add_cost(session& suite, row off, row on, const results& plain, const results& traced, int rounds, int events) {
    row each = off;
    off.benchmark = on.benchmark = each.benchmark = "trace";
    on.operation += ", traced";
    each.operation += ", an event";
    each.unit = "ns";
    const std::vector<double> before = plain.microseconds(), after = traced.microseconds();
    std::vector<double> difference;
    for (std::size_t batch = 0; batch < before.size(); ++batch) difference.push_back(after[batch] - before[batch]);
    each.value = measure::summarise(scaled(difference, 1e3 / rounds / events));
    for (const row& one : {off, on, each}) suite.rows.push_back(one);
}

} // namespace

void measure_latency(session& suite) {
    std::vector<std::size_t> payloads{0};
    payloads.insert(payloads.end(), suite.chosen.latency.sizes.begin(), suite.chosen.latency.sizes.end());
    std::size_t largest = 0;
    for (const std::size_t bytes : payloads) largest = std::max(largest, bytes);
    const memory used{allocate<unsigned char>(2 * buffers_of_player * stride_bytes(largest)), allocate<board>(1),
                      allocate<raw_board>(1)};

    for (const bool peer : {false, true}) {
        if (peer && suite.job.process_count < 2) {
            suite.add_missing({"latency", suite.other_device(), "put_notify"});
            continue;
        }
        std::unique_ptr<neighbour_memory> neighbour;
        const bool is_remote = peer && !suite.runtime.network().empty(); // nothing can be stored there directly
        if (peer && !is_remote) neighbour = std::make_unique<neighbour_memory>(suite.runtime, 1024 * sizeof(packet));
        for (const std::size_t bytes : payloads)
            for (const int threads : suite.chosen.latency.threads) {
                if (bytes == 0) suite.rows.push_back(measure_library(suite, used, peer, bytes, threads, true));
                if (bytes == 0)
                    for (const int tags : {1, 256}) suite.rows.push_back(measure_any(suite, used, peer, tags, threads));
                suite.rows.push_back(measure_library(suite, used, peer, bytes, threads));
                const bool is_raw = (bytes + 11) / 12 <= static_cast<std::size_t>(threads); // one packet of each thread
                if (is_remote || !is_raw) continue;
                const row floor = measure_raw(suite, used, neighbour.get(), bytes, threads);
                suite.rows.back().rivals.push_back({floor.operation, floor.value.median});
                suite.rows.push_back(floor);
            }
    }
}

void measure_trace(session& suite) {
    if (!DCUDA_PROFILING) {
        row none{"trace", "same device", "an event"};
        none.missing = "takes dcuda-bench-profiled: these kernels cannot be profiled";
        suite.rows.push_back(none);
        return;
    }
    constexpr int threads = by_backend(128, 32);
    constexpr std::size_t largest = 384;
    const memory used{allocate<unsigned char>(2 * buffers_of_player * stride_bytes(largest)), allocate<board>(1),
                      allocate<raw_board>(1)};
    for (const bool peer : {false, true}) {
        if (peer && suite.job.process_count < 2) continue;
        for (const std::size_t bytes : {std::size_t{0}, largest}) {
            const game of = choose_game(suite, bytes);
            const results plain(of.batches, 1), traced(of.batches, 1);
            const row off = play_library(suite, used, peer, bytes, threads, false, false, plain);
            const row on = play_library(suite, used, peer, bytes, threads, false, true, traced);
            add_cost(suite, off, on, plain, traced, of.rounds, 4); // both sides send and wait
        }
    }
    const int rounds = suite.rounds(1000, 1000), batches = suite.batches(12, 6);
    const auto measure_ranges = [&](bool profiled, const results& measured) {
        row entry{"trace", "same device", "range", 0, threads, 1};
        dcuda::launch_config config = shape(threads, entry.ranks);
        config.profiled = profiled;
        suite.run(entry, ranges, config, rounds, batches, measured.stamps());
        entry.value = measure::summarise(scaled(measured.microseconds(), 1.0 / rounds));
        return entry;
    };
    const results plain(batches, 1), traced(batches, 1);
    const row off = measure_ranges(false, plain), on = measure_ranges(true, traced);
    add_cost(suite, off, on, plain, traced, rounds, 2);
}

} // namespace benchmark
