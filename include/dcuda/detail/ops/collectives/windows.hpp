// SPDX-License-Identifier: BSD-3-Clause
// Windows: memory that ranks open for puts. And the device's timers, which are collective like them.
//
// All members of the communicator export their memory and meet. Then one of them opens the window for the members on
// its device: of the world or the device the last to arrive, of other communicators the first one. It takes a slot in
// the device's table, and asks its host for what members on other devices have exported. They meet again, and use it.
#pragma once

#include "dcuda/detail/ops/collectives/communicators.hpp"

namespace dcuda::detail {

// Members of a communicator that are on this device.
struct members_here {
    const communicator_record& comm;
    std::uint32_t begin, end; // places in the order of processes
    std::uint32_t first_rank; // world rank of the device's rank 0

    DCUDA_DEVICE static members_here of(const rank_state& state, communicator number) {
        const communicator_record& comm = *find_communicator(state, number);
        const std::uint32_t process = state.device.process_index, ranks = state.device.ranks_per_device;
        return {comm, comm.members_before(process, ranks), comm.members_before(process + 1, ranks), process * ranks};
    }
    DCUDA_DEVICE std::uint32_t device_rank(std::uint32_t place) const {
        return comm.world_rank_by_process(place) - first_rank;
    }
    // Whether all members are.
    DCUDA_DEVICE bool are_all() const { return end - begin == comm.size; }
};

// A window that is being opened.
struct window_in_making {
    std::uint32_t index = 0;       // of its slot; max_windows: there is none
    std::uint32_t id = 0;          // 0: there will be no window
    std::uint32_t is_complete = 1; // 0: its entries have still to be written
};

// Takes a free slot for a window of the communicator; its index, or max_windows if there is none. The leader.
//
// ORDER window-free -> window-reuse (device scope): who sees the slot free also sees that the members of the window
// before have read its entries for the last time, so they may be overwritten. Additions of ranks that come too late
// are no harm: the slot is free when its word is 0 again, and whoever adds to that 0 has it.
DCUDA_DEVICE std::uint32_t take_window_slot(rank_state& state, communicator comm) {
    const std::uint32_t slots = state.device.max_windows;
    for (std::uint32_t index = 0; index < slots; ++index) {
        window_slot& slot = state.device.windows[index];
        if (load_relaxed(&slot.taken) != 0 || fetch_add_acq_rel<order_tag::window_reuse>(&slot.taken, 1) != 0) continue;
        const communicator_record& record = *find_communicator(state, comm);
        ++slot.uses;
        slot.comm = static_cast<std::uint32_t>(comm);
        slot.rank_count = record.size;
        slot.first_rank = record.world_rank_of(0);
        return index;
    }
    return slots;
}

// One thread.
DCUDA_DEVICE void free_window_slot(rank_state& state, std::uint32_t index) {
    window_slot& slot = state.device.windows[index];
    slot.id = 0;
    store_release<order_tag::window_free>(scope::device, &slot.taken, 0);
}

// Asks the host to open the exports of all processes' members in the slot's entries. False if the run ended; `opened`:
// if the host could. The leader.
DCUDA_DEVICE bool open_on_host(lone_thread leader, rank_state& state, std::uint32_t slot, communicator comm,
                               bool& opened) {
    const device_context& device = state.device;
    std::uint32_t* const word = device.replies + state.device_rank;
    const std::uint32_t before = load_relaxed(word), number = static_cast<std::uint32_t>(comm);
    const command question = make_command(state.device_rank, create_window_fields{slot, number});
    if (!send_command(leader, state, question)) return false;
    // ORDER reply-publish -> reply-observe: the host has written the slot's entries before it writes the reply.
    return wait_for_word<order_tag::reply_observe>(
        leader, state, scope::system, word,
        [&](std::uint32_t value) {
            opened = value % 2 != 0; // the host adds 2, and 1 for success
            return value != before;
        },
        waiting::host_reply, operation::create_window, number);
}

// Finds a place for the window, and has the host open it if it spans devices. False if the run ended. The leader.
DCUDA_COLD bool find_window_place(lone_thread leader, shared_state shared, communicator comm, bool is_of_device,
                                  window_in_making& made) {
    rank_state& state = shared.get();
    const device_context& device = state.device;
    // ORDER command-publish: the exports of the device's members reached this one when they met; the host must see them
    // too, so they are completed to the system before the command is sent.
    complete_writes(scope::system);
    made.index = take_window_slot(state, comm);
    const bool full = made.index == device.max_windows;
    bool opened = !full;
    // All processes ask, also those without a free slot: all get the window, or none does.
    if (!is_of_device && !open_on_host(leader, state, made.index, comm, opened)) return false;
    if (is_of_device && full)
        send_command(leader, state,
                     make_command(state.device_rank, windows_full_fields{device.exports[state.device_rank].bytes()}));
    if (full) return true;
    if (!opened) {
        free_window_slot(state, made.index);
        return true;
    }
    window_slot& slot = device.windows[made.index];
    made.id = slot.id = window_id(made.index, slot.uses);
    made.is_complete = is_of_device ? 0 : 1;
    return true;
}

// Opens the window for all members on this device, which have met. Whether the run goes on. The lead warp.
DCUDA_COLD bool open_window(lead_warp warp, shared_state shared, communicator comm) {
    rank_state& state = shared.get();
    const members_here members = members_here::of(state, comm);
    window_in_making made;
    const bool going = any(warp, warp.leads() && exec::far(find_window_place)(exec::lead_access::alone(), state, comm,
                                                                              members.are_all(), made));
    const std::uint32_t index = broadcast(warp, made.index, 0), id = broadcast(warp, made.id, 0);
    const bool is_complete = broadcast(warp, made.is_complete, 0) != 0;
    for (std::uint32_t place = members.begin + warp.index; place < members.end; place += warp.count) {
        const std::uint32_t rank = members.device_rank(place);
        if (!is_complete)
            state.device.windows[index].entries[members.comm.number_by_process(place)] = state.device.exports[rank];
        state.device.created[rank] = id;
    }
    return going;
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

// Whether this rank acts for all members of the communicator on its device. One thread.
DCUDA_DEVICE bool is_first_here(const rank_state& state, communicator comm) {
    const members_here members = members_here::of(state, comm);
    return members.device_rank(members.begin) == state.device_rank;
}

// The members meet, the first one of each device acts, and they meet again. act(warp) returns false if the run has
// ended. All threads of the rank.
template <class Action>
DCUDA_DEVICE void meet_and_run(rank_state& state, communicator comm, operation where, const Action& action) {
    cross_members(state, comm, where);
    leave(exec::decide(state.group(), state.decision, [&](const lead_warp& warp) {
        const bool acts = any(warp, warp.leads() && is_first_here(state, comm));
        return !acts || action(warp) ? 1u : 0u;
    }));
    cross_members(state, comm, where);
}

DCUDA_COLD window create_window(shared_state shared, communicator comm, void* base, std::size_t bytes,
                                window_kind kind) {
    rank_state& state = shared.get();
    check_communicator(state, comm, operation::create_window);
    check_window_memory(state, base, bytes);
    const device_context& device = state.device;
    exec::leader_then_sync(state.group(), [&](lone_thread) {
        auto* const place = static_cast<std::byte*>(base);
        device.exports[state.device_rank] =
            window_entry{place, bytes | (kind == window_kind::direct ? window_is_direct : 0), place};
    });
    const auto open = [&](const lead_warp& warp) { return exec::far(open_window)(warp, state, comm); };
    if (static_cast<std::uint32_t>(comm) < communicator_count)
        arrive_and_run(state, {operation::create_window, communicator::device}, [&] {
            return exec::decide(state.group(), state.decision,
                                [&](const lead_warp& warp) { return open(warp) ? 1u : 0u; }) != 0;
        });
    else
        meet_and_run(state, comm, operation::create_window, open);
    const window made{device.created[state.device_rank]};
    if (made) exec::leader_then_sync(state.group(), [&](lone_thread) { ++find_communicator(state, comm)->windows; });
    return made;
}

// Nobody puts there any more when all have called it: the barrier completes what is under way.
DCUDA_COLD void free_window(shared_state shared, window win) {
    rank_state& state = shared.get();
    // Nobody frees a window before this rank has come to the barrier, so all threads see the same.
    const device_window opened = find_window(state, win);
#if DCUDA_CHECKS
    if (!win || opened.id != win.id) report_and_leave(state, fault::window, operation::free_window, win.id, 0, 0, 0);
    if ((win.id & window_is_of_host) != 0)
        report_and_leave(state, fault::host_window, operation::free_window, win.id, 0, 0, 0);
    if (!is_member(state, opened))
        report_and_leave(state, fault::window_member, operation::free_window, win.id, opened.comm, 0, 0);
#endif
    exec::leader_then_sync(state.group(), [&](lone_thread leader) {
        for (target_entry& target : state.own.of(leader).targets)
            if (target.key >> 32 == win.id) target.key = no_target;
        if (communicator_record* const comm = find_communicator(state, static_cast<communicator>(opened.comm)))
            --comm->windows;
    });
    const std::uint32_t index = slot_of_window(win.id);
    const collective where{operation::free_window, static_cast<communicator>(opened.comm)};
    if (opened.comm >= communicator_count)
        return meet_and_run(state, where.comm, where.kind, [&](const lead_warp& warp) {
            if (warp.leads()) free_window_slot(state, index);
            return true;
        });
#if DCUDA_BACKEND_CPU
    if (!check::is_on(state))
#endif
        exec::far(cross_barrier_seldom)(state, where.index());
    arrive_and_run(state, where, [&] {
        exec::leader_then_sync(state.group(), [&](lone_thread) { free_window_slot(state, index); });
        return true;
    });
}

// --- Timers --------------------------------------------------------------------------------------------------------

// The rank that arrives last takes the time by its own clock: when the host reads the command is no measure, since it
// may read both at once.
template <class Fields>
DCUDA_COLD void send_time(shared_state shared, operation kind) {
    rank_state& state = shared.get();
    arrive_and_run(state, {kind, device}, [&] {
        exec::leader_then_sync(state.group(), [&](lone_thread leader) {
            send_command(leader, state, make_command(state.device_rank, Fields{clock_ns()}));
        });
        return true;
    });
}

} // namespace dcuda::detail
