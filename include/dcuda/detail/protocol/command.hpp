// SPDX-License-Identifier: BSD-3-Clause
// Commands of a rank to its host, through the device's ring of commands: twelve words in four packets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dcuda/detail/exec/launch.hpp"
#include "dcuda/detail/protocol/operation.hpp"

namespace dcuda::detail {

enum class opcode : std::uint32_t {
    none,
    fault,
    create_window,
    windows_full,
    start_timer,
    stop_timer,
    log,
    send,
    exchange,
    update,
    rows,
    get,
    flush,
    barrier,
    clock,
    unconsumed,
};

inline constexpr std::size_t command_words = 12;
inline constexpr std::size_t packets_per_command = 4;
inline constexpr std::uint32_t command_bytes = command_words * sizeof(std::uint32_t);
inline constexpr std::uint32_t ring_capacity = 16384; // commands; a power of two, so that tickets may wrap around

// As it lies in the ring: its head, and the fields of one of the records below.
struct alignas(8) command {
    opcode code;
    std::uint32_t rank; // on its device
    std::uint32_t fields[command_words - 2];
};
static_assert(sizeof(command) == command_bytes);

// --- The fields of each command -------------------------------------------------------------------------------------
// They follow a head of 8 bytes, so 64-bit fields are aligned there as they are here.

enum class fault : std::uint32_t {
    none,
    bounds,
    alignment, // offset, bytes: of an element
    pitch,     // of a box; offset: that it has, bytes: that it needs, limit: 1 of slices, 0 of rows
    rank,
    tag,
    tag_range,   // offset: how many tags, from `target` on
    matched_tag, // offset: the tag, which is matched by source
    plain_tag,   // offset: the tag, which is not
    window,
    host_window,
    count,
    communicator,
    window_member,      // the rank is not in the window's communicator (any more)
    windows_left,       // a communicator that is freed still has windows
    fixed_communicator, // those are never freed
    communicators,      // a rank is in as many as it can be in
    too_many_members,   // for by_rank, or for bounce buffers; offset: members
    overlap,            // offset: where the results go
    root,               // target: that is none; offset: members
    other_count,        // target: number of the member, offset: how many it brings, limit: how many are expected
    started,            // target: a communicator with an operation that has been started, and not finished
    not_started,        // target: one without
    other_collective,   // of a member: target: its world rank, window: the communicator, bytes: its operation
    late_process,       // target: world rank of a member whose process is none of the first exchange_processes
    memory,
    local_memory, // offset: its address
    destination,  // of a get over the network, which is no global memory; offset: its address
    part,         // of a block: target: a part_problem, the other fields: what it says
    timeout,
    protocol
};

// What is wrong with a rank that is a part of a block.
enum class part_problem : std::uint32_t {
    none,
    kernel,  // it was compiled without parts
    checked, // the run is checked, and the checker does not follow parts
    whole,   // a rank is the whole block; limit: there shall be so many ranks of a block
    index,   // offset: it is that; limit: as before
    warps,   // offset, bytes: its first thread and how many there are, as in what follows; not whole warps
    block,   // limit: threads of the block
    thread,  // limit: the thread that calls, which is none of them
    barrier, // limit: the barrier
    taken,   // limit: the barrier, which another part meets at
    overlap, // limit: the part to which a warp of it belongs, too
    shape,   // another call says the same index, and another part
    state    // limit: the part that has the same dcuda::state
};

// A rank broke a rule, or its bound on waits was reached: the run ends.
struct fault_fields {
    static constexpr opcode code = opcode::fault;
    fault kind;
    operation where;
    std::uint32_t window; // its id; of a timeout: a `waiting`
    std::uint32_t target; // world rank, tag or communicator; of a timeout: wait_record::detail
    std::uint64_t offset; // in the window; of a timeout: what has come
    std::uint64_t bytes;  // of a timeout: what was waited for
    std::uint64_t limit;  // that was exceeded
};

// To open the window in this slot with the ranks of the other processes that are in the communicator.
struct create_window_fields {
    static constexpr opcode code = opcode::create_window;
    std::uint32_t slot; // or max_windows
    std::uint32_t comm;
};
// That there is no slot for a window.
struct windows_full_fields {
    static constexpr opcode code = opcode::windows_full;
    std::uint64_t bytes; // of the window that was asked for
};

struct start_timer_fields {
    static constexpr opcode code = opcode::start_timer;
    std::uint64_t now_ns; // on the device's clock
};
struct stop_timer_fields {
    static constexpr opcode code = opcode::stop_timer;
    std::uint64_t now_ns;
};

// A part of a line that a rank logs.
enum class log_item : std::uint32_t { text, integer, unsigned_integer, real, character, pointer, end };
inline constexpr std::uint32_t log_text_bytes = 32;
struct log_fields {
    static constexpr opcode code = opcode::log;
    log_item kind;
    std::uint32_t bytes;
    alignas(8) std::byte content[log_text_bytes];
};

// A put or a notification over the network. Its payload: a little of it in packets, the first bytes in `payload`, the
// others in the commands that follow; more of it where the ring's payload has the place of this command and those that
// follow; or its address in `payload`, from which the host reads it.
struct send_fields {
    static constexpr opcode code = opcode::send;
    std::uint32_t target;  // world rank
    std::uint32_t tag;     // or no_tag
    std::uint64_t address; // of the payload, as the target addresses it
    std::uint32_t bytes;
    std::uint32_t more_bytes; // upper half; or in_ring
    std::uint32_t payload[4];
};
inline constexpr std::uint32_t no_tag = UINT32_MAX;
inline constexpr std::uint32_t in_ring = UINT32_MAX;
inline constexpr std::uint32_t first_ring_bytes = 16;
inline constexpr std::uint32_t max_packet_bytes =
    first_ring_bytes + 15 * command_bytes;              // two for each thread of a warp
inline constexpr std::uint32_t payload_slot_bytes = 64; // of each command
inline constexpr std::uint32_t max_ring_bytes = 32768;
DCUDA_HOST_DEVICE constexpr std::uint32_t slots_for(std::uint32_t ring_bytes) {
    return (ring_bytes + payload_slot_bytes - 1) / payload_slot_bytes;
}
DCUDA_HOST_DEVICE constexpr std::uint32_t commands_for(std::uint32_t ring_bytes) {
    if (ring_bytes > max_packet_bytes) return slots_for(ring_bytes);
    return ring_bytes <= first_ring_bytes ? 1 : 1 + (ring_bytes - first_ring_bytes + command_bytes - 1) / command_bytes;
}

// A unit of an exchange for a member that is reached over a network (communicator.hpp). The member's host stores its
// two packets.
struct exchange_fields {
    static constexpr opcode code = opcode::exchange;
    std::uint32_t target;  // world rank
    std::uint32_t word;    // the last one of both packets
    std::uint64_t address; // of the first, as the target addresses it
    std::uint32_t values[6];
};

// An atomic operation on an element of a window that is reached over the network.
struct update_fields {
    static constexpr opcode code = opcode::update;
    std::uint32_t target;   // world rank
    std::uint32_t update;   // update_code
    std::uint64_t address;  // of the element, as the target addresses it
    std::uint64_t operand;  // bits
    std::uint64_t expected; // bits
    std::uint32_t answer;   // number of the answer that the rank waits for, or no_answer
};
inline constexpr std::uint32_t no_answer = UINT32_MAX;

// Rows of a box that is put over the network, or elements of an accumulate: `bytes` bytes, which lie one row after the
// other where the ring's payload has the place of this command and those that follow.
struct rows_fields {
    static constexpr opcode code = opcode::rows;
    std::uint32_t target;   // world rank
    std::uint32_t update;   // update_code, or no_update: they are stored
    std::uint64_t address;  // of the first row, as the target addresses it
    std::uint64_t distance; // from row to row there
    std::uint32_t width;    // bytes of a row
    std::uint32_t bytes;
};
inline constexpr std::uint32_t no_update = UINT32_MAX;

// A get from a window that is reached over the network.
struct get_fields {
    static constexpr opcode code = opcode::get;
    std::uint32_t target;  // world rank
    std::uint32_t tag;     // of the notification that the target gets then, or no_tag
    std::uint64_t address; // as the target addresses it
    std::uint64_t bytes;
    std::uint64_t destination; // in this device's memory
};

// To say when all that the rank has sent over the network has arrived, and all that it gets is there.
struct flush_fields {
    static constexpr opcode code = opcode::flush;
    std::uint32_t number; // of this rank's flush
};

// That all ranks of the device have come to a barrier of the world, which the processes meet for.
struct barrier_fields {
    static constexpr opcode code = opcode::barrier;
    std::uint32_t number;
    std::uint32_t place;  // collective::index()
    std::uint32_t unread; // 1: messages are unread
};

// Of a profiled run.
struct clock_fields {
    static constexpr opcode code = opcode::clock;
    std::uint64_t now_ns; // the device's clock when the command was sent
};

// At its end the rank has not waited for so many notifications with a tag.
struct unconsumed_fields {
    static constexpr opcode code = opcode::unconsumed;
    std::uint32_t count, tag;
    std::uint32_t tags; // of how many tags there are some; `tag` is the first
};

template <class Fields>
DCUDA_HOST_DEVICE command make_command(std::uint32_t rank, const Fields& fields) {
    static_assert(sizeof(Fields) <= sizeof(command::fields) && alignof(Fields) <= alignof(command));
    command result{Fields::code, rank, {}};
    __builtin_memcpy(result.fields, &fields, sizeof fields);
    return result;
}

// The fields of a command that is one of these.
template <class Fields>
Fields fields_of(const command& from) {
    Fields fields;
    __builtin_memcpy(&fields, from.fields, sizeof fields);
    return fields;
}

// How many places of the ring a command takes, with its payload; and whether that lies in the ring's payload.
struct command_extent {
    std::uint32_t places;
    bool has_ring_payload;
};
inline command_extent extent_of(const command& cmd) {
    if (cmd.code == opcode::rows) return {slots_for(fields_of<rows_fields>(cmd).bytes), true}; // never of 0 bytes
    if (cmd.code != opcode::send) return {1, false};
    const auto sent = fields_of<send_fields>(cmd);
    const std::uint32_t bytes = sent.more_bytes == in_ring ? sent.bytes : 0;
    return {commands_for(bytes), bytes > max_packet_bytes};
}

} // namespace dcuda::detail
