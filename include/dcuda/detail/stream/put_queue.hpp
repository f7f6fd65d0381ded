// SPDX-License-Identifier: BSD-3-Clause
// The queue through which streams and short kernels give their host what it sends for them to a process that is reached
// over a network only: slots in pinned memory.
//
// A put is cut into pieces, which take a slot each. Pieces are numbered from 0, modulo 2^32: piece n lies in slot
// n % slots. A kernel fills a slot, and stores n + 1 into the slot's `arrived`; the host empties it, and stores n + 1
// into the slot's `credits`. So piece n may be written when piece n - slots has been taken. Kernels take turns.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dcuda/config.hpp"

namespace dcuda::detail {

// What the kernels that use one end of a queue share, in their device's memory.
struct queue_turns {
    std::uint32_t begun, ended; // turns
    std::uint32_t next;         // piece
    std::uint32_t unused;
    std::uint64_t bytes; // of the message whose turn it is
};

// What the host does with a piece.
struct put_command {
    enum class kind : std::uint32_t { put, rows, get };
    kind type;
    std::uint32_t tag;      // of the notification that follows, or no_tag
    std::uint64_t place;    // at the target, as the target addresses it
    std::uint64_t bytes;    // of the payload; of a get: that are asked for
    std::uint64_t distance; // of rows: from one to the next at the target; of a get: where the bytes go
    std::uint32_t width;    // of rows
    std::uint32_t unused;
    const std::byte* source; // in device memory, where the host reads the payload; null: it lies in the slot
};

struct put_queue {
#if DCUDA_BACKEND_CUDA
    static constexpr std::uint32_t slots = 16, slot_bytes = 32 * 1024;
#else
    static constexpr std::uint32_t slots = 8, slot_bytes = 4 * 1024;
#endif
    alignas(256) std::byte data[slots][slot_bytes];
    put_command commands[slots];
    std::uint32_t arrived[slots];
    std::uint32_t credits[slots];
    std::uint32_t got; // all gets of pieces before this one are complete
};

} // namespace dcuda::detail
