// SPDX-License-Identifier: BSD-3-Clause
// What the benchmarks' kernels share: the clock, patterns and their checks, and the accesses of what is measured beside
// the library.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include "case_studies/common/clock.hpp"
#include "dcuda/config.hpp"

namespace benchmark {

using common::now_ns;

// The number of the multiprocessor that the block runs on; on the CPU backend each rank has its own.
DCUDA_DEVICE int multiprocessor(int rank) {
#if defined(__CUDA_ARCH__)
    (void)rank;
    unsigned number;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(number));
    return static_cast<int>(number);
#else
    return rank;
#endif
}

// The bound of kernels of which many ranks are to share a multiprocessor: it keeps them at 64 registers a thread. Where
// latency counts they have as many as they like.
inline constexpr int most_threads = 1024;

// Before a kernel of which so many threads are to share a multiprocessor: how many registers each may have.
constexpr int registers_for(int threads) { return 65536 / threads / 8 * 8; }
#if defined(__CUDACC__)
#define BENCHMARK_REGISTERS(registers) __maxnreg__(registers)
#else
#define BENCHMARK_REGISTERS(registers)
#endif

// From when to when a rank was busy.
struct interval {
    std::uint64_t start, stop;
};

// --- Data and mistakes -----------------------------------------------------------------------------------------------

// Words that were not what was sent. Zero-initialised by the host.
struct mistake {
    unsigned count; // of wrong words; the rest describes the first
    int batch, round;
    std::uint32_t word, expected, seen;
};
inline constexpr int no_round = -1; // of a check after a batch

DCUDA_DEVICE void expect(mistake* wrong, int batch, int round, std::uint32_t word, std::uint32_t expected,
                         std::uint32_t seen) {
    if (seen == expected || atomicAdd(&wrong->count, 1u) != 0) return;
    wrong->batch = batch;
    wrong->round = round;
    wrong->word = word;
    wrong->expected = expected;
    wrong->seen = seen;
}

// What stands for a number in the data: every byte differs from that of other numbers, so that none can be lost unseen.
DCUDA_HOST_DEVICE std::uint32_t stamp_of(std::uint32_t number) { return (number + 1) * 2654435761u ^ 0x5bd1e995u; }

// What word `index` of a sender's data is in a batch.
DCUDA_DEVICE std::uint32_t pattern(int batch, int sender, std::uint32_t index) {
    return (index + 1) * 2654435761u ^
           (static_cast<std::uint32_t>(batch + 2) * 40503u + static_cast<std::uint32_t>(sender) * 97u);
}

// All threads of a block: fill, or compare, `bytes` bytes that one sender made.
DCUDA_DEVICE void fill(void* data, std::size_t bytes, int batch, int sender) {
    auto* const words = static_cast<std::uint32_t*>(data);
    for (std::size_t i = threadIdx.x; i < bytes / 4; i += blockDim.x)
        words[i] = pattern(batch, sender, static_cast<std::uint32_t>(i));
}
DCUDA_DEVICE void compare(mistake* wrong, const void* data, std::size_t bytes, int batch, int sender) {
    const auto* const words = static_cast<const std::uint32_t*>(data);
    for (std::size_t i = threadIdx.x; i < bytes / 4; i += blockDim.x)
        expect(wrong, batch, no_round, static_cast<std::uint32_t>(i),
               pattern(batch, sender, static_cast<std::uint32_t>(i)), words[i]);
}

// --- Work ------------------------------------------------------------------------------------------------------------

// All threads of a block: copies whole 16-byte words, several loads of a thread in flight.
DCUDA_DEVICE void copy_block(void* target, const void* source, std::size_t bytes) {
    constexpr int in_flight = 8;
    auto* const chunks = static_cast<uint4*>(target);
    const auto* const from = static_cast<const uint4*>(source);
    const std::size_t count = bytes / sizeof(uint4), step = blockDim.x;
    std::size_t i = threadIdx.x;
    for (; i + (in_flight - 1) * step < count; i += in_flight * step) {
        uint4 words[in_flight];
        for (int k = 0; k < in_flight; ++k) words[k] = from[i + static_cast<std::size_t>(k) * step];
        for (int k = 0; k < in_flight; ++k) chunks[i + static_cast<std::size_t>(k) * step] = words[k];
    }
    for (; i < count; i += step) chunks[i] = from[i];
}

// Newton's iterations for the square root of `a`, each of which needs the one before.
DCUDA_DEVICE double newton(double a, int iterations) {
    double x = a;
    for (int i = 0; i < iterations; ++i) x = 0.5 * (x + a / x);
    return x;
}

// Eight chains of multiplications and additions that need not wait for each other; each comes to 2 within rounding
// after some 25 iterations, from any `start`. Their sum. One thread.
DCUDA_DEVICE float multiply_add(float start, int iterations) {
    constexpr int chains = 8;
    float values[chains];
    for (int i = 0; i < chains; ++i) values[i] = start + static_cast<float>(i);
    for (int step = 0; step < iterations; ++step)
        for (int i = 0; i < chains; ++i) values[i] = values[i] * 0.5f + 1.0f;
    float sum = 0.0f;
    for (int i = 0; i < chains; ++i) sum += values[i];
    return sum;
}

// --- Words without the library ---------------------------------------------------------------------------------------

// 12 bytes of payload and the number that vouches for them: one access of 16 bytes.
struct alignas(16) packet {
    std::uint32_t payload[3];
    std::uint32_t sequence;
};

// The host's accesses, which are also those of the CPU backend's ranks.
namespace host {
inline std::uint32_t load_word(const std::uint32_t* word) {
    return std::atomic_ref<std::uint32_t>(*const_cast<std::uint32_t*>(word)).load(std::memory_order_acquire);
}
inline void store_word(std::uint32_t* word, std::uint32_t value) {
    std::atomic_ref<std::uint32_t>(*word).store(value, std::memory_order_release);
}
inline packet load_packet(const packet* source) {
    packet result;
    result.sequence = load_word(&source->sequence);
    for (int i = 0; i < 3; ++i) result.payload[i] = load_word(&source->payload[i]);
    return result;
}
inline void store_packet(packet* target, const packet& value) {
    for (int i = 0; i < 3; ++i) store_word(&target->payload[i], value.payload[i]);
    store_word(&target->sequence, value.sequence);
}
} // namespace host

#if defined(__CUDA_ARCH__)

__device__ __forceinline__ std::uint32_t load_word(const std::uint32_t* word) {
    std::uint32_t value;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}
__device__ __forceinline__ void store_word(std::uint32_t* word, std::uint32_t value) {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}
__device__ __forceinline__ packet load_packet(const packet* source) {
    std::uint64_t low, high;
    asm volatile("{ .reg .b128 whole; ld.relaxed.sys.global.b128 whole, [%2]; mov.b128 {%0, %1}, whole; }"
                 : "=l"(low), "=l"(high)
                 : "l"(source)
                 : "memory");
    return {{static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32), static_cast<std::uint32_t>(high)},
            static_cast<std::uint32_t>(high >> 32)};
}
__device__ __forceinline__ void store_packet(packet* target, const packet& value) {
    const std::uint64_t low = value.payload[0] | static_cast<std::uint64_t>(value.payload[1]) << 32;
    const std::uint64_t high = value.payload[2] | static_cast<std::uint64_t>(value.sequence) << 32;
    asm volatile(
        "{ .reg .b128 whole; mov.b128 whole, {%1, %2}; st.relaxed.sys.global.b128 [%0], whole; }" ::"l"(target),
        "l"(low), "l"(high)
        : "memory");
}
__device__ __forceinline__ void complete_stores() { __threadfence_system(); }
__device__ __forceinline__ void order_on_device() { __threadfence(); }
__device__ __forceinline__ void rest() {}

#elif DCUDA_BACKEND_CPU

using host::load_packet;
using host::load_word;
using host::store_packet;
using host::store_word;
inline void complete_stores() {}
inline void order_on_device() {}       // words are loaded with acquire, and stored with release
inline void rest() { __nanosleep(0); } // the block's other threads, and other blocks, need the core

#else

// nvcc's host pass, and host code of a CUDA program: never called.
DCUDA_DEVICE std::uint32_t load_word(const std::uint32_t*) { return 0; }
DCUDA_DEVICE void store_word(std::uint32_t*, std::uint32_t) {}
DCUDA_DEVICE packet load_packet(const packet*) { return {}; }
DCUDA_DEVICE void store_packet(packet*, const packet&) {}
DCUDA_DEVICE void complete_stores() {}
DCUDA_DEVICE void order_on_device() {}
DCUDA_DEVICE void rest() {}

#endif

// Looks until ready() says so, but not for ever: false after ten seconds, and a kernel always ends.
template <class Ready>
DCUDA_DEVICE bool poll_until(const Ready& ready) {
    constexpr std::uint64_t limit_ns = 10'000'000'000;
    std::uint64_t start = 0;
    for (unsigned looks = 1; !ready(); ++looks) {
        rest();
        if (looks % 4096 != 0) continue;
        if (start == 0) start = now_ns();
        if (now_ns() - start > limit_ns) return false;
    }
    return true;
}

} // namespace benchmark
