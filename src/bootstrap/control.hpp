// SPDX-License-Identifier: BSD-3-Clause
// The control plane: how the processes of one job exchange small data, learn of each other's end, and agree that
// nothing moves any more. It carries set-up and bad news, never the data path.
#pragma once

#include "bootstrap/job.hpp"
#include "bootstrap/launcher.hpp"
#include "bootstrap/silence.hpp"

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace dcuda::bootstrap {

class channel;
class control_server;
class stall_detector;
struct control_listener;
struct frame;

using blob = std::string; // raw bytes

struct event {
    enum class kind {
        gathered, // the gather `id` is complete: parts[i] is what process i gave
        aborted,  // `process` called abort(code, message); its own event comes back to it too
        lost,     // `process` (pid) ended without goodbye, finished while others wait for it, or cannot be reached
        stalled,  // every process is quiet and nothing moves any more: see stall_detector in control_server.hpp
        message,  // `process` posted `message` to this one
        asked,    // `process` does not answer, and answer() shall report what ranks wait for
    };
    kind type = kind::gathered;
    std::uint64_t id = 0;
    std::vector<blob> parts{};
    int process = -1;
    pid_t pid = 0;
    int code = 0;
    std::string message{};
};

// One per process of a job. Used by one thread at a time. With a job of one process there is no socket and no thread.
// The processes of one host connect by a local socket, those of several hosts by TCP; see rendezvous.hpp. Then a
// host that does not answer for DCUDA_LOST_AFTER seconds (default 10) is lost, and the kernels look after that, so that
// no process has to call anything here for minutes.
//
// A process that attends, or waits in a collective call, and is not heard of for DCUDA_SILENT_AFTER seconds (default 7;
// 0: never) is reported on standard error: by the control server, or by the others if it is process 0. The job goes on.
//
// If the launcher has ended, all processes get an aborted event with the code process_lost: nobody else would end them.
//
// The first aborted or lost event of a job is its end: every process gets that one event, and every later collective
// call throws the error that it describes (aborted: the code, if it is an error_code, with the message; lost:
// process_lost).
class control {
public:
    // Collective over the job: returns when all processes are here. The identity (backend and ABI) and the library
    // version must be equal everywhere. Throws error(bootstrap_failure), on all processes that can be reached, if
    // a process is missing after DCUDA_CONNECT_TIMEOUT seconds (default 60), or if the processes disagree. `describe`:
    // null, or describes which ranks wait for a process that does not answer; another thread may call it.
    control(const job& own_job, std::string_view identity, wait_description describe = nullptr);

    // Says goodbye; never throws. In process 0 it waits up to a second for the goodbyes of the others.
    ~control();

    control(const control&) = delete;
    control& operator=(const control&) = delete;

    int index() const noexcept { return job_.index; }
    int count() const noexcept { return job_.count; }

    // The address of this host by which the others of the job reach it. Empty: there are no others.
    const std::string& local_address() const noexcept { return local_address_; }

    // Seconds after which a process of another host that does not answer is lost (DCUDA_LOST_AFTER).
    double lost_after() const noexcept { return lost_after_; }

    // The time after which this process knows which processes are lost, with some to spare.
    std::chrono::milliseconds time_to_notice_loss() const {
        const double seconds = 1 + (local_address_.empty() ? 0 : lost_after_);
        return std::chrono::milliseconds(static_cast<std::int64_t>(1000 * seconds));
    }

    // Collective, blocking: returns what each process gave, in the order of their indices. `subject` names it in errors
    // and must be equal everywhere.
    std::vector<blob> allgather(std::string_view own_part, std::string_view subject);

    // The same, for process `root` alone: the others get nothing. `root` must be equal everywhere.
    std::vector<blob> gather(std::string_view own_part, int root, std::string_view subject);

    // Collective, blocking.
    void barrier(std::string_view subject);

    // Collective, non-blocking: a gathered event with this id follows on every process. Any number may be in flight, in
    // any order; ids are equal on all processes, below first_reserved_id, and free again once gathered.
    void start_gather(std::uint64_t id, std::string_view payload);
    static constexpr std::uint64_t first_reserved_id = std::uint64_t{1} << 63;

    // Non-blocking: a message event follows on that process, which may be this one. Messages of one process to another
    // arrive in order; one to a process that has finished is dropped.
    void post(int process, std::string_view payload);

    // The same in a job that has failed, too, as far as the control server is still there: for what remains to be said.
    void post_last(int process, std::string_view payload);

    // Non-blocking: the next event, if there is one.
    std::optional<event> poll();

    // Reports to all processes why this run ends. Of several, the first that reaches the control server wins. Never
    // throws for a job that is already over.
    void abort(int code, std::string_view message);

    // While this lives the process calls poll() all the time.
    class attention {
    public:
        explicit attention(control& plane) : control_(&plane) { control_->begin_attention(); }
        ~attention() { end(); }
        attention(const attention&) = delete;
        void end() {
            if (control_ != nullptr) control_->end_attention();
            control_ = nullptr;
        }

    private:
        control* control_; // null: it has ended
    };

    // What the ranks of this process wait for, after an asked event about that process.
    void answer(int process, std::string_view waits);

    // A watchdog sample: every rank of this process waits or is done. The digest changes when any of them moved.
    void report_quiet(std::uint64_t digest);

    // A watchdog sample: some rank of this process is at work.
    void report_busy();

private:
    class gather_wait;
    using clock = std::chrono::steady_clock;
    void start_server(std::string_view identity, control_listener listener);
    void connect_on_host(std::string_view identity, int generation);
    void connect_across_hosts(std::string_view identity, int generation);
    void await_welcome();
    void wait_until(std::optional<clock::time_point> deadline) const;
    void check_keep_alive();
    void check_launcher();
    void begin_attention();
    void end_attention();
    void beat();
    void end_beats();
    void report_silent_server(const std::string& waiting);
    std::string name_server() const;
    std::string describe_launcher_end() const;
    void send_gather(std::uint64_t id, std::string_view label, std::string_view payload, int root = all_processes);
    std::vector<blob> await_gather(std::uint64_t id);
    static constexpr int all_processes = -1;
    void read_available();
    void receive(frame& message);
    void server_closed();
    void server_lost(const std::string& description);
    void note_failure();
    void throw_if_failed() const;

    job job_;
    mutable launcher_watch launcher_;
    double timeout_seconds_ = 60;
    double lost_after_ = 10;
    std::unique_ptr<control_server> server_; // process 0 of several
    std::unique_ptr<channel> channel_;       // to the control server; null in a job of one process
    std::string local_address_;
    std::unique_ptr<channel> keep_alive_; // over TCP: carries nothing and shows when the control server is unreachable
    mutable clock::time_point next_keep_alive_poll_{};
    std::unique_ptr<stall_detector> stalled_; // in a job of one process: the control server's part of the watchdog
    std::deque<event> events_;
    std::optional<event> failure_;
    std::map<std::uint64_t, std::string> waiting_; // gathers of this process in flight: label by id
    std::map<std::uint64_t, std::vector<blob>> blocking_results_;
    std::uint64_t next_blocking_id_ = first_reserved_id;
    double silent_after_ = 7;
    wait_description describe_ = nullptr;
    int attention_ = 0;                           // how many attend
    bool in_gather_ = false;                      // a blocking one
    std::unique_ptr<silence_watch> server_watch_; // the control server is its only process; null: no process is missed
    clock::time_point next_beat_{};
    pid_t server_pid_ = 0;
    std::string server_host_;        // over TCP
    bool server_gone_ = false;       // process 0 finished, in good order
    bool reported_quiet_ = false;    // the last sample was quiet
    std::uint64_t sample_round_ = 0; // of the samples, as the control server counts them
};

} // namespace dcuda::bootstrap
