// The ping-pong that every library under test plays: the same rounds, payload and checks for all of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include "common/mistake.hpp"
#include "dcuda/config.hpp"

#if DCUDA_BACKEND_CPU
#include <ctime>
#endif

namespace benchmark {

// Nanoseconds on the clock of the processor that runs the kernel.
DCUDA_DEVICE std::uint64_t now_ns() {
#if defined(__CUDA_ARCH__)
    std::uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
#elif DCUDA_BACKEND_CPU
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
#else
    return 0; // nvcc's host pass: never called
#endif
}

// How often, and with how much payload.
struct shape {
    std::uint32_t words; // of 4 bytes; 0: no payload
    int rounds;          // of one batch
    int batches;         // that are timed; one more goes before them to warm up
};

enum class side : int { ping, pong };

// One side's part, in device memory.
struct player {
    side which;
    std::uint32_t* landing;    // where the other side puts
    std::uint32_t* sources[2]; // sent in turn: the next payload is made while the last one travels
    std::uint64_t* batch_ns;   // ping's result, one entry per batch
    mistake* wrong;
};

// Bytes of one buffer, so that buffers that follow each other are aligned alike.
DCUDA_HOST_DEVICE constexpr std::size_t stride_bytes(std::size_t payload_bytes) {
    return (payload_bytes + 255) / 256 * 256 + 256;
}

// The player whose three buffers lie at `memory`.
inline player make_player(side which, void* memory, std::size_t payload_bytes, std::uint64_t* batch_ns,
                          mistake* wrong) {
    const std::size_t stride = stride_bytes(payload_bytes) / sizeof(std::uint32_t);
    auto* const words = static_cast<std::uint32_t*>(memory);
    return {which, words, {words + stride, words + 2 * stride}, batch_ns, wrong};
}

// What the words between the first and the last one hold.
DCUDA_DEVICE std::uint32_t pattern(int batch, side sender, std::uint32_t index) {
    return (index + 1) * 2654435761u ^ (static_cast<std::uint32_t>(batch + 2) * 40503u + static_cast<unsigned>(sender));
}

DCUDA_DEVICE void expect(mistake* wrong, int batch, int round, std::uint32_t word, std::uint32_t expected,
                         std::uint32_t seen) {
    if (seen == expected || atomicAdd(&wrong->count, 1u) != 0) return;
    wrong->batch = batch;
    wrong->round = round;
    wrong->word = word;
    wrong->expected = expected;
    wrong->seen = seen;
}

// All threads of both blocks. The player comes by value: a library that invalidates the L1 cache when it waits must not
// pay for reading our parameters again. A channel has
//   send(source)  puts the payload into the other side's landing buffer and signals it
//   wait()        waits for the other side's signal
//   complete()    the sources of this side may change
//   barrier()     both sides meet
//
// The first and the last word of a payload are the number of its round. One thread writes them while the previous
// payload travels, reads them when the payload has come, and compares them after the answer has left: the payload is
// used and checked in every round, and none of that waits in the timed path.
template <class Channel>
DCUDA_DEVICE void play(Channel& channel, const shape& of, const player me) {
    const bool is_ping = me.which == side::ping;
    const side other = is_ping ? side::pong : side::ping;
    const bool is_clerk = threadIdx.x == blockDim.x - 1; // not in the warp that signals and polls, if there are two
    const bool has_payload = of.words != 0;
    const std::uint32_t last = of.words - 1;

    for (int batch = -1; batch < of.batches; ++batch) {
        const std::uint32_t number = static_cast<std::uint32_t>(batch + 1) * static_cast<std::uint32_t>(of.rounds) + 1;
        const auto stamp = [&](int round) {
            if (!has_payload || !is_clerk) return;
            me.sources[round & 1][0] = number + static_cast<std::uint32_t>(round);
            me.sources[round & 1][last] = number + static_cast<std::uint32_t>(round);
        };
        const auto send = [&](int round) {
            channel.send(me.sources[round & 1]);
            stamp(round + 1);
        };

        for (std::uint32_t i = threadIdx.x; i < of.words; i += blockDim.x) {
            me.sources[0][i] = me.sources[1][i] = pattern(batch, me.which, i);
            me.landing[i] = 0;
        }
        __syncthreads();
        stamp(0);
        channel.barrier();

        const std::uint64_t start = now_ns();
        if (is_ping) send(0);
        for (int round = 0; round < of.rounds; ++round) {
            channel.wait();
            std::uint32_t seen_first = 0, seen_last = 0;
            if (has_payload && is_clerk) {
                seen_first = me.landing[0];
                seen_last = me.landing[last];
            }
            const int next = is_ping ? round + 1 : round;
            if (next < of.rounds) send(next);
            if (has_payload && is_clerk) {
                const std::uint32_t expected = number + static_cast<std::uint32_t>(round);
                expect(me.wrong, batch, round, 0, expected, seen_first);
                expect(me.wrong, batch, round, last, expected, seen_last);
            }
        }
        const std::uint64_t stop = now_ns();
        if (is_ping && batch >= 0 && threadIdx.x == 0) me.batch_ns[batch] = stop - start;

        channel.complete();
        for (std::uint32_t i = 1 + threadIdx.x; i + 1 < of.words; i += blockDim.x)
            expect(me.wrong, batch, of.rounds - 1, i, pattern(batch, other, i), me.landing[i]);
        __syncthreads();
    }
}

} // namespace benchmark
