// What a rank knows about itself, and the three things every operation may need: send a command to the host, report a
// fault, wait.
#pragma once

#include "dcuda/detail/exec.hpp"
#include "dcuda/detail/launch.hpp"
#include "dcuda/detail/protocol.hpp"
#include "dcuda/types.hpp"

namespace dcuda::detail {

inline constexpr unsigned cached_targets = 8;
inline constexpr unsigned cached_tags = 32;

// Where puts to one rank through one window go: what find_target found out, kept near because the tables are far away.
struct target_entry {
    std::uint32_t window; // id; 0: this entry is empty
    std::uint32_t rank;   // in the window's communicator
    std::byte* base;      // of the target's window, as mapped here
    std::uint64_t bytes;
    std::uint32_t* counters; // of the target's notifications, [tag]
    scope reach;             // who sees what is published there
};

// Notifications with this tag that were consumed so far. Kept near also because a store to device memory would delay
// the next release.
struct consumed_entry {
    std::uint32_t tag;
    std::uint32_t count;
};

// One per rank, in the block's shared memory. Written by one thread inside exec::run_then_sync, read by all after it.
struct rank_state {
    context device;
    std::uint32_t device_rank;
    std::uint32_t world_rank;
    std::uint32_t first_rank; // the following repeat the context, whose memory is far away
    std::uint32_t ranks_per_device;
    std::uint32_t world_size;
    std::uint32_t tags;
    std::uint32_t ended;  // 1: the run was aborted, all threads leave the kernel
    std::uint32_t last;   // 1: this rank was the last to arrive in the current collective operation
    std::uint32_t result; // of the current operation, for all threads
    std::uint32_t finished;
    std::uint32_t generation[static_cast<unsigned>(collective::count)]; // of each meeting, as this rank counts
    scope notification_scope;                                           // whom notifications may come from
    std::uint32_t* counters;                                            // this rank's, [tag]
    std::uint32_t* consumed;                                            // this rank's, [tag], where it is not cached
    target_entry targets[cached_targets];
    consumed_entry consumed_cache[cached_tags]; // of the tags with the same remainder, the one used last
};

// --- Waiting -------------------------------------------------------------------------------------------------------

// Asked by a wait from time to time; ends it when the run ends or the user's bound is reached. One thread.
class patience {
public:
    DCUDA_DEVICE patience(rank_state& state, waiting what, std::uint32_t detail, std::uint32_t base = 0,
                          std::uint32_t expected = 0)
        : state_(state), what_(what), detail_(detail), base_(base), expected_(expected) {}

    // After a look in vain at a word that holds `value`. False: give up, the run has ended.
    DCUDA_DEVICE bool operator()(std::uint32_t value) {
        if (load_relaxed(state_.device->aborted) != 0) {
            store_relaxed(&state_.ended, 1);
            return false;
        }
        // Publishing costs a few stores: only long waits do it, and the watchdog looks for no others.
        if (++calls_ % calls_per_publication == 0) publish(value);
        return what_ != waiting::notifications || in_time(value);
    }

    // Whether the user's bound ended the wait, and how many notifications had arrived then.
    DCUDA_DEVICE bool timed_out() const { return timed_out_; }
    DCUDA_DEVICE std::uint32_t seen() const { return seen_; }

    // The wait is over. Only a wait that was published takes it back.
    DCUDA_DEVICE void done() {
        if (calls_ < calls_per_publication) return;
        store_relaxed(&record().what, static_cast<std::uint32_t>(waiting::no));
    }

private:
#if DCUDA_BACKEND_CUDA
    static constexpr unsigned calls_per_publication = 32; // times 64 polls: about a millisecond
#else
    static constexpr unsigned calls_per_publication = 1; // the CPU backend sleeps between two calls
#endif

    DCUDA_DEVICE wait_record& record() { return state_.device->waits[state_.device_rank]; }

    DCUDA_DEVICE void publish(std::uint32_t value) {
        if (calls_ == calls_per_publication) {
            // Several threads of the last rank may wait for other devices: the count need not be exact, but it moves.
            store_relaxed(&record().epoch, load_relaxed(&record().epoch) + 1);
        }
        store_relaxed(&record().detail, detail_);
        store_relaxed(&record().expected, expected_);
        store_relaxed(&record().seen, value - base_);
        store_relaxed(&record().what, static_cast<std::uint32_t>(what_));
        store_relaxed(&record().heartbeat, load_relaxed(&record().heartbeat) + 1);
    }

    DCUDA_DEVICE bool in_time(std::uint32_t value) {
        const std::uint64_t bound_ns = state_.device->wait_timeout_ns;
        if (bound_ns == 0) return true;
        const std::uint64_t now_ns = clock_ns();
        if (start_ns_ == 0) start_ns_ = now_ns;
        if (now_ns - start_ns_ < bound_ns) return true;
        timed_out_ = true;
        seen_ = value - base_;
        return false;
    }

    rank_state& state_;
    waiting what_;
    std::uint32_t detail_;
    std::uint32_t base_;
    std::uint32_t expected_;
    unsigned calls_ = 0;
    std::uint32_t seen_ = 0;
    bool timed_out_ = false;
    std::uint64_t start_ns_ = 0;
};

// --- Commands and faults -------------------------------------------------------------------------------------------

// Puts a command into the device's ring; waits while the ring is full. False if the run ended meanwhile. One thread.
DCUDA_DEVICE bool send_command(rank_state& state, const command& cmd) {
    const command_ring& ring = state.device->ring;
    const std::uint32_t ticket = fetch_add_relaxed(ring.tail, 1);
    patience until(state, waiting::ring_space, 0);
    // ORDER slot-reuse: the host has read what the slot held before it counts the slot as free (slot_free); the load
    // acquires that, so the new command cannot overtake the host's reading of the old one.
    const bool free = poll<order_tag::slot_reuse>(
        scope::system, ring.head, [&](std::uint32_t head) { return ticket - head < ring_capacity; }, until);
    until.done();
    if (!free) return false;
    packet* slot = ring.slots + std::size_t(ticket % ring_capacity) * packets_per_command;
    for (unsigned part = 0; part < packets_per_command; ++part) {
        const std::uint32_t* words = cmd.words + 3 * part;
        store_packet(slot + part, words[0], words[1], words[2], ticket + 1);
    }
    return true;
}

// Tells the host what this rank did wrong and ends the run on this device. One thread.
DCUDA_DEVICE void report_fault(rank_state& state, fault kind, operation where, std::uint32_t window_id,
                               std::uint32_t target, std::uint64_t offset, std::uint64_t bytes, std::uint64_t limit) {
    send_command(state, command{{static_cast<std::uint32_t>(opcode::fault), state.device_rank,
                                 static_cast<std::uint32_t>(kind), static_cast<std::uint32_t>(where), window_id, target,
                                 static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(offset >> 32),
                                 static_cast<std::uint32_t>(bytes), static_cast<std::uint32_t>(bytes >> 32),
                                 static_cast<std::uint32_t>(limit), static_cast<std::uint32_t>(limit >> 32)}});
    store_relaxed(state.device->aborted, 1);
}

// All threads of the rank: one reports, all leave the kernel.
[[noreturn]] DCUDA_DEVICE void fail(rank_state& state, fault kind, operation where, std::uint32_t window_id,
                                    std::uint32_t target, std::uint64_t offset, std::uint64_t bytes,
                                    std::uint64_t limit) {
    // The first to get here reports, not the leader: seeing `ended`, the others leave where they are, which may still
    // be the end of the operation before.
    if (exchange_relaxed(&state.ended, 1) == 0)
        report_fault(state, kind, where, window_id, target, offset, bytes, limit);
    exec::exit_thread();
}

// All threads of the rank, after an operation in which one of them may have found the run aborted.
DCUDA_DEVICE void leave_if_ended(rank_state& state) {
    if (load_in_block(&state.ended) != 0) exec::exit_thread();
}

} // namespace dcuda::detail
