// SPDX-License-Identifier: BSD-3-Clause
// Small pieces of data that members move travel in packets, without bounce buffers: in an exchange in which each member
// gets a unit, or some, of its own, and nothing is combined. It has one stage, in which the position of a member is its
// number. Members that have nothing for another send it an empty unit, since everybody must hear from everybody before
// slots are used again (exchange.hpp).
#pragma once

#include "dcuda/detail/ops/collectives/move.hpp"

namespace dcuda::detail {

// Pieces of up to so many bytes go in packets, in communicators of up to most_by_number members that have room for
// them.
// PERF: to 15 others 1 KiB each takes 19 us (two H200), and 32 through bounce buffers (two H100; dcuda-bench
// collectives).
inline constexpr std::size_t most_packet_bytes = 1024;

DCUDA_DEVICE std::uint32_t units_of(std::size_t bytes) {
    return static_cast<std::uint32_t>((bytes + unit_bytes - 1) / unit_bytes);
}

// What a unit brings of `bytes` bytes, from byte `first` on.
DCUDA_DEVICE value_unit load_unit(const std::byte* source, std::size_t first, std::size_t bytes) {
    value_unit result{};
    if (first >= bytes) return result;
    source += first;
    if (bytes - first >= unit_bytes && reinterpret_cast<std::uintptr_t>(source) % 4 == 0) {
        DCUDA_UNROLL
        for (unsigned i = 0; i < unit_bytes / 4; ++i)
            result.words[i] = reinterpret_cast<const std::uint32_t*>(source)[i];
        return result;
    }
    DCUDA_UNROLL
    for (unsigned i = 0; i < unit_bytes; ++i)
        if (first + i < bytes) result.words[i / 4] |= static_cast<std::uint32_t>(source[i]) << i % 4 * 8;
    return result;
}
DCUDA_DEVICE void store_unit(std::byte* target, std::size_t first, std::size_t bytes, const value_unit& unit) {
    if (first >= bytes) return;
    target += first;
    if (bytes - first >= unit_bytes && reinterpret_cast<std::uintptr_t>(target) % 4 == 0) {
        DCUDA_UNROLL
        for (unsigned i = 0; i < unit_bytes / 4; ++i) reinterpret_cast<std::uint32_t*>(target)[i] = unit.words[i];
        return;
    }
    DCUDA_UNROLL
    for (unsigned i = 0; i < unit_bytes; ++i)
        if (first + i < bytes) target[i] = static_cast<std::byte>(unit.words[i / 4] >> i % 4 * 8);
}

// Of the exchange, another one than that by which members announce a move through bounce buffers: those that call the
// operation with different counts shall not take one for the other.
DCUDA_DEVICE std::uint32_t packet_digest(const move_request& request) {
    return exchange_digest(request.where, request.digest * 0x85EBCA6Bu + 1);
}

// Such an exchange, as every thread of a member knows it.
struct packet_move {
    const move_request& request;
    std::uint32_t members, own; // how many, and this rank's number
    std::uint32_t units;        // of a piece
    std::uint32_t distance;     // between positions, in packets
    std::uint32_t turn;         // where its half of the slots begins
    std::uint32_t word;         // that packets have

    DCUDA_DEVICE packet_move(const rank_state& state, const move_request& moved, std::uint32_t sequence)
        : request(moved) {
        const communicator_record& comm = *find_communicator(state, moved.comm);
        members = comm.size;
        own = comm.number;
        units = moved.bytes() == 0 ? 1 : units_of(moved.bytes());
        distance = comm.shape.units * unit_packets;
        turn = sequence % 2 * (comm.slots_packets / 2);
        word = exchange_word(sequence, packet_digest(moved));
    }

    // Whether a member gets a piece of another. If not, an empty unit.
    DCUDA_DEVICE bool is_sent(std::uint32_t from, std::uint32_t number) const {
        return request.where == operation::gather    ? number == request.root
               : request.where == operation::scatter ? from == request.root
                                                     : true;
    }
    // A unit of what this rank sends a member.
    DCUDA_DEVICE value_unit load(std::uint32_t number, std::uint32_t unit) const {
        const piece brought = request.brought_for(number);
        return load_unit(brought.source, unit * std::size_t{unit_bytes}, is_sent(own, number) ? brought.bytes : 0);
    }
    // For what waits as in any other exchange. A member's position is its number.
    DCUDA_DEVICE exchange_request exchange() const {
        return {request.where, request.comm, packet_digest(request), true, 1};
    }
    // Where a unit lies, in packets from the begin of a slot.
    DCUDA_DEVICE std::uint32_t place(std::uint32_t position, std::uint32_t unit) const {
        return turn + position * distance + unit * unit_packets;
    }

    // Units of all other members are numbered: those for, or of, one member after those of another. The first one is
    // the member behind this rank, so that not all send to the same one at the same time.
    DCUDA_DEVICE std::uint32_t count() const { return (members - 1) * units; }
    DCUDA_DEVICE std::uint32_t member_of(std::uint32_t number) const {
        const std::uint32_t member = own + 1 + number / units;
        return member < members ? member : member - members;
    }
};

// Threads of a rank's full warps, among which the units are divided; or of what there is of its one warp.
struct unit_share {
    std::uint32_t first, step;
};

// Sends this rank's units to members whose memory is mapped here. One thread of a share.
DCUDA_DEVICE void send_units(const rank_state& state, const packet_move& move, const unit_share& share) {
    const communicator_record& comm = *find_communicator(state, move.request.comm);
    DCUDA_NO_UNROLL
    for (std::uint32_t number = share.first; number < move.count(); number += share.step) {
        const std::uint32_t member = move.member_of(number), unit = number % move.units;
        if (unit != 0 && !move.is_sent(move.own, member)) continue;
        const std::uint32_t world_rank = comm.world_rank_of(member);
        if (is_remote(state, locate(state, world_rank).process)) continue;
        store_unit_packets<unit_packets>(state, slot_of(state, comm, world_rank) + move.place(move.own, unit),
                                         move.load(member, unit), move.word, world_rank);
    }
}

// Sends the units for members that are reached over a network: a command for each. The lead warp.
DCUDA_COLD void send_units_far(lead_warp warp, shared_state shared, const packet_move& move) {
    rank_state& state = shared.get();
    const communicator_record& comm = *find_communicator(state, move.request.comm);
    for (std::uint32_t begin = 0; begin < move.count(); begin += warp.count) {
        const std::uint32_t number = begin + warp.index, unit = number % move.units;
        const std::uint32_t member = number < move.count() ? move.member_of(number) : move.own;
        const std::uint32_t world_rank = comm.world_rank_of(member);
        const bool sends = member != move.own && (unit == 0 || move.is_sent(move.own, member)) &&
                           is_remote(state, locate(state, world_rank).process);
        const unsigned senders = vote(warp, sends);
        if (senders == 0) continue;
        std::uint32_t ticket = 0;
        if (!take_tickets_together(warp, state, bits_in(senders), ticket))
            return; // who waits next sees that the run has ended
        if (!sends) continue;
        exchange_fields fields{world_rank, move.word, 0, {}};
        fields.address = static_cast<std::uint64_t>(
            reinterpret_cast<std::uintptr_t>(slot_of(state, comm, world_rank) + move.place(move.own, unit)));
        const value_unit value = move.load(member, unit);
        for (unsigned i = 0; i < unit_bytes / 4; ++i) fields.values[i] = value.words[i];
        store_command(state.device.ring, ticket + bits_in(senders & ((1u << warp.index) - 1)),
                      make_command(state.device_rank, fields));
    }
}

// What a member waits for: the units of others, at their positions. Of `awaited_unit` only what follows is used.
template <class Group>
DCUDA_DEVICE awaited_unit await_units(const Group& warp, const rank_state& state, const exchange_request& request,
                                      const packet_move& move) {
    const communicator_record& comm = *find_communicator(state, request.comm);
    awaited_unit awaited{request, comm.plans[plan_for_all], exchange_team(warp.index, warp.count, 1), move.distance,
                         move.word};
    awaited.slot = slot_of(state, comm, state.world_rank) + move.place(0, 0);
    return awaited;
}

// Waits until the first unit of each member is there, and tells for whom it waits. False if the run has ended. The lead
// warp.
DCUDA_COLD bool await_members(lead_warp warp, shared_state shared, const packet_move& move) {
    rank_state& state = shared.get();
    const exchange_request request = move.exchange();
    awaited_unit awaited = await_units(warp, state, request, move);
    bool going = true;
    for (std::uint32_t begin = 0; going && begin < move.members; begin += warp.count) {
        const std::uint32_t member = begin + warp.index;
        bool waits = member < move.members && member != move.own;
        going = poll_until(
            [&](unsigned) {
                value_unit ignored;
                if (waits) waits = !load_unit_packets<1>(awaited.slot + member * move.distance, move.word, ignored);
                return any(warp, waits) ? poll_result::nothing : poll_result::all;
            },
            [&] { return keep_exchanging(warp, state, awaited, member, waits); }, &state.status->doorbell);
    }
    if (awaited.has_waited && warp.leads()) end_wait(exec::lead_access::alone(), state);
    return going;
}

// Waits for a share's units, and stores them where they belong. False if the run has ended. All threads of a warp.
// Another warp than the lead warp does not say whom it waits for: the lead warp does, in await_members.
template <class Group>
DCUDA_COLD bool receive_units(Group warp, shared_state shared, const packet_move& move, const unit_share& share) {
    rank_state& state = shared.get();
    const exchange_request request = move.exchange();
    awaited_unit awaited = await_units(warp, state, request, move);
    const packet* const slot = awaited.slot;
    bool going = true;
    // All threads of the warp take part in each round.
    for (std::uint32_t begin = share.first - warp.index; going && begin < move.count(); begin += share.step) {
        const std::uint32_t number = begin + warp.index, unit = number % move.units;
        const std::uint32_t member = number < move.count() ? move.member_of(number) : move.own;
        const bool is_sent = move.is_sent(member, move.own);
        std::byte* const target = is_sent ? move.request.target(move.own, member) : nullptr;
        awaited.slot = slot + unit * unit_packets;
        bool waits = member != move.own && (unit == 0 || is_sent);
        going = poll_until(
            [&](unsigned) {
                value_unit value;
                if (waits && load_unit_packets<unit_packets>(awaited.slot + member * move.distance, move.word, value)) {
                    waits = false;
                    if (is_sent) store_unit(target, unit * std::size_t{unit_bytes}, move.request.bytes(), value);
                }
                return any(warp, waits) ? poll_result::nothing : poll_result::all;
            },
            [&] { return keep_receiving(warp, state, awaited, member, waits); }, &state.status->doorbell);
    }
    if constexpr (std::is_same_v<Group, lead_warp>)
        if (awaited.has_waited && warp.leads()) end_wait(exec::lead_access::alone(), state);
    return going;
}

// What begin_packet_move decides. In packets: and in which of two turns the number of the exchange is posted.
inline constexpr unsigned move_ended = 0, move_large = 1, move_in_packets = 2;

// Whether pieces go in packets. If so, a number of exchanges is taken, and posted. All members decide alike. The lead
// warp.
DCUDA_COLD unsigned begin_packet_move(lead_warp warp, shared_state shared, const move_request& request) {
    rank_state& state = shared.get();
    if (!check_collective(warp, state, request.where, request.comm, request.root, false)) return move_ended;
    communicator_record& comm = *find_communicator(state, request.comm);
    if (comm.size > most_by_number || units_of(request.bytes()) > comm.shape.units) return move_large;
    const std::uint32_t sequence = comm.sequence + 1;
    sync(warp); // all have read the number that now changes
    if (warp.leads()) {
        comm.sequence = sequence;
        if (DCUDA_BACKEND_CUDA) state.finished_shares = 0;
    }
    clear_if_due(warp, comm.plans[plan_for_all], sequence); // nobody sends before the block's barrier
    value_unit begun{};
    begun.words[0] = sequence;
    return move_in_packets + post_value(warp, state, begun);
}

// Moves the pieces if they go in packets; false: they do not. Leaves the kernel if the run ends. All threads of the
// rank, all members.
DCUDA_COLD bool move_packets(shared_state shared, const move_request& request) {
    rank_state& state = shared.get();
    const std::size_t bytes = request.bytes();
    if (bytes > most_packet_bytes || bytes >= communicators_of(state).memory.bounce_from) return false;
    const unsigned begun = exec::decide(state.group(), state.decision,
                                        [&](const lead_warp& warp) { return begin_packet_move(warp, state, request); });
    leave(begun);
    if (begun == move_large) return false;
    const packet_move move(state, request, state.puts[begun - move_in_packets].value.words[0]);
    std::byte* const own = request.target(move.own, move.own);
    if (own != nullptr) {
        const piece kept = request.brought_for(move.own);
        exec::copy_bytes(state.group(), own, kept.source, kept.bytes);
    }
    const unsigned threads = state.group().threads();
#if DCUDA_BACKEND_CUDA
    const unsigned thread = state.group().thread(), sharing = threads < 32 ? threads : threads / 32 * 32;
    const unit_share share{thread, sharing};
    if (thread < sharing) send_units(state, move, share);
#if defined(__CUDA_ARCH__) // nvcc's host pass knows no add_in_block
    if (thread >= 32 && thread < sharing) {
        const warp_group warp{thread % 32, 32};
        const bool going = receive_units(warp, state, move, share);
        sync(warp);
        if (warp.leads()) add_in_block(&state.finished_shares, going ? 1 : share_failed);
    }
#endif
#else
    const unsigned sharing = DCUDA_WARPS ? (threads < 32 ? threads : 32) : 1; // the lead warp does all of it
#endif
    leave(exec::decide(state.group(), state.decision, [&](const lead_warp& warp) {
        const unit_share own_share{warp.index, sharing};
#if !DCUDA_BACKEND_CUDA
        send_units(state, move, own_share);
#endif
        if (find_communicator(state, request.comm)->shape.is_networked != 0) send_units_far(warp, state, move);
        bool going = receive_units(warp, state, move, own_share);
#if DCUDA_BACKEND_CUDA
        going = going && await_members(warp, state, move) &&
                await_shares(warp, state, move.exchange(), sharing / 32 - (sharing >= 32 ? 1 : 0));
#endif
        return going ? 1u : 0u;
    }));
    return true;
}

// Pieces of one size. All threads of the rank, all members.
DCUDA_COLD void move_equal(shared_state shared, const move_request& request) {
    if (!move_packets(shared, request)) move_data(shared, request);
}

} // namespace dcuda::detail
