// SPDX-License-Identifier: BSD-3-Clause
#include "children.hpp"

#include "support/host.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

namespace launch {

namespace {

// The processes of this host, without those that have ended, with their folder in /proc.
template <class Action>
void for_each_process(const Action& action) {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
        const std::string name = entry.path().filename();
        if (name.find_first_not_of("0123456789") == name.npos) action(std::stoi(name), entry.path());
    }
}

// All processes whose ancestor is this one. Orphans among them are our children, because we are a subreaper.
std::vector<pid_t> descendants(pid_t except) {
    std::vector<std::pair<pid_t, pid_t>> parents; // (process, its parent)
    for_each_process([&](pid_t pid, const std::filesystem::path&) {
        const auto [state, parent, start] = dcuda::support::find_process(pid);
        if (state != 0 && state != 'Z' && state != 'X') parents.emplace_back(pid, parent);
    });
    std::vector<pid_t> found{getpid()};
    for (std::size_t i = 0; i < found.size(); ++i)
        for (auto [pid, parent] : parents)
            if (parent == found[i] && pid != except) found.push_back(pid);
    found.erase(found.begin());
    return found;
}

// A message to the guard.
struct notice {
    enum class kind : int { started, gone, key } type; // a group; a group that has no members any more; the job's key
    pid_t group;
    char key[64];
};

void notify_guard(const unique_fd& guard, notice::kind type, pid_t group, std::string_view key = {}) {
    notice text{type, group, {}};
    key.copy(text.key, sizeof text.key - 1);
    [[maybe_unused]] const auto written = write(guard.get(), &text, sizeof text);
}

// Kills the processes that have this in the environment with which they were started. True if there were any.
bool kill_marked(const std::string& variable) {
    bool any = false;
    for_each_process([&](pid_t pid, const std::filesystem::path& folder) {
        const unique_fd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))); // from here on it is this one
        std::ifstream file(folder / "environ");
        for (std::string each; std::getline(file, each, '\0');)
            if (each == variable) any |= syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0) == 0;
    });
    return any;
}

// The life of the guard: takes notice until the other end is gone, then kills all that is left of the job.
void guard_job(int notices) {
    std::vector<pid_t> groups;
    std::string variable;
    for (notice next; read(notices, &next, sizeof next) == sizeof next;) {
        if (next.type == notice::kind::started) groups.push_back(next.group);
        if (next.type == notice::kind::gone) std::erase(groups, next.group);
        if (next.type == notice::kind::key) variable = std::string("DCUDA_JOB=") + next.key;
    }
    for (pid_t group : groups) kill(-group, SIGKILL);
    if (variable.empty()) return;
    // Repeated, since one of them may start another just now.
    int empty_rounds = 0;
    for (int round = 0; round < 1000 && empty_rounds < 2; ++round) {
        empty_rounds = kill_marked(variable) ? 0 : empty_rounds + 1;
        poll(nullptr, 0, 2);
    }
}

// In the new process: does not return.
[[noreturn]] void become(const child& description, const sigset_t& mask, int failure) {
    auto fail = [&] {
        [[maybe_unused]] const auto written = write(failure, &errno, sizeof errno);
        _exit(exit_not_executable);
    };
    for (int stream = 0; stream < 3; ++stream)
        if (description.fds[stream] >= 0 && dup2(description.fds[stream], stream) < 0) fail();
    for (int fd : description.kept_fds) fcntl(fd, F_SETFD, 0);
    for (const auto& variable : description.environment) {
        const auto equal = variable.find('=');
        if (equal == variable.npos)
            unsetenv(variable.c_str());
        else
            setenv(variable.substr(0, equal).c_str(), variable.c_str() + equal + 1, 1);
    }
    std::vector<char*> arguments;
    for (const auto& argument : description.arguments) arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    signal(SIGTTIN, SIG_DFL);
    sigprocmask(SIG_SETMASK, &mask, nullptr);
    execv(description.program.c_str(), arguments.data());
    fail();
    std::abort(); // not reached
}

} // namespace

children::children(const signal_reader& signals) : mask_(signals.mask_at_start()) {
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) fail_errno("cannot become the reaper of orphans");
    start_guard();
}

// A process that survives this one, also when it is killed, and then kills the groups of all children, and whatever has
// the job's key in its environment. The parent-death signal of each child reaches only that child, not what it started.
void children::start_guard() {
    auto pipe = make_pipe();
    guard_ = fork();
    if (guard_ < 0) fail_errno("cannot start a process");
    if (guard_ != 0) {
        guard_pipe_ = std::move(pipe.write);
        return;
    }
    setsid();
    sigset_t every_signal;
    sigfillset(&every_signal);
    sigprocmask(SIG_SETMASK, &every_signal, nullptr);
    // Who waits for the end of our output, or of another pipe that we inherited, shall not wait for the guard.
    dup2(pipe.read.get(), 0);
    close_range(1, ~0U, 0);
    // The guard of a job around this one shall not take this guard for a process of its job.
    for (char** each = environ; *each != nullptr; ++each) std::memset(*each, 0, std::strlen(*each));
    guard_job(0);
    _exit(0);
}

void children::mark(const std::string& key) { notify_guard(guard_pipe_, notice::kind::key, 0, key); }

pid_t children::start(const child& description) {
    auto failure = make_pipe();
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid < 0) fail_errno(fmt::format("cannot start {}", description.program));
    if (pid == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(EXIT_FAILURE); // it died before the line above
        become(description, mask_, failure.write.get());
    }
    setpgid(pid, pid); // both sides do it, whoever comes first
    failure.write.reset();
    notify_guard(guard_pipe_, notice::kind::started, pid);
    int problem = 0;
    if (read(failure.read.get(), &problem, sizeof problem) == sizeof problem)
        throw start_error(problem == ENOENT ? exit_not_found : exit_not_executable,
                          fmt::format("cannot start {}: {}", description.program, std::strerror(problem)));
    return pid;
}

std::vector<std::pair<pid_t, int>> children::reap() {
    std::vector<std::pair<pid_t, int>> ended;
    int status = 0;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        ended.emplace_back(pid, status);
        ended_.push_back(pid);
    }
    if (!ended.empty()) forget_empty_groups();
    return ended;
}

// The number of a group is another's once its last member has been waited for, which is here: we are a subreaper. From
// then on the guard must not kill it.
void children::forget_empty_groups() {
    std::erase_if(ended_, [&](pid_t group) {
        if (kill(-group, 0) == 0 || errno != ESRCH) return false;
        notify_guard(guard_pipe_, notice::kind::gone, group);
        return true;
    });
}

void children::kill_all() {
    // Repeated, since one of them may start another just now.
    for (int round = 0; round < 1000; ++round) {
        const auto left = descendants(guard_);
        if (left.empty()) return;
        for (pid_t pid : left) kill(pid, SIGKILL);
        poll(nullptr, 0, 2);
        reap();
    }
}

void children::end() {
    if (guard_ <= 0) return;
    kill_all();
    kill(guard_, SIGKILL);
    waitpid(guard_, nullptr, 0);
    guard_ = 0;
}

} // namespace launch
