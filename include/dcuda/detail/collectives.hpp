// What ranks do together: barriers, windows, timers.
#pragma once

#include "dcuda/detail/check.hpp"
#include "dcuda/detail/mailbox.hpp"

namespace dcuda::detail {

// All ranks of the device meet. The last to arrive runs action() with all its threads, as a device-wide critical
// section that sees what all ranks did before; then all leave and see what it did.
//
// ORDER meet-arrive (acquire and release, device scope): everything a rank did or saw before is ordered before its
// arrival; the arrivals form one release sequence, so the last one acquires them all. Weaker: the last rank, and
// through it all others, may miss writes of a rank.
// ORDER meet-release -> meet-observe (device scope): passes that on. Causality is transitive, also for puts to
// other devices that were issued before.
template <class Action>
DCUDA_DEVICE void meet(rank_state& state, collective kind, const Action& action) {
    const auto index = static_cast<std::uint32_t>(kind);
    meeting& words = state.device.meetings[index];
    exec::sync_block();
    exec::run_then_sync([&] {
        exec::complete_copies(state.staging, exec::is_leader());
        const std::uint32_t before = fetch_add_acq_rel<order_tag::meet_arrive>(&words.arrived, 1);
        state.last = before + 1 == state.device.ranks_per_device ? 1 : 0;
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
            store_release<order_tag::meet_release>(scope::device, &words.generation, generation);
        } else {
            wait_for_word<order_tag::meet_observe>(
                state, scope::device, &words.generation, [&](std::uint32_t value) { return value == generation; },
                waiting::collective, index);
        }
    });
    leave_if_ended(state);
}

// --- Barriers ------------------------------------------------------------------------------------------------------
//
// No word is added to or polled by all ranks of a large device: they stand in rows (protocol.hpp, barrier_shape). First
// a row meets in its word. For a device, the i-th ranks of all rows then meet in the word of column i; whoever has seen
// its row and its column full knows of everybody. For the world, the rows' first ranks meet in the root, rank 0 of the
// device tells every row of every device, and the ranks wait for as many devices in the word of their row.
//
// Barriers use two sets of words in turn: an arrival for the barrier after the next cannot come before everybody has
// left this one, so a full word holds the arrivals of this barrier and no others, and all ranks see the same.
//
// After a barrier all mail that was sent before has been taken. Each arrival tells by how much more messages its rank
// has sent than taken since its last one. The sum over all ranks is what was unread when they arrived: a message is
// counted as sent by the first arrival of its source after it, and as taken by one of its target that is not earlier.
// If that is nothing, all have been taken, and what was placed is ordered by the arrivals like all that ranks do. Else
// all ranks take their mail and meet once more; then nothing is unread, because nobody has sent anything between.
//
// ORDER barrier-arrive -> barrier-observe (device scope): what a rank did, and what those did whose arrival it has
// observed, is ordered before its own arrival. Additions form one release sequence, so who has seen a word full has
// acquired all arrivals. Weaker: a rank may miss what another did before the barrier.
// ORDER device-arrive -> device-observe (system scope): the same between devices; rank 0 has observed all ranks of its
// device by then.
// PERF: 132 ranks 1.1 us (one row), 2112 ranks 2.3 us; grid.sync 0.99 and 4.8 us. H200, 2026-11-21.

struct barrier_words {
    std::uint64_t* base;
    barrier_shape shape;
    DCUDA_DEVICE std::uint64_t* row(std::uint32_t index) const { return base + index * barrier_line; }
    DCUDA_DEVICE std::uint64_t* column(std::uint32_t index) const { return row(shape.rows + index); }
    DCUDA_DEVICE std::uint64_t* root() const { return column(shape.row_size); }
    DCUDA_DEVICE std::uint64_t* release(std::uint32_t row) const { return root() + (1 + row) * barrier_line; }
};

// Where the words of the barrier with this number are in those of a device.
DCUDA_DEVICE std::uint32_t barrier_offset(const barrier_shape& shape, collective kind, std::uint32_t epoch) {
    return (2 * static_cast<std::uint32_t>(kind) + epoch % 2) * shape.words() * barrier_line;
}

// How often all arrivals of a word have been counted when that barrier is over.
DCUDA_DEVICE std::uint32_t times_full(std::uint32_t epoch) { return (epoch + 1) / 2; }

DCUDA_DEVICE barrier_words words_of(const rank_state& state, collective kind, std::uint32_t epoch,
                                    std::uint32_t process) {
    const barrier_shape& shape = state.device.barriers;
    std::uint64_t* const base =
        process < near_processes ? state.near_barriers[process] : state.device.peers[process].barriers;
    return {base + barrier_offset(shape, kind, epoch), shape};
}

DCUDA_DEVICE barrier_words words_of_device(const rank_state& state, collective kind, std::uint32_t epoch) {
    const barrier_shape& shape = state.device.barriers;
    return {state.mine.barriers + barrier_offset(shape, kind, epoch), shape};
}

// Waits until `arrivals` have been counted in the word, over all barriers; the lower half of the word wraps around, and
// then one message too many is counted in the upper half, which does no harm. What arrivals have added there since
// `seen` is then in `unread`. False if the run ended. One thread.
template <order_tag Tag>
DCUDA_DEVICE bool await_arrivals(rank_state& state, scope reach, collective kind, const std::uint64_t* word,
                                 std::uint32_t arrivals, std::uint32_t& seen, std::uint32_t& unread) {
    return wait_for_word<Tag>(
        state, reach, word,
        [&](std::uint64_t value) {
            if (static_cast<std::int32_t>(arrivals_of(value) - arrivals) < 0) return false;
            unread = unread_of(value) - seen;
            seen = unread_of(value);
            return true;
        },
        reach == scope::device ? waiting::collective : waiting::other_devices, static_cast<std::uint32_t>(kind));
}

// By how much more messages this rank has sent than taken since the start, between ranks of the device or, by
// scope::system, all: a difference that wraps around. One thread.
DCUDA_DEVICE std::uint32_t unread_messages(const rank_state& state, scope reach) {
    std::uint32_t messages = state.sent[0] + state.lanes * state.device.counter_start;
    if (reach == scope::system) messages += state.sent[1];
    for (std::uint32_t lane = 0; lane < state.lanes; ++lane) {
        const bool counts = reach == scope::system || (state.remote_lanes >> lane & 1) == 0;
        messages -= counts ? state.inbound[lane].taken.messages : state.device.counter_start;
    }
    return messages;
}

// This rank's arrival. One thread.
DCUDA_DEVICE std::uint64_t arrival_of(rank_state& state, scope reach) {
    const std::uint32_t now = unread_messages(state, reach);
    std::uint32_t& told = state.told[static_cast<unsigned>(reach)];
    const std::uint32_t before = told;
    told = now;
    return barrier_word(1, now - before);
}

// When the barrier is over all mail to ranks of this reach will have been taken: straight puts after it need not wait
// for that. One thread. PERF: while the arrival is on its way.
DCUDA_DEVICE void forget_mail_within(rank_state& state, scope reach) {
    for (link& to : state.links)
        if (reach == scope::system || to.reach == scope::device) forget_mailed_puts(to);
}

// What a rank does in a barrier of its device; prepared before the block's threads meet.
class device_barrier {
public:
    DCUDA_DEVICE device_barrier(rank_state& state, collective kind)
        : state_(state), kind_(kind), epoch_(state.generation[static_cast<std::uint32_t>(kind)] + 1),
          words_(words_of_device(state, kind, epoch_)), row_(words_.row(state.row.row)) {}

    // One thread, after the block's barrier. True if any rank's mail was unread, and then for all ranks; or if the run
    // has ended.
    DCUDA_DEVICE bool meet() {
        const auto index = static_cast<std::uint32_t>(kind_);
        const auto [row, place, members] = state_.row;
        const std::uint32_t rows = words_.shape.rows, row_size = words_.shape.row_size;
        auto& seen = state_.unread_seen[index][epoch_ % 2];
        std::uint32_t unread = 0;
        add_release<order_tag::barrier_arrive>(scope::device, row_, arrival_of(state_, scope::device));
        forget_mail_within(state_, scope::device);
        if (!await_arrivals<order_tag::barrier_observe>(state_, scope::device, kind_, row_,
                                                        times_full(epoch_) * members, seen[0], unread))
            return true;
        if (rows > 1) {
            const std::uint64_t arrival = barrier_word(1, unread);
            add_release<order_tag::barrier_arrive>(scope::device, words_.column(place), arrival);
            // A short last row speaks also in the columns where it has no rank.
            for (std::uint32_t other = place + members; other < row_size; other += members)
                add_release<order_tag::barrier_arrive>(scope::device, words_.column(other), arrival);
            if (!await_arrivals<order_tag::barrier_observe>(state_, scope::device, kind_, words_.column(place),
                                                            times_full(epoch_) * rows, seen[1], unread))
                return true;
        }
        state_.generation[index] = epoch_;
        // What went to other devices is released by a barrier of the world.
        state_.unreleased &= ~bit_of(scope::device);
        return unread != 0;
    }

private:
    rank_state& state_;
    collective kind_;
    std::uint32_t epoch_;
    barrier_words words_;
    std::uint64_t* row_;
};

// Where some devices are reached over a network, the hosts of all processes meet for their ranks. They know only
// whether some device has sent as much as it has taken: `unread` is 1 then if one has not. The number of devices that
// have arrived, all; 0 if the run ended. One thread of rank 0.
//
// ORDER host-barrier: what this thread has observed is completed to the system before its host learns of the arrival
// (command-publish); the host makes sure that what the device has sent over the network has arrived; the reply comes
// after that of all processes (reply-publish), and is released to the rows.
DCUDA_COLD std::uint32_t meet_by_host(shared_state shared, collective kind, std::uint32_t number,
                                      std::uint32_t& unread) {
    rank_state& state = shared.get();
    const device_context& device = state.device;
    const auto index = static_cast<std::uint32_t>(kind);
    complete_writes();
    if (!send_command(state, command{{static_cast<std::uint32_t>(opcode::barrier), state.device_rank, number, index,
                                      unread != 0 ? 1u : 0u}}))
        return 0;
    std::uint32_t reply = 0;
    if (!wait_for_word<order_tag::reply_observe>(
            state, scope::system, device.network.met + index,
            [&](std::uint32_t value) {
                reply = value;
                return value >> 1 == (number & 0x7fff'ffff);
            },
            waiting::other_devices, index))
        return 0;
    fence_release<order_tag::device_arrive>(scope::device);
    unread = reply & 1;
    return device.process_count;
}

// The team; true in its first thread if any rank's mail was unread, or if the run has ended. The first rank of a row,
// and rank 0, do the work of others.
DCUDA_DEVICE bool barrier_of_world(const team& all, rank_state& state, collective kind, std::uint32_t epoch) {
    const device_context& device = state.device;
    const auto index = static_cast<std::uint32_t>(kind);
    const barrier_words words = words_of_device(state, kind, epoch);
    const std::uint32_t rows = words.shape.rows;
    const auto [row, place, members] = state.row;
    auto& seen = state.unread_seen[index][epoch % 2];
    std::uint32_t unread = 0;
    bool going = true;
    if (all.leads()) {
        add_release<order_tag::barrier_arrive>(scope::device, words.row(row), arrival_of(state, scope::system));
        forget_mail_within(state, scope::system);
        if (place == 0) {
            going = await_arrivals<order_tag::barrier_observe>(state, scope::device, kind, words.row(row),
                                                               times_full(epoch) * members, seen[0], unread);
            if (going && rows > 1)
                add_release<order_tag::barrier_arrive>(scope::device, words.root(), barrier_word(1, unread));
            if (going && rows > 1 && state.device_rank == 0)
                going = await_arrivals<order_tag::barrier_observe>(state, scope::device, kind, words.root(),
                                                                   times_full(epoch) * rows, seen[2], unread);
        }
    }
    if (state.device_rank == 0) {
        std::uint32_t arrivals = 0;
        if (all.leads() && going) {
            arrivals = 1;
            fence_release<order_tag::device_arrive>(scope::system);
        }
        // What the hosts of all processes have met for, all devices at once.
        if (all.leads() && arrivals != 0 && device.network.in_use != 0)
            arrivals = exec::far(meet_by_host)(state, kind, epoch, unread);
        const std::uint64_t arrival = barrier_word(broadcast(all, arrivals, 0), broadcast(all, unread, 0));
        sync(all);
        const std::uint32_t processes = device.network.in_use != 0 ? 1 : device.process_count;
        for (std::uint32_t i = 0; i < processes && arrivals_of(arrival) != 0; ++i) {
            const std::uint32_t process = device.network.in_use != 0 ? device.process_index : i;
            for (std::uint32_t row_index = all.index; row_index < rows; row_index += all.count)
                add_after_fence<order_tag::device_arrive>(words_of(state, kind, epoch, process).release(row_index),
                                                          arrival);
        }
    }
    if (!all.leads()) return false;
    if (!going || !await_arrivals<order_tag::device_observe>(state, scope::system, kind, words.release(row),
                                                             times_full(epoch) * device.process_count, seen[1], unread))
        return true;
    return unread != 0;
}

// The same for all of the team.
DCUDA_COLD bool meet_world(team all, shared_state shared, collective kind) {
    rank_state& state = shared.get();
    const auto index = static_cast<std::uint32_t>(kind);
    const std::uint32_t epoch = state.generation[index] + 1;
    exec::complete_copies(state.staging, exec::is_leader());
    const bool mail = barrier_of_world(all, state, kind, epoch);
    sync(all);
    if (all.leads()) {
        state.generation[index] = epoch;
        state.unreleased = 0;
    }
    return vote(all, mail) != 0;
}

// All ranks of the device, or of the world: none returns before all have called it. Then all mail that was sent before
// has been taken: if some was unread, the ranks take it and meet once more.
DCUDA_DEVICE void cross_barrier(rank_state& state, collective kind, communicator comm) {
    for (bool taken = false;; taken = true) {
        bool more = false; // mail, or the end of the run
        if (comm == world && state.device.process_count > 1) {
            exec::sync_block();
            more = exec::team_then_agree(state.result, [&](const team& all) { return meet_world(all, state, kind); });
        } else {
            device_barrier here(state, kind);
            exec::sync_block();
            more = exec::leader_then_any(state.result, [&] {
                exec::complete_copies(state.staging, exec::is_leader());
                return here.meet();
            });
        }
        if (!more) return;
        leave_if_ended(state);
        if (taken) return; // what this meeting counted is what the first had found unread, taken
        exec::team_then_sync([&](const team& all) { exec::far(take_mail<team>)(all, state, 0); });
    }
}

DCUDA_DEVICE void init(context from_host, rank_state& state) {
    exec::run_then_sync([&] {
        const device_context* const device = from_host.device;
        state.device = *device;
        state.mine = device->peers[device->process_index];
        state.staging = exec::find_staging(device->staging);
        // What a usual wait takes at once. PERF: larger ones are faster straight, or by more threads.
        const std::uint32_t most = exec::block_threads() * packets_in_flight * mail_bytes;
        if (DCUDA_BACKEND_CUDA && state.device.small_put_bytes > most) state.device.small_put_bytes = most;
        state.device_rank = exec::block_index();
        state.world_rank = state.device.first_rank + state.device_rank;
        state.ended = state.last = state.result = state.finished = 0;
        for (std::uint32_t& generation : state.generation) generation = 0;
        // ORDER notify-observe: the narrowest scope that includes every possible source.
        state.notification_scope = state.device.process_count == 1 ? scope::device : scope::system;
        const auto [ranks, row_size, rows] = state.device.barriers;
        const std::uint32_t row = state.device_rank / row_size;
        state.row = {row, state.device_rank % row_size, row + 1 == rows ? ranks - row * row_size : row_size};
        const std::size_t rank = state.device_rank;
        const std::uint32_t start = state.device.counter_start;
        state.counters = state.mine.counters + rank * state.device.tags;
        state.tag_records = state.device.tag_records + rank * state.device.tags;
        state.status = state.mine.status + rank;
        state.mail = state.mine.mail + rank * lanes_per_rank * state.device.lanes.size();
        state.unreleased = state.flushes = state.link_count = 0;
        for (unsigned reach = 0; reach < 2; ++reach) state.sent[reach] = state.told[reach] = 0;
        state.ring_head = state.networked = state.network_flushes = 0;
        state.lanes = state.remote_lanes = 0;
        state.usual_waits = state.called_off = state.counted = state.batch.count = 0;
        for (auto& kind : state.unread_seen)
            for (auto& turn : kind)
                for (std::uint32_t& count : turn) count = 0;
        for (unsigned p = 0; p < near_processes && p < state.device.process_count; ++p)
            state.near_barriers[p] = state.device.peers[p].barriers;
        for (inbound_lane& lane : state.inbound) lane = {{start, start}, {start, start}, nullptr};
        for (target_entry& entry : state.targets) entry.window = 0;
        for (link& entry : state.links) entry.world_rank = no_rank;
        for (unsigned tag = 0; tag < cached_tags; ++tag) state.tag_cache[tag] = {tag, {start, start}, 0, 0, 0};
        state.forgotten_origins = 0;
        state.observed = from_host.observed;
        if (is_observed(state)) exec::far(begin_observing)(state);
    });
    cross_barrier(state, collective::init, world);
    if (is_observed(state)) end_operation<event_kind::init>(state, 0, 0, processor_number());
#if DCUDA_BACKEND_CPU
    if (check::is_on(state)) check::begin(state);
#endif
}

// Not inlined: threads of a warp that leave the kernel in different places must wait at one and the same barrier
// instruction.
DCUDA_COLD void finish(shared_state shared) {
    rank_state& state = shared.get();
    // A thread that leaves the kernel because of an error runs destructors on the CPU backend: nothing to wait for
    // then.
    if (load_relaxed(&state.ended) != 0 || exec::is_unwinding() || state.finished != 0) return;
#if DCUDA_BACKEND_CPU
    if (check::is_on(state)) check::enter(state, collective::finish, world);
#endif
    if (is_observed(state)) begin_operation(state);
    cross_barrier(state, collective::finish, world);
    if (is_observed(state)) end_operation<event_kind::finish>(state);
    exec::run_then_sync([&] {
        state.finished = 1;
        store_relaxed(&state.device.waits[state.device_rank].what, static_cast<std::uint32_t>(waiting::done));
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
    const collective kind = comm == world ? collective::barrier_world : collective::barrier_device;
#if DCUDA_BACKEND_CPU
    if (check::is_on(state)) return check::enter(state, kind, comm);
#endif
    cross_barrier(state, kind, comm);
}

// --- Windows -------------------------------------------------------------------------------------------------------

// Takes a free slot for a window of the communicator; its index, or max_windows if there is none. One thread.
DCUDA_DEVICE std::uint32_t take_window_slot(rank_state& state, communicator comm) {
    const std::uint32_t slots = state.device.max_windows;
    for (std::uint32_t index = 0; index < slots; ++index) {
        window_slot& slot = state.device.windows[index];
        if (slot.id != 0) continue;
        ++slot.uses;
        slot.comm = static_cast<std::uint32_t>(comm);
        slot.rank_count = comm == world ? state.device.world_size : state.device.ranks_per_device;
        return index;
    }
    return slots;
}

// Asks the host to open the offers of all processes' ranks in the slot's entries. False if it could not. One thread.
DCUDA_DEVICE bool open_on_host(rank_state& state, std::uint32_t slot) {
    const device_context& device = state.device;
    // Only the last rank to arrive gets here, so the reply is to this question.
    const std::uint32_t before = load_relaxed(device.reply);
    const command question{{static_cast<std::uint32_t>(opcode::create_window), state.device_rank, slot}};
    if (!send_command(state, question)) return false;
    std::uint32_t reply = before;
    // ORDER reply-publish -> reply-observe: the host has written the slot's entries before it writes the reply.
    wait_for_word<order_tag::reply_observe>(
        state, scope::system, device.reply,
        [&](std::uint32_t value) {
            reply = value;
            return value != before;
        },
        waiting::host_reply, 0);
    return reply % 2 != 0; // the host adds 2, and 1 for success
}

DCUDA_COLD window create_window(shared_state shared, communicator comm, void* base, std::size_t bytes) {
    rank_state& state = shared.get();
    check_communicator(state, comm, operation::create_window);
    const device_context& device = state.device;
#if DCUDA_CHECKS
    if (bytes != 0 && !exec::is_global_memory(base))
        fail(state, fault::memory, operation::create_window, 0, 0, reinterpret_cast<std::uintptr_t>(base), bytes, 0);
#endif
#if DCUDA_BACKEND_CPU
    if (check::is_on(state)) check::enter(state, collective::create_window, comm);
#endif
    exec::run_then_sync([&] {
        auto* const place = static_cast<std::byte*>(base);
        device.offers[state.device_rank] = window_entry{place, bytes, place};
    });
    meet(state, collective::create_window, [&] {
        exec::run_then_sync([&] {
            // ORDER command-publish: the offers of all ranks reached this one by meet-arrive at device scope; the
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
    const window made{*device.created};
#if DCUDA_BACKEND_CPU
    if (check::is_on(state)) check::leave(state, made, base, bytes);
#endif
    return made;
}

// The window in the device's table; a slot with another id if there is no such window (any more).
DCUDA_DEVICE window_slot find_window(const rank_state& state, window win) {
    const std::uint32_t index = (win.id & 0xffff) - 1;
    return index < state.device.max_windows ? state.device.windows[index] : window_slot{};
}

DCUDA_COLD void free_window(shared_state shared, window win) {
    rank_state& state = shared.get();
#if DCUDA_BACKEND_CPU
    if (check::is_on(state)) check::enter_free(state, win);
#endif
    const window_slot slot = find_window(state, win);
#if DCUDA_CHECKS
    if (!win || slot.id != win.id) fail(state, fault::window, operation::free_window, win.id, 0, 0, 0, 0);
#endif
    const std::uint32_t index = (win.id & 0xffff) - 1;
    exec::run_then_sync([&] {
        for (target_entry& entry : state.targets)
            if (entry.window == win.id) entry.window = 0;
    });
    meet(state, collective::free_window, [&] { exec::run_then_sync([&] { state.device.windows[index].id = 0; }); });
#if DCUDA_BACKEND_CPU
    if (check::is_on(state)) check::leave(state);
#endif
}

// --- Timers --------------------------------------------------------------------------------------------------------

// The host takes the time when the command arrives; both commands take the same way, so the difference is right. On the
// CPU backend the rank has the CPU's clock itself.
DCUDA_COLD void send_time(shared_state shared, collective kind, opcode code) {
    rank_state& state = shared.get();
#if DCUDA_BACKEND_CPU
    if (check::is_on(state)) check::enter(state, kind, device);
#endif
    meet(state, kind, [&] {
        exec::run_then_sync([&] {
            const std::uint64_t now_ns = DCUDA_BACKEND_CPU ? clock_ns() : 0;
            send_command(state,
                         command{{static_cast<std::uint32_t>(code), state.device_rank,
                                  static_cast<std::uint32_t>(now_ns), static_cast<std::uint32_t>(now_ns >> 32)}});
        });
    });
#if DCUDA_BACKEND_CPU
    if (check::is_on(state)) check::leave(state);
#endif
}

DCUDA_DEVICE void start_timer(rank_state& state) { send_time(state, collective::start_timer, opcode::start_timer); }
DCUDA_DEVICE void stop_timer(rank_state& state) { send_time(state, collective::stop_timer, opcode::stop_timer); }

} // namespace dcuda::detail
