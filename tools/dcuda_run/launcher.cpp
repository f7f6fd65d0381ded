// SPDX-License-Identifier: BSD-3-Clause
#include "launcher.hpp"

#include "local_host.hpp"
#include "remote_host.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace launch {

namespace {

constexpr std::chrono::seconds term_to_kill{2}, abandon_limit{5};
constexpr std::chrono::milliseconds foreground_check_interval{200};
constexpr std::chrono::milliseconds time_to_judge{300}; // for the end of the process that caused that of another

std::string random_key() {
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) fail_errno("cannot get a random key");
    return fmt::format("{:02x}", fmt::join(bytes, ""));
}

} // namespace

int launcher::run() {
    try {
        start_job();
    } catch (...) {
        abandon();
        throw;
    }
    while (running_count_ > 0) step();
    judge();
    for (auto& each : parts_) each.host->finish();
    // What they wrote last. A signal ends this, too, if nobody takes our output.
    while (has_output() && !quit_) step();
    return exit_code_ == 0 && output_is_lost_ ? EXIT_FAILURE : exit_code_;
}

// ---- start ----------------------------------------------------------------------------------------------------------

void launcher::start_job() {
    lay_out_job();
    job_share share;
    share.key = random_key();
    share.environment = options_.environment;
    share.command = options_.command;
    share.interface = options_.interface;
    for (const auto& each : parts_) share.total += each.share.count;
    for (auto& each : parts_) {
        share.count = each.share.count;
        share.listens = share.first == 0 && parts_.size() > 1;
        each.share = share;
        share.first += share.count;
        each.host->prepare(each.share);
    }
    running_.assign(static_cast<std::size_t>(share.total), true);
    running_count_ = share.total;
    blame_.resize(running_.size());
    for (int i = 0; i < share.total; ++i) {
        const std::string label = options_.prefix ? fmt::format("[{}] ", i) : "";
        for (int stream : {STDOUT_FILENO, STDERR_FILENO}) {
            if (options_.prefix) lines_.emplace_back(sink_of(stream), label);
            if (!options_.hosts.empty() && !options_.output_folder.empty())
                files_.push_back(create_output_file(options_.output_folder, i, stream));
        }
    }
    wait_for(host::phase::ready);
    const std::string rendezvous = parts_[0].host->rendezvous();
    starting_ = true;
    for (auto& each : parts_) each.host->start(rendezvous);
    wait_for(host::phase::started);
    started_ = true;
    starting_ = false;
    for (int signal : std::exchange(early_signals_, {})) forward(signal);
}

// Finds how many processes run where, and so which hosts there are.
void launcher::lay_out_job() {
    if (options_.hosts.empty()) {
        // A terminal lets only its foreground group read, and that is ours: we read for process 0.
        relay_input_ = isatty(STDIN_FILENO);
        const local_host::settings settings{options_.prefix, relay_input_, options_.output_folder};
        parts_.push_back({std::make_unique<local_host>(settings, children_, *this), {}});
        parts_[0].share.count = options_.count > 0 ? options_.count : std::max(1, parts_[0].host->gpus());
        return;
    }
    relay_input_ = true;
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max; // many processes write to many files, and each host takes three pipes
    setrlimit(RLIMIT_NOFILE, &files);
    if (!options_.output_folder.empty()) create_output_folder(options_.output_folder);

    std::vector<int> counts(options_.hosts.size(), 0);
    if (options_.count > 0) counts = lay_out(options_.hosts, options_.count);
    for (std::size_t i = 0; i < counts.size(); ++i) {
        if (options_.count > 0 && counts[i] == 0) continue;
        auto other_host =
            std::make_unique<remote_host>(options_.hosts[i].name, options_.ssh, options_.agent, children_, *this);
        auto& added = parts_.emplace_back();
        added.host = std::move(other_host);
        added.share.count = options_.count > 0 ? counts[i] : options_.hosts[i].slots;
    }
    wait_for(host::phase::connected);
    for (auto& each : parts_)
        if (each.share.count == 0) each.share.count = std::max(1, each.host->gpus());
}

void launcher::wait_for(host::phase phase) {
    auto has_reached = [&](const part& each) { return each.host->reached() >= phase; };
    while (!start_problem_ && !std::all_of(parts_.begin(), parts_.end(), has_reached)) step();
    if (start_problem_) throw *start_problem_;
}

void launcher::abandon() {
    abandoned_ = true;
    const auto limit = clock::now() + abandon_limit;
    for (auto& each : parts_) each.host->finish();
    while (has_output() && !quit_ && clock::now() < limit) {
        loop_.wake_at(limit);
        step();
    }
}

// ---- while it runs --------------------------------------------------------------------------------------------------

// Waits for something to happen, and handles it.
void launcher::step() {
    loop_.watch(signals_.fd(), POLLIN, [](short) {});
    stdout_.watch(loop_);
    stderr_.watch(loop_);
    for (auto& each : parts_) each.host->watch(loop_);
    watch_input();
    if (deadline_) loop_.wake_at(*deadline_);
    loop_.wait();

    handle_signals();
    for (auto& each : parts_) each.host->update();
    for (int stream : {STDOUT_FILENO, STDERR_FILENO}) {
        if (!sink_of(stream).broken() || std::exchange(closed_[stream], true)) continue;
        if (sink_of(stream).problem() != EPIPE) lose_output(stream);
        for (auto& each : parts_) each.host->close_output(stream);
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
    if (!started_ || !relay_input_ || input_busy_) return;
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
    parts_[0].host->input(std::string_view(buffer, got > 0 ? static_cast<std::size_t>(got) : 0));
    if (got <= 0) relay_input_ = false;
}

void launcher::output(int index, int stream, std::string_view text) {
    const auto line = static_cast<std::size_t>(2 * index + (stream == STDERR_FILENO));
    if (line >= 2 * running_.size() || index < 0) return;
    if (options_.prefix) return lines_[line].add(text);
    if (files_.empty()) return sink_of(stream).add(text);
    while (!text.empty() && files_[line]) {
        const ssize_t wrote = write(files_[line].get(), text.data(), text.size());
        if (wrote >= 0) {
            text.remove_prefix(static_cast<std::size_t>(wrote));
        } else if (errno != EINTR) {
            say(fmt::format("cannot write the output of process {} to {}: {}", index, options_.output_folder,
                            std::strerror(errno)));
            files_[line].reset();
            output_is_lost_ = true;
        }
    }
}

void launcher::handle_signals() {
    while (const int signal = signals_.next()) {
        if (signal != SIGCHLD) {
            forward(signal);
            continue;
        }
        for (auto [pid, status] : children_.reap())
            for (auto& each : parts_) each.host->child_ended(pid, status);
    }
}

void launcher::forward(int signal) {
    const bool ends = signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
    if (starting_ && !abandoned_) return early_signals_.push_back(signal); // not all processes can get it yet
    if (!started_ && ends) {
        quit_ = abandoned_;
        start_problem_.emplace(128 + signal, "ended by a signal before the job ran");
        return;
    }
    if (signal == SIGINT && interrupted_) return signal_all(SIGKILL);
    interrupted_ |= signal == SIGINT;
    signal_all(signal);
    if (signal == SIGTSTP) raise(SIGSTOP);
    if (running_count_ == 0 && (signal == SIGINT || signal == SIGTERM)) quit_ = true;
}

void launcher::signal_all(int signal) {
    for (auto& each : parts_) each.host->signal_all(signal);
}

// ---- ends -----------------------------------------------------------------------------------------------------------

void launcher::count_end(int index) {
    if (index < 0 || index >= static_cast<int>(running_.size()) || !running_[static_cast<std::size_t>(index)]) return;
    running_[static_cast<std::size_t>(index)] = false;
    --running_count_;
}

const host* launcher::host_of(int index) const {
    for (const part& each : parts_)
        if (index >= each.share.first && index < each.share.first + each.share.count) return each.host.get();
    return nullptr;
}

void launcher::ended(int index, pid_t pid, int status) {
    count_end(index);
    if (status == 0 || judged_ || abandoned_) return;
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
    const auto name_host = [&](int process) {
        const host* const host = host_of(process);
        return host ? host->name() : std::string("?");
    };
    if (still_runs)
        ending += fmt::format(" because of process {} (host {}), which has not ended", *cause_, name_host(*cause_));
    say(fmt::format("process {} (pid {}, host {}) {}", index, pid, name_host(index), ending));
    fail(code);
}

void launcher::lost(const host& lost_host, int exit_code, const std::string& reason) {
    if (abandoned_) return;
    if (!started_) {
        if (!start_problem_) start_problem_.emplace(exit_code, fmt::format("host {}: {}", lost_host.name(), reason));
        return;
    }
    say(fmt::format("lost host {}: {}", lost_host.name(), reason));
    if (!judged_) fail(exit_code);
    const auto lost_part =
        std::find_if(parts_.begin(), parts_.end(), [&](const auto& each) { return each.host.get() == &lost_host; });
    for (int i = lost_part->share.first; i < lost_part->share.first + lost_part->share.count; ++i) {
        count_end(i);
        for (int stream : {STDOUT_FILENO, STDERR_FILENO}) output(i, stream, {}); // no more comes
    }
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
        signal_all(SIGKILL);
        deadline_.reset();
        return;
    }
    terminated_ = true;
    say(fmt::format("{} other process{} did not end within {} s after that; ending {}", running_count_,
                    running_count_ == 1 ? "" : "es", options_.grace_seconds, running_count_ == 1 ? "it" : "them"));
    signal_all(SIGTERM);
    signal_all(SIGCONT); // a stopped process would not notice
    deadline_ = clock::now() + term_to_kill;
}

bool launcher::has_output() const {
    return !stdout_.empty() || !stderr_.empty() || std::any_of(parts_.begin(), parts_.end(), [](const part& each) {
        return each.host->reached() != host::phase::finished;
    });
}

} // namespace launch
