// SPDX-License-Identifier: BSD-3-Clause
// Waiting for descriptors, and text on its way out.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <poll.h>
#include <signal.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace launch {

using clock = std::chrono::steady_clock;

// Exit codes of errors before the job runs, as a shell has them.
inline constexpr int exit_wrong_use = 2, exit_not_executable = 126, exit_not_found = 127;

// An error that ends dcuda-run before the job runs.
struct start_error : std::runtime_error {
    start_error(int code, const std::string& message) : std::runtime_error(message), exit_code(code) {}
    int exit_code;
};

[[noreturn]] void fail_errno(const std::string& subject, int code = EXIT_FAILURE);

// Owns a descriptor.
class unique_fd {
public:
    unique_fd() = default;
    explicit unique_fd(int fd) : fd_(fd) {}
    unique_fd(unique_fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    unique_fd& operator=(unique_fd&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~unique_fd() { reset(); }
    void reset();
    int get() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }

private:
    int fd_ = -1;
};

struct pipe_ends {
    unique_fd read, write;
};

pipe_ends make_pipe();

// A pair of sockets for short messages, of which neither end blocks.
pipe_ends make_mailbox();

void set_nonblocking(int fd);

// DIR/3.out or DIR/3.err, empty.
unique_fd create_output_file(const std::string& folder, int index, int stream);
void create_output_folder(const std::string& folder);

// One wait for all events: each part says before each wait what it waits for.
class event_loop {
public:
    void watch(int fd, short events, std::function<void(short)> handler);
    void wake_at(clock::time_point time) { wake_ = wake_ ? std::min(*wake_, time) : time; }
    void wait();

private:
    std::vector<pollfd> polled_;
    std::vector<std::function<void(short)>> handlers_;
    std::optional<clock::time_point> wake_;
};

// Blocks the signals that we handle, and reads them.
class signal_reader {
public:
    signal_reader();
    int fd() const { return fd_.get(); }
    int next();                                             // 0: none
    const sigset_t& mask_at_start() const { return mask_; } // for the processes that we start

private:
    sigset_t mask_{};
    unique_fd fd_;
};

// Writes to a file descriptor only when it takes something, so that a slow reader never blocks us.
class sink {
public:
    explicit sink(int fd) : fd_(fd) {}
    void add(std::string_view text) {
        if (!broken()) queue_.append(text);
    }
    void watch(event_loop& loop);
    void write_some();
    bool empty() const { return queue_.empty(); }
    bool full() const { return queue_.size() > (1 << 20); }
    bool broken() const { return problem_ != 0; }
    int problem() const { return problem_; } // error number of the write that failed

private:
    int fd_;
    std::string queue_;
    std::size_t written_ = 0; // of the queue
    int problem_ = 0;
};

// Text that goes to a sink in whole lines, with a prefix.
class line_writer {
public:
    line_writer(sink& out, std::string prefix) : out_(&out), prefix_(std::move(prefix)) {}
    void add(std::string_view text); // no text: the end

private:
    void emit(std::string_view line);

    sink* out_;
    std::string prefix_;
    std::string line_;
};

} // namespace launch
