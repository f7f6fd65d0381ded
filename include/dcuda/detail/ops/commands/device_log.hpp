// SPDX-License-Identifier: BSD-3-Clause
// Lines that the host prints while the kernel runs.
#pragma once

#include <cstring>

#include "dcuda/detail/ops/commands/command_ring.hpp"

namespace dcuda::detail {

// Puts a piece of a line into the device's ring; waits while the ring is full, as long as the user lets ranks wait. The
// block's first thread, which need not be the leader: so it touches no books, and asks for the ring's head each time.
// ORDER slot-reuse, as in await_ring_space.
DCUDA_COLD void send_log(shared_state shared, const command& cmd) {
    const rank_state& state = shared.get();
    const auto ticket = static_cast<std::uint32_t>(fetch_add_relaxed(state.device.ring.tail, std::uint64_t{1}));
    const std::uint64_t begin_ns = clock_ns(), bound_ns = state.device.wait_timeout_ns;
    const bool has_place = poll<order_tag::slot_reuse>(
        scope::system, state.device.ring.head, [&](std::uint32_t head) { return ticket + 1 - head <= ring_capacity; },
        [&](std::uint32_t) {
            if (bound_ns != 0 && clock_ns() - begin_ns >= bound_ns) store_relaxed(state.device.aborted, 1);
            return load_relaxed(state.device.aborted) == 0;
        });
    if (has_place) store_command(state.device.ring, ticket, cmd); // else the run has ended: the next operation sees it
}

// Collects one line and ends it when it goes out of scope. Any thread may use it; the block's first thread writes.
// Numbers travel as they are: the host formats them.
class log_line {
public:
    DCUDA_DEVICE explicit log_line(rank_state& state) : state_(&state) {}
    DCUDA_DEVICE ~log_line() {
        if (open_) end();
    }
    log_line(const log_line&) = delete;
    log_line& operator=(const log_line&) = delete;

    DCUDA_DEVICE log_line& operator<<(const char* text) {
        if (!writes()) return *this;
        while (*text != '\0') {
            char chunk[log_text_bytes] = {};
            std::uint32_t bytes = 0;
            while (bytes < log_text_bytes && text[bytes] != '\0') {
                chunk[bytes] = text[bytes];
                ++bytes;
            }
            send(log_item::text, chunk, bytes);
            text += bytes;
        }
        return *this;
    }
    DCUDA_DEVICE log_line& operator<<(char value) { return item(log_item::character, static_cast<long long>(value)); }
    DCUDA_DEVICE log_line& operator<<(int value) { return item(log_item::integer, static_cast<long long>(value)); }
    DCUDA_DEVICE log_line& operator<<(long value) { return item(log_item::integer, static_cast<long long>(value)); }
    DCUDA_DEVICE log_line& operator<<(long long value) { return item(log_item::integer, value); }
    DCUDA_DEVICE log_line& operator<<(unsigned value) {
        return item(log_item::unsigned_integer, static_cast<unsigned long long>(value));
    }
    DCUDA_DEVICE log_line& operator<<(unsigned long value) {
        return item(log_item::unsigned_integer, static_cast<unsigned long long>(value));
    }
    DCUDA_DEVICE log_line& operator<<(unsigned long long value) { return item(log_item::unsigned_integer, value); }
    DCUDA_DEVICE log_line& operator<<(double value) { return item(log_item::real, value); }
    DCUDA_DEVICE log_line& operator<<(const void* value) {
        return item(log_item::pointer, reinterpret_cast<unsigned long long>(value));
    }

    DCUDA_DEVICE void end() {
        if (writes()) send(log_item::end, nullptr, 0);
        open_ = false;
    }

private:
    // The rank's first thread.
    DCUDA_DEVICE bool writes() const { return state_->group().thread_in_order() == 0; }

    template <class Value>
    DCUDA_DEVICE log_line& item(log_item kind, Value value) {
        static_assert(sizeof(Value) == 8);
        if (writes()) send(kind, &value, sizeof value);
        return *this;
    }

    DCUDA_DEVICE void send(log_item kind, const void* content, std::uint32_t bytes) {
        log_fields fields{kind, bytes, {}};
        if (bytes != 0) memcpy(fields.content, content, bytes);
        exec::far(send_log)(*state_, make_command(state_->device_rank, fields));
        open_ = true;
    }

    rank_state* state_;
    bool open_ = false;
};

} // namespace dcuda::detail
