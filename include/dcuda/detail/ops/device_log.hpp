// SPDX-License-Identifier: BSD-3-Clause
// Lines that the host prints while the kernel runs.
#pragma once

#include <cstring>

#include "dcuda/detail/ops/rank_state.hpp"

namespace dcuda::detail {

// Collects one line and ends it when it goes out of scope. Any thread may use it; thread 0 of the rank writes.
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
        if (!rank_state::group().leads()) return *this;
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
        if (rank_state::group().leads()) send(log_item::end, nullptr, 0);
        open_ = false;
    }

private:
    template <class Value>
    DCUDA_DEVICE log_line& item(log_item kind, Value value) {
        static_assert(sizeof(Value) == 8);
        if (rank_state::group().leads()) send(kind, &value, sizeof value);
        return *this;
    }

    DCUDA_DEVICE void send(log_item kind, const void* content, std::uint32_t bytes) {
        log_fields fields{kind, bytes, {}};
        if (bytes != 0) memcpy(fields.content, content, bytes);
        send_command(exec::lead_access::alone(), *state_, make_command(state_->device_rank, fields));
        open_ = true;
    }

    rank_state* state_;
    bool open_ = false;
};

} // namespace dcuda::detail
