// SPDX-License-Identifier: BSD-3-Clause
// The queue through which one process's sends reach another process: slots in the receiver's memory.
//
// A send is cut into pieces, which fill a slot each; the first one exists also where nothing is sent. Pieces of a queue
// are numbered from 0, modulo 2^32: piece n lies in slot n % slots. The sender fills a slot, and stores n + 1 into the
// slot's `arrived`; the receiver empties it, and stores n + 1 into the slot's `credits`, which lie in the sender's
// memory. So piece n may be written when piece n - slots has been taken.
#pragma once

#include "dcuda/config.hpp"

#include <cstddef>
#include <cstdint>

namespace dcuda {

// What a process has for another one: the queue from there, and the credits of the queue to there.
struct queue_memory {
#if DCUDA_BACKEND_CUDA
    static constexpr std::uint32_t slots = 32, slot_bytes = 32 * 1024;
#else
    static constexpr std::uint32_t slots = 8, slot_bytes = 4 * 1024;
#endif
    alignas(256) std::byte data[slots][slot_bytes];
    std::uint64_t send_bytes[slots]; // of the whole send that the piece belongs to
    std::uint32_t arrived[slots];
    std::uint32_t credits[slots]; // of the queue to there
};

// Both processes' memory, as one of them addresses it. Of a process that is reached over a network only both lie in
// this one's pinned memory, and the host is at the far end.
struct queue_pair {
    queue_memory* own;
    queue_memory* far;
};

} // namespace dcuda
