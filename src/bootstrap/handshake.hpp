// SPDX-License-Identifier: BSD-3-Clause
// How two processes of a job over several hosts authenticate each other: each proves that it has the job's secret, by
// answering the other's challenge. The secret does not travel, and nothing that travels is accepted a second time.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace dcuda::bootstrap {

// What challenges are answered with. It differs between the control planes that a job sets up one after another.
class auth_key {
public:
    auth_key(std::string_view secret, int generation);
    static constexpr std::size_t size = 32;
    const unsigned char* data() const noexcept { return bytes_.data(); }

private:
    std::array<unsigned char, size> bytes_;
};

// 32 random hexadecimal digits.
std::string make_secret();

// 32 hexadecimal digits, which show neither the text nor the digest of a similar text.
std::string digest(std::string_view text);

// The first bytes of a connection. The control server answers only a process that has answered before:
//   server   greeting (8 bytes), challenge (32)
//   process  challenge (32), answer to both (32)
//   server   answer to both (32)
// No side reads more bytes than these before it knows the other.
class handshake {
public:
    enum class side { server, process };
    enum class state { going_on, done, refused };

    handshake(side own_side, const auth_key& key);

    // Goes as far as it can without blocking. Call it once at the start and whenever the socket is readable.
    state advance(int fd);

    // Refused: why, said of the other side.
    const std::string& reason() const noexcept { return reason_; }

private:
    state refuse(const char* reason);
    bool send(int fd, std::string_view bytes);
    std::string answer_of(side answering) const;
    bool is_answer_of(side answering, std::string_view given) const;
    state take(int fd);

    const side own_side_;
    const auth_key key_;
    std::string challenge_;       // of this side
    std::string other_challenge_; // empty: not here yet
    std::string received_;
    std::size_t expected_ = 0; // bytes of the next message; 0: nothing was sent or received yet
    state state_ = state::going_on;
    std::string reason_;
};

} // namespace dcuda::bootstrap
