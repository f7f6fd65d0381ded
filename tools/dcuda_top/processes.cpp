#include "processes.hpp"

#include "bootstrap/meeting.hpp"
#include "dcuda/error.hpp"

#include <cerrno>
#include <cstdio>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <poll.h>
#include <sys/socket.h>

namespace top {

namespace {

constexpr std::size_t most_bytes = 64 << 20; // of one answer
constexpr std::uint32_t most_ranks = 1 << 24;

// What others call themselves must not steer the terminal.
std::string printable(std::string text) {
    for (char& c : text)
        if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = '?';
    return text;
}

std::string program_of(pid_t pid) {
    std::string name;
    std::getline(std::ifstream(fmt::format("/proc/{}/comm", pid)), name);
    return printable(name);
}

// Any process may take any name in the abstract namespace: is it the one that the name says?
bool is_genuine(int socket, const process& who) {
    ucred peer{};
    socklen_t length = sizeof peer;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.pid == who.pid &&
           peer.uid == who.user;
}

// The numbers must fit together before anything is done with them.
void check(const dcuda::snapshot& seen) {
    const bool fits = seen.processes > 0 && seen.process >= 0 && seen.process < seen.processes &&
                      seen.ranks_per_device <= most_ranks / static_cast<std::uint32_t>(seen.processes) &&
                      seen.waits.size() == seen.ranks_per_device;
    if (!fits) throw std::runtime_error("its numbers contradict each other");
}

struct question {
    process* whom;
    dcuda::support::descriptor socket;
    std::string answer{};
};

// Reads what is there. True at the end of the answer.
bool read_some(question& from) {
    char bytes[65536];
    for (;;) {
        const ssize_t count = recv(from.socket.get(), bytes, sizeof bytes, MSG_DONTWAIT);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
        if (count <= 0) return true;
        from.answer.append(bytes, static_cast<std::size_t>(count));
        if (from.answer.size() > most_bytes) {
            from.answer.clear();
            return true;
        }
    }
}

void take_answer(const question& from) {
    try {
        if (from.answer.empty()) throw std::runtime_error("it closed the connection: does it belong to another user?");
        auto seen = dcuda::snapshot::from_json(from.answer);
        check(seen);
        for (std::string* text : {&seen.version, &seen.backend, &seen.program, &seen.host, &seen.device, &seen.job})
            *text = printable(*text);
        from.whom->program = seen.program;
        from.whom->seen = std::move(seen);
    } catch (const std::exception& problem) {
        from.whom->problem = printable(fmt::format("its answer cannot be read: {}", problem.what()));
    }
}

} // namespace

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

void ask(std::vector<process>& whom, std::chrono::milliseconds patience) {
    using clock = std::chrono::steady_clock;
    std::vector<question> open;
    for (process& each : whom) {
        dcuda::support::descriptor socket;
        try {
            socket = dcuda::bootstrap::try_connect(dcuda::live_address(each.user, each.pid));
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
    const auto deadline = clock::now() + patience;
    while (!open.empty()) {
        std::vector<pollfd> sockets;
        for (const question& each : open) sockets.push_back({each.socket.get(), POLLIN, 0});
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - clock::now()).count();
        if (left <= 0) break;
        if (poll(sockets.data(), sockets.size(), static_cast<int>(left)) < 0 && errno != EINTR) break;
        std::erase_if(open, [](question& each) {
            if (!read_some(each)) return false;
            take_answer(each);
            return true;
        });
    }
    for (const question& each : open) each.whom->problem = "it does not answer: no run goes on there, or it is stopped";
}

} // namespace top
