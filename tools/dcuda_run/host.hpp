// SPDX-License-Identifier: BSD-3-Clause
// A host of the job: this one, or another by way of an agent.
#pragma once

#include "io.hpp"

#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace launch {

// What one host runs of a job.
struct job_share {
    int first = 0, count = 0, total = 0; // its processes among all
    std::string key;                     // of the job, secret
    std::vector<std::string> environment;
    std::vector<std::string> command;
    bool listens = false;  // as the host of process 0 in a job over several hosts
    std::string interface; // where it listens; empty: found out
};

class host;

class host_events {
public:
    // `stream` is STDOUT_FILENO or STDERR_FILENO; no text: it has ended.
    virtual void output(int index, int stream, std::string_view text) = 0;
    virtual bool takes_output(int stream) const = 0;
    virtual void input_taken() = 0; // process 0 may have more
    virtual void input_refused() = 0;
    virtual void ended(int index, pid_t pid, int status) = 0;
    virtual void blamed(int speaker, int culprit) = 0; // processes: who failed first, as a runtime has learnt
    virtual void say(const std::string& text) = 0;
    virtual void lost(const host& lost_host, int exit_code, const std::string& reason) = 0; // with all that ran there

protected:
    ~host_events() = default;
};

class host {
public:
    enum class phase { connecting, connected, ready, started, finished };

    virtual ~host() = default;
    virtual const std::string& name() const = 0;
    virtual phase reached() const = 0;
    virtual int gpus() const = 0; // from phase connected on

    virtual void prepare(const job_share& share) = 0; // on to phase ready
    virtual std::string rendezvous() const = 0;       // from then on: where it listens, if it does
    virtual void start(const std::string& rendezvous) = 0;
    virtual void signal_all(int signal) = 0;
    virtual void input(std::string_view text) = 0; // for process 0; no text: the end
    virtual void close_output(int stream) = 0;     // nobody reads it any more
    virtual void finish() = 0;                     // ends everything; what has been written still arrives

    virtual void watch(event_loop& loop) = 0;
    virtual void update() = 0;                           // after each wait
    virtual void child_ended(pid_t pid, int status) = 0; // a child of this process; maybe not of this host
};

} // namespace launch
