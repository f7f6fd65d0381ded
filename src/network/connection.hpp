// SPDX-License-Identifier: BSD-3-Clause
// The network path between this process and one other: messages of many ranks, in order, over a network that keeps
// none.
//
// Each side has a ring of memory that the other writes to. Messages are gathered into fragments; a fragment is written
// to the ring at the place where it begins, and arrives with the number of that place. The receiver takes fragments in
// the order of their places, whatever the order in which they came, and tells in its own fragments how far it has got
// (credit). The sender builds fragments in a twin of the ring, so a place is free again when the receiver has taken
// what was there and the network no longer reads it. Where it can reach the receiver's ring (transport shm), that is
// the twin, and nothing is copied: devices then read into it.
//
// ORDER network: (1) An arrival proves its own write alone (transport/network.hpp), so a fragment is read only
// after its arrival; (2) fragments are read in the order of the ring, so messages are taken in the order in which they
// were sent; (3) deliveries are made in order (network/delivery.hpp): a notification comes after the data of all
// earlier puts of its source; (4) credit is given only for what has been delivered, so who has it knows that its puts
// are complete.
#pragma once

#include "device/device_access.hpp"
#include "network/delivery.hpp"
#include "network/inbound_check.hpp"
#include "transport/network.hpp"

#include <deque>
#include <map>
#include <string>
#include <vector>

namespace dcuda {

// Who hears of what a connection receives.
class message_handler {
public:
    virtual ~message_handler() = default;
    // False: not now, deliveries are full; the message comes again.
    virtual bool take(int from, const message_header& head, const std::byte* payload) = 0;
    // What is wrong with a message, before anything is done with it; empty: nothing.
    virtual std::string find_fault(int from, const message_header& head, const std::byte* payload) const = 0;
    // A flush that was asked for has come to its end.
    virtual void flushed(std::uint64_t flush) = 0;
};

// Used by one thread.
class connection {
public:
    connection(int peer, transport::network& over, placement*& into, device_access& link, message_handler& handler,
               std::size_t ring_bytes, std::uint32_t first_number);

    int peer() const { return peer_; }
    bool is_over(const transport::network& one) const { return &one == &network_; }

    // Setting up: what the peer must know of our ring, and what it says of its own, once the network has been
    // connected. Messages may be sent before; they wait.
    struct exported_ring {
        transport::remote_memory memory;
        std::uint64_t bytes;
        std::uint32_t first_number;
    };
    exported_ring offer() const { return {memory_, ring_bytes_, first_number_}; }
    void use(const exported_ring& theirs);
    bool is_open = false; // both sides have all they need

    // Sends a message of a rank. Its payload is copied; or read from device memory until a flush.
    void send(const message_header& head, const std::byte* payload, std::uint32_t rank);
    void send_from_device(const message_header& head, std::uint64_t bytes, const std::byte* source, std::uint32_t rank);

    // message_handler::flushed(flush) follows when all that the rank (all_ranks: any) has sent here has been delivered.
    // False: it has been already.
    static constexpr std::uint32_t all_ranks = UINT32_MAX;
    // In place of a rank: what the other process has asked for. It does not count among the bytes that are queued,
    // which keep this process' ranks from sending.
    static constexpr std::uint32_t answers = UINT32_MAX - 1;
    bool flush(std::uint64_t flush, std::uint32_t rank);

    // Events of the network. Like progress(), arrived() throws foreign_arrival for what no process of the job sends.
    void arrived(std::uint32_t number);
    void sent(std::uint32_t fragment);

    // All ranks of all processes have ended.
    void end_run();

    // Does what can be done. True if there was something.
    bool progress(std::uint64_t now_ns);

    // Whether more may be sent: what waits is kept in memory.
    bool has_room() const { return queued_bytes_ < (4u << 20); }
    // Nothing is on its way here or there, but for credit that nobody waits for.
    bool is_quiet() const { return !has_traffic() && !owes_credit_; }
    // Nothing of ours is in the network's hands.
    bool is_sent() const;

private:
    struct queued {
        message_header head;
        std::uint32_t rank;
        std::string payload;
        const std::byte* source; // on the device, if not null; then `left` bytes of it
        std::uint64_t left;
        std::uint64_t flush;  // 0: none
        std::uint64_t number; // of the messages that were queued
    };
    struct received {
        message_header head;
        const std::byte* payload;
    };
    struct fragment {
        std::uint32_t number;
        std::uint64_t begin, end; // units
        std::uint32_t bytes;
        std::uint32_t messages = 0;
        bool is_closed = false, is_written = false, is_sent = false;
        std::uint64_t copy = 0; // of device memory that it waits for
        std::vector<std::uint64_t> flushes{};
    };

    // Of the ring, that a fragment takes at most.
    std::size_t part_bytes() const { return ring_bytes_ / 8; }
    transport::shared_memory pinned(transport::shared_memory memory) const;
    std::byte* place(std::byte* ring, std::uint64_t unit) const;
    bool has_traffic() const { return !waiting_.empty() || !large_.empty() || credited_ < data_end_; }
    bool has_room(std::uint64_t begin, std::uint64_t units, bool is_credit) const;
    fragment* begin_fragment(std::size_t bytes, bool is_credit);
    bool append(const message_header& head, const std::byte* payload, std::uint64_t flush);
    bool append(queued& message);
    bool append_chunk(queued& message);
    void close_open();
    void enqueue(std::deque<queued>& queue, queued message);
    void dequeue(std::deque<queued>& queue);
    std::size_t next_large_bytes() const;
    bool is_turn_of_large() const;
    bool append_large();
    bool fill();
    bool write();
    bool receive();
    void check(const fragment_header& head, std::uint64_t begin) const;
    received read_message(const std::byte* from);
    [[noreturn]] void refuse(const std::string& finding) const;
    bool take(received message);
    void give_credit(std::uint64_t now_ns);
    void take_credit(std::uint64_t credit);
    void release_fragments();

    const int peer_;
    transport::network& network_;
    placement*& placement_;
    device_access& link_;
    message_handler& handler_;
    const std::size_t ring_bytes_;
    const std::uint32_t first_number_;
    transport::shared_memory inbound_, outbound_; // pinned
    transport::remote_memory memory_{};
    exported_ring theirs_{};

    // Sending. A rank with messages in `large_` has all later ones there, too, so that they stay in order.
    std::deque<queued> waiting_, large_;
    std::map<std::uint32_t, unsigned> in_large_; // by rank
    std::uint64_t queued_ = 0;                   // messages, ever
    std::size_t since_large_ = 0;                // bytes of others that have left since the last part of a large one
    std::size_t queued_bytes_ = 0;
    std::deque<fragment> fragments_; // from the oldest whose place is not free
    std::uint32_t next_fragment_ = 0;
    std::uint64_t next_ = 0;     // where the next fragment begins
    std::uint64_t credited_ = 0; // up to here the peer has taken
    std::uint64_t freed_ = 0;    // up to here places are free
    std::uint64_t data_end_ = 0; // end of the last fragment with messages
    unsigned unsent_ = 0;        // fragments in the network's hands

    // Receiving.
    struct taken {
        std::uint64_t end;
        std::uint64_t last_delivery, last_copy;
    };
    std::vector<bool> arrived_;                       // by place
    std::uint64_t expected_ = 0;                      // where the next fragment begins
    fragment_header taken_from_{};                    // its header, as it was checked: others write the ring
    std::uint32_t message_ = 0;                       // of it, the next to take,
    std::size_t message_at_ = 0;                      // and where that is
    get_payload asked_for_{};                         // of that message, as it was checked, if it is a get
    bool is_copy_started_ = false;                    // of its payload
    std::uint64_t last_copy_ = 0, last_delivery_ = 0; // what comes next waits for the one of the other kind
    std::deque<taken> being_delivered_;
    std::uint64_t delivered_ = 0;      // up to here all is done
    std::uint64_t told_ = 0;           // of this, what the peer knows
    bool owes_credit_ = false;         // for messages that it does not know of
    std::uint64_t asked_ = 0;          // it waits for credit up to here
    std::uint64_t owing_since_ns_ = 0; // 0: not yet looked at
};

} // namespace dcuda
