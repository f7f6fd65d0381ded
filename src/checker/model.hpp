// SPDX-License-Identifier: BSD-3-Clause
// What happened before what: clocks of ranks, puts that may still be under way, and who last did what to each byte of
// windows and of source buffers. Whoever has the turn calls it. docs/design/checker.md has the argument.
#pragma once

#include <string>

#include "checker/memory.hpp"

namespace dcuda::detail::check {

// Who is told of what is wrong.
class observer {
public:
    virtual void conflict_with_put(const put_record& earlier, address at, unsigned bytes, std::uint32_t rank,
                                   access_kind kind, std::uint32_t origin) = 0;
    // `later` was issued while `earlier`, a load or a store of `rank` from `site`, was not ordered before it.
    virtual void conflict_of_put(const put_record& later, address at, unsigned bytes, std::uint32_t rank,
                                 access_kind kind, std::uint32_t site) = 0;
    // `earlier`, a load or a store of another rank, is not ordered before that of `rank` at `site`.
    virtual void conflict_of_accesses(const access& earlier, address at, unsigned bytes, std::uint32_t rank,
                                      access_kind kind, std::uint32_t site) = 0;
    virtual void out_of(const char* resource, std::size_t most) = 0;

protected:
    ~observer() = default;
};

class model {
public:
    model(const memory& shared, observer& tells) : m_(shared), tells_(tells) {}

    // --- Ranks

    std::uint32_t now(std::uint32_t rank) const { return m_.clock(rank)[rank]; }
    void start(std::uint32_t rank) { m_.clock(rank)[rank] = 1; }

    // All earlier puts of the rank are complete for whoever knows of its epoch from here on: it has come to a barrier.
    void complete_puts(std::uint32_t rank);
    // These ranks have met in a barrier: no notification has to tell them any more of puts to each other.
    void settle(const std::vector<std::uint32_t>& ranks);
    // The same for those on this window without a notification; of the others the buffers are free.
    void flush(std::uint32_t rank, std::uint32_t window);
    // All of these ranks know what any of them knows.
    void join(const std::vector<std::uint32_t>& ranks);

    // --- Puts and notifications

    // A put begins. The record's source, target, window, tag, site, offset, bytes, place and buffer are the caller's. A
    // put of which nothing has to be copied is none. Null if there is no room.
    put_record* issue(const put_record& record);
    // The number of the message that now leaves.
    std::uint32_t next_position(std::uint32_t source, std::uint32_t target);
    // A notification that leaves now, by an operation of this kind, not arrived yet; none if there is no room.
    std::uint32_t make_notice(std::uint32_t source, std::uint32_t target, std::uint32_t tag, std::uint32_t site,
                              operation kind);
    void arrive(std::uint32_t target, std::uint32_t tag, std::uint32_t notice);
    // The rank takes the oldest notifications with this tag; there are enough.
    void consume(std::uint32_t rank, std::uint32_t tag, std::uint32_t count);

    // --- Memory

    // From here on loads and stores there are of interest.
    void track(address begin, std::uint64_t bytes);
    // `by_operation`: of a get or an atomic operation, which come after the rank's own puts to the same target.
    void load_or_store(std::uint32_t rank, address at, std::size_t bytes, access_kind kind, std::uint32_t site,
                       bool by_operation = false);
    // An atomic operation of the program: it comes after those of other ranks on the same word, of which this is the
    // clock.
    void synchronize(std::uint32_t rank, std::uint32_t* others);
    // Whether anybody is interested in the page; the lists of its granules if so.
    std::uint32_t* find_page(std::uint64_t page) const;

    // Whether the put is known to be complete at its target, or to have read its buffer, by whoever knows this clock.
    bool has_arrived(const put_record& put, const std::uint32_t* clock) const;
    bool has_read(const put_record& put, const std::uint32_t* clock) const;

private:
    template <class F>
    void each_granule(address begin, std::uint64_t bytes, bool make, const F& f);
    template <class Keep>
    void sift(std::uint32_t& list, std::uint8_t mask, const Keep& keep);
    void add(std::uint32_t& list, const access& added);
    std::uint32_t* make_page(std::uint64_t page);
    bool is_forgotten(std::uint32_t put) const { return m_.head().put_floor - put - 1 < most_puts; }
    bool known_to_all(const put_record& put) const;
    void forget();
    void learn_from(const notice& taken, std::uint32_t rank, std::uint32_t epoch);
    void read_source(const put_record& put);
    void write_target(const put_record& put);
    void conflict(const put_record& earlier, address granule, std::uint8_t mask, std::uint32_t rank, access_kind kind,
                  std::uint32_t origin);

    memory m_;
    observer& tells_;
};

} // namespace dcuda::detail::check
