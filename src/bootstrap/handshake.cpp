// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/handshake.hpp"

#include "support/check.hpp"

#include <cerrno>
#include <sodium.h>
#include <sys/socket.h>

namespace dcuda::bootstrap {

namespace {

constexpr std::string_view greeting = "dcuda 1\n"; // the number is that of the handshake's own version
constexpr std::size_t challenge_bytes = 32;
static_assert(auth_key::size == crypto_auth_KEYBYTES);

const unsigned char* bytes_of(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }
unsigned char* bytes_of(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

std::string digits_of(const std::array<unsigned char, 16>& bytes) {
    std::string result;
    for (const unsigned char each : bytes) result += fmt::format("{:02x}", each);
    return result;
}

void start_sodium() {
    support::require(sodium_init() >= 0, error_code::bootstrap_failure, "libsodium finds no source of random numbers");
}

} // namespace

auth_key::auth_key(std::string_view secret, int generation) {
    start_sodium();
    const std::string text = fmt::format("dcuda control plane {} {}", generation, secret);
    crypto_generichash(bytes_.data(), bytes_.size(), bytes_of(text), text.size(), nullptr, 0);
}

std::string make_secret() {
    start_sodium();
    std::array<unsigned char, 16> random;
    randombytes_buf(random.data(), random.size());
    return digits_of(random);
}

std::string digest(std::string_view text) {
    start_sodium();
    std::array<unsigned char, 16> result;
    crypto_generichash(result.data(), result.size(), bytes_of(text), text.size(), nullptr, 0);
    return digits_of(result);
}

handshake::handshake(side own_side, const auth_key& key)
    : own_side_(own_side), key_(key), challenge_(challenge_bytes, '\0') {
    randombytes_buf(challenge_.data(), challenge_.size());
}

handshake::state handshake::advance(int fd) {
    if (expected_ == 0) {
        const bool is_server = own_side_ == side::server;
        expected_ = is_server ? challenge_bytes + crypto_auth_BYTES : greeting.size() + challenge_bytes;
        if (is_server) send(fd, std::string(greeting) + challenge_);
    }
    while (state_ == state::going_on) {
        if (received_.size() == expected_) {
            take(fd);
            continue;
        }
        std::array<char, 128> chunk;
        const ssize_t got = recv(fd, chunk.data(), expected_ - received_.size(), MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) break;
        if (got <= 0)
            refuse("closed the connection before it was known");
        else
            received_.append(chunk.data(), static_cast<std::size_t>(got));
    }
    return state_;
}

// A whole message is here.
handshake::state handshake::take(int fd) {
    const std::string message = std::exchange(received_, {});
    if (own_side_ == side::server) {
        other_challenge_ = message.substr(0, challenge_bytes);
        if (!is_answer_of(side::process, std::string_view(message).substr(challenge_bytes)))
            return refuse("does not have the job's secret");
        if (!send(fd, answer_of(side::server))) return state_;
        return state_ = state::done;
    }
    if (!other_challenge_.empty())
        return is_answer_of(side::server, message) ? state_ = state::done : refuse("does not have the job's secret");
    if (!message.starts_with(greeting)) return refuse("is no process 0 of this version of dCUDA");
    other_challenge_ = message.substr(greeting.size());
    expected_ = crypto_auth_BYTES;
    send(fd, challenge_ + answer_of(side::process));
    return state_;
}

handshake::state handshake::refuse(const char* reason) {
    reason_ = reason;
    return state_ = state::refused;
}

// These few bytes fit into the buffer of a fresh socket, or something is wrong.
bool handshake::send(int fd, std::string_view bytes) {
    ssize_t sent = 0;
    do sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    if (sent == static_cast<ssize_t>(bytes.size())) return true;
    refuse("closed the connection before it was known");
    return false;
}

// The text names the side that answers, so that an answer cannot be sent back as the other side's own. The word "hub"
// stands for the control server in this version of the handshake.
std::string handshake::answer_of(side answering) const {
    const bool is_server = own_side_ == side::server;
    const std::string text = std::string(answering == side::server ? "hub" : "process") +
                             (is_server ? challenge_ : other_challenge_) + (is_server ? other_challenge_ : challenge_);
    std::string result(crypto_auth_BYTES, '\0');
    crypto_auth(bytes_of(result), bytes_of(std::string_view(text)), text.size(), key_.data());
    return result;
}

bool handshake::is_answer_of(side answering, std::string_view given) const {
    const std::string right = answer_of(answering);
    return given.size() == right.size() && sodium_memcmp(given.data(), right.data(), right.size()) == 0;
}

} // namespace dcuda::bootstrap
