// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Types that host and device code share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dcuda/config.hpp"

/// The C++ interface.
namespace dcuda {

/// A set of ranks, which have numbers in it from 0. A rank is a thread block of the running kernel, or a part of one.
/// The communicators below exist in every run. rank::split makes others; the value that names such a communicator means
/// something to its members only.
enum class communicator : int {
    none = -1,  ///< no ranks
    world = 0,  ///< all ranks of all devices
    device = 1, ///< the ranks of the calling rank's device
    node = 2,   ///< the ranks of the calling rank's host
};
/// Short for `communicator::none`.
inline constexpr communicator none = communicator::none;
/// Short for `communicator::world`.
inline constexpr communicator world = communicator::world;
/// Short for `communicator::device`.
inline constexpr communicator device = communicator::device;
/// Short for `communicator::node`.
inline constexpr communicator node = communicator::node;

/// Which threads of a block are a rank, where a block has several (launch_config::ranks_per_block): consecutive whole
/// warps. Parts of a block do not overlap; they may differ in size, and need not cover the block.
struct part {
    unsigned index = 0;        ///< of the rank among those of its block
    unsigned first_thread = 0; ///< a multiple of 32
    unsigned threads = 0;      ///< a multiple of 32, at least 32
    /// The hardware barrier that the rank's threads meet at, and nobody else: 1 to 15. 0: index + 1. A rank that is one
    /// warp needs none.
    unsigned barrier = 0;
};

/// How puts come into a window.
enum class window_kind : int {
    /// A small put with a notification may lie in the target's mailbox until the target calls the library. The fastest.
    usual = 0,
    /// The puts of a rank come into the window in the order of issue, and wait for no call of the target. For windows
    /// whose memory the target polls, or that overlap other direct windows.
    direct = 1,
};

/// A handle to memory that the ranks of a communicator opened for puts: rank::create_window. A plain value, the same on
/// all threads of a rank. One that a kernel creates means something to the rank that created it alone; one of the host
/// is the same for all ranks of all processes. A default-constructed window is none.
struct window {
    std::uint32_t id = 0; ///< 0: none. What other numbers mean only the library knows

    /// Whether there is a window. Any thread may ask.
    DCUDA_HOST_DEVICE explicit operator bool() const { return id != 0; }
    /// Whether both are the same window of this rank. Any thread may ask.
    DCUDA_HOST_DEVICE friend bool operator==(window a, window b) { return a.id == b.id; }
    /// Whether they are not the same. Any thread may ask.
    DCUDA_HOST_DEVICE friend bool operator!=(window a, window b) { return a.id != b.id; }
};

/// A window whose places and sizes count elements of one type: rank::create_typed_window. A plain value like the window
/// in it. Both ends use the same type; nobody looks after that.
template <class Element>
struct typed_window {
    window bytes; ///< the same window, for operations that count bytes

    /// Whether there is a window. Any thread may ask.
    DCUDA_HOST_DEVICE explicit operator bool() const { return static_cast<bool>(bytes); }
    /// Whether both are the same window of this rank. Any thread may ask.
    DCUDA_HOST_DEVICE friend bool operator==(typed_window a, typed_window b) { return a.bytes == b.bytes; }
};

/// Rows of one length, and slices of so many rows: what a put or a get moves if it is not contiguous. A column of a
/// matrix is a box of many rows of one element each.
struct box {
    std::size_t width_bytes; ///< of a row
    std::size_t height = 1;  ///< rows of a slice
    std::size_t depth = 1;   ///< slices
};

/// How far apart the rows and the slices of a box lie in memory, from the beginning of one to the beginning of the
/// next. No two rows overlap: either each slice begins behind the rows of the one before, or each row begins behind the
/// rows with the number before it in all slices. If the two ends use different layouts, a put transposes.
struct pitch {
    std::size_t row_bytes;       ///< of no meaning if a slice has one row
    std::size_t slice_bytes = 0; ///< of no meaning if there is one slice
};

/// So many notifications with a tag: rank::wait_all.
struct tag_count {
    int tag;   ///< from 0 to options::tags - 1
    int count; ///< 0 or more
};

/// An allreduce of a value that has been started: what rank::start_allreduce returns, for rank::finish_allreduce. A
/// plain value; each thread keeps its own.
template <class T, class Op>
struct started_value {
    communicator comm; ///< where
    T value;           ///< of this member
    Op op;             ///< that combines
    unsigned start;    ///< number of the start: each is finished once
};
/// The same of an array.
template <class T, class Op>
struct started_array {
    communicator comm; ///< where
    T* out;            ///< for the results
    const T* in;       ///< of this member
    std::size_t count; ///< elements
    Op op;             ///< that combines
    unsigned start;    ///< number of the start: each is finished once
};

namespace detail {
struct put_queue;
struct queue_turns;
} // namespace detail

/// How the host makes a put for a kernel. A part of put_trigger; the fields are the library's.
struct host_path {
    detail::put_queue* queue = nullptr;   ///< null: the kernel makes it
    detail::queue_turns* turns = nullptr; ///< of the kernels that use the queue
    const std::uint32_t* ended = nullptr; ///< 1: the port has failed, and nothing takes what is in the queue
    std::uint64_t place = 0;              ///< where the data goes, as the target addresses it
    std::uint32_t tag = 0;                ///< of the notification
};

/// A notified put that kernels make when they have what it sends: stream_port::prepare_put_notify makes it, and
/// dcuda::trigger in a kernel starts it, again and again. A plain value, to be passed to kernels of its process.
struct put_trigger {
    /// Where the data goes, as this process's device addresses it; null if the process is reached over a network only.
    std::byte* target = nullptr;
    const std::byte* source = nullptr; ///< where it comes from
    std::size_t bytes = 0;             ///< how much
    std::uint32_t* counter = nullptr;  ///< the library's: notifications of this process with the tag, at the target
    std::uint32_t* doorbell = nullptr; ///< the library's: wakes who waits, on the CPU backend
    host_path by_host{};               ///< the library's: the way to a process that is reached over a network only
};

/// Notifications that kernels wait for: stream_port::prepare_wait makes it, dcuda::await and dcuda::consume in a kernel
/// take it, again and again. A plain value, to be passed to kernels of its process. The fields are the library's.
struct wait_trigger {
    const std::uint32_t* arrived =
        nullptr;                       ///< notifications from the first sender; the next one's are `stride` words on
    std::uint32_t senders = 0;         ///< whose notifications count
    std::uint32_t stride = 0;          ///< words from one sender to the next
    std::uint32_t count = 0;           ///< notifications that are waited for
    std::uint32_t* consumed = nullptr; ///< so many were waited for before
    const std::uint32_t* doorbell = nullptr; ///< is rung when one arrives, on the CPU backend
    const std::uint32_t* ended = nullptr;    ///< 1: the port has failed, and no wait lasts any longer
    std::uint64_t* wanted = nullptr;         ///< for the host: what a wait that lasts is waiting for
};

/// Where the ranks of this process are in the job.
struct rank_info {
    int rank_count;       ///< ranks in the job
    int rank_responsible; ///< ranks on this process's device
    int rank_start;       ///< world rank of the first of them
    int device_count;     ///< devices in use on this node
    int device_index;     ///< this process's device among them
    int node_count;       ///< hosts of the job
    int node_index;       ///< this process's host among them, from 0
    int process_count;    ///< one process per device
    int process_index;    ///< this process among them, from 0
};

} // namespace dcuda
