// SPDX-License-Identifier: BSD-3-Clause
// The network path: carries what ranks send to ranks whose memory cannot be mapped here, and what those send.
// docs/design/network.md has the whole way of a message.
#pragma once

#include "bootstrap/control.hpp"
#include "device/settings.hpp"
#include "network/connections.hpp"
#include "trace/host_track.hpp"

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace dcuda {

// One for all runs of a runtime. Used by one thread.
class network_path : private message_handler {
public:
    // Collective over the processes. `is_remote[i]`: process i is reached over a network only; `is_near[i]`: it is on
    // this host. Opens the transports that are needed.
    network_path(bootstrap::control& control, device_access& link, const settings& chosen,
                 const std::vector<bool>& is_remote, const std::vector<bool>& is_near,
                 const std::string& local_address);

    // Between these two a kernel runs. end() is called when it has ended everywhere. What happens is noted on the
    // track.
    // `windows` exist already.
    void begin(device_state& state, delivery& into, host_track& track, const std::vector<host_window>& windows);
    void end();

    // The ranks of this device have offered memory for the window in this slot: puts may come there.
    void open_window(std::uint32_t slot, std::vector<detail::window_entry> exports) {
        check_.open_window(slot, std::move(exports));
    }

    // Takes a command of a rank for others that are reached over a network. `payload`: those of its bytes that came
    // through the ring.
    void take(const detail::command& cmd, const std::byte* payload);

    // Whether it can take more of them: slow receivers slow their senders down.
    bool has_room() const;

    // A message of another process's network path.
    void receive(int from, const std::string& message) { connections_.receive(from, message); }

    // Does what can be done. True if there was something. Throws foreign_arrival for what no process of the job sends.
    bool progress();

    // A run has failed: nobody is waited for at the end.
    void abandon() { connections_.abandon(); }

    // Nothing is on its way: what ranks wait for does not depend on what we do.
    bool is_quiet() const;

    // All that we have sent is with the processes it was for.
    bool is_sent() const { return connections_.is_sent(); }

    std::string describe() const { return connections_.describe(); } // the transports in use

private:
    struct pending_flush {
        std::uint32_t rank; // on this device
        std::uint32_t number;
        unsigned connections;                     // that have not delivered everything; and gets
        std::optional<std::uint32_t> waits_for{}; // the rank whose gets are not complete, or all_ranks
    };
    // A barrier of all processes, one per collective that is one: a dissemination. In round i each process tells the
    // one 2^i further, and waits for the one 2^i before.
    struct process_barrier {
        bool is_active = false;
        bool is_drained = false; // what our ranks have sent before has arrived
        bool is_unread = false;  // messages of some rank are unread
        std::uint32_t number = 0;
        std::uint32_t round = 0;
        bool told = false;                      // our part of the round
        std::vector<std::deque<bool>> arrivals; // by round: whether messages were unread, of those that came
    };

    // A get of a rank of this device.
    struct pending_get {
        std::uint32_t rank;
        int process;
        std::uint32_t target, tag; // of the notification that follows, on the target's device; or no_tag
        bool has_come = false;     // all of it, if not yet to its destination
    };
    // An atomic operation for a rank of another process, whose result that process waits for.
    struct pending_result {
        int process;
        std::uint32_t rank, number; // of the rank's request
        std::uint64_t delivery;     // by which it is there
    };

    void send(std::uint32_t rank, const detail::send_fields& put, const std::byte* payload);
    void send_small(std::uint32_t rank, std::uint32_t target, message_header head, const void* payload,
                    std::uint64_t bytes);
    void send(std::uint32_t rank, const detail::exchange_fields& unit);
    void send(std::uint32_t rank, const detail::update_fields& update);
    void send(std::uint32_t rank, const detail::rows_fields& rows, const std::byte* payload);
    void send(std::uint32_t rank, const detail::get_fields& get);
    bool take(int from, const message_header& head, const std::byte* payload) override;
    std::string find_fault(int from, const message_header& head, const std::byte* payload) const override {
        return check_.find_fault(from, head, payload);
    }
    bool deliver(const message_header& head, const std::byte* payload);
    bool take_update(int from, const message_header& head, const update_payload& asked);
    bool send_results();
    bool take_got(const message_header& head, const std::byte* payload);
    bool end_gets();
    bool gets(std::uint32_t rank) const;
    void begin_flush(std::uint64_t id, std::uint32_t asks, std::uint32_t rank, std::uint32_t number);
    void flushed(std::uint64_t flush) override;
    bool advance(process_barrier& barrier, std::uint32_t index);
    void reply(std::uint32_t* word, std::uint32_t value);

    bootstrap::control& control_;
    connections connections_;
    std::uint64_t next_flush_ = 1;
    std::map<std::uint64_t, pending_flush> flushes_;
    std::array<process_barrier, detail::collective::barriers> barriers_;
    std::deque<std::pair<std::uint32_t*, std::uint32_t>> replies_; // for which there was no room
    std::map<std::uint32_t, pending_get> gets_;                    // by number
    std::map<std::uint32_t, unsigned> gets_of_;                    // by rank, how many
    std::deque<std::pair<std::uint32_t, std::uint64_t>> got_;      // number; delivery by which all of it is there
    std::uint32_t next_get_ = 0;
    std::deque<pending_result> results_; // from the oldest; their places are numbered in turn
    std::uint32_t next_result_ = 0;      // place of the next one
    inbound_check check_;
    device_state* state_ = nullptr;
    delivery* delivery_ = nullptr;
    host_track* track_ = nullptr; // null unless it is on
};

} // namespace dcuda
