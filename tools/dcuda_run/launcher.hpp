// SPDX-License-Identifier: BSD-3-Clause
// A job on this host, from its start to its exit code.
#pragma once

#include "children.hpp"
#include "job_processes.hpp"
#include "options.hpp"

#include <optional>

namespace launch {

class launcher final : public process_events {
public:
    explicit launcher(options settings) : options_(std::move(settings)) {}
    int run();

private:
    struct process_end {
        int index;
        pid_t pid;
        int status;
    };

    void start_job();

    void step();
    void watch_input();
    void read_input();
    void handle_signals();
    void forward(int signal);
    void judge();
    void fail(int exit_code);
    void lose_output(int stream);
    void escalate();
    bool has_output() const;
    void say(const std::string& text) { stderr_.add("dcuda-run: " + text + "\n"); }
    sink& sink_of(int stream) { return stream == 1 ? stdout_ : stderr_; }

    void output(int index, int stream, std::string_view text) override;
    bool takes_output(int stream) const override { return !(stream == 1 ? stdout_ : stderr_).full(); }
    void input_taken() override { input_busy_ = false; }
    void input_refused() override { relay_input_ = false; }
    void ended(int index, pid_t pid, int status) override;
    void blamed(int speaker, int culprit) override;

    options options_;
    event_loop loop_;
    signal_reader signals_;
    children children_{signals_};
    job_processes processes_{children_, *this};
    std::vector<bool> running_; // by process
    int running_count_ = 0;
    int exit_code_ = 0;
    std::vector<process_end> failures_;         // of processes, in the order in which we hear of them
    std::vector<std::optional<int>> blame_;     // by process: which one it says caused the end
    std::optional<int> cause_;                  // the first of these
    std::optional<clock::time_point> judge_at_; // a process has failed: by then we know why
    bool output_is_lost_ = false;               // or a part of it
    bool judged_ = false;                       // the exit code is decided
    bool interrupted_ = false;                  // by a first SIGINT
    bool terminated_ = false;                   // the others got SIGTERM
    bool quit_ = false;
    std::optional<clock::time_point> deadline_; // of the next step against the others
    sink stdout_{1}, stderr_{2};
    bool closed_[3] = {};            // streams that nobody reads
    std::vector<line_writer> lines_; // with --prefix: two for each process
    bool relay_input_ = false;       // we read it for process 0
    bool input_busy_ = false;        // process 0 has not yet taken what we read last
};

} // namespace launch
