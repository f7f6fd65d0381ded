// How a thread block executes on a GPU. The CPU twin with the same names is exec_cpu.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include "dcuda/config.hpp"

namespace dcuda::detail::exec {

// PERF: nearly all blocks have one dimension. The sizes of the block are constants of the launch and cost nothing;
// reading the other two coordinates in every operation costs the user's kernel 8 to 10 registers (nvcc 13.0, sm_90).
// Volatile keeps the compiler from reading them in advance.
DCUDA_DEVICE unsigned thread_index() {
    unsigned index = threadIdx.x;
    if (blockDim.y != 1 || blockDim.z != 1) {
        unsigned y, z;
        asm volatile("mov.u32 %0, %%tid.y;" : "=r"(y));
        asm volatile("mov.u32 %0, %%tid.z;" : "=r"(z));
        index += blockDim.x * (y + blockDim.y * z);
    }
    return index;
}
DCUDA_DEVICE unsigned block_threads() { return blockDim.x * blockDim.y * blockDim.z; }
DCUDA_DEVICE unsigned block_index() { return blockIdx.x; }
DCUDA_DEVICE bool is_leader() { return thread_index() == 0; }

DCUDA_DEVICE void sync_block() { __syncthreads(); }

// One thread runs f; no thread returns before f has returned.
template <class F>
DCUDA_DEVICE void run_then_sync(const F& f) {
    if (is_leader()) f();
    __syncthreads();
}

// f runs once, after all threads have arrived; threads may return before f does.
template <class F>
DCUDA_DEVICE void sync_then_run(const F& f) {
    __syncthreads();
    if (is_leader()) f();
}

// All threads together. Several loads are in flight per thread before the first store.
template <class Word>
DCUDA_DEVICE void copy_words(Word* __restrict__ target, const Word* __restrict__ source, std::size_t count) {
    const unsigned threads = block_threads();
    std::size_t i = thread_index();
    for (; i + 3 * std::size_t(threads) < count; i += 4 * std::size_t(threads)) {
        const Word a = source[i], b = source[i + threads], c = source[i + 2 * threads], d = source[i + 3 * threads];
        target[i] = a;
        target[i + threads] = b;
        target[i + 2 * threads] = c;
        target[i + 3 * threads] = d;
    }
    for (; i < count; i += threads) target[i] = source[i];
}

// Copies by words, and the few bytes before the first aligned word and after the last one by bytes.
template <class Word>
DCUDA_DEVICE void copy_by(std::byte* target, const std::byte* source, std::size_t bytes) {
    std::size_t head = (sizeof(Word) - reinterpret_cast<std::uintptr_t>(target) % sizeof(Word)) % sizeof(Word);
    if (head > bytes) head = bytes;
    const std::size_t words = (bytes - head) / sizeof(Word);
    const std::size_t tail = head + words * sizeof(Word);
    copy_words(reinterpret_cast<Word*>(target + head), reinterpret_cast<const Word*>(source + head), words);
    const unsigned thread = thread_index();
    for (std::size_t i = thread; i < head; i += block_threads()) target[i] = source[i];
    for (std::size_t i = tail + thread; i < bytes; i += block_threads()) target[i] = source[i];
}

// A message of at most one word per thread. False if it is not made of such words, and not copied.
template <class Word>
DCUDA_DEVICE bool copy_small(std::byte* target, const std::byte* source, std::size_t bytes) {
    const std::uintptr_t all =
        reinterpret_cast<std::uintptr_t>(target) | reinterpret_cast<std::uintptr_t>(source) | bytes;
    if (all % sizeof(Word) != 0 || bytes > std::size_t(block_threads()) * sizeof(Word)) return false;
    const unsigned thread = thread_index();
    if (thread * sizeof(Word) < bytes)
        reinterpret_cast<Word*>(target)[thread] = reinterpret_cast<const Word*>(source)[thread];
    return true;
}

// The block's copy loop, without any synchronisation: by the widest word to which both ends can be aligned.
DCUDA_DEVICE void copy_bytes(void* target, const void* source, std::size_t bytes) {
    if (target == source || bytes == 0) return;
    auto* to = static_cast<std::byte*>(target);
    const auto* from = static_cast<const std::byte*>(source);
    if (copy_small<std::uint32_t>(to, from, bytes) || copy_small<uint4>(to, from, bytes)) return;
    const std::uintptr_t skew = reinterpret_cast<std::uintptr_t>(to) ^ reinterpret_cast<std::uintptr_t>(from);
    if (skew % 16 == 0)
        copy_by<uint4>(to, from, bytes);
    else if (skew % 4 == 0)
        copy_by<std::uint32_t>(to, from, bytes);
    else
        copy_by<std::byte>(to, from, bytes);
}

// All threads arrive, then the block copies. When a thread returns, others may still be copying.
DCUDA_DEVICE void copy(void* target, const void* source, std::size_t bytes) {
    __syncthreads();
    copy_bytes(target, source, bytes);
}

// The same, then publish() runs once, after all threads have copied.
template <class F>
DCUDA_DEVICE void copy_then_run(void* target, const void* source, std::size_t bytes, const F& publish) {
    copy(target, source, bytes);
    sync_then_run(publish);
}

// Ends the calling thread. Threads that have exited count as arrived in later __syncthreads of the block.
[[noreturn]] DCUDA_DEVICE void exit_thread() {
    asm volatile("exit;");
    __builtin_unreachable();
}

// Whether a C++ exception is passing through: never on a GPU.
DCUDA_DEVICE bool is_unwinding() { return false; }

// In a loop of unsuccessful tests.
DCUDA_DEVICE void relax() {}

DCUDA_DEVICE void* dynamic_shared() {
    extern __shared__ uint4 dcuda_dynamic_shared_memory[];
    return dcuda_dynamic_shared_memory;
}

// Whether other blocks can reach the memory: shared and local memory they cannot.
DCUDA_DEVICE bool is_global_memory(const void* address) { return __isGlobal(address) != 0; }

} // namespace dcuda::detail::exec
