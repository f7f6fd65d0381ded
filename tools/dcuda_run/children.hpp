// SPDX-License-Identifier: BSD-3-Clause
// Processes that this one starts. None of them, nor anything that they started, outlives it. (If this one is killed:
// save what has left both its process group and its environment.)
#pragma once

#include "io.hpp"

#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace launch {

struct child {
    std::string program;                  // its path
    std::vector<std::string> arguments;   // from the name on
    std::vector<std::string> environment; // NAME=VALUE: to set; NAME: to remove
    int fds[3] = {-1, -1, -1};            // its standard input, output and error; -1: ours
    std::vector<int> kept_fds{};          // stay open in it, with the same numbers
};

class children {
public:
    explicit children(const signal_reader& signals);
    children(const children&) = delete;
    ~children() { end(); }

    void mark(const std::string& key);     // of the job: all processes that start from now on have it as DCUDA_JOB
    pid_t start(const child& description); // in a process group of its own
    std::vector<std::pair<pid_t, int>> reap();
    void kill_all(); // and what they started
    void end();      // the same, and the guard: nothing can be started any more

private:
    void start_guard();
    void forget_empty_groups();

    sigset_t mask_;
    pid_t guard_ = 0;
    std::vector<pid_t> ended_; // whose group may still have members
    unique_fd guard_pipe_;
};

} // namespace launch
