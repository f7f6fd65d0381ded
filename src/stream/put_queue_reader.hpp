// SPDX-License-Identifier: BSD-3-Clause
// The host's end of a put_queue.
#pragma once

#include "dcuda/detail/protocol/memory.hpp"
#include "dcuda/detail/stream/put_queue.hpp"

#include <cstddef>
#include <cstdint>

namespace dcuda {

// Used by one thread.
class put_queue_reader {
public:
    explicit put_queue_reader(detail::put_queue& queue) : queue_(queue) {}

    // Whether the next piece has come. ORDER command-observe: who sees its number sees the piece, and what its stream
    // had stored before.
    bool has_piece() const {
        return detail::load_acquire<detail::order_tag::command_observe>(detail::scope::system,
                                                                        &queue_.arrived[slot()]) == next_ + 1;
    }
    // The next piece, once it has come.
    std::uint32_t number() const { return next_; }
    const detail::put_command& command() const { return queue_.commands[slot()]; }
    std::byte* slot_data() const { return queue_.data[slot()]; } // for its payload

    // The piece has been read. ORDER slot-free.
    void free_slot() {
        detail::store_release<detail::order_tag::slot_free>(detail::scope::system, &queue_.credits[slot()], next_ + 1);
        ++next_;
    }

    // All gets up to this piece are complete. ORDER reply-publish: their bytes are there.
    void end_gets(std::uint32_t piece) {
        detail::store_release<detail::order_tag::reply_publish>(detail::scope::system, &queue_.got, piece + 1);
    }

private:
    std::uint32_t slot() const { return next_ % detail::put_queue::slots; }

    detail::put_queue& queue_;
    std::uint32_t next_ = 0; // piece
};

} // namespace dcuda
