// SPDX-License-Identifier: BSD-3-Clause
// The lead warp: the threads of a rank that keep its books. On a GPU the first warp of the rank's group of threads, or
// what there is of it; on the CPU backend one thread that acts for all, or with DCUDA_CPU_WARPS the first warp as on a
// GPU.
//
// What a rank knows of its messages, partners and waits (rank_state.hpp, endpoint) is read and written by the lead warp
// alone. A thread of another warp may be an operation behind: what it read there, and decided by, would be of another
// moment than what its siblings read. So the lead warp decides, and all threads get its decision with a barrier of the
// group: exec::decide. The types make sure of it: nothing else makes a lead_warp or a lone_thread, and without one
// nobody reaches the endpoint.
#pragma once

#include <bit>
#include <cstdint>

#include "dcuda/detail/exec/exec.hpp"

// Whether the threads of the lead warp act together.
#if defined(__CUDACC__) || DCUDA_CPU_WARPS
#define DCUDA_WARPS 1
#else
#define DCUDA_WARPS 0
#endif

namespace dcuda::detail {

namespace exec {
struct lead_access;
}

// The rank's first thread, where it acts alone. Functions that know it need fewer registers.
class lone_thread {
public:
    static constexpr unsigned index = 0, count = 1;
    DCUDA_DEVICE bool leads() const { return true; }

private:
    friend struct exec::lead_access;
    DCUDA_DEVICE lone_thread() {}
};

// For any group, all threads of it:
// Bit i: what thread i says.
DCUDA_DEVICE unsigned vote(const lone_thread&, bool yes) { return yes ? 1 : 0; }
// All get the value of thread `from`.
DCUDA_DEVICE std::uint32_t broadcast(const lone_thread&, std::uint32_t value, unsigned) { return value; }
// The value of the thread `by` before this one; the first ones get their own.
DCUDA_DEVICE std::uint32_t shift_up(const lone_thread&, std::uint32_t value, unsigned) { return value; }
// Orders what they do before and after.
DCUDA_DEVICE void sync(const lone_thread&) {}

// Number of the lowest bit that is set, and of the highest; how many are set.
#if defined(__CUDACC__)
DCUDA_DEVICE unsigned highest(unsigned bits) { return 31 - static_cast<unsigned>(__clz(static_cast<int>(bits))); }
DCUDA_DEVICE unsigned lowest(unsigned bits) { return static_cast<unsigned>(__ffs(static_cast<int>(bits))) - 1; }
DCUDA_DEVICE unsigned bits_in(unsigned bits) { return static_cast<unsigned>(__popc(bits)); }
#else
inline unsigned highest(unsigned bits) { return 31 - static_cast<unsigned>(std::countl_zero(bits)); }
inline unsigned lowest(unsigned bits) { return static_cast<unsigned>(std::countr_zero(bits)); }
inline unsigned bits_in(unsigned bits) { return static_cast<unsigned>(std::popcount(bits)); }
#endif

#if DCUDA_WARPS

// Threads of a warp that act together.
struct warp_group {
    unsigned index; // of the calling thread
    unsigned count; // of threads, at most 32
    DCUDA_DEVICE bool leads() const { return index == 0; }
    DCUDA_DEVICE unsigned mask() const { return count == 32 ? 0xffff'ffffu : (1u << count) - 1; }
};

class lead_warp : public warp_group {
    friend struct exec::lead_access;
    DCUDA_DEVICE lead_warp(unsigned thread, unsigned threads) : warp_group{thread, threads} {}
};

// A lead warp of 32 threads. PERF: a mask that the compiler knows saves some 15 instructions a vote.
class full_warp : public lead_warp {
public:
    // Only of a warp whose count is 32.
    DCUDA_DEVICE explicit full_warp(const lead_warp& warp) : lead_warp(warp) {}
};

DCUDA_DEVICE unsigned vote(const full_warp&, bool yes) { return __ballot_sync(0xffff'ffffu, yes); }
DCUDA_DEVICE std::uint32_t broadcast(const full_warp&, std::uint32_t value, unsigned from) {
    return __shfl_sync(0xffff'ffffu, value, static_cast<int>(from));
}
DCUDA_DEVICE void sync(const full_warp&) { __syncwarp(); }
// PERF: a branch on an answer of these is one that the compiler knows all threads to take, or none. Of others it lets
// the threads meet again afterwards, which costs 30 cycles and more.
DCUDA_DEVICE bool any(const full_warp&, bool yes) { return __any_sync(0xffff'ffffu, yes) != 0; }
DCUDA_DEVICE bool all(const full_warp&, bool yes) { return __all_sync(0xffff'ffffu, yes) != 0; }

// The first of the threads that have the same value as this one.
DCUDA_DEVICE unsigned lowest_with(const full_warp&, std::uint32_t value) {
    return lowest(__match_any_sync(0xffff'ffffu, value));
}

DCUDA_DEVICE unsigned vote(const warp_group& warp, bool yes) { return __ballot_sync(warp.mask(), yes); }
DCUDA_DEVICE std::uint32_t broadcast(const warp_group& warp, std::uint32_t value, unsigned from) {
    return __shfl_sync(warp.mask(), value, static_cast<int>(from));
}
DCUDA_DEVICE std::uint32_t shift_up(const warp_group& warp, std::uint32_t value, unsigned by) {
    return __shfl_up_sync(warp.mask(), value, by);
}
DCUDA_DEVICE void sync(const warp_group& warp) { __syncwarp(warp.mask()); }

#else

using lead_warp = lone_thread;

#endif

template <class Group>
DCUDA_DEVICE bool any(const Group& group, bool yes) {
    return vote(group, yes) != 0;
}

namespace exec {

// Makes those who may reach the endpoint; for the functions below.
struct lead_access {
    DCUDA_DEVICE static lone_thread alone() { return {}; }
#if DCUDA_WARPS
    DCUDA_DEVICE static lead_warp warp(unsigned thread, unsigned threads) {
        return {thread, threads < 32 ? threads : 32};
    }
#endif
};

// What follows is called by all threads of the group.

// How many numbers a group's barrier can bring to all threads of the smallest group that has more than a warp.
inline constexpr unsigned decisions = 32;

#if DCUDA_WARPS

// The lead warp runs choose(warp), which returns a number below `decisions`, the same to all of its threads. All
// threads of the group meet, and get that number. Then the lead warp runs act(warp, number); the others need not wait
// for it. ORDER: the group's barrier stands between what choose() did and the return of the other threads, and between
// what they did before and act(). PERF: the number comes with the barrier, as a count of threads. Through shared memory
// it would take a word that must not be written again before the slowest thread has read it.
template <class Group, class Choose, class Act>
DCUDA_DEVICE unsigned decide(const Group& group, std::uint32_t&, const Choose& choose, const Act& act) {
    const unsigned thread = group.thread(), threads = group.threads();
    unsigned number = 0;
    delay();
    if (thread < 32) {
        const lead_warp warp = lead_access::warp(thread, threads);
        sync(warp); // what act() of the operation before wrote
        number = choose(warp);
    }
    if (threads > 32)
        number = group.count(thread < number);
    else
        group.sync();
    delay();
    if (thread < 32) act(lead_access::warp(thread, threads), number);
    return number;
}

// For fast paths. The lead warp, if it has 32 threads, runs prepare(warp): the same answer in all of them, as any()
// gives it. All threads of the group meet, and get that answer. If it is yes, the lead warp runs act(warp); the others
// need not wait for it. With a lead warp of fewer threads nothing happens, and the answer is no. ORDER: as in decide().
// PERF: the lead warp does not wait for the barrier's answer, which it knows. All warps meet at one instruction: were
// there one for each case, compute-sanitizer's synccheck would report it.
template <class Caller, class Prepare, class Act>
DCUDA_DEVICE bool attempt(const Caller& by, const Prepare& prepare, const Act& act) {
    if (!by.has_full_warp()) return false;
    delay();
    const bool leads = by.is_in_full_warp();
    bool yes = false;
    if (leads) {
        const full_warp warp(lead_access::warp(by.group().thread(), 32));
        sync(warp); // what act() of the operation before wrote
        yes = prepare(warp);
    }
    const bool answer = by.group().any(yes);
    delay();
    if (leads && yes) act(full_warp(lead_access::warp(by.group().thread(), 32)));
    return answer;
}

// For fast paths, too. The lead warp, if it has 32 threads, chooses a number below 32, and all threads of the group
// meet and get it; with a lead warp of fewer threads it is 0. ORDER: as in decide().
template <class Caller, class Choose>
DCUDA_DEVICE unsigned choose(const Caller& by, const Choose& choose_number) {
    if (!by.has_full_warp()) return 0;
    delay();
    unsigned number = 0;
    if (by.is_in_full_warp()) {
        const full_warp warp(lead_access::warp(by.group().thread(), 32));
        sync(warp); // what act() of the operation before wrote
        number = choose_number(warp);
    }
    number = by.group().count(by.group().thread() < number);
    delay();
    return number;
}

// The lead warp, which has 32 threads, runs act(warp); the others need not wait for it.
template <class Caller, class Act>
DCUDA_DEVICE void act_alone(const Caller& by, const Act& act) {
    if (by.is_in_full_warp()) act(full_warp(lead_access::warp(by.group().thread(), 32)));
}

// The same after all threads of the group have met. ORDER: the group's barrier stands between what they did and act().
template <class Caller, class Act>
DCUDA_DEVICE void meet_and_act(const Caller& by, const Act& act) {
    delay();
    by.group().sync();
    delay();
    act_alone(by, act);
}

// The leader alone runs f(leader); the others need not wait for it. On the CPU backend without warps they do, which
// orders f after what the operation before did.
template <class Group, class F>
DCUDA_DEVICE void leader_alone(const Group& group, const F& f) {
    const unsigned thread = group.thread();
    if (thread < 32) sync(lead_access::warp(thread, group.threads())); // what act() of the operation before wrote
    if (thread == 0) f(lead_access::alone());
}

// The leader alone runs f(leader); no thread of the group returns before it has returned.
template <class Group, class F>
DCUDA_DEVICE void leader_then_sync(const Group& group, const F& f) {
    const unsigned thread = group.thread();
    delay();
    if (thread < 32) sync(lead_access::warp(thread, group.threads()));
    if (thread == 0) f(lead_access::alone());
    group.sync();
}

// The same after all threads of the group have arrived.
template <class Group, class F>
DCUDA_DEVICE void sync_leader_sync(const Group& group, const F& f) {
    delay();
    group.sync();
    if (group.leads()) f(lead_access::alone());
    group.sync();
}

#else

template <class Group, class Choose, class Act>
unsigned decide(const Group& group, std::uint32_t& word, const Choose& choose, const Act& act) {
    const auto decide_alone = [&] {
        word = choose(lead_access::alone());
        if (word >= decisions) __builtin_trap(); // a GPU's barrier could not tell it
    };
    cpu::sync_and_run(group.place(), decide_alone, [&] { act(lead_access::alone(), word); });
    return word;
}

template <class Group, class F>
void leader_then_sync(const Group& group, const F& f) {
    run_then_sync(group, [&] { f(lead_access::alone()); });
}

template <class Group, class F>
void sync_leader_sync(const Group& group, const F& f) {
    leader_then_sync(group, f); // it waits for all threads before, too
}

template <class Group, class F>
void leader_alone(const Group& group, const F& f) {
    leader_then_sync(group, f);
}

#endif

// Where nothing is left to do after the decision.
template <class Group, class Choose>
DCUDA_DEVICE unsigned decide(const Group& group, std::uint32_t& word, const Choose& choose) {
    return decide(group, word, choose, [](const lead_warp&, unsigned) {});
}

} // namespace exec

} // namespace dcuda::detail
