// SPDX-License-Identifier: BSD-3-Clause
#include "job_processes.hpp"

#include "support/descriptor.hpp"
#include "this_host.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace launch {

namespace {

unsigned long inode_of(int fd) {
    struct stat found {};
    fstat(fd, &found);
    return found.st_ino;
}

} // namespace

void job_processes::start(const settings& job) {
    // Two pipes of each process, and some of our own.
    if (job.pipe_output) dcuda::support::allow_descriptors(2 * static_cast<std::size_t>(job.count) + 64);
    children_.mark(job.key);
    const std::string program = find_program(job.command[0]);
    if (!job.output_folder.empty()) create_output_folder(job.output_folder);
    blame_ = make_mailbox();
    for (int i = 0; i < job.count; ++i) start_process(job, program, i);
    blame_.write.reset();
}

void job_processes::start_process(const settings& job, const std::string& program, int index) {
    child description;
    description.program = program;
    description.arguments = job.command;
    // A job of one host needs no rendezvous: what is left of another job must not be taken for one.
    description.environment = {fmt::format("DCUDA_PROCESS_INDEX={}", index),
                               fmt::format("DCUDA_PROCESS_COUNT={}", job.count),
                               fmt::format("DCUDA_LOCAL_INDEX={}", index),
                               fmt::format("DCUDA_LOCAL_COUNT={}", job.count),
                               "DCUDA_JOB=" + job.key,
                               fmt::format("DCUDA_BLAME_FD={}:{}", blame_.write.get(), inode_of(blame_.write.get())),
                               "DCUDA_RENDEZVOUS",
                               "DCUDA_LISTEN_FD"};
    description.kept_fds = {blame_.write.get()};
    description.environment.insert(description.environment.end(), job.environment.begin(), job.environment.end());

    std::vector<unique_fd> child_ends; // ours only until it has them
    auto give = [&](int fd, unique_fd end) {
        description.fds[fd] = end.get();
        child_ends.push_back(std::move(end));
    };
    if (index > 0) {
        give(STDIN_FILENO, unique_fd(open("/dev/null", O_RDONLY | O_CLOEXEC)));
    } else if (job.pipe_input) {
        auto pipe = make_pipe();
        set_nonblocking(pipe.write.get());
        input_ = std::move(pipe.write);
        give(STDIN_FILENO, std::move(pipe.read));
    }
    for (int stream : {STDOUT_FILENO, STDERR_FILENO}) {
        if (!job.output_folder.empty()) {
            give(stream, create_output_file(job.output_folder, index, stream));
        } else if (job.pipe_output) {
            auto pipe = make_pipe();
            readers_.push_back({index, stream, std::move(pipe.read)});
            give(stream, std::move(pipe.write));
        }
    }
    processes_.push_back({children_.start(description), true});
}

void job_processes::signal_all(int signal) {
    for (const process& each : processes_)
        if (each.running) kill(-each.pid, signal);
}

void job_processes::input(std::string_view text) {
    if (!input_) return events_.input_refused();
    input_text_ += text;
    input_ends_ |= text.empty();
    if (input_ends_ && input_text_.empty()) input_.reset();
}

void job_processes::close_output(int stream) {
    // If nobody reads our output, the program shall find out as it would without us.
    for (auto& each : readers_)
        if (each.stream == stream) each.fd.reset();
}

void job_processes::finish() {
    children_.kill_all();
    for (auto& each : processes_) each.running = false;
}

bool job_processes::has_output() const {
    return std::any_of(readers_.begin(), readers_.end(), [](const reader& each) { return bool(each.fd); });
}

void job_processes::watch(event_loop& loop) {
    for (auto& each : readers_)
        if (each.fd && events_.takes_output(each.stream))
            loop.watch(each.fd.get(), POLLIN, [this, &each](short) { read_output(each); });
    if (blame_.read) loop.watch(blame_.read.get(), POLLIN, [this](short) { read_blame(); });
    // With nothing to write, we still learn that nobody reads.
    if (input_)
        loop.watch(input_.get(), static_cast<short>(input_text_.empty() ? 0 : POLLOUT),
                   [this](short happened) { write_input(happened); });
}

void job_processes::read_output(reader& source) {
    if (!source.fd || !events_.takes_output(source.stream)) return;
    char buffer[65536];
    const ssize_t got = read(source.fd.get(), buffer, sizeof buffer);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    events_.output(source.index, source.stream, std::string_view(buffer, got > 0 ? static_cast<std::size_t>(got) : 0));
    if (got <= 0) source.fd.reset();
}

void job_processes::read_blame() {
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

void job_processes::write_input(short happened) {
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

void job_processes::child_ended(pid_t pid, int status) {
    for (std::size_t i = 0; i < processes_.size(); ++i) {
        if (processes_[i].pid != pid || !processes_[i].running) continue;
        processes_[i].running = false;
        read_blame(); // it was written before
        events_.ended(static_cast<int>(i), pid, status);
    }
}

} // namespace launch
