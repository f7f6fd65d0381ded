// SPDX-License-Identifier: BSD-3-Clause
// The control server: one thread in process 0 of a job, to which every process of the job is connected.
#pragma once

#include "bootstrap/channel.hpp"
#include "bootstrap/handshake.hpp"
#include "bootstrap/silence.hpp"

#include <chrono>
#include <random>
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

// The socket to which the processes of the job connect, and how they prove that they belong to it.
struct control_listener {
    descriptor socket{};
    std::optional<auth_key> key{}; // over TCP: each process proves that it has it; on one host the system knows peers
};

struct time_limits {
    double connect = 60;     // seconds for all processes to appear
    double lost_after = 10;  // over TCP: seconds without an answer from another host
    double silent_after = 0; // seconds without an answer from a process, after which that is reported; 0: never
};

class control_server {
public:
    // Starts the thread. `own_connection` is the connection of process 0 itself.
    control_server(const job& own_job, std::string_view identity, control_listener listener, descriptor own_connection,
                   const time_limits& limits, wait_description describe);

    // Waits up to a second until all other processes are gone, so that what was sent last reaches them.
    ~control_server();

private:
    using clock = std::chrono::steady_clock;
    enum class stage { assembling, running, refused };
    struct client {
        channel link;
        pid_t pid = 0;
        std::optional<handshake> authentication{};             // over TCP, until it has succeeded
        clock::time_point deadline = clock::time_point::max(); // by when it must have succeeded
        int index = -1;                                        // known after hello or keep_alive
        bool is_keep_alive = false;
        bool gone = false;
        bool is_member() const { return index >= 0 && !is_keep_alive && !gone; }
    };
    struct member {
        pid_t pid = 0; // 0: not here yet
        std::string host{};
        bool has_keep_alive = false;
        bool has_finished = false;
    };
    static bool is_unauthenticated(const std::unique_ptr<client>& each) {
        return each->index < 0 && each->authentication;
    }
    struct pending_gather {
        std::string label;
        std::vector<std::optional<blob>> parts;
        int arrived = 0;
        int first = 0;          // process that came first
        std::uint64_t root = 0; // 1 + the only process that gets the parts, or 0
        clock::time_point begin = clock::now();
    };
    // The question what ranks wait for, to all processes that attend.
    struct question {
        int silent;           // the process that does not answer
        clock::duration time; // for so long
        clock::time_point deadline;
        int open = 0; // answers that have not come
        std::vector<blob> answers{};
    };

    void run() noexcept;
    void serve();
    bool may_leave() const;
    int poll_timeout_ms() const;
    void accept_new();
    void add_client(descriptor socket);
    bool drop_an_unauthenticated_peer();
    void cannot_accept(int problem);
    void end_for(const std::string& reason);
    void drop_overdue_peers();
    void read_from(client& peer);
    bool authenticate(client& peer);
    void receive(client& peer, frame& message);
    void receive_hello(client& peer, const frame& message);
    void receive_keep_alive(client& peer, const frame& message);
    void start_if_complete();
    void receive_gather(client& peer, frame& message);
    void forward(const client& sender, frame& message);
    void disconnected(client& peer);
    void check_finished(const pending_gather& gather);
    void check_for_silence();
    void ask_about(int process, clock::duration time);
    void receive_answer(const client& peer, frame& message);
    void report_silent_process();
    std::string name_with_host(int process) const;
    member& member_of(const client& each) { return members_[static_cast<std::size_t>(each.index)]; }
    std::string name(int process) const;
    std::string connection_hint() const;
    std::string missing_processes() const;
    void refuse(const std::string& reason, int culprit = -1);
    void fail_job(event::kind type, int process, int code, const std::string& message);
    void broadcast(const frame& message);

    const job job_;
    const std::string identity_;
    const time_limits limits_;
    control_listener listener_;
    descriptor wake_;
    clock::time_point deadline_; // assembling: for all to appear; afterwards: for this control server to end
    bool ending_ = false;
    stage stage_ = stage::assembling;
    std::string refusal_;
    bool failed_ = false;
    std::vector<std::unique_ptr<client>> clients_;
    std::vector<member> members_;     // by index
    int present_ = 0;                 // processes that said hello
    int keep_alives_ = 0;             // of them over TCP, all but process 0
    int refused_count_ = 0;           // connections that the refusal was sent to
    int unauthenticated_ = 0;         // connections that did not prove to have the key
    const std::size_t descriptors_;   // that this process may have
    clock::time_point next_accept_{}; // no descriptor was left for another connection: none is accepted until then,
    std::optional<clock::time_point> short_since_; // since when that is so
    std::minstd_rand random_;                      // which unauthenticated peer goes
    std::map<std::uint64_t, pending_gather> gathers_;
    stall_detector stalled_;
    silence_watch silence_;
    int last_asked_ = -1; // the process that ranks were last asked about
    wait_description describe_;
    std::optional<question> question_;
    std::thread thread_; // last: uses all of the above
};

} // namespace dcuda::bootstrap
