// Every record that the device, its host and other devices share. Each field says who writes it, who reads it and
// where it lives.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dcuda/detail/memory.hpp"

namespace dcuda::detail {

inline constexpr int default_tags = 256;
inline constexpr int max_tags = 65536;
inline constexpr int default_max_windows = 64;
inline constexpr int max_max_windows = 32768;

// What one rank offers for puts. writer: the rank, then its host; readers: ranks that put; home: device memory.
// `base` is valid on the device that holds the entry.
struct window_entry {
    std::byte* base;
    std::uint64_t bytes;
};

// A window as one device sees it. writer: the last rank to arrive in create_window or free_window, or the host in
// between; readers: the device's ranks; home: device memory.
struct window_slot {
    window_entry* entries; // one per rank of the communicator; allocated once by the host
    std::uint32_t id;      // 0: free. Low 16 bits: slot number + 1; high 16 bits: how often the slot was used
    std::uint32_t comm;
    std::uint32_t rank_count;
    std::uint32_t uses;
};

// The collective operations of a device's ranks. Each has its own words, so that ranks that meet in different ones
// wait (and the watchdog names both) instead of taking each other for partners.
enum class collective : std::uint32_t {
    init,
    finish,
    barrier_world,
    barrier_device,
    create_window,
    free_window,
    start_timer,
    stop_timer,
    count,
};

// Meeting point of a device's ranks. home: device memory, a cache line each.
struct alignas(128) meeting {
    std::uint32_t arrived;    // writers: all ranks of the device, by atomic addition; the last resets it
    std::uint32_t generation; // writer: the last rank to arrive; readers: the device's ranks
};

// Where a device's notifications and barrier epochs arrive. home: the device's memory, mapped by peers ("the inbox").
// Layout: inbox_header, then one epoch word per process, then counters[rank][tag].
struct peer_view {
    std::uint32_t*
        counters; // [local rank * tags + tag]; writers: local and peer ranks, by atomic addition; reader: the rank
    std::uint32_t*
        epochs; // [process * epoch_stride]; writer: the last rank of that process; reader: the last rank here
};
inline constexpr std::size_t epoch_stride = 32; // words; a cache line per writer

// What a rank waits for. writer: the rank, once a wait is long; reader: the host's watchdog; home: device memory.
enum class waiting : std::uint32_t { no, notifications, collective, other_devices, host_reply, ring_space, done };
struct alignas(32) wait_record {
    std::uint32_t what;      // a `waiting`
    std::uint32_t detail;    // tag, or a `collective`, or the process waited for
    std::uint32_t expected;  // notifications waited for
    std::uint32_t seen;      // of these, arrived
    std::uint32_t epoch;     // number of long waits so far
    std::uint32_t heartbeat; // advances whenever the rank has looked again in vain
    std::uint32_t unused[2];
};

// A command of a rank to its host: twelve words in four packets. home: pinned host memory.
enum class opcode : std::uint32_t { none, fault, create_window, windows_full, start_timer, stop_timer, log };
inline constexpr std::size_t command_words = 12;
inline constexpr std::size_t packets_per_command = 4;
struct command {
    std::uint32_t words[command_words]; // [0] opcode, [1] rank on its device, the rest by opcode
};
inline constexpr std::uint32_t ring_capacity = 8192; // commands; a power of two, so that tickets may wrap around

// Words 2.. of a log command: [2] kind, [3] bytes, [4..11] content.
enum class log_item : std::uint32_t { text, integer, unsigned_integer, real, character, pointer, end };
inline constexpr std::uint32_t log_text_bytes = 32;

// Words 2.. of a fault: [2] kind, [3] operation, [4] window, [5] target, [6..7] offset, [8..9] bytes or
// expected/seen, [10..11] limit.
enum class fault : std::uint32_t { none, bounds, rank, tag, window, count, communicator, memory, timeout };
enum class operation : std::uint32_t {
    none,
    put,
    put_notify,
    notify,
    wait_notifications,
    test_notifications,
    flush,
    create_window,
    free_window,
    collective,
};

struct command_ring {
    packet* slots;       // writers: the device's ranks; reader: the host; home: pinned host memory
    std::uint32_t* tail; // next ticket; writers: the device's ranks, by atomic addition; home: device memory
    std::uint32_t* head; // commands that the host has taken; writer: the host; readers: ranks; home: device memory
};

// What a kernel finds through its context. writer: the host, before the launch; readers: all ranks; home: device
// memory.
struct device_context {
    std::uint32_t world_size;
    std::uint32_t ranks_per_device; // the same on every device
    std::uint32_t first_rank;       // world rank of block 0
    std::uint32_t process_index;
    std::uint32_t process_count;
    std::uint32_t tags;
    std::uint32_t max_windows;
    std::uint32_t counter_start;   // what notification counters start from: tests of wrap-around set it
    std::uint64_t wait_timeout_ns; // 0: none
    const peer_view* peers;        // [process]
    std::uint32_t* consumed;       // [local rank * tags + tag]; writer and reader: the rank
    wait_record* waits;            // [local rank]
    meeting* meetings;             // [collective]
    window_slot* windows;          // [max_windows]
    window_entry* offers;          // [local rank]; writer: the rank in create_window; readers: the last rank, the host
    std::uint32_t* created;        // id of the window just created; writer: the last rank; readers: all ranks
    std::uint32_t* reply;          // number of the last reply; writer: the host; reader: the rank that asked
    std::uint32_t* aborted;        // 1: the run ends now; writers: host and ranks; readers: all ranks
    command_ring ring;
    void* user_data;
};

} // namespace dcuda::detail
