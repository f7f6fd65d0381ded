// What the hub and the processes share: frames, and the buffered channel that carries them.
#pragma once

#include "bootstrap/control.hpp"

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
    post,     // to the hub: number = process that shall get it, payload
    message,  // from the hub: process = sender, payload
};

// The layout on the wire is the header of channel.cpp, then label, then payload. It and hello stay as they are in every
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
    std::unique_ptr<char[]> chunk_; // what recv writes to
    std::string received_;
    std::size_t consumed_ = 0;
    bool closed_ = false;
    pid_t peer_pid_ = 0;
    bool peer_is_same_user_ = false;
};

} // namespace dcuda::bootstrap
