// What the ranks of a device do together: meet, exchange epochs with other devices, open and close windows, keep time.
#pragma once

#include "dcuda/detail/rank_state.hpp"

namespace dcuda::detail {

// All ranks of the device meet. The last to arrive runs action() with all its threads, as a device-wide critical
// section that sees what all ranks did before; then all leave and see what it did.
//
// ORDER barrier-arrive (acquire and release, device scope): everything a rank did or saw before is ordered before its
// arrival; the arrivals form one release sequence, so the last one acquires them all. Weaker: the last rank, and
// through it all others, may miss writes of a rank.
// ORDER barrier-release -> barrier-observe (device scope): passes that on. Causality is transitive, also for puts to
// other devices that were issued before.
template <class Action>
DCUDA_DEVICE void meet(rank_state& state, collective kind, const Action& action) {
    const auto index = static_cast<std::uint32_t>(kind);
    meeting& words = state.device->meetings[index];
    exec::sync_block();
    exec::run_then_sync([&] {
        const std::uint32_t before = fetch_add_acq_rel<order_tag::barrier_arrive>(&words.arrived, 1);
        state.last = before + 1 == state.ranks_per_device ? 1 : 0;
    });
    const bool last = state.last != 0;
    if (last) {
        action();
        exec::sync_block();
    }
    exec::run_then_sync([&] {
        const std::uint32_t generation = ++state.generation[index];
        if (last) {
            if (load_relaxed(&state.ended) != 0) return;
            // Nobody arrives again before the generation below releases them.
            store_relaxed(&words.arrived, 0);
            store_release<order_tag::barrier_release>(scope::device, &words.generation, generation);
        } else {
            patience until(state, waiting::collective, index);
            poll<order_tag::barrier_observe>(
                scope::device, &words.generation, [&](std::uint32_t value) { return value == generation; }, until);
            until.done();
        }
    });
    leave_if_ended(state);
}

// The last rank of a device tells all other devices that its ranks have arrived and waits for theirs. One word per
// pair of devices, each with one writer, so that an early device cannot stand in for a late one.
//
// ORDER device-arrive -> device-observe (system scope): what all ranks of a device did before, which the last one
// acquired by barrier-arrive, is ordered before its epoch, and hence before what the ranks of the other device do
// after.
DCUDA_DEVICE void exchange_epochs(rank_state& state, collective kind) {
    const device_context& device = *state.device;
    const auto index = static_cast<std::uint32_t>(kind);
    const std::uint32_t epoch = state.generation[index] + 1;
    const unsigned step = exec::block_threads();
    for (unsigned p = exec::thread_index(); p < device.process_count; p += step)
        if (p != device.process_index)
            store_release<order_tag::device_arrive>(
                scope::system, device.peers[p].epochs + device.process_index * epoch_stride + index, epoch);
    exec::sync_block();
    for (unsigned p = exec::thread_index(); p < device.process_count; p += step) {
        if (p == device.process_index) continue;
        patience until(state, waiting::other_devices, index, 0, p);
        poll<order_tag::device_observe>(
            scope::system, device.peers[device.process_index].epochs + p * epoch_stride + index,
            [&](std::uint32_t value) { return static_cast<std::int32_t>(value - epoch) >= 0; }, until);
        until.done();
    }
}

DCUDA_DEVICE void meet_world(rank_state& state, collective kind) {
    meet(state, kind, [&] {
        if (state.device->process_count > 1) exchange_epochs(state, kind);
    });
}

DCUDA_DEVICE void init(context device, rank_state& state) {
    exec::run_then_sync([&] {
        state.device = device;
        state.device_rank = exec::block_index();
        state.first_rank = device->first_rank;
        state.world_rank = device->first_rank + state.device_rank;
        state.ranks_per_device = device->ranks_per_device;
        state.world_size = device->world_size;
        state.tags = device->tags;
        state.ended = state.last = state.result = state.finished = 0;
        for (std::uint32_t& generation : state.generation) generation = 0;
        // ORDER notify-observe: the narrowest scope that includes every possible source.
        state.notification_scope = device->process_count == 1 ? scope::device : scope::system;
        const std::size_t first_counter = std::size_t(state.device_rank) * state.tags;
        state.counters = device->peers[device->process_index].counters + first_counter;
        state.consumed = device->consumed + first_counter;
        for (target_entry& entry : state.targets) entry.window = 0;
        for (unsigned tag = 0; tag < cached_tags; ++tag) state.consumed_cache[tag] = {tag, device->counter_start};
    });
    meet_world(state, collective::init);
}

DCUDA_DEVICE void finish(rank_state& state) {
    // A thread that leaves the kernel because of an error runs destructors on the CPU backend: nothing to wait for
    // then.
    if (load_relaxed(&state.ended) != 0 || exec::is_unwinding() || state.finished != 0) return;
    meet_world(state, collective::finish);
    exec::run_then_sync([&] {
        state.finished = 1;
        store_relaxed(&state.device->waits[state.device_rank].what, static_cast<std::uint32_t>(waiting::done));
    });
}

DCUDA_DEVICE void check_communicator(rank_state& state, communicator comm, operation where) {
#if DCUDA_CHECKS
    if (comm != world && comm != device)
        fail(state, fault::communicator, where, 0, static_cast<std::uint32_t>(comm), 0, 0, 0);
#else
    (void)state, (void)comm, (void)where;
#endif
}

DCUDA_DEVICE void barrier(rank_state& state, communicator comm) {
    check_communicator(state, comm, operation::collective);
    if (comm == world)
        meet_world(state, collective::barrier_world);
    else
        meet(state, collective::barrier_device, [] {});
}

// --- Windows -------------------------------------------------------------------------------------------------------

// Takes a free slot for a window of the communicator; its index, or max_windows if there is none. One thread.
DCUDA_DEVICE std::uint32_t take_window_slot(rank_state& state, communicator comm) {
    const std::uint32_t slots = state.device->max_windows;
    for (std::uint32_t index = 0; index < slots; ++index) {
        window_slot& slot = state.device->windows[index];
        if (slot.id != 0) continue;
        ++slot.uses;
        slot.comm = static_cast<std::uint32_t>(comm);
        slot.rank_count = comm == world ? state.world_size : state.ranks_per_device;
        return index;
    }
    return slots;
}

// Asks the host to open the offers of all processes' ranks in the slot's entries. False if it could not. One thread.
DCUDA_DEVICE bool open_on_host(rank_state& state, std::uint32_t slot) {
    const device_context& device = *state.device;
    // Only the last rank to arrive gets here, so the reply is to this question.
    const std::uint32_t before = load_relaxed(device.reply);
    const command question{{static_cast<std::uint32_t>(opcode::create_window), state.device_rank, slot}};
    if (!send_command(state, question)) return false;
    patience until(state, waiting::host_reply, 0);
    std::uint32_t reply = before;
    // ORDER reply-publish -> reply-observe: the host has written the slot's entries before it writes the reply.
    poll<order_tag::reply_observe>(
        scope::system, device.reply,
        [&](std::uint32_t value) {
            reply = value;
            return value != before;
        },
        until);
    until.done();
    return reply % 2 != 0; // the host adds 2, and 1 for success
}

DCUDA_DEVICE window create_window(rank_state& state, communicator comm, void* base, std::size_t bytes) {
    check_communicator(state, comm, operation::create_window);
    const device_context& device = *state.device;
#if DCUDA_CHECKS
    if (bytes != 0 && !exec::is_global_memory(base))
        fail(state, fault::memory, operation::create_window, 0, 0, reinterpret_cast<std::uintptr_t>(base), bytes, 0);
#endif
    exec::run_then_sync([&] { device.offers[state.device_rank] = window_entry{static_cast<std::byte*>(base), bytes}; });
    meet(state, collective::create_window, [&] {
        exec::run_then_sync([&] {
            // ORDER command-publish: the offers of all ranks reached this one by barrier-arrive at device scope; the
            // host must see them too, so they are completed to the system before the command is sent.
            complete_writes();
            state.result = take_window_slot(state, comm);
        });
        const std::uint32_t index = state.result;
        const bool ask_host = comm == world && device.process_count > 1, full = index == device.max_windows;
        if (!ask_host && !full)
            for (unsigned r = exec::thread_index(); r < device.ranks_per_device; r += exec::block_threads())
                device.windows[index].entries[r] = device.offers[r];
        exec::run_then_sync([&] {
            // All processes ask, also those without a free slot: all get the window, or none does.
            const bool opened = ask_host ? open_on_host(state, index) : !full;
            if (!ask_host && full)
                send_command(state, command{{static_cast<std::uint32_t>(opcode::windows_full), state.device_rank}});
            std::uint32_t id = 0;
            if (opened) {
                window_slot& slot = device.windows[index];
                id = slot.id = (slot.uses & 0xffff) << 16 | (index + 1);
            }
            *device.created = id;
        });
    });
    return window{*device.created};
}

// The window in the device's table; a slot with another id if there is no such window (any more).
DCUDA_DEVICE window_slot find_window(const rank_state& state, window win) {
    const std::uint32_t index = (win.id & 0xffff) - 1;
    return index < state.device->max_windows ? state.device->windows[index] : window_slot{};
}

DCUDA_DEVICE void free_window(rank_state& state, window win) {
    const window_slot slot = find_window(state, win);
#if DCUDA_CHECKS
    if (!win || slot.id != win.id) fail(state, fault::window, operation::free_window, win.id, 0, 0, 0, 0);
#endif
    const std::uint32_t index = (win.id & 0xffff) - 1;
    exec::run_then_sync([&] {
        for (target_entry& entry : state.targets)
            if (entry.window == win.id) entry.window = 0;
    });
    meet(state, collective::free_window, [&] { exec::run_then_sync([&] { state.device->windows[index].id = 0; }); });
}

// --- Timers --------------------------------------------------------------------------------------------------------

// The host takes the time when the command arrives; both commands take the same way, so the difference is right. On the
// CPU backend the rank has the CPU's clock itself.
DCUDA_DEVICE void send_time(rank_state& state, collective kind, opcode code) {
    meet(state, kind, [&] {
        exec::run_then_sync([&] {
            const std::uint64_t now_ns = DCUDA_BACKEND_CPU ? clock_ns() : 0;
            send_command(state,
                         command{{static_cast<std::uint32_t>(code), state.device_rank,
                                  static_cast<std::uint32_t>(now_ns), static_cast<std::uint32_t>(now_ns >> 32)}});
        });
    });
}

DCUDA_DEVICE void start_timer(rank_state& state) { send_time(state, collective::start_timer, opcode::start_timer); }
DCUDA_DEVICE void stop_timer(rank_state& state) { send_time(state, collective::stop_timer, opcode::stop_timer); }

} // namespace dcuda::detail
