// SPDX-License-Identifier: BSD-3-Clause
#include "channel.hpp"

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <unistd.h>

namespace launch {

namespace {

constexpr std::size_t max_message_bytes = 64 << 20, max_noise_bytes = 1 << 16;

void append_number(std::string& target, std::size_t number) {
    for (int byte = 0; byte < 4; ++byte) target.push_back(static_cast<char>(number >> (8 * byte)));
}

std::size_t number_at(std::string_view text, std::size_t offset) {
    std::size_t number = 0;
    for (int byte = 3; byte >= 0; --byte)
        number = number << 8 | static_cast<std::uint8_t>(text[offset + static_cast<std::size_t>(byte)]);
    return number;
}

[[noreturn]] void malformed() { throw std::runtime_error("what arrived is no message of dcuda-run"); }

message parse(std::string_view text) {
    message result;
    while (!text.empty()) {
        if (text.size() < 4 || number_at(text, 0) > text.size() - 4) malformed();
        const std::size_t bytes = number_at(text, 0);
        result.emplace_back(text.substr(4, bytes));
        text.remove_prefix(4 + bytes);
    }
    if (result.empty()) malformed();
    return result;
}

} // namespace

const std::string& fields::text() {
    if (next_ >= source_->size()) malformed();
    return (*source_)[next_++];
}

long fields::number() {
    const std::string& digits = text();
    long value = 0;
    const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (problem != std::errc() || end != digits.data() + digits.size()) malformed();
    return value;
}

std::vector<std::string> fields::list() {
    std::vector<std::string> result;
    for (long left = number(); left > 0; --left) result.push_back(text());
    return result;
}

void append_list(message& target, const std::vector<std::string>& list) {
    target.push_back(std::to_string(list.size()));
    target.insert(target.end(), list.begin(), list.end());
}

channel::channel(int in, int out, bool is_agent) : in_(in), out_(out), greeted_(is_agent) {
    set_nonblocking(in);
    set_nonblocking(out);
    if (is_agent) out_.add(greeting);
}

void channel::send(const message& content) {
    std::string body;
    for (const auto& each : content) {
        append_number(body, each.size());
        body += each;
    }
    std::string head;
    append_number(head, body.size());
    out_.add(head);
    out_.add(body);
    out_.write_some();
    next_ping_ = clock::now() + ping_interval;
}

// A process that was itself stopped for a while cannot know that the other side was silent.
void channel::note_poll() {
    const auto now = clock::now();
    if (now > last_poll_ + 2 * ping_interval) heard_ = now;
    last_poll_ = now;
}

bool channel::silent() {
    note_poll();
    return clock::now() > heard_ + silence_limit;
}

void channel::watch(event_loop& loop) {
    if (closed()) return;
    note_poll();
    if (clock::now() >= next_ping_) {
        next_ping_ = clock::now() + ping_interval;
        if (out_.empty()) send({"ping"}); // else the other side hears from us anyway, or is gone
    }
    loop.wake_at(next_ping_);
    loop.watch(in_, POLLIN, [this](short) { read_some(); });
    out_.watch(loop);
}

void channel::read_some() {
    char buffer[65536];
    const ssize_t got = read(in_, buffer, sizeof buffer);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (got <= 0) {
        closed_ = true;
        return;
    }
    heard_ = clock::now();
    input_.append(buffer, static_cast<std::size_t>(got));
    try {
        take_messages();
    } catch (const std::runtime_error& problem) {
        closed_ = true;
        problem_ = problem.what();
    }
}

void channel::take_messages() {
    std::size_t begin = 0;
    if (!greeted_) {
        const auto found = input_.find(greeting);
        if (found == input_.npos) {
            if (input_.size() > max_noise_bytes) malformed();
            return;
        }
        greeted_ = true;
        begin = found + greeting.size();
    }
    while (input_.size() - begin >= 4) {
        const std::size_t bytes = number_at(input_, begin);
        if (bytes > max_message_bytes) malformed();
        if (input_.size() - begin - 4 < bytes) break;
        arrived_.push_back(parse(std::string_view(input_).substr(begin + 4, bytes)));
        begin += 4 + bytes;
    }
    input_.erase(0, begin);
}

std::optional<message> channel::next() {
    if (arrived_.empty()) return std::nullopt;
    message first = std::move(arrived_.front());
    arrived_.pop_front();
    return first;
}

} // namespace launch
