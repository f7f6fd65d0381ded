// SPDX-License-Identifier: BSD-3-Clause
// The CPU backend's stand-in for <cooperative_groups.h>: the thread block, and tiles of its warps. There is no grid
// group: ranks of a device meet in dcuda::rank::barrier(dcuda::device).
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

#include "cuda_runtime.h"

namespace cooperative_groups {

namespace details {

// Moves values of any size between lanes, eight bytes at a time.
template <class T, class Exchange>
T exchange_parts(const T& value, const Exchange& exchange) {
    static_assert(std::is_trivially_copyable_v<T>, "lanes exchange trivially copyable values");
    T result = value;
    for (std::size_t at = 0; at < sizeof(T); at += sizeof(unsigned long long)) {
        const std::size_t bytes =
            sizeof(T) - at < sizeof(unsigned long long) ? sizeof(T) - at : sizeof(unsigned long long);
        unsigned long long part = 0;
        std::memcpy(&part, reinterpret_cast<const char*>(&value) + at, bytes);
        part = exchange(part);
        std::memcpy(reinterpret_cast<char*>(&result) + at, &part, bytes);
    }
    return result;
}

} // namespace details

class thread_block {
public:
    static void sync() { __syncthreads(); }
    static unsigned thread_rank() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
    static unsigned num_threads() { return blockDim.x * blockDim.y * blockDim.z; }
    static unsigned size() { return num_threads(); }
    static dim3 group_index() { return {blockIdx.x, blockIdx.y, blockIdx.z}; }
    static dim3 thread_index() { return {threadIdx.x, threadIdx.y, threadIdx.z}; }
    static dim3 dim_threads() { return blockDim; }
    static dim3 group_dim() { return blockDim; }
};

inline thread_block this_thread_block() { return {}; }

// `Size` neighbouring threads of a warp. Those that the block does not have, or that have exited, take no part.
template <unsigned Size, class Parent = thread_block>
class thread_block_tile {
    static_assert(Size >= 1 && Size <= 32 && (Size & (Size - 1)) == 0,
                  "the CPU backend has tiles of 1, 2, 4, 8, 16 or 32 threads");
    static constexpr int width = static_cast<int>(Size);
    static unsigned first_lane() { return thread_block::thread_rank() % 32 / Size * Size; }
    static unsigned mask() { return (Size == 32 ? 0xffffffffu : (1u << Size % 32) - 1) << first_lane(); }

public:
    static void sync() { __syncwarp(mask()); }
    static unsigned thread_rank() { return thread_block::thread_rank() % Size; }
    static constexpr unsigned num_threads() { return Size; }
    static constexpr unsigned size() { return Size; }
    static unsigned meta_group_rank() { return thread_block::thread_rank() / Size; }
    static unsigned meta_group_size() { return (thread_block::num_threads() + Size - 1) / Size; }

    template <class T>
    T shfl(T value, int rank) const {
        return details::exchange_parts(value, [&](auto part) { return __shfl_sync(mask(), part, rank, width); });
    }
    template <class T>
    T shfl_up(T value, unsigned delta) const {
        return details::exchange_parts(value, [&](auto part) { return __shfl_up_sync(mask(), part, delta, width); });
    }
    template <class T>
    T shfl_down(T value, unsigned delta) const {
        return details::exchange_parts(value, [&](auto part) { return __shfl_down_sync(mask(), part, delta, width); });
    }
    template <class T>
    T shfl_xor(T value, unsigned lanes) const {
        return details::exchange_parts(
            value, [&](auto part) { return __shfl_xor_sync(mask(), part, static_cast<int>(lanes), width); });
    }
    int any(int predicate) const { return __any_sync(mask(), predicate); }
    int all(int predicate) const { return __all_sync(mask(), predicate); }
    unsigned ballot(int predicate) const { return __ballot_sync(mask(), predicate) >> first_lane(); }
    template <class T>
    unsigned match_any(T value) const {
        return __match_any_sync(mask(), value) >> first_lane();
    }
    template <class T>
    unsigned match_all(T value, int& all_equal) const {
        return __match_all_sync(mask(), value, &all_equal) >> first_lane();
    }
};

template <unsigned Size, class Parent>
thread_block_tile<Size, Parent> tiled_partition(const Parent&) {
    return {};
}

// The calling thread alone: which siblings are converged with it is not known here, and code that asks for it must be
// right with any answer.
class coalesced_group {
public:
    static void sync() {}
    static constexpr unsigned thread_rank() { return 0; }
    static constexpr unsigned num_threads() { return 1; }
    static constexpr unsigned size() { return 1; }
    template <class T>
    T shfl(T value, int) const {
        return value;
    }
    static int any(int predicate) { return predicate != 0; }
    static int all(int predicate) { return predicate != 0; }
    static unsigned ballot(int predicate) { return predicate != 0; }
};

inline coalesced_group coalesced_threads() { return {}; }

template <class Group>
void sync(const Group& group) {
    group.sync();
}
template <class Group>
unsigned thread_rank(const Group& group) {
    return group.thread_rank();
}

} // namespace cooperative_groups
