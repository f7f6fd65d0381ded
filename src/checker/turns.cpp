// SPDX-License-Identifier: BSD-3-Clause
#include "checker/turns.hpp"

#include <algorithm>
#include <cstring>

#include "dcuda/detail/protocol/protocol.hpp"

namespace dcuda::detail::check {

namespace {

constexpr long nap_ns = 20'000'000;                      // between two looks at whether the run has ended
constexpr std::uint32_t steps_of_a_temper = 40;          // choices until it is drawn anew who is fast and who is slow
constexpr std::uint32_t most_unsuccessful_tests = 10000; // of all ranks that can go on, with nothing under way

} // namespace

bool is_barrier(operation kind) { return kind == operation::barrier || kind == operation::finish; }
bool has_native_part(operation kind) { return kind != operation::barrier; }
bool orders(operation kind) { return !is_data_collective(kind); }

turns::turns(session& all, std::uint32_t rank, const std::uint32_t* aborted)
    : run_(all.run()), m_(run_.shared), rank_(rank), aborted_(aborted), out_(m_.ranks()) {}

std::uint32_t turns::draw(std::uint32_t n) {
    // SplitMix64.
    std::uint64_t x = m_.head().random += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return static_cast<std::uint32_t>((x ^ x >> 31) >> 32) % n;
}

// --- Turns ----------------------------------------------------------------------------------------------------------

// ORDER: whoever gives the turn stores the word with release, and who gets it loads it with acquire; so all that is in
// the checker's memory, and all that ranks do in theirs, has one order.
void turns::give(const choice& next) {
    std::uint32_t* const turn = &m_.rank(next.rank).turn;
    atomic(turn).store(static_cast<std::uint32_t>(next.assigned), std::memory_order_release);
    wake_sleepers(turn);
}

bool turns::pass(bool has_turn) {
    for (;;) {
        if (load_relaxed(aborted_) != 0) return false;
        if (has_turn) {
            const choice next = choose();
            if (next.rank == none) {
                run_.found.standstill();
                if (run_.found.end_run) run_.found.end_run(); // there is no way on in any mode
                return false;
            }
            if (next.rank != rank_) {
                give(next);
                has_turn = false;
                continue;
            }
            if (next.assigned == job::run) return true;
            deliver();
            if (release()) return true;
            continue;
        }
        const auto assigned = static_cast<job>(atomic(&own().turn).load(std::memory_order_acquire));
        if (assigned == job::rest) {
            sleep_on(&own().turn, 0u, nap_ns);
            continue;
        }
        store_relaxed(&own().turn, static_cast<std::uint32_t>(job::rest));
        if (assigned == job::run) return true;
        deliver();
        if (release()) return true;
        has_turn = true;
    }
}

bool turns::can_run(std::uint32_t r) const {
    const rank_record& rank = m_.rank(r);
    switch (rank.status) {
    case rank_status::ready:
        return true;
    case rank_status::waiting:
        for (std::uint32_t tag = rank.tag; tag < rank.tag + rank.tags; ++tag)
            if (m_.arrived(r, tag).count >= rank.count) return true;
        return false;
    case rank_status::collective:
        return rank.released != 0;
    case rank_status::absent:
    case rank_status::finished:
        break;
    }
    return false;
}

turns::choice turns::choose() {
    header& head = m_.head();
    // For a while some ranks are fast and others slow, and so are the ways of what they send.
    if (head.steps++ % steps_of_a_temper == 0)
        for (std::uint32_t r = 0; r < m_.ranks(); ++r) {
            m_.rank(r).weight = 1u << draw(8);
            m_.rank(r).delivery_weight = 1u << draw(8);
        }
    const auto tests_without_success = [&](const rank_record& rank) {
        return rank.status == rank_status::ready && rank.unsuccessful_tests != 0 &&
               rank.unsuccessful_at == head.progress;
    };
    std::uint32_t sum = 0;
    bool hope = false; // that something happens
    const auto each = [&](const auto& visit) {
        for (std::uint32_t r = 0; r < m_.ranks(); ++r) {
            const rank_record& rank = m_.rank(r);
            if (can_run(r) && visit(choice{r, job::run}, tests_without_success(rank) ? 1 : rank.weight)) return;
            if (rank.undelivered != 0 && visit(choice{r, job::deliver}, rank.delivery_weight)) return;
        }
    };
    each([&](const choice& one, std::uint32_t weight) {
        sum += weight;
        const rank_record& rank = m_.rank(one.rank);
        hope = hope || one.assigned == job::deliver || !tests_without_success(rank) ||
               rank.unsuccessful_tests < most_unsuccessful_tests;
        return false;
    });
    if (sum == 0 || !hope) return {none, job::rest};
    std::uint32_t left = draw(sum);
    choice chosen{none, job::rest};
    each([&](const choice& one, std::uint32_t weight) {
        chosen = one;
        if (left < weight) return true;
        left -= weight;
        return false;
    });
    return chosen;
}

bool turns::begin() {
    own().status = rank_status::ready;
    const std::uint32_t before = atomic(&m_.head().entered).fetch_add(1, std::memory_order_acq_rel);
    return pass(before + 1 == m_.ranks());
}

bool turns::next() { return pass(true); }

bool turns::to_native() {
    if (release()) return true;
    return pass(true);
}

bool turns::from_native() {
    own().status = rank_status::ready;
    const std::uint32_t before = atomic(&m_.head().in_native).fetch_sub(1, std::memory_order_acq_rel);
    return pass(before == 1);
}

void turns::end() { own().status = rank_status::finished; }

// If this rank is in a collective operation that all have entered, and for a barrier all has arrived that they have
// sent: they may go on. True if they go on at once, all together, in the library's own part.
bool turns::release() {
    const rank_record& self = own();
    if (self.status != rank_status::collective || self.released != 0) return false;
    const auto kind = static_cast<operation>(self.kind);
    std::vector<std::uint32_t> there;
    for (std::uint32_t r = 0; r < m_.ranks(); ++r) {
        const rank_record& rank = m_.rank(r);
        if (rank.status != rank_status::collective || rank.released != 0 || !is_same_call(rank, self)) continue;
        if (is_barrier(kind) && rank.undelivered != 0) return false;
        there.push_back(r);
    }
    if (there.size() != self.members) return false;
    if (orders(kind)) run_.happened.join(there);
    if (is_barrier(kind)) run_.happened.settle(there);
    for (const std::uint32_t r : there) m_.rank(r).released = 1;
    ++m_.head().progress;
    if (!has_native_part(kind)) return false;
    if (kind == operation::create_window) {
        const std::uint32_t made = m_.head().windows;
        if (made == most_windows) {
            run_.found.out_of("windows created in one run", most_windows);
        } else {
            window_record& window = m_.window(m_.head().windows++);
            window = {none, self.site, none, {}};
            for (std::uint32_t r = 0; r < m_.ranks(); ++r) window.parts[r] = {};
        }
        for (const std::uint32_t r : there) m_.rank(r).window = made;
    }
    if (kind == operation::free_window && self.argument != none) {
        m_.window(self.argument).freed = self.site;
        for (std::uint32_t id = m_.head().put_floor; id != m_.head().put_next; ++id) {
            const put_record& put = m_.put(id);
            if (put.window == self.argument && !run_.happened.has_arrived(put, m_.clock(rank_)))
                run_.found.put_into_freed(put, self.site);
        }
    }
    if (kind == operation::finish && at_end) at_end();
    atomic(&m_.head().in_native).store(self.members, std::memory_order_relaxed);
    for (const std::uint32_t r : there)
        if (r != rank_) give({r, job::run});
    return true;
}

// --- Messages -------------------------------------------------------------------------------------------------------

void turns::send(std::uint32_t target, message&& outgoing) {
    if (outgoing.bytes != 0 && draw(2) == 0) read(outgoing); // the buffer is read now; or when it arrives
    out_[target].push_back(std::move(outgoing));
    ++own().undelivered;
}

void turns::read(message& outgoing) {
    if (outgoing.is_read || outgoing.bytes == 0) return;
    outgoing.copy.assign(outgoing.source, outgoing.source + outgoing.bytes);
    outgoing.is_read = true;
}

// One message of this rank arrives: the oldest for some target.
void turns::deliver() {
    std::uint32_t targets = 0;
    for (const auto& queue : out_) targets += queue.empty() ? 0 : 1;
    std::uint32_t left = draw(targets);
    for (std::uint32_t target = 0; target < out_.size(); ++target)
        if (!out_[target].empty() && left-- == 0) return deliver_to(target);
}

void turns::deliver_to(std::uint32_t target) {
    message& oldest = out_[target].front();
    if (oldest.bytes != 0)
        std::memcpy(oldest.target, oldest.is_read ? oldest.copy.data() : oldest.source, oldest.bytes);
    if (oldest.notice != none) run_.happened.arrive(target, oldest.tag, oldest.notice);
    out_[target].pop_front();
    --own().undelivered;
}

void turns::flush(std::uint32_t window) {
    for (std::uint32_t target = 0; target < out_.size(); ++target) {
        auto& queue = out_[target];
        std::size_t arriving = 0; // they keep their order
        for (std::size_t i = 0; i < queue.size(); ++i)
            if (queue[i].window == window && queue[i].notice == none) arriving = i + 1;
        for (; arriving != 0; --arriving) deliver_to(target);
        for (message& each : queue)
            if (each.window == window) read(each);
    }
}

} // namespace dcuda::detail::check
