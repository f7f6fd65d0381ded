// SPDX-License-Identifier: BSD-3-Clause
#include "launcher.hpp"

#include "this_host.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

namespace launch {

namespace {

constexpr std::chrono::seconds term_to_kill{2};
constexpr std::chrono::milliseconds foreground_check_interval{200};
constexpr std::chrono::milliseconds time_to_judge{300}; // for the end of the process that caused that of another

std::string random_key() {
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) fail_errno("cannot get a random key");
    return fmt::format("{:02x}", fmt::join(bytes, ""));
}

} // namespace

int launcher::run() {
    start_job();
    while (running_count_ > 0) step();
    judge();
    processes_.finish();
    // What they wrote last. A signal ends this, too, if nobody takes our output.
    while (has_output() && !quit_) step();
    return exit_code_ == 0 && output_is_lost_ ? EXIT_FAILURE : exit_code_;
}

// Signals that arrive meanwhile are read by the first step, when all processes can get them.
void launcher::start_job() {
    // A terminal lets only its foreground group read, and that is ours: we read for process 0.
    relay_input_ = isatty(STDIN_FILENO);
    job_processes::settings job;
    job.count = options_.count > 0 ? options_.count : std::max(1, visible_gpus());
    job.key = random_key();
    job.environment = options_.environment;
    job.command = options_.command;
    job.pipe_output = options_.prefix;
    job.pipe_input = relay_input_;
    job.output_folder = options_.output_folder;
    running_.assign(static_cast<std::size_t>(job.count), true);
    running_count_ = job.count;
    blame_.resize(running_.size());
    for (int i = 0; options_.prefix && i < job.count; ++i)
        for (int stream : {STDOUT_FILENO, STDERR_FILENO}) lines_.emplace_back(sink_of(stream), fmt::format("[{}] ", i));
    processes_.start(job);
}

// ---- while it runs --------------------------------------------------------------------------------------------------

// Waits for something to happen, and handles it.
void launcher::step() {
    loop_.watch(signals_.fd(), POLLIN, [](short) {});
    stdout_.watch(loop_);
    stderr_.watch(loop_);
    processes_.watch(loop_);
    watch_input();
    if (deadline_) loop_.wake_at(*deadline_);
    loop_.wait();

    handle_signals();
    for (int stream : {STDOUT_FILENO, STDERR_FILENO}) {
        if (!sink_of(stream).broken() || std::exchange(closed_[stream], true)) continue;
        if (sink_of(stream).problem() != EPIPE) lose_output(stream);
        processes_.close_output(stream);
    }
    judge();
    escalate();
}

// A full disk, say. (Who reads no further, as head does, has lost nothing.) The processes see a closed pipe, and may
// end by that: this is the cause.
void launcher::lose_output(int stream) {
    output_is_lost_ = true;
    say(fmt::format("cannot write standard {}: {}", stream == STDOUT_FILENO ? "output" : "error",
                    std::strerror(sink_of(stream).problem())));
    if (!judged_) fail(EXIT_FAILURE);
}

void launcher::watch_input() {
    if (!relay_input_ || input_busy_) return;
    if (isatty(STDIN_FILENO) && tcgetpgrp(STDIN_FILENO) != getpgrp())
        loop_.wake_at(clock::now() + foreground_check_interval); // we may come to the foreground
    else
        loop_.watch(STDIN_FILENO, POLLIN, [this](short) { read_input(); });
}

void launcher::read_input() {
    char buffer[32768];
    const ssize_t got = read(STDIN_FILENO, buffer, sizeof buffer);
    if (got < 0 && (errno == EINTR || errno == EAGAIN || errno == EIO)) return; // EIO: we went to the background
    input_busy_ = true;
    processes_.input(std::string_view(buffer, got > 0 ? static_cast<std::size_t>(got) : 0));
    if (got <= 0) relay_input_ = false;
}

// Only with --prefix: else processes write to our output themselves.
void launcher::output(int index, int stream, std::string_view text) {
    lines_[static_cast<std::size_t>(2 * index + (stream == STDERR_FILENO))].add(text);
}

void launcher::handle_signals() {
    while (const int signal = signals_.next()) {
        if (signal != SIGCHLD) {
            forward(signal);
            continue;
        }
        for (auto [pid, status] : children_.reap()) processes_.child_ended(pid, status);
    }
}

void launcher::forward(int signal) {
    if (signal == SIGINT && interrupted_) return processes_.signal_all(SIGKILL);
    interrupted_ |= signal == SIGINT;
    processes_.signal_all(signal);
    if (signal == SIGTSTP) raise(SIGSTOP);
    if (running_count_ == 0 && (signal == SIGINT || signal == SIGTERM)) quit_ = true;
}

// ---- ends -----------------------------------------------------------------------------------------------------------

void launcher::ended(int index, pid_t pid, int status) {
    running_[static_cast<std::size_t>(index)] = false;
    --running_count_;
    if (status == 0 || judged_) return;
    failures_.push_back({index, pid, status});
    if (judge_at_) return;
    judge_at_ = clock::now() + time_to_judge;
    deadline_ = clock::now() + std::chrono::milliseconds(static_cast<long>(options_.grace_seconds * 1000));
}

void launcher::blamed(int speaker, int culprit) {
    const auto count = static_cast<int>(running_.size());
    if (speaker < 0 || speaker >= count || culprit < 0 || culprit >= count) return;
    blame_[static_cast<std::size_t>(speaker)] = culprit;
    if (!cause_) cause_ = culprit;
}

// Which process caused the end? Not the one whose end we see first: that may be one that saw the other's, was quicker,
// and even died by a signal of its own. Runtimes say because of whom they end; without them a signal tells more than an
// exit code.
void launcher::judge() {
    if (judged_ || failures_.empty()) return;
    const auto rank = [&](const process_end& each) {
        const auto& blame = blame_[static_cast<std::size_t>(each.index)];
        if (cause_ == each.index) return 0;
        return (blame && *blame != each.index ? 3 : 1) + (WIFSIGNALED(each.status) ? 0 : 1);
    };
    const auto found = std::min_element(failures_.begin(), failures_.end(),
                                        [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
    const bool still_runs = cause_ && running_[static_cast<std::size_t>(*cause_)];
    const auto patience = still_runs ? *deadline_ : std::min(*judge_at_, *deadline_);
    if (rank(*found) != 0 && running_count_ != 0 && clock::now() < patience) return loop_.wake_at(patience);

    const auto [index, pid, status] = *found;
    const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    std::string ending = fmt::format("exited with code {}", code);
    if (WIFSIGNALED(status)) {
        const char* name = sigabbrev_np(WTERMSIG(status));
        ending = fmt::format("was killed by signal {} ({})", WTERMSIG(status),
                             name ? fmt::format("SIG{}", name) : std::string("real-time"));
    }
    if (still_runs)
        ending += fmt::format(" because of process {} (host {}), which has not ended", *cause_, host_name());
    say(fmt::format("process {} (pid {}, host {}) {}", index, pid, host_name(), ending));
    fail(code);
}

void launcher::fail(int exit_code) {
    exit_code_ = exit_code;
    judged_ = true;
    if (!deadline_)
        deadline_ = clock::now() + std::chrono::milliseconds(static_cast<long>(options_.grace_seconds * 1000));
}

// After a failure: grace, then SIGTERM, then SIGKILL.
void launcher::escalate() {
    if (!deadline_ || clock::now() < *deadline_ || running_count_ == 0) {
        if (running_count_ == 0) deadline_.reset();
        return;
    }
    if (terminated_) {
        processes_.signal_all(SIGKILL);
        deadline_.reset();
        return;
    }
    terminated_ = true;
    say(fmt::format("{} other process{} did not end within {} s after that; ending {}", running_count_,
                    running_count_ == 1 ? "" : "es", options_.grace_seconds, running_count_ == 1 ? "it" : "them"));
    processes_.signal_all(SIGTERM);
    processes_.signal_all(SIGCONT); // a stopped process would not notice
    deadline_ = clock::now() + term_to_kill;
}

bool launcher::has_output() const { return !stdout_.empty() || !stderr_.empty() || processes_.has_output(); }

} // namespace launch
