// SPDX-License-Identifier: BSD-3-Clause
// The operations of a rank, as the checker does them.
#include "dcuda/detail/ops/check.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "checker/checked_rank.hpp"
#include "dcuda/detail/ops/collectives/barrier.hpp"
#include "dcuda/detail/ops/one_sided/accumulate.hpp"
#include "dcuda/detail/ops/one_sided/atomics.hpp"
#include "dcuda/detail/ops/one_sided/box.hpp"
#include "dcuda/detail/ops/one_sided/get.hpp"
#include "dcuda/detail/ops/put.hpp"
#include "dcuda/detail/ops/waits/wait.hpp"
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
    const std::uint32_t limit = state.device.tags.count;
    if (static_cast<std::uint32_t>(tag) >= limit)
        fail(state, fault::tag, where, 0, target, static_cast<std::uint32_t>(tag), 0, limit);
}

// Of an operation that waits for notifications from anybody.
void check_plain_tag(rank_state& state, operation where, int tag) {
    check_tag(state, where, tag, 0);
    const auto asked = static_cast<std::uint32_t>(tag);
    if (asked >= state.device.tags.plain) fail(state, fault::matched_tag, where, 0, 0, asked, 0, 0);
}

void check_count(rank_state& state, operation where, int tag, int count) {
    check_plain_tag(state, where, tag);
    if (count < 0)
        fail(state, fault::count, where, 0, static_cast<std::uint32_t>(tag), static_cast<std::uint32_t>(count), 0, 0);
}

void check_tags(rank_state& state, operation where, int first, int tags) {
    check_tag(state, where, first, 0);
    const auto from = static_cast<std::uint32_t>(first), count = static_cast<std::uint32_t>(tags);
    const std::uint32_t limit = state.device.tags.count;
    if (count == 0 || count > limit - from) fail(state, fault::tag_range, where, 0, from, count, 0, limit);
    check_plain_tag(state, where, static_cast<int>(from + count - 1));
}

constinit thread_local checked_rank* this_rank = nullptr;

constexpr exec::whole_block all_threads{}; // of the rank

// All threads of the rank: the last to arrive acts, when the rank has the turn.
template <class Act>
void perform(const call& entered, const Act& act) {
    if (this_rank == nullptr)
        throw error(error_code::device_fault,
                    fmt::format("{} after the rank has finished", traits_of(entered.kind).name));
    checked_rank& self = *this_rank;
    self.arrive(entered);
    exec::run_then_sync(all_threads, [&] {
        if (self.begin(entered)) act(self);
    });
    leave_if_ended(self.state());
}

// Where the operation ends for the rank, too.
template <class Act>
void perform_all(const call& entered, const Act& act) {
    perform(entered, [&](checked_rank& self) {
        act(self);
        self.end();
    });
}

std::uint64_t number(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

// All threads, with the same result. The window must exist.
device_window find_open(rank_state& state, operation where, window win, std::uint32_t target, std::size_t offset,
                        std::size_t bytes) {
    const device_window opened = find_window(state, win);
    if (win && opened.id == win.id) return opened;
    perform_all({where, {win.id, target, offset, bytes}}, [&](checked_rank& self) {
        const std::uint32_t freed = self.window_of(win);
        if (freed == none || !self.going(self.turn().next())) return;
        self.run().found.use_of_freed(self.rank(), where, freed, self.own().site);
        self.end_run(); // in report mode, too: there is no such window
    });
    fail(state, fault::window, where, win.id, target, offset, bytes, 0);
}

} // namespace

// --- Notifications ---------------------------------------------------------------------------------------------------

void checked_rank::notify(operation kind, std::uint32_t target, std::uint32_t tag) {
    if (!going(turns_.next())) return;
    ++m_.head().notifications;
    ++m_.head().progress;
    run_.happened.next_position(rank_, target);
    message sent;
    sent.tag = tag;
    sent.notice = run_.happened.make_notice(rank_, target, tag, own().site, kind);
    if (sent.notice != none) turns_.send(target, std::move(sent));
}

// Whether as many have arrived; else it counts an unsuccessful test.
bool checked_rank::has_arrived(std::uint32_t tag, std::uint32_t count) {
    rank_record& self = own();
    if (m_.arrived(rank_, tag).count < count) {
        self.unsuccessful_tests = self.unsuccessful_at == m_.head().progress ? self.unsuccessful_tests + 1 : 1;
        self.unsuccessful_at = m_.head().progress;
        return false;
    }
    self.unsuccessful_tests = 0;
    return true;
}

bool checked_rank::give_turn_for(rank_status meanwhile, std::uint32_t first, std::uint32_t tags, std::uint32_t count) {
    rank_record& self = own();
    self.tag = first;
    self.tags = tags;
    self.count = count;
    self.status = meanwhile;
    if (!going(turns_.next())) return false;
    self.status = rank_status::ready;
    return true;
}

bool checked_rank::take(std::uint32_t tag, std::uint32_t count, bool waits) {
    if (!give_turn_for(waits ? rank_status::waiting : rank_status::ready, tag, 1, count)) return false;
    if (!has_arrived(tag, count)) return false;
    run_.happened.consume(rank_, tag, count);
    return true;
}

// Who asks again and again and gets the same answer makes unsuccessful tests.
int checked_rank::count_pending(std::uint32_t tag) {
    const std::uint32_t more = m_.arrived(rank_, tag).count + 1;
    if (!give_turn_for(rank_status::ready, tag, 1, more)) return 0;
    has_arrived(tag, more);
    return static_cast<int>(m_.arrived(rank_, tag).count);
}

// The time is the clock's, as without the checker. These tests are not counted as unsuccessful: the rank goes on by
// itself.
bool checked_rank::take_for(std::uint32_t tag, std::uint32_t count, std::uint64_t nanoseconds) {
    const std::uint64_t begin_ns = clock_ns();
    for (;;) {
        if (take(tag, count, false)) return true;
        if (ended() || clock_ns() - begin_ns >= nanoseconds) return false;
        own().unsuccessful_tests = 0;
    }
}

std::vector<std::uint32_t> checked_rank::pending(std::uint32_t first, std::uint32_t tags) const {
    std::vector<std::uint32_t> found;
    for (std::uint32_t tag = first; tag < first + tags; ++tag)
        if (m_.arrived(rank_, tag).count != 0) found.push_back(tag);
    return found;
}

// What was there already in turn; of what comes while the rank waits any, by the seed.
int checked_rank::take_any(std::uint32_t first, std::uint32_t tags) {
    std::vector<std::uint32_t> there = pending(first, tags);
    const auto next = std::upper_bound(there.begin(), there.end(), last_of_any_);
    std::uint32_t tag = there.empty() ? none : next != there.end() ? *next : there.front();
    if (!give_turn_for(rank_status::waiting, first, tags, 1)) return 0;
    if (tag == none) {
        there = pending(first, tags);
        tag = there[turns_.draw(static_cast<std::uint32_t>(there.size()))];
    }
    run_.happened.consume(rank_, tag, 1);
    last_of_any_ = tag;
    return static_cast<int>(tag);
}

int checked_rank::take_some(std::uint32_t first, std::uint32_t tags, int* arrived) {
    if (!give_turn_for(rank_status::waiting, first, tags, 1)) return 0;
    int count = 0;
    for (const std::uint32_t tag : pending(first, tags)) {
        run_.happened.consume(rank_, tag, 1);
        arrived[count++] = static_cast<int>(tag);
    }
    return count;
}

void checked_rank::flush(window win) {
    if (!going(turns_.next())) return;
    const std::uint32_t window = window_of(win);
    turns_.flush(window);
    run_.happened.flush(rank_, window);
    ++m_.head().progress;
}

namespace {

// The window, of which the range is a part.
device_window find_range(rank_state& state, operation where, window win, std::uint32_t rank, std::size_t offset,
                         std::size_t bytes) {
    const device_window opened = find_open(state, where, win, rank, offset, bytes);
    if (!is_member(state, opened)) fail(state, fault::window_member, where, win.id, opened.comm, offset, bytes, 0);
    if (rank >= opened.rank_count) fail(state, fault::rank, where, win.id, rank, offset, bytes, opened.rank_count);
    const std::uint64_t limit = opened.entries[rank].bytes();
    if (bytes > limit || offset > limit - bytes) fail(state, fault::bounds, where, win.id, rank, offset, bytes, limit);
    return opened;
}
device_window find_range(rank_state& state, const accessed_range& range) {
    return find_range(state, range.where, window{range.window}, range.rank, range.offset, range.bytes);
}

device_window find_elements(rank_state& state, const accessed_range& range, std::size_t element_bytes) {
    const device_window opened = find_range(state, range);
    if (number(opened.entries[range.rank].home + range.offset) % element_bytes != 0)
        fail(state, fault::alignment, range.where, range.window, range.rank, range.offset, range.bytes, 0);
    return opened;
}

void put_in_order(rank_state& state, operation where, window win, int target, std::size_t offset, std::size_t bytes,
                  const void* source, std::uint32_t tag) {
    const auto rank = static_cast<std::uint32_t>(target);
    const device_window opened = find_range(state, where, win, rank, offset, bytes);
    // Each thread has its own local variable with the value, which the put reads at once.
    const bool is_value = exec::cpu::is_on_own_stack(source);
    perform_all({where, {rank, offset, bytes, number(is_value ? nullptr : source), std::uint64_t(win.id) << 32 | tag}},
                [&](checked_rank& self) { self.put(win, opened, rank, offset, bytes, source, is_value, tag); });
}

} // namespace

void put(rank_state& state, window win, int target, std::size_t offset, std::size_t bytes, const void* source) {
    put_in_order(state, operation::put, win, target, offset, bytes, source, no_tag);
}

void put_notify(rank_state& state, window win, int target, std::size_t offset, std::size_t bytes, const void* source,
                int tag) {
    check_tag(state, operation::put_notify, tag, static_cast<std::uint32_t>(target));
    put_in_order(state, operation::put_notify, win, target, offset, bytes, source,
                 wire_tag(state, static_cast<std::uint32_t>(tag)));
}

void get(rank_state& state, const get_request& request) {
    const accessed_range& range = request.range;
    if (range.notifies()) check_tag(state, range.where, static_cast<int>(range.tag), range.rank);
    check_destination(state, request);
    const device_window opened = find_range(state, range);
    perform_all({range.where,
                 {range.rank, range.offset, range.bytes, number(request.destination),
                  std::uint64_t(range.window) << 32 | range.tag}},
                [&](checked_rank& self) { self.get(opened, request); });
}

// An operation for each row, the last one with the notification.
void box(rank_state& state, const box_request& request) {
    check_box(state, request);
    const accessed_range& all = request.range;
    find_range(state, all);
    const bool notifies = all.notifies();
    const auto move = [&](std::size_t offset, std::byte* memory, std::size_t bytes, bool is_last) {
        if (all.is_got()) {
            accessed_range range = all;
            range.offset = offset;
            range.bytes = bytes;
            if (!is_last) range.where = operation::get;
            get(state, {range, memory});
        } else if (is_last && notifies) {
            put_notify(state, window{all.window}, static_cast<int>(all.rank), offset, bytes, memory,
                       static_cast<int>(all.tag));
        } else {
            put(state, window{all.window}, static_cast<int>(all.rank), offset, bytes, memory);
        }
    };
    if (is_empty(request.shape)) return move(all.offset, request.memory, 0, true);
    for (std::size_t slice = 0; slice < request.shape.depth; ++slice)
        for (std::size_t row = 0; row < request.shape.height; ++row)
            move(all.offset + place_in(request.at_target, row, slice),
                 request.memory + place_in(request.here, row, slice), request.shape.width_bytes,
                 slice + 1 == request.shape.depth && row + 1 == request.shape.height);
}

std::uint64_t update(rank_state& state, const update_request& request) {
    const accessed_range& range = request.range;
    const device_window opened = find_elements(state, range, range.bytes);
    perform_all({range.where,
                 {range.rank, range.offset, request.update.operand, request.update.expected,
                  std::uint64_t(range.window) << 32 | update_code(request.update)}},
                [&](checked_rank& self) { self.result64 = self.update(opened, request); });
    return this_rank->result64;
}

void accumulate(rank_state& state, const accumulate_request& request) {
    const accessed_range& range = request.range;
    if (range.notifies()) check_tag(state, range.where, static_cast<int>(range.tag), range.rank);
    const device_window opened = find_elements(state, range, request.element_bytes());
    const bool is_value = exec::cpu::is_on_own_stack(request.source);
    perform_all({range.where,
                 {range.rank, range.offset, range.bytes, number(is_value ? nullptr : request.source),
                  std::uint64_t(range.window) << 32 | range.tag}},
                [&](checked_rank& self) { self.accumulate(opened, request); });
}

void notify(rank_state& state, operation kind, int target, communicator comm, int tag) {
    check_communicator(state, comm, kind);
    check_tag(state, kind, tag, static_cast<std::uint32_t>(target));
    const auto rank = static_cast<std::uint32_t>(target);
    const communicator_record& ranks = *find_communicator(state, comm);
    if (rank >= ranks.size) fail(state, fault::rank, kind, 0, rank, 0, 0, ranks.size);
    const std::uint32_t world_rank = ranks.world_rank_of(rank);
    const std::uint32_t sent = wire_tag(state, static_cast<std::uint32_t>(tag));
    perform_all({kind, {world_rank, sent}}, [&](checked_rank& self) { self.notify(kind, world_rank, sent); });
}

void wait_notifications(rank_state& state, int tag, int count) {
    check_count(state, operation::wait_notifications, tag, count);
    const auto wanted = static_cast<std::uint32_t>(tag), expected = static_cast<std::uint32_t>(count);
    perform_all({operation::wait_notifications, {wanted, expected}},
                [&](checked_rank& self) { self.take(wanted, expected, true); });
}

void wait_notifications_from(rank_state& state, int source, communicator comm, int tag, int count) {
    constexpr operation where = operation::wait_notifications_from;
    const auto rank = static_cast<std::uint32_t>(source), named = static_cast<std::uint32_t>(tag),
               expected = static_cast<std::uint32_t>(count);
    check_source(state, where, rank, comm, named, expected);
    const std::uint32_t wanted = state.device.tags.wire_tag(named, world_rank_of(state, comm, rank));
    perform_all({where, {wanted, expected}}, [&](checked_rank& self) { self.take(wanted, expected, true); });
}

bool test_notifications(rank_state& state, int tag, int count) {
    check_count(state, operation::test_notifications, tag, count);
    const auto wanted = static_cast<std::uint32_t>(tag), expected = static_cast<std::uint32_t>(count);
    perform_all({operation::test_notifications, {wanted, expected}},
                [&](checked_rank& self) { self.result = self.take(wanted, expected, false); });
    return this_rank->result != 0;
}

bool wait_notifications_for(rank_state& state, int tag, int count, std::uint64_t nanoseconds) {
    check_count(state, operation::wait_notifications_for, tag, count);
    const auto wanted = static_cast<std::uint32_t>(tag), expected = static_cast<std::uint32_t>(count);
    perform_all({operation::wait_notifications_for, {wanted, expected, nanoseconds}},
                [&](checked_rank& self) { self.result = self.take_for(wanted, expected, nanoseconds); });
    return this_rank->result != 0;
}

int wait_any(rank_state& state, int first_tag, int tags) {
    check_tags(state, operation::wait_any, first_tag, tags);
    const auto first = static_cast<std::uint32_t>(first_tag), count = static_cast<std::uint32_t>(tags);
    perform_all({operation::wait_any, {first, count}},
                [&](checked_rank& self) { self.result = self.take_any(first, count); });
    return this_rank->result;
}

int wait_some(rank_state& state, int first_tag, int tags, int* arrived) {
    check_tags(state, operation::wait_some, first_tag, tags);
    const auto first = static_cast<std::uint32_t>(first_tag), count = static_cast<std::uint32_t>(tags);
    perform_all({operation::wait_some, {first, count, number(arrived)}},
                [&](checked_rank& self) { self.result = self.take_some(first, count, arrived); });
    return this_rank->result;
}

int pending_notifications(rank_state& state, int tag) {
    check_plain_tag(state, operation::pending_notifications, tag);
    const auto wanted = static_cast<std::uint32_t>(tag);
    perform_all({operation::pending_notifications, {wanted}},
                [&](checked_rank& self) { self.result = self.count_pending(wanted); });
    return this_rank->result;
}

void flush(rank_state& state, window win) {
    find_open(state, operation::flush, win, 0, 0, 0);
    perform_all({operation::flush, {win.id}}, [&](checked_rank& self) { self.flush(win); });
}

// --- Collective operations
// ---------------------------------------------------------------------------------------------

void checked_rank::enter(const collective& where, window win) {
    if (!going(turns_.next())) return;
    rank_record& self = own();
    self.kind = static_cast<std::uint32_t>(where.kind);
    self.communicator = static_cast<std::uint32_t>(where.comm);
    self.argument = win ? window_of(win) : none;
    const communicator_record& group = *find_communicator(state_, where.comm);
    self.first_member = group.world_rank_of(0);
    self.members = group.size;
    self.released = 0;
    self.status = rank_status::collective;
    ++m_.head().progress;
    if (is_barrier(where.kind)) run_.happened.complete_puts(rank_);
    // Who is in another one, which needs this rank, will never come to this one.
    for (std::uint32_t r = 0; r < m_.ranks(); ++r) {
        const rank_record& other = m_.rank(r);
        const bool are_near = other.process == self.process;
        const auto reaches = [&](const rank_record& who) {
            return who.communicator == static_cast<std::uint32_t>(world) ||
                   (are_near && who.communicator == static_cast<std::uint32_t>(device));
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
                for (std::uint32_t tag = 0; tag < m_.tags().wire_count(); ++tag)
                    if (m_.arrived(r, tag).count != 0) run_.found.left_over(r, tag);
        };
    if (!going(turns_.to_native())) return;
    if (!has_native_part(where.kind)) self.status = rank_status::ready;
    if (where.kind == operation::finish) turns_.end();
}

void checked_rank::leave() { going(turns_.from_native()); }

void checked_rank::created(window made, const void* base, std::size_t bytes) {
    if (!going(turns_.from_native()) || !made || own().window == most_windows) return;
    window_record& record = m_.window(own().window);
    if (record.number == none) record.number = slot_of_window(made.id);
    offer(own().window, base, bytes);
    run_.windows[made.id] = own().window;
    track(own().window);
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
    const device_window opened = find_open(state, operation::free_window, win, 0, 0, 0);
    if (!is_member(state, opened))
        fail(state, fault::window_member, operation::free_window, win.id, opened.comm, 0, 0, 0);
    enter_with({operation::free_window, static_cast<communicator>(opened.comm)}, win);
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
    if (self->own().status == rank_status::finished) return;
    self->own().status = rank_status::absent;
    self->run().found.left_early(self->rank());
    self->end_run();
}

} // namespace dcuda::detail::check
