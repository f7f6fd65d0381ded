// SPDX-License-Identifier: BSD-3-Clause
// Processes that do not answer: stopped, frozen, or kept from running by something else. They are reported, and no
// more.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace dcuda::bootstrap {

// Describes in words which ranks wait for a process that is silent. `waits` has for each process what it says of its
// ranks' waits, or nothing. The result begins with a blank and ends with a full stop, or is empty.
using wait_description = std::string (*)(int process, const std::vector<std::string>& waits);

// A process can be missed only where it must answer: while it attends, that is, serves a kernel or waits in a
// collective call. It then says something each `beat`.
class silence_watch {
public:
    using clock = std::chrono::steady_clock;

    silence_watch(int processes, double seconds); // 0: no process is missed

    bool is_on() const { return after_.count() > 0; }
    clock::duration after() const { return after_; }
    clock::duration beat() const { return after_ / 8; }

    void attend(int process, bool attends);
    bool attends(int process) const { return state_of(process).attends; }

    // The process has said something. Returns the time since it did so before, if its silence was reported.
    std::optional<clock::duration> hear(int process);

    // The latest time for the next poll.
    clock::time_point next_poll() const { return any_attends() ? last_poll_ + beat() : clock::time_point::max(); }

    // Whether the process is silent, and that was not reported yet.
    bool is_missed(int process) const;

    // All that are missed. A process that was stopped itself cannot know, and begins anew.
    std::vector<int> poll();

    clock::duration silence_of(int process) const { return clock::now() - state_of(process).heard; }
    bool is_reported(int process) const { return state_of(process).reported; }
    void set_reported(int process) { state_of(process).reported = true; }

private:
    struct state {
        bool attends = false, reported = false;
        clock::time_point heard{};
    };
    state& state_of(int process) { return processes_[static_cast<std::size_t>(process)]; }
    const state& state_of(int process) const { return processes_[static_cast<std::size_t>(process)]; }
    bool any_attends() const;

    clock::duration after_;
    std::vector<state> processes_;
    clock::time_point last_poll_{};
};

// Whether a process that has been silent so long is reported: when somebody waits for it, as `waiting` says, or at the
// latest after 9 s, so that the line comes within 10.
bool is_due(std::chrono::steady_clock::duration time, const std::string& waiting);

// Whether the system has stopped this process of this host, or a debugger has.
bool is_stopped(pid_t pid);

// "process 1 (pid 42 on host b) has not answered for 7 s; is it stopped?", with the ranks that wait for it, as a line
// on standard error; and that it answers again.
void report_silence(const std::string& process, std::chrono::steady_clock::duration time, const std::string& waiting);
void report_answer(const std::string& process, std::chrono::steady_clock::duration time);

} // namespace dcuda::bootstrap
