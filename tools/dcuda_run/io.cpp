// SPDX-License-Identifier: BSD-3-Clause
#include "io.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

namespace launch {

namespace {

constexpr std::size_t max_line_bytes = 1 << 20;

} // namespace

void fail_errno(const std::string& subject, int code) {
    throw start_error(code, subject + ": " + std::strerror(errno));
}

void unique_fd::reset() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
}

pipe_ends make_pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) fail_errno("cannot create a pipe");
    return {unique_fd(ends[0]), unique_fd(ends[1])};
}

pipe_ends make_mailbox() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        fail_errno("cannot create a pair of sockets");
    return {unique_fd(ends[0]), unique_fd(ends[1])};
}

void set_nonblocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

unique_fd create_output_file(const std::string& folder, int index, int stream) {
    const std::string path = fmt::format("{}/{}.{}", folder, index, stream == STDOUT_FILENO ? "out" : "err");
    unique_fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!file) fail_errno(path);
    return file;
}

void create_output_folder(const std::string& folder) {
    std::filesystem::create_directories(folder);
    if (access(folder.c_str(), W_OK | X_OK) != 0) fail_errno(folder);
}

void event_loop::watch(int fd, short events, std::function<void(short)> handler) {
    polled_.push_back({fd, events, 0});
    handlers_.push_back(std::move(handler));
}

void event_loop::wait() {
    int timeout_ms = -1;
    if (wake_) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(*wake_ - clock::now()).count();
        timeout_ms = static_cast<int>(std::clamp<long>(left, 0, 60'000));
    }
    wake_.reset();
    auto polled = std::exchange(polled_, {});
    const auto handlers = std::exchange(handlers_, {});
    if (poll(polled.data(), polled.size(), timeout_ms) < 0) {
        if (errno != EINTR) fail_errno("poll");
        return;
    }
    for (std::size_t i = 0; i < polled.size(); ++i)
        if (polled[i].revents != 0) handlers[i](polled[i].revents);
}

signal_reader::signal_reader() {
    sigset_t handled;
    sigemptyset(&handled);
    for (int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT, SIGTSTP})
        sigaddset(&handled, signal);
    sigprocmask(SIG_BLOCK, &handled, &mask_);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); // a write fails instead
    signal(SIGTTIN, SIG_IGN);
    signal(SIGCHLD, SIG_DFL); // may be ignored by the process that started us; then there is nothing to wait for
    fd_ = unique_fd(signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd_) fail_errno("cannot create a signalfd");
}

int signal_reader::next() {
    signalfd_siginfo info;
    return read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

void sink::watch(event_loop& loop) {
    if (!empty()) loop.watch(fd_, POLLOUT, [this](short) { write_some(); });
}

void sink::write_some() {
    // Up to PIPE_BUF bytes go into a pipe that polls as writable without blocking.
    const ssize_t wrote =
        write(fd_, queue_.data() + written_, std::min<std::size_t>(queue_.size() - written_, PIPE_BUF));
    if (wrote > 0) written_ += static_cast<std::size_t>(wrote);
    if (wrote < 0 && errno != EAGAIN && errno != EINTR) problem_ = errno;
    if (broken() || written_ == queue_.size()) queue_.clear(), written_ = 0;
}

void line_writer::add(std::string_view text) {
    line_.append(text);
    std::size_t begin = 0;
    for (std::size_t end; (end = line_.find('\n', begin)) != line_.npos; begin = end + 1)
        emit(std::string_view(line_).substr(begin, end - begin));
    line_.erase(0, begin);
    if (line_.size() > max_line_bytes || (text.empty() && !line_.empty())) {
        emit(line_);
        line_.clear();
    }
}

void line_writer::emit(std::string_view line) {
    out_->add(prefix_);
    out_->add(line);
    out_->add("\n");
}

} // namespace launch
