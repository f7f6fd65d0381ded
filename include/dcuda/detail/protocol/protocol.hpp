// SPDX-License-Identifier: BSD-3-Clause
// Every record that the device, its host and other devices share. Each field says who writes it, who reads it and
// where it lives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "dcuda/detail/exec/launch.hpp"
#include "dcuda/detail/protocol/command.hpp"
#include "dcuda/detail/protocol/communicator.hpp"
#include "dcuda/detail/protocol/memory.hpp"
#include "dcuda/detail/protocol/operation.hpp"

namespace dcuda::detail {

namespace check {
class session; // the protocol checker of the CPU backend: detail/ops/check.hpp
}

inline constexpr int default_tags = 256;
inline constexpr int max_tags = 65536; // and wire tags
inline constexpr int default_max_windows = 64;
inline constexpr int max_max_windows = 32768;

// In a window's size: puts are stored there at once (window_kind::direct).
inline constexpr std::uint64_t window_is_direct = std::uint64_t{1} << 63;

// What one rank exports for puts. writer: the rank, then its host; readers: ranks that put; home: device memory.
// `base` is valid on the device that holds the entry.
// `home` is the same place as the rank itself addresses it.
struct window_entry {
    std::byte* base;
    std::uint64_t size; // bytes, and window_is_direct
    std::byte* home;
    DCUDA_HOST_DEVICE std::uint64_t bytes() const { return size & ~window_is_direct; }
    DCUDA_HOST_DEVICE bool is_direct() const { return (size & window_is_direct) != 0; }
};

// A window's id: in the low 16 bits its slot's number + 1; in the next 15 how often there was a window; and whether the
// host has made it, so that it exists in all runs until the host frees it.
inline constexpr std::uint32_t window_is_of_host = 1u << 31;
DCUDA_HOST_DEVICE constexpr std::uint32_t window_id(std::uint32_t slot, std::uint32_t uses) {
    return (uses & 0x7fff) << 16 | (slot + 1);
}
DCUDA_HOST_DEVICE constexpr std::uint32_t slot_of_window(std::uint32_t id) { return (id & 0xffff) - 1; }

// A window as one device sees it. writer: the rank that opens or frees it for the members on its device, or the host in
// between or before the run; readers: these members; home: device memory.
struct device_window {
    window_entry* entries; // one per rank of the communicator; allocated once by the host
    std::uint32_t id;      // window_id; 0: there is no window
    std::uint32_t comm;
    std::uint32_t rank_count;
    std::uint32_t first_rank; // world rank of the communicator's rank 0: others may have the same number
};

// Where a window's record lies in the device's table.
struct window_slot : device_window {
    std::uint32_t uses;  // writer and reader: the rank that opens the window
    std::uint32_t taken; // 0: the slot is free. writers: ranks that want it, by addition, and the one that frees it
};

// Meeting point of a device's ranks. home: device memory, a cache line each.
struct alignas(128) collective_barrier {
    std::uint32_t arrived;    // writers: all ranks of the device, by atomic addition; the last resets it
    std::uint32_t generation; // writer: the last rank to arrive; readers: the device's ranks
};

// The words of a barrier, of which there are two sets. The device's ranks stand in rows of `row_size`; the last row may
// be shorter. Words count arrivals in their lower half. In the upper half each arrival adds by how much more messages
// its ranks have sent than taken since the last barrier. The words are `barrier_line` words apart. home: the device's
// memory, mapped by peers. Layout:
//   row[rows]        arrivals of a row.           writers: its ranks; readers: the same
//   column[row_size] arrivals of rows.            writers: a rank of each row; readers: the column's ranks
//   root             arrivals of rows.            writers: first ranks of the rows; reader: rank 0 of the device
//   release[rows]    arrivals of devices.         writers: rank 0 of each device; readers: the row's ranks
struct barrier_shape {
    std::uint32_t ranks; // of the device
    std::uint32_t row_size;
    std::uint32_t rows;
    DCUDA_HOST_DEVICE constexpr std::uint32_t words() const { return 2 * rows + row_size + 1; }
};
inline constexpr std::uint32_t barrier_line = 32;
DCUDA_HOST_DEVICE constexpr std::uint64_t barrier_word(std::uint32_t arrivals, std::uint32_t unread) {
    return arrivals | static_cast<std::uint64_t>(unread) << 32;
}
DCUDA_HOST_DEVICE constexpr std::uint32_t arrivals_of(std::uint64_t word) { return static_cast<std::uint32_t>(word); }
DCUDA_HOST_DEVICE constexpr std::uint32_t unread_of(std::uint64_t word) {
    return static_cast<std::uint32_t>(word >> 32);
}

// The mailbox of a rank takes small puts and notifications of other ranks as messages: payload and sequence number in
// one packet. A queue has one writer, the source that claimed it, and two rings of packets: headers, one per message,
// and payload. Queues belong to the device until a source claims one for a rank's mailbox.
inline constexpr std::uint32_t near_queues = 16;          // of a mailbox: what its rank knows of others is far from it
inline constexpr std::uint32_t most_partners = 1024;      // queues of a mailbox; and targets a rank can have queues at
inline constexpr std::uint32_t max_queue_packets = 32768; // credits have 16 bits
inline constexpr std::uint32_t max_small_put_bytes = 4096;

// The rings of a queue, of sizes that are powers of two: first the headers, then the payload.
struct queue_shape {
    std::uint32_t headers;
    std::uint32_t packets; // of payload; 0: there are no mailboxes
    DCUDA_HOST_DEVICE std::uint32_t size() const { return headers + packets; }
    DCUDA_HOST_DEVICE std::uint32_t header(std::uint32_t position) const { return position & (headers - 1); }
    DCUDA_HOST_DEVICE std::uint32_t packet(std::uint32_t position) const {
        return headers + (position & (packets - 1));
    }
};

// How far somebody is in a queue: messages and packets of payload, from the start of the run; they wrap around.
struct queue_position {
    std::uint32_t messages;
    std::uint32_t packets;
};

// home: the inbox.
struct alignas(16) mailbox_status {
    std::uint32_t queues_claimed; // may exceed device_context::partner_limit: later sources have no queue. writers:
                                  // sources, by atomic addition; reader: the rank
    std::uint32_t doorbell;       // CPU backend: rung when something has arrived
    std::uint32_t requests;       // sources that wait for credit have asked so often. writers: sources, by atomic
                                  // addition; reader: the rank
    std::uint32_t far_messages;   // sent in queues from near_queues on. writers: sources, by atomic addition; reader:
                                  // the rank
};

// A message is a header and the next packets of payload, of 12 bytes each. The header's words:
//   [0]      the target address of the payload, as the target addresses it, low 32 bits; in a connect message: the
//            number of the source's connection
//   [1]      20 more bits of it, and flags
//   [2]      tag in the upper half, bytes in the lower; in a connect message: the source's world rank
inline constexpr std::uint32_t message_connects = 1u << 20; // the first message of a queue: who writes here
inline constexpr std::uint32_t message_releases = 1u << 21; // what the source wrote and released before, too
inline constexpr std::uint32_t message_is_quiet = 1u << 22; // no notification
inline constexpr std::uint32_t message_requests = 1u << 23; // the source waits for credit
inline constexpr std::uint32_t packet_payload_bytes = 12;

struct mailbox_header {
    std::uint32_t words[3];
    DCUDA_HOST_DEVICE bool connects() const { return (words[1] & message_connects) != 0; }
    DCUDA_HOST_DEVICE bool releases() const { return (words[1] & message_releases) != 0; }
    DCUDA_HOST_DEVICE bool requests() const { return (words[1] & message_requests) != 0; }
    DCUDA_HOST_DEVICE bool notifies() const { return (words[1] & (message_connects | message_is_quiet)) == 0; }
    // With a notification and no other flag.
    DCUDA_HOST_DEVICE bool is_plain() const { return (words[1] & ~(0xfffffu | message_releases)) == 0; }
    DCUDA_HOST_DEVICE std::uint32_t bytes() const { return connects() ? 0 : words[2] & 0xffff; }
    DCUDA_HOST_DEVICE std::uint32_t packets() const {
        return (bytes() + packet_payload_bytes - 1) / packet_payload_bytes;
    }
    DCUDA_HOST_DEVICE std::uint32_t tag() const { return words[2] >> 16; }
    DCUDA_HOST_DEVICE std::uint64_t address() const {
        return words[0] | static_cast<std::uint64_t>(words[1] & 0xfffff) << 32;
    }
    DCUDA_HOST_DEVICE std::byte* target() const {
        return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address()));
    }
};

// Where what arrives at a device arrives. home: the device's memory, mapped by peers ("the inbox"). Of a device that is
// reached over a network: only `barriers`, as its own process addresses them; all others are null.
struct peer_view {
    std::uint32_t* counters; // [local rank * wire tags + wire tag]; notifications that did not come as messages.
                             // writers: local and peer ranks, by atomic addition; reader: the rank
    std::uint64_t* barriers; // [collective][turn][barrier_shape]; behind them, at the same distance on all devices,
                             // what exchange_memory says
    mailbox_status* status;  // [local rank]
    packet* queues;          // [place][queue_shape]; writer: the queue's source; readers: the rank, and the source what
                             // it has written itself
    std::uint32_t* claimed;  // queues that ranks of the device have; may exceed device_context::queue_count. writers:
                             // sources, by atomic addition; reader: the host, after the run
    std::uint32_t* places;   // [local rank][queue]: the queue's place + 1; 0: its source has not told yet. writer: the
                             // source; reader: the rank
    std::uint32_t* credits;  // [local rank][connection]: what the connection's target has taken out of our queue:
                             // messages in the lower half, packets in the upper. writer: the target; reader: the rank
    std::uint64_t remote;    // bit by process, of the first exchange_processes: it reaches that over a network only
};

// What a rank and one target have with each other. writer and reader: the rank; home: its shared memory, or the table
// of its connections in device memory while others are near.
struct alignas(16) rank_connection {
    packet* queue;         // in the target's mailbox, as mapped here; null: notifications go to the counters
    queue_position sent;   // of the next message
    queue_position freed;  // up to which the target has taken messages out, as last seen
    std::uint32_t flushes; // of this rank, before the last message there: unlike now, the next message releases
    // 1: something was written there directly that no message has released; `flushes` is never_flushed() then
    std::uint32_t unreleased;
    std::uint32_t placed;    // packets of payload up to here are in the target's window
    scope reach;             // who sees what is published there
    std::uint32_t* counters; // of the target, [wire tag]; null: it is reached over the network
    const std::uint32_t* credit;
    mailbox_status* status; // of the target
    // Where payload goes that is not known to be placed: to addresses from `begin` to before `end`, as the target
    // addresses them. They say so if `keeps_range` is 1, as it is from the first direct put there on, and if there is
    // such payload.
    std::uint64_t begin, end;
    std::uint32_t world_rank; // of the target
    std::uint32_t record;     // its place in the rank's table of connections, or no_record
    std::uint32_t is_far;     // 1: the queue is none of the first near_queues: its messages are announced
    std::uint32_t keeps_range;
};
inline constexpr std::uint32_t no_record = UINT32_MAX;

// An entry of the index of a rank's connections, which is hashed by the target's world rank; entries follow each other
// where hashes are equal. writer and reader: the rank; home: device memory.
struct connection_slot {
    std::uint32_t rank; // the world rank + 1; 0: empty
    std::uint32_t record;
};

// A queue of a rank's own mailbox. writer and reader: the rank; home: its shared memory, and from near_queues on device
// memory.
struct alignas(16) inbound_queue {
    queue_position taken;     // of the next message
    queue_position credited;  // up to which its source knows that we have taken messages out
    std::uint32_t* credit;    // where the source learns it; null until its connect message has come
    std::uint32_t world_rank; // of the source, then
    scope reach;              // who must see the credit
    std::uint32_t place;      // among the device's queues
    std::uint32_t follower;   // which queue the next message with the same tag came in
};

// Notifications of one tag. writer and reader: the rank; home: device memory, near ones in shared memory.
struct tag_record {
    std::uint32_t consumed; // by the program, less those that came as messages
    std::uint32_t counter;  // the counter's last known value
};

// What a rank waits for. writer: the rank, once a wait is long; reader: its host; home: device memory.
enum class waiting : std::uint32_t {
    no,
    notifications,
    collective,
    other_devices,
    member, // that another member of a communicator comes to a collective operation
    host_reply,
    flush, // that its puts have arrived over the network
    ring_space,
    delivery, // that a target takes messages out of its mailbox
    answer,   // that the result of an atomic operation comes over the network
    threads,  // in the constructor: that all threads of the rank call it; others may still compute before they do
    done,
};
// Words of 32 bits.
struct alignas(8) wait_record {
    waiting kind;
    operation where;         // the operation that waits
    std::uint32_t detail;    // tag, or the communicator of a collective operation, or the world rank waited for
    std::uint32_t expected;  // notifications waited for; or the world rank of the member
    std::uint32_t tags;      // any of so many, from `detail` on
    std::uint32_t seen;      // of these, arrived
    std::uint32_t epoch;     // number of long waits so far
    std::uint32_t heartbeat; // advances whenever the rank has polled again without success
    std::uint32_t source;    // of the last notification with this tag: its world rank + 1, or one of these
    std::uint32_t age_ms;    // for how long the host has seen this wait. In the host's copies only; writer: the host
    std::uint32_t since[2];  // in a profiled run: when the operation began, in ticks
};
inline constexpr std::uint32_t no_source = 0; // nobody has sent one
inline constexpr std::uint32_t unknown_source = UINT32_MAX;

struct command_ring {
    packet* slots;       // writers: the device's ranks; reader: the host; home: pinned host memory
    std::uint64_t* tail; // next ticket; writers: the device's ranks, by atomic addition; home: device memory
    std::uint32_t* head; // commands that the host has taken; writer: the host; readers: ranks; home: device memory

    // With a network, behind all slots: payload_slot_bytes for each, and as much as one message takes.
    DCUDA_HOST_DEVICE std::byte* payload(std::uint32_t ticket) const {
        auto* const all = reinterpret_cast<std::byte*>(slots + std::size_t(ring_capacity) * packets_per_command);
        return all + std::size_t(ticket % ring_capacity) * payload_slot_bytes;
    }
};

// What the delivery kernel on a GPU is to do, in the layout of commands: [0] kind, [1] local rank and [2] tag to
// notify, or no_tag, [3] bytes, [4..5] where; then, for a put, the payload, which goes on in the commands that follow;
// for a copy [6..7] the payload's address in host memory, also for rows ([8] bytes of each, [9..10] from one to the
// next) and for elements to combine ([8] as [3], [11] update_code); for a reply [6] the value; for a unit of an
// exchange [2] the last word of its packets, [6..11] the others; for an atomic operation [2] update_code, [3] where its
// result goes (delivery_task::results), [6..7] and [8..9] its values.
enum class delivery_kind : std::uint32_t { none, put, copy, rows, combine, packets, reply, update, stop };
inline constexpr std::uint32_t delivery_results = 1024;  // at a time
inline constexpr std::uint32_t delivery_capacity = 4096; // commands; a power of two
inline constexpr std::uint32_t first_delivery_bytes = 24;
inline constexpr std::uint32_t max_delivery_bytes = first_delivery_bytes + 7 * command_bytes; // what one poll takes
DCUDA_HOST_DEVICE constexpr std::uint32_t delivery_commands(std::uint32_t bytes) {
    return bytes <= first_delivery_bytes ? 1 : 1 + (bytes - first_delivery_bytes + command_bytes - 1) / command_bytes;
}
struct delivery_task {
    const packet* slots; // writer: the host; reader: the delivery kernel; home: pinned host memory
    std::uint32_t*
        done; // commands that are done; writer: the delivery kernel; reader: the host; home: pinned host memory
    std::uint32_t* started;  // 1: it runs; writer: the delivery kernel; reader: the host; home: pinned host memory
    std::uint32_t* counters; // of notifications, see peer_view
    std::uint64_t*
        results; // [delivery_results]; writer: the delivery kernel; reader: the host; home: pinned host memory
    std::uint32_t tags;
};

// What ranks and their host have with each other because some processes are reached over a network only.
struct network_view {
    std::uint32_t in_use;     // 1: there are such processes
    std::uint32_t ring_bytes; // puts up to this size take their payload through the command ring
    std::uint32_t*
        flushed; // [local rank]: number of its last flush that is complete; writer: the host; reader: the rank
    std::uint64_t* results;  // [local rank]: of its last atomic operation over the network; writer: the host, before
    std::uint32_t* answered; // [local rank]: number of that operation; writer: the host; reader: the rank
    std::uint32_t* met;      // [collective, of barriers]: twice the number of the last barrier of all processes, and
                             // 1 if messages were unread anywhere; writer: the host; reader: rank 0 of the device
};

// --- Observed runs: traced (DCUDA_TRACE), counted (DCUDA_STATS) or both --------------------------------------------

// What a profiled run writes among the events of operations, in the place of the operation.
enum class marker : std::uint32_t {
    range_begin = 0x80,
    range_end,
    clock, // both clocks of the device at one moment
};

// Which way a message went.
enum class event_path : std::uint32_t { none, local, peer, network };
inline constexpr std::uint32_t event_through_mailbox = 1u << 15; // beside the path, in trace_event::kind

// One operation of a rank. writer: the rank, at the operation's end; reader: the host, after the kernel; home: device
// memory, a ring for each rank.
struct alignas(32) trace_event {
    std::uint64_t begin;  // ticks
    std::uint32_t ticks;  // that it took, lower half
    std::uint32_t kind;   // bits 0-7: operation or marker, 8-14: event_path, 15: event_through_mailbox, 16-31: 16 more
                          // bits of the ticks
    std::uint32_t tag;    // or the communicator; clock, lower half; of a range's name the address, lower half
    std::uint32_t peer;   // target (world rank), or notifications waited for; clock, upper half; a range's number
    std::uint32_t bytes;  // lower half; of a range's name the address, upper half
    std::uint32_t window; // lower half of the id, and 16 more bits of `bytes`; length of a range's name, and
                          // range_numbered
};
inline constexpr std::uint32_t range_numbered = 1u << 16;
inline constexpr std::uint32_t most_name_bytes = 255;

// The two clocks of a device at one moment.
struct clock_pair {
    std::uint64_t ticks; // of the rank's multiprocessor
    std::uint64_t ns;    // of the device
};

struct path_counters {
    std::uint64_t puts, notified_puts, notifications; // operations
    std::uint64_t bytes;                              // of both kinds of puts
};

// How often an operation ended, and the time in it. Messages are counted by path instead.
struct operation_counters {
    std::uint64_t count, ticks;
};

// What a rank has done in this run. writer: the rank, with relaxed additions and stores; reader: the host, at any time;
// home: device memory.
struct alignas(64) rank_counters {
    path_counters local, peer, network;
    std::uint64_t through_mailbox; // of the notified puts and notifications those that went as messages
    operation_counters operations[operation_count];
    std::uint64_t ring_full_ticks;    // of the time in operations: waiting for space in the command ring,
    std::uint64_t mailbox_full_ticks; // or that a target takes messages out of its mailbox
    std::uint64_t mailbox_messages, mailbox_packets; // most that were under way in one queue, as its source knew
    std::uint64_t events;                            // written to the ring of events
    clock_pair first, last;                          // first and last sample of the clocks
};

// Where profiled runs leave what was seen. All null or 0 if the run is not profiled.
struct profiler_view {
    std::uint32_t traced;    // 1: events are written
    std::uint32_t capacity;  // of a rank's ring of events, a power of two
    trace_event* events;     // [local rank][capacity]
    rank_counters* counters; // [local rank]
};

// What the parts of a block have taken of it, where ranks are parts. writers, readers: warps, in the constructor of
// rank; home: device memory.
inline constexpr unsigned most_warps = 32; // of a block
enum part_outcome : std::uint32_t { part_incomplete, part_complete, part_left };
struct block_claims {
    std::uint32_t warps[most_warps];           // 1 + the part that the warp belongs to
    std::uint32_t barriers[hardware_barriers]; // 1 + the part that meets there
    std::uint32_t states_taken;                // how many parts have said which state is theirs,
    std::uint32_t states[most_warps];          // in that order: a number that stands for the state; 0: not yet
    std::uint32_t owners[most_warps];          // and the parts
    // By part:
    std::uint32_t calls[most_warps];    // threads that have said it,
    std::uint32_t shapes[most_warps];   // what the first of them said, shape_of_part; 0: not yet
    std::uint32_t arrived[most_warps];  // how many have found nothing wrong; upper half: have left after that
    std::uint32_t outcomes[most_warps]; // what became of it: part_outcome
};

// The tags that programs name, and the wire tags that notifications travel and are counted by. A tag is its own wire
// tag, but for the last ones, which are matched by source: each of them is a wire tag for every rank of the world,
// behind all tags. So a message need not say more, and queues, counters and waits are the same for both.
struct tag_numbers {
    std::uint32_t count;   // of tags
    std::uint32_t plain;   // of tags that are not matched by source: the first ones
    std::uint32_t sources; // ranks of the world

    DCUDA_HOST_DEVICE std::uint32_t wire_count() const { return count + (count - plain) * sources; }
    DCUDA_HOST_DEVICE std::uint32_t wire_tag(std::uint32_t tag, std::uint32_t source) const {
        return tag < plain ? tag : count + (tag - plain) * sources + source;
    }
    // Of a wire tag: whether it is one of a tag that is matched by source; that tag, or itself; and the source then.
    DCUDA_HOST_DEVICE bool has_source(std::uint32_t wire_tag) const { return wire_tag >= count; }
    DCUDA_HOST_DEVICE std::uint32_t tag_of(std::uint32_t wire_tag) const {
        return has_source(wire_tag) ? plain + (wire_tag - count) / sources : wire_tag;
    }
    DCUDA_HOST_DEVICE std::uint32_t source_of(std::uint32_t wire_tag) const { return (wire_tag - count) % sources; }
};
// "3", "254 from rank 17". For the host.
inline std::string name_of_tag(std::uint32_t wire_tag, const tag_numbers& tags) {
    const std::string tag = std::to_string(tags.tag_of(wire_tag));
    return tags.has_source(wire_tag) ? tag + " from rank " + std::to_string(tags.source_of(wire_tag)) : tag;
}
// Turns the wire tag in a rank's record into tag and source, if that is what it waits for. For the host.
inline void name_source(wait_record& wait, const tag_numbers& tags) {
    if (wait.kind != waiting::notifications || !tags.has_source(wait.detail)) return;
    wait.where = operation::wait_notifications_from;
    wait.source = tags.source_of(wait.detail) + 1;
    wait.detail = tags.tag_of(wait.detail);
}

// What a kernel finds through its context, and each rank keeps a copy of. writer: the host, before the launch; readers:
// all ranks; home: device memory.
struct device_context {
    std::uint32_t ranks_per_device; // the same on every device
    std::uint32_t process_index;
    std::uint32_t process_count;
    near_communicator communicators[communicator_count]; // world, device
    tag_numbers tags;
    std::uint32_t max_windows;
    std::uint32_t counter_start;   // what all numbers that wrap around start from: tests of that set it
    queue_shape queues;            // of mailboxes
    std::uint32_t queue_count;     // of the device
    std::uint32_t partner_limit;   // queues of a mailbox, and connections of a rank that have one
    std::uint32_t index_slots;     // of connection_index, a power of two
    std::uint32_t small_put_bytes; // notified puts up to this size are messages
    barrier_shape barriers;
    staging_shape staging;
    std::uint64_t wait_timeout_ns; // 0: none
    network_view network;
    const peer_view* peers;                  // [process]; without counters: reached over the network
    tag_record* tag_records;                 // [local rank * wire tags + wire tag]
    rank_connection* connections;            // [local rank][partner_limit]
    connection_slot* connection_index;       // [local rank][index_slots]
    inbound_queue* far_queues;               // [local rank][far_limit()]
    communicator_table* communicator_tables; // [local rank]; in a rank's own copy of this: its table
    wait_record* waits;                      // [local rank]
    collective_barrier* collective_barriers; // [collective]
    window_slot* windows;                    // [max_windows]
    window_entry* exports;  // [local rank]; writer: the rank in create_window; readers: who opens it, the host
    std::uint32_t* created; // [local rank]: id of the window just created; writer: who opens it; reader: the rank
    std::uint32_t* replies; // [local rank]: number of the last reply; writer: the host; reader: the rank that asked
    std::uint32_t* aborted; // 1: the run ends now; writers: host and ranks; readers: all ranks
    command_ring ring;
    profiler_view profiler;
    void* user_data;
    // Queues that a mailbox can have beside the near ones.
    DCUDA_HOST_DEVICE std::uint32_t far_limit() const {
        return partner_limit > near_queues ? partner_limit - near_queues : 0;
    }
#if DCUDA_BACKEND_CPU
    check::session* checker; // the process's own; null: this run is not checked
#endif
};

// The same, and what only the constructors of ranks need.
struct kernel_context : device_context {
    std::uint32_t ranks_per_block;
    block_claims* claims; // [block], where ranks are parts of one
};

// What kernels of a program and the library must agree on: version, and the records above by their sizes.
constexpr std::uint64_t fingerprint_of(std::initializer_list<std::size_t> numbers) {
    std::uint64_t result = 14695981039346656037u; // FNV-1a
    for (const std::size_t number : numbers) result = (result ^ number) * 1099511628211u;
    return result;
}
inline constexpr std::uint64_t fingerprint = fingerprint_of(
    {DCUDA_VERSION_MAJOR,     DCUDA_VERSION_MINOR,         DCUDA_VERSION_PATCH,        sizeof(window_entry),
     sizeof(window_slot),     sizeof(communicator_record), sizeof(collective_barrier), sizeof(barrier_shape),
     sizeof(queue_shape),     sizeof(mailbox_status),      sizeof(mailbox_header),     sizeof(peer_view),
     sizeof(rank_connection), sizeof(inbound_queue),       sizeof(tag_record),         sizeof(wait_record),
     sizeof(command),         sizeof(command_ring),        sizeof(delivery_task),      sizeof(network_view),
     sizeof(trace_event),     sizeof(rank_counters),       sizeof(profiler_view),      sizeof(kernel_context),
     sizeof(split_entry),     sizeof(exchange_memory),     sizeof(communicator_table), sizeof(block_claims)});

// The library defines it for the fingerprint of its own headers: a program that was compiled with others does not link,
// instead of hanging when it runs. Programs refer to it in device.hpp.
template <std::uint64_t Fingerprint>
void this_program_was_compiled_with_headers_of_another_dcuda();

} // namespace dcuda::detail
