// SPDX-License-Identifier: BSD-3-Clause
// What the device operations need of a block, on the CPU backend: one OS thread per block, its CUDA threads are fibers
// on it. exec_cuda.cuh has the same names. Also how the host launches such blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>

#include "dcuda/config.hpp"
#include "dcuda/cpu/cuda_runtime.h"

namespace dcuda::detail {
struct staging_shape;
}

namespace dcuda::detail::exec {

namespace cpu {

using action = void (*)(void* data);

// Where threads of a block meet: number 0 all of them, others so many. 1 to 15 are hardware barriers on a GPU; those
// from 16 on are the block's warps.
struct meeting_place {
    unsigned number = 0, threads = 0;
};

// All threads of the block, or of a part of it, meet; the last to arrive runs first(data), then second(data); either
// may be null. Every thread that returns sees what the first did, and only after the next barrier what the second did:
// in time both end before another thread goes on, but ThreadSanitizer is told no more order than a GPU gives. Both may
// throw: the other threads go on all the same.
void sync(meeting_place place, action first, action second, void* data);
unsigned sync_and_count(meeting_place place, bool yes);

template <class First, class Second>
void sync_and_run(meeting_place place, const First& first, const Second& second) {
    struct both {
        const First& first;
        const Second& second;
    } steps{first, second};
    sync(
        place, [](void* data) { static_cast<both*>(data)->first(); },
        [](void* data) { static_cast<both*>(data)->second(); }, &steps);
}

// The operation of the library that the calling thread is in from now on, for messages; null: none. Returns the one
// before.
const char* enter_operation(const char* name);

// Whether the address is in a local variable of the calling thread.
bool is_on_own_stack(const void* address);

void* dynamic_shared();
bool is_unwinding();
void yield_core();

} // namespace cpu

// While it lives, the calling thread is in the operation of this name. Where some threads of a block call an operation
// and others do not, the report names both.
class operation_scope {
public:
    explicit operation_scope(const char* name) : before_(cpu::enter_operation(name)) {}
    ~operation_scope() { cpu::enter_operation(before_); }
    operation_scope(const operation_scope&) = delete;
    operation_scope& operator=(const operation_scope&) = delete;

private:
    const char* before_;
};

// Loads and stores with a condition, and loads that stay where they are written.
inline std::uint32_t load_now(std::uint32_t value) { return value; }
inline void load_if(std::uint32_t& result, const std::uint32_t* word, bool yes) {
    if (yes) result = *word;
}
inline void store_if(std::uint32_t* word, std::uint32_t value, bool yes) {
    if (yes) *word = value;
}
inline void store_near_if(std::uint32_t* word, std::uint32_t value, bool yes) { store_if(word, value, yes); }
inline void store_near_if(std::uint32_t* words, std::uint32_t a, std::uint32_t b, bool yes) {
    store_if(words, a, yes);
    store_if(words + 1, b, yes);
}

// __syncthreads.
inline void sync_block() { __syncthreads(); }

// Only the warps of a GPU go one way at a time.
inline void converge_warp() {}

// On a GPU a call that costs few registers; here any call.
template <class Function>
Function* far(Function* function) {
    return function;
}

inline unsigned thread_index() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
inline unsigned block_threads() { return blockDim.x * blockDim.y * blockDim.z; }
inline unsigned block_index() { return blockIdx.x; }

// The groups of exec_cuda.cuh.
struct whole_block {
    unsigned thread() const { return thread_index(); }
    unsigned threads() const { return block_threads(); }
    bool leads() const { return thread() == 0; }
    void sync() const { sync_block(); }
    unsigned count(bool yes) const { return static_cast<unsigned>(__syncthreads_count(yes)); }
    cpu::meeting_place place() const { return {}; }
};

struct part_meeting {
    unsigned thread_count;
    unsigned barrier;
    unsigned threads() const { return thread_count; }
    void sync() const { cpu::sync(place(), nullptr, nullptr, nullptr); }
    unsigned count(bool yes) const { return cpu::sync_and_count(place(), yes); }
    bool any(bool yes) const { return count(yes) != 0; }
    cpu::meeting_place place() const { return {barrier, thread_count}; }
};

// Of the whole block any thread may be the first of the group: the others' numbers begin again behind the last.
struct block_part : part_meeting {
    unsigned first_thread;
    unsigned thread() const {
        const unsigned index = thread_index();
        return index < first_thread ? index + thread_count - first_thread : index - first_thread;
    }
    bool leads() const { return thread() == 0; }
    unsigned thread_in_order() const { return thread_index() - (barrier == 0 ? 0 : first_thread); }
};

struct numbered_part : part_meeting {
    unsigned number;
    unsigned thread() const { return number; }
    bool leads() const { return number == 0; }
};

using rank_group = block_part;
using caller_group = numbered_part;

// One thread of the group runs f; no thread returns before f returned.
template <class Group, class F>
void run_then_sync(const Group& group, const F& f) {
    cpu::sync(
        group.place(), [](void* data) { (*static_cast<const F*>(data))(); }, nullptr, const_cast<F*>(&f));
}

// A rank's group that is the whole block. Chooses which warp leads. Where ranks have lead warps, it is every other
// block's second one: so that tests meet it.
inline void form_group(block_part& group) {
    run_then_sync(whole_block{}, [&] {
        const unsigned first = DCUDA_CPU_WARPS && block_threads() % 64 == 0 && block_index() % 2 != 0 ? 32 : 0;
        group = {{block_threads(), 0}, first};
    });
}

// The threads take turns here: they meet, so that the moment of one of them is one of the whole rank.
inline void align_turns(const block_part& group) {
    if (!cpu::is_unwinding()) group.sync();
}

// What large copies pass through, and who makes them, on a GPU: detail/exec/bulk_copy.cuh. Here nothing.
struct staging {};
inline staging find_staging(const staging_shape&, unsigned) { return {}; }
inline void complete_copies(staging&) {}

// Who makes a copy.
enum class copy_way : unsigned { threads, engine };

// Tests can delay threads where the order of the block's warps matters: DCUDA_FIBER_SEED does it here.
inline void delay() {}

// The group's copy between two of its barriers.
template <class Group>
void copy_bytes(const Group& group, std::byte* target, const std::byte* source, std::size_t bytes) {
    if (group.leads() && target != source && bytes != 0) std::memcpy(target, source, bytes);
}

// The same, on a GPU by the copy engine where that is faster.
template <class Group>
copy_way choose_copy(const Group&, const staging&, const void*, const void*, std::size_t) {
    return copy_way::threads;
}
template <class Group>
void prepare_copy(const Group&, std::size_t) {}
inline void order_before_engine() {}
inline bool has_edges(const void*, std::size_t) { return false; }
template <class Group>
void copy(const Group& group, staging&, copy_way, std::byte* target, const std::byte* source, std::size_t bytes) {
    copy_bytes(group, target, source, bytes);
}

// Ends the calling CUDA thread; its destructors run. Barriers no longer wait for it.
[[noreturn]] void exit_thread();

// The block's dynamic shared memory, aligned to 128 bytes.
inline void* dynamic_shared() { return cpu::dynamic_shared(); }

// Whether a C++ exception is passing through the calling thread's kernel.
inline bool is_unwinding() { return cpu::is_unwinding(); }

// In a loop of unsuccessful tests: other ranks need the core.
inline void relax() { cpu::yield_core(); }

// All memory of the process but the stacks of its threads; what other processes can map is checked by the host.
inline bool is_global_memory(const void* address) { return !cpu::is_on_own_stack(address); }
// Whether the memory is the calling thread's alone.
inline bool is_local_memory(const void* address) { return cpu::is_on_own_stack(address); }

// --- host side ---

struct launch_shape {
    dim3 threads;             // of a block
    unsigned blocks;          // all co-resident
    std::size_t shared_bytes; // dynamic shared memory of a block
    int first_rank;           // world rank of the first rank of block 0, for names and messages
    int ranks_per_block = 1;
};

// Starts the blocks once the stream's earlier work is done, and returns at once; every thread of every block calls
// body(). Throws dcuda::error if the blocks do not fit; the stream reports a failed kernel as cudaErrorLaunchFailure.
void launch(const launch_shape& shape, cudaStream_t stream, std::function<void()> body);

// Why a kernel of this process failed: an exception that left it, or a block whose threads can never meet. Empty if
// none did since the last launch. May be asked while the kernel runs.
std::string kernel_failure();

struct launch_limit {
    int max_blocks;     // 0: no block of that shape can run
    std::string reason; // which limit says so
};

// The largest number of co-resident blocks of that shape.
launch_limit limit(dim3 threads, std::size_t shared_bytes);

} // namespace dcuda::detail::exec
