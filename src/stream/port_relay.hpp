// SPDX-License-Identifier: BSD-3-Clause
// What a stream port's host does for its streams where a process is reached over a network only: it sends what kernels
// have put into their queues, and places what comes from there. docs/design/network.md tells the whole way.
#pragma once

#include "bootstrap/control.hpp"
#include "network/connections.hpp"
#include "runtime/host_windows.hpp"
#include "stream/arrival_check.hpp"
#include "stream/port_memory.hpp"
#include "stream/put_queue_reader.hpp"

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace dcuda {

// Places what has come: by the device's copy engine, one copy after the other.
class copies_in_order final : public placement {
public:
    std::uint64_t start_copy(std::uint64_t place, const std::byte* payload, std::size_t bytes) override;
    // Rows of `width` bytes, which lie one after the other at `payload`. False: no room now.
    bool start_rows(std::uint64_t place, std::uint64_t distance, const std::byte* payload, std::size_t width,
                    std::size_t rows);
    bool is_copied(std::uint64_t copy) override { return copies_.is_done(copy); }
    std::size_t least_copy_bytes() const override { return 1; }
    std::uint64_t issued() const override { return copies_.started(); }
    std::uint64_t done() override { return copies_.done(); }

private:
    cuda::copy_queue copies_;
};

// Used by one thread, but for its making.
class port_relay final : private message_handler {
public:
    // Collective over the processes. Throws error(no_path) on all of them if the network is MPI.
    port_relay(bootstrap::control& control, const port_access& owner, port_memory& memory, int tags);

    // What another process's relay has posted to this one.
    void receive(int from, const std::string& message) { connections_.receive(from, message); }

    // Does what can be done. True if there was something.
    bool progress();

    // All that the streams have given so far has been delivered, but for sends that wait for their receives.
    bool is_drained() const;

    // The port has failed: nobody is waited for.
    void abandon() { connections_.abandon(); }

private:
    // A process that is reached over a network only. Of the queues: the numbers of the next pieces.
    struct remote_process {
        int index;
        relay_memory& memory;
        put_queue_reader puts;
        std::uint64_t reading = 0;                       // of the next piece's payload; 0: it has not begun
        std::uint32_t send_piece = 0;                    // of the send whose turn it is
        std::uint32_t next_send = 0, received_there = 0; // this one's sends; of them it has told that they are received
        std::uint32_t next_arrival = 0, told_received = 0; // its sends; of them this one has told
        std::vector<std::uint32_t> notifications{};        // that it has sent, by tag
        std::deque<pending_get> gets{};                    // from the oldest
        std::uint64_t last_rows = 0;                       // the copy that places the last rows of it
    };

    bool take_puts(remote_process& there);
    bool read_payload(remote_process& there);
    void send(remote_process& there, const detail::put_command& command, const std::byte* payload);
    bool take_sends(remote_process& there);
    bool tell_of_receives(remote_process& there);

    bool take(int from, const message_header& head, const std::byte* payload) override;
    bool take_notification(remote_process& from, std::uint32_t tag);
    void take_piece(remote_process& from, const message_header& head, const std::byte* payload);
    void end_get(remote_process& from);
    std::string find_fault(int from, const message_header& head, const std::byte* payload) const override;
    void flushed(std::uint64_t) override {}

    remote_process& remote(int process) { return remotes_[place_of_[static_cast<std::size_t>(process)]]; }

    const host_windows& windows_;
    port_memory& memory_;
    const std::uint32_t tags_;
    device_access link_;
    copies_in_order copies_;
    cuda::copy_queue reads_;
    std::deque<remote_process> remotes_;
    std::vector<std::size_t> place_of_; // by process: in remotes_
    connections connections_;
};

} // namespace dcuda
