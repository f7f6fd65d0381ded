// SPDX-License-Identifier: BSD-3-Clause
// Who waits for what, and for whom: the table that the hang report and dcuda-top show, and what it comes down to.
#pragma once

#include "dcuda/detail/protocol/protocol.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace dcuda {

// How many ranks each device has, and each block of its kernel.
struct rank_counts {
    std::uint32_t of_device, of_block;
    rank_counts(std::uint32_t per_device, std::uint32_t per_block = 1) : of_device(per_device), of_block(per_block) {}
};

// "rank 17 (process 2, block 1)", "rank 17 (process 2, part 1 of block 0)"
std::string name_rank(std::uint32_t world_rank, rank_counts ranks);

// "1, 3-7, ..."; at most so many parts.
std::string list_ranks(const std::vector<std::uint32_t>& ranks, std::size_t most_parts);

class hang_report {
public:
    // What ranks wait for, from a world rank on.
    using part = std::pair<std::uint32_t, std::vector<detail::wait_record>>;

    // A system of so many ranks, and what is known of it.
    hang_report(std::uint32_t world_size, rank_counts counts, const std::vector<part>& known);

    enum class state { unknown, running, waiting, done };
    state state_of(std::uint32_t rank) const;
    const detail::wait_record& wait_of(std::uint32_t rank) const { return waits_[rank]; }

    // "wait_notifications(tag 7, count 1): 0 arrived, last sent by rank 1", without how long.
    std::string describe(std::uint32_t rank) const { return describe(rank, true); }

    // Ranks whose action this one waits for, as far as they are known here. For notifications that is a guess: who sent
    // the last one with this tag.
    const std::vector<std::uint32_t>& awaited_by(std::uint32_t rank) const;

    // All that is known, each line after a line break and two blanks: ranks that wait for the same thing share one, and
    // what few wait for comes first.
    std::string lines() const;

    // Who waits for these ranks, of which nothing is known: for certain, perhaps, and for those who do.
    struct dependants {
        std::vector<std::uint32_t> certain, possible, further;
    };
    dependants find_dependants(std::uint32_t first, std::uint32_t count) const;

    // What it comes down to, each line after a line break: a short cycle of waits; and, unless that is certain, where
    // chains of waits begin: at a rank that waits for one that is done or runs, or for nobody known. Only of ranks that
    // have waited for so long. Empty: nothing can be said.
    std::string conclusion(std::uint32_t least_age_ms = 0) const;

private:
    using ranks = std::vector<std::uint32_t>;
    // Where ranks meet: in a collective operation, on a device or in the world.
    struct meeting {
        detail::collective where;
        std::uint32_t group; // number of the device, or whole_world
        bool operator<(const meeting& other) const {
            return std::pair(where.index(), group) < std::pair(other.where.index(), other.group);
        }
    };
    static constexpr std::uint32_t whole_world = UINT32_MAX;

    // A node for each rank and, so that its size stays linear, one for each collective operation: whoever is in it
    // waits for that node, and that for all who are missing.
    struct graph {
        std::vector<ranks> next, before;
    };

    bool waits(std::uint32_t rank) const { return state_of(rank) == state::waiting; }
    detail::waiting wait_kind(std::uint32_t rank) const { return waits_[rank].kind; }
    bool asks_for_world(std::uint32_t rank) const; // whether it asks its host to open a window of the world
    bool has_arrived(std::uint32_t rank, const detail::collective& where) const;
    bool is_at_end(std::uint32_t rank) const;
    bool meets(std::uint32_t rank) const;
    meeting meeting_of(std::uint32_t rank) const;
    ranks find_missing(const meeting& at) const;
    std::string describe(std::uint32_t rank, bool with_partner) const;
    std::string describe_step(std::uint32_t from, std::uint32_t waited_for) const;
    std::string name_missing(std::uint32_t rank) const;
    template <class Predicate>
    graph build_graph(const Predicate& has_next) const;
    ranks find_cycle(std::uint32_t least_age_ms) const;
    std::string describe_cycle(const ranks& cycle) const;
    std::string describe_origins(std::uint32_t least_age_ms) const;
    std::size_t count_dependants(const ranks& on) const;

    rank_counts counts_;
    std::vector<detail::wait_record> waits_; // by world rank
    std::vector<bool> known_;
    std::vector<ranks> partners_;      // of waits that are no collective operation
    std::map<meeting, ranks> missing_; // of collective operations, and of create_window's replies
};

} // namespace dcuda
