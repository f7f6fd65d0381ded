// SPDX-License-Identifier: BSD-3-Clause
// What the control server and the processes share: frames, and the buffered channel that carries them.
#pragma once

#include "bootstrap/control.hpp"
#include "support/descriptor.hpp"

#include <utility>

namespace dcuda::bootstrap {

using support::descriptor;

// "The server" is the control server.
enum class frame_type : std::uint32_t {
    hello,      // to the server: process, id = pid, number = count, label = version, payload = parts
                // {identity, key, host}; over TCP, where the handshake has proved the key, it is empty
    welcome,    // from the server: all processes are here; id = pid of process 0, label = its host
    rejected,   // from the server: the job cannot start, payload says why; process = whose fault it is, or -1
    gather,     // to the server: id, label, payload; number = 1 + the only process that shall get the parts, or 0
    gathered,   // from the server: id, payload = parts; nothing for processes that shall not get them
    abort,      // to the server: number = code, payload = message
    failed,     // from the server: process, id = pid, number = code, label = "aborted" or "lost", payload = message
    quiet,      // to the server: number = digest, id = round
    busy,       // to the server
    probe,      // from the server: number = round of the samples that count from now on
    stalled,    // from the server
    goodbye,    // to the server: this process is done
    closing,    // from the server: process 0 is done
    post,       // to the server: number = process that shall get it, payload
    message,    // from the server: process = sender, payload
    keep_alive, // to the server, the only one of its connection: process
    attend,     // to the server: number = 1: this process is here and will say so again soon; 0: it goes back to
                // its program
    heard,      // from the server, the answer to that
    ask,        // from the server: what do ranks wait for? process = the silent one
    waits,      // to the server: the answer, number = the silent process, payload
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

std::string describe_pid(pid_t pid, const std::string& host);                  // "pid 77 on host b", or "pid 77"
std::string describe_process(int process, pid_t pid, const std::string& host); // "process 3 (pid 77 on host b)"

// Frames over a stream socket. Nothing here blocks; what the socket does not take waits in memory.
class channel {
public:
    explicit channel(descriptor socket);

    void send(const frame& message) { send(std::make_shared<const std::string>(encode(message))); }
    void send(std::shared_ptr<const std::string> encoded); // one buffer can go to many
    void flush();
    bool has_unsent() const noexcept { return !unsent_.empty(); }

    // The largest payload that is read from now on; a larger one is nonsense. Memory is taken for what has come only.
    void expect_payload(std::uint64_t most_bytes) noexcept { most_payload_ = most_bytes; }
    static constexpr std::uint64_t largest_payload = std::uint64_t{1} << 36;

    void read_available();                           // into the buffer that next() empties
    std::optional<frame> next();                     // the next whole frame
    bool closed() const noexcept { return closed_; } // the peer is gone, or sent nonsense; next() may still have frames

    bool is_unreachable() const noexcept; // closed because the other host does not answer
    void end_sending();                   // the peer sees the end of what was sent; reading goes on

    int fd() const noexcept { return socket_.get(); }

private:
    descriptor socket_;
    std::deque<std::shared_ptr<const std::string>> unsent_;
    std::size_t sent_of_first_ = 0;
    std::unique_ptr<char[]> chunk_; // what recv writes to
    std::string received_;
    std::size_t consumed_ = 0;
    std::uint64_t most_payload_ = largest_payload;
    bool closed_ = false;
    int error_ = 0; // errno, if an error closed it
};

} // namespace dcuda::bootstrap
