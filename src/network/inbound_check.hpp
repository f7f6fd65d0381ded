// SPDX-License-Identifier: BSD-3-Clause
// What may come over a network, and nothing else: a network trusts whoever has the key of a memory, so every number in
// what arrives is looked at before it is used.
#pragma once

#include "dcuda/detail/protocol/atomics.hpp"
#include "dcuda/detail/protocol/protocol.hpp"
#include "dcuda/error.hpp"

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace dcuda {

// What a message is about.
enum class message_kind : std::uint32_t {
    put,     // bytes follow; then a notification, unless the tag is no_tag
    barrier, // target: collective::index(), tag: the round, place: 1 if messages were unread
    answer,  // asks for credit at once
    get,     // get_payload follows, place: what is to be sent, target: whose window it is in
    got,     // bytes of a get follow, place: where they go, target: number of the get; the last ones have a tag
    update,  // update_payload follows, place: of the element, tag: update_code; then comes an answer, if one is wanted
    result,  // what the element held before follows, tag: number of the rank's request
    packets, // a unit of an exchange follows, place: of its packets, tag: their last word
    rows,    // rows of a box follow, one after the other, tag: bytes of each, distance: from one to the next there
    sums,    // elements follow that those at `place` are combined with, tag: update_code
    piece,   // of a send of a stream port: its bytes follow, place: how long the whole send is
    taken,   // of a stream port's sends: tag: so many pieces have been received
};

struct alignas(16) message_header { // payload behind it lies well for copies
    std::uint64_t place;            // as the target addresses it
    std::uint32_t bytes;            // that follow, padded to 16
    message_kind kind;
    std::uint32_t target; // rank on its device
    std::uint32_t tag;
    std::uint64_t distance = 0; // of rows
};

// Of a get.
struct get_payload {
    std::uint64_t bytes;
    std::uint64_t destination; // in the memory of who asks
    std::uint32_t number;      // of the get there
};

// Of an atomic operation.
struct update_payload {
    std::uint64_t operand, expected;
    std::uint32_t rank;   // on its device, that wants an answer
    std::uint32_t number; // of its request, or no_answer
};

struct alignas(16) fragment_header {
    std::uint64_t after;    // where the fragment before it ended, in units since the start
    std::uint64_t credit;   // the writer has taken what the reader wrote up to here
    std::uint32_t bytes;    // of the fragment with this header
    std::uint32_t messages; // 0: credit alone
};

// Whether these bytes lie in a window of this device.
bool lies_in(const detail::window_entry& window, std::uint64_t place, std::uint64_t bytes);

// Something has come that no process of this job sends.
class foreign_arrival : public error {
public:
    // `network`: over which it came; `finding`: what is wrong with it.
    foreign_arrival(const std::string& network, const std::string& finding);
};

// Messages for the ranks of this device, in one run.
class inbound_check {
public:
    // `slots`, `entries`: of exchanges and splits, in the device's memory (exchange_memory).
    void begin_run(std::uint32_t ranks, std::uint32_t tags, std::uint32_t barrier_rounds,
                   std::span<const detail::packet> slots, std::span<const detail::split_entry> entries);

    // The ranks of this device offer memory for the window in this slot, in the place of any window before. From now
    // on puts may come there: other processes know of it only after that.
    void open_window(std::uint32_t slot, std::vector<detail::window_entry> exports);

    // What a get from this process brings may come to these bytes of this device, until end_get().
    void begin_get(std::uint32_t number, int process, std::uint64_t destination, std::uint64_t bytes) {
        gets_[number] = {process, destination, bytes};
    }
    void end_get(std::uint32_t number) { gets_.erase(number); }

    // This rank waits for the answer with this number, from this process, and for no other.
    void await_answer(std::uint32_t rank, int process, std::uint32_t number) { awaited_.at(rank) = {process, number}; }

    // What is wrong with a message of a process; empty: nothing. Of a get, the payload says how much is asked for.
    std::string find_fault(int from, const message_header& message, const std::byte* payload) const;

private:
    bool is_in_window(std::uint32_t rank, std::uint64_t place, std::uint64_t bytes) const;

    std::uint32_t ranks_ = 0, tags_ = 0, rounds_ = 0;
    struct awaited_answer {
        int process;
        std::uint32_t number; // or no_answer
    };
    struct pending_get {
        int process;
        std::uint64_t destination, bytes;
    };
    std::vector<awaited_answer> awaited_;       // by rank
    std::map<std::uint32_t, pending_get> gets_; // by number
    std::span<const detail::packet> slots_;
    std::span<const detail::split_entry> entries_;
    std::vector<std::vector<detail::window_entry>> windows_; // by slot, then by rank
    mutable std::size_t last_ = 0;                           // slot that the last put went to
};

} // namespace dcuda
