// SPDX-License-Identifier: BSD-3-Clause
// The ping-pong that every library under test plays: the same rounds, payload and checks for all of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/device.hpp"

namespace benchmark {

// How often, and with how much payload.
struct game {
    std::uint32_t words; // of 4 bytes; 0: no payload
    int rounds;          // of one batch
    int batches;         // that are timed; one more goes before them to warm up
};

enum class side : int { ping, pong };

// One side's part, in device memory.
struct player {
    side which;
    std::uint32_t* landings[2]; // where the other side puts, in turn: a payload is read while the next one travels
    std::uint32_t* sources[2];  // sent in turn: the next payload is made while the last one travels
    interval* stamps;           // ping's result, one entry per batch
    mistake* wrong;
};

inline constexpr std::size_t buffers_of_player = 4;

// Bytes of one buffer, so that buffers that follow each other are aligned alike.
DCUDA_HOST_DEVICE constexpr std::size_t stride_bytes(std::size_t payload_bytes) {
    return (payload_bytes + 255) / 256 * 256 + 256;
}

// The player whose buffers lie at `memory`: landings, then sources.
inline player make_player(side which, void* memory, std::size_t payload_bytes, interval* stamps, mistake* wrong) {
    const std::size_t stride = stride_bytes(payload_bytes) / sizeof(std::uint32_t);
    auto* const words = static_cast<std::uint32_t*>(memory);
    return {which, {words, words + stride}, {words + 2 * stride, words + 3 * stride}, stamps, wrong};
}

// The threads of a side: all of the calling one's block. Others than these have the same functions.
struct threads_of_block {
    DCUDA_DEVICE unsigned thread() const { return threadIdx.x; }
    DCUDA_DEVICE unsigned threads() const { return blockDim.x; }
    DCUDA_DEVICE void sync() const { __syncthreads(); }
};

// All threads of both sides. The player comes by value: a library that invalidates the L1 cache when it waits must not
// pay for reading our parameters again. A channel has
//   send(source, landing)  puts the payload into the other side's landing buffer of this number and signals it
//   wait()                 waits for the other side's signal
//   complete()             the sources of this side may change
//   barrier()              both sides meet
//
// The first and the last word of a payload stand for the number of its round. One thread writes them while the payload
// before travels, and reads and compares them after the answer has left: the payload is used and checked in every
// round, and nothing of that is in the timed path. A landing buffer is written again two rounds later, which needs the
// answer of the round between: by then it has been read.
template <class Channel, class Threads = threads_of_block>
DCUDA_DEVICE void play(Channel& channel, const game of, const player me, const Threads& all = {}) {
    const bool is_ping = me.which == side::ping;
    const int name = static_cast<int>(me.which);
    const bool is_clerk = all.thread() == all.threads() - 1; // not in the warp that signals and polls, if there are two
    const bool has_payload = of.words != 0;
    const std::uint32_t last = of.words - 1;

    for (int batch = -1; batch < of.batches; ++batch) {
        const std::uint32_t number = static_cast<std::uint32_t>(batch + 1) * static_cast<std::uint32_t>(of.rounds) + 1;
        const auto put_stamp = [&](int round) {
            if (!has_payload || !is_clerk) return;
            const std::uint32_t stamp = stamp_of(number + static_cast<std::uint32_t>(round));
            me.sources[round & 1][0] = stamp;
            me.sources[round & 1][last] = stamp;
        };
        const auto send = [&](int round) {
            channel.send(me.sources[round & 1], round & 1);
            put_stamp(round + 1);
        };

        for (std::uint32_t i = all.thread(); i < of.words; i += all.threads()) {
            me.sources[0][i] = me.sources[1][i] = pattern(batch, name, i);
            me.landings[0][i] = me.landings[1][i] = 0;
        }
        all.sync();
        put_stamp(0);
        channel.barrier();

        const std::uint64_t start = now_ns();
        if (is_ping) send(0);
        for (int round = 0; round < of.rounds; ++round) {
            channel.wait();
            const int next = is_ping ? round + 1 : round;
            if (next < of.rounds) send(next);
            if (!has_payload || !is_clerk) continue;
            const std::uint32_t expected = stamp_of(number + static_cast<std::uint32_t>(round));
            const std::uint32_t* const landing = me.landings[round & 1];
            expect(me.wrong, batch, round, 0, expected, landing[0]);
            expect(me.wrong, batch, round, last, expected, landing[last]);
        }
        const std::uint64_t stop = now_ns();
        if (is_ping && batch >= 0 && all.thread() == 0) me.stamps[batch] = {start, stop};

        channel.complete();
        for (int used = 0; used < (of.rounds > 1 ? 2 : 1); ++used)
            for (std::uint32_t i = 1 + all.thread(); i + 1 < of.words; i += all.threads())
                expect(me.wrong, batch, no_round, i, pattern(batch, 1 - name, i), me.landings[used][i]);
        all.sync();
    }
}

} // namespace benchmark
