// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/channel.hpp"

#include "support/check.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/socket.h>
#include <unistd.h>

namespace dcuda::bootstrap {

namespace {

using support::fail;

// What stands before each label and payload. Its bytes go as they are: all hosts of a job have the same byte order,
// or the magic number is wrong.
struct frame_header {
    std::uint32_t magic;
    std::uint32_t type;
    std::int32_t process;
    std::uint32_t label_bytes;
    std::uint64_t id;
    std::uint64_t number;
    std::uint64_t payload_bytes;
};

constexpr std::uint32_t frame_magic = 0xdc0da001;
constexpr std::uint32_t max_label_bytes = 4096;
constexpr std::size_t read_chunk_bytes = 256 * 1024;
constexpr std::size_t keep_capacity_bytes = 1024 * 1024;
constexpr std::size_t reserve_bytes = 64 * 1024 * 1024; // at once, for a frame of which little is here

} // namespace

// ---- frames ---------------------------------------------------------------------------------------------------------

std::string encode(const frame& message) {
    const frame_header header{frame_magic,
                              static_cast<std::uint32_t>(message.type),
                              message.process,
                              static_cast<std::uint32_t>(message.label.size()),
                              message.id,
                              message.number,
                              message.payload.size()};
    std::string result;
    result.reserve(sizeof header + message.label.size() + message.payload.size());
    result.append(reinterpret_cast<const char*>(&header), sizeof header);
    return result.append(message.label).append(message.payload);
}

blob encode_parts(const std::vector<blob>& parts) {
    std::size_t total = 0;
    for (const blob& part : parts) total += sizeof(std::uint64_t) + part.size();
    blob result;
    result.reserve(total);
    for (const blob& part : parts) {
        const std::uint64_t size = part.size();
        result.append(reinterpret_cast<const char*>(&size), sizeof size).append(part);
    }
    return result;
}

std::vector<blob> decode_parts(const blob& encoded) {
    std::vector<blob> parts;
    for (std::size_t position = 0; position < encoded.size();) {
        std::uint64_t size = 0;
        const std::size_t left = encoded.size() - position;
        if (left >= sizeof size) std::memcpy(&size, encoded.data() + position, sizeof size);
        if (left < sizeof size || size > left - sizeof size)
            fail(error_code::bootstrap_failure, "a malformed message of {} B on the control plane", encoded.size());
        parts.push_back(encoded.substr(position + sizeof size, size));
        position += sizeof size + size;
    }
    return parts;
}

std::string describe_pid(pid_t pid, const std::string& host) {
    return host.empty() ? fmt::format("pid {}", pid) : fmt::format("pid {} on host {}", pid, host);
}

std::string describe_process(int process, pid_t pid, const std::string& host) {
    return fmt::format("process {} ({})", process, describe_pid(pid, host));
}

// ---- channel --------------------------------------------------------------------------------------------------------

channel::channel(descriptor socket)
    : socket_(std::move(socket)), chunk_(std::make_unique_for_overwrite<char[]>(read_chunk_bytes)) {}

void channel::send(std::shared_ptr<const std::string> encoded) {
    unsent_.push_back(std::move(encoded));
    flush();
}

void channel::flush() {
    while (!unsent_.empty()) {
        const std::string& first = *unsent_.front();
        const ssize_t sent =
            ::send(fd(), first.data() + sent_of_first_, first.size() - sent_of_first_, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0) {
            if (errno == EINTR) continue;
            // Not closed_ yet if the peer is gone: what it sent before can still be read.
            if (errno != EAGAIN) unsent_.clear(), sent_of_first_ = 0;
            return;
        }
        sent_of_first_ += static_cast<std::size_t>(sent);
        if (sent_of_first_ == first.size()) unsent_.pop_front(), sent_of_first_ = 0;
    }
}

void channel::read_available() {
    // Bounded, so that one busy peer cannot keep the control server from the others.
    for (int round = 0; round < 64 && !closed_; ++round) {
        const ssize_t got = recv(fd(), chunk_.get(), read_chunk_bytes, MSG_DONTWAIT);
        if (got > 0) {
            received_.append(chunk_.get(), static_cast<std::size_t>(got));
            continue;
        }
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return;
        if (got < 0) error_ = errno;
        closed_ = true;
    }
}

bool channel::is_unreachable() const noexcept {
    return closed_ && error_ != 0 && error_ != ECONNRESET && error_ != EPIPE;
}

void channel::end_sending() { shutdown(fd(), SHUT_WR); }

std::optional<frame> channel::next() {
    frame_header header;
    const std::size_t left = received_.size() - consumed_;
    if (left < sizeof header) return std::nullopt;
    std::memcpy(&header, received_.data() + consumed_, sizeof header);
    if (header.magic != frame_magic || header.label_bytes > max_label_bytes || header.payload_bytes > most_payload_) {
        received_.clear();
        consumed_ = 0;
        closed_ = true;
        return std::nullopt;
    }
    const std::size_t total = sizeof header + header.label_bytes + header.payload_bytes;
    if (left < total) {
        if (received_.capacity() - consumed_ < total) {
            received_.erase(0, std::exchange(consumed_, 0));
            const std::size_t more = std::min(total, std::max(reserve_bytes, 2 * left));
            if (received_.capacity() < more) received_.reserve(more);
        }
        return std::nullopt;
    }
    const std::size_t label = consumed_ + sizeof header;
    frame result{static_cast<frame_type>(header.type),
                 header.process,
                 header.id,
                 header.number,
                 received_.substr(label, header.label_bytes),
                 received_.substr(label + header.label_bytes, header.payload_bytes)};
    consumed_ += total;
    if (consumed_ == received_.size()) {
        consumed_ = 0;
        received_.clear();
        if (received_.capacity() > keep_capacity_bytes) received_.shrink_to_fit();
    }
    return result;
}

} // namespace dcuda::bootstrap
