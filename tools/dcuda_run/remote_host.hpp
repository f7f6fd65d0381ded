// SPDX-License-Identifier: BSD-3-Clause
// Another host, where an agent runs the processes; ssh, or what the user has instead, is the way to it.
#pragma once

#include "channel.hpp"
#include "children.hpp"
#include "host.hpp"

#include <memory>
#include <optional>

namespace launch {

class remote_host final : public host {
public:
    // `ssh` is a command that takes a host and a command line; `agent` is the path of dcuda-run there.
    remote_host(std::string name, const std::string& ssh, const std::string& agent, children& processes,
                host_events& events);

    const std::string& name() const override { return name_; }
    phase reached() const override { return reached_; }
    int gpus() const override { return gpus_; }
    void prepare(const job_share& share) override;
    std::string rendezvous() const override { return rendezvous_; }
    void start(const std::string& rendezvous) override;
    void signal_all(int signal) override;
    void input(std::string_view text) override;
    void close_output(int stream) override;
    void finish() override;
    void watch(event_loop& loop) override;
    void update() override;
    void child_ended(pid_t pid, int status) override;

private:
    void handle(const message& received);
    void read_diagnostics();
    void check_connection();
    void disconnect();
    void lose(const std::string& reason, int exit_code = EXIT_FAILURE);

    std::string name_, ssh_, agent_;
    host_events& events_;
    phase reached_ = phase::connecting;
    pid_t ssh_pid_ = 0;
    std::optional<int> ssh_status_; // it has ended with this
    unique_fd to_agent_, from_agent_, diagnostics_;
    std::unique_ptr<channel> channel_;
    std::string diagnostic_line_;
    int gpus_ = 0;
    std::string rendezvous_;
    long output_debt_ = 0;                      // what the agent may send in addition, once there is room
    bool done_ = false;                         // the agent is
    bool closed_ = false;                       // the connection
    std::optional<clock::time_point> deadline_; // to answer, or for ssh to end
};

} // namespace launch
