// SPDX-License-Identifier: BSD-3-Clause
// What the checker keeps for a rank, and what a rank does when it has the turn.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "checker/turns.hpp"
#include "cpu/arena.hpp"
#include "dcuda/detail/ops/collectives/barrier.hpp"

namespace dcuda::detail::check {

// A call of an operation, as each thread of the rank makes it.
struct call {
    operation kind;
    std::uint64_t arguments[5];
    friend bool operator==(const call&, const call&) = default;
};

constexpr std::uint32_t accesses_of_a_turn = 4000; // loads and stores until others get the turn

// What the checker keeps for a rank, on the thread of its block.
class checked_rank {
public:
    explicit checked_rank(rank_state& state)
        : state_(state), all_(*state.device.checker), run_(all_.run()), m_(run_.shared), rank_(state.world_rank),
          turns_(all_, state.world_rank, state.device.aborted) {
        const cpu::arena& own = cpu::arena::own();
        arena_ = {reinterpret_cast<std::uint64_t>(own.base()), own.bytes()};
        m_.head().arenas[all_.process()] = {arena_.base, arena_.bytes}; // all ranks of the process write the same
        for (std::uint32_t i = 0; i < run_.of_host.size(); ++i) offer(i, run_.of_host[i].home, run_.of_host[i].bytes());
    }

    // What a thread brings to an operation; the last to come runs it: begin() to end().
    void arrive(const call& entered) {
        in_library_ = true;
        if (arrived_++ == 0) {
            call_ = entered;
            own().site = run_.where.here();
            own().where = static_cast<std::uint32_t>(entered.kind);
        } else if (!(call_ == entered)) {
            differs_ = true;
        }
        in_library_ = false; // its siblings are still on their way here
    }

    // The place, and that all threads have called the same. False if the run has ended.
    bool begin(const call& entered) {
        in_library_ = true;
        run_.found.end_run = [this] { end_run(); };
        arrived_ = 0;
        if (std::exchange(differs_, false))
            run_.found.threads_differ(rank_,
                                      fmt::format("its threads call {} with different arguments ({})",
                                                  traits_of(entered.kind).name, run_.where.name(own().site)),
                                      own().site);
        return !ended();
    }
    void end() { in_library_ = false; }

    // A thread of the rank has come to another meeting of the block than its siblings, who wait.
    void part(bool by_operation) {
        if (arrived_ == 0 || differs_) return; // the library's own, or begin() tells
        in_library_ = true;
        run_.found.end_run = [this] { end_run(); };
        const std::uint32_t there = by_operation ? none : run_.where.here();
        run_.found.threads_differ(rank_,
                                  fmt::format("some of its threads call {} ({}), others {}", traits_of(call_.kind).name,
                                              run_.where.name(own().site),
                                              by_operation ? std::string("are in __syncthreads")
                                                           : fmt::format("__syncthreads ({})", run_.where.name(there))),
                                  own().site);
        differs_ = false;
        in_library_ = false;
    }

    // Ends the run with what was found.
    void end_run() {
        if (exchange_relaxed(&state_.ended, 1) == 0)
            report_fault(exec::lead_access::alone(), state_, fault::protocol, operation::none, 0, 0, 0, 0, 0);
    }
    bool ended() const { return load_relaxed(&state_.ended) != 0; }
    // For what returns false when the run has ended.
    bool going(bool goes_on) {
        if (!goes_on) store_relaxed(&state_.ended, 1);
        return goes_on;
    }

    // An address of a process, as all know it.
    address place_of(std::uint32_t process, const void* pointer) const {
        const auto at = reinterpret_cast<std::uint64_t>(pointer);
        const auto& arena = m_.head().arenas[process];
        const std::uint64_t offset = at - arena.base;
        return std::uint64_t(process) << 48 |
               (offset < arena.bytes ? offset : private_memory | (at & (private_memory - 1)));
    }

    void synchronize(const void* word) {
        if (in_library_) return;
        std::vector<std::uint32_t>& clock = run_.atomics[word];
        clock.resize(m_.ranks());
        run_.happened.synchronize(rank_, clock.data());
    }

    void touched(const void* pointer, std::size_t bytes, bool is_store, const void* return_address) {
        if (in_library_) return;
        if (--accesses_left_ == 0) yield();
        const auto at = reinterpret_cast<std::uint64_t>(pointer);
        if (at - arena_.base >= arena_.bytes && run_.private_pages == 0) return;
        const address place = place_of(all_.process(), pointer);
        if (place / page_bytes != last_page_) {
            if (run_.happened.find_page(place / page_bytes) == nullptr) return;
            last_page_ = place / page_bytes;
        }
        in_library_ = true;
        ++m_.head().loads_and_stores;
        run_.found.end_run = [this] { end_run(); };
        run_.happened.load_or_store(rank_, place, bytes, is_store ? access_kind::store : access_kind::load,
                                    run_.where.of(return_address));
        in_library_ = false;
    }

    void yield() {
        if (in_library_) return;
        in_library_ = true;
        run_.found.end_run = [this] { end_run(); };
        going(turns_.next());
        accesses_left_ = 1 + turns_.draw(accesses_of_a_turn);
        in_library_ = false;
    }

    void put(window win, const device_window& opened, std::uint32_t target, std::size_t offset, std::size_t bytes,
             const void* source, bool is_value, std::uint32_t tag);
    void get(const device_window& opened, const get_request& request);
    std::uint64_t update(const device_window& opened, const update_request& request);
    void accumulate(const device_window& opened, const accumulate_request& request);
    void notify(operation kind, std::uint32_t target, std::uint32_t tag);
    bool take(std::uint32_t tag, std::uint32_t count, bool waits);
    bool has_arrived(std::uint32_t tag, std::uint32_t count);
    int count_pending(std::uint32_t tag);
    bool take_for(std::uint32_t tag, std::uint32_t count, std::uint64_t nanoseconds);
    int take_any(std::uint32_t first, std::uint32_t tags);
    int take_some(std::uint32_t first, std::uint32_t tags, int* arrived);
    void flush(window win);
    void enter(const collective& where, window win);
    void leave();
    void created(window made, const void* base, std::size_t bytes);
    // This rank's part of a window of the table.
    void offer(std::uint32_t window, const void* base, std::size_t bytes) {
        m_.window(window).parts[rank_] = {place_of(all_.process(), base), bytes};
    }
    // What is done with this part is followed from now on.
    void track(std::uint32_t window) {
        const window_part& part = m_.window(window).parts[rank_];
        run_.happened.track(part.base, part.bytes);
        if (part.bytes != 0 && (part.base & private_memory) != 0) ++run_.private_pages;
    }
    // The turn is this rank's for the first time. Windows of the host are tracked before any rank of the process may
    // use them.
    void start() {
        for (std::uint32_t i = 0; i < run_.of_host.size(); ++i) track(i);
    }
    void finish();

    std::uint32_t window_of(window win) const {
        const auto found = run_.windows.find(win.id);
        return found == run_.windows.end() ? none : found->second;
    }
    rank_record& own() { return m_.rank(rank_); }
    session::run_state& run() { return run_; }
    turns& turn() { return turns_; }
    std::uint32_t rank() const { return rank_; }
    rank_state& state() { return state_; }

    int result = 0; // of an operation that has one, for all threads
    std::uint64_t result64 = 0;

private:
    // A range of another rank's window.
    struct reached_range {
        std::uint32_t target; // world rank
        address place;
        std::byte* memory; // as mapped here
    };
    reached_range reach(const device_window& opened, const accessed_range& range);
    // If the operation has a tag.
    void notify_reached(const accessed_range& range, const reached_range& reached);

    // Of these tags those with which a notification has arrived.
    std::vector<std::uint32_t> pending(std::uint32_t first, std::uint32_t tags) const;
    // Gives the turn away and gets it back. The rank waits meanwhile, or tests, for so many notifications with one of
    // these tags.
    bool give_turn_for(rank_status meanwhile, std::uint32_t first, std::uint32_t tags, std::uint32_t count);

    rank_state& state_;
    session& all_;
    session::run_state& run_;
    memory m_;
    std::uint32_t rank_;
    turns turns_;
    struct {
        std::uint64_t base, bytes;
    } arena_;
    std::uint64_t last_page_ = UINT64_MAX;
    std::uint32_t accesses_left_ = accesses_of_a_turn;
    std::uint32_t last_of_any_ = 0; // the tag that wait_any returned last
    bool in_library_ = true;
    call call_{};
    unsigned arrived_ = 0;
    bool differs_ = false;
};

} // namespace dcuda::detail::check
