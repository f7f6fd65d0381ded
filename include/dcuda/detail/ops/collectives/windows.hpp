// SPDX-License-Identifier: BSD-3-Clause
// Windows: memory that ranks open for puts. And the device's timers, which are collective like them.
#pragma once

#include "dcuda/detail/ops/collectives/barrier.hpp"

namespace dcuda::detail {

// Takes a free slot for a window of the communicator; its index, or max_windows if there is none. The leader.
DCUDA_DEVICE std::uint32_t take_window_slot(rank_state& state, communicator comm) {
    const std::uint32_t slots = state.device.max_windows;
    for (std::uint32_t index = 0; index < slots; ++index) {
        window_slot& slot = state.device.windows[index];
        if (slot.id != 0) continue;
        ++slot.uses;
        slot.comm = static_cast<std::uint32_t>(comm);
        slot.rank_count = state.device.communicators[static_cast<std::uint32_t>(comm)].size;
        return index;
    }
    return slots;
}

// Asks the host to open the exports of all processes' ranks in the slot's entries. False if the run ended; `opened`: if
// the host could. The leader.
DCUDA_DEVICE bool open_on_host(lone_thread leader, rank_state& state, std::uint32_t slot, bool& opened) {
    const device_context& device = state.device;
    // Only the last rank to arrive gets here, so the reply is to this question.
    const std::uint32_t before = load_relaxed(device.reply);
    const command question = make_command(state.device_rank, create_window_fields{slot});
    if (!send_command(leader, state, question)) return false;
    // ORDER reply-publish -> reply-observe: the host has written the slot's entries before it writes the reply.
    return wait_for_word<order_tag::reply_observe>(
        leader, state, scope::system, device.reply,
        [&](std::uint32_t value) {
            opened = value % 2 != 0; // the host adds 2, and 1 for success
            return value != before;
        },
        waiting::host_reply, operation::create_window, 0);
}

// The last rank to arrive finds a place for the window, and has the host open it if it spans devices. False if the run
// ended; `index`: the slot, or max_windows; `entries`: whether they have still to be written. The leader.
DCUDA_COLD bool open_window(lone_thread leader, shared_state shared, communicator comm, std::uint32_t& index,
                            std::uint32_t& entries) {
    rank_state& state = shared.get();
    const device_context& device = state.device;
    // ORDER command-publish: the exports of all ranks reached this one by collective-arrive at device scope; the host
    // must see them too, so they are completed to the system before the command is sent.
    complete_writes(scope::system);
    index = take_window_slot(state, comm);
    const bool ask_host = device.communicators[static_cast<std::uint32_t>(comm)].processes > 1,
               full = index == device.max_windows;
    bool opened = !full;
    // All processes ask, also those without a free slot: all get the window, or none does.
    if (ask_host && !open_on_host(leader, state, index, opened)) return false;
    if (!ask_host && full)
        send_command(leader, state,
                     make_command(state.device_rank, windows_full_fields{device.exports[state.device_rank].bytes()}));
    entries = !ask_host && !full ? device.ranks_per_device : 0;
    std::uint32_t id = 0;
    if (opened && !full) {
        window_slot& slot = device.windows[index];
        id = slot.id = window_id(index, slot.uses);
    }
    *device.created = id;
    return true;
}

// Only the world and devices have windows. All threads of the rank.
DCUDA_DEVICE void check_window_communicator(rank_state& state, communicator comm) {
#if DCUDA_CHECKS
    if (static_cast<std::uint32_t>(comm) < communicator_count) return;
    check_communicator(state, comm, operation::create_window);
    report_and_leave(state, fault::window_communicator, operation::create_window, 0, static_cast<std::uint32_t>(comm),
                     0, 0);
#else
    (void)state, (void)comm;
#endif
}

// Whether the memory may be a window: other ranks must reach it. All threads of the rank.
DCUDA_DEVICE void check_window_memory(rank_state& state, const void* base, std::size_t bytes) {
#if DCUDA_CHECKS
    if (bytes == 0 || (base != nullptr && exec::is_global_memory(base))) return;
    report_and_leave(state, fault::memory, operation::create_window, 0, 0,
                     static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(base)), bytes);
#else
    (void)state, (void)base, (void)bytes;
#endif
}

DCUDA_COLD window create_window(shared_state shared, communicator comm, void* base, std::size_t bytes,
                                window_kind kind) {
    rank_state& state = shared.get();
    check_window_communicator(state, comm);
    check_window_memory(state, base, bytes);
    const device_context& device = state.device;
    exec::leader_then_sync(state.group(), [&](lone_thread) {
        auto* const place = static_cast<std::byte*>(base);
        device.exports[state.device_rank] =
            window_entry{place, bytes | (kind == window_kind::direct ? window_is_direct : 0), place};
    });
    arrive_and_run(state, {operation::create_window, communicator::device}, [&] {
        return exec::decide(state.group(), state.decision, [&](const lead_warp& warp) {
                   std::uint32_t index = 0, entries = 0;
                   const bool going = any(warp, warp.leads() && exec::far(open_window)(exec::lead_access::alone(),
                                                                                       state, comm, index, entries));
                   index = broadcast(warp, index, 0);
                   entries = broadcast(warp, entries, 0);
                   for (unsigned rank = warp.index; rank < entries; rank += warp.count)
                       device.windows[index].entries[rank] = device.exports[rank];
                   return going ? 1u : 0u;
               }) != 0;
    });
    return window{*device.created};
}

// Nobody puts there any more when all have called it: the barrier completes what is under way.
DCUDA_COLD void free_window(shared_state shared, window win) {
    rank_state& state = shared.get();
    // Nobody frees a window before this rank has come to the barrier, so all threads see the same.
    const window_slot slot = find_window(state, win);
#if DCUDA_CHECKS
    if (!win || slot.id != win.id) report_and_leave(state, fault::window, operation::free_window, win.id, 0, 0, 0);
    if ((win.id & window_is_of_host) != 0)
        report_and_leave(state, fault::host_window, operation::free_window, win.id, 0, 0, 0);
#endif
    exec::leader_then_sync(state.group(), [&](lone_thread leader) {
        for (target_entry& target : state.own.of(leader).targets)
            if (target.key >> 32 == win.id) target.key = no_target;
    });
    const collective where{operation::free_window, static_cast<communicator>(slot.comm)};
#if DCUDA_BACKEND_CPU
    if (!check::is_on(state))
#endif
        exec::far(cross_barrier_seldom)(state, where.index());
    arrive_and_run(state, where, [&] {
        exec::leader_then_sync(state.group(),
                               [&](lone_thread) { state.device.windows[slot_of_window(win.id)].id = 0; });
        return true;
    });
}

// --- Timers --------------------------------------------------------------------------------------------------------

// The host takes the time when the command arrives; both commands take the same way, so the difference is right. On the
// CPU backend the rank has the CPU's clock itself.
template <class Fields>
DCUDA_COLD void send_time(shared_state shared, operation kind) {
    rank_state& state = shared.get();
    arrive_and_run(state, {kind, device}, [&] {
        exec::leader_then_sync(state.group(), [&](lone_thread leader) {
            send_command(leader, state,
                         make_command(state.device_rank, Fields{DCUDA_BACKEND_CPU ? clock_ns() : std::uint64_t{0}}));
        });
        return true;
    });
}

} // namespace dcuda::detail
