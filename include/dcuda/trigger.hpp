// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Short kernels that communicate: kernels of the program, launched as always, put and wait by what a stream_port has
/// prepared. They need no rank, and their blocks need not all be on the device at a time.
#pragma once

#include "dcuda/detail/exec/exec.hpp"
#include "dcuda/detail/protocol/atomics.hpp"
#include "dcuda/detail/protocol/memory.hpp"
#include "dcuda/detail/stream/put_by_host.hpp"
#include "dcuda/detail/stream/wanted_word.hpp"
#include "dcuda/types.hpp"

namespace dcuda {

namespace detail {

// One thread. ORDER notify-publish: what the caller has stored, and what it has seen of others, comes before the
// notification. In a stream, work before the kernel comes before all that the kernel does.
DCUDA_DEVICE void add_notification(const put_trigger& put) {
    if (put.counter == nullptr) return;
    add_release<order_tag::notify_publish>(scope::system, put.counter, 1u);
    ring_doorbell(put.doorbell);
}

// The threads of one warp, all 32 of them.
struct calling_warp {
    DCUDA_DEVICE unsigned thread() const { return exec::thread_index() % 32; }
    DCUDA_DEVICE unsigned threads() const { return 32; }
    DCUDA_DEVICE bool leads() const { return thread() == 0; }
    DCUDA_DEVICE void sync() const { __syncwarp(); }
};

// All threads of the block.
#if DCUDA_BACKEND_CUDA
DCUDA_DEVICE exec::numbered_block calling_block() { return {exec::thread_index()}; }
#else
inline exec::whole_block calling_block() { return {}; }
#endif

// All threads of the group. The first barrier: what they have stored is there to be sent.
template <class Group>
DCUDA_DEVICE void put_to_mapped(const Group& group, const put_trigger& put) {
    group.sync();
    exec::copy_bytes(group, put.target, put.source, put.bytes);
    group.sync();
    if (group.leads()) add_notification(put);
}
template <class Group>
DCUDA_DEVICE void put_and_notify(const Group& group, const put_trigger& put) {
    if (put.by_host.queue == nullptr) return put_to_mapped(group, put);
    group.sync();
    if (group.leads()) exec::far(put_read_by_host)(put.by_host, put.source, put.bytes);
    group.sync();
}

// Notifications so far. Relaxed.
DCUDA_DEVICE std::uint32_t count_arrived(const wait_trigger& wait) {
    std::uint32_t sum = 0;
    for (std::uint32_t i = 0; i < wait.senders; ++i) sum += load_relaxed(wait.arrived + std::size_t(i) * wait.stride);
    return sum;
}

// The host is told of a wait that lasts, by its word (wanted_word). Of several for the same it is told of the one whose
// turn it is.
DCUDA_DEVICE void tell_of_wait(std::uint64_t* wanted, std::uint64_t own) {
    const std::uint64_t told = load_relaxed(wanted);
    if (told == 0 || !has_come(wanted_number(own), wanted_number(told))) store_relaxed(wanted, own);
}
DCUDA_DEVICE void forget_wait(std::uint64_t* wanted, std::uint64_t own) {
    if (load_relaxed(wanted) == own) store_relaxed(wanted, std::uint64_t{0});
}

// A wait that lasts looks at the host's memory, and tells the host of itself, once in so many of its looks.
// PERF: that memory is far, and takes one access of a device after the other: when 300 blocks looked at it 40 us after
// they had begun to wait, all of them waited for a millisecond more (two H200, 2026-11-29). So blocks take turns.
inline constexpr unsigned looks_of_a_turn = DCUDA_BACKEND_CPU ? 1 : 64;

// One thread. Returns when as many notifications as `expected` have come since the port was made. A wait that the host
// ends does not return: what follows it would use data that has not come.
// ORDER notify-observe: what was put before the notifications is seen by what the thread does next.
DCUDA_DEVICE void await_notifications(const wait_trigger& wait, std::uint32_t expected) {
    const std::uint64_t own = wanted_word(wait.count, expected);
    unsigned looks = exec::block_index();
    bool has_told = false;
    const auto look = [&](unsigned) {
        return has_come(count_arrived(wait), expected) ? poll_result::all : poll_result::nothing;
    };
    const auto keep_polling = [&] {
        if (looks++ % looks_of_a_turn != 0) return true;
        tell_of_wait(wait.wanted, own);
        has_told = true;
        return load_relaxed(wait.ended) == 0;
    };
    if (!poll_until(look, keep_polling, wait.doorbell)) __trap();
    acquire_after_all<order_tag::notify_observe>(scope::system, wait.arrived, wait.senders, wait.stride);
    if (has_told) forget_wait(wait.wanted, own);
}

} // namespace detail

/// Makes the put, and notifies its target when the data is there. Called by one warp, by all of its threads. It sends
/// what these threads have stored before, and what others have stored whose work they have seen to be done (roles).
/// Never waits for another process, unless that is reached over a network: then it waits until this process's host has
/// read the source, which it does when the network has taken what was put before. On return the source may be changed.
DCUDA_DEVICE void trigger(const put_trigger& put) { detail::put_and_notify(detail::calling_warp{}, put); }

/// The same, called by all threads of a block, which share the copy: for puts of more than some KiB. Over a network the
/// host's copy engine makes it.
DCUDA_DEVICE void trigger_by_block(const put_trigger& put) { detail::put_and_notify(detail::calling_block(), put); }

/// Notifies the target and puts nothing: for kernels whose threads have stored into put.target themselves, if it is not
/// null. Called by one thread, after a barrier with the others.
DCUDA_DEVICE void notify(const put_trigger& put) {
    if (put.by_host.queue != nullptr) return detail::exec::far(detail::put_read_by_host)(put.by_host, nullptr, 0);
    detail::add_notification(put);
}

/// Waits until the notifications are there. Called by one warp, by all of its threads, which see what was put before
/// them; after a barrier the rest of the block sees it, too. Takes nothing: any number of blocks may wait for the same
/// notifications, and consume() takes them. If the port fails meanwhile (a process is lost, wait_timeout), the kernel
/// ends with an error, for its stream and all that follows; the port's functions throw the reason.
DCUDA_DEVICE void await(const wait_trigger& wait) {
    if (detail::calling_warp{}.leads())
        detail::await_notifications(wait, detail::load_relaxed(wait.consumed) + wait.count);
    __syncwarp();
}

/// Takes the notifications, so that the next wait is for those behind them. Called by one thread, after await() in all
/// blocks that wait for them has returned: by the last of them (roles::finish), or by the only one.
DCUDA_DEVICE void consume(const wait_trigger& wait) { detail::fetch_add_relaxed(wait.consumed, wait.count); }

/// What blocks that take roles count in: device memory, 0 before the first kernel that uses it; each kernel leaves it 0
/// again. One kernel at a time.
struct role_words {
    static constexpr unsigned most_roles = 8; ///< that a kernel can have
    std::uint32_t started;                    ///< blocks
    std::uint32_t finished;                   ///< blocks, of all roles
    std::uint32_t finished_of[most_roles];    ///< blocks, by role
};

/// Roles that blocks of a kernel take when they start. A GPU starts blocks in no certain order, and not all at a time:
/// so block numbers must not say who sends and who waits, or those who wait may fill the GPU before those who send have
/// started. The blocks that start first take the first role. Let roles that wait come last.
///
/// The kernel has as many blocks as all roles together. Role r has blocks[r] blocks.
template <unsigned Roles>
class roles {
    static_assert(Roles >= 1 && Roles <= role_words::most_roles);

public:
    /// Takes a role. Called by all threads of the block.
    DCUDA_DEVICE roles(role_words* words, const unsigned (&blocks)[Roles]) : words_(words) {
        __shared__ unsigned number;
        if (detail::exec::thread_index() == 0) number = detail::fetch_add_relaxed(&words->started, std::uint32_t{1});
        detail::exec::sync_block();
        index_ = number;
        for (unsigned each = 0; each < Roles; ++each) all_ += blocks[each];
        while (role_ + 1 < Roles && index_ >= blocks[role_]) index_ -= blocks[role_++];
        blocks_ = blocks[role_];
    }

    /// The block's role, from 0.
    DCUDA_DEVICE unsigned role() const { return role_; }
    /// The block's number among those of its role, from 0.
    DCUDA_DEVICE unsigned index() const { return index_; }

    /// Says that the block has done what its role asks for. Called by all threads of the block, once, in every block of
    /// the kernel. True for the last block of the role: it sees what the others have stored before they called this.
    DCUDA_DEVICE bool finish() {
        using namespace detail;
        __shared__ unsigned is_last;
        exec::sync_block();
        if (exec::thread_index() == 0) {
            // ORDER collective-arrive: what all threads of the block did, by the barrier, comes before the addition;
            // who adds last sees it.
            const std::uint32_t before =
                fetch_add_acq_rel<order_tag::collective_arrive>(&words_->finished_of[role_], 1);
            is_last = before + 1 == blocks_ ? 1 : 0;
            // The last block of the kernel: nobody else uses the words.
            if (fetch_add_acq_rel<order_tag::collective_arrive>(&words_->finished, 1) + 1 == all_) {
                for (unsigned each = 0; each < Roles; ++each) store_relaxed(&words_->finished_of[each], 0);
                store_relaxed(&words_->started, 0);
                store_relaxed(&words_->finished, 0);
            }
        }
        exec::sync_block();
        return is_last != 0;
    }

private:
    role_words* words_;
    unsigned role_ = 0, index_ = 0;
    unsigned blocks_ = 0; // of this role
    unsigned all_ = 0;    // of the kernel
};

} // namespace dcuda
