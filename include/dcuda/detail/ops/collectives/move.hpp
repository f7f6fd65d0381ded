// SPDX-License-Identifier: BSD-3-Clause
// Collective operations that move data and combine nothing: gather, all_gather, scatter, all_to_all, and those of them
// in which members have different amounts. They go through bounce buffers, a part of each piece in each step; but for
// small pieces of one size, which go in packets (pieces.hpp).
#pragma once

#include "dcuda/detail/ops/collectives/bounce.hpp"

namespace dcuda::detail {

// Such an operation, as a member has called it. Counts and displacements are in elements.
struct move_request {
    operation where;
    communicator comm;
    std::uint32_t root; // 0 where there is none
    std::uint32_t digest;
    std::byte* out;
    const std::byte* in;
    std::size_t count; // elements of a piece; where pieces differ those that this member brings, if it is one piece
    std::size_t element_bytes;
    // Of operations whose pieces differ. By the number of a member: how much comes from it (gather_v, all_gather_v) or
    // goes to it (all_to_all_v), and where that lies.
    bool differs = false;
    const std::size_t* counts = nullptr;
    const std::size_t* displacements = nullptr;
    const std::size_t* out_displacements = nullptr; // of all_to_all_v: where that from each member goes
    std::size_t* received = nullptr;                // of all_to_all_v: how much has come from each

    // Whether this member knows all counts.
    DCUDA_DEVICE bool has_counts(std::uint32_t own) const {
        return differs && (where != operation::gather || own == root);
    }

    DCUDA_DEVICE std::size_t bytes() const { return count * element_bytes; }
    // Whether a member brings a piece for each other one, and not one for all.
    DCUDA_DEVICE bool brings_all() const { return where == operation::scatter || where == operation::all_to_all; }

    // What the member `own` sends the others: at most so many bytes of each piece, those from `first` on.
    DCUDA_DEVICE outgoing_pieces sent(std::uint32_t own, std::size_t first, std::size_t most) const {
        outgoing_pieces all{in, 0, most};
        all.first = first;
        all.end = bytes();
        if (where == operation::gather) all.only = root;
        if (brings_all()) {
            all.stride = bytes();
            all.end = SIZE_MAX;
            // What is sent ends with the piece.
            all.bytes = first >= bytes() ? 0 : bytes() - first < most ? bytes() - first : most;
            if (where == operation::scatter && own != root) all.end = 0;
        }
        if (where == operation::all_to_all && differs) {
            all.bytes = most;
            all.counts = counts;
            all.displacements = displacements;
            all.element_bytes = element_bytes;
        }
        return all;
    }
    // What this member brings for a member: itself, or one that gets something of it.
    DCUDA_DEVICE piece brought_for(std::uint32_t number) const {
        if (where == operation::all_to_all && differs)
            return {in + displacements[number] * element_bytes, counts[number] * element_bytes};
        return {in + (brings_all() ? number * bytes() : 0), bytes()};
    }
    // Where what the member `own` gets from another goes; null: it gets nothing.
    DCUDA_DEVICE std::byte* target(std::uint32_t own, std::uint32_t number) const {
        switch (where) {
        case operation::gather:
            if (own != root) return nullptr;
            break;
        case operation::scatter:
            return number == root ? out : nullptr;
        case operation::all_to_all:
            if (differs) return out + out_displacements[number] * element_bytes;
            break;
        default:
            break;
        }
        return out + (differs ? displacements[number] * element_bytes : number * bytes());
    }
};

// Where pieces differ the number of elements stands at the end of a place.
DCUDA_DEVICE std::size_t part_bytes(const move_request& request, const bounce_exchange& by) {
    if (!request.differs) return by.place_bytes;
    return by.place_bytes >= 32 ? by.place_bytes - 16 : sizeof(std::size_t);
}

// How many bytes of a piece a step takes at most, from `first` on. PERF: where that is little, many threads have a
// piece each: all_gather of 8 B by 264 ranks took 119 us with a warp for each (H200, 2026-11-26). `largest`: of all
// pieces.
DCUDA_DEVICE std::size_t most_in_step(const move_request& request, const bounce_exchange& by, std::size_t first,
                                      std::size_t largest) {
    const std::size_t room = part_bytes(request, by), left = largest > first ? largest - first : 0;
    return left < room ? left : room;
}

// The largest piece that this rank knows of. The lead warp.
DCUDA_DEVICE std::uint64_t largest_piece(const lead_warp& warp, const move_request& request, std::uint32_t own,
                                         std::uint32_t members) {
    std::uint64_t largest = request.bytes();
    if (!request.has_counts(own)) return largest;
    for (std::uint32_t number = warp.index; number < members; number += warp.count) {
        const std::uint64_t bytes = request.counts[number] * request.element_bytes;
        largest = bytes > largest ? bytes : largest;
    }
    std::uint64_t result = 0;
    for (unsigned thread = 0; thread < warp.count; ++thread) {
        const std::uint64_t other = broadcast(warp, static_cast<std::uint32_t>(largest), thread) |
                                    std::uint64_t(broadcast(warp, static_cast<std::uint32_t>(largest >> 32), thread))
                                        << 32;
        result = other > result ? other : result;
    }
    return result;
}

// Stores the part of each piece that begins at `first`. All threads of the rank.
DCUDA_DEVICE void store_parts(rank_state& state, const move_request& request, const bounce_exchange& by,
                              std::size_t first, std::size_t most) {
    exec::far(store_pieces)(state, by, request.sent(by.place, first, most), 0);
    if (!request.differs) return;
    outgoing_pieces sizes{reinterpret_cast<const std::byte*>(&request.count), 0, sizeof(std::size_t)};
    if (request.where == operation::gather) sizes.only = request.root;
    if (request.where == operation::all_to_all) {
        sizes.base = reinterpret_cast<const std::byte*>(request.counts);
        sizes.stride = sizeof(std::size_t);
    }
    exec::far(store_pieces)(state, by, sizes, by.place_bytes - sizeof(std::size_t));
}

// How many elements a member has sent to this rank in all, as it says in the step before.
DCUDA_DEVICE std::size_t sent_count(const move_request& request, const bounce_exchange& by, const std::byte* places,
                                    std::uint32_t number) {
    if (number == by.place) return request.brought_for(by.place).bytes / request.element_bytes;
    if (!request.differs) return request.count;
    return *reinterpret_cast<const std::size_t*>(places + (number + 1) * by.place_bytes - sizeof(std::size_t));
}

// Whether all members have sent as much as this rank has room for; else the run ends. The lead warp.
DCUDA_COLD bool check_sizes(lead_warp warp, shared_state shared, const move_request& request,
                            const bounce_exchange& by) {
    rank_state& state = shared.get();
    const std::byte* const places = bounce_places(state, state.world_rank, by.step - 1);
    bool is_right = true;
    for (std::uint32_t begin = 0; begin < by.members; begin += warp.count) {
        const std::uint32_t number = begin + warp.index;
        const bool expects = number < by.members && request.target(by.place, number) != nullptr;
        const bool is_wrong = expects && sent_count(request, by, places, number) != request.counts[number];
        const unsigned wrong = vote(warp, is_wrong);
        if (wrong == 0) continue;
        is_right = false;
        const std::uint32_t shown = begin + lowest(wrong);
        if (warp.leads())
            report_fault(exec::lead_access::alone(), state, fault::other_count, request.where,
                         static_cast<std::uint32_t>(request.comm), shown, sent_count(request, by, places, shown), 0,
                         request.counts[shown]);
        break;
    }
    return is_right;
}

// Takes what has come in the step before: the parts of pieces that begin at `first`. All threads of the rank.
DCUDA_COLD void take_parts(shared_state shared, const move_request& request, const bounce_exchange& by,
                           std::size_t first, std::size_t most) {
    rank_state& state = shared.get();
    const std::byte* const places = bounce_places(state, state.world_rank, by.step - 1);
    const piece_team team(state.group(), most);
    if (!team.works()) return;
    DCUDA_NO_UNROLL
    for (std::uint32_t number = team.number; number < by.members; number += team.teams) {
        const std::size_t count = sent_count(request, by, places, number), bytes = count * request.element_bytes;
        if (request.received != nullptr && first == 0 && team.leads()) request.received[number] = count;
        std::byte* const target = request.target(by.place, number);
        if (target == nullptr || bytes <= first) continue;
        // What this rank keeps for itself comes at once.
        const bool is_own = number == by.place;
        if (is_own && first != 0) continue;
        const std::size_t part = is_own || bytes - first < most ? bytes - first : most;
        exec::copy_bytes(team, target + first,
                         is_own ? request.brought_for(by.place).source : places + number * by.place_bytes, part);
    }
}

// All threads of the rank, all members.
DCUDA_COLD void move_data(shared_state shared, const move_request& request) {
    rank_state& state = shared.get();
    const exchange_request begin{request.where, request.comm, request.digest, false, 1, request.root};
    std::uint64_t largest = 0;
    bounce_exchange by = begin_bounce(
        state, sizeof(std::size_t), begin, place_order::numbers,
        [&](const lead_warp& warp) {
            const communicator_record* const comm = find_communicator(state, request.comm);
            return comm == nullptr ? 0 : largest_piece(warp, request, comm->number, comm->size);
        },
        largest);
    // With pieces that differ once at least: members learn the sizes.
    for (std::size_t first = 0; first < largest || (first == 0 && request.differs); first += part_bytes(request, by)) {
        const std::size_t most = most_in_step(request, by, first, largest);
        store_parts(state, request, by, first, most);
        end_step(state, by);
        if (request.differs && request.where != operation::all_to_all && first == 0)
            leave(exec::decide(state.group(), state.decision, [&](const lead_warp& warp) {
                return exec::far(check_sizes)(warp, state, request, by) ? 1u : 0u;
            }));
        exec::far(take_parts)(state, request, by, first, most);
    }
    state.group().sync(); // all threads read all of it
}

} // namespace dcuda::detail
