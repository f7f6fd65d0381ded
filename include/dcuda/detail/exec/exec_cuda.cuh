// SPDX-License-Identifier: BSD-3-Clause
// How a thread block executes on a GPU. The CPU twin with the same names is exec_cpu.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include "dcuda/config.hpp"
#include "dcuda/detail/exec/bulk_copy.cuh"

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

DCUDA_DEVICE void sync_block() { __syncthreads(); }

// The threads that execute a rank's operations together are a group: its threads have numbers from 0, meet, and count
// for how many of them something holds. docs/adr/0014-operations-take-their-group.md

// All threads of the block. Its first warp, which keeps the rank's books, is the block's first or second one.
struct whole_block {
    unsigned first_thread; // of the group in the block: 0; or 32, and then the two warps' numbers are exchanged
    DCUDA_DEVICE unsigned thread_in_order() const { return thread_index(); }
    DCUDA_DEVICE unsigned thread() const { return thread_index() ^ first_thread; }
    DCUDA_DEVICE unsigned threads() const { return block_threads(); }
    DCUDA_DEVICE bool leads() const { return thread() == 0; }
    DCUDA_DEVICE void sync() const { sync_block(); }
    DCUDA_DEVICE unsigned count(bool yes) const { return static_cast<unsigned>(__syncthreads_count(yes)); }
};

// The same where the calling thread knows its number.
struct numbered_block {
    unsigned number;
    DCUDA_DEVICE unsigned thread() const { return number; }
    DCUDA_DEVICE unsigned threads() const { return block_threads(); }
    DCUDA_DEVICE bool leads() const { return number == 0; }
    DCUDA_DEVICE void sync() const { sync_block(); }
    DCUDA_DEVICE unsigned count(bool yes) const { return static_cast<unsigned>(__syncthreads_count(yes)); }
    DCUDA_DEVICE bool any(bool yes) const { return __syncthreads_or(yes) != 0; }
};

// A rank's group that is the whole block; `group` lies in shared memory. All threads of the block. Chooses which warp
// leads.
// PERF: a multiprocessor has four schedulers, and a warp has the one that its number there says, modulo 4. Blocks of
// two warps lie so that the first warp of each has scheduler 0 or 2: if those led, all of the library's instructions
// would be executed by half of the multiprocessor (H200, 2026-11-24, 16 ranks of 64 threads: arithmetic of 122 us and
// an exchange of 9 to 12 took 163 us, and now take 139). So it is with six warps. Blocks of one, three, four
// and eight warps the hardware distributes well.
DCUDA_DEVICE void form_group(whole_block& group) {
    if (thread_index() == 0) {
        unsigned warp;
        asm volatile("mov.u32 %0, %%warpid;" : "=r"(warp));
        group.first_thread = block_threads() % 128 == 64 && (warp & 4) != 0 ? 32 : 0;
    }
    sync_block();
}

// How the threads of a part of a block meet without the others: at a barrier of the block that only they use, of 1 to
// 15 (0 is the whole block's); or, if they are one warp, as a warp. `bar` takes a whole warp at a time, and votes of a
// warp order no memory: __syncwarp() before them does.
struct part_meeting {
    unsigned thread_count;
    unsigned barrier;
    DCUDA_DEVICE unsigned threads() const { return thread_count; }
    DCUDA_DEVICE void sync() const {
        __syncwarp();
        if (thread_count != 32) asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(in_whole_warps()) : "memory");
    }
    DCUDA_DEVICE unsigned count(bool yes) const {
        __syncwarp();
        if (thread_count == 32) return static_cast<unsigned>(__popc(__ballot_sync(0xffff'ffffu, yes)));
        unsigned number;
        asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; bar.red.popc.u32 %0, %2, %3, p; }"
                     : "=r"(number)
                     : "r"(yes ? 1u : 0u), "r"(barrier), "r"(in_whole_warps())
                     : "memory");
        return number;
    }
    DCUDA_DEVICE bool any(bool yes) const {
        __syncwarp();
        if (thread_count == 32) return __any_sync(0xffff'ffffu, yes) != 0;
        unsigned result;
        asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; bar.red.or.pred p, %2, %3, p; selp.u32 %0, 1, 0, p; }"
                     : "=r"(result)
                     : "r"(yes ? 1u : 0u), "r"(barrier), "r"(in_whole_warps())
                     : "memory");
        return result != 0;
    }

private:
    DCUDA_DEVICE unsigned in_whole_warps() const { return (thread_count + 31) / 32 * 32; }
};

// Consecutive whole warps of the block; or all of it, at barrier 0.
struct block_part : part_meeting {
    unsigned first_thread; // in the block
    DCUDA_DEVICE unsigned thread() const { return thread_index() - first_thread; }
    DCUDA_DEVICE bool leads() const { return thread() == 0; }
    DCUDA_DEVICE unsigned thread_in_order() const { return thread(); }
};

// The same where the calling thread knows its number.
struct numbered_part : part_meeting {
    unsigned number;
    DCUDA_DEVICE unsigned thread() const { return number; }
    DCUDA_DEVICE bool leads() const { return number == 0; }
};

DCUDA_DEVICE void form_group(block_part& group) {
    if (thread_index() == 0) group = {{block_threads(), 0}, 0};
    sync_block();
}

// A rank's group, and a calling thread's; and what a calling thread keeps of the group beside its number.
#if DCUDA_PARTS
using rank_group = block_part;
using caller_group = numbered_part;
class kept_group {
public:
    DCUDA_DEVICE explicit kept_group(const rank_group& group) : word_(group.thread_count | group.barrier << 16) {
        asm("" : "+r"(word_)); // the compiler would load it again at every use
    }
    DCUDA_DEVICE caller_group of_thread(unsigned number) const { return {{word_ & 0xffff, word_ >> 16}, number}; }

private:
    std::uint32_t word_;
};
#else
using rank_group = whole_block;
using caller_group = numbered_block;
struct kept_group {
    DCUDA_DEVICE explicit kept_group(const rank_group&) {}
    DCUDA_DEVICE caller_group of_thread(unsigned number) const { return {number}; }
};
#endif

// Threads of a warp that came here on different ways go on together: __syncthreads takes a whole warp at a time.
DCUDA_DEVICE void converge_warp() { __syncwarp(); }

// far(f)(...) calls f in a way that costs the caller no registers.
// PERF: ptxas lets a function that is not inlined use registers that the caller does not, so those of a whole chain of
// calls add up in the user's kernel, or are spilled there. A function that it does not know it calls by the ABI: the
// called function saves what it uses, when it is called.
template <class Result, class... Parameters>
DCUDA_DEVICE auto far(Result (*function)(Parameters...)) {
    asm volatile("" : "+l"(function));
    return function;
}

// In a build with DCUDA_DELAYS a warp now and then comes late to where the order of the block's warps matters, so that
// tests meet orders that are rare.
DCUDA_DEVICE void delay() {
#if DCUDA_DELAYS
    std::uint32_t number = static_cast<std::uint32_t>(clock64()) * 0x9E3779B1u +
                           (thread_index() / 32 + 1) * 0x85EBCA6Bu + block_index() * 0xC2B2AE35u + DCUDA_DELAYS;
    number ^= number >> 15;
    number *= 0x2C1B3C6Du;
    number ^= number >> 12;
    if (number % 8 == 0) __nanosleep(number >> 8 & 0xfff);
#endif
}

// Where threads take turns they meet here: not on a GPU.
DCUDA_DEVICE void align_turns(const rank_group&) {}

// --- Without branches ---------------------------------------------------------------------------------------------

// What fast paths are made of: loads and stores with a condition, and loads that stay where they are written. They
// order nothing. docs/design/mailbox.md says what a branch costs.

// Loads a word here. PERF: the compiler does not move it behind a branch that comes before its use.
DCUDA_DEVICE std::uint32_t load_now(std::uint32_t value) {
    std::uint32_t loaded;
    asm volatile("mov.b32 %0, %1;" : "=r"(loaded) : "r"(value));
    return loaded;
}

// Loads or stores a word if `yes`. PERF: without a branch.
DCUDA_DEVICE void load_if(std::uint32_t& result, const std::uint32_t* word, bool yes) {
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p ld.u32 %0, [%1]; }"
                 : "+r"(result)
                 : "l"(word), "r"(yes ? 1u : 0u)
                 : "memory");
}
DCUDA_DEVICE void store_if(std::uint32_t* word, std::uint32_t value, bool yes) {
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p st.u32 [%0], %1; }" ::"l"(word), "r"(value),
                 "r"(yes ? 1u : 0u)
                 : "memory");
}
// The same in shared memory; and of two words.
DCUDA_DEVICE void store_near_if(std::uint32_t* word, std::uint32_t value, bool yes) {
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p st.shared.u32 [%0], %1; }" ::"r"(
                     static_cast<std::uint32_t>(__cvta_generic_to_shared(word))),
                 "r"(value), "r"(yes ? 1u : 0u)
                 : "memory");
}
DCUDA_DEVICE void store_near_if(std::uint32_t* words, std::uint32_t a, std::uint32_t b, bool yes) {
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %3, 0; @p st.shared.v2.u32 [%0], {%1, %2}; }" ::"r"(
                     static_cast<std::uint32_t>(__cvta_generic_to_shared(words))),
                 "r"(a), "r"(b), "r"(yes ? 1u : 0u)
                 : "memory");
}

// --- Copies --------------------------------------------------------------------------------------------------------

inline constexpr unsigned loads_in_flight = 4; // of 16 bytes, per thread

// The group's threads share the words below count: load(i) returns a word, store(i, word) stores it. `Flight` loads per
// thread are under way before the first store, also in the last round, which repeats some instead of asking.
// PERF: more in flight would be faster (8 loads of 16 bytes: 27 instead of 16 GB/s by one rank of 128 threads, H200,
// 2026-11-21), but costs 24 registers in every kernel; large copies have the engine.
template <unsigned Flight, class Group, class Load, class Store>
DCUDA_DEVICE void move_words(const Group& group, std::size_t count, const Load& load, const Store& store) {
    const unsigned threads = group.threads();
    for (std::size_t i = group.thread(); i < count; i += Flight * threads) {
        decltype(load(i)) words[Flight];
        DCUDA_UNROLL
        for (unsigned k = 0; k < Flight; ++k) words[k] = load(min(i + k * threads, count - 1));
        DCUDA_UNROLL
        for (unsigned k = 0; k < Flight; ++k)
            if (i + k * threads < count) store(i + k * threads, words[k]);
    }
}

// Source and target lie alike in words.
template <class Word, class Group>
DCUDA_DEVICE void copy_words(const Group& group, std::byte* target, const std::byte* source, std::size_t words) {
    auto* into = reinterpret_cast<Word*>(target);
    const auto* from = reinterpret_cast<const Word*>(source);
    move_words<loads_in_flight>(
        group, words, [&](std::size_t i) { return from[i]; }, [&](std::size_t i, const Word& word) { into[i] = word; });
}

// Only the target lies in words of four bytes: each is put together from the two words of the source that hold it.
template <class Group>
DCUDA_DEVICE void copy_shifted(const Group& group, std::byte* target, const std::byte* source, std::size_t words) {
    auto* into = reinterpret_cast<std::uint32_t*>(target);
    const unsigned skew = reinterpret_cast<std::uintptr_t>(source) % 4;
    const auto* from = reinterpret_cast<const std::uint32_t*>(source - skew);
    const unsigned next = skew != 0 ? 1 : 0; // nothing behind the source is read if it needs no second word
    move_words<loads_in_flight / 2>(
        group, words, [&](std::size_t i) { return __funnelshift_r(from[i], from[i + next], 8 * skew); },
        [&](std::size_t i, std::uint32_t word) { into[i] = word; });
}

// Where a copy's words begin and end; and the few bytes before and after them.
struct edges {
    std::size_t head;  // bytes before the first boundary of the target
    std::size_t inner; // bytes of whole words

    DCUDA_DEVICE edges(const std::byte* target, std::size_t bytes, unsigned word_bytes) {
        head = (0 - reinterpret_cast<std::uintptr_t>(target)) % word_bytes;
        if (head > bytes) head = bytes;
        inner = (bytes - head) / word_bytes * word_bytes;
    }
};

// By the last threads of the group: the first may be busy with the rest.
template <class Group>
DCUDA_DEVICE void copy_edges(const Group& group, std::byte* target, const std::byte* source, std::size_t bytes,
                             const edges& cut) {
    for (std::size_t i = group.threads() - 1 - group.thread(); i < bytes - cut.inner; i += group.threads()) {
        const std::size_t at = i < cut.head ? i : i + cut.inner;
        target[at] = source[at];
    }
}

// A message of at most one word per thread. False if it is not made of such words, and not copied.
template <class Word, class Group>
DCUDA_DEVICE bool copy_small(const Group& group, std::byte* target, const std::byte* source, std::size_t bytes) {
    const std::uintptr_t all =
        reinterpret_cast<std::uintptr_t>(target) | reinterpret_cast<std::uintptr_t>(source) | bytes;
    if (all % sizeof(Word) != 0 || bytes > std::size_t(group.threads()) * sizeof(Word)) return false;
    const unsigned thread = group.thread();
    if (thread * sizeof(Word) < bytes)
        reinterpret_cast<Word*>(target)[thread] = reinterpret_cast<const Word*>(source)[thread];
    return true;
}

// The group's copy through registers, without any synchronisation: by the widest word that lies alike in both.
template <class Group>
DCUDA_DEVICE void copy_bytes(const Group& group, std::byte* target, const std::byte* source, std::size_t bytes) {
    if (target == source || bytes == 0) return;
    if (copy_small<std::uint32_t>(group, target, source, bytes) || copy_small<uint4>(group, target, source, bytes))
        return;
    const std::uintptr_t skew = reinterpret_cast<std::uintptr_t>(target) ^ reinterpret_cast<std::uintptr_t>(source);
    const unsigned word_bytes = skew % 16 == 0 ? 16 : skew % 8 == 0 ? 8 : 4;
    const edges cut(target, bytes, word_bytes);
    if (word_bytes == 16)
        copy_words<uint4>(group, target + cut.head, source + cut.head, cut.inner / 16);
    else if (word_bytes == 8)
        copy_words<uint2>(group, target + cut.head, source + cut.head, cut.inner / 8);
    else
        copy_shifted(group, target + cut.head, source + cut.head, cut.inner / 4);
    copy_edges(group, target, source, bytes, cut);
}

// Who makes a copy: the group's threads through registers, or the copy engine all but the edges.
enum class copy_way : unsigned { threads, engine };

// What the threads can copy in one round is done sooner that way.
template <class Group>
DCUDA_DEVICE std::size_t round_bytes(const Group& group) {
    return std::size_t(group.threads()) * loads_in_flight * 16;
}

// One thread, before a barrier of the group that comes before the copy.
template <class Group>
DCUDA_DEVICE copy_way choose_copy(const Group& group, const staging& by, const void* target, const void* source,
                                  std::size_t bytes) {
    return is_engine_copy(by, target, source, bytes, round_bytes(group)) ? copy_way::engine : copy_way::threads;
}

// All threads, before that barrier.
template <class Group>
DCUDA_DEVICE void prepare_copy(const Group& group, std::size_t bytes) {
    if (bytes > round_bytes(group)) order_before_engine();
}

// All threads, after that barrier. When a thread returns, others or the copy engine may still be copying: the group's
// barrier, and complete_copies() by the leader, come before whatever tells of the copy. Unless the engine makes all of
// it, complete_copies() came before the barrier, too. ORDER bulk-then-words.
template <class Group>
DCUDA_DEVICE void copy(const Group& group, staging& by, copy_way way, std::byte* target, const std::byte* source,
                       std::size_t bytes) {
    if (way == copy_way::threads) return copy_bytes(group, target, source, bytes);
    const edges cut(target, bytes, 16);
    copy_edges(group, target, source, bytes, cut);
    if (!group.leads()) return;
    copy_by_engine(by, target + cut.head, source + cut.head, cut.inner);
}

// One thread: whether a copy has edges, which the engine does not make.
DCUDA_DEVICE bool has_edges(const void* target, std::size_t bytes) {
    return edges(static_cast<const std::byte*>(target), bytes, 16).inner != bytes;
}

// Ends the calling thread. Threads that have exited count as arrived in later __syncthreads of the block. Shared memory
// outlives what the engine still reads there.
[[noreturn]] DCUDA_DEVICE void exit_thread() {
    complete_copies();
    asm volatile("exit;");
    __builtin_unreachable();
}

// Whether a C++ exception is passing through: never on a GPU.
DCUDA_DEVICE bool is_unwinding() { return false; }

// In a loop of unsuccessful tests.
DCUDA_DEVICE void relax() {}

// PERF: kept in a register; the compiler would work out the address again at every use, which takes 30 cycles or so.
DCUDA_DEVICE void* dynamic_shared() {
    extern __shared__ uint4 dcuda_dynamic_shared_memory[];
    auto address = static_cast<unsigned>(__cvta_generic_to_shared(dcuda_dynamic_shared_memory));
    asm("" : "+r"(address));
    return __cvta_shared_to_generic(address);
}

// Whether other blocks can reach the memory: shared and local memory they cannot.
DCUDA_DEVICE bool is_global_memory(const void* address) { return __isGlobal(address) != 0; }
// Whether the memory is the calling thread's alone.
DCUDA_DEVICE bool is_local_memory(const void* address) { return __isLocal(address) != 0; }

} // namespace dcuda::detail::exec
