// The hub: one thread in process 0 of a job, to which every process of the job is connected. Also what hub and
// control share: frames, the buffered channel that carries them, and the address where they meet.
#pragma once

#include "bootstrap/control.hpp"

#include <chrono>
#include <thread>
#include <utility>

namespace dcuda::bootstrap {

// A file descriptor that somebody owns.
class descriptor {
public:
    explicit descriptor(int fd = -1) noexcept : fd_(fd) {}
    descriptor(descriptor&& other) noexcept : fd_(other.release()) {}
    descriptor& operator=(descriptor&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~descriptor();
    int get() const noexcept { return fd_; }
    int release() noexcept { return std::exchange(fd_, -1); }

private:
    int fd_;
};

enum class frame_type : std::uint32_t {
    hello,    // to the hub: process, number = count, label = version, payload = parts {identity, key}
    welcome,  // from the hub: all processes are here
    rejected, // from the hub: the job cannot start, payload says why
    gather,   // to the hub: id, label, payload
    gathered, // from the hub: id, payload = parts
    abort,    // to the hub: number = code, payload = message
    failed,   // from the hub: process, id = pid, number = code, label = "aborted" or "lost", payload = message
    quiet,    // to the hub: number = digest, id = round
    busy,     // to the hub
    probe,    // from the hub: number = round of the samples that count from now on
    stalled,  // from the hub
    goodbye,  // to the hub: this process is done
    closing,  // from the hub: process 0 is done
};

// The layout on the wire is the header of hub.cpp, then label, then payload. It and hello stay as they are in every
// version, so that different versions can tell each other so.
struct frame {
    frame_type type;
    std::int32_t process = -1;
    std::uint64_t id = 0;
    std::uint64_t number = 0;
    std::string label{};
    blob payload{};
};

std::string encode(const frame& message);
blob encode_parts(const std::vector<blob>& parts);
std::vector<blob> decode_parts(const blob& encoded); // throws error(bootstrap_failure) if malformed

// Frames over a stream socket. Nothing here blocks; what the socket does not take waits in memory.
class channel {
public:
    explicit channel(descriptor socket);

    void send(const frame& message) { send(std::make_shared<const std::string>(encode(message))); }
    void send(std::shared_ptr<const std::string> encoded); // one buffer can go to many
    void flush();
    bool has_unsent() const noexcept { return !unsent_.empty(); }

    void read_available();                           // into the buffer that next() empties
    std::optional<frame> next();                     // the next whole frame
    bool closed() const noexcept { return closed_; } // the peer is gone, or sent nonsense; next() may still have frames

    int fd() const noexcept { return socket_.get(); }
    pid_t peer_pid() const noexcept { return peer_pid_; }
    bool peer_is_same_user() const noexcept { return peer_is_same_user_; }

private:
    descriptor socket_;
    std::deque<std::shared_ptr<const std::string>> unsent_;
    std::size_t sent_of_first_ = 0;
    std::string received_;
    std::size_t consumed_ = 0;
    bool closed_ = false;
    pid_t peer_pid_ = 0;
    bool peer_is_same_user_ = false;
};

// Where the processes of a job meet. A process may set up control planes one after another; each has its own address.
std::string meeting_point(const std::string& job_key, int generation);
descriptor listen_at(const std::string& address);                 // throws error(bootstrap_failure)
std::unique_ptr<channel> try_connect(const std::string& address); // null: nobody listens there now

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
