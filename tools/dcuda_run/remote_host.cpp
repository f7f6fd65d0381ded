// SPDX-License-Identifier: BSD-3-Clause
#include "remote_host.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <dcuda/config.hpp>
#include <filesystem>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace launch {

namespace {

constexpr std::chrono::seconds answer_limit{30}, ssh_end_limit{2};

std::string shell_quoted(const std::string& text) {
    std::string result = "'";
    for (char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return result + "'";
}

// What processes on other hosts see of our environment, as well as what the user sets for them.
std::vector<std::string> travelling_variables() {
    std::vector<std::string> result;
    for (char** each = environ; *each; ++each)
        for (const char* name : {"PATH=", "LD_LIBRARY_PATH=", "DCUDA_"})
            if (std::strncmp(*each, name, std::strlen(name)) == 0 && std::strchr(*each, '='))
                result.emplace_back(*each);
    return result;
}

} // namespace

remote_host::remote_host(std::string name, const std::string& ssh, const std::string& agent, children& processes,
                         host_events& events)
    : name_(std::move(name)), ssh_(ssh), agent_(agent), events_(events), deadline_(clock::now() + answer_limit) {
    auto in = make_pipe(), out = make_pipe(), err = make_pipe();
    const child command{
        .program = "/bin/sh",
        .arguments = {"sh", "-c", "exec " + ssh + " \"$@\"", "sh", name_, "exec " + shell_quoted(agent) + " --agent"},
        .environment = {},
        .fds = {in.read.get(), out.write.get(), err.write.get()}};
    ssh_pid_ = processes.start(command);
    to_agent_ = std::move(in.write);
    from_agent_ = std::move(out.read);
    diagnostics_ = std::move(err.read);
    set_nonblocking(diagnostics_.get());
    channel_ = std::make_unique<channel>(from_agent_.get(), to_agent_.get(), false);
}

void remote_host::prepare(const job_share& share) {
    // Without the user's name, as in me@there.
    message text{"prepare", name_.substr(name_.find('@') + 1), std::filesystem::current_path()};
    append_list(text, travelling_variables());
    for (int number : {share.first, share.count, share.total}) text.push_back(std::to_string(number));
    text.push_back(share.key);
    append_list(text, share.environment);
    append_list(text, share.command);
    text.push_back(share.listens ? "1" : "0");
    text.push_back(share.interface);
    channel_->send(text);
}

void remote_host::start(const std::string& rendezvous) { channel_->send({"start", rendezvous}); }

void remote_host::signal_all(int signal) {
    if (channel_) channel_->send({"signal", std::to_string(signal)});
}

void remote_host::input(std::string_view text) {
    if (channel_) channel_->send({"input", std::string(text)});
}

void remote_host::close_output(int stream) {
    if (channel_) channel_->send({"close output", std::to_string(stream)});
}

void remote_host::finish() {
    if (!channel_) return;
    if (reached_ == phase::connecting) return lose("is not needed any more");
    channel_->send({"finish"});
}

void remote_host::watch(event_loop& loop) {
    if (diagnostics_) loop.watch(diagnostics_.get(), POLLIN, [this](short) { read_diagnostics(); });
    if (deadline_) loop.wake_at(*deadline_);
    if (!channel_) return;
    if (output_debt_ > 0 && events_.takes_output(STDOUT_FILENO) && events_.takes_output(STDERR_FILENO))
        channel_->send({"more output", std::to_string(std::exchange(output_debt_, 0))});
    channel_->watch(loop);
}

void remote_host::update() {
    if (reached_ == phase::finished) return;
    try {
        while (channel_) {
            auto arrived = channel_->next();
            if (!arrived) break;
            handle(*arrived);
        }
        check_connection();
    } catch (const std::exception& problem) {
        lose(problem.what());
    }
}

void remote_host::handle(const message& received) {
    fields rest(received);
    const std::string& kind = received[0];
    if (kind == "hello") {
        const auto version = rest.text();
        if (version != DCUDA_VERSION_STRING)
            return lose(fmt::format("{} there is of dCUDA {}, this one of {}", agent_, version, DCUDA_VERSION_STRING));
        gpus_ = static_cast<int>(rest.number());
        deadline_.reset();
        reached_ = phase::connected;
    } else if (kind == "ready") {
        rendezvous_ = rest.text();
        reached_ = phase::ready;
    } else if (kind == "started") {
        reached_ = phase::started;
    } else if (kind == "failed") {
        const auto code = static_cast<int>(rest.number());
        lose(rest.text(), code);
    } else if (kind == "output") {
        const auto index = static_cast<int>(rest.number()), stream = static_cast<int>(rest.number());
        const auto& text = rest.text();
        output_debt_ += static_cast<long>(text.size());
        events_.output(index, stream, text);
    } else if (kind == "input taken") {
        events_.input_taken();
    } else if (kind == "input refused") {
        events_.input_refused();
    } else if (kind == "ended") {
        const auto index = static_cast<int>(rest.number());
        const auto pid = static_cast<pid_t>(rest.number());
        events_.ended(index, pid, static_cast<int>(rest.number()));
    } else if (kind == "blamed") {
        const auto speaker = static_cast<int>(rest.number());
        events_.blamed(speaker, static_cast<int>(rest.number()));
    } else if (kind == "done") {
        done_ = true;
        disconnect();
        deadline_ = clock::now() + ssh_end_limit;
    }
}

void remote_host::check_connection() {
    const bool late = deadline_ && clock::now() > *deadline_;
    if (done_) {
        if (ssh_status_ || late) reached_ = phase::finished;
        return;
    }
    if (reached_ == phase::finished) return;
    // The connection may end a little before ssh tells how.
    if (channel_->closed() && !std::exchange(closed_, true)) deadline_ = clock::now() + ssh_end_limit;
    const bool connecting = reached_ == phase::connecting;
    if (ssh_status_) {
        const int code = WIFSIGNALED(*ssh_status_) ? 128 + WTERMSIG(*ssh_status_) : WEXITSTATUS(*ssh_status_);
        const bool not_there = connecting && (code == 126 || code == 127);
        lose(fmt::format("`{}` ended with code {}{}", ssh_.substr(0, ssh_.find(' ')), code,
                         not_there ? fmt::format("; if {} is not there, name its folder by --remote-path", agent_)
                                   : ""));
    } else if (closed_) {
        if (late || !channel_->problem().empty())
            lose(channel_->problem().empty() ? "its connection ended" : channel_->problem());
    } else if (connecting && late) {
        lose(fmt::format("no answer within {} s", answer_limit.count()));
    } else if (!connecting && channel_->silent()) {
        lose(fmt::format("nothing heard from it for {} s", channel::silence_limit.count()));
    }
}

void remote_host::read_diagnostics() {
    char buffer[4096];
    const ssize_t got = read(diagnostics_.get(), buffer, sizeof buffer);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got > 0) diagnostic_line_.append(buffer, static_cast<std::size_t>(got));
    if (got <= 0) {
        diagnostics_.reset();
        if (!diagnostic_line_.empty()) diagnostic_line_ += '\n';
    }
    for (std::size_t end; (end = diagnostic_line_.find('\n')) != diagnostic_line_.npos;) {
        std::string line = diagnostic_line_.substr(0, end);
        diagnostic_line_.erase(0, end + 1);
        if (!line.empty() && line.back() == '\r') line.pop_back(); // ssh writes for a terminal
        events_.say(fmt::format("host {}: {}", name_, line));
    }
}

void remote_host::child_ended(pid_t pid, int status) {
    if (pid != ssh_pid_) return;
    ssh_status_ = status;
    // The last that came from it.
    for (int i = 0; i < 64 && channel_ && !channel_->closed(); ++i) channel_->read_some();
    for (int i = 0; i < 64 && diagnostics_; ++i) read_diagnostics();
}

// The agent sees the end of its input, and ends with all its processes.
void remote_host::disconnect() {
    channel_.reset();
    to_agent_.reset();
    from_agent_.reset();
}

void remote_host::lose(const std::string& reason, int exit_code) {
    disconnect();
    if (!ssh_status_) kill(-ssh_pid_, SIGTERM);
    reached_ = phase::finished;
    events_.lost(*this, exit_code, reason);
}

} // namespace launch
