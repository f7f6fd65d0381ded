// SPDX-License-Identifier: BSD-3-Clause
// What a stream port has in memory: the words that notifications are counted in, and queues.
//
// A notification is added to a word of its sender and its tag in the receiver's device memory. So the receiver can wait
// for one sender, or for the sum of all; and only one process adds to a word. Where the sender is reached over a
// network only, the receiver's host writes the word for it (port_relay.hpp).
#pragma once

#include "bootstrap/control.hpp"
#include "dcuda/types.hpp"
#include "device/device_access.hpp"
#include "stream/send_kernels.hpp"
#include "support/cuda.hpp"
#include "transport/peer.hpp"

#include <optional>
#include <vector>

namespace dcuda {

// What this process has for one that it reaches over a network only, in pinned memory: kernels use one end of each
// queue, and the host the other.
struct relay_memory {
    queue_memory own, far; // of sends: from there and to there
    detail::put_queue puts;
};

class port_memory {
public:
    // Collective. `is_remote`, by process: reached over a network only.
    port_memory(bootstrap::control& control, const std::vector<bool>& is_remote, int tags);

    // Collective, unless the port has failed: nobody uses the others' memory any more. Never throws.
    void close(bool has_failed);

    int device() const { return device_; }

    // A notification of the process with the tag, without a put.
    put_trigger notification(int process, int tag) const;
    // The way of puts to a process that is reached over a network only. No notification belongs to it.
    host_path path_by_host(int process) const;
    // Null for the others.
    relay_memory* relay(int process) const { return relays_[place(process)].get(); }

    // Here, in device memory: the count of the process's notifications with the tag; and what is rung when it changes.
    std::uint32_t* counted(int process, int tag) const {
        return arrived_.get() + place(process) * place(tags_) + place(tag);
    }
    std::uint32_t* doorbell() const { return doorbell_of(own_); }

    // Notifications of one process, or of any (-1).
    wait_trigger wait_of(int process, int tag, std::uint32_t count) const;

    // Not 0 once waits shall end. In the host's memory, so that nothing holds up who ends them.
    const std::uint32_t* ended() const { return ended_.get(); }
    void end_waits();

    // Of a test, in the host's memory: whether the notifications were there, and up to which number they go.
    std::uint32_t* result() const { return result_.get(); }

    // A wait of the host, after a test of it: as a kernel that waits tells of itself. Returns what end_wait takes.
    std::uint64_t tell_of_wait(const wait_trigger& wait) const;
    void end_wait(const wait_trigger& wait, std::uint64_t told) const;

    // For a kernel that sends to a process, or receives from it.
    transfer transfer_with(int process, transfer::kind direction, std::byte* memory, std::size_t bytes) const;

    // Waits that last: of which process (-1: any), with which tag, and for how many; up to which number of
    // notifications. Of a send or a receive: one, up to which number of pieces.
    struct lasting_wait {
        enum class kind { notifications, send, receive } waits_for;
        int process, tag;
        std::uint32_t count, expected;
        auto operator<=>(const lasting_wait&) const = default;
    };
    std::vector<lasting_wait> lasting_waits() const;

    // A send that is longer than its receive, if there was one.
    struct refused_send {
        int process;
        std::uint64_t bytes, receive_bytes;
    };
    std::optional<refused_send> find_refused() const;

    // Notifications so far, by process.
    std::vector<std::uint32_t> read_arrived(int tag);

private:
    static std::size_t place(int number) { return static_cast<std::size_t>(number); }
    // Where waits are counted: those for notifications of any process, then those of each process.
    std::size_t places() const { return (ports_.size() + 1) * place(tags_); }
    std::uint32_t* doorbell_of(int process) const { return ports_[place(process)] + ports_.size() * place(tags_); }
    // Of a port of this many queues: its memory holds them behind the counters.
    queue_memory* queues(std::uint32_t* port) const;
    std::size_t port_words(std::size_t queues) const;
    queue_pair queues_with(int process) const;
    // Of the kernels that send to the process, receive from it, or put by the host.
    enum class turns_of { sends, receives, puts };
    detail::queue_turns* turns(int process, turns_of kind) const {
        return turns_.get() + 3 * place(process) + static_cast<std::size_t>(kind);
    }
    void meet_peers(bool has_peers);
    void tell_of_unread() const;

    bootstrap::control& control_;
    int own_, tags_, device_;
    cuda::device_array<std::uint32_t> arrived_;     // by process and tag; then the doorbell, then queues
    cuda::device_array<detail::queue_turns> turns_; // by process and kind
    cuda::device_array<std::uint32_t> consumed_;    // by place
    cuda::pinned_array<std::uint32_t> ended_;
    cuda::pinned_array<std::uint32_t> result_;
    cuda::pinned_array<std::uint64_t> wanted_;  // by place; then of the sends to each process, and of the receives
    cuda::pinned_array<std::uint64_t> refused_; // by process: the send's bytes, the receive's
    transport::peer_mappings mappings_;
    std::vector<std::uint32_t*> ports_;                 // by process: its arrived_; null: reached over a network only
    std::vector<std::size_t> queue_here_, queue_there_; // by process: the number of its queue here, of ours there
    std::vector<cuda::pinned_array<relay_memory>> relays_; // by process
    device_access link_;                                   // while kernels wait
};

} // namespace dcuda
