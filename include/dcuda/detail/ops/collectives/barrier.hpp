// SPDX-License-Identifier: BSD-3-Clause
// How all ranks of the world or of a device meet: barriers, and the begin and the end of a rank.
#pragma once

#include "dcuda/detail/ops/check.hpp"
#include "dcuda/detail/ops/parts.hpp"
#include "dcuda/detail/ops/put.hpp"
#include "dcuda/detail/ops/waits/wait.hpp"

namespace dcuda::detail {

DCUDA_DEVICE void leave(unsigned going) {
    if (going == 0) exec::exit_thread();
}

// All ranks of the device meet. The last to arrive runs action() with all its threads, as a device-wide critical
// section that sees what all ranks did before, and that returns false if the run has ended; then all leave and see what
// it did.
//
// ORDER collective-arrive (acquire and release, device scope): everything a rank did or saw before is ordered before
// its arrival; the arrivals form one release sequence, so the last one acquires them all. Weaker: the last rank, and
// through it all others, may miss writes of a rank.
// ORDER collective-release -> collective-observe (device scope): passes that on. Causality is transitive, also for puts
// to other devices that were issued before.
template <class Action>
DCUDA_DEVICE void arrive_and_run(rank_state& state, collective where, const Action& action) {
    const std::uint32_t index = where.index();
    collective_barrier& words = state.device.collective_barriers[index];
    state.group().sync();
    const bool is_last = exec::decide(state.group(), state.decision, [&](const lead_warp& warp) {
                             bool last = false;
                             if (warp.leads()) {
                                 exec::complete_copies(state.staging);
                                 const std::uint32_t before =
                                     fetch_add_acq_rel<order_tag::collective_arrive>(&words.arrived, 1);
                                 last = before + 1 == state.device.ranks_per_device;
                             }
                             return any(warp, last) ? 1u : 0u;
                         }) != 0;
    if (is_last) {
        leave(action() ? 1 : 0);
        state.group().sync();
    }
    leave(exec::decide(state.group(), state.decision, [&](const lead_warp& warp) {
        bool going = true;
        if (warp.leads()) {
            const lone_thread leader = exec::lead_access::alone();
            const std::uint32_t generation = ++state.own.of(leader).generation[index];
            if (is_last) {
                // Nobody arrives again before the generation below releases them.
                store_relaxed(&words.arrived, 0);
                store_release<order_tag::collective_release>(scope::device, &words.generation, generation);
            } else {
                going = wait_for_word<order_tag::collective_observe>(
                    leader, state, scope::device, &words.generation,
                    [&](std::uint32_t value) { return value == generation; }, waiting::collective, where.kind,
                    static_cast<std::uint32_t>(where.comm));
            }
        }
        return any(warp, warp.leads() && going) ? 1u : 0u;
    }));
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
// After a barrier all messages that were sent before have been taken. Each arrival tells by how much more messages its
// rank has sent than taken since its last one. The sum over all ranks is what was unread when they arrived: a message
// is counted as sent by the first arrival of its source after it, and as taken by one of its target that is not
// earlier. If that is nothing, all have been taken, and what was placed is ordered by the arrivals like all that ranks
// do. Else all ranks take their messages and go through another round; then nothing is unread, because nobody has sent
// anything between.
//
// ORDER barrier-arrive -> barrier-observe (device scope): what a rank did, and what those did whose arrival it has
// profiled, is ordered before its own arrival. Additions form one release sequence, so who has seen a word full has
// acquired all arrivals. Weaker: a rank may miss what another did before the barrier.
// ORDER device-arrive -> device-observe (system scope): the same between devices; rank 0 has profiled all ranks of its
// device by then. A rank that has stored into another device's memory since it last released that arrives with system
// scope: what a later message of it releases there is then released by this rank itself.
// PERF: 132 ranks 1.1 us (one row), 2112 ranks 2.3 us; grid.sync 0.99 and 4.8 us. H200, 2026-11-21.

// `meeting`: a place to meet, by collective::index().

struct barrier_words {
    std::uint64_t* base;
    barrier_shape shape;
    DCUDA_DEVICE std::uint64_t* row(std::uint32_t index) const { return base + index * barrier_line; }
    DCUDA_DEVICE std::uint64_t* column(std::uint32_t index) const { return row(shape.rows + index); }
    DCUDA_DEVICE std::uint64_t* root() const { return column(shape.row_size); }
    DCUDA_DEVICE std::uint64_t* release(std::uint32_t row) const { return root() + (1 + row) * barrier_line; }
};

// Where the words of the barrier with this number are in those of a device.
DCUDA_DEVICE std::uint32_t barrier_offset(const barrier_shape& shape, std::uint32_t meeting, std::uint32_t epoch) {
    return (2 * meeting + epoch % 2) * shape.words() * barrier_line;
}

// How often all arrivals of a word have been counted when the next barrier at this place is over: a number that wraps
// around, like the words themselves. The leader.
DCUDA_DEVICE std::uint32_t next_fill(const endpoint& own, std::uint32_t meeting, std::uint32_t epoch) {
    return own.barrier_fills[meeting][epoch % 2] + 1;
}
DCUDA_DEVICE void end_epoch(endpoint& own, std::uint32_t meeting, std::uint32_t epoch) {
    ++own.barrier_fills[meeting][epoch % 2];
    own.epoch[meeting] = epoch;
}

DCUDA_DEVICE barrier_words words_of(const rank_state& state, std::uint32_t meeting, std::uint32_t epoch,
                                    std::uint32_t process) {
    const barrier_shape& shape = state.device.barriers;
    std::uint64_t* const base =
        process < near_processes ? state.near_barriers[process] : state.device.peers[process].barriers;
    return {base + barrier_offset(shape, meeting, epoch), shape};
}

DCUDA_DEVICE barrier_words words_of_device(const rank_state& state, std::uint32_t meeting, std::uint32_t epoch) {
    const barrier_shape& shape = state.device.barriers;
    return {state.inbox.barriers + barrier_offset(shape, meeting, epoch), shape};
}

// Waits until `arrivals` have been counted in the word, over all barriers; the lower half of the word wraps around, and
// then one message too many is counted in the upper half, which does no harm. What arrivals have added there since
// `seen` is then in `unread`. False if the run ended. The leader.
template <order_tag Tag>
DCUDA_DEVICE bool await_arrivals(lone_thread leader, rank_state& state, scope reach, std::uint32_t meeting,
                                 const std::uint64_t* word, std::uint32_t arrivals, std::uint32_t& seen,
                                 std::uint32_t& unread) {
    return wait_for_word<Tag>(
        leader, state, reach, word,
        [&](std::uint64_t value) {
            if (static_cast<std::int32_t>(arrivals_of(value) - arrivals) < 0) return false;
            unread = unread_of(value) - seen;
            seen = unread_of(value);
            return true;
        },
        reach == scope::device ? waiting::collective : waiting::other_devices, collective::at(meeting).kind,
        static_cast<std::uint32_t>(collective::at(meeting).comm));
}

// By how much more messages this rank has sent than taken since the start, between ranks of the device or, by
// scope::system, all: a difference that wraps around. The leader.
DCUDA_DEVICE std::uint32_t unread_messages(const rank_state& state, const endpoint& own, scope reach) {
    std::uint32_t messages = own.sent[0];
    if (reach == scope::system) messages += own.sent[1];
    for (std::uint32_t queue = 0; queue < near_queues_of(own); ++queue)
        if (reach == scope::system || own.inbound[queue].reach == scope::device)
            messages -= own.inbound[queue].taken.messages - state.device.counter_start;
    messages -= own.far_taken[0] - state.device.counter_start;
    if (reach == scope::system) messages -= own.far_taken[1];
    return messages;
}

// When the barrier is over all messages to ranks of this reach will have been taken: what is stored there after it need
// not wait for that. The leader. PERF: while the arrival is on its way.
DCUDA_DEVICE void count_as_placed(endpoint& own, scope reach) {
    if (reach == scope::system) own.undelivered = 0;
    for (unsigned place = 0; place < own.near_connections; ++place) {
        rank_connection& connection = own.connections[place];
        if (reach == scope::device && connection.reach != scope::device) continue;
        connection.placed = connection.sent.packets;
    }
}

// This rank's arrival. The leader.
DCUDA_DEVICE void arrive(rank_state& state, endpoint& own, scope reach, std::uint64_t* word) {
    const std::uint32_t now = unread_messages(state, own, reach);
    std::uint32_t& told = own.told[static_cast<unsigned>(reach)];
    const std::uint64_t arrival = barrier_word(1, now - told);
    told = now;
    const bool wrote_to_others = has_unreleased(own, scope::system);
    add_release<order_tag::barrier_arrive>(reach == scope::system && wrote_to_others ? scope::system : scope::device,
                                           word, arrival);
    count_as_placed(own, reach);
}

// Before ranks meet: what the copy engine stores for this rank is complete, and what it has put and got over a network.
// The host sends large puts behind others, and what another rank sends after the meeting would overtake them. False if
// the run ended. The leader.
DCUDA_DEVICE bool complete_own_traffic(lone_thread leader, rank_state& state) {
    exec::complete_copies(state.staging);
    return state.own.of(leader).networked == 0 || flush_network(leader, state);
}

// A barrier of the device. True if any rank's messages were unread, and then for all ranks; or if the run has ended.
// The leader, after the block's barrier.
//
// PERF: what a far function calls saves registers, too, for all that call it: 0.3 us. So each kind of caller has an
// instance.
template <bool Seldom>
DCUDA_COLD bool device_round(lone_thread leader, shared_state shared, std::uint32_t meeting) {
    rank_state& state = shared.get();
    endpoint& own = state.own.of(leader);
    if (!complete_own_traffic(leader, state)) return true;
    const std::uint32_t epoch = own.epoch[meeting] + 1;
    const std::uint32_t fill = next_fill(own, meeting, epoch);
    auto& seen = own.unread_seen[meeting][epoch % 2];
    std::uint32_t unread = 0;
    std::uint64_t* const row = words_of_device(state, meeting, epoch).row(state.row.row);
    arrive(state, own, scope::device, row);
    if (!await_arrivals<order_tag::barrier_observe>(leader, state, scope::device, meeting, row,
                                                    fill * state.row.members, seen[0], unread))
        return true;
    if (state.device.barriers.rows > 1) {
        // PERF: asked for again instead of kept: a register less in every kernel.
        const barrier_words words = words_of_device(state, meeting, epoch);
        const auto [index, place, members] = state.row;
        const std::uint64_t arrival = barrier_word(1, unread);
        add_release<order_tag::barrier_arrive>(scope::device, words.column(place), arrival);
        // A short last row speaks also in the columns where it has no rank.
        for (std::uint32_t other = place + members; other < words.shape.row_size; other += members)
            add_release<order_tag::barrier_arrive>(scope::device, words.column(other), arrival);
        if (!await_arrivals<order_tag::barrier_observe>(leader, state, scope::device, meeting, words.column(place),
                                                        fill * words.shape.rows, seen[1], unread))
            return true;
    }
    end_epoch(own, meeting, epoch);
    // What went to other devices is released by a barrier of the world.
    count_as_released(own, scope::device);
    return unread != 0;
}

// Where some devices are reached over a network, the hosts of all processes meet for their ranks. They know only
// whether some device has sent as much as it has taken: `unread` is 1 then if one has not. The number of devices that
// have arrived, all; 0 if the run ended. The leader of rank 0.
//
// ORDER host-barrier: what this thread has profiled is completed to the system before its host learns of the arrival
// (command-publish); the host makes sure that what the device has sent over the network has arrived; the reply comes
// after that of all processes (reply-publish), and is released to the rows.
DCUDA_COLD std::uint32_t arrive_through_host(lone_thread leader, shared_state shared, std::uint32_t meeting,
                                             std::uint32_t number, std::uint32_t& unread) {
    rank_state& state = shared.get();
    const device_context& device = state.device;
    complete_writes(scope::system);
    if (!send_command(leader, state,
                      make_command(state.device_rank, barrier_fields{number, meeting, unread != 0 ? 1u : 0u})))
        return 0;
    std::uint32_t reply = 0;
    if (!wait_for_word<order_tag::reply_observe>(
            leader, state, scope::system, device.network.met + meeting,
            [&](std::uint32_t value) {
                reply = value;
                return value >> 1 == (number & 0x7fff'ffff);
            },
            waiting::other_devices, collective::at(meeting).kind,
            static_cast<std::uint32_t>(collective::at(meeting).comm)))
        return 0;
    fence_release<order_tag::device_arrive>(scope::device);
    unread = reply & 1;
    return device.process_count;
}

// What rank 0 of a device tells the rows of all devices. The lead warp.
// PERF: a function of its own, so that the barrier's registers leave every kernel with 64.
DCUDA_COLD void announce_device(lead_warp warp, shared_state shared, std::uint32_t meeting, std::uint32_t epoch,
                                bool going, std::uint32_t unread) {
    rank_state& state = shared.get();
    const device_context& device = state.device;
    std::uint32_t arrivals = 0;
    if (warp.leads() && going) {
        arrivals = 1;
        fence_release<order_tag::device_arrive>(scope::system);
        // What the hosts of all processes have met for, all devices at once.
        if (device.network.in_use != 0)
            arrivals = exec::far(arrive_through_host)(exec::lead_access::alone(), state, meeting, epoch, unread);
    }
    const std::uint64_t arrival = barrier_word(broadcast(warp, arrivals, 0), broadcast(warp, unread, 0));
    sync(warp);
    const std::uint32_t processes = device.network.in_use != 0 ? 1 : device.process_count;
    for (std::uint32_t i = 0; i < processes && arrivals_of(arrival) != 0; ++i) {
        const std::uint32_t process = device.network.in_use != 0 ? device.process_index : i;
        for (std::uint32_t row = warp.index; row < device.barriers.rows; row += warp.count)
            add_after_fence<order_tag::device_arrive>(words_of(state, meeting, epoch, process).release(row), arrival);
    }
}

// A barrier of the world. True if any rank's messages were unread, or if the run has ended. The first rank of a row,
// and rank 0, do the work of others. The lead warp, after the block's barrier.
DCUDA_COLD bool world_round(lead_warp warp, shared_state shared, std::uint32_t meeting) {
    rank_state& state = shared.get();
    endpoint& own = state.own.of(warp);
    const std::uint32_t epoch = own.epoch[meeting] + 1;
    const std::uint32_t fill = next_fill(own, meeting, epoch);
    auto& seen = own.unread_seen[meeting][epoch % 2];
    const auto words = [&] { return words_of_device(state, meeting, epoch); }; // PERF: not kept, as above
    std::uint32_t unread = 0;
    bool going = true;
    sync(warp);
    if (warp.leads()) {
        const lone_thread leader = exec::lead_access::alone();
        exec::complete_copies(state.staging);
        std::uint64_t* const row = words().row(state.row.row);
        arrive(state, own, scope::system, row);
        if (state.row.place == 0) {
            going = await_arrivals<order_tag::barrier_observe>(leader, state, scope::device, meeting, row,
                                                               fill * state.row.members, seen[0], unread);
            const std::uint32_t rows = state.device.barriers.rows;
            if (going && rows > 1)
                add_release<order_tag::barrier_arrive>(scope::device, words().root(), barrier_word(1, unread));
            if (going && rows > 1 && state.device_rank == 0)
                going = await_arrivals<order_tag::barrier_observe>(leader, state, scope::device, meeting,
                                                                   words().root(), fill * rows, seen[2], unread);
        }
    }
    if (state.device_rank == 0) announce_device(warp, state, meeting, epoch, going, unread);
    bool more = false;
    if (warp.leads()) {
        more = !going || !await_arrivals<order_tag::device_observe>(exec::lead_access::alone(), state, scope::system,
                                                                    meeting, words().release(state.row.row),
                                                                    fill * state.device.process_count, seen[1], unread);
        more = more || unread != 0;
        end_epoch(own, meeting, epoch);
        own.unreleased = 0;
    }
    return any(warp, more);
}

// One round of a barrier. Whether there is more to do: messages to take, or the end of the run.
template <bool Seldom>
DCUDA_COLD bool barrier_round(lead_warp warp, shared_state shared, std::uint32_t meeting) {
    rank_state& state = shared.get();
    // PERF: with one process there is nothing to look up; and the other function's registers need not be every
    // kernel's.
    if (state.device.process_count > 1 &&
        state.device.communicators[static_cast<std::uint32_t>(collective::at(meeting).comm)].processes > 1)
        return exec::far(world_round)(warp, state, meeting);
    // Messages to other devices are not counted; other ranks of this one may look for what they put.
    if (state.device.process_count > 1 && state.own.of(warp).has_sent_quietly != 0 &&
        !exec::far(complete_quiet_puts)(warp, state, collective::at(meeting).kind))
        return true;
    sync(warp);
    return any(warp, warp.leads() && device_round<Seldom>(exec::lead_access::alone(), state, meeting));
}

// All ranks of the device, or of the world: none returns before all have called it. Then all messages that were sent
// before have been taken: if some were unread, the ranks take them and go through another round.
template <bool Seldom = false>
DCUDA_DEVICE void cross_barrier(rank_state& state, std::uint32_t meeting) {
    state.group().sync();
    leave(exec::decide(state.group(), state.decision, [&](const lead_warp& warp) {
        if (!barrier_round<Seldom>(warp, state, meeting)) return 1u;
        exec::far(answer_sources<lead_warp>)(warp, state);
        // What the second round counts is what the first has found unread, taken.
        if (load_in_block(&state.ended) == 0) barrier_round<Seldom>(warp, state, meeting);
        return load_in_block(&state.ended) == 0 ? 1u : 0u;
    }));
}

// The same, where its time does not matter. PERF: by exec::far, a kernel without barriers of its own needs none of the
// registers.
DCUDA_COLD void cross_barrier_seldom(shared_state shared, std::uint32_t meeting) {
    cross_barrier<true>(shared.get(), meeting);
}

// What a rank starts with; it is number `in_block` of its block. The leader, when the state knows its group.
DCUDA_COLD void start_rank(lone_thread leader, rank_state& state, context from_host, std::uint32_t in_block) {
    const kernel_context* const device = from_host.device;
    state.device = *device;
    state.inbox = device->peers[device->process_index];
    state.staging = exec::find_staging(device->staging, in_block);
    // What a predicted wait takes at once. PERF: larger ones are faster directly.
    const std::uint32_t threads = state.group().threads() < 32 ? state.group().threads() : 32;
    const std::uint32_t most = threads * 3 * packet_payload_bytes;
    if (DCUDA_BACKEND_CUDA && state.device.small_put_bytes > most) state.device.small_put_bytes = most;
    state.device_rank = exec::block_index() * device->ranks_per_block + in_block;
    state.world_rank =
        state.device.communicators[static_cast<std::uint32_t>(dcuda::device)].world_rank_of(state.device_rank);
    state.ended = state.finished = state.decision = 0;
    // ORDER notify-observe: the narrowest scope that includes every possible source.
    state.job_scope = state.device.process_count == 1 ? scope::device : scope::system;
    state.device.communicator_tables += state.device_rank;
    const auto [ranks, row_size, rows] = state.device.barriers;
    const std::uint32_t row = state.device_rank / row_size;
    state.row = {row, state.device_rank % row_size, row + 1 == rows ? ranks - row * row_size : row_size};
    const std::size_t rank = state.device_rank;
    const std::uint32_t start = state.device.counter_start;
    state.counters = state.inbox.counters + rank * state.device.tags.wire_count();
    state.tag_records = state.device.tag_records + rank * state.device.tags.wire_count();
    state.status = state.inbox.status + rank;
    state.far_queues = state.device.far_queues + rank * state.device.far_limit();
    for (unsigned p = 0; p < near_processes && p < state.device.process_count; ++p)
        state.near_barriers[p] = state.device.peers[p].barriers;
    state.profiled = from_host.profiled;

    endpoint& own = state.own.of(leader);
    DCUDA_NO_UNROLL
    for (target_entry& target : own.targets) target.key = no_target;
    DCUDA_NO_UNROLL
    for (std::uint32_t& key : own.connection_keys) key = no_rank;
    DCUDA_NO_UNROLL
    for (unsigned place = 0; place < cached_tags; ++place) {
        const bool is_tag = place < state.device.tags.plain;
        own.tag_keys[place] = is_tag ? place : no_tag_key;
        own.tags[place] = {{start, start}, is_tag ? 0 : expectation(near_queues, 0), 0};
    }
    own.target_hints.factor = own.tag_hints.factor = 1;
    DCUDA_NO_UNROLL
    for (std::uint16_t& hint : own.target_hints.at) hint = 0;
    DCUDA_NO_UNROLL
    for (std::uint8_t& hint : own.tag_hints.at) hint = 0;
    DCUDA_NO_UNROLL
    for (std::uint32_t tag = 0; tag < cached_tags; ++tag)
        own.tag_hints.at[own.tag_hints.slot(hash_of(tag))] = static_cast<std::uint8_t>(tag);
    own.near_connections = 0;
    own.chance = hash_of(state.world_rank); // so each rank gives up others
    own.next_tag = own.connection_count = own.forgotten_origins = 0;
    own.undelivered = own.has_sent_quietly = 0;
    DCUDA_NO_UNROLL
    for (inbound_queue& queue : own.inbound) queue = {};
    own.far_taken[0] = start;
    own.far_taken[1] = 0;
    own.queues = own.posted_turn = own.unreleased = own.has_stored = 0;
    own.requests_seen = own.flushes = own.network_flushes = own.network_requests = start;
    DCUDA_NO_UNROLL
    for (unsigned reach = 0; reach < 2; ++reach) own.sent[reach] = own.told[reach] = 0;
    own.spinning_calls = own.networked = own.answer_turn = 0;
    own.last_of_any = own.queue_of_any = own.quick_waits = 0;
    own.all_near = {0, 0};
    own.ring_head = start;
    DCUDA_NO_UNROLL
    for (std::uint32_t& generation : own.generation) generation = start;
    DCUDA_NO_UNROLL
    for (unsigned index = 0; index < collective::barriers; ++index) {
        own.epoch[index] = start;
        for (unsigned turn = 0; turn < 2; ++turn) {
            own.barrier_fills[index][turn] = start;
            for (std::uint32_t& count : own.unread_seen[index][turn]) count = start;
        }
    }
    own.wait = {};
    own.doing = {};
    if (is_profiled(state)) exec::far(begin_profile)(leader, state);
}

// All threads of the rank, which is number `in_block` of its block. They are callers then.
DCUDA_DEVICE caller begin_rank(context from_host, rank_state& state, std::uint32_t in_block) {
    exec::leader_then_sync(state.group(), [&](lone_thread leader) { start_rank(leader, state, from_host, in_block); });
    exec::far(cross_barrier_seldom)(state, collective{operation::init, world}.index());
    if (is_profiled(state)) end_operation<operation::init>(state, {.window = processor_number()});
#if DCUDA_BACKEND_CPU
    if (check::is_on(state)) check::begin(state);
#endif
    return caller(state);
}

// A rank that is the whole block. All of its threads.
DCUDA_DEVICE caller init(context from_host, rank_state& state) {
#if DCUDA_BACKEND_CPU
    const exec::operation_scope named(constructor_name);
#endif
    if (from_host.device->ranks_per_block != 1)
        report_part(from_host, {DCUDA_PARTS ? part_problem::whole : part_problem::kernel, 0, 0, 0,
                                from_host.device->ranks_per_block});
    exec::form_group(state.members);
    return begin_rank(from_host, state, 0);
}

#if DCUDA_PARTS
// A rank that is a part of the block. All of its threads.
DCUDA_DEVICE caller init(context from_host, rank_state& state, const part& own) {
#if DCUDA_BACKEND_CPU
    const exec::operation_scope named(constructor_name);
#endif
    const exec::rank_group group = claim_part(from_host, state, own);
    exec::leader_then_sync(group, [&](lone_thread) { state.members = group; });
    return begin_rank(from_host, state, own.index);
}
#endif

// What a rank has started and not finished ends the run: its packets may still be under way, which the next run could
// take for its own. The lead warp.
DCUDA_COLD void report_started(lead_warp warp, shared_state shared) {
#if DCUDA_CHECKS
    rank_state& state = shared.get();
    const communicator_record* const records = communicators_of(state).records;
    for (std::uint32_t begin = 0; begin < max_communicators; begin += warp.count) {
        const std::uint32_t slot = begin + warp.index;
        const unsigned hits =
            vote(warp, slot < max_communicators && records[slot].size != 0 && records[slot].started != 0);
        if (hits == 0) continue;
        const std::uint32_t found = begin + lowest(hits);
        if (warp.leads())
            report_fault(exec::lead_access::alone(), state, fault::started, operation::finish, 0,
                         communicator_number(found, records[found].uses), 0, 0, 0);
        return;
    }
#else
    (void)warp, (void)shared;
#endif
}

// Not inlined, and the warp converges first: threads of a warp that leave the kernel in different places must come to
// one and the same barrier instruction, together.
DCUDA_COLD void finish(shared_state shared) {
    rank_state& state = shared.get();
    // A thread that leaves the kernel because of an error runs destructors on the CPU backend: nothing to wait for
    // then.
    if (exec::is_unwinding() || load_in_block(&state.finished) != 0) return;
    exec::converge_warp();
#if DCUDA_BACKEND_CPU
    const exec::operation_scope named("finish (the end of the kernel)");
#endif
    // Only the lead warp knows for sure whether the run has ended: others may be an operation behind.
    const auto is_going = [&](const lead_warp&) { return load_in_block(&state.ended) == 0 ? 1u : 0u; };
    if (DCUDA_PARTS ? exec::decide(state.group(), state.decision, is_going) == 0 : load_in_block(&state.ended) != 0)
        return;
#if DCUDA_BACKEND_CPU
    if (check::is_on(state)) check::enter(state, {operation::finish, world});
#endif
    if (is_profiled(state)) begin_operation(state);
    exec::far(cross_barrier_seldom)(state, collective{operation::finish, world}.index());
    exec::decide(state.group(), state.decision, [&](const lead_warp& warp) {
        if (load_in_block(&state.ended) == 0) {
            exec::far(report_started)(warp, state);
            exec::far(report_unconsumed)(warp, state);
        }
        return 0u;
    });
    if (is_profiled(state)) end_operation<operation::finish>(state, {});
    exec::sync_leader_sync(state.group(), [&](lone_thread) {
        store_relaxed(&state.finished, 1);
        store_relaxed(&state.device.waits[state.device_rank].kind, waiting::done);
    });
}

// A communicator that does not exist ends the run. All threads of the rank.
DCUDA_DEVICE void check_communicator(rank_state& state, communicator comm, operation where) {
#if DCUDA_CHECKS
    if (find_communicator(state, comm) != nullptr) return;
    report_and_leave(state, fault::communicator, where, 0, static_cast<std::uint32_t>(comm), 0, 0);
#else
    (void)state, (void)comm, (void)where;
#endif
}

} // namespace dcuda::detail
