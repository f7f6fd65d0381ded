// SPDX-License-Identifier: BSD-3-Clause
// The memory model of the protocol: the only file with atomics, fences, spin loops and PTX, but for sleep.hpp.
//
// Every operation that orders something names its order_tag; docs/design/memory-model.md has the argument per tag and
// tests/protocol the test that fails when the tag is weakened. On the CPU order is on the operation, never in a fence,
// so that ThreadSanitizer checks the very protocol that the GPU runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "dcuda/detail/protocol/order.hpp"

#if !defined(__CUDA_ARCH__)
#include "dcuda/detail/protocol/sleep.hpp"

#include <cstdlib>
#include <cstring>
#include <sched.h>
#endif

namespace dcuda::detail {

// Variables that shall not take registers. Nothing is ordered by that.
template <class T>
using in_memory = volatile T;

#if defined(__CUDA_ARCH__)

// --- GPU ------------------------------------------------------------------------------------------------------------
// PTX instead of cuda::atomic_ref: it fixes the instruction (red, not atom) and needs no further header.
template <order_tag Tag>
__device__ __forceinline__ std::uint32_t load_acquire(scope s, const std::uint32_t* word) {
    std::uint32_t value;
    if (s == scope::device)
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    else
        asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

__device__ __forceinline__ std::uint32_t load_relaxed(const std::uint32_t* word) {
    std::uint32_t value;
    asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

__device__ __forceinline__ std::uint64_t load_relaxed(const std::uint64_t* word) {
    std::uint64_t value;
    asm volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

__device__ __forceinline__ void store_relaxed(std::uint32_t* word, std::uint32_t value) {
    asm volatile("st.relaxed.sys.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

// A word in shared memory that the block's barrier orders.
__device__ __forceinline__ std::uint32_t load_in_block(const std::uint32_t* word) { return *word; }

template <order_tag Tag>
__device__ __forceinline__ void store_release(scope s, std::uint32_t* word, std::uint32_t value) {
    if (s == scope::device)
        asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
    else
        asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

// All earlier writes of the thread, and those it has seen, are performed at their targets on return, for whom the scope
// holds: for flush, and for what a command refers to before the command is sent.
__device__ __forceinline__ void complete_writes(scope reach) {
    if (reach == scope::system)
        asm volatile("fence.acq_rel.sys;" ::: "memory");
    else
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

// After this thread has read the word relaxed: what was released before the value that it read, or before one of the
// additions that made it, is ordered before what the thread does next.
// PERF: on sm_90 it only invalidates the L1 cache. Loading the word again with acquire takes another trip to the L2
// cache, 0.2 us; and ptxas 13.0 drops an acquiring load whose value is not used, and has been seen to put a wrong
// predicate on the invalidation that it leaves behind.
template <order_tag Tag>
__device__ __forceinline__ void acquire_after(scope s, const void*) {
#if __CUDA_ARCH__ >= 900
    if (s == scope::device)
        asm volatile("fence.acquire.gpu;" ::: "memory");
    else
        asm volatile("fence.acquire.sys;" ::: "memory");
#else
    complete_writes(s); // the fence of both
#endif
}

// The same of so many words, `stride` words apart.
template <order_tag Tag>
__device__ __forceinline__ void acquire_after_all(scope s, const std::uint32_t* first, std::uint32_t, std::uint32_t) {
    acquire_after<Tag>(s, first);
}

// The same if `yes`. PERF: without a branch.
template <order_tag Tag>
__device__ __forceinline__ void acquire_if(scope s, bool yes) {
    const unsigned device_wide = yes && s == scope::device ? 1 : 0, system_wide = yes && s != scope::device ? 1 : 0;
#if __CUDA_ARCH__ >= 900
    asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %0, 0; setp.ne.u32 q, %1, 0; @p fence.acquire.gpu; @q "
                 "fence.acquire.sys; }" ::"r"(device_wide),
                 "r"(system_wide)
                 : "memory");
#else
    asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %0, 0; setp.ne.u32 q, %1, 0; @p fence.acq_rel.gpu; @q "
                 "fence.acq_rel.sys; }" ::"r"(device_wide),
                 "r"(system_wide)
                 : "memory");
#endif
}

// A release in two parts: this, then a relaxed store or addition of the same thread.
template <order_tag Tag>
__device__ __forceinline__ void fence_release(scope reach) {
#if __CUDA_ARCH__ >= 900
    if (reach == scope::device)
        asm volatile("fence.release.gpu;" ::: "memory");
    else
        asm volatile("fence.release.sys;" ::: "memory");
#else
    complete_writes(reach);
#endif
}

template <order_tag Tag>
__device__ __forceinline__ void add_after_fence(std::uint32_t* word, std::uint32_t value) {
    asm volatile("red.relaxed.sys.global.add.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

template <order_tag Tag>
__device__ __forceinline__ void add_after_fence(std::uint64_t* word, std::uint64_t value) {
    asm volatile("red.relaxed.sys.global.add.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

// Sources on this device and on others add to the same word. The addition itself therefore always has system scope, or
// it would be no morally strong operation with those of other devices; only the release before it is as narrow as the
// reach allows. This is what red.release compiles to, with the two scopes apart.
template <order_tag Tag, class Word>
__device__ __forceinline__ void add_release(scope reach, Word* word, Word value) {
    fence_release<Tag>(reach);
    add_after_fence<Tag>(word, value);
}

// Device scope.
template <order_tag Tag>
__device__ __forceinline__ std::uint32_t fetch_add_acq_rel(std::uint32_t* word, std::uint32_t value) {
    std::uint32_t before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(word), "r"(value) : "memory");
    return before;
}

__device__ __forceinline__ std::uint32_t fetch_add_relaxed(std::uint32_t* word, std::uint32_t value) {
    std::uint32_t before;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(word), "r"(value) : "memory");
    return before;
}

__device__ __forceinline__ std::uint64_t fetch_add_relaxed(std::uint64_t* word, std::uint64_t value) {
    std::uint64_t before;
    asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;" : "=l"(before) : "l"(word), "l"(value) : "memory");
    return before;
}

__device__ __forceinline__ std::uint32_t fetch_add_relaxed_system(std::uint32_t* word, std::uint32_t value) {
    std::uint32_t before;
    asm volatile("atom.relaxed.sys.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(word), "r"(value) : "memory");
    return before;
}

// In shared or global memory, as add_in_block.
__device__ __forceinline__ std::uint32_t exchange_relaxed(std::uint32_t* word, std::uint32_t value) {
    std::uint32_t before;
    asm volatile("atom.relaxed.gpu.exch.b32 %0, [%1], %2;" : "=r"(before) : "l"(word), "r"(value) : "memory");
    return before;
}

__device__ __forceinline__ void add_in_block(std::uint32_t* word, std::uint32_t value) {
    asm volatile("red.relaxed.gpu.add.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

// The same number, of which the compiler no longer knows where it comes from: it keeps it instead of making it again.
__device__ __forceinline__ std::uint32_t keep_in_register(std::uint32_t value) {
    std::uint32_t kept;
    asm("mov.b32 %0, %1;" : "=r"(kept) : "r"(value));
    return kept;
}

// Whoever sleeps beside the word looks again. On a GPU nobody sleeps.
__device__ __forceinline__ void ring_doorbell(std::uint32_t*) {}

// Leaves the processor to others for about so long.
__device__ __forceinline__ void pause_ns(unsigned duration_ns) { __nanosleep(duration_ns); }

// Nanoseconds on this processor's clock, to measure how long a wait lasts.
__device__ __forceinline__ std::uint64_t clock_ns() {
    std::uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

// --- For observers (profile.hpp): nothing is ordered by these ---

// Ticks of this multiprocessor's clock, which is read much sooner than the other; and the multiprocessor's number.
__device__ __forceinline__ std::uint64_t clock_ticks() {
    std::uint64_t now;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(now));
    return now;
}
__device__ __forceinline__ std::uint32_t processor_number() {
    std::uint32_t number;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(number));
    return number;
}

// Words that one thread writes and the host may read meanwhile. They wait for nothing.
__device__ __forceinline__ void add_relaxed(std::uint64_t* word, std::uint64_t value) {
    asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
__device__ __forceinline__ void raise_relaxed(std::uint64_t* word, std::uint64_t value) {
    asm volatile("red.relaxed.gpu.global.max.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
__device__ __forceinline__ void store_relaxed(std::uint64_t* word, std::uint64_t value) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
// Four words, 16 bytes aligned: each is stored whole.
__device__ __forceinline__ void store_relaxed(std::uint32_t* words, std::uint32_t a, std::uint32_t b, std::uint32_t c,
                                              std::uint32_t d) {
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(words), "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}
// Four floats that follow each other, at a multiple of 16 bytes in global memory; each is added atomically.
__device__ __forceinline__ void add_relaxed_system(float* floats, const float (&values)[4]) {
#if __CUDA_ARCH__ >= 900
    asm volatile("red.relaxed.sys.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(floats), "f"(values[0]),
                 "f"(values[1]), "f"(values[2]), "f"(values[3])
                 : "memory");
#else
    for (int i = 0; i < 4; ++i) atomicAdd_system(floats + i, values[i]);
#endif
}

#else

// --- CPU: the CPU backend's ranks, and the host of both backends -----------------------------------------------------

#if DCUDA_LITMUS
// The tag that this process weakens to relaxed: the environment variable DCUDA_WEAKEN_ORDER holds its number.
inline bool weakened(order_tag tag) {
    static const int number = [] {
        const char* text = std::getenv("DCUDA_WEAKEN_ORDER");
        return text ? std::atoi(text) : -1;
    }();
    return static_cast<int>(tag) == number;
}
#else
constexpr bool weakened(order_tag) { return false; }
#endif

template <order_tag Tag>
inline std::memory_order order(std::memory_order strong) {
    return weakened(Tag) ? std::memory_order_relaxed : strong;
}

template <order_tag Tag, class Word>
inline Word load_acquire(scope, const Word* word) {
    return atomic(word).load(order<Tag>(std::memory_order_acquire));
}

// ThreadSanitizer does not understand fences. By coherence this load reads the value that was seen or a later one; in
// either case it synchronizes with the releases of the one that was seen.
template <order_tag Tag, class Word>
inline void acquire_after(scope, const Word* word) {
    (void)load_acquire<Tag>(scope::system, word);
}

template <order_tag Tag>
inline void acquire_after_all(scope s, const std::uint32_t* first, std::uint32_t count, std::uint32_t stride) {
    for (std::uint32_t i = 0; i < count; ++i) acquire_after<Tag>(s, first + std::size_t(i) * stride);
}

template <class Word>
inline Word load_relaxed(const Word* word) {
    return atomic(word).load(std::memory_order_relaxed);
}

inline std::uint32_t load_in_block(const std::uint32_t* word) { return load_relaxed(word); }
template <order_tag Tag>
inline void acquire_if(scope, bool) {} // load_packet has done it

inline void store_relaxed(std::uint32_t* word, std::uint32_t value) {
    atomic(word).store(value, std::memory_order_relaxed);
}

template <order_tag Tag>
inline void store_release(scope, std::uint32_t* word, std::uint32_t value) {
    atomic(word).store(value, order<Tag>(std::memory_order_release));
    wake_sleepers(word);
}

template <order_tag Tag, class Word>
inline void add_release(scope, Word* word, Word value) {
    atomic(word).fetch_add(value, order<Tag>(std::memory_order_release));
    wake_sleepers(word);
}

// ThreadSanitizer does not understand fences: each addition is a release of its own.
template <order_tag Tag>
inline void fence_release(scope) {}

template <order_tag Tag, class Word>
inline void add_after_fence(Word* word, Word value) {
    add_release<Tag>(scope::system, word, value);
}

template <order_tag Tag>
inline std::uint32_t fetch_add_acq_rel(std::uint32_t* word, std::uint32_t value) {
    return atomic(word).fetch_add(value, order<Tag>(std::memory_order_acq_rel));
}

template <class Word>
inline Word fetch_add_relaxed(Word* word, Word value) {
    return atomic(word).fetch_add(value, std::memory_order_relaxed);
}

inline std::uint32_t fetch_add_relaxed_system(std::uint32_t* word, std::uint32_t value) {
    return fetch_add_relaxed(word, value);
}

inline std::uint32_t exchange_relaxed(std::uint32_t* word, std::uint32_t value) {
    return atomic(word).exchange(value, std::memory_order_relaxed);
}

// A sequentially consistent read-modify-write instead of a fence, which ThreadSanitizer does not understand.
inline void complete_writes(scope) {
    std::uint32_t nothing = 0;
    atomic(&nothing).exchange(1, std::memory_order_seq_cst);
}

inline std::uint32_t keep_in_register(std::uint32_t value) { return value; }

inline void pause_ns(unsigned) { sched_yield(); }

inline std::uint64_t clock_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

inline std::uint64_t clock_ticks() { return clock_ns(); }
inline std::uint32_t processor_number() { return 0; }

inline void store_relaxed(std::uint64_t* word, std::uint64_t value) {
    atomic(word).store(value, std::memory_order_relaxed);
}
// One thread writes: no read-modify-write is needed.
inline void add_relaxed(std::uint64_t* word, std::uint64_t value) { store_relaxed(word, load_relaxed(word) + value); }
inline void raise_relaxed(std::uint64_t* word, std::uint64_t value) {
    if (value > load_relaxed(word)) store_relaxed(word, value);
}
inline void store_relaxed(std::uint32_t* words, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
    store_relaxed(words, a);
    store_relaxed(words + 1, b);
    store_relaxed(words + 2, c);
    store_relaxed(words + 3, d);
}

#endif

// --- Polling -------------------------------------------------------------------------------------------------------

inline constexpr unsigned polls_at_once = 64; // about 40 us on a GPU

// Between two polls of a wait. PERF: who has waited for a while can afford to leave the multiprocessor and the memory
// to others: after some 5 us a pause is a small part of the wait so far. The CPU backend's threads sleep on words
// instead.
DCUDA_DEVICE void leave_to_others([[maybe_unused]] unsigned polls) {
#if defined(__CUDA_ARCH__)
    constexpr unsigned polls_without = 20, longest_ns = 2048;
    if (polls > polls_without) __nanosleep(polls < longest_ns / 16 ? 16 * polls : longest_ns);
#endif
}

// Polls the word until ready(value). Every so often it asks keep_polling(value) whether to go on; returns false when
// that says no. One thread of a rank. What ready() has once accepted it accepts for ever.
//
// ORDER: it polls relaxed and acquires once, at the end: acquire_after.
template <order_tag Tag, class Word, class Ready, class KeepPolling>
DCUDA_DEVICE bool poll(scope s, const Word* word, const Ready& ready, const KeepPolling& keep_polling) {
#if defined(__CUDA_ARCH__)
    for (unsigned polls = 1;; ++polls) {
        const Word value = load_relaxed(word);
        if (ready(value)) {
            acquire_after<Tag>(s, word);
            return true;
        }
        // PERF: 64 polls are about 40 us; a check of the abort word every time would double the traffic of a wait.
        if (polls % polls_at_once == 0 && !keep_polling(value)) return false;
        leave_to_others(polls);
    }
#elif !defined(__CUDACC__)
    long sleep_ns = 500'000;
    for (unsigned polls = 1;; ++polls) {
        const Word value = load_relaxed(word);
        if (ready(value)) {
            acquire_after<Tag>(s, word);
            return true;
        }
        if (polls < 32) continue;
        if (!keep_polling(value)) return false;
        // Whoever changes the word wakes us; the time-out is for the abort word and the watchdog's heartbeat.
        sleep_on(word, value, sleep_ns);
        if (sleep_ns < 50'000'000) sleep_ns *= 2;
    }
#else
    return false; // nvcc's host pass: never called
#endif
}

// Of an enumeration: it is stored as the word that it is.
template <class Enum, class = std::enable_if_t<std::is_enum_v<Enum>>>
DCUDA_DEVICE void store_relaxed(Enum* word, Enum value) {
    static_assert(sizeof(Enum) == sizeof(std::uint32_t));
    store_relaxed(reinterpret_cast<std::uint32_t*>(word), static_cast<std::uint32_t>(value));
}

enum class poll_result { nothing, something, all };
// What wakes a poll of the CPU backend: ring_doorbell, or store_release.
enum class wake_by { doorbell, store };

// Polls until attempt() has found all that is waited for. After something was found it polls again immediately; after
// many polls without success it asks keep_polling() whether to go on, and returns false when that says no. `polls`
// counts those without success. All threads of a group, with the same results. Whoever makes a difference wakes who
// sleeps on `word`.
// The CPU backend looks at least every `longest_sleep_ns`: where the threads of a warp look one after the other, the
// doorbell may ring in between, and those that look late sleep through it.
inline constexpr long usual_sleep_ns = DCUDA_CPU_WARPS ? 500'000 : 50'000'000;
template <wake_by By = wake_by::doorbell, class Attempt, class KeepPolling>
DCUDA_DEVICE bool poll_until(const Attempt& attempt, const KeepPolling& keep_polling, const std::uint32_t* word,
                             [[maybe_unused]] long longest_sleep_ns = usual_sleep_ns) {
#if defined(__CUDA_ARCH__)
    (void)word;
    for (unsigned polls = 1;;) {
        const poll_result found = attempt(polls);
        if (found == poll_result::all) return true;
        polls = found == poll_result::something ? 1 : polls + 1;
        if (polls % polls_at_once == 0 && !keep_polling()) return false;
        leave_to_others(polls);
    }
#elif !defined(__CUDACC__)
    long sleep_ns = longest_sleep_ns < 500'000 ? longest_sleep_ns : 500'000;
    for (unsigned polls = 1;;) {
        const std::uint32_t before = load_relaxed(word);
        const poll_result found = attempt(polls);
        if (found == poll_result::all) return true;
        polls = found == poll_result::something ? 1 : polls + 1;
        if (polls <= 32) continue;
        if (!keep_polling()) return false;
        By == wake_by::doorbell ? sleep_until_rung(word, before, sleep_ns) : sleep_on(word, before, sleep_ns);
        sleep_ns = 2 * sleep_ns < longest_sleep_ns ? 2 * sleep_ns : longest_sleep_ns;
    }
#else
    return false; // nvcc's host pass: never called
#endif
}

// --- Packets: small puts between ranks, commands of ranks to their host ----------------------------------------------

// 12 bytes of payload with the sequence number that comes with them.
struct alignas(16) packet {
    std::uint32_t payload[3];
    std::uint32_t sequence;
};

// One thread. ORDER command-publish, message-publish: on the GPU one 128-bit store, single-copy atomic, carries payload
// and number, so nothing needs to be ordered between them; what the payload refers to was completed before
// (barrier.hpp, mailbox.hpp). On the CPU the number is stored with release.
template <order_tag Tag>
DCUDA_HOST_DEVICE void store_packet(packet* target, std::uint32_t a, std::uint32_t b, std::uint32_t c,
                                    std::uint32_t sequence) {
#if defined(__CUDA_ARCH__)
    const std::uint64_t low = a | static_cast<std::uint64_t>(b) << 32;
    const std::uint64_t high = c | static_cast<std::uint64_t>(sequence) << 32;
    asm volatile(
        "{ .reg .b128 whole; mov.b128 whole, {%1, %2}; st.relaxed.sys.global.b128 [%0], whole; }" ::"l"(target),
        "l"(low), "l"(high)
        : "memory");
#else
    target->payload[0] = a;
    target->payload[1] = b;
    target->payload[2] = c;
    atomic(&target->sequence).store(sequence, order<Tag>(std::memory_order_release));
#endif
}

// One thread. The packet if it has the expected number; else something with another number.
template <order_tag Tag>
DCUDA_DEVICE packet load_packet(const packet* source, std::uint32_t expected) {
#if defined(__CUDA_ARCH__)
    (void)expected;
    std::uint64_t low, high;
    asm volatile("{ .reg .b128 whole; ld.relaxed.sys.global.b128 whole, [%2]; mov.b128 {%0, %1}, whole; }"
                 : "=l"(low), "=l"(high)
                 : "l"(source)
                 : "memory");
    // Whoever calls this uses all four words: ptxas 13.0 splits a 128-bit load of which only parts are used into 32-bit
    // loads, which are not atomic together.
    return {{static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32), static_cast<std::uint32_t>(high)},
            static_cast<std::uint32_t>(high >> 32)};
#elif !defined(__CUDACC__)
    packet result{};
    result.sequence = atomic(&source->sequence).load(order<Tag>(std::memory_order_acquire));
    if (result.sequence == expected)
        for (int i = 0; i < 3; ++i) result.payload[i] = source->payload[i];
    return result;
#else
    return {};
#endif
}

// Waits for a packet that is on its way: its source has sent it together with one that has arrived. False if the run
// was aborted.
template <order_tag Tag>
DCUDA_DEVICE bool await_packet(const packet* source, std::uint32_t expected, packet& result,
                               const std::uint32_t* aborted) {
    for (unsigned polls = 1; result.sequence != expected; ++polls) {
        result = load_packet<Tag>(source, expected);
        if (polls % 4096 == 0 && load_relaxed(aborted) != 0) return false;
#if !defined(__CUDACC__)
        if (polls % 32 == 0 && !run_others_of_block()) sched_yield(); // one of them may be the source
#endif
    }
    return true;
}

// Waits until a word that its writer is about to store is not 0: that. 0 if the run was aborted.
DCUDA_DEVICE std::uint32_t await_word(const std::uint32_t* word, const std::uint32_t* aborted) {
    for (unsigned polls = 1;; ++polls) {
        const std::uint32_t value = load_relaxed(word);
        if (value != 0) return value;
        if (polls % 4096 == 0 && load_relaxed(aborted) != 0) return 0;
#if !defined(__CUDACC__)
        if (polls % 32 == 0 && !run_others_of_block()) sched_yield(); // one of them may be the writer
#endif
    }
}

// After this thread has seen a packet's number: what its source released before it is ordered before what the thread
// does next. On the CPU load_packet has done it.
template <order_tag Tag>
DCUDA_DEVICE void acquire_packet(scope s) {
#if defined(__CUDA_ARCH__)
    acquire_after<Tag>(s, nullptr);
#else
    (void)s;
#endif
}

#if !defined(__CUDA_ARCH__)
// Host. True if the packet with this number has arrived; then its payload has, too.
inline bool packet_arrived(const packet* source, std::uint32_t sequence) {
    return atomic(&source->sequence).load(order<order_tag::command_observe>(std::memory_order_acquire)) == sequence;
}
#endif

} // namespace dcuda::detail
