// SPDX-License-Identifier: BSD-3-Clause
// Bounce buffers: what collective operations on much data pass it through. Each rank has one, in memory that all
// members reach. An operation goes in steps. In each step all members store pieces of data into the bounce buffers of
// others, each at its own place there; then they meet, and read what has come into their own.
//
// Who may store where, and when: a rank is in one collective operation at a time. In its first exchange members tell
// each other that they have begun, so all bounce buffers are theirs. Steps take turns with two halves of the buffer:
// who stores in step s + 2 has met the others behind step s + 1, which they came to when they had read what step s
// brought. What the last step has brought a member has read before it begins another operation, and nobody stores there
// before all members of that have begun it.
//
// What goes to members that are reached over a network the host puts into their bounce buffers. A member flushes that
// before it meets the others.
//
// ORDER exchange-publish -> exchange-observe: all threads of a member store pieces; the block's barrier orders that
// before the release of the exchange in which the members meet, and the acquire of that before what the threads of
// another member read behind their block's next barrier.
#pragma once

#include "dcuda/detail/ops/collectives/communicators.hpp"
#include "dcuda/detail/ops/collectives/reduce.hpp"

namespace dcuda::detail {

// Threads of a rank that handle one piece of data together: one, a warp, or all of them. On the CPU backend the first
// thread does all of it, as in copies (exec::copy_bytes).
class piece_team {
public:
    // For pieces of at most so many bytes.
    template <class Group>
    DCUDA_DEVICE piece_team(const Group& group, std::size_t bytes) : index_(group.thread()), count_(group.threads()) {
        if (DCUDA_BACKEND_CPU) count_ = 1;
        // PERF: many pieces at a time, where one does not keep all threads busy.
        const unsigned width = bytes <= 64 ? 1 : bytes <= 2048 ? 32 : count_;
        if (width >= count_) return;
        number = index_ / width;
        teams = (count_ + width - 1) / width;
        count_ = number + 1 < teams ? width : count_ - width * number;
        index_ %= width;
    }
    unsigned number = 0, teams = 1; // of the calling thread's team; how many there are
    // As a group of threads.
    DCUDA_DEVICE unsigned thread() const { return index_; }
    DCUDA_DEVICE unsigned threads() const { return count_; }
    DCUDA_DEVICE bool leads() const { return index_ == 0; }
    // Whether the calling thread is in a team.
    DCUDA_DEVICE bool works() const { return index_ < count_; }

private:
    unsigned index_, count_; // of the calling thread in its team; of the team's threads
};

// Where members have their places in bounce buffers: by their numbers, or in the order in which their values are
// combined, that of processes.
enum class place_order { numbers, processes };

// An operation through bounce buffers, as every thread of a member knows it.
struct bounce_exchange {
    operation where;
    communicator comm;
    place_order order;
    std::uint32_t members;
    std::uint32_t place;     // of this rank among the members
    std::uint32_t step;      // that is stored next
    std::size_t place_bytes; // that a step has room for, of each member: a multiple of 16
};

// What a member sends the others in a step: a piece for each of them.
struct outgoing_pieces {
    const std::byte* base;
    std::size_t stride;                         // between the pieces for members; 0: all get the same
    std::size_t bytes;                          // of each, at most
    std::size_t end = SIZE_MAX;                 // of all pieces, from `base` on
    bool by_number = true;                      // they lie in the order of members' numbers; else of their places
    std::uint32_t only = no_rank;               // the number of the one member that gets a piece
    std::uint32_t from_number = 0;              // members before get none
    member_range places = {0, no_rank, 1};      // of the members that get one
    std::uint32_t stored_at = no_rank;          // the place where they get it, if it is not this rank's own
    const std::size_t* counts = nullptr;        // where pieces differ: their elements, by number,
    const std::size_t* displacements = nullptr; // and where they begin
    std::size_t element_bytes = 1;
    std::size_t first = 0; // byte of each that is sent first
};
struct piece {
    const std::byte* source;
    std::size_t bytes;
};

// The places of all members in the bounce buffer of a rank, for the step. Of a rank that is reached over a network:
// where its own process has them.
DCUDA_DEVICE std::byte* bounce_places(const rank_state& state, std::uint32_t world_rank, std::uint32_t step) {
    const exchange_memory& memory = communicators_of(state).memory;
    const auto [process, rank] = locate(state, world_rank);
    packet* const all = reinterpret_cast<packet*>(state.device.peers[process].barriers) + memory.bounce;
    const std::uint32_t half = memory.bounce_packets / 2;
    return reinterpret_cast<std::byte*>(all + std::size_t(rank) * memory.bounce_packets + step % 2 * half);
}
// What so many places have room for, each, in bytes.
DCUDA_DEVICE std::size_t bounce_place_bytes(const rank_state& state, std::uint32_t places) {
    return communicators_of(state).memory.bounce_packets / 2 * sizeof(packet) / places / 16 * 16;
}
DCUDA_DEVICE std::uint32_t world_rank_at(const communicator_record& comm, place_order order, std::uint32_t place) {
    return order == place_order::numbers ? comm.world_rank_of(place) : comm.world_rank_by_process(place);
}

// Tells the members that this rank has begun, and learns the largest of what they say. `request.by_number`: in what
// follows values are combined in the order of numbers. `least_bytes`: that a place must have, at most unit_bytes. As
// post_value leaves it, + 1; 0 if the run ends. The lead warp.
DCUDA_COLD unsigned announce_bounce(lead_warp warp, shared_state shared, std::uint32_t least_bytes,
                                    const exchange_request& request, std::uint64_t largest) {
    rank_state& state = shared.get();
    if (!check_collective(warp, state, request.where, request.comm, request.root, false)) return 0;
    if (request.by_number && !prepare_exchange(warp, state, request.comm, request.where, true)) return 0;
    communicator_record& comm = *find_communicator(state, request.comm);
    const std::uint32_t places =
        communicators_of(state).memory.bounce_packets / 2 / (least_bytes <= sizeof(packet) ? 1 : unit_packets);
    const std::uint32_t most_members = places < most_in_bounce ? places : most_in_bounce;
    if (comm.size > most_members) {
        if (warp.leads())
            report_fault(exec::lead_access::alone(), state, fault::too_many_members, request.where, 0, 0, comm.size, 0,
                         most_members);
        return 0;
    }
    exchange_request begin = request;
    begin.by_number = false;
    value_unit value{};
    set_element(value, 0, largest);
    if (!exchange_one<1, false>(warp, state, comm, begin, value, single_value<std::uint64_t, maximum>{})) return 0;
    return 1 + post_value(warp, state, value);
}

// The members meet behind a step. Whether the run goes on. The lead warp, after the block's barrier.
DCUDA_COLD bool meet_behind_step(lead_warp warp, shared_state shared, const exchange_request& request) {
    rank_state& state = shared.get();
    if (!complete_before_meeting(warp, state)) return false;
    value_unit nothing{};
    return exchange_one<1, true>(warp, state, *find_communicator(state, request.comm), request, nothing, no_values{});
}

// --- All threads of the rank -----------------------------------------------------------------------------------------

// Begins such an operation. `largest()`: what this rank says to announce_bounce, the threads of the lead warp call it;
// `all_largest` gets the answer. Returns when all members have begun, and leaves the kernel if the run ends.
template <class Largest>
DCUDA_DEVICE bounce_exchange begin_bounce(rank_state& state, std::uint32_t least_bytes, const exchange_request& request,
                                          place_order order, const Largest& largest, std::uint64_t& all_largest) {
    state.group().sync(); // the program's threads have written what the first step reads
    const unsigned turn = exec::decide(state.group(), state.decision, [&](const lead_warp& warp) {
        return exec::far(announce_bounce)(warp, state, least_bytes, request, largest(warp));
    });
    leave(turn);
    all_largest = element_of<std::uint64_t>(state.puts[turn - 1].value, 0);
    const communicator_record& comm = *find_communicator(state, request.comm);
    const std::uint32_t place = order == place_order::numbers ? comm.number : comm.shape.before + comm.shape.member;
    return {request.where, request.comm, order, comm.size, place, 0, bounce_place_bytes(state, comm.size)};
}

// The piece for a member, which has this index among those that get one. Of no bytes: it gets none.
DCUDA_DEVICE piece piece_for(const communicator_record& comm, const bounce_exchange& by, const outgoing_pieces& all,
                             std::uint32_t place, std::uint32_t index) {
    const std::uint32_t number = by.order == place_order::numbers ? place : comm.number_by_process(place);
    if ((all.only != no_rank && all.only != number) || number < all.from_number) return {nullptr, 0};
    std::size_t begin = (all.by_number ? number : index) * all.stride, end = all.end;
    if (all.counts != nullptr) {
        begin = all.displacements[number] * all.element_bytes;
        end = begin + all.counts[number] * all.element_bytes;
    }
    begin += all.first;
    if (begin >= end) return {nullptr, 0};
    return {all.base + begin, end - begin < all.bytes ? end - begin : all.bytes};
}

// Pieces of so many bytes the copy engine stores. PERF: it takes 2 us more for each piece, and threads 1 us for 13 KB.
inline constexpr std::size_t least_engine_bytes = 32768;

// Stores the pieces, `offset` bytes behind the begin of this rank's places. What goes over a network the host puts
// there, as it does for programs. All threads of the rank.
DCUDA_COLD void store_pieces(shared_state shared, const bounce_exchange& by, const outgoing_pieces& pieces,
                             std::size_t offset) {
    rank_state& state = shared.get();
    const communicator_record& comm = *find_communicator(state, by.comm);
    const std::size_t own_place = (pieces.stored_at == no_rank ? by.place : pieces.stored_at) * by.place_bytes + offset;
    const std::uint32_t end_place = pieces.places.end < by.members ? pieces.places.end : by.members;
    // PERF: these are asked for in each round instead of kept.
    in_memory<std::uint32_t> first_place = pieces.places.first, step = pieces.places.step, begin = 0;
    const std::uint32_t members = (end_place - first_place + step - 1) / step;
    // Each member begins behind itself, so that not all store to one at a time.
    begin = (step == 1 ? by.place - first_place : by.place / step) + 1;
    if (begin >= members) begin = 0;
    const bool is_networked = comm.shape.is_networked != 0;
    const piece_team team(state.group(), pieces.bytes);
    if (pieces.bytes >= least_engine_bytes) { // then the team is all threads
        exec::prepare_copy(state.group(), pieces.bytes);
        state.group().sync();
    }
    // First what is near; then all threads together what is not.
    for (const bool is_far : {false, true}) {
        if (is_far && !is_networked) return;
        const std::uint32_t first = is_far ? 0 : team.works() ? team.number : members;
        DCUDA_NO_UNROLL
        for (std::uint32_t k = first; k < members; k += is_far ? 1 : team.teams) {
            const std::uint32_t behind = begin + k, index = behind < members ? behind : behind - members,
                                place = first_place + index * step;
            if (place == by.place) continue;
            const std::uint32_t member = world_rank_at(comm, by.order, place);
            const piece each = piece_for(comm, by, pieces, place, index);
            if (each.bytes == 0) continue;
            if (is_networked && is_remote(state, locate(state, member).process) != is_far) continue;
            std::byte* const target = bounce_places(state, member, by.step) + own_place;
            const bool by_engine = !is_far && each.bytes >= least_engine_bytes &&
                                   exec::choose_copy(state.group(), state.staging, target, each.source, each.bytes) ==
                                       exec::copy_way::engine;
            if (by_engine)
                exec::copy(state.group(), state.staging, exec::copy_way::engine, target, each.source, each.bytes);
            else if (is_far)
                send_through_host(state, {nullptr, reinterpret_cast<std::uintptr_t>(target), nullptr, 0, member},
                                  each.source, each.bytes, no_tag);
            else
                exec::copy_bytes(team, target, each.source, each.bytes);
        }
    }
}

// Returns when all members have stored what is for this rank in this step: all threads read it then. Leaves the kernel
// if the run ends.
DCUDA_DEVICE void end_step(rank_state& state, bounce_exchange& by) {
    state.group().sync();
    const exchange_request request{by.where, by.comm, exchange_digest(by.where, 0), false, 1};
    leave(exec::decide(state.group(), state.decision, [&](const lead_warp& warp) {
        return exec::far(meet_behind_step)(warp, state, request) ? 1u : 0u;
    }));
    ++by.step;
}

} // namespace dcuda::detail
