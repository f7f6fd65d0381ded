// SPDX-License-Identifier: BSD-3-Clause
#include "processes.hpp"

#include "bootstrap/local_socket.hpp"
#include "dcuda/error.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <poll.h>
#include <string_view>
#include <sys/socket.h>
#include <utility>

namespace top {

namespace {

constexpr std::size_t most_bytes = 64 << 20; // of one answer
constexpr std::uint32_t most_ranks = 1 << 24;

// The character of UTF-8 that begins here, and its number of bytes; 0 bytes: there is none.
std::pair<char32_t, std::size_t> decode(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    if (byte(0) < 0x80) return {byte(0), 1};
    const std::size_t count = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
    constexpr std::array<char32_t, 5> smallest{0, 0, 0x80, 0x800, 0x10000}; // longer than needed is wrong
    char32_t character = byte(0) & (0xff >> (count + 1));
    if (byte(0) < 0xc0 || byte(0) >= 0xf8 || text.size() < count) return {0, 0};
    for (std::size_t i = 1; i < count; ++i) {
        if ((byte(i) & 0xc0) != 0x80) return {0, 0};
        character = character << 6 | (byte(i) & 0x3f);
    }
    const bool is_half = character >= 0xd800 && character < 0xe000;
    if (character < smallest[count] || character > 0x10ffff || is_half) return {0, 0};
    return {character, count};
}

// What others call themselves must not steer the terminal: no control characters, neither ASCII's nor Unicode's
// (terminals take U+009B for the begin of a sequence), none that turn the direction of text, and no bytes that are no
// UTF-8.
std::string printable(std::string_view text) {
    std::string result;
    while (!text.empty()) {
        const auto [character, bytes] = decode(text);
        const bool is_control = character < 0x20 || (character >= 0x7f && character < 0xa0);
        const bool turns = (character >= 0x200e && character <= 0x200f) ||
                           (character >= 0x2028 && character <= 0x202e) || (character >= 0x2066 && character <= 0x2069);
        const std::size_t taken = std::max<std::size_t>(bytes, 1);
        if (bytes == 0 || is_control || turns)
            result += '?';
        else
            result += text.substr(0, taken);
        text.remove_prefix(taken);
    }
    return result;
}

std::string program_of(pid_t pid) {
    std::string name;
    std::getline(std::ifstream(fmt::format("/proc/{}/comm", pid)), name);
    return printable(name);
}

// Any process may take any name in the abstract namespace: is it the one that the name says?
bool is_genuine(int socket, const process& claimed) {
    ucred peer{};
    socklen_t length = sizeof peer;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.pid == claimed.pid &&
           peer.uid == claimed.user;
}

// The numbers must fit together before anything is done with them.
void check(const dcuda::snapshot& seen) {
    const bool fits = seen.processes > 0 && seen.process >= 0 && seen.process < seen.processes &&
                      seen.ranks_per_device <= most_ranks / static_cast<std::uint32_t>(seen.processes) &&
                      seen.waits.size() == seen.ranks_per_device && seen.ranks_per_block > 0;
    if (!fits) throw std::runtime_error("its numbers contradict each other");
}

struct question {
    process* target;
    dcuda::support::descriptor socket;
    std::string answer{};
};

// Reads what is there. True at the end of the answer.
bool read_some(question& asked) {
    char bytes[65536];
    for (;;) {
        const ssize_t count = recv(asked.socket.get(), bytes, sizeof bytes, MSG_DONTWAIT);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
        if (count <= 0) return true;
        asked.answer.append(bytes, static_cast<std::size_t>(count));
        if (asked.answer.size() > most_bytes) {
            asked.answer.clear();
            return true;
        }
    }
}

} // namespace

void take_answer(process& source, const std::string& answer) {
    try {
        if (answer.empty()) throw std::runtime_error("it closed the connection: does it belong to another user?");
        auto seen = dcuda::snapshot::from_json(answer);
        check(seen);
        for (std::string* text : {&seen.version, &seen.backend, &seen.program, &seen.host, &seen.device, &seen.job})
            *text = printable(*text);
        source.program = seen.program;
        source.seen = std::move(seen);
    } catch (const std::exception& problem) {
        source.problem = printable(fmt::format("its answer cannot be read: {}", problem.what()));
    }
}

std::vector<process> find_processes() {
    std::map<pid_t, process> found; // sockets of connections have the same name
    std::ifstream table("/proc/net/unix");
    const std::string prefix = std::string("@") + dcuda::live_prefix;
    for (std::string line; std::getline(table, line);) {
        const auto name = line.rfind(prefix);
        unsigned user = 0;
        int pid = 0, end = 0;
        if (name == line.npos) continue;
        const char* const rest = line.c_str() + name + prefix.size();
        if (std::sscanf(rest, "%u/%d%n", &user, &pid, &end) == 2 && rest[end] == '\0')
            found.try_emplace(pid, process{pid, user, program_of(pid)});
    }
    std::vector<process> result;
    for (auto& [pid, each] : found) result.push_back(std::move(each));
    return result;
}

void ask(std::vector<process>& targets, std::chrono::milliseconds timeout) {
    using clock = std::chrono::steady_clock;
    std::vector<question> open;
    for (process& each : targets) {
        dcuda::support::descriptor socket;
        try {
            socket = dcuda::bootstrap::try_connect_local(dcuda::live_address(each.user, each.pid));
        } catch (const dcuda::error& problem) {
            each.problem = problem.what();
            continue;
        }
        if (socket.get() < 0)
            each.problem = "it has just ended, or too many ask it";
        else if (!is_genuine(socket.get(), each))
            each.problem = "another process has taken its name";
        else
            open.push_back({&each, std::move(socket)});
    }
    const auto deadline = clock::now() + timeout;
    while (!open.empty()) {
        std::vector<pollfd> sockets;
        for (const question& each : open) sockets.push_back({each.socket.get(), POLLIN, 0});
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - clock::now()).count();
        if (left <= 0) break;
        if (poll(sockets.data(), sockets.size(), static_cast<int>(left)) < 0 && errno != EINTR) break;
        std::erase_if(open, [](question& each) {
            if (!read_some(each)) return false;
            take_answer(*each.target, each.answer);
            return true;
        });
    }
    for (const question& each : open)
        each.target->problem = "it does not answer: no run goes on there, or it is stopped";
}

} // namespace top
