// SPDX-License-Identifier: BSD-3-Clause
// What each thread of a rank has in hand when it calls an operation.
#pragma once

#include "dcuda/detail/ops/rank_state.hpp"

namespace dcuda::detail {

// A thread of a rank that calls an operation: the rank's state, and which thread of the rank's group it is.
// PERF: all warps begin each operation with that. On a GPU it lies in one register; to ask for it takes 20 instructions
// and a trip to shared memory.
class caller {
public:
#if defined(__CUDACC__)
    DCUDA_DEVICE explicit caller(rank_state& state)
        : bits_(keep_in_register(static_cast<std::uint32_t>(__cvta_generic_to_shared(&state)) |
                                 state.group().thread() << address_bits |
                                 (state.group().threads() < 32 ? 1u << (address_bits + thread_bits) : 0))),
          kept_(state.group()) {}
    DCUDA_DEVICE rank_state& state() const {
        return *static_cast<rank_state*>(__cvta_shared_to_generic(bits_ & ((1u << address_bits) - 1)));
    }
    DCUDA_DEVICE exec::caller_group group() const {
        return kept_.of_thread(bits_ >> address_bits & ((1u << thread_bits) - 1));
    }
    // Whether the lead warp has 32 threads; and whether the caller is one of them.
    DCUDA_DEVICE bool has_full_warp() const { return bits_ >> (address_bits + thread_bits) == 0; }
    DCUDA_DEVICE bool is_in_full_warp() const { return bits_ >> address_bits < 32; }

private:
    // A block has less than 256 KiB of shared memory, and at most 1024 threads.
    static constexpr unsigned address_bits = 18, thread_bits = 10;
    std::uint32_t bits_;
    [[no_unique_address]] exec::kept_group kept_;
#else
    explicit caller(rank_state& state) : state_(&state), group_{state.group(), state.group().thread()} {}
    rank_state& state() const { return *state_; }
    exec::caller_group group() const { return group_; }
    bool has_full_warp() const { return group_.threads() >= 32; }
    bool is_in_full_warp() const { return has_full_warp() && group_.thread() < 32; }

private:
    rank_state* state_;
    exec::caller_group group_;
#endif
public:
    // What needs no more than the state.
    DCUDA_DEVICE operator rank_state&() const { return state(); }
};

} // namespace dcuda::detail
