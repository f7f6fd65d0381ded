// SPDX-License-Identifier: BSD-3-Clause
// What ties a process to the launcher that started it.
#pragma once

#include "bootstrap/job.hpp"
#include "support/descriptor.hpp"

#include <chrono>
#include <string>
#include <sys/types.h>

namespace dcuda::bootstrap {

// Reports to dcuda-run which process caused the end of the job, as this process knows it, before this one ends because
// of it. dcuda-run sees ends in any order, and names that process. Never throws; does nothing under other launchers.
void report_cause(const job& own_job, int process);

// Polls whether the launcher of this process still lives. Most launchers end their processes when they end themselves;
// none of them can when it is killed, and then nobody would ever end a job that hangs, or hear what it says. dcuda-run,
// whose processes the kernel kills, is not polled.
//
// The launcher is the nearest ancestor that was not itself started as this process of the job was: mpirun or its
// daemon, torchrun, slurmstepd; programs in between, such as a shell, are none. Of SLURM, srun is polled as well if
// it runs on this host: slurmstepd does not end with it.
class launcher_watch {
public:
    explicit launcher_watch(const job& own_job); // DCUDA_WATCH_LAUNCHER=0: polls nothing

    bool has_ended();                                 // PERF: polls four times a second at most, else 25 ns
    void poll_again() { next_poll_ = {}; }            // at the next call
    const std::string& name() const { return name_; } // "mpirun (pid 77)"
    int fd() const { return process_.get(); }         // becomes readable when it ends; -1: only has_ended() finds out

private:
    using clock = std::chrono::steady_clock;
    bool has_ended_now();

    pid_t parent_ = 0; // of this process, if that is the launcher
    support::descriptor process_;
    int srun_port_ = 0; // where srun listens on this host
    std::string name_;
    bool ended_ = false;
    clock::time_point next_poll_{}, next_port_poll_{};
};

} // namespace dcuda::bootstrap
