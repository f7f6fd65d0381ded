// SPDX-License-Identifier: BSD-3-Clause
#include "support/losses.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <poll.h>
#include <string>
#include <unistd.h>

namespace dcuda::support {

namespace {

// glibc goes on with the functions that are left and takes the last status, if such a function calls exit again.
void fail_instead(int status, void*) {
    if (status == EXIT_SUCCESS) std::exit(EXIT_FAILURE);
}

sigset_t only_file_limit() {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGXFSZ);
    return one;
}

} // namespace

// fprintf would write a long line in parts.
void tell(std::string_view message) {
    const std::string line = "dcuda: " + std::string(message) + "\n";
    std::fwrite(line.data(), 1, line.size(), stderr);
}

void report_loss(std::string_view message) {
    [[maybe_unused]] static const int registered = on_exit(fail_instead, nullptr);
    tell(message);
}

int write_to_output(std::string_view text) {
    const file_limit_as_error instead_of_signal;
    flockfile(stdout);
    int problem = std::fflush(stdout) == 0 ? 0 : errno;
    while (problem == 0 && !text.empty()) {
        const ssize_t wrote = write(fileno(stdout), text.data(), text.size());
        if (wrote >= 0) {
            text.remove_prefix(static_cast<std::size_t>(wrote));
        } else if (errno == EAGAIN) { // another process has made it non-blocking
            pollfd one{fileno(stdout), POLLOUT, 0};
            poll(&one, 1, -1);
        } else if (errno != EINTR) {
            problem = errno;
        }
    }
    funlockfile(stdout);
    return problem == EPIPE || problem == EBADF ? 0 : problem;
}

void keep_standard_streams() {
    while (fcntl(STDIN_FILENO, F_GETFD) < 0 || fcntl(STDOUT_FILENO, F_GETFD) < 0 || fcntl(STDERR_FILENO, F_GETFD) < 0)
        if (open("/dev/null", O_RDWR) < 0) return;
}

file_limit_as_error::file_limit_as_error() {
    const sigset_t one = only_file_limit();
    pthread_sigmask(SIG_BLOCK, &one, &before_);
}

file_limit_as_error::~file_limit_as_error() {
    const int number = errno;
    const sigset_t one = only_file_limit();
    // The signal is pending for this thread. A program that blocks it takes it itself.
    const timespec now{};
    if (sigismember(&before_, SIGXFSZ) == 0)
        while (sigtimedwait(&one, nullptr, &now) > 0) {
        }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = number;
}

} // namespace dcuda::support
