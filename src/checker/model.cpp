// SPDX-License-Identifier: BSD-3-Clause
#include "checker/model.hpp"

#include <algorithm>
#include <bit>

#include "dcuda/detail/protocol/protocol.hpp"

namespace dcuda::detail::check {

namespace {

// The bytes [begin, end) of a granule.
std::uint8_t mask_of(unsigned begin, unsigned end) {
    return static_cast<std::uint8_t>((0xffu << begin & 0xffu) & (0xffu >> (8 - end)));
}

// How many bytes the first run of bytes has.
unsigned run_of(std::uint8_t mask) {
    return static_cast<unsigned>(std::countr_one(static_cast<std::uint8_t>(mask >> std::countr_zero(mask))));
}

bool conflicts(access_kind a, access_kind b) { return a != b || a == access_kind::store; }

bool is_put(access_kind kind) { return kind == access_kind::put_write || kind == access_kind::put_read; }

} // namespace

// --- Puts
// --------------------------------------------------------------------------------------------------------------

bool model::has_arrived(const put_record& put, const std::uint32_t* clock) const {
    return (put.seen != 0 && clock[put.target] >= put.seen) || (put.complete != 0 && clock[put.source] >= put.complete);
}

bool model::has_read(const put_record& put, const std::uint32_t* clock) const {
    return (put.read != 0 && clock[put.source] >= put.read) || has_arrived(put, clock);
}

bool model::known_to_all(const put_record& put) const {
    if (put.listed != 0) return false;
    for (std::uint32_t r = 0; r < m_.ranks(); ++r)
        if (!has_arrived(put, m_.clock(r))) return false;
    return true;
}

// What all ranks know to be complete is ordered before all that they will ever do: nobody needs its record any more.
void model::forget() {
    header& head = m_.head();
    for (int most = 4; most > 0 && head.put_floor != head.put_next && known_to_all(m_.put(head.put_floor)); --most)
        ++head.put_floor;
}

std::uint32_t model::next_position(std::uint32_t source, std::uint32_t target) {
    return ++m_.channel(source, target).sent;
}

put_record* model::issue(const put_record& record) {
    header& head = m_.head();
    rank_record& source = m_.rank(record.source);
    // Buffers that the rank knows to be free by now.
    while (source.unseen != none && has_read(m_.put(source.unseen), m_.clock(record.source))) {
        put_record& free = m_.put(source.unseen);
        source.unseen = free.next_read;
        --free.listed;
    }
    forget();
    if (head.put_next - head.put_floor >= most_puts) {
        tells_.out_of("puts under way of which not all ranks know that they are complete", most_puts);
        return nullptr;
    }
    const std::uint32_t id = head.put_next++;
    put_record& put = m_.put(id);
    put = record;
    put.id = id;
    put.releasing_tag = none;
    put.seen = put.complete = put.read = 0;
    put.next_there = put.next_read = none;
    put.listed = 2;
    check::channel& sent_on = m_.channel(put.source, put.target);
    (sent_on.first == none ? sent_on.first : m_.put(sent_on.last).next_there) = id;
    sent_on.last = id;
    (source.unseen == none ? source.unseen : m_.put(source.unseen_last).next_read) = id;
    source.unseen_last = id;
    read_source(put);
    write_target(put);
    return &put;
}

void model::read_source(const put_record& put) {
    if (put.buffer == no_buffer) return;
    const std::uint32_t* const clock = m_.clock(put.source);
    bool told = false;
    each_granule(put.buffer, put.bytes, true, [&](std::uint32_t& list, std::uint8_t mask, address granule) {
        sift(list, mask, [&](const access& earlier) {
            if (!is_put(earlier.kind)) return true;
            const put_record& other = m_.put(earlier.origin);
            // Two puts of one rank to another arrive in order: who knows that the later has read knows it of the
            // earlier.
            if (earlier.kind == access_kind::put_read)
                return other.source != put.source || (other.target != put.target && !has_read(other, clock));
            if (!told && !has_arrived(other, clock)) {
                told = true;
                conflict(other, granule, mask & earlier.mask, put.source, access_kind::put_read, put.id);
            }
            return true;
        });
        add(list, {none, mask, access_kind::put_read, put.source, 0, put.id});
    });
}

void model::write_target(const put_record& put) {
    const std::uint32_t* const clock = m_.clock(put.source);
    bool told = false;
    each_granule(put.place, put.bytes, true, [&](std::uint32_t& list, std::uint8_t mask, address granule) {
        sift(list, mask, [&](const access& earlier) {
            const auto both = static_cast<std::uint8_t>(mask & earlier.mask);
            if (!is_put(earlier.kind)) {
                if (clock[earlier.rank] >= earlier.epoch) return false;
                const unsigned from = static_cast<unsigned>(std::countr_zero(both));
                if (!told)
                    tells_.conflict_of_put(put, granule + from, run_of(both), earlier.rank, earlier.kind,
                                           earlier.origin);
                return told = true;
            }
            const put_record& other = m_.put(earlier.origin);
            if (other.id == put.id) return true; // it reads there, too
            // Two puts of one rank to another arrive in order.
            const bool in_order = other.source == put.source && other.target == put.target;
            if (in_order ||
                (earlier.kind == access_kind::put_write ? has_arrived(other, clock) : has_read(other, clock)))
                return false;
            if (!told) conflict(other, granule, both, put.source, access_kind::put_write, put.id);
            return told = true;
        });
        add(list, {none, mask, access_kind::put_write, put.source, 0, put.id});
    });
}

void model::complete_puts(std::uint32_t rank) {
    const std::uint32_t epoch = ++m_.clock(rank)[rank];
    for (std::uint32_t target = 0; target < m_.ranks(); ++target)
        for (std::uint32_t id = m_.channel(rank, target).first; id != none; id = m_.put(id).next_there)
            if (m_.put(id).complete == 0) m_.put(id).complete = m_.put(id).read = epoch;
    rank_record& self = m_.rank(rank);
    for (; self.unseen != none; self.unseen = m_.put(self.unseen).next_read) {
        put_record& put = m_.put(self.unseen);
        put.read = epoch;
        if (put.complete == 0) put.complete = epoch;
        --put.listed;
    }
}

void model::settle(const std::vector<std::uint32_t>& ranks) {
    for (const std::uint32_t source : ranks)
        for (const std::uint32_t target : ranks)
            for (std::uint32_t& id = m_.channel(source, target).first; id != none; id = m_.put(id).next_there)
                --m_.put(id).listed;
}

void model::flush(std::uint32_t rank, std::uint32_t window) {
    const std::uint32_t epoch = ++m_.clock(rank)[rank];
    rank_record& self = m_.rank(rank);
    std::uint32_t next = none, *link = &self.unseen;
    std::uint32_t last = none;
    for (std::uint32_t id = self.unseen; id != none; id = next) {
        put_record& put = m_.put(id);
        next = put.next_read;
        if (put.window != window) {
            link = &put.next_read;
            last = id;
            continue;
        }
        put.read = epoch;
        if (put.tag == no_tag) put.complete = epoch;
        --put.listed;
        *link = next;
    }
    self.unseen_last = last;
}

void model::join(const std::vector<std::uint32_t>& ranks) {
    std::uint32_t* const all = m_.clock(ranks[0]);
    for (const std::uint32_t r : ranks)
        for (std::uint32_t k = 0; k < m_.ranks(); ++k) all[k] = std::max(all[k], m_.clock(r)[k]);
    for (const std::uint32_t r : ranks)
        if (r != ranks[0]) std::copy_n(all, m_.ranks(), m_.clock(r));
    for (const std::uint32_t r : ranks) ++m_.clock(r)[r];
}

// --- Notifications
// -----------------------------------------------------------------------------------------------------

std::uint32_t model::make_notice(std::uint32_t source, std::uint32_t target, std::uint32_t tag, std::uint32_t site,
                                 operation kind) {
    header& head = m_.head();
    std::uint32_t index = head.free_notice;
    if (index != none) {
        head.free_notice = m_.notice(index).next;
    } else if (head.notices_used < most_notices) {
        index = head.notices_used++;
    } else {
        tells_.out_of("notifications that nobody has waited for", most_notices);
        return none;
    }
    notice& made = m_.notice(index);
    const check::channel& sent_on = m_.channel(source, target);
    made.next = none;
    made.source = source;
    made.position = sent_on.sent;
    made.site = site;
    made.kind = kind;
    if (kind == operation::notify_relaxed) return index; // tells nothing of what its source did before
    std::copy_n(m_.clock(source), m_.ranks(), made.clock);
    ++m_.clock(source)[source]; // what comes later is not part of what it tells
    for (std::uint32_t id = sent_on.first; id != none; id = m_.put(id).next_there)
        if (m_.put(id).releasing_tag == none) m_.put(id).releasing_tag = tag;
    return index;
}

void model::arrive(std::uint32_t target, std::uint32_t tag, std::uint32_t index) {
    notice_queue& queue = m_.arrived(target, tag);
    (queue.count == 0 ? queue.first : m_.notice(queue.last).next) = index;
    queue.last = index;
    ++queue.count;
    ++m_.head().progress;
}

// The rank learns from a notification that orders what its source knew, and that all that it had sent has arrived.
void model::learn_from(const notice& taken, std::uint32_t rank, std::uint32_t epoch) {
    std::uint32_t* const clock = m_.clock(rank);
    for (std::uint32_t k = 0; k < m_.ranks(); ++k) clock[k] = std::max(clock[k], taken.clock[k]);
    check::channel& from = m_.channel(taken.source, rank);
    while (from.first != none && static_cast<std::int32_t>(m_.put(from.first).position - taken.position) <= 0) {
        put_record& put = m_.put(from.first);
        put.seen = epoch;
        --put.listed;
        from.first = put.next_there;
    }
}

void model::consume(std::uint32_t rank, std::uint32_t tag, std::uint32_t count) {
    const std::uint32_t epoch = ++m_.clock(rank)[rank];
    notice_queue& queue = m_.arrived(rank, tag);
    for (; count != 0; --count) {
        const std::uint32_t index = queue.first;
        notice& taken = m_.notice(index);
        if (taken.kind != operation::notify_relaxed) learn_from(taken, rank, epoch);
        queue.first = taken.next;
        --queue.count;
        taken.next = m_.head().free_notice;
        m_.head().free_notice = index;
        ++m_.head().progress;
    }
}

// --- Memory
// ------------------------------------------------------------------------------------------------------------

std::uint32_t* model::find_page(std::uint64_t page) const {
    const std::uint64_t key = page + 1;
    for (std::uint64_t slot = key * 0x9e3779b97f4a7c15u >> 20;; ++slot) {
        const page_slot& found = m_.page(static_cast<std::uint32_t>(slot % memory::page_slots));
        if (found.key == key) return m_.lists(found.lists);
        if (found.key == 0) return nullptr;
    }
}

std::uint32_t* model::make_page(std::uint64_t page) {
    if (std::uint32_t* known = find_page(page)) return known;
    header& head = m_.head();
    if (head.pages_used == most_pages) {
        tells_.out_of("pages of 4 KiB of windows and of buffers of puts", most_pages);
        return nullptr;
    }
    const std::uint64_t key = page + 1;
    std::uint64_t slot = key * 0x9e3779b97f4a7c15u >> 20;
    while (m_.page(static_cast<std::uint32_t>(slot % memory::page_slots)).key != 0) ++slot;
    page_slot& made = m_.page(static_cast<std::uint32_t>(slot % memory::page_slots));
    made = {key, head.pages_used++ * granules};
    std::fill_n(m_.lists(made.lists), granules, none);
    return m_.lists(made.lists);
}

void model::track(address begin, std::uint64_t bytes) {
    if (bytes == 0) return;
    for (std::uint64_t page = begin / page_bytes; page <= (begin + bytes - 1) / page_bytes; ++page)
        if (make_page(page) == nullptr) return;
}

// f(list, mask, address) for the granules of these bytes on pages that are tracked; or on all, if they are to be made.
template <class F>
void model::each_granule(address begin, std::uint64_t bytes, bool make, const F& f) {
    const address end = begin + bytes;
    for (address at = begin; at < end;) {
        const address page_end = (at / page_bytes + 1) * page_bytes, stop = std::min(end, page_end);
        std::uint32_t* const lists = make ? make_page(at / page_bytes) : find_page(at / page_bytes);
        if (lists == nullptr) {
            at = stop;
            continue;
        }
        while (at < stop) {
            const address granule = at / granule_bytes * granule_bytes, next = std::min(granule + granule_bytes, stop);
            f(lists[granule % page_bytes / granule_bytes],
              mask_of(static_cast<unsigned>(at - granule), static_cast<unsigned>(next - granule)), granule);
            at = next;
        }
    }
}

// Goes through what was done to any of these bytes. What keep() says no to does not count for them any more; nor do
// puts that everybody knows to be complete.
template <class Keep>
void model::sift(std::uint32_t& list, std::uint8_t mask, const Keep& keep) {
    for (std::uint32_t* link = &list; *link != none;) {
        access& entry = m_.access(*link);
        const bool forgotten = is_put(entry.kind) && static_cast<std::int32_t>(entry.origin - m_.head().put_floor) < 0;
        if (forgotten)
            entry.mask = 0;
        else if ((entry.mask & mask) != 0 && !keep(entry))
            entry.mask &= static_cast<std::uint8_t>(~mask);
        if (entry.mask != 0) {
            link = &entry.next;
            continue;
        }
        const std::uint32_t index = *link;
        *link = entry.next;
        entry.next = m_.head().free_access;
        m_.head().free_access = index;
    }
}

void model::add(std::uint32_t& list, const access& added) {
    header& head = m_.head();
    std::uint32_t index = head.free_access;
    if (index != none)
        head.free_access = m_.access(index).next;
    else if (head.accesses_used < most_accesses)
        index = head.accesses_used++;
    else
        return tells_.out_of("accesses to windows", most_accesses);
    m_.access(index) = added;
    m_.access(index).next = list;
    list = index;
}

void model::synchronize(std::uint32_t rank, std::uint32_t* others) {
    std::uint32_t* const clock = m_.clock(rank);
    for (std::uint32_t k = 0; k < m_.ranks(); ++k) others[k] = clock[k] = std::max(clock[k], others[k]);
    ++clock[rank];
}

void model::load_or_store(std::uint32_t rank, address at, std::size_t bytes, access_kind kind, std::uint32_t site,
                          bool by_operation) {
    const std::uint32_t* const clock = m_.clock(rank);
    const std::uint32_t epoch = clock[rank];
    bool told = false;
    each_granule(at, bytes, false, [&](std::uint32_t& list, std::uint8_t mask, address granule) {
        bool known = false;
        sift(list, mask, [&](const access& earlier) {
            if (!is_put(earlier.kind)) {
                if (earlier.rank == rank && earlier.epoch == epoch && (earlier.mask & mask) == mask &&
                    (earlier.kind == kind || kind == access_kind::load))
                    return known = true;
                const bool ordered = clock[earlier.rank] >= earlier.epoch;
                if (!ordered && !told && conflicts(earlier.kind, kind)) {
                    told = true;
                    const auto both = static_cast<std::uint8_t>(mask & earlier.mask);
                    const auto from = static_cast<unsigned>(std::countr_zero(both));
                    tells_.conflict_of_accesses(earlier, granule + from, run_of(both), rank, kind, site);
                }
                // What this access comes after need not be remembered, unless a store is followed by a load only.
                return !ordered || (earlier.kind != access_kind::load && kind == access_kind::load);
            }
            const put_record& put = m_.put(earlier.origin);
            if (by_operation && put.source == rank && earlier.kind == access_kind::put_write) return true;
            const bool ordered = earlier.kind == access_kind::put_write
                                     ? has_arrived(put, clock)
                                     : kind == access_kind::load || has_read(put, clock);
            if (!ordered && !told) {
                told = true;
                conflict(put, granule, mask & earlier.mask, rank, kind, site);
            }
            return true;
        });
        if (!known) add(list, {none, mask, kind, static_cast<std::uint16_t>(rank), epoch, site});
    });
}

void model::conflict(const put_record& earlier, address granule, std::uint8_t mask, std::uint32_t rank,
                     access_kind kind, std::uint32_t origin) {
    const auto from = static_cast<unsigned>(std::countr_zero(mask));
    tells_.conflict_with_put(earlier, granule + from, run_of(mask), rank, kind, origin);
}

} // namespace dcuda::detail::check
