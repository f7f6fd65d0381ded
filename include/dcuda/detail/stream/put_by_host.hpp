// SPDX-License-Identifier: BSD-3-Clause
// How kernels that are no ranks fill a queue in turns, and give their host puts and gets (put_queue.hpp).
#pragma once

#include "dcuda/detail/exec/exec.hpp"
#include "dcuda/detail/protocol/command.hpp"
#include "dcuda/detail/protocol/memory.hpp"
#include "dcuda/detail/stream/put_queue.hpp"
#include "dcuda/types.hpp"

namespace dcuda::detail {

// Numbers wrap around: fewer than 2^31 of what is counted are ever outstanding.
DCUDA_DEVICE bool has_come(std::uint32_t arrived, std::uint32_t expected) {
    return static_cast<std::int32_t>(arrived - expected) >= 0;
}

// The pieces that so many bytes take; 0 bytes take one.
DCUDA_DEVICE std::uint32_t pieces_of(std::size_t bytes, std::size_t slot_bytes) {
    return bytes == 0 ? 1 : static_cast<std::uint32_t>((bytes - 1) / slot_bytes + 1);
}

// One thread. Waits until the kernels before have done with this end of a queue; the kernel ends if the port has ended.
// Returns the turn. ORDER queue-reuse: the number of the next piece is the one that the kernel before has left.
DCUDA_COLD std::uint32_t begin_turn(queue_turns& turns, const std::uint32_t* port_ended) {
    const std::uint32_t turn = fetch_add_relaxed(&turns.begun, std::uint32_t{1});
    const auto is_next = [=](std::uint32_t ended) { return ended == turn; };
    const auto keep_polling = [=](std::uint32_t) { return load_relaxed(port_ended) == 0; };
    if (!poll<order_tag::queue_reuse>(scope::device, &turns.ended, is_next, keep_polling)) __trap();
    return turn;
}

// One thread, when all have done. ORDER queue-free.
DCUDA_DEVICE void end_turn(queue_turns& turns, std::uint32_t turn, std::uint32_t next_piece) {
    store_relaxed(&turns.next, next_piece);
    store_release<order_tag::queue_free>(scope::device, &turns.ended, turn + 1);
}

// The calling thread alone.
struct calling_thread {
    DCUDA_DEVICE unsigned thread() const { return 0; }
    DCUDA_DEVICE unsigned threads() const { return 1; }
    DCUDA_DEVICE bool leads() const { return true; }
    DCUDA_DEVICE void sync() const {}
};

// One thread. Returns when the host has read the piece. ORDER slot-reuse.
DCUDA_COLD void await_read(const host_path& by, std::uint32_t piece) {
    const auto is_read = [=](std::uint32_t credit) { return has_come(credit, piece + 1); };
    const auto keep_polling = [&](std::uint32_t) { return load_relaxed(by.ended) == 0; };
    const std::uint32_t* const credit = &by.queue->credits[piece % put_queue::slots];
    if (!poll<order_tag::slot_reuse>(scope::system, credit, is_read, keep_polling)) __trap();
}

// All threads of the group. fill(i, slot) makes the i-th of the pieces in its slot, of which the leading thread writes
// the command. Returns the number of the piece behind them.
template <class Group, class Fill>
DCUDA_DEVICE std::uint32_t fill_pieces(const Group& group, const host_path& by, std::uint32_t pieces,
                                       const Fill& fill) {
    std::uint32_t turn = 0;
    if (group.leads()) turn = begin_turn(*by.turns, by.ended);
    group.sync();
    const std::uint32_t first = load_relaxed(&by.turns->next);
    DCUDA_NO_UNROLL
    for (std::uint32_t i = 0; i < pieces; ++i) {
        const std::uint32_t slot = (first + i) % put_queue::slots;
        if (group.leads()) await_read(by, first + i - put_queue::slots);
        group.sync();
        fill(i, slot);
        group.sync();
        // ORDER command-publish: the group's stores, by the barrier, come before the number; and what the stream's
        // earlier work has stored.
        if (group.leads())
            store_release<order_tag::command_publish>(scope::system, &by.queue->arrived[slot], first + i + 1);
    }
    if (group.leads()) end_turn(*by.turns, turn, first + pieces);
    return first + pieces;
}

// The bytes of the i-th piece of a put.
DCUDA_DEVICE std::size_t piece_bytes(std::size_t bytes, std::uint32_t i, std::uint32_t pieces) {
    return i + 1 < pieces ? std::size_t{put_queue::slot_bytes} : bytes - std::size_t{i} * put_queue::slot_bytes;
}

// The i-th piece of a put; the last one notifies.
DCUDA_DEVICE put_command command_of(const host_path& by, std::size_t bytes, std::uint32_t i, std::uint32_t pieces,
                                    const std::byte* source) {
    const std::size_t offset = std::size_t{i} * put_queue::slot_bytes;
    return {put_command::kind::put,
            i + 1 < pieces ? no_tag : by.tag,
            by.place + offset,
            piece_bytes(bytes, i, pieces),
            0,
            0,
            0,
            source == nullptr ? nullptr : source + offset};
}

// All threads of the group copy the payload into the queue. On return the source may be changed.
template <class Group>
DCUDA_DEVICE void put_by_host(const Group& group, const put_trigger& put) {
    const host_path& by = put.by_host;
    const std::uint32_t pieces = pieces_of(put.bytes, put_queue::slot_bytes);
    fill_pieces(group, by, pieces, [&](std::uint32_t i, std::uint32_t slot) {
        exec::copy_bytes(group, by.queue->data[slot], put.source + std::size_t{i} * put_queue::slot_bytes,
                         piece_bytes(put.bytes, i, pieces));
        if (group.leads()) by.queue->commands[slot] = command_of(by, put.bytes, i, pieces, nullptr);
    });
}

// One thread, after a barrier with those that have stored the payload: the host reads it. On return it has, and the
// source may be changed. PERF: for kernels of users, to which it costs no registers (exec::far).
DCUDA_COLD void put_read_by_host(const host_path& by, const std::byte* source, std::size_t bytes) {
    const std::uint32_t pieces = pieces_of(bytes, put_queue::slot_bytes);
    const std::uint32_t behind = fill_pieces(calling_thread{}, by, pieces, [&](std::uint32_t i, std::uint32_t slot) {
        by.queue->commands[slot] = command_of(by, bytes, i, pieces, bytes == 0 ? nullptr : source);
    });
    if (bytes != 0) await_read(by, behind - 1);
}

// One thread: a get, of bytes of the target at by.place. Returns when they are at the destination.
// ORDER reply-observe: the host says so once they are there.
DCUDA_DEVICE void get_by_host(const host_path& by, std::size_t bytes, const void* destination) {
    const std::uint32_t behind = fill_pieces(calling_thread{}, by, 1, [&](std::uint32_t, std::uint32_t slot) {
        const auto place = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(destination));
        by.queue->commands[slot] = {put_command::kind::get, no_tag, by.place, bytes, place, 0, 0, nullptr};
    });
    const auto is_there = [=](std::uint32_t got) { return has_come(got, behind); };
    const auto keep_polling = [&](std::uint32_t) { return load_relaxed(by.ended) == 0; };
    if (!poll<order_tag::reply_observe>(scope::system, &by.queue->got, is_there, keep_polling)) __trap();
}

} // namespace dcuda::detail
