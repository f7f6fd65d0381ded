// SPDX-License-Identifier: BSD-3-Clause
// The processes of the job: how they are started, what goes in and out of them, and how they end.
#pragma once

#include "children.hpp"
#include "io.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace launch {

// Who is told of what the processes do.
class process_events {
public:
    // `stream` is STDOUT_FILENO or STDERR_FILENO; no text: it has ended.
    virtual void output(int index, int stream, std::string_view text) = 0;
    virtual bool takes_output(int stream) const = 0;
    virtual void input_taken() = 0; // process 0 may have more
    virtual void input_refused() = 0;
    virtual void ended(int index, pid_t pid, int status) = 0;
    virtual void blamed(int speaker, int culprit) = 0; // processes: who failed first, as a runtime has learnt

protected:
    ~process_events() = default;
};

class job_processes {
public:
    struct settings {
        int count = 0;
        std::string key;                      // of the job, secret
        std::vector<std::string> environment; // NAME=VALUE
        std::vector<std::string> command;
        bool pipe_output = false; // else processes write to our own output, or to files
        bool pipe_input = false;
        std::string output_folder;
    };

    job_processes(children& started, process_events& events) : children_(started), events_(events) {}

    void start(const settings& job); // throws start_error; some may have started then
    void signal_all(int signal);
    void input(std::string_view text); // for process 0; no text: the end
    void close_output(int stream);     // nobody reads it any more
    void finish();                     // ends everything; what has been written still arrives
    bool has_output() const;           // more may arrive

    void watch(event_loop& loop);
    void child_ended(pid_t pid, int status); // a child of this process; maybe none of the job

private:
    struct process {
        pid_t pid = 0;
        bool running = false;
    };
    struct reader {
        int index, stream;
        unique_fd fd;
    };

    void start_process(const settings& job, const std::string& program, int index);
    void read_output(reader& source);
    void write_input(short happened);
    void read_blame();

    children& children_;
    process_events& events_;
    std::vector<process> processes_; // by index
    std::vector<reader> readers_;
    pipe_ends blame_; // runtimes write to it who caused the end of the job
    unique_fd input_; // to process 0
    std::string input_text_;
    bool input_ends_ = false;
};

} // namespace launch
