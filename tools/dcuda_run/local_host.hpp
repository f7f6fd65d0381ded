// SPDX-License-Identifier: BSD-3-Clause
// Runs the processes of this host, for dcuda-run or for its agent.
#pragma once

#include "children.hpp"
#include "host.hpp"

namespace launch {

class local_host final : public host {
public:
    struct settings {
        bool pipe_output = false; // else processes write to our own output, or to files
        bool pipe_input = false;
        std::string output_folder;
    };

    local_host(settings initial, children& processes, host_events& events);

    const std::string& name() const override { return name_; }
    phase reached() const override;
    int gpus() const override;
    void prepare(const job_share& share) override;
    std::string rendezvous() const override { return {}; }
    void start(const std::string& rendezvous) override;
    void listen_with(unique_fd socket) { listener_ = std::move(socket); } // process 0 gets it
    void signal_all(int signal) override;
    void input(std::string_view text) override;
    void close_output(int stream) override;
    void finish() override;
    void watch(event_loop& loop) override;
    void update() override {}
    void child_ended(pid_t pid, int status) override;

private:
    struct process {
        pid_t pid = 0;
        bool running = false;
    };
    struct reader {
        int index, stream;
        unique_fd fd;
    };

    void start_process(int local_index, const std::string& rendezvous);
    void read_output(reader& source);
    void write_input(short happened);
    void read_blame();

    settings settings_;
    children& children_;
    host_events& events_;
    std::string name_;
    phase reached_ = phase::connected;
    job_share share_;
    std::string program_;
    unique_fd listener_;
    std::vector<process> processes_; // by local index
    std::vector<reader> readers_;
    pipe_ends blame_; // runtimes write to it who caused the end of the job
    unique_fd input_; // to process 0
    std::string input_text_;
    bool input_ends_ = false;
};

} // namespace launch
