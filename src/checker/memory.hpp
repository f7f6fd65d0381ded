// SPDX-License-Identifier: BSD-3-Clause
// What the protocol checker keeps in memory that all processes of a job map. Whoever has the turn (schedule.hpp), and
// nobody else, reads and writes it, so nothing in it is locked or atomic unless it says so. No pointers: every process
// maps it somewhere else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "dcuda/detail/protocol/protocol.hpp"

namespace dcuda::detail::check {

inline constexpr std::uint32_t none = UINT32_MAX;

inline constexpr std::uint32_t most_ranks = 128; // clocks are vectors: what a put costs grows with the ranks
inline constexpr std::uint32_t most_windows = 4096;
inline constexpr std::uint32_t most_puts = 1u << 20; // that not all ranks know to be complete
inline constexpr std::uint32_t most_notices = 1u << 16;
inline constexpr std::uint32_t most_pages = 1u << 18; // of tracked memory
inline constexpr std::uint32_t most_accesses = 1u << 25;
inline constexpr std::uint32_t atomic_clocks = 256;
inline constexpr std::uint32_t most_sites = 1u << 16;
inline constexpr std::uint32_t most_modules = 64;
inline constexpr std::uint32_t most_findings = 100;

inline constexpr std::uint32_t page_bytes = 4096, granule_bytes = 8, granules = page_bytes / granule_bytes;

// --- Where in the program ------------------------------------------------------------------------------------------

struct frame {
    std::uint64_t offset; // of the instruction in its module, as the module's file counts
    std::uint32_t module;
};
inline constexpr unsigned site_frames = 12;
// A place in the program, with its callers.
struct site {
    std::uint32_t count;
    frame frames[site_frames];
};
struct module_name {
    char path[512];
};

// --- Ranks -----------------------------------------------------------------------------------------------------------

enum class rank_status : std::uint32_t {
    absent, // not begun, or it has left
    ready,
    waiting,    // for notifications
    collective, // in a collective operation
    finished,
};

// What the thread of a rank is woken for.
enum class job : std::uint32_t { rest, run, deliver };

struct alignas(64) rank_record {
    std::uint32_t turn; // a `job`. writers: whoever has the turn, then the rank's thread; atomic
    std::uint32_t process;
    rank_status status;
    std::uint32_t where;                        // the last operation: an `operation`,
    std::uint32_t site;                         // and its place
    std::uint32_t tag, count, tags;             // what it waits or tests for: so many with any of these tags
    std::uint32_t kind, communicator, argument; // of the collective operation; the window's number if there is one
    std::uint32_t first_member, members;        // of the communicator: a world rank, and how many there are
    std::uint32_t released;                     // 1: the collective operation is complete
    std::uint32_t undelivered;                  // puts and notifications that this rank has issued
    std::uint32_t unsuccessful_tests, unsuccessful_at; // in a row, since `progress` was this
    std::uint32_t weight, delivery_weight;             // how likely it is chosen
    std::uint32_t unseen, unseen_last;                 // its puts whose source may still be read: first and last
    std::uint32_t window;                              // that it has just created
};

// Whether two ranks that are in collective operations are in the same one.
inline bool is_same_call(const rank_record& a, const rank_record& b) {
    return a.kind == b.kind && a.communicator == b.communicator && a.argument == b.argument &&
           a.first_member == b.first_member;
}

// --- Puts and notifications ------------------------------------------------------------------------------------------

// Epochs are numbers of a rank's own clock; 0: that has not happened.
struct put_record {
    std::uint32_t id;
    std::uint16_t source, target; // world ranks
    std::uint32_t window;         // in the table
    std::uint32_t tag;            // wire tag, or no_tag
    std::uint32_t releasing_tag;  // tag of the first notification of its source to its target from then on; or none
    std::uint32_t site;
    std::uint32_t position;   // among what the source has sent to the target
    std::uint32_t seen;       // epoch of the target: it has consumed a notification that came after the put
    std::uint32_t complete;   // epoch of the source: it has flushed, or arrived at a barrier
    std::uint32_t read;       // epoch of the source: it has flushed, its buffer is free
    std::uint32_t next_there; // of the same source and target,
    std::uint32_t next_read;  // of the same source, whose buffer is not free yet
    std::uint32_t listed;     // in how many lists
    std::uint64_t offset, bytes;
    std::uint64_t place, buffer; // see `address`; no_buffer if the put has its own copy
};

// A notification that has arrived, with the clock of its source; that follows the record.
struct notice {
    std::uint32_t next;
    std::uint32_t source, position, site;
    operation kind; // by which it was sent
    std::uint32_t clock[1];
};
struct notice_queue {
    std::uint32_t first, last, count;
};
// From one rank to another.
struct channel {
    std::uint32_t sent;        // messages
    std::uint32_t first, last; // puts that the target has not seen
};

// --- Memory ----------------------------------------------------------------------------------------------------------

// An address that is the same in all processes: process, then whether it is private to it, then 47 bits: the offset in
// its device memory, or the address there.
using address = std::uint64_t;
inline constexpr address private_memory = address{1} << 47;
inline constexpr address no_buffer = address{1} << 63; // beyond all others

enum class access_kind : std::uint8_t { load, store, atomic, put_write, put_read };

// Who did something to some bytes of a granule. In a list per granule.
struct access {
    std::uint32_t next;
    std::uint8_t mask; // the bytes
    access_kind kind;
    std::uint16_t rank;
    std::uint32_t epoch;  // of load, store and atomic
    std::uint32_t origin; // load, store, atomic: the site; else the put's id
};
struct page_slot {
    std::uint64_t key;   // 1 + page number; 0: empty
    std::uint32_t lists; // of the first granule
};

struct window_part {
    address base;
    std::uint64_t bytes;
};
struct window_record {
    std::uint32_t number;         // as the program's errors call it
    std::uint32_t created, freed; // sites; freed is none while it exists
    window_part parts[1];         // [world rank]
};

// --- The whole ------------------------------------------------------------------------------------------------------

struct finding_text {
    char key[256]; // what and where: it is said once
    char text[4096];
};

struct header {
    std::uint64_t random;
    std::uint32_t ranks, processes, ranks_per_process;
    std::uint32_t entered;   // ranks that have begun; atomic
    std::uint32_t in_native; // ranks that still are in the library's own part of a collective operation; atomic
    std::uint32_t steps;     // choices so far
    std::uint32_t progress;  // changes whenever something happens that a rank may wait for
    std::uint32_t windows, put_floor, put_next;
    std::uint32_t notices_used, free_notice;
    std::uint32_t accesses_used, free_access;
    std::uint32_t pages_used, sites, modules;
    std::uint32_t findings, findings_left_out;
    std::uint32_t stop;                                  // 1: the first finding ends the run
    std::uint64_t puts, notifications, loads_and_stores; // for the summary
    struct {
        std::uint64_t base, bytes;
    } arenas[most_ranks]; // device memory of each process, as it addresses it
};

// The same as this process maps it.
class memory {
public:
    memory() = default;
    memory(std::byte* base, std::uint32_t ranks, const tag_numbers& tags) : ranks_(ranks), tags_(tags), base_(base) {
        layout();
    }

    // How much of it there is; most of it is never touched.
    static std::size_t bytes(std::uint32_t ranks, const tag_numbers& tags) { return memory(nullptr, ranks, tags).end_; }

    // To its state before a run.
    void clear() { std::memset(base_, 0, cleared_); }

    header& head() const { return at<header>(0); }
    rank_record& rank(std::uint32_t r) const { return at<rank_record>(rank_records_, r); }
    std::uint32_t* clock(std::uint32_t r) const { return &at<std::uint32_t>(clocks_, std::size_t(r) * ranks_); }
    // Of the atomic operations on an element. Some elements share one: ranks then seem to learn more than they do.
    std::uint32_t* atomic_clock(address element) const {
        const std::uint64_t slot = (element / 4 * 0x9e3779b97f4a7c15u >> 32) % atomic_clocks;
        return &at<std::uint32_t>(atomic_clocks_, slot * ranks_);
    }
    notice_queue& arrived(std::uint32_t r, std::uint32_t wire_tag) const {
        return at<notice_queue>(queues_, std::size_t(r) * tags_.wire_count() + wire_tag);
    }
    check::channel& channel(std::uint32_t source, std::uint32_t target) const {
        return at<check::channel>(channels_, std::size_t(source) * ranks_ + target);
    }
    window_record& window(std::uint32_t number) const {
        return *reinterpret_cast<window_record*>(base_ + windows_ + number * window_bytes_);
    }
    put_record& put(std::uint32_t id) const { return at<put_record>(puts_, id % most_puts); }
    check::notice& notice(std::uint32_t index) const {
        return *reinterpret_cast<check::notice*>(base_ + notices_ + index * notice_bytes_);
    }
    page_slot& page(std::uint32_t slot) const { return at<page_slot>(pages_, slot); }
    std::uint32_t* lists(std::uint32_t index) const { return &at<std::uint32_t>(lists_, index); }
    check::access& access(std::uint32_t index) const { return at<check::access>(accesses_, index); }
    check::site& site(std::uint32_t index) const { return at<check::site>(sites_, index); }
    module_name& module(std::uint32_t index) const { return at<module_name>(modules_, index); }
    finding_text& finding(std::uint32_t index) const { return at<finding_text>(findings_, index); }

    std::uint32_t ranks() const { return ranks_; }
    const tag_numbers& tags() const { return tags_; }
    static constexpr std::uint32_t page_slots = 2 * most_pages;

private:
    template <class T>
    T& at(std::size_t offset, std::size_t index = 0) const {
        return reinterpret_cast<T*>(base_ + offset)[index];
    }

    void layout() {
        const std::size_t n = ranks_;
        const auto take = [&](std::size_t bytes) {
            const std::size_t begin = end_;
            end_ = (end_ + bytes + 63) / 64 * 64;
            return begin;
        };
        take(sizeof(header));
        rank_records_ = take(n * sizeof(rank_record));
        clocks_ = take(n * n * sizeof(std::uint32_t));
        atomic_clocks_ = take(atomic_clocks * n * sizeof(std::uint32_t));
        queues_ = take(n * tags_.wire_count() * sizeof(notice_queue));
        channels_ = take(n * n * sizeof(check::channel));
        pages_ = take(page_slots * sizeof(page_slot));
        cleared_ = end_;
        window_bytes_ = sizeof(window_record) + n * sizeof(window_part);
        windows_ = take(most_windows * window_bytes_);
        puts_ = take(most_puts * sizeof(put_record));
        notice_bytes_ = (sizeof(check::notice) + n * sizeof(std::uint32_t) + 15) / 16 * 16;
        notices_ = take(most_notices * notice_bytes_);
        lists_ = take(std::size_t(most_pages) * granules * sizeof(std::uint32_t));
        accesses_ = take(std::size_t(most_accesses) * sizeof(check::access));
        sites_ = take(most_sites * sizeof(check::site));
        modules_ = take(most_modules * sizeof(module_name));
        findings_ = take(most_findings * sizeof(finding_text));
    }

    std::uint32_t ranks_ = 0;
    tag_numbers tags_{};
    std::byte* base_ = nullptr;
    std::size_t rank_records_ = 0, clocks_ = 0, atomic_clocks_ = 0, queues_ = 0, channels_ = 0, pages_ = 0,
                cleared_ = 0, window_bytes_ = 0, windows_ = 0, puts_ = 0, notice_bytes_ = 0, notices_ = 0, lists_ = 0,
                accesses_ = 0, sites_ = 0, modules_ = 0, findings_ = 0, end_ = 0;
};

} // namespace dcuda::detail::check
