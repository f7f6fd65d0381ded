// SPDX-License-Identifier: BSD-3-Clause
// PMI-1: lines of text over the socket PMI_FD, spoken by Hydra (MPICH's and Intel MPI's mpiexec) and by
// srun --mpi=pmi2. MPI libraries speak on the same socket. That goes well as long as one of both speaks at a time, so
// not while another thread is in MPI_Init, MPI_Finalize or MPI_Comm_spawn.
#include "bootstrap/rendezvous.hpp"
#include "support/check.hpp"
#include "support/env.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

namespace dcuda::bootstrap {

namespace {

using support::fail;
using support::require;
using clock = std::chrono::steady_clock;

constexpr std::size_t max_line_bytes = 16 * 1024;

// Which file a descriptor is open on, so that one is known after its number was closed and used again.
struct file_identity {
    dev_t device = 0;
    ino_t inode = 0;
    bool operator==(const file_identity&) const = default;
};

file_identity identity_of(int fd) {
    struct stat status {};
    return fstat(fd, &status) == 0 ? file_identity{status.st_dev, status.st_ino} : file_identity{};
}

// One line out, one line in. Of the line only what stands before ` value=` is shown: a value may be the job's secret.
std::string ask(int fd, const std::string& line, const std::string& answer_command, double timeout_seconds) {
    const auto deadline =
        clock::now() + std::chrono::milliseconds(static_cast<long>(std::min(timeout_seconds, 1e9) * 1000));
    const auto fail_closed = [&] {
        fail(error_code::bootstrap_failure,
             "PMI: the launcher closed its connection (PMI_FD={}); did this program call MPI_Finalize before?", fd);
    };
    const std::string command = line + '\n', shown = line.substr(0, line.find(" value="));
    if (::send(fd, command.data(), command.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(command.size())) fail_closed();
    std::string answer;
    while (!answer.ends_with('\n') && answer.size() < max_line_bytes) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - clock::now()).count();
        require(left > 0, error_code::bootstrap_failure,
                "PMI: the launcher did not answer \"{}\" within {} s (DCUDA_CONNECT_TIMEOUT): did all processes of the "
                "job get this far?",
                shown, timeout_seconds);
        pollfd one{fd, POLLIN, 0};
        if (::poll(&one, 1, static_cast<int>(std::min<long>(left, 60'000))) <= 0) continue;
        // No byte more than this line: what follows may be for others.
        char byte = 0;
        const ssize_t got = recv(fd, &byte, 1, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) fail_closed();
        answer += byte;
    }
    require(answer.starts_with("cmd=" + answer_command), error_code::bootstrap_failure,
            "PMI: the launcher answers \"{}\" to \"{}\"",
            answer.substr(0, std::min(answer.find('\n'), answer.find(" value="))), shown);
    return answer;
}

std::string word_of(const std::string& answer, const std::string& name) {
    const std::size_t position = answer.find(' ' + name + '=');
    if (position == std::string::npos) return {};
    const std::size_t begin = position + name.size() + 2;
    return answer.substr(begin, answer.find_first_of(" \n", begin) - begin);
}

// The launcher takes a process that said init but not finalize for a failure. If MPI said it meanwhile, the socket is
// closed.
void finalize_at_exit(int fd) {
    static const int launcher_fd = fd;
    static const file_identity launcher_file = identity_of(fd);
    static const int registered = std::atexit([] {
        if (identity_of(launcher_fd) != launcher_file) return;
        try {
            ask(launcher_fd, "cmd=finalize", "finalize_ack", 5);
        } catch (...) {
        } // it was closed
    });
    static_cast<void>(registered);
}

class pmi_store final : public launcher_store {
public:
    pmi_store(int fd, double timeout_seconds) : fd_(fd), timeout_(timeout_seconds) {
        ask(fd_, "cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", timeout_);
        finalize_at_exit(fd_);
        space_ = word_of(ask(fd_, "cmd=get_my_kvsname", "my_kvsname", timeout_), "kvsname");
    }

    // Blanks end values.
    void put(const std::string& key, const std::string& value) override {
        const auto rank = support::env_string("PMI_RANK").value_or("0");
        std::string text = value;
        std::ranges::replace(text, ' ', blank);
        std::ranges::replace(text, '\n', blank);
        const auto answer =
            ask(fd_, fmt::format("cmd=put kvsname={} key={}-{} value={}", space_, key, rank, text.substr(0, max_value)),
                "put_result", timeout_);
        require(word_of(answer, "rc") == "0", error_code::bootstrap_failure, "PMI: the launcher cannot store {}", key);
    }

    void fence() override { ask(fd_, "cmd=barrier_in", "barrier_out", timeout_); }

    std::string get(int process, const std::string& key) override {
        const auto answer =
            ask(fd_, fmt::format("cmd=get kvsname={} key={}-{}", space_, key, process), "get_result", timeout_);
        require(word_of(answer, "rc") == "0", error_code::bootstrap_failure,
                "PMI: the launcher has no {} of process {}", key, process);
        std::string value = word_of(answer, "value");
        std::ranges::replace(value, blank, ' ');
        return value;
    }

private:
    static constexpr char blank = '|';
    static constexpr std::size_t max_value = 900; // the least that launchers keep is 1024
    const int fd_;
    const double timeout_;
    std::string space_;
};

} // namespace

std::unique_ptr<launcher_store> open_pmi_store(const job&, double timeout_seconds) {
    const auto fd = support::env_integer("PMI_FD", 0, 1 << 20);
    if (!fd) return nullptr;
    return std::make_unique<pmi_store>(static_cast<int>(*fd), timeout_seconds);
}

} // namespace dcuda::bootstrap
