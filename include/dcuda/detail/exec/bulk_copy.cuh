// SPDX-License-Identifier: BSD-3-Clause
// Large copies of a GPU block by the bulk copy engine (sm_90 and later): one thread drives bulk loads into shared
// memory and bulk stores out of it, so data in flight costs no registers. docs/design/copies.md has the measurements,
// and the argument for each ORDER tag here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dcuda/config.hpp"
#include "dcuda/detail/exec/launch.hpp"

namespace dcuda::detail::exec {

// What a rank's large copies pass through. Part of rank_state; writer: the leader; readers: all threads.
struct staging {
    std::uint32_t stages;      // their shared-memory address; a barrier for each lies behind them
    std::uint32_t stage_count; // 0: none, all copies go through registers
    std::uint32_t stage_bytes;
    std::uint32_t phases;  // a bit per stage: parity of the barrier's phase that completes next
    std::uint32_t pending; // 1: there may be bulk stores that nobody has waited for
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// --- The engine's instructions -------------------------------------------------------------------------------------

// ORDER bulk-proxy: before what the engine does for a thread that meets this one at the block's barrier comes what this
// thread wrote, read and acquired so far. All threads, before that barrier. Weaker: the engine may read a source, or
// write a target, before ordinary accesses that the program put first.
DCUDA_DEVICE void order_before_engine() { asm volatile("fence.proxy.async;" ::: "memory"); }

// The bulk stores of the rank are complete, for the leader; other threads have none.
//
// ORDER bulk-complete: completion, without .read, means that the writes are made, and includes the proxy fence back to
// ordinary accesses; what this thread releases next covers them. Weaker: a notification may overtake its data.
// ORDER bulk-then-words: ordinary stores after the block's next barrier come after them. Weaker: of two puts to one
// place the earlier may win.
// PERF: the instruction also invalidates the L1 cache, so only who has copied so executes it.
DCUDA_DEVICE void complete_copies() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
DCUDA_DEVICE void complete_copies(staging& by) { // the leader
    if (by.pending == 0) return;
    complete_copies();
    by.pending = 0;
}

// All but the last `Pending` bulk stores of this thread have read their stage.
template <int Pending>
DCUDA_DEVICE void wait_stages_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}

DCUDA_DEVICE void init_stage_barrier(std::uint32_t barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
}

DCUDA_DEVICE void load_stage(std::uint32_t stage, const std::byte* source, std::uint32_t bytes, std::uint32_t barrier) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(stage),
                 "l"(source), "r"(bytes), "r"(barrier)
                 : "memory");
}

// Without a bound: a load of global memory completes, or ends the kernel with an error.
DCUDA_DEVICE void wait_stage_loaded(std::uint32_t barrier, std::uint32_t parity) {
    std::uint32_t loaded;
    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(loaded)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (loaded == 0);
}

DCUDA_DEVICE void store_stage(std::byte* target, std::uint32_t stage, std::uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(target), "r"(stage), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// --- Copies --------------------------------------------------------------------------------------------------------

// Of the rank that is number `place` of its block. The leader, in init. A barrier of the group publishes it.
DCUDA_DEVICE staging find_staging(const staging_shape& shape, unsigned place) {
    extern __shared__ uint4 dcuda_dynamic_shared_memory[];
    const auto shared = static_cast<std::uint32_t>(__cvta_generic_to_shared(dcuda_dynamic_shared_memory));
    // PERF: stages that do not begin with a line of 128 bytes halve the bandwidth (H200, 2026-11-21). Dynamic shared
    // memory begins wherever the static ends.
    const std::uint32_t first = (shared + shape.offset + stage_alignment - 1) / stage_alignment * stage_alignment +
                                place * shape.bytes_of_rank();
    const staging found{first, shape.stage_count, shape.stage_bytes, 0, 0};
    for (unsigned stage = 0; stage < found.stage_count; ++stage)
        init_stage_barrier(found.stages + found.stage_count * found.stage_bytes + 8 * stage);
    order_before_engine(); // it sees the barriers
    return found;
}

// Whether the engine copies all but the edges: there is more to copy than the block's threads do in one round.
DCUDA_DEVICE bool is_engine_copy(const staging& by, const void* target, const void* source, std::size_t bytes,
                                 std::size_t round_bytes) {
    const std::uintptr_t skew = reinterpret_cast<std::uintptr_t>(target) ^ reinterpret_cast<std::uintptr_t>(source);
    return bytes > round_bytes && by.stage_count != 0 && skew % 16 == 0 && skew != 0 && __isGlobal(source) != 0;
}

// The leader. Source, target and bytes are multiples of 16. Returns when all stores are issued.
DCUDA_DEVICE void copy_by_engine(staging& by, std::byte* target, const std::byte* source, std::size_t bytes) {
    const std::uint32_t stages = by.stages, count = by.stage_count, stage_bytes = by.stage_bytes;
    const std::uint32_t barriers = stages + count * stage_bytes;
    std::uint32_t phases = by.phases;
    by.pending = 1;
    std::size_t unasked = bytes; // bytes of the source, from `source` on, whose load is not under way
    const auto load = [&](std::uint32_t stage) {
        const auto part = static_cast<std::uint32_t>(unasked < stage_bytes ? unasked : stage_bytes);
        load_stage(stages + stage * stage_bytes, source, part, barriers + 8 * stage);
        source += part;
        unasked -= part;
    };
    wait_stages_read<0>(); // by the copy before
    for (std::uint32_t stage = 0; stage < count && unasked != 0; ++stage) load(stage);
    // The engine keeps no order between stores, but two puts to one place arrive in theirs: those of the copy before
    // must be complete. Meanwhile the first loads are under way.
    complete_copies();
    std::uint32_t stage = 0, stage_before = 0;
    for (bool first = true; bytes != 0; first = false) {
        const auto part = static_cast<std::uint32_t>(bytes < stage_bytes ? bytes : stage_bytes);
        wait_stage_loaded(barriers + 8 * stage, phases >> stage & 1);
        phases ^= 1u << stage;
        store_stage(target, stages + stage * stage_bytes, part);
        target += part;
        bytes -= part;
        if (!first && unasked != 0) {
            // PERF: the newest store may still read its stage. With two such stores 4 stages of 16 KiB give 36 instead
            // of 45 GB/s (H200, 2026-11-21).
            wait_stages_read<1>();
            load(stage_before);
        }
        stage_before = stage;
        stage = stage + 1 == count ? 0 : stage + 1;
    }
    by.phases = phases;
}

#else // earlier GPUs have no such engine; the host compiles none of this

DCUDA_DEVICE void order_before_engine() {}
DCUDA_DEVICE void complete_copies() {}
DCUDA_DEVICE void complete_copies(staging&) {}
DCUDA_DEVICE staging find_staging(const staging_shape&, unsigned) { return {}; }
DCUDA_DEVICE bool is_engine_copy(const staging&, const void*, const void*, std::size_t, std::size_t) { return false; }
DCUDA_DEVICE void copy_by_engine(staging&, std::byte*, const std::byte*, std::size_t) {}

#endif

} // namespace dcuda::detail::exec
