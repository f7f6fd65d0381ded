// A team: the threads of a rank that handle its mail together. On a GPU the block's first warp (or what there is of
// it), or one thread alone; on the CPU backend always one thread.
#pragma once

#include <bit>
#include <cstdint>

#include "dcuda/detail/exec.hpp"

namespace dcuda::detail {

// One thread as a team. Functions that know it need fewer registers.
struct lone_thread {
    static constexpr unsigned index = 0, count = 1;
    DCUDA_DEVICE bool leads() const { return true; }
};

// For any team, all threads of it:
// Bit i: what thread i says.
DCUDA_DEVICE unsigned vote(lone_thread, bool mine) { return mine ? 1 : 0; }
// How many of the first threads say yes, without a gap.
DCUDA_DEVICE unsigned agreeing(lone_thread, bool mine) { return mine ? 1 : 0; }
// All get the value of thread `from`.
DCUDA_DEVICE std::uint32_t broadcast(lone_thread, std::uint32_t value, unsigned) { return value; }
// Orders what they do before and after.
DCUDA_DEVICE void sync(lone_thread) {}

#if defined(__CUDACC__)

struct team {
    unsigned index; // of the calling thread
    unsigned count; // of threads
    DCUDA_DEVICE bool leads() const { return index == 0; }
};

DCUDA_DEVICE unsigned mask_of(const team& all) { return all.count == 32 ? 0xffff'ffffu : (1u << all.count) - 1; }
DCUDA_DEVICE unsigned vote(const team& all, bool mine) { return __ballot_sync(mask_of(all), mine); }
DCUDA_DEVICE std::uint32_t broadcast(const team& all, std::uint32_t value, unsigned from) {
    return __shfl_sync(mask_of(all), value, static_cast<int>(from));
}
DCUDA_DEVICE void sync(const team& all) { __syncwarp(mask_of(all)); }
// The value of the thread `by` before this one; the first ones get their own.
DCUDA_DEVICE std::uint32_t shift_up(const team& all, std::uint32_t value, unsigned by) {
    return __shfl_up_sync(mask_of(all), value, by);
}

// Number of the lowest bit that is set; how many are set.
DCUDA_DEVICE unsigned lowest(unsigned bits) { return static_cast<unsigned>(__ffs(static_cast<int>(bits))) - 1; }
DCUDA_DEVICE unsigned bits_in(unsigned bits) { return static_cast<unsigned>(__popc(bits)); }

DCUDA_DEVICE unsigned agreeing(const team& all, bool mine) {
    const unsigned others = ~vote(all, mine);
    return others == 0 ? 32 : lowest(others);
}

namespace exec {

// The team runs f. All threads of the block have arrived (on the CPU backend: they arrive here), or only those of the
// team matter.
template <class F>
DCUDA_DEVICE void as_team(const F& f) {
    const unsigned index = thread_index();
    if (index < 32) f(team{index, block_threads() < 32 ? block_threads() : 32});
}

// The team runs f after all threads of the block have arrived; threads may return before f does.
template <class F>
DCUDA_DEVICE void sync_then_team(const F& f) {
    sync_block();
    as_team(f);
}

// The team runs f; no thread of the block returns before f has returned.
template <class F>
DCUDA_DEVICE void team_then_sync(const F& f) {
    as_team(f);
    sync_block();
}

// The same; true for all threads of the block if f returned true to all of the team. `word` is in shared memory.
template <class F>
DCUDA_DEVICE bool team_then_agree(std::uint32_t&, const F& f) {
    bool agreed = true;
    as_team([&](const team& all) { agreed = f(all); });
    return __syncthreads_and(agreed) != 0;
}

// One thread runs f; true for all threads of the block if it returned true.
template <class F>
DCUDA_DEVICE bool leader_then_any(std::uint32_t&, const F& f) {
    const bool mine = is_leader() ? f() : false;
    return __syncthreads_or(mine) != 0;
}

// Both.
template <class F>
DCUDA_DEVICE void sync_team_sync(const F& f) {
    sync_block();
    as_team(f);
    sync_block();
}

} // namespace exec

#else

using team = lone_thread;

inline unsigned lowest(unsigned bits) { return static_cast<unsigned>(std::countr_zero(bits)); }
inline unsigned bits_in(unsigned bits) { return static_cast<unsigned>(std::popcount(bits)); }

namespace exec {

template <class F>
void as_team(const F& f) {
    sync_then_run([&] { f(team{}); });
}

template <class F>
void sync_then_team(const F& f) {
    as_team(f);
}

template <class F>
void team_then_sync(const F& f) {
    run_then_sync([&] { f(team{}); });
}

template <class F>
bool team_then_agree(std::uint32_t& word, const F& f) {
    run_then_sync([&] { word = f(team{}) ? 1 : 0; });
    return word != 0;
}

template <class F>
bool leader_then_any(std::uint32_t& word, const F& f) {
    run_then_sync([&] { word = f() ? 1 : 0; });
    return word != 0;
}

template <class F>
void sync_team_sync(const F& f) {
    run_then_sync([&] { f(team{}); }); // it waits for all threads before, too
}

} // namespace exec

#endif

} // namespace dcuda::detail
