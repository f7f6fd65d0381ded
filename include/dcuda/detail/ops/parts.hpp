// SPDX-License-Identifier: BSD-3-Clause
// Ranks that are parts of a block: what their constructor looks after, before they know anything of themselves.
#pragma once

#include "dcuda/detail/ops/commands/command_ring.hpp"

namespace dcuda::detail {

inline constexpr const char* constructor_name = "the constructor of dcuda::rank"; // CPU backend

// What is wrong with a part, and by what.
struct part_finding {
    part_problem problem;
    std::uint32_t index, first_thread, threads; // as the caller said
    std::uint32_t detail;                       // see part_problem
};

// Tells the host what is wrong with the rank that is to begin, and ends the run. The calling thread leaves the kernel.
// Of all threads that come here on a device the first one tells. There is room in the command ring: ranks that have not
// met in the constructor use it for little else.
DCUDA_COLD void report_part(context from_host, const part_finding found) {
    const kernel_context& device = *from_host.device;
    if (exchange_relaxed(device.aborted, 1) == 0) {
        const std::uint32_t place = found.index < device.ranks_per_block ? found.index : 0;
        const std::uint32_t rank = exec::block_index() * device.ranks_per_block + place;
        const auto kind = static_cast<std::uint32_t>(found.problem);
        const auto ticket = static_cast<std::uint32_t>(fetch_add_relaxed(device.ring.tail, std::uint64_t{1}));
        store_command(device.ring, ticket,
                      make_command(rank, fault_fields{fault::part, operation::init, found.index, kind,
                                                      found.first_thread, found.threads, found.detail}));
    }
    exec::exit_thread();
}

#if DCUDA_PARTS

// A part as one number, which is not 0.
DCUDA_DEVICE std::uint32_t shape_of_part(const part& own, std::uint32_t barrier) {
    return own.first_thread / 32 | own.threads / 32 << 8 | 1u << 16 | barrier << 17;
}

DCUDA_DEVICE part_finding finding_of(const part& own, part_problem problem, std::uint32_t detail) {
    return {problem, own.index, own.first_thread, own.threads, detail};
}

// What one thread sees by itself. `barrier`: where the part meets.
DCUDA_DEVICE part_finding check_part(const kernel_context& device, const part& own, std::uint32_t barrier) {
    const unsigned thread = exec::thread_index(), all = exec::block_threads();
#if DCUDA_BACKEND_CPU
    if (device.checker != nullptr) return finding_of(own, part_problem::checked, 0);
#endif
    if (own.index >= device.ranks_per_block) return finding_of(own, part_problem::index, device.ranks_per_block);
    if (own.first_thread % 32 != 0 || own.threads % 32 != 0 || own.threads == 0)
        return finding_of(own, part_problem::warps, 0);
    if (own.first_thread > all || own.threads > all - own.first_thread)
        return finding_of(own, part_problem::block, all);
    if (thread - own.first_thread >= own.threads) return finding_of(own, part_problem::thread, thread);
    if (own.threads > 32 && barrier >= hardware_barriers) return finding_of(own, part_problem::barrier, barrier);
    return finding_of(own, part_problem::none, 0);
}

// Takes the part's warps and its barrier for it. A thread of each of its warps does all of that, so whoever comes
// second to what two parts take sees it.
DCUDA_DEVICE part_finding take_part(block_claims& claims, const part& own, std::uint32_t barrier) {
    // The part that it belongs to.
    const auto take = [&](std::uint32_t& owner) {
        const std::uint32_t before = exchange_relaxed(&owner, own.index + 1);
        return before == 0 ? own.index : before - 1;
    };
    DCUDA_NO_UNROLL
    for (unsigned warp = own.first_thread / 32; warp < (own.first_thread + own.threads) / 32; ++warp) {
        const std::uint32_t owner = take(claims.warps[warp]);
        if (owner != own.index) return finding_of(own, part_problem::overlap, owner);
    }
    // The barrier is one that there is (check_part), which GCC does not see: it would warn.
    if (own.threads > 32 && take(claims.barriers[barrier % hardware_barriers]) != own.index)
        return finding_of(own, part_problem::taken, barrier);
    return finding_of(own, part_problem::none, 0);
}

// Waits for a word of a part that is not 0. 0: the run ends.
DCUDA_DEVICE std::uint32_t wait_for_part(const kernel_context& device, const std::uint32_t* word) {
    for (;;) {
        const std::uint32_t value = load_relaxed(word);
        if (value != 0 || load_relaxed(device.aborted) != 0) return value;
        exec::relax();
    }
}

// For whoever asks what the rank waits for. One thread.
DCUDA_COLD void tell_missing_threads(wait_record* record, std::uint32_t here, std::uint32_t threads) {
    store_relaxed(&record->where, operation::init);
    store_relaxed(&record->seen, here);
    store_relaxed(&record->expected, threads);
    store_relaxed(&record->kind, waiting::threads);
}

// Waits until all threads of the part are here. False, and then for all of them: the run ends.
//
// Threads see at different times that the run ends, and none may go on to meet some that have left. So who leaves says
// so in the word in which they arrive, and the last to arrive finds out whether anybody had left.
DCUDA_DEVICE bool gather_part(const kernel_context& device, const part& own, block_claims& claims) {
    constexpr std::uint32_t left = 1u << 16, polls_until_told = 1000;
    std::uint32_t& arrived = claims.arrived[own.index];
    const std::uint32_t* const outcome = &claims.outcomes[own.index];
    wait_record* const record = device.waits + exec::block_index() * device.ranks_per_block + own.index;
    const std::uint32_t before = fetch_add_relaxed(&arrived, 1u);
    if (before % left == own.threads - 1)
        store_relaxed(&claims.outcomes[own.index], before < left ? part_complete : part_left);
    const bool tells = before == 0;
    unsigned polls = 0;
    for (; load_relaxed(outcome) == part_incomplete; ++polls) {
        if (load_relaxed(device.aborted) != 0) {
            if (fetch_add_relaxed(&arrived, left) % left < own.threads) return false;
            while (load_relaxed(outcome) == part_incomplete) exec::relax(); // the last one writes it now
        }
        if (tells && polls % polls_until_told == polls_until_told - 1)
            tell_missing_threads(record, load_relaxed(&arrived) % left, own.threads);
        exec::relax();
    }
    if (tells && polls >= polls_until_told) store_relaxed(&record->kind, waiting::no);
    return load_relaxed(outcome) == part_complete;
}

// Which part has the same state as this one, as far as it has come before; most_warps: none. One thread of each part.
DCUDA_DEVICE std::uint32_t find_state(const kernel_context& device, block_claims& claims, const rank_state& state,
                                      std::uint32_t index) {
    const auto address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(&state));
    const auto number = static_cast<std::uint32_t>(address ^ address >> 32) | 1; // states are aligned
    const std::uint32_t turn = fetch_add_relaxed(&claims.states_taken, 1u) % most_warps;
    store_relaxed(&claims.owners[turn], index);
    store_relaxed(&claims.states[turn], number);
    DCUDA_NO_UNROLL
    for (std::uint32_t other = 0; other < turn; ++other)
        if (wait_for_part(device, &claims.states[other]) == number) return load_relaxed(&claims.owners[other]);
    return most_warps;
}

// The group of the threads of this part of the block; it is nobody else's, and all of them have come. All threads of
// the part; those of one that cannot be leave the kernel, and the run ends.
//
// The threads do not meet at their barrier before that: where two parts overlap, some that are waited for there never
// come.
DCUDA_COLD exec::rank_group claim_part(context from_host, const rank_state& state, const part own) {
    const kernel_context& device = *from_host.device;
    const unsigned thread = exec::thread_index();
    // A warp meets by itself; on the CPU backend in a place behind those of the barriers.
    const std::uint32_t barrier = own.threads == 32  ? hardware_barriers + own.first_thread / 32
                                  : own.barrier != 0 ? own.barrier
                                                     : own.index + 1;
    part_finding found = check_part(device, own, barrier);
    if (found.problem != part_problem::none) report_part(from_host, found);
    // What the first thread says is the part. Threads that say something else do not come further, so that the part is
    // complete when all of its own have.
    block_claims& claims = device.claims[exec::block_index()];
    const std::uint32_t said = shape_of_part(own, barrier);
    if (fetch_add_relaxed(&claims.calls[own.index], 1u) == 0) store_relaxed(&claims.shapes[own.index], said);
    const std::uint32_t shape = wait_for_part(device, &claims.shapes[own.index]);
    if (shape == 0) exec::exit_thread();
    if (shape != said) found.problem = part_problem::shape;
    if (found.problem == part_problem::none && thread % 32 == 0) found = take_part(claims, own, barrier);
    if (found.problem == part_problem::none && thread == own.first_thread) {
        found.detail = find_state(device, claims, state, own.index);
        if (found.detail != most_warps) found.problem = part_problem::state;
    }
    if (found.problem != part_problem::none) report_part(from_host, found);
    if (!gather_part(device, own, claims)) exec::exit_thread();
    return {{own.threads, barrier}, own.first_thread};
}

#endif

} // namespace dcuda::detail
