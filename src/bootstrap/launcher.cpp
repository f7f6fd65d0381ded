// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/launcher.hpp"

#include "support/env.hpp"
#include "support/host.hpp"

#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <poll.h>
#include <sstream>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

namespace dcuda::bootstrap {

namespace {

constexpr std::chrono::milliseconds poll_interval{250};
constexpr std::chrono::seconds port_poll_interval{2}; // which reads the list of all sockets

// Before main, so that hardly a launcher is gone already.
const pid_t parent_at_start = getppid();

// Variables by which a launcher tells its processes apart, and its jobs.
std::vector<const char*> marks_of(const std::string& launcher) {
    if (launcher == "openmpi") return {"OMPI_COMM_WORLD_RANK", "PMIX_NAMESPACE"};
    if (launcher == "torchrun") return {"RANK", "MASTER_PORT"};
    if (launcher == "slurm") return {"SLURM_PROCID", "SLURM_JOB_ID", "SLURM_STEP_ID"};
    if (launcher == "pmi") return {"PMI_RANK", "PMI_FD"};
    return {};
}

// Whether the process was started with the same values of them. Not, if that cannot be seen: it is another user's.
bool is_marked(pid_t pid, const std::vector<std::string>& marks) {
    std::ifstream file(fmt::format("/proc/{}/environ", pid));
    std::size_t found = 0;
    for (std::string each; std::getline(file, each, '\0');)
        for (const std::string& mark : marks) found += each == mark;
    return found == marks.size();
}

std::string name_of(pid_t pid) {
    std::ifstream file(fmt::format("/proc/{}/comm", pid));
    std::string name;
    std::getline(file, name);
    return name.empty() ? fmt::format("pid {}", pid) : fmt::format("{} (pid {})", name, pid);
}

bool has_listener(int port) {
    for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
        std::ifstream file(path);
        for (std::string line; std::getline(file, line);) {
            // Its number, own address and port, the other's, and its state, of which 10 is listening.
            unsigned own_port = 0, state = 0;
            if (std::sscanf(line.c_str(), " %*d: %*[0-9A-F]:%X %*[0-9A-F]:%*X %X", &own_port, &state) == 2 &&
                state == 10 && own_port == static_cast<unsigned>(port))
                return true;
        }
    }
    return false;
}

} // namespace

void report_cause(const job& own_job, int process) {
    const auto variable = support::env_string("DCUDA_BLAME_FD");
    int fd = -1;
    unsigned long inode = 0;
    if (own_job.launcher != "dcuda-run" || !variable || std::sscanf(variable->c_str(), "%d:%lu", &fd, &inode) != 2)
        return;
    // The program may have closed it and opened something else there.
    struct stat found {};
    if (fstat(fd, &found) != 0 || !S_ISSOCK(found.st_mode) || found.st_ino != inode) return;
    char text[32];
    const int bytes = std::snprintf(text, sizeof text, "%d %d", own_job.index, process);
    send(fd, text, static_cast<std::size_t>(bytes), MSG_DONTWAIT | MSG_NOSIGNAL);
}

launcher_watch::launcher_watch(const job& own_job) {
    std::vector<std::string> marks;
    for (const char* name : marks_of(own_job.launcher))
        if (const auto value = support::env_string(name)) marks.push_back(fmt::format("{}={}", name, *value));
    if (marks.empty() || !support::env_flag("DCUDA_WATCH_LAUNCHER").value_or(true)) return;

    // Number 1 ends with everything else, and 0 is a process outside of our namespace.
    pid_t child = getpid(), launcher = parent_at_start;
    while (launcher > 1 && is_marked(launcher, marks)) {
        child = launcher;
        launcher = support::find_process(launcher).parent;
    }
    if (launcher > 1) {
        name_ = name_of(launcher);
        process_ = support::descriptor(static_cast<int>(syscall(SYS_pidfd_open, launcher, 0)));
        if (child == getpid()) parent_ = launcher;
        // It may have ended meanwhile, and another process have its number.
        ended_ = (child == getpid() ? getppid() : support::find_process(child).parent) != launcher;
    }
    if (own_job.launcher != "slurm" || own_job.local_index != 0) return;
    const int port = std::atoi(support::env_string("SLURM_SRUN_COMM_PORT").value_or("0").c_str());
    if (port > 0 && has_listener(port)) srun_port_ = port;
}

bool launcher_watch::has_ended() {
    const auto now = clock::now();
    if (ended_ || now < next_poll_) return ended_;
    next_poll_ = now + poll_interval;
    ended_ = has_ended_now();
    return ended_;
}

bool launcher_watch::has_ended_now() {
    pollfd one{process_.get(), POLLIN, 0};
    if (process_.get() >= 0 && poll(&one, 1, 0) > 0) return true;
    if (parent_ != 0 && getppid() != parent_) return true;
    if (srun_port_ == 0 || next_poll_ < next_port_poll_) return false;
    next_port_poll_ = next_poll_ + port_poll_interval;
    if (has_listener(srun_port_)) return false;
    name_ = fmt::format("srun (which listened at port {})", srun_port_);
    return true;
}

} // namespace dcuda::bootstrap
