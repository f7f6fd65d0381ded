// What the device operations need of a block, on the CPU backend: one OS thread per block, its CUDA threads are fibers
// on it. exec_cuda.cuh has the same names. Also how the host launches such blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>

#include "dcuda/cpu/cuda_runtime.h"

namespace dcuda::detail {
struct staging_shape;
}

namespace dcuda::detail::exec {

namespace cpu {

using action = void (*)(void* data);

// Who may see what the action did: every thread that returns, or only the thread that ran it. In time the action always
// ends before another thread goes on; ThreadSanitizer is told no more order than the GPU gives.
enum class action_order { before_return, unordered };

// All threads of the block meet; the last to arrive runs the action. It may throw: the others go on all the same.
void meet(action_order order, action run, void* data);

template <class F>
void meet_and_run(action_order order, F& f) {
    meet(
        order, [](void* data) { (*static_cast<F*>(data))(); }, const_cast<std::remove_const_t<F>*>(&f));
}

void* dynamic_shared();
bool is_unwinding();
void yield_core();

} // namespace cpu

// __syncthreads.
inline void sync_block() { __syncthreads(); }

// On a GPU a call that costs few registers; here any call.
template <class Function>
Function* far(Function* function) {
    return function;
}

// Exactly one thread of the block runs f; no thread returns before f returned.
template <class F>
void run_then_sync(F&& f) {
    cpu::meet_and_run(cpu::action_order::before_return, f);
}

// f runs once after all threads have arrived. The threads need not wait for its end: what f writes is ordered for the
// block only by the next barrier.
template <class F>
void sync_then_run(F&& f) {
    cpu::meet_and_run(cpu::action_order::unordered, f);
}

// The threads take turns here: they meet, so that the moment of one of them is one of the whole rank.
inline void align_turns() {
    if (!cpu::is_unwinding()) sync_block();
}

// What large copies pass through, and who makes them, on a GPU: detail/bulk_copy.cuh. Here nothing.
struct staging {};
inline staging find_staging(const staging_shape&) { return {}; }
inline void complete_copies(staging&, bool) {}

inline bool is_leader() { return (threadIdx.x | threadIdx.y | threadIdx.z) == 0; }

// The block's copy, without any synchronisation.
inline void copy_bytes(std::byte* target, const std::byte* source, std::size_t bytes) {
    if (is_leader()) std::memcpy(target, source, bytes);
}

// All threads arrive and the block copies; `target` may still be written when a thread returns.
inline void copy(void* target, const void* source, std::size_t bytes) {
    sync_then_run([&] {
        if (target != source && bytes != 0) std::memcpy(target, source, bytes);
    });
}

// The same after before(), which all threads run when all have arrived.
template <class Before>
void copy(staging&, void* target, const void* source, std::size_t bytes, const Before& before) {
    sync_block();
    before();
    copy(target, source, bytes);
}

// Ends the calling CUDA thread; its destructors run. Barriers no longer wait for it.
[[noreturn]] void exit_thread();

// The block's dynamic shared memory, aligned to 128 bytes.
inline void* dynamic_shared() { return cpu::dynamic_shared(); }

inline unsigned thread_index() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
inline unsigned block_threads() { return blockDim.x * blockDim.y * blockDim.z; }
inline unsigned block_index() { return blockIdx.x; }

// Whether a C++ exception is passing through the calling thread's kernel.
inline bool is_unwinding() { return cpu::is_unwinding(); }

// In a loop of unsuccessful tests: other ranks need the core.
inline void relax() { cpu::yield_core(); }

// All memory of the process is global; what other processes can map is checked by the host.
inline bool is_global_memory(const void*) { return true; }

// --- host side ---

struct launch_shape {
    dim3 threads;             // of a block
    unsigned blocks;          // all co-resident
    std::size_t shared_bytes; // dynamic shared memory of a block
    int first_rank;           // world rank of block 0, for names and messages
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
