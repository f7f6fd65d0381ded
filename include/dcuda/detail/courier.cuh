// The courier: a small kernel beside the user's that makes deliveries in device memory for the host
// (runtime/delivery.hpp). The host cannot do that itself while a kernel runs: a copy by the driver takes 5 us, and
// ranks that polled host memory would all have to cross PCIe for every look.
#pragma once

#include "dcuda/detail/mailbox.hpp"

namespace dcuda::detail {

#if defined(__CUDACC__)

// The courier's whole state. `next`: the command that it waits for.
struct courier_state {
    std::uint32_t next;
    std::uint32_t kind; // of the one that all threads make together: copy, or stop
    std::byte* target;
    const std::byte* source;
    std::uint32_t bytes;
    std::uint32_t* counter; // to notify then, or null
};

DCUDA_DEVICE std::uint32_t* counter_of(const courier_task& task, std::uint32_t rank, std::uint32_t tag) {
    return tag == no_tag ? nullptr : task.counters + std::size_t(rank) * task.tags + tag;
}

// Makes deliveries until there is one for all threads. The first warp.
//
// ORDER command-publish -> command-observe: packets vouch for their payload.
// ORDER notify-publish: the stores of all lanes come before each lane's release (the warp's barrier), so a notification
// comes after all payload before it.
// PERF: a look has to cross PCIe and back. While nothing comes, only the next two commands are looked at; then eight at
// once, a packet per lane. Four such looks under way at a time made each take 3 us longer (H200, 2026-11-21).
DCUDA_DEVICE void deliver_small(const courier_task& task, courier_state& state) {
    const team all{threadIdx.x, 32};
    const unsigned lane = all.index;
    constexpr unsigned idle_lanes = 2 * packets_per_command;
    unsigned lanes = idle_lanes;
    for (std::uint32_t next = state.next;;) {
        const std::uint32_t mine = next + lane / packets_per_command;
        packet got{};
        got.sequence = mine; // not what is expected
        if (lane < lanes)
            got = load_packet<order_tag::command_observe>(
                task.slots + std::size_t(mine % delivery_capacity) * packets_per_command + lane % packets_per_command,
                mine + 1);
        const unsigned missing = ~vote(all, got.sequence == mine + 1);
        const unsigned there = (missing == 0 ? 32 : lowest(missing)) / packets_per_command; // commands
        lanes = there == 0 ? idle_lanes : 32;
        unsigned taken = 0;
        std::uint32_t* notify = nullptr;
        bool by_all = false;
        while (taken < there) {
            const unsigned first = taken * packets_per_command; // the command's lane
            const std::uint32_t kind = broadcast(all, got.payload[0], first);
            const std::uint32_t rank = broadcast(all, got.payload[1], first);
            const std::uint32_t tag = broadcast(all, got.payload[2], first);
            const std::uint32_t bytes = broadcast(all, got.payload[0], first + 1);
            const std::uint64_t low = broadcast(all, got.payload[1], first + 1);
            const std::uint64_t high = broadcast(all, got.payload[2], first + 1);
            auto* const place = reinterpret_cast<std::byte*>(low | high << 32);
            const unsigned number = lane - first - 2; // of the payload's packet
            if (kind == static_cast<std::uint32_t>(delivery_kind::put)) {
                const unsigned commands = delivery_commands(bytes);
                if (taken + commands > there) break; // the rest is on its way
                const std::uint32_t at = number * mail_bytes;
                if (lane >= first + 2 && at < bytes) store_chunk(place + at, chunk_bytes(bytes, number), got.payload);
                if (lane == first) notify = counter_of(task, rank, tag);
                taken += commands;
            } else if (kind == static_cast<std::uint32_t>(delivery_kind::reply)) {
                // ORDER reply-publish: after all before it.
                sync(all);
                const std::uint32_t value = broadcast(all, got.payload[0], first + 2);
                if (all.leads())
                    store_release<order_tag::reply_publish>(scope::system, reinterpret_cast<std::uint32_t*>(place),
                                                            value);
                ++taken;
            } else {
                const std::uint64_t source_low = broadcast(all, got.payload[0], first + 2);
                const std::uint64_t source_high = broadcast(all, got.payload[1], first + 2);
                if (all.leads())
                    state = {0,     kind,
                             place, reinterpret_cast<const std::byte*>(source_low | source_high << 32),
                             bytes, counter_of(task, rank, tag)};
                by_all = true;
                ++taken;
                break;
            }
            sync(all); // of two puts to one place the later wins
        }
        if (taken == 0) continue;
        if (notify != nullptr) add_release<order_tag::notify_publish>(scope::device, notify, 1);
        next += taken;
        if (all.leads()) state.next = next;
        sync(all);
        if (by_all) return;
        if (all.leads()) store_release<order_tag::slot_free>(scope::system, task.done, next);
    }
}

// Templates are kernels without a home, as a header needs it.
template <class>
__global__ void __launch_bounds__(most_courier_threads) courier_kernel(courier_task task) {
    __shared__ courier_state state;
    if (threadIdx.x == 0) {
        state.next = 0;
        store_relaxed(task.started, 1);
    }
    __syncthreads();
    for (;;) {
        if (threadIdx.x < 32) deliver_small(task, state);
        __syncthreads();
        if (state.kind == static_cast<std::uint32_t>(delivery_kind::stop)) break;
        // ORDER command-observe: the payload lies in host memory, where other payload may have lain before.
        acquire_after<order_tag::command_observe>(scope::system, nullptr);
        exec::copy_bytes(state.target, state.source, state.bytes);
        __syncthreads();
        if (threadIdx.x == 0) {
            if (state.counter != nullptr) add_release<order_tag::notify_publish>(scope::device, state.counter, 1);
            store_release<order_tag::slot_free>(scope::system, task.done, state.next);
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) store_release<order_tag::slot_free>(scope::system, task.done, state.next);
}

#endif

} // namespace dcuda::detail
