// SPDX-License-Identifier: BSD-3-Clause
// What ranks say to each other, wherever they keep their particles: lists and blocks to the ranks before and after, and
// at the end what they counted.
#pragma once

#include <cstddef>

#include "common/block.hpp"
#include "dcuda/device.hpp"
#include "task.hpp"

namespace particles {

enum tag : int { list_tag, block_tag, tally_tag, gather_tag };

using common::for_each_index;
using common::thread;
using common::threads;

// A rank's messages to one neighbour and from it. What the neighbour sends is placed where the rank finds it; on the
// same device that is where the neighbour has it, and a put copies nothing.
struct side {
    int rank;                              // of the neighbour, or below 0: none, and memory that says so
    list_view list, their_list;            // of those that leave in either direction
    block_view block, their_block;         // of what each shows the other
    std::size_t list_offset, block_offset; // in the neighbour's windows
};

// A rank's sides, and its windows: memory in which it has its own lists and blocks and what it gets.
struct borders {
    side previous, next;
    std::byte *blocks, *lists;
    std::size_t block_bytes, list_bytes;
};

class exchange {
public:
    // `work` has borders_of(rank). Collective over all ranks.
    template <class Work>
    DCUDA_DEVICE exchange(dcuda::rank& self, const Work& work) : self_(self) {
        if (thread() == 0) here() = work.borders_of(self.id());
        __syncthreads();
        blocks_ = self.create_window(dcuda::world, here().blocks, here().block_bytes);
        lists_ = self.create_window(dcuda::world, here().lists, here().list_bytes);
    }

    DCUDA_DEVICE void close() const {
        self_.free_window(lists_);
        self_.free_window(blocks_);
    }

    DCUDA_DEVICE const side& previous() const { return here().previous; }
    DCUDA_DEVICE const side& next() const { return here().next; }

    // Each: sends a neighbour the data, with so many particles, or the mark of an error if not all is fine. Nothing
    // where there is no neighbour.
    DCUDA_DEVICE void send_list(const side& receiver, int count, bool fine = true) const {
        if (!fine) mark(receiver.list.count());
        if (receiver.rank >= 0)
            self_.put_notify(lists_, receiver.rank, receiver.list_offset, list_view::bytes_of(fine ? count : 0),
                             receiver.list.start, list_tag);
    }
    DCUDA_DEVICE void send_block(const side& receiver, int count, bool fine = true) const {
        if (!fine) mark(receiver.block.cells[receiver.block.columns]);
        if (receiver.rank >= 0)
            self_.put_notify(blocks_, receiver.rank, receiver.block_offset,
                             block_view::bytes_of(receiver.block.columns, fine ? count : 0), receiver.block.cells,
                             block_tag);
    }
    // To both, when the rank's threads have written them.
    DCUDA_DEVICE void send_lists(bool fine) const {
        __syncthreads();
        const int down = previous().list.count(), up = next().list.count(); // PERF: both before the first put
        send_list(previous(), down, fine);
        send_list(next(), up, fine);
    }
    DCUDA_DEVICE void send_blocks(bool fine) const {
        __syncthreads();
        const int first = previous().block.count(), last = next().block.count();
        send_block(previous(), first, fine);
        send_block(next(), last, fine);
    }

    // Each: waits for the neighbours' data. False if one of them sent a mark. Also a barrier of the rank.
    DCUDA_DEVICE bool receive_lists() const {
        self_.wait_notifications(list_tag, neighbours());
        return previous().their_list.count() >= 0 && next().their_list.count() >= 0;
    }
    DCUDA_DEVICE bool receive_blocks() const {
        self_.wait_notifications(block_tag, neighbours());
        return previous().their_block.count() >= 0 && next().their_block.count() >= 0;
    }

private:
    // PERF: worked out once; the divisions that it takes would cost more than a put. In shared memory: registers are
    // not enough for all, and every acquire empties the cache of spilled ones.
    static DCUDA_DEVICE borders& here() {
        __shared__ borders result;
        return result;
    }

    DCUDA_DEVICE int neighbours() const { return (previous().rank < 0 ? 0 : 1) + (next().rank < 0 ? 0 : 1); }

    static DCUDA_DEVICE void mark(int& count) {
        __syncthreads();
        if (thread() == 0) count = -1;
        __syncthreads();
    }

    dcuda::rank& self_;
    dcuda::window blocks_, lists_;
};

// Puts the rank's tally to the first rank of every device, so that every host knows all: to `known`, room for one of
// each rank of the world.
DCUDA_DEVICE void share_tally(dcuda::rank& self, const partition& parts, tally* known, const tally& own) {
    const bool receives = self.id(dcuda::device) == 0;
    const auto all = static_cast<std::size_t>(self.size());
    const dcuda::window win = self.create_window(dcuda::world, known, receives ? all * sizeof(tally) : 0);
    for (int device = 0; device < parts.devices; ++device)
        self.put_notify(win, device * parts.ranks_per_device, static_cast<std::size_t>(self.id()) * sizeof(tally),
                        sizeof(tally), &own, tally_tag);
    if (receives) self.wait_notifications(tally_tag, self.size());
    self.free_window(win);
}

// With 64 registers a thread any number of threads can be launched.
inline constexpr int most_threads = 1024;

} // namespace particles
