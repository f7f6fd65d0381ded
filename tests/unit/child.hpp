// SPDX-License-Identifier: BSD-3-Clause
// Forked processes of a test.
#pragma once

#include "support/check.hpp"

#include <csignal>
#include <cstdio>
#include <functional>
#include <gtest/gtest.h>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace dcuda::tests {

inline constexpr int ok = 0;
inline constexpr int killed = 128 + SIGKILL;

// A forked process that runs a body; its exit code is 0 if the body returns, 1 if a check in it failed.
class child {
public:
    explicit child(const std::function<void()>& body) : pid_(fork()) {
        if (pid_ != 0) return;
        alarm(60); // never hang
        try {
            body();
        } catch (const std::exception& problem) {
            fprintf(stderr, "process %d: %s\n", getpid(), problem.what());
            _exit(1);
        }
        _exit(0);
    }
    pid_t pid() const { return pid_; }
    void kill() const { ::kill(pid_, SIGKILL); }
    int wait() const {
        int status = 0;
        waitpid(pid_, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }

private:
    pid_t pid_;
};

inline void expect_all(const std::vector<child>& children, int code) {
    for (const child& each : children) EXPECT_EQ(each.wait(), code);
}

// In a forked process: a failed check is an exception.
inline void check(bool condition, const std::string& claim) {
    if (!condition) throw std::runtime_error("check failed: " + claim);
}

inline std::string error_of(const std::function<void()>& call, error_code code) {
    try {
        call();
    } catch (const error& problem) {
        check(problem.code() == code, fmt::format("code {} of: {}", to_string(problem.code()), problem.what()));
        return problem.what();
    }
    throw std::runtime_error("no error");
}

inline void check_contains(const std::string& text, const std::string& part) {
    check(text.find(part) != std::string::npos, "\"" + text + "\" contains \"" + part + "\"");
}

} // namespace dcuda::tests
