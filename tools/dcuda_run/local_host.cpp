// SPDX-License-Identifier: BSD-3-Clause
#include "local_host.hpp"

#include "support/descriptor.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <sstream>
#include <sys/socket.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace launch {

namespace {

// GPUs that a process would see, without a driver library.
int visible_gpus() {
    if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
        const std::string list = visible;
        if (list.empty() || list[0] == '-') return 0;
        return 1 + static_cast<int>(std::count(list.begin(), list.end(), ','));
    }
    int count = 0;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/dev", ignored)) {
        const std::string name = entry.path().filename();
        if (name.rfind("nvidia", 0) == 0 && name.size() > 6 && name.find_first_not_of("0123456789", 6) == name.npos)
            ++count;
    }
    return count;
}

unsigned long inode_of(int fd) {
    struct stat found {};
    fstat(fd, &found);
    return found.st_ino;
}

std::string find_program(const std::string& name) {
    std::vector<std::string> candidates;
    if (name.find('/') != name.npos) {
        candidates.push_back(name);
    } else {
        const char* path = std::getenv("PATH");
        std::istringstream folders(path ? path : "/usr/local/bin:/usr/bin:/bin");
        for (std::string folder; std::getline(folders, folder, ':');)
            candidates.push_back((folder.empty() ? "." : folder) + "/" + name);
    }
    bool found = false;
    for (const auto& candidate : candidates) {
        std::error_code ignored;
        if (!std::filesystem::exists(candidate, ignored)) continue;
        found = true;
        if (!std::filesystem::is_directory(candidate, ignored) && access(candidate.c_str(), X_OK) == 0)
            return candidate;
    }
    if (found) throw start_error(exit_not_executable, fmt::format("{} is not an executable file", name));
    const bool is_path = name.find('/') != name.npos;
    throw start_error(exit_not_found,
                      is_path ? fmt::format("{} does not exist", name)
                              : fmt::format("no program {} in PATH; for one in this folder write ./{}", name, name));
}

} // namespace

local_host::local_host(settings initial, children& processes, host_events& events)
    : settings_(std::move(initial)), children_(processes), events_(events) {
    char name[256] = "?";
    gethostname(name, sizeof name - 1);
    name_ = name;
}

host::phase local_host::reached() const {
    const bool reads = std::any_of(readers_.begin(), readers_.end(), [](const auto& each) { return bool(each.fd); });
    return reached_ == phase::finished && reads ? phase::started : reached_;
}

int local_host::gpus() const { return visible_gpus(); }

void local_host::prepare(const job_share& share) {
    share_ = share;
    // Two pipes of each process, and some of our own.
    if (settings_.pipe_output) dcuda::support::allow_descriptors(2 * static_cast<std::size_t>(share.count) + 64);
    children_.mark(share_.key);
    program_ = find_program(share_.command[0]);
    if (!settings_.output_folder.empty()) create_output_folder(settings_.output_folder);
    reached_ = phase::ready;
}

void local_host::start(const std::string& rendezvous) {
    blame_ = make_mailbox();
    for (int i = 0; i < share_.count; ++i) start_process(i, rendezvous);
    blame_.write.reset();
    listener_.reset();
    reached_ = phase::started;
}

void local_host::start_process(int local_index, const std::string& rendezvous) {
    const int index = share_.first + local_index;
    child description;
    description.program = program_;
    description.arguments = share_.command;
    description.environment = {fmt::format("DCUDA_PROCESS_INDEX={}", index),
                               fmt::format("DCUDA_PROCESS_COUNT={}", share_.total),
                               fmt::format("DCUDA_LOCAL_INDEX={}", local_index),
                               fmt::format("DCUDA_LOCAL_COUNT={}", share_.count),
                               "DCUDA_JOB=" + share_.key,
                               rendezvous.empty() ? "DCUDA_RENDEZVOUS" : "DCUDA_RENDEZVOUS=" + rendezvous,
                               fmt::format("DCUDA_BLAME_FD={}:{}", blame_.write.get(), inode_of(blame_.write.get())),
                               "DCUDA_LISTEN_FD"};
    description.kept_fds = {blame_.write.get()};
    if (index == 0 && listener_) {
        description.kept_fds.push_back(listener_.get());
        description.environment.back() += fmt::format("={}", listener_.get());
    }
    description.environment.insert(description.environment.end(), share_.environment.begin(), share_.environment.end());

    std::vector<unique_fd> child_ends; // ours only until it has them
    auto give = [&](int fd, unique_fd end) {
        description.fds[fd] = end.get();
        child_ends.push_back(std::move(end));
    };
    if (index > 0) {
        give(STDIN_FILENO, unique_fd(open("/dev/null", O_RDONLY | O_CLOEXEC)));
    } else if (settings_.pipe_input) {
        auto pipe = make_pipe();
        set_nonblocking(pipe.write.get());
        input_ = std::move(pipe.write);
        give(STDIN_FILENO, std::move(pipe.read));
    }
    for (int stream : {STDOUT_FILENO, STDERR_FILENO}) {
        if (!settings_.output_folder.empty()) {
            give(stream, create_output_file(settings_.output_folder, index, stream));
        } else if (settings_.pipe_output) {
            auto pipe = make_pipe();
            readers_.push_back({index, stream, std::move(pipe.read)});
            give(stream, std::move(pipe.write));
        }
    }
    processes_.push_back({children_.start(description), true});
}

void local_host::signal_all(int signal) {
    for (const process& each : processes_)
        if (each.running) kill(-each.pid, signal);
}

void local_host::input(std::string_view text) {
    if (!input_) return events_.input_refused();
    input_text_ += text;
    input_ends_ |= text.empty();
    if (input_ends_ && input_text_.empty()) input_.reset();
}

void local_host::close_output(int stream) {
    // If nobody reads our output, the program shall find out as it would without us.
    for (auto& each : readers_)
        if (each.stream == stream) each.fd.reset();
}

void local_host::finish() {
    children_.kill_all();
    for (auto& each : processes_) each.running = false;
    reached_ = phase::finished;
}

void local_host::watch(event_loop& loop) {
    for (auto& each : readers_)
        if (each.fd && events_.takes_output(each.stream))
            loop.watch(each.fd.get(), POLLIN, [this, &each](short) { read_output(each); });
    if (blame_.read) loop.watch(blame_.read.get(), POLLIN, [this](short) { read_blame(); });
    // With nothing to write, we still learn that nobody reads.
    if (input_)
        loop.watch(input_.get(), static_cast<short>(input_text_.empty() ? 0 : POLLOUT),
                   [this](short happened) { write_input(happened); });
}

void local_host::read_output(reader& source) {
    if (!source.fd || !events_.takes_output(source.stream)) return;
    char buffer[65536];
    const ssize_t got = read(source.fd.get(), buffer, sizeof buffer);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    events_.output(source.index, source.stream, std::string_view(buffer, got > 0 ? static_cast<std::size_t>(got) : 0));
    if (got <= 0) source.fd.reset();
}

void local_host::read_blame() {
    char text[64];
    while (blame_.read) {
        const ssize_t got = recv(blame_.read.get(), text, sizeof text - 1, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return;
        if (got <= 0) return blame_.read.reset(); // nobody is left who could write
        text[got] = '\0';
        int speaker = -1, culprit = -1;
        if (std::sscanf(text, "%d %d", &speaker, &culprit) == 2) events_.blamed(speaker, culprit);
    }
}

void local_host::write_input(short happened) {
    const ssize_t wrote = happened & POLLERR ? -1 : write(input_.get(), input_text_.data(), input_text_.size());
    if (wrote > 0) input_text_.erase(0, static_cast<std::size_t>(wrote));
    if (happened & POLLERR || (wrote < 0 && errno != EAGAIN && errno != EINTR)) {
        input_.reset();
        input_text_.clear();
        events_.input_refused();
    } else if (input_text_.empty()) {
        if (input_ends_) input_.reset();
        events_.input_taken();
    }
}

void local_host::child_ended(pid_t pid, int status) {
    for (std::size_t i = 0; i < processes_.size(); ++i) {
        if (processes_[i].pid != pid || !processes_[i].running) continue;
        processes_[i].running = false;
        read_blame(); // it was written before
        events_.ended(share_.first + static_cast<int>(i), pid, status);
    }
}

} // namespace launch
