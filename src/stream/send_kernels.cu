// SPDX-License-Identifier: BSD-3-Clause
#include "stream/send_kernels.hpp"

#include "dcuda/trigger.hpp"
#include "stream/block_cluster.hpp"

namespace dcuda {

using namespace detail;

namespace {

constexpr unsigned send_threads = 512;

// One thread. Waits until the word has come to `expected`; the host is told of waits that last. Of several blocks it is
// told of the one with the first piece: what it hears changes only when that one has come.
template <order_tag Tag>
DCUDA_DEVICE void await_piece(const transfer& by, const std::uint32_t* word, std::uint32_t expected) {
    const std::uint64_t own = wanted_word(1, expected);
    bool is_told = false;
    const auto is_there = [=](std::uint32_t found) { return has_come(found, expected); };
    const auto keep_polling = [&](std::uint32_t) {
        tell_of_wait(by.wanted, own);
        is_told = true;
        return load_relaxed(by.ended) == 0;
    };
    if (!poll<Tag>(scope::system, word, is_there, keep_polling)) __trap();
    if (is_told) forget_wait(by.wanted, own);
}

// Calls work(piece, slot, offset, bytes) for each of the calling block's pieces. All threads.
template <class Work>
DCUDA_DEVICE void for_each_piece(const block_cluster& blocks, std::uint32_t first, std::size_t bytes,
                                 const Work& work) {
    for (std::uint32_t i = blocks.block(); i < pieces_of(bytes, queue_memory::slot_bytes); i += blocks.blocks()) {
        const std::size_t offset = std::size_t{i} * queue_memory::slot_bytes;
        const std::size_t left = bytes - offset;
        work(first + i, (first + i) % queue_memory::slots, offset,
             left < queue_memory::slot_bytes ? left : std::size_t{queue_memory::slot_bytes});
    }
}

__global__ void __launch_bounds__(send_threads) send_kernel(transfer by) {
    const block_cluster blocks;
    const auto group = calling_block();
    queue_turns& turns = *by.turns;
    std::uint32_t turn = 0;
    if (blocks.leads()) turn = begin_turn(turns, by.ended);
    blocks.sync();
    const std::uint32_t first = turns.next;
    for_each_piece(
        blocks, first, by.bytes, [&](std::uint32_t piece, std::uint32_t slot, std::size_t offset, std::size_t bytes) {
            // ORDER queue-reuse: the receiver has read what the slot held.
            if (group.leads())
                await_piece<order_tag::queue_reuse>(by, &by.queue.own->credits[slot], piece - queue_memory::slots + 1);
            group.sync();
            exec::copy_bytes(group, by.queue.far->data[slot], by.memory + offset, bytes);
            if (group.leads()) by.queue.far->send_bytes[slot] = by.bytes;
            group.sync();
            // ORDER notify-publish: the block's stores, by the barrier, come before the number.
            if (group.leads())
                store_release<order_tag::notify_publish>(scope::system, &by.queue.far->arrived[slot], piece + 1);
        });
    blocks.sync();
    if (blocks.leads()) end_turn(turns, turn, first + pieces_of(by.bytes, queue_memory::slot_bytes));
}

// One thread. The send's first piece has come: how long the send is. One that is too long ends the port, by the host.
DCUDA_DEVICE std::uint64_t measure(const transfer& by, std::uint32_t first) {
    const std::uint32_t slot = first % queue_memory::slots;
    await_piece<order_tag::notify_observe>(by, &by.queue.own->arrived[slot], first + 1);
    const std::uint64_t bytes = by.queue.own->send_bytes[slot];
    if (bytes <= by.bytes) return bytes;
    store_relaxed(by.refused + 1, std::uint64_t{by.bytes});
    store_relaxed(by.refused, bytes);
    const auto has_ended = [](std::uint32_t ended) { return ended != 0; };
    static_cast<void>(poll<order_tag::none>(scope::system, by.ended, has_ended, [](std::uint32_t) { return true; }));
    __trap();
    return 0;
}

__global__ void __launch_bounds__(send_threads) receive_kernel(transfer by) {
    const block_cluster blocks;
    const auto group = calling_block();
    queue_turns& turns = *by.turns;
    std::uint32_t turn = 0;
    if (blocks.leads()) {
        turn = begin_turn(turns, by.ended);
        turns.bytes = measure(by, turns.next);
    }
    blocks.sync();
    const std::uint32_t first = turns.next;
    const std::uint64_t whole = turns.bytes;
    for_each_piece(blocks, first, whole,
                   [&](std::uint32_t piece, std::uint32_t slot, std::size_t offset, std::size_t bytes) {
                       // ORDER notify-observe: the piece is in the slot, for all threads by the barrier.
                       if (group.leads())
                           await_piece<order_tag::notify_observe>(by, &by.queue.own->arrived[slot], piece + 1);
                       group.sync();
                       exec::copy_bytes(group, by.memory + offset, by.queue.own->data[slot], bytes);
                       group.sync();
                       // ORDER queue-free: the block's loads, by the barrier, come before the credit.
                       if (group.leads())
                           store_release<order_tag::queue_free>(scope::system, &by.queue.far->credits[slot], piece + 1);
                   });
    blocks.sync();
    if (blocks.leads()) end_turn(turns, turn, first + pieces_of(whole, queue_memory::slot_bytes));
}

} // namespace

cudaError_t load_send_kernels() {
    cudaFuncAttributes unused{};
    const cudaError_t result = cudaFuncGetAttributes(&unused, send_kernel);
    return result != cudaSuccess ? result : cudaFuncGetAttributes(&unused, receive_kernel);
}

cudaError_t append_transfer(const transfer& work, cudaStream_t stream) {
    auto* const kernel = work.direction == transfer::kind::send ? send_kernel : receive_kernel;
    return append(kernel, shape_for(kernel, work.bytes, 2 * queue_memory::slot_bytes, send_threads), stream, work);
}

} // namespace dcuda
