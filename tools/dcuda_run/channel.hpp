// SPDX-License-Identifier: BSD-3-Clause
// Messages between dcuda-run and its agent on another host. A message is a list of strings, of any bytes, the first of
// which says what it is. On the wire: its number of bytes, then for each string its number of bytes and the bytes;
// numbers are 32 bits, little end first.
#pragma once

#include "io.hpp"

#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace launch {

using message = std::vector<std::string>;

// Takes a message apart from its second string on. Throws std::runtime_error if there is not what is asked for.
class fields {
public:
    explicit fields(const message& source) : source_(&source) {}
    const std::string& text();
    long number();
    std::vector<std::string> list(); // sent as its length and its elements

private:
    const message* source_;
    std::size_t next_ = 1;
};

void append_list(message& target, const std::vector<std::string>& list);

// Both sides send something every few seconds; a side that has not is gone, even if its connection never ends.
class channel {
public:
    // What a login script on the other host prints comes before the greeting, and is dropped.
    static constexpr std::string_view greeting = "\ndcuda-run agent\n";

    channel(int in, int out, bool is_agent);
    void send(const message& content);
    void watch(event_loop& loop);
    std::optional<message> next(); // that has arrived
    void read_some();
    bool sent() const { return out_.empty(); }
    // Nothing more arrives. A side that does not read any more may have sent something before.
    bool closed() const { return closed_; }
    const std::string& problem() const { return problem_; } // why it was closed, if it did not just end
    bool silent();

    static constexpr std::chrono::seconds ping_interval{3}, silence_limit{15};

private:
    void take_messages();
    void note_poll();

    int in_;
    sink out_;
    bool greeted_;
    bool closed_ = false;
    std::string problem_;
    std::string input_;
    std::deque<message> arrived_;
    clock::time_point heard_ = clock::now(), last_poll_ = heard_, next_ping_ = heard_ + ping_interval;
};

} // namespace launch
