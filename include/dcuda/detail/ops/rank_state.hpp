// SPDX-License-Identifier: BSD-3-Clause
// What a rank knows about itself, and the three things every operation may need: send a command to the host, report a
// fault, wait.
#pragma once

#include "dcuda/detail/exec/exec.hpp"
#include "dcuda/detail/exec/launch.hpp"
#include "dcuda/detail/exec/lead_warp.hpp"
#include "dcuda/detail/ops/fast/hints.hpp"
#include "dcuda/detail/ops/request.hpp"
#include "dcuda/detail/protocol/protocol.hpp"
#include "dcuda/types.hpp"

namespace dcuda::detail {

// A cell of a grid in space has 26 neighbours. And 32 ranks that share a block must fit into its shared memory.
inline constexpr unsigned cached_targets = 26;
inline constexpr unsigned cached_connections = 26;
inline constexpr unsigned cached_tags = 16;
inline constexpr unsigned near_processes = 8;

// Where puts to one rank through one window go, kept near because the tables are far away. PERF: loaded as a whole.
struct alignas(16) target_entry {
    std::uint64_t key; // what it is looked for by, or no_target
    std::byte* base;   // of the target's window, as mapped here
    std::uint64_t bytes;
    std::byte* home;          // the base as the target addresses it
    std::uint32_t small;      // notified puts of fewer bytes are messages, and fit into the window; 0: none is
    std::uint32_t connection; // its place among the connections that are near
    std::uint32_t world_rank; // of the target
    std::uint32_t is_remote;  // 1: the target is reached over the network
};
inline constexpr std::uint64_t no_target = 0xffff'fffe'ffff'ffff; // no window has such an id
// Where a target is, and the connection to it. PERF: both, so that they are loaded at the same time.
DCUDA_DEVICE std::uint16_t target_hint(unsigned target, std::uint32_t connection) {
    return static_cast<std::uint16_t>(target | connection << 8);
}
inline constexpr std::uint32_t no_rank = UINT32_MAX;

// The word that tells a source what has been taken.
DCUDA_DEVICE std::uint32_t credit_of(const queue_position& taken) {
    return (taken.messages & 0xffff) | taken.packets << 16;
}

// Where this rank stands in barriers.
struct barrier_place {
    std::uint32_t row;
    std::uint32_t place;   // in the row
    std::uint32_t members; // of the row
};

struct alignas(16) tag_entry {
    tag_record record;
    std::uint32_t expected; // of the next message with this tag: its queue, and in the upper half bytes of payload
    std::uint32_t origin;   // queue of the last message, + 1; 0: there was none; forgotten_origin
    DCUDA_DEVICE std::uint32_t queue() const { return expected & 0xffff; }
    DCUDA_DEVICE std::uint32_t bytes() const { return expected >> 16; }
};
DCUDA_DEVICE std::uint32_t expectation(std::uint32_t queue, std::uint32_t bytes) { return queue | bytes << 16; }
inline constexpr std::uint32_t forgotten_origin = UINT16_MAX;
inline constexpr std::uint32_t no_tag_key = UINT32_MAX; // of an entry that is empty

// The wait that the rank is in.
struct current_wait {
    waiting kind;
    operation where;
    std::uint32_t detail;
    std::uint32_t expected;
    std::uint32_t tags;     // of a wait for notifications: any of so many
    std::uint32_t calls;    // of keep_waiting
    std::uint64_t start_ns; // of the first of them; 0: none yet
};

// What an profiled rank does now.
struct current_operation {
    std::uint64_t begin;         // ticks
    std::uint64_t blocked_since; // ticks; waiting for space in a queue
    std::uint64_t clock_at;      // ticks, of the last sample of both clocks
    std::uint32_t target;        // number of the target entry that it used; cached_targets: none
    std::uint32_t is_direct;     // 1: a notified put was stored into the target's memory
    std::uint32_t events;        // so far
};

// The header of a message that is ready to leave.
struct alignas(16) outgoing_header {
    packet* slot; // where it goes
    mailbox_header header;
    std::uint32_t sequence;
    std::uint32_t must_release; // 1: what was stored at the target directly is released before
};

// The books of a rank, kept by its lead warp: see lead_warp.hpp. Words of them that one thread alone reads or writes
// are the leader's.
struct endpoint {
    // Targets, connections and tags used lately. Each entry has a key.
    std::uint32_t connection_keys[cached_connections]; // world ranks
    std::uint32_t tag_keys[cached_tags];
    near_hints<std::uint16_t, 7> target_hints; // target_hint
    near_hints<std::uint8_t, 6> tag_hints;
    target_entry targets[cached_targets];
    rank_connection connections[cached_connections];
    tag_entry tags[cached_tags];
    std::uint32_t next_tag;          // the entry that is given up next
    std::uint32_t chance;            // which target and which connection is: entry_by_chance()
    std::uint32_t near_connections;  // places in use among the connections that are near: the first ones
    std::uint32_t connection_count;  // in the rank's table
    std::uint32_t undelivered;       // 1: payload may be under way on connections that are not near
    std::uint32_t forgotten_origins; // bit by tag % 32: the cache has lost an entry that knew one

    inbound_queue inbound[near_queues];
    std::uint32_t queues;        // in use, of the mailbox
    std::uint32_t far_taken[2];  // messages from far queues, by `scope` of their sources; the first one from the start
    std::uint32_t requests_seen; // of mailbox_status::requests

    std::uint32_t posted_turn;                             // of rank_state::puts: the one that is free
    std::uint32_t posted_mask, posted_width, posted_queue; // of rank_state::messages: as in `batch`; the first queue
    std::uint32_t unreleased;       // bits by `scope`: something was stored at such targets that no release has covered
    std::uint32_t flushes;          // so far, and releases: the next message to each target releases what was before
    std::uint32_t sent[2];          // messages so far, by `scope` of their targets
    std::uint32_t told[2];          // of unread_messages, what the last barrier by that scope has counted
    std::uint32_t spinning_calls;   // unsuccessful tests, and atomic operations
    std::uint32_t answer_turn;      // of rank_state::answers: the one that is free
    std::uint32_t last_of_any;      // the tag that wait_any returned last
    std::uint32_t queue_of_any;     // that wait_any took a message of last
    tag_range all_near;             // what was there with these tags is near; none: no such tags
    std::uint32_t quick_waits;      // of wait_any, since this was so
    std::uint32_t networked;        // bits: what has gone over the network since the last flush
    std::uint32_t network_flushes;  // so far
    std::uint32_t network_requests; // that were to be answered, so far
    std::uint64_t ring_head;        // commands that the host has taken, as last seen, all 64 bits
    std::uint32_t generation[collective::count];           // of each collective operation
    std::uint32_t epoch[collective::barriers];             // of each barrier
    std::uint32_t barrier_fills[collective::barriers][2];  // how often their words were full, by turn
    std::uint32_t unread_seen[collective::barriers][2][3]; // upper halves of these words
    current_wait wait;
    current_operation doing;
    // PERF: behind all that is used more often; further up they cost a loop around an exchange a register.
    std::uint32_t has_sent_quietly; // 1: a put without a notification has left as a message since all were delivered
    std::uint32_t has_stored; // 1: something but the results of atomic operations, that no fence for all has covered
    outgoing_header ready;    // leaves after the block's barrier
};

// A put that all threads make: posted by the lead warp before a barrier of the block, read by all threads after it.
struct posted_put {
    std::byte* target;      // address, as mapped here
    std::uint64_t home;     // the same as the target addresses it
    packet* queue;          // of a message: where it goes
    std::uint32_t position; // of its first packet of payload
    std::uint32_t rank;     // the target's, in the world
};

// A value, or several that are not large, in the words of the packets that it travels in.
struct alignas(8) value_unit {
    std::uint32_t words[unit_bytes / 4];
};

// One of both: no operation posts both.
union posted_content {
    posted_put put;
    value_unit value; // the result of an operation, for all threads
};

// A message whose payload all threads place, posted by the lead warp.
struct posted_message {
    mailbox_header header;
    std::uint32_t packet; // position of its first packet of payload
    std::uint32_t place;  // of its queue
};
inline constexpr unsigned posted_batch = 32; // one for each thread of a warp

// What only the lead warp gets at.
template <class Content>
class lead_only {
public:
    DCUDA_DEVICE Content& of(const lone_thread&) { return content_; }
#if DCUDA_WARPS
    DCUDA_DEVICE Content& of(const lead_warp&) { return content_; }
#endif

private:
    Content content_;
};

// One per rank, in the block's shared memory. All but `own` and what is posted stays as init() wrote it.
struct rank_state {
    device_context device; // a copy: its memory is far away
    peer_view inbox;       // of this device
    std::uint32_t device_rank;
    std::uint32_t world_rank;
    barrier_place row;
    std::uint64_t* near_barriers[near_processes]; // the words of the first processes
    scope job_scope;                              // all ranks of the job whose memory can be reached
    std::uint32_t* counters;                      // this rank's, [wire tag]
    tag_record* tag_records;                      // this rank's, [wire tag], where they are not cached
    mailbox_status* status;                       // this rank's mailbox
    inbound_queue* far_queues;                    // this rank's
    exec::rank_group members;                     // the threads that execute this rank's operations together
    std::uint32_t profiled;                       // 1: this run is traced or counted
    exec::staging staging;                        // its changing words are the leader's

    std::uint32_t ended;    // 1: the run has ended for this rank; its threads leave the kernel
    std::uint32_t finished; // 1: finish() is over
    union {
        std::uint32_t decision;        // CPU backend: see exec::decide
        std::uint32_t finished_shares; // on a GPU: of an array that all warps exchange
    };
    posted_content puts[2]; // in turn, so that the next may be posted while a slow thread still reads this one
    union {
        posted_message messages[posted_batch];
        send_request far_request; // of send_to_far_target(), in which none are posted before it has left
    };
    alignas(box_request) std::byte box_memory[sizeof(box_request)]; // what lies in shared memory has no initialisers
    std::uint32_t answers[2];                                       // of operations that return a number: in turn, too
    lead_only<endpoint> own;

    DCUDA_DEVICE exec::rank_group group() const { return members; }
    // PERF: on the stack the request would cost each warp some trips to the L2 cache.
    DCUDA_DEVICE box_request& moved_box() { return *reinterpret_cast<box_request*>(box_memory); }
};

// Leaves something to all threads of the block, who read it after the block's next barrier, in one of two places; which
// of them is free, `next` says. The result is where they find it. PERF: they need no barrier after that, as there are
// two places. The lead warp; the content is the leader's.
template <class Content>
DCUDA_DEVICE unsigned post_in_turn(const lead_warp& warp, Content (&places)[2], std::uint32_t& next,
                                   const Content& content) {
    const std::uint32_t turn = next;
    sync(warp);
    if (warp.leads()) {
        places[turn] = content;
        next = 1 - turn;
    }
    return turn;
}
DCUDA_DEVICE unsigned post(const lead_warp& warp, rank_state& state, const posted_put& put) {
    return post_in_turn(warp, state.puts, state.own.of(warp).posted_turn, posted_content{.put = put});
}
DCUDA_DEVICE posted_put posted(const rank_state& state, unsigned turn) { return state.puts[turn].put; }

DCUDA_DEVICE unsigned post_value(const lead_warp& warp, rank_state& state, const value_unit& value) {
    return post_in_turn(warp, state.puts, state.own.of(warp).posted_turn, posted_content{.value = value});
}

DCUDA_DEVICE unsigned post_answer(const lead_warp& warp, rank_state& state, std::uint32_t number) {
    return post_in_turn(warp, state.answers, state.own.of(warp).answer_turn, number);
}

DCUDA_DEVICE communicator_table& communicators_of(const rank_state& state) { return *state.device.communicator_tables; }

// The communicator, as this rank sees it; null: there is none such, or the rank is no member. Any single thread.
DCUDA_DEVICE communicator_record* find_communicator(const rank_state& state, communicator comm) {
    const auto number = static_cast<std::uint32_t>(comm);
    if (number >= communicator_numbers) return nullptr;
    communicator_record& found = communicators_of(state).records[slot_of_communicator(number)];
    const bool is_open = found.size != 0 && communicator_number(slot_of_communicator(number), found.uses) == number;
    return is_open ? &found : nullptr;
}

// Whether this run is traced or counted.
DCUDA_DEVICE bool is_profiled(const rank_state& state) { return DCUDA_PROFILING != 0 && state.profiled != 0; }

// Where a rank is: its process, and its number there.
struct rank_location {
    std::uint32_t process;
    std::uint32_t rank;
};
DCUDA_DEVICE rank_location locate(const rank_state& state, std::uint32_t world_rank) {
    return {world_rank / state.device.ranks_per_device, world_rank % state.device.ranks_per_device};
}

// One of `Size` entries, which is given up for another one.
// PERF: by chance. If entries were given up in turn, each of Size + 1 targets would be just before it is used again.
template <unsigned Size>
DCUDA_DEVICE unsigned entry_by_chance(const endpoint& own) {
    return (own.chance >> 16) * Size >> 16;
}
// Another entry next time. The leader.
DCUDA_DEVICE void change_chance(endpoint& own) { own.chance = own.chance * 1664525 + 1013904223; }

// The tag's entry, or cached_tags. All threads of the group.
template <class Group>
DCUDA_DEVICE unsigned find_near_tag(const Group& group, endpoint& own, std::uint32_t tag) {
    const unsigned likely = own.tag_hints.at[own.tag_hints.slot(hash_of(tag))];
    if (own.tag_keys[likely] == tag) return likely;
    return find_key<cached_tags>(group, tag, [&](unsigned entry) { return own.tag_keys[entry]; });
}

// The entry that has the target, if its hint tells.
DCUDA_DEVICE unsigned likely_target(const endpoint& own, std::uint64_t key) {
    return own.target_hints.at[own.target_hints.slot(hash_of(key))] & hint_entry;
}

// The target's entry, or cached_targets; `found`: what it holds. All threads of the group.
template <class Group>
DCUDA_DEVICE unsigned find_near_target(const Group& group, endpoint& own, std::uint64_t key, target_entry& found) {
    const unsigned likely = likely_target(own, key);
    found = own.targets[likely];
    if (found.key == key) return likely;
    const unsigned place = find_key<cached_targets>(group, key, [&](unsigned entry) { return own.targets[entry].key; });
    if (place != cached_targets) found = own.targets[place];
    return place;
}

// A tag or a target is near in the entry of this number: its hint says so. All threads of the group.
template <class Group>
DCUDA_COLD void write_tag_hint(Group group, endpoint& own, unsigned place) {
    write_hint<cached_tags>(
        group, own.tag_hints, place, no_tag_key, [&](unsigned entry) { return own.tag_keys[entry]; },
        [](unsigned entry) { return static_cast<std::uint8_t>(entry); });
}
template <class Group>
DCUDA_COLD void write_target_hint(Group group, endpoint& own, unsigned place) {
    write_hint<cached_targets>(
        group, own.target_hints, place, no_target, [&](unsigned entry) { return own.targets[entry].key; },
        [&](unsigned entry) { return target_hint(entry, own.targets[entry].connection); });
}

// A queue of the rank's mailbox.
DCUDA_DEVICE inbound_queue& queue_of(const rank_state& state, endpoint& own, std::uint32_t number) {
    return number < near_queues ? own.inbound[number] : state.far_queues[number - near_queues];
}
DCUDA_DEVICE std::uint32_t near_queues_of(const endpoint& own) {
    return own.queues < near_queues ? own.queues : near_queues;
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

// Its size, 0 if there is none such; and a member's world rank. Any single thread.
// PERF: of the world and the device both are near; what others need is called by exec::far.
DCUDA_COLD std::uint32_t find_size(shared_state shared, communicator comm) {
    const communicator_record* const found = find_communicator(shared.get(), comm);
    return found != nullptr ? found->size : 0;
}
DCUDA_COLD std::uint32_t find_world_rank(shared_state shared, communicator comm, std::uint32_t rank) {
    return find_communicator(shared.get(), comm)->world_rank_of(rank);
}
DCUDA_DEVICE std::uint32_t size_of(rank_state& state, communicator comm) {
    if (static_cast<std::uint32_t>(comm) < communicator_count)
        return state.device.communicators[static_cast<std::uint32_t>(comm)].size;
    return exec::far(find_size)(state, comm);
}
DCUDA_DEVICE std::uint32_t world_rank_of(rank_state& state, communicator comm, std::uint32_t rank) {
    if (static_cast<std::uint32_t>(comm) < communicator_count)
        return state.device.communicators[static_cast<std::uint32_t>(comm)].world_rank_of(rank);
    return exec::far(find_world_rank)(state, comm, rank);
}

} // namespace dcuda::detail
