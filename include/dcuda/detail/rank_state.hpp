// What a rank knows about itself, and the three things every operation may need: send a command to the host, report a
// fault, wait.
#pragma once

#include "dcuda/detail/exec.hpp"
#include "dcuda/detail/launch.hpp"
#include "dcuda/detail/protocol.hpp"
#include "dcuda/types.hpp"

namespace dcuda::detail {

inline constexpr unsigned cached_targets = 8;
inline constexpr unsigned cached_links = 8;
inline constexpr unsigned cached_tags = 16;
inline constexpr unsigned near_processes = 8;

// Where puts to one rank through one window go, kept near because the tables are far away.
struct alignas(16) target_entry {
    std::uint32_t window; // id, or notify_key; 0: this entry is empty
    std::uint32_t rank;   // in the window's communicator
    std::uint32_t small;  // notified puts of fewer bytes go by mail, and fit into the window; 0: none does
    std::uint32_t world_rank;
    std::byte* base; // of the target's window, as mapped here
    std::uint64_t bytes;
    std::byte* home;      // the base as the target addresses it
    std::uint32_t remote; // 1: it is reached over the network
};
// In place of a window: notifications alone, by communicator.
inline constexpr std::uint32_t notify_key = 0xffff'fff0;

// What this rank and one target have with each other.
struct alignas(16) link {
    packet* lane;             // in the target's mailbox, as mapped here; null: notifications go to the counters
    lane_position sent;       // of the next message
    lane_position freed;      // up to which the target has taken messages out, as last seen
    scope reach;              // who sees what is published there
    std::uint32_t direct;     // 1: puts went straight into the target's memory for which no message has vouched yet
    std::uint32_t last_put;   // puts that went by mail before this message (a position)
    std::uint32_t world_rank; // of the target; no_rank: this entry is empty
    std::byte* mailed_from;   // wrote somewhere between these, as the target addresses it;
    std::byte* mailed_to;     // the target may not have placed them yet
    std::uint32_t* counters;  // of the target, [tag]; null: it is reached over the network
    const std::uint32_t* credit;
    std::uint32_t record;  // its place in the rank's table of links; links_per_rank: none
    std::uint32_t flushes; // of this rank, before the last message there
};
inline constexpr std::uint32_t no_rank = UINT32_MAX;

// No put that went by mail can be placed late any more.
DCUDA_DEVICE void forget_mailed_puts(link& to) {
    to.mailed_from = reinterpret_cast<std::byte*>(~std::uintptr_t{0});
    to.mailed_to = nullptr;
}

// A lane of this rank's own mailbox.
struct inbound_lane {
    lane_position taken;    // of the next message
    lane_position credited; // up to which its source knows that we have taken messages out
    std::uint32_t* credit;  // where the source learns it; null until its hello has come
};

// The word that tells a source what has been taken.
DCUDA_DEVICE std::uint32_t credit_of(const lane_position& taken) {
    return (taken.messages & 0xffff) | taken.packets << 16;
}

// Where this rank stands in barriers.
struct barrier_place {
    std::uint32_t row;
    std::uint32_t place;   // in the row
    std::uint32_t members; // of the row
};

struct tag_entry {
    std::uint32_t tag;
    tag_record record;
    std::uint32_t lane;    // where the next message with this tag is expected,
    std::uint16_t packets; // and its payload: like the last one's
    std::uint16_t origin;  // lane of the last message, + 1; 0: there was none; forgotten_origin. For reports only
};
inline constexpr std::uint16_t forgotten_origin = UINT16_MAX;

// The wait that the rank is in. One thread.
struct current_wait {
    waiting what;
    std::uint32_t detail;
    std::uint32_t expected;
    std::uint32_t seen;      // when the user's bound ended the wait
    std::uint32_t timed_out; // 1: that has happened
    std::uint32_t calls;     // of keep_waiting
    std::uint64_t start_ns;  // of the first of them; 0: none yet
};

// What an observed rank does now. One thread.
struct current_operation {
    std::uint64_t begin;         // ticks
    std::uint64_t blocked_since; // ticks; waiting for space in a queue
    std::uint64_t clock_at;      // ticks, of the last look at both clocks
    std::uint32_t straight;      // 1: a notified put went straight into the target's memory
    std::uint32_t events;        // so far
};

// What one thread alone is taking out of a lane.
struct courier {
    header message;
    std::uint32_t lane;
    std::uint32_t position;
    std::uint32_t number; // of the payload packet
};

// Messages that all warps of the block place together: the next ones of a lane.
struct shared_batch {
    std::uint32_t lane;
    std::uint32_t count; // 0: there is no such batch
};

// One per rank, in the block's shared memory. Written by one thread or the team where the block's barrier orders it,
// read by all threads after.
struct rank_state {
    device_context device; // a copy: its memory is far away
    peer_view mine;        // of this device
    std::uint32_t device_rank;
    std::uint32_t world_rank;
    std::uint32_t ended;  // 1: the run was aborted, all threads leave the kernel
    std::uint32_t last;   // 1: this rank was the last to arrive in the current collective operation
    std::uint32_t result; // of the current operation, for all threads
    std::uint32_t finished;
    barrier_place row;
    std::uint64_t* near_barriers[near_processes]; // the words of the first processes
    std::uint32_t
        generation[static_cast<unsigned>(collective::count)]; // of each meeting and barrier, as this rank counts
    std::uint32_t unread_seen[barrier_kinds][2][3];           // upper halves of the words of barriers, by turn
    std::uint32_t unreleased; // bit by `scope`: puts went to such targets that no release has covered
    std::uint32_t sent[2];    // messages so far, by `scope` of their targets
    std::uint32_t told[2];    // of unread_messages, what the last barrier by that scope has counted
    std::uint32_t flushes;    // so far: the next message to each target vouches for what they completed
    std::uint32_t link_count; // in the rank's table of links
    scope notification_scope; // whom notifications may come from
    std::uint32_t* counters;  // this rank's, [tag]
    tag_record* tag_records;  // this rank's, [tag], where they are not cached
    mailbox_status* status;   // this rank's mailbox
    packet* mail;
    std::uint32_t lanes;       // in use, of the mailbox
    std::uint32_t usual_waits; // so far,
    std::uint32_t called_off;  // the number of the last one that was called off,
    std::uint32_t counted;     // and of the last one that a counter ended
    shared_batch batch;
    std::uint32_t arrived_lanes;     // bit by lane: its next message, whose payload all threads are to place,
    header arrivals[lanes_per_rank]; // is this
    std::uint32_t remote_lanes;      // bit by lane: its source is on another device
    std::uint32_t ring_head;         // of the command ring, as last seen
    std::uint32_t networked;         // 1: puts went over the network since the last flush
    std::uint32_t network_flushes;   // so far
    exec::staging staging;
    current_wait wait;
    std::uint32_t observed; // 1: this run is traced or counted
    current_operation doing;
    courier meanwhile;
    inbound_lane inbound[lanes_per_rank];
    std::uint32_t lane_sources[lanes_per_rank]; // world ranks, once their hello has come
    std::uint32_t forgotten_origins;            // bit by tag % 32: the cache has lost an entry that knew one
    target_entry targets[cached_targets];
    link links[cached_links];
    tag_entry tag_cache[cached_tags]; // of the tags with the same remainder, the one used last
};

// Whether this run is traced or counted.
DCUDA_DEVICE bool is_observed(const rank_state& state) { return DCUDA_OBSERVABLE != 0 && state.observed != 0; }

// Where a rank is: its process, and its number there.
struct rank_place {
    std::uint32_t process;
    std::uint32_t rank;
};
DCUDA_DEVICE rank_place place_of(const rank_state& state, std::uint32_t world_rank) {
    return {world_rank / state.device.ranks_per_device, world_rank % state.device.ranks_per_device};
}

DCUDA_DEVICE target_entry& cached_target(rank_state& state, std::uint32_t window, std::uint32_t rank) {
    return state.targets[(rank + window) % cached_targets];
}

// How functions that are not inlined, and the user's rank, hold the state.
// PERF: on a GPU as an address in shared memory that the compiler takes from a register. It would otherwise work out
// the address of a __shared__ variable at every use, and would not know that a reference is one to shared memory.
class shared_state {
public:
#if defined(__CUDACC__)
    DCUDA_DEVICE shared_state(rank_state& state)
        : address_(keep_in_register(static_cast<std::uint32_t>(__cvta_generic_to_shared(&state)))) {}
    DCUDA_DEVICE rank_state& get() const { return *static_cast<rank_state*>(__cvta_shared_to_generic(address_)); }

private:
    std::uint32_t address_;
#else
    shared_state(rank_state& state) : state_(&state) {}
    rank_state& get() const { return *state_; }

private:
    rank_state* state_;
#endif
};

// --- Waiting -------------------------------------------------------------------------------------------------------

// Takes the mail that has come while the rank waits for something else, so that sources do not wait for space for ever.
// True if that made a difference to anybody. One thread; mailbox.hpp.
DCUDA_COLD bool receive_meanwhile(shared_state shared);

// In an observed run: the rank waits for space in a queue, or does so no longer. One thread; observe.hpp.
DCUDA_COLD void begin_blocked(shared_state shared);
DCUDA_COLD void end_blocked(shared_state shared, waiting what);

#if DCUDA_BACKEND_CUDA
inline constexpr std::uint32_t calls_per_publication = 32; // of keep_waiting; times 64 polls: about a millisecond
#else
inline constexpr std::uint32_t calls_per_publication = 1; // the CPU backend sleeps between two calls
#endif

// One thread. What is waited for: protocol.hpp, wait_record.
DCUDA_DEVICE void begin_wait(rank_state& state, waiting what, std::uint32_t detail, std::uint32_t expected = 0) {
    state.wait = {what, detail, expected, 0, 0, 0, 0};
}

// Something has happened in the wait that may end that of another rank: it is no longer the same wait.
DCUDA_DEVICE void count_as_new_wait(rank_state& state) {
    wait_record& record = state.device.waits[state.device_rank];
    if (state.wait.calls >= calls_per_publication) store_relaxed(&record.epoch, load_relaxed(&record.epoch) + 1);
}

// Who has sent the last notification with this tag, as wait_record::source. One thread.
DCUDA_DEVICE std::uint32_t last_source(const rank_state& state, std::uint32_t tag) {
    const tag_entry& entry = state.tag_cache[tag % cached_tags];
    if (entry.tag != tag) return unknown_source;
    const std::uint32_t lane = entry.origin - 1u;
    if (lane < lanes_per_rank) return state.lane_sources[lane] + 1;
    const bool counted = entry.record.counter != state.device.counter_start; // the counter does not tell by whom
    return entry.origin == 0 && !counted ? no_source : unknown_source;
}

// Asked from time to time, after a look in vain at a word that holds `value`. False: give up, because the run has ended
// or the user's bound is reached. One thread.
DCUDA_COLD bool keep_waiting(shared_state shared, std::uint32_t value) {
    rank_state& state = shared.get();
    current_wait& wait = state.wait;
    if (wait.what != waiting::notifications && exec::far(receive_meanwhile)(state)) count_as_new_wait(state);
#if DCUDA_CHECKS
    if (load_relaxed(state.device.aborted) != 0) {
        store_relaxed(&state.ended, 1);
        wait.calls = 0; // what the rank has waited for remains to be read
        return false;
    }
    // Publishing costs a few stores: only long waits do it, and the watchdog looks for no others.
    if (++wait.calls % calls_per_publication == 0) {
        wait_record& record = state.device.waits[state.device_rank];
        if (wait.calls == calls_per_publication) count_as_new_wait(state);
        store_relaxed(&record.detail, wait.detail);
        store_relaxed(&record.expected, wait.expected);
        store_relaxed(&record.seen, value);
        if (wait.what == waiting::notifications) store_relaxed(&record.source, last_source(state, wait.detail));
        if (is_observed(state)) {
            store_relaxed(&record.since[0], static_cast<std::uint32_t>(state.doing.begin));
            store_relaxed(&record.since[1], static_cast<std::uint32_t>(state.doing.begin >> 32));
        }
        store_relaxed(&record.what, static_cast<std::uint32_t>(wait.what));
        store_relaxed(&record.heartbeat, load_relaxed(&record.heartbeat) + 1);
    }
    const std::uint64_t bound_ns = state.device.wait_timeout_ns;
    if (bound_ns == 0 || wait.what != waiting::notifications) return true;
    const std::uint64_t now_ns = clock_ns();
    if (wait.start_ns == 0) wait.start_ns = now_ns;
    if (now_ns - wait.start_ns < bound_ns) return true;
    wait.timed_out = 1;
    wait.calls = 0; // as above
    wait.seen = value;
    return false;
#else
    (void)value;
    return true;
#endif
}

// The wait is over. Only a wait that was published takes it back. One thread.
DCUDA_DEVICE void end_wait(rank_state& state) {
    if (state.wait.calls < calls_per_publication) return;
    store_relaxed(&state.device.waits[state.device_rank].what, static_cast<std::uint32_t>(waiting::no));
}

// Waits until ready(value) accepts the word's value. False if the run ended. One thread.
template <order_tag Tag, class Word, class Ready>
DCUDA_DEVICE bool wait_for_word(rank_state& state, scope reach, const Word* word, const Ready& ready, waiting what,
                                std::uint32_t detail) {
    bool long_wait = false;
    const bool there = poll<Tag>(reach, word, ready, [&](Word value) {
        if (!long_wait) begin_wait(state, what, detail);
        long_wait = true;
        return keep_waiting(state, static_cast<std::uint32_t>(value));
    });
    if (long_wait) end_wait(state);
    return there;
}

// --- Commands and faults -------------------------------------------------------------------------------------------

// Takes the next places in the device's ring of commands; waits until they are free. False if the run ended meanwhile.
// One thread.
DCUDA_DEVICE bool take_tickets(rank_state& state, std::uint32_t count, std::uint32_t& ticket) {
    const command_ring& ring = state.device.ring;
    ticket = fetch_add_relaxed(ring.tail, count);
    const std::uint32_t end = ticket + count;
    if (end - state.ring_head <= ring_capacity) return true;
    // ORDER slot-reuse: the host has read what the slot held before it counts the slot as free (slot_free); the load
    // acquires that, so the new command cannot overtake the host's reading of the old one.
    if (is_observed(state)) begin_blocked(state);
    const bool there = wait_for_word<order_tag::slot_reuse>(
        state, scope::system, ring.head,
        [&](std::uint32_t head) {
            state.ring_head = head;
            return end - head <= ring_capacity;
        },
        waiting::ring_space, 0);
    if (is_observed(state)) end_blocked(state, waiting::ring_space);
    return there;
}

DCUDA_DEVICE packet* ring_slot(const rank_state& state, std::uint32_t ticket) {
    return state.device.ring.slots + std::size_t(ticket % ring_capacity) * packets_per_command;
}

// Puts a command into the device's ring; waits while the ring is full. False if the run ended meanwhile. One thread.
DCUDA_COLD bool send_command(shared_state shared, const command& cmd) {
    rank_state& state = shared.get();
    std::uint32_t ticket = 0;
    if (!take_tickets(state, 1, ticket)) return false;
    packet* slot = ring_slot(state, ticket);
    for (unsigned part = 0; part < packets_per_command; ++part) {
        const std::uint32_t* words = cmd.words + 3 * part;
        store_packet<order_tag::command_publish>(slot + part, words[0], words[1], words[2], ticket + 1);
    }
    return true;
}

// Tells the host what this rank did wrong and ends the run on this device. One thread.
DCUDA_COLD void report_fault(shared_state shared, fault kind, operation where, std::uint32_t window_id,
                             std::uint32_t target, std::uint64_t offset, std::uint64_t bytes, std::uint64_t limit) {
    rank_state& state = shared.get();
    exec::far(send_command)(
        state, command{{static_cast<std::uint32_t>(opcode::fault), state.device_rank, static_cast<std::uint32_t>(kind),
                        static_cast<std::uint32_t>(where), window_id, target, static_cast<std::uint32_t>(offset),
                        static_cast<std::uint32_t>(offset >> 32), static_cast<std::uint32_t>(bytes),
                        static_cast<std::uint32_t>(bytes >> 32), static_cast<std::uint32_t>(limit),
                        static_cast<std::uint32_t>(limit >> 32)}});
    store_relaxed(state.device.aborted, 1);
}

// All threads of the rank: one reports, all leave the kernel.
[[noreturn]] DCUDA_COLD void fail(shared_state shared, fault kind, operation where, std::uint32_t window_id,
                                  std::uint32_t target, std::uint64_t offset, std::uint64_t bytes,
                                  std::uint64_t limit) {
    rank_state& state = shared.get();
    // The first to get here reports, not the leader: seeing `ended`, the others leave where they are, which may still
    // be the end of the operation before.
    if (exchange_relaxed(&state.ended, 1) == 0)
        report_fault(state, kind, where, window_id, target, offset, bytes, limit);
    exec::exit_thread();
}

// All threads of the rank, after an operation in which one of them may have found the run aborted.
DCUDA_DEVICE void leave_if_ended(rank_state& state) {
    if (load_in_block(&state.ended) != 0) exec::exit_thread();
}

} // namespace dcuda::detail

// What the waits above call.
#include "dcuda/detail/mailbox.hpp"
#include "dcuda/detail/observe.hpp"
