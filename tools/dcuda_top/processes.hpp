// SPDX-License-Identifier: BSD-3-Clause
// The dCUDA processes of this host, and what they say of themselves.
#pragma once

#include "runtime/live_view.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace top {

struct process {
    pid_t pid;
    uid_t user;
    std::string program;
    std::optional<dcuda::snapshot> seen{}; // empty: `problem` says why
    std::string problem{};
    std::optional<dcuda::snapshot> before{}; // an earlier poll of the same run: rates count from there
};

// Those that let themselves be watched, by their process id.
std::vector<process> find_processes();

// What a process has answered, whatever that is.
void take_answer(process& source, const std::string& answer);

// Asks all of them at once, and waits at most so long.
void ask(std::vector<process>& targets, std::chrono::milliseconds timeout);

} // namespace top
