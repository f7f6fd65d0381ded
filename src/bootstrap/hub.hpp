// The hub: one thread in process 0 of a job, to which every process of the job is connected.
#pragma once

#include "bootstrap/channel.hpp"

#include <chrono>
#include <thread>

namespace dcuda::bootstrap {

// Decides when a job stands still: all processes quiet, then a further sample of each with an unchanged digest, then,
// after a new round was announced to all, two more. Samples of different processes may be old when they are read, so
// the first part proves nothing; but samples of the new round were taken after its announcement, and with the digests
// of those before it, so at the announcement all were quiet. A process alone reads its samples at once: no round.
class stall_detector {
public:
    explicit stall_detector(int count) : processes_(static_cast<std::size_t>(count)) {}
    void busy(int process);
    void finished(int process);                       // it will send no more samples
    enum class verdict { moving, announce, stalled }; // announce: a new round began; stalled: the detector starts anew
    verdict quiet(int process, std::uint64_t digest, std::uint64_t round);
    std::uint64_t round() const { return round_; }

private:
    struct state {
        bool is_quiet = false, is_finished = false;
        std::uint64_t digest = 0;
        int unchanged = 0; // samples of this round since all processes are quiet
    };
    void restart_count();
    std::vector<state> processes_;
    std::uint64_t round_ = 0;
    bool is_announced_ = false; // this round was begun because all seemed to stand still
};

class hub {
public:
    // Listens at this address and starts the thread.
    hub(const job& who, std::string_view identity, const std::string& address, double timeout_seconds);

    // Waits up to a second until all other processes are gone, so that what was sent last reaches them.
    ~hub();

private:
    using clock = std::chrono::steady_clock;
    enum class stage { assembling, running, refused };
    struct client {
        channel link;
        int index = -1; // known after hello
        bool gone = false;
    };
    struct pending_gather {
        std::string label;
        std::vector<std::optional<blob>> parts;
        int arrived = 0;
        int first = 0; // process that came first
    };

    void run() noexcept;
    void serve();
    bool may_leave() const;
    int poll_timeout_ms() const;
    void accept_new();
    void read_from(client& from);
    void receive(client& from, frame& message);
    void receive_hello(client& from, const frame& message);
    void receive_gather(client& from, frame& message);
    void forward(const client& from, frame& message);
    void disconnected(client& from);
    void check_finished(const pending_gather& gather);
    std::string name(int process) const;
    std::string missing_processes() const;
    void refuse(const std::string& reason);
    void fail_job(event::kind what, int process, int code, const std::string& message);
    void broadcast(const frame& message);

    const job job_;
    const std::string identity_;
    const double timeout_seconds_;
    descriptor listener_;
    descriptor wake_;
    clock::time_point deadline_; // assembling: for all to appear; afterwards: for this hub to end
    bool ending_ = false;
    stage stage_ = stage::assembling;
    std::string refusal_;
    bool failed_ = false;
    std::vector<std::unique_ptr<client>> clients_;
    std::vector<pid_t> pids_;    // by index; 0: not here yet
    std::vector<bool> finished_; // by index
    int present_ = 0;            // processes that said hello
    int refused_count_ = 0;      // connections that were told the refusal
    std::map<std::uint64_t, pending_gather> gathers_;
    stall_detector stalled_;
    std::thread thread_; // last: uses all of the above
};

} // namespace dcuda::bootstrap
