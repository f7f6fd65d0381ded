#include "children.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

namespace launch {

namespace {

// All processes whose ancestor is this one. Orphans among them are our children, because we are a subreaper.
std::vector<pid_t> descendants(pid_t except) {
    std::vector<std::pair<pid_t, pid_t>> parents; // (process, its parent)
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
        const std::string name = entry.path().filename();
        if (name.find_first_not_of("0123456789") != name.npos) continue;
        std::ifstream file(entry.path() / "stat");
        std::string text;
        std::getline(file, text);
        pid_t parent = 0;
        char state = 0;
        const auto end_of_name = text.rfind(')');
        if (end_of_name == text.npos || std::sscanf(text.c_str() + end_of_name + 1, " %c %d", &state, &parent) != 2)
            continue;
        if (state != 'Z' && state != 'X') parents.emplace_back(std::stoi(name), parent);
    }
    std::vector<pid_t> found{getpid()};
    for (std::size_t i = 0; i < found.size(); ++i)
        for (auto [pid, parent] : parents)
            if (parent == found[i] && pid != except) found.push_back(pid);
    found.erase(found.begin());
    return found;
}

// In the new process: does not return.
[[noreturn]] void become(const child& what, const sigset_t& mask, int failure) {
    auto fail = [&] {
        [[maybe_unused]] const auto told = write(failure, &errno, sizeof errno);
        _exit(exit_not_executable);
    };
    for (int to = 0; to < 3; ++to)
        if (what.fds[to] >= 0 && dup2(what.fds[to], to) < 0) fail();
    for (int fd : what.kept_fds) fcntl(fd, F_SETFD, 0);
    for (const auto& variable : what.environment) {
        const auto equal = variable.find('=');
        if (equal == variable.npos)
            unsetenv(variable.c_str());
        else
            setenv(variable.substr(0, equal).c_str(), variable.c_str() + equal + 1, 1);
    }
    std::vector<char*> arguments;
    for (const auto& argument : what.arguments) arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGTTIN, SIG_DFL);
    sigprocmask(SIG_SETMASK, &mask, nullptr);
    execv(what.program.c_str(), arguments.data());
    fail();
    std::abort(); // not reached
}

} // namespace

children::children(const signal_reader& signals) : mask_(signals.mask_at_start()) {
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) fail_errno("cannot become the reaper of orphans");
    start_guard();
}

// A process that survives this one, also when it is killed, and then kills the groups of all children. The parent-death
// signal of each child reaches only that child, not what it started.
void children::start_guard() {
    auto pipe = make_pipe();
    guard_ = fork();
    if (guard_ < 0) fail_errno("cannot start a process");
    if (guard_ != 0) {
        guard_pipe_ = std::move(pipe.write);
        return;
    }
    setsid();
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    // Who waits for the end of our output, or of another pipe that we inherited, shall not wait for the guard.
    dup2(pipe.read.get(), 0);
    close_range(1, ~0U, 0);
    std::vector<pid_t> groups;
    for (pid_t group; read(0, &group, sizeof group) == sizeof group;) groups.push_back(group);
    for (pid_t group : groups) kill(-group, SIGKILL);
    _exit(0);
}

pid_t children::start(const child& what) {
    auto failure = make_pipe();
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid < 0) fail_errno(fmt::format("cannot start {}", what.program));
    if (pid == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(EXIT_FAILURE); // it died before the line above
        become(what, mask_, failure.write.get());
    }
    setpgid(pid, pid); // both sides do it, whoever comes first
    failure.write.reset();
    [[maybe_unused]] const auto told = write(guard_pipe_.get(), &pid, sizeof pid);
    int problem = 0;
    if (read(failure.read.get(), &problem, sizeof problem) == sizeof problem)
        throw start_error(problem == ENOENT ? exit_not_found : exit_not_executable,
                          fmt::format("cannot start {}: {}", what.program, std::strerror(problem)));
    return pid;
}

std::vector<std::pair<pid_t, int>> children::reap() {
    std::vector<std::pair<pid_t, int>> ended;
    int status = 0;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) ended.emplace_back(pid, status);
    return ended;
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
