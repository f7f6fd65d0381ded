// SPDX-License-Identifier: BSD-3-Clause
// Who runs: one rank of all processes at a time. At every operation the rank that has the turn gives it to one that the
// seeded generator chooses among those that can go on; or has a rank deliver a put or notification that it issued
// before.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "checker/session.hpp"
#include "dcuda/detail/ops/rank_state.hpp"

namespace dcuda::detail::check {

// A put, a notification, or both, on the way.
struct message {
    std::byte* target = nullptr; // as mapped here; null: nothing is copied
    const std::byte* source = nullptr;
    std::uint64_t bytes = 0;
    std::uint32_t window = none;
    std::uint32_t tag = none, notice = none;
    std::vector<std::byte> copy; // of the source, if that was read early
    bool is_read = false;
};

class turns {
public:
    turns(session& all, std::uint32_t rank, const std::uint32_t* aborted);

    // All of these return false when the run has ended.
    bool begin();     // waits for the first turn, which comes when all ranks have begun
    bool next();      // gives the turn away, and has it again
    bool to_native(); // the turn, for a collective operation, which has been entered; whether or not others go on, too
    bool from_native(); // waits until all have left it, and for the turn
    void end();         // this rank needs no turn any more; in the native part of finish, or its thread ends

    // A message of this rank; it arrives sometime.
    void send(std::uint32_t target, message&& outgoing);
    // Those that must have arrived for a flush of this window; the buffers of the others are read.
    void flush(std::uint32_t window);
    // All that were sent to this rank have arrived.
    void place_all(std::uint32_t target) {
        while (!out_[target].empty()) deliver_to(target);
    }

    // A number below n, by the seed.
    std::uint32_t draw(std::uint32_t n);

    // Called when all ranks have finished.
    std::function<void()> at_end;

private:
    struct choice {
        std::uint32_t rank;
        job assigned;
    };

    rank_record& own() const { return m_.rank(rank_); }
    bool pass(bool has_turn);
    choice choose();
    void give(const choice& next);
    bool can_run(std::uint32_t rank) const;
    void deliver();
    void deliver_to(std::uint32_t target);
    bool release();
    void read(message& outgoing);

    session::run_state& run_;
    memory m_;
    std::uint32_t rank_;
    const std::uint32_t* aborted_;
    std::vector<std::deque<message>> out_; // by target
};

// A collective operation of the library in which its ranks do something themselves, outside of turns.
bool has_native_part(operation kind);
bool is_barrier(operation kind);
// Whether what its ranks did before happened before what they do after.
bool orders(operation kind);

} // namespace dcuda::detail::check
