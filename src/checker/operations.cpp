// SPDX-License-Identifier: BSD-3-Clause
// The operations of a rank, as the checker does them.
#include "dcuda/detail/ops/check.hpp"

#include <fmt/format.h>

#include "checker/turns.hpp"
#include "cpu/arena.hpp"
#include "dcuda/detail/ops/collectives.hpp"
#include "dcuda/detail/ops/put.hpp"
#include "dcuda/detail/ops/wait.hpp"
#include "dcuda/error.hpp"

namespace dcuda::detail::check {

namespace {

// All threads of the rank, after an operation in which the run may have ended.
void leave_if_ended(rank_state& state) {
    if (load_in_block(&state.ended) != 0) exec::exit_thread();
}

// All threads of the rank: one reports, all leave the kernel.
[[noreturn]] void fail(rank_state& state, fault kind, operation where, std::uint32_t window_id, std::uint32_t target,
                       std::uint64_t offset, std::uint64_t bytes, std::uint64_t limit) {
    if (exchange_relaxed(&state.ended, 1) == 0)
        report_fault(exec::lead_access::alone(), state, kind, where, window_id, target, offset, bytes, limit);
    exec::exit_thread();
}

void check_tag(rank_state& state, operation where, int tag, std::uint32_t target) {
    if (static_cast<std::uint32_t>(tag) >= state.device.tags)
        fail(state, fault::tag, where, 0, target, static_cast<std::uint32_t>(tag), 0, state.device.tags);
}

void check_count(rank_state& state, operation where, int tag, int count) {
    check_tag(state, where, tag, 0);
    if (count < 0)
        fail(state, fault::count, where, 0, static_cast<std::uint32_t>(tag), static_cast<std::uint32_t>(count), 0, 0);
}

// A call of an operation, as each thread of the rank makes it.
struct call {
    operation what;
    std::uint64_t arguments[5];
    friend bool operator==(const call&, const call&) = default;
};

constexpr std::uint32_t most_accesses = 4000; // loads and stores until others get the turn

// What the checker keeps for a rank, on the thread of its block.
class checked_rank {
public:
    explicit checked_rank(rank_state& state)
        : state_(state), all_(*state.device.checker), run_(all_.run()), m_(run_.shared), rank_(state.world_rank),
          turns_(all_, state.world_rank, state.device.aborted) {
        const cpu::arena& mine = cpu::arena::mine();
        arena_ = {reinterpret_cast<std::uint64_t>(mine.base()), mine.bytes()};
        m_.head().arenas[all_.process()] = {arena_.base, arena_.bytes}; // all ranks of the process write the same
        for (std::uint32_t i = 0; i < run_.of_host.size(); ++i) offer(i, run_.of_host[i].home, run_.of_host[i].bytes());
    }

    // What a thread brings to an operation; the last to come runs it: begin() to end().
    void arrive(const call& what) {
        in_library_ = true;
        if (arrived_++ == 0) {
            call_ = what;
            mine().site = run_.where.here();
            mine().where = static_cast<std::uint32_t>(what.what);
        } else if (!(call_ == what)) {
            differs_ = true;
        }
        in_library_ = false; // its siblings are still on their way here
    }

    // The place, and that all threads have called the same. False if the run has ended.
    bool begin(const call& what) {
        in_library_ = true;
        run_.found.end_run = [this] { end_run(); };
        arrived_ = 0;
        if (std::exchange(differs_, false))
            run_.found.threads_differ(rank_,
                                      fmt::format("its threads call {} with different arguments ({})",
                                                  traits_of(what.what).name, run_.where.name(mine().site)),
                                      mine().site);
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
                                  fmt::format("some of its threads call {} ({}), others {}", traits_of(call_.what).name,
                                              run_.where.name(mine().site),
                                              by_operation ? std::string("are in __syncthreads")
                                                           : fmt::format("__syncthreads ({})", run_.where.name(there))),
                                  mine().site);
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
        accesses_left_ = 1 + turns_.draw(most_accesses);
        in_library_ = false;
    }

    void put(window win, const window_slot& slot, std::uint32_t target, std::size_t offset, std::size_t bytes,
             const void* source, bool is_value, std::uint32_t tag);
    void notify(operation kind, std::uint32_t target, std::uint32_t tag);
    bool take(std::uint32_t tag, std::uint32_t count, bool waits);
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
    rank_record& mine() { return m_.rank(rank_); }
    session::run_state& run() { return run_; }
    turns& turn() { return turns_; }
    std::uint32_t rank() const { return rank_; }
    rank_state& state() { return state_; }

    bool result = false; // of a test, for all threads

private:
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
    std::uint32_t accesses_left_ = most_accesses;
    bool in_library_ = true;
    call call_{};
    unsigned arrived_ = 0;
    bool differs_ = false;
};

constinit thread_local checked_rank* this_rank = nullptr;

constexpr exec::whole_block all_threads{0}; // of the rank

// All threads of the rank: the last to arrive acts, when the rank has the turn.
template <class Act>
void perform(const call& what, const Act& act) {
    if (this_rank == nullptr)
        throw error(error_code::device_fault, fmt::format("{} after the rank has finished", traits_of(what.what).name));
    checked_rank& self = *this_rank;
    self.arrive(what);
    exec::run_then_sync(all_threads, [&] {
        if (self.begin(what)) act(self);
    });
    leave_if_ended(self.state());
}

// Where the operation ends for the rank, too.
template <class Act>
void perform_all(const call& what, const Act& act) {
    perform(what, [&](checked_rank& self) {
        act(self);
        self.end();
    });
}

std::uint64_t number(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

// All threads, with the same result. The window must exist.
window_slot slot_of(rank_state& state, operation where, window win, std::uint32_t target, std::size_t offset,
                    std::size_t bytes) {
    const window_slot slot = find_window(state, win);
    if (win && slot.id == win.id) return slot;
    perform_all({where, {win.id, target, offset, bytes}}, [&](checked_rank& self) {
        const std::uint32_t freed = self.window_of(win);
        if (freed == none || !self.going(self.turn().next())) return;
        self.run().found.use_of_freed(self.rank(), where, freed, self.mine().site);
        self.end_run(); // in report mode, too: there is no such window
    });
    fail(state, fault::window, where, win.id, target, offset, bytes, 0);
}

} // namespace

// --- Puts and notifications
// ----------------------------------------------------------------------------------------------

void checked_rank::put(window win, const window_slot& slot, std::uint32_t target, std::size_t offset, std::size_t bytes,
                       const void* source, bool is_value, std::uint32_t tag) {
    if (!going(turns_.next())) return;
    const window_entry& entry = slot.entries[target];
    const std::uint32_t to = state_.device.communicators[slot.comm].world_rank_of(target);
    ++m_.head().puts;
    ++m_.head().progress;
    put_record what{};
    what.source = static_cast<std::uint16_t>(rank_);
    what.target = static_cast<std::uint16_t>(to);
    what.window = window_of(win);
    what.tag = tag;
    what.site = mine().site;
    what.position = run_.happened.next_position(rank_, to);
    what.offset = offset;
    what.bytes = bytes;
    what.place = place_of(m_.rank(to).process, entry.home + offset);
    what.buffer = is_value ? no_buffer : place_of(all_.process(), source);
    message sent;
    sent.window = what.window;
    if (bytes != 0 && what.place != what.buffer) {
        if (what.place < what.buffer + bytes && what.buffer < what.place + bytes)
            run_.found.overlap(rank_, what.window, bytes, what.site);
        if (!is_value && (what.buffer & private_memory) != 0) ++run_.private_pages;
        run_.happened.issue(what);
        sent.target = entry.base + offset;
        sent.source = static_cast<const std::byte*>(source);
        sent.bytes = bytes;
        if (is_value) { // gone when the thread goes on
            sent.copy.assign(sent.source, sent.source + bytes);
            sent.is_read = true;
        }
    }
    if (tag != no_tag) {
        ++m_.head().notifications;
        sent.tag = tag;
        sent.notice = run_.happened.make_notice(rank_, to, tag, what.site, operation::put_notify);
    }
    if (sent.bytes != 0 || sent.notice != none) turns_.send(to, std::move(sent));
}

void checked_rank::notify(operation kind, std::uint32_t target, std::uint32_t tag) {
    if (!going(turns_.next())) return;
    ++m_.head().notifications;
    ++m_.head().progress;
    run_.happened.next_position(rank_, target);
    message sent;
    sent.tag = tag;
    sent.notice = run_.happened.make_notice(rank_, target, tag, mine().site, kind);
    if (sent.notice != none) turns_.send(target, std::move(sent));
}

bool checked_rank::take(std::uint32_t tag, std::uint32_t count, bool waits) {
    rank_record& self = mine();
    self.tag = tag;
    self.count = count;
    if (waits) self.status = rank_status::waiting;
    if (!going(turns_.next())) return false;
    self.status = rank_status::ready;
    const header& head = m_.head();
    if (m_.arrived(rank_, tag).count < count) { // tested in vain
        self.unsuccessful_tests = self.unsuccessful_at == head.progress ? self.unsuccessful_tests + 1 : 1;
        self.unsuccessful_at = head.progress;
        return false;
    }
    self.unsuccessful_tests = 0;
    run_.happened.consume(rank_, tag, count);
    return true;
}

void checked_rank::flush(window win) {
    if (!going(turns_.next())) return;
    const std::uint32_t window = window_of(win);
    turns_.flush(window);
    run_.happened.flush(rank_, window);
    ++m_.head().progress;
}

namespace {

void put_in_order(rank_state& state, operation where, window win, int target, std::size_t offset, std::size_t bytes,
                  const void* source, std::uint32_t tag) {
    const auto rank = static_cast<std::uint32_t>(target);
    const window_slot slot = slot_of(state, where, win, rank, offset, bytes);
    if (rank >= slot.rank_count) fail(state, fault::rank, where, win.id, rank, offset, bytes, slot.rank_count);
    const std::uint64_t limit = slot.entries[rank].bytes();
    if (bytes > limit || offset > limit - bytes) fail(state, fault::bounds, where, win.id, rank, offset, bytes, limit);
    // Each thread has its own local variable with the value, which the put reads at once.
    const bool is_value = exec::cpu::is_on_own_stack(source);
    perform_all({where, {rank, offset, bytes, number(is_value ? nullptr : source), std::uint64_t(win.id) << 32 | tag}},
                [&](checked_rank& self) { self.put(win, slot, rank, offset, bytes, source, is_value, tag); });
}

} // namespace

void put(rank_state& state, window win, int target, std::size_t offset, std::size_t bytes, const void* source) {
    put_in_order(state, operation::put, win, target, offset, bytes, source, no_tag);
}

void put_notify(rank_state& state, window win, int target, std::size_t offset, std::size_t bytes, const void* source,
                int tag) {
    check_tag(state, operation::put_notify, tag, static_cast<std::uint32_t>(target));
    put_in_order(state, operation::put_notify, win, target, offset, bytes, source, static_cast<std::uint32_t>(tag));
}

void notify(rank_state& state, operation kind, int target, communicator comm, int tag) {
    check_communicator(state, comm, kind);
    check_tag(state, kind, tag, static_cast<std::uint32_t>(target));
    const auto rank = static_cast<std::uint32_t>(target);
    const communicator_record& ranks = state.device.record_of(comm);
    if (rank >= ranks.size) fail(state, fault::rank, kind, 0, rank, 0, 0, ranks.size);
    const std::uint32_t world_rank = ranks.world_rank_of(rank);
    perform_all({kind, {world_rank, static_cast<std::uint32_t>(tag)}},
                [&](checked_rank& self) { self.notify(kind, world_rank, static_cast<std::uint32_t>(tag)); });
}

void wait_notifications(rank_state& state, int tag, int count) {
    check_count(state, operation::wait_notifications, tag, count);
    const auto wanted = static_cast<std::uint32_t>(tag), expected = static_cast<std::uint32_t>(count);
    perform_all({operation::wait_notifications, {wanted, expected}},
                [&](checked_rank& self) { self.take(wanted, expected, true); });
}

bool test_notifications(rank_state& state, int tag, int count) {
    check_count(state, operation::test_notifications, tag, count);
    const auto wanted = static_cast<std::uint32_t>(tag), expected = static_cast<std::uint32_t>(count);
    perform_all({operation::test_notifications, {wanted, expected}},
                [&](checked_rank& self) { self.result = self.take(wanted, expected, false); });
    return this_rank->result;
}

void flush(rank_state& state, window win) {
    slot_of(state, operation::flush, win, 0, 0, 0);
    perform_all({operation::flush, {win.id}}, [&](checked_rank& self) { self.flush(win); });
}

// --- Collective operations
// ---------------------------------------------------------------------------------------------

void checked_rank::enter(const collective& where, window win) {
    if (!going(turns_.next())) return;
    rank_record& self = mine();
    self.kind = static_cast<std::uint32_t>(where.kind);
    self.communicator = static_cast<std::uint32_t>(where.comm);
    self.argument = win ? window_of(win) : none;
    self.released = 0;
    self.status = rank_status::collective;
    ++m_.head().progress;
    if (is_barrier(where.kind)) run_.happened.complete_puts(rank_);
    // Who is in another one, which needs this rank, will never come to this one.
    for (std::uint32_t r = 0; r < m_.ranks(); ++r) {
        const rank_record& other = m_.rank(r);
        const bool are_near = other.process == self.process;
        const auto reaches = [&](const rank_record& who) {
            return are_near || who.communicator == static_cast<std::uint32_t>(world);
        };
        if (r == rank_ || other.status != rank_status::collective || other.released != 0) continue;
        const bool same =
            other.kind == self.kind && other.communicator == self.communicator && other.argument == self.argument;
        if (!same && reaches(self) && reaches(other)) run_.found.mismatch(rank_, r);
    }
    if (ended()) return;
    if (where.kind == operation::finish)
        turns_.at_end = [this] {
            for (std::uint32_t r = 0; r < m_.ranks(); ++r)
                for (std::uint32_t tag = 0; tag < m_.tags(); ++tag)
                    if (m_.arrived(r, tag).count != 0) run_.found.left_over(r, tag);
        };
    if (!going(turns_.to_native())) return;
    if (!has_native_part(where.kind)) self.status = rank_status::ready;
    if (where.kind == operation::finish) turns_.end();
}

void checked_rank::leave() { going(turns_.from_native()); }

void checked_rank::created(window made, const void* base, std::size_t bytes) {
    if (!going(turns_.from_native()) || !made || mine().window == most_windows) return;
    window_record& record = m_.window(mine().window);
    if (record.number == none) record.number = slot_of_window(made.id);
    offer(mine().window, base, bytes);
    run_.windows[made.id] = mine().window;
    track(mine().window);
}

void begin(rank_state& state) {
    exec::run_then_sync(all_threads, [&] {
        this_rank = new checked_rank(state);
        this_rank->run().happened.start(state.world_rank);
        if (!this_rank->going(this_rank->turn().begin())) return;
        this_rank->start();
        this_rank->end();
    });
    leave_if_ended(state);
}

namespace {

void enter_with(const collective& where, window win) {
    const call made{where.kind, {static_cast<std::uint64_t>(where.comm), win.id}};
    const auto act = [&](checked_rank& self) { self.enter(where, win); };
    if (has_native_part(where.kind))
        perform(made, act);
    else
        perform_all(made, act);
}

} // namespace

void enter(rank_state&, collective where) {
    enter_with(where, {});
    if (where.kind == operation::finish) exec::run_then_sync(all_threads, [] { thread_ends(); });
}

void enter_free(rank_state& state, window win) {
    const window_slot slot = slot_of(state, operation::free_window, win, 0, 0, 0);
    enter_with({operation::free_window, static_cast<communicator>(slot.comm)}, win);
}

void leave(rank_state& state) {
    exec::run_then_sync(all_threads, [] {
        this_rank->leave();
        this_rank->end();
    });
    leave_if_ended(state);
}

void leave(rank_state& state, window made, const void* base, std::size_t bytes) {
    exec::run_then_sync(all_threads, [&] {
        this_rank->created(made, base, bytes);
        this_rank->end();
    });
    leave_if_ended(state);
}

// --- Outside of operations
// ---------------------------------------------------------------------------------------------

void touched(const void* memory, std::size_t bytes, bool is_store, const void* return_address) {
    if (this_rank != nullptr) this_rank->touched(memory, bytes, is_store, return_address);
}

void synchronize(const void* word) {
    if (this_rank != nullptr) this_rank->synchronize(word);
}

void yield() {
    if (this_rank != nullptr) this_rank->yield();
}

void threads_part(bool by_operation) {
    if (this_rank != nullptr) this_rank->part(by_operation);
}

bool watches_threads() { return this_rank != nullptr; }

void thread_ends() {
    const std::unique_ptr<checked_rank> self(std::exchange(this_rank, nullptr));
    if (!self || self->ended() || load_relaxed(self->state().device.aborted) != 0) return;
    if (self->mine().status == rank_status::finished) return;
    self->mine().status = rank_status::absent;
    self->run().found.left_early(self->rank());
    self->end_run();
}

} // namespace dcuda::detail::check
