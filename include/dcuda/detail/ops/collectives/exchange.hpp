// SPDX-License-Identifier: BSD-3-Clause
// Members of a communicator exchange values, and each combines those of all: what collective operations are made of.
//
// Values travel in packets, each with the number of the exchange (protocol/communicator.hpp). A member stores its value
// into the slots of others, and reads its own slot until all have come. That takes no fence and, for up to
// exchange_row members, the time that one packet takes.
//
// ORDER exchange-publish -> exchange-observe: payload and number of a packet arrive at once (on a GPU one store of 128
// bits; on the CPU the number is released and acquired), so whoever sees the number has the payload. Nothing else is
// ordered, but in an ordered exchange, which barriers are made of: there each thread that sends releases before what
// the rank did (the block's barrier orders that before the thread's fence), and each thread that has received acquires.
// The next stage's release passes on what was acquired: causality is transitive. Stages in which only ranks of one
// device take part have its scope; but in the first one each rank releases for all members, and in the last it acquires
// so.
//
// Over a network a member gives its host a command for each unit, and the host of the other member (on a GPU its
// delivery kernel) stores the packets into the slot, in the same way: who polls it need not know. The network keeps the
// order between the command and that (docs/design/network.md), and what the member has released before its command is
// released again with the packets. So an ordered exchange orders what it did elsewhere, too: in memory that both reach
// through others; what it has put over the network has arrived before it begins (meet_members).
//
// Slots are used in turn by exchanges with even and odd numbers. Exchange e + 1 overwrites what e - 1 has left: a
// member begins e + 1 when it has finished e, so it has heard, maybe through others, from all members in e. Those had
// then begun e, and so finished e - 1: a member finishes an exchange when it has read all that is meant for it, and
// does not begin the next one before. A read is finished when its value is there: the member has looked at it. On the
// CPU that is order again: what a member has read is released with the packets of the next exchange that it sends. None
// is on its way any more, over a network either: somebody waits for each.
#pragma once

#include "dcuda/detail/ops/collectives/plan.hpp"
#include "dcuda/detail/ops/commands/command_ring.hpp"

#include <type_traits>

namespace dcuda::detail {

// An exchange, as the members know it before.
struct exchange_request {
    operation where;
    communicator comm;
    std::uint32_t digest; // of exchange_word; equal on all members
    bool by_number;       // one stage, in which a member's position is its number
    std::size_t units;
    std::uint32_t root = 0; // of operations that have one
};

// What of an exchange is done: all of it, or its first part and later the rest. Between these the member may do
// anything else, but begin another exchange of the communicator. For the slots the exchange is begun with the one and
// finished with the other, so what is said above holds.
enum class exchange_phase {
    whole,
    start, // the member's own values leave, in the first stage
    finish // it waits for those of others, and goes on
};

// This rank's own slot, or a half of it, of which nobody else knows anything now. The lead warp.
DCUDA_DEVICE void clear_slot(const lead_warp& warp, packet* own, std::uint32_t packets) {
    for (std::uint32_t i = warp.index; i < packets; i += warp.count)
        store_packet<order_tag::exchange_publish>(own + i, 0, 0, 0, 0);
}

// Before an exchange with this number: if it is time, the half of the slot that the next one uses. The lead warp.
DCUDA_DEVICE void clear_if_due(const lead_warp& warp, const exchange_plan& plan, std::uint32_t sequence) {
    if (sequence % exchanges_until_clear >= 2) return;
    clear_slot(warp, plan.slot + (sequence + 1) % 2 * plan.half, plan.half);
    fence_release<order_tag::exchange_publish>(scope::system);
    sync(warp);
}

// --- The exchange ---------------------------------------------------------------------------------------------------

// A value, if there is one. Combining is pairwise: what has no partner goes on alone.
struct maybe_value {
    value_unit value;
    bool is_there;
};
template <class Values>
DCUDA_DEVICE void combine_pair(maybe_value& a, const maybe_value& b, const Values& values) {
    if (a.is_there && b.is_there)
        a.value = values.combine(a.value, b.value);
    else if (b.is_there)
        a.value = b.value;
    a.is_there = a.is_there || b.is_there;
}

// Values of many positions of a thread, which it combines in a tree: pairs of neighbours, pairs of these, and so on.
// `Levels`: for up to half of 2 to the power of that values.
template <class Values, unsigned Levels>
class value_tree {
public:
    DCUDA_DEVICE explicit value_tree(const Values& values) : values_(values) {}
    DCUDA_DEVICE void add(maybe_value value) {
        unsigned level = 0;
        for (; (count_ >> level & 1) != 0; ++level) {
            maybe_value before = partial_[level];
            combine_pair(before, value, values_);
            value = before;
        }
        partial_[level] = value;
        ++count_;
    }
    // When as many have been added as a power of two says.
    DCUDA_DEVICE const maybe_value& result() const { return partial_[lowest(count_)]; }

private:
    const Values& values_;
    maybe_value partial_[Levels];
    unsigned count_ = 0;
};

// The threads of a warp, in teams. Each team exchanges another unit; positions are spread over its threads.
struct exchange_team {
    unsigned width;  // threads of a team, a power of two
    unsigned teams;  // some threads may be in none
    unsigned number; // of this thread's team
    unsigned thread; // in it
    DCUDA_DEVICE exchange_team(unsigned index, unsigned count, std::uint32_t positions) {
        const unsigned all = highest(count), wanted = positions <= 1 ? 0 : 1 + highest(positions - 1);
        const unsigned shift = wanted < all ? wanted : all;
        width = 1u << shift;
        teams = 1u << (all - shift);
        number = index >> shift;
        thread = index & (width - 1);
    }
};

// Stores the packets of a unit where it goes, at a member whose memory is mapped here. One thread.
template <unsigned Packets>
DCUDA_DEVICE void store_unit_packets(const rank_state& state, packet* slot, const value_unit& value, std::uint32_t word,
                                     std::uint32_t world_rank) {
    DCUDA_UNROLL
    for (unsigned i = 0; i < Packets; ++i)
        store_packet<order_tag::exchange_publish>(slot + i, value.words[3 * i], value.words[3 * i + 1],
                                                  value.words[3 * i + 2], word);
    if (DCUDA_BACKEND_CPU) {
        const auto [process, rank] = locate(state, world_rank);
        ring_doorbell(&state.device.peers[process].status[rank].doorbell);
    }
}
// Whether all packets of a unit have come; `value` gets it then. One thread.
template <unsigned Packets>
DCUDA_DEVICE bool load_unit_packets(const packet* slot, std::uint32_t word, value_unit& value) {
    packet found[Packets];
    DCUDA_UNROLL
    for (unsigned i = 0; i < Packets; ++i) found[i] = load_packet<order_tag::exchange_observe>(slot + i, word);
    if (found[0].sequence != word || found[Packets - 1].sequence != word) return false;
    DCUDA_UNROLL
    for (unsigned i = 0; i < 3 * Packets; ++i) value.words[i] = found[i / 3].payload[i % 3];
    return true;
}

// Sends a unit in one stage, to members whose memory is mapped here. `thread`, `threads`: of those that send it.
// `place`: of the unit at this rank's position, in packets from the begin of a slot.
template <unsigned Packets>
DCUDA_DEVICE void send_unit(const rank_state& state, const exchange_plan& plan, const exchange_plan::part& part,
                            unsigned thread, unsigned threads, std::uint32_t place, const value_unit& value,
                            std::uint32_t word) {
    DCUDA_NO_UNROLL
    for (std::uint32_t k = part.begin + thread; k < part.end; k += threads) {
        store_unit_packets<Packets>(state, plan.targets[k].slot + place, value, word, plan.targets[k].world_rank);
    }
}

// Combines the values of a team's threads, in their order: the next level of their trees. All threads of the warp.
template <unsigned Packets, class Group, class Values>
DCUDA_DEVICE void combine_threads(const Group& warp, unsigned width, maybe_value& result, const Values& values) {
    DCUDA_NO_UNROLL
    for (unsigned step = 1; step < width; step *= 2) {
        const unsigned partner = warp.index ^ step, from = partner < warp.count ? partner : warp.index;
        maybe_value other{};
        DCUDA_UNROLL
        for (unsigned i = 0; i < 3 * Packets; ++i) other.value.words[i] = broadcast(warp, result.value.words[i], from);
        other.is_there = broadcast(warp, result.is_there ? 1 : 0, from) != 0;
        const bool is_second = (warp.index & step) != 0;
        const maybe_value second = is_second ? result : other;
        if (is_second) result = other;
        combine_pair(result, second, values);
    }
}

// What a team waits for in one stage: its unit at all positions.
struct awaited_unit {
    const exchange_request& request;
    const exchange_plan& plan;
    exchange_team team;
    std::uint32_t distance;       // between positions
    std::uint32_t word;           // that packets have
    const packet* slot = nullptr; // of the unit at the first position
    std::uint32_t positions = 0;
    std::uint32_t position = 0;    // of this rank: its own value stands there
    std::uint32_t place = 0;       // of the unit there, in packets from the begin of a slot
    std::uint32_t far_targets = 0; // members that are reached over a network, and do not have it yet
    std::uint32_t stage = 0;
    bool has_unit = false;   // the team has one
    bool has_waited = false; // for long
};

// Sends the teams' units to the members that are reached over a network: a command for each of them. The lead warp.
//
// ORDER command-publish: the values come with the command. In an ordered exchange each thread has released before what
// the rank did, and its commands come after.
//
// The values are read for each command, behind the call that may wait for places: while that is on, they need no
// registers.
DCUDA_COLD void send_far(lead_warp warp, shared_state shared, const awaited_unit& unit, const value_unit& value) {
    rank_state& state = shared.get();
    const exchange_target* const targets = unit.plan.targets + unit.plan.parts[unit.stage].end;
    for (unsigned team = 0; team < unit.team.teams; ++team) {
        const unsigned owner = team * unit.team.width;
        if (broadcast(warp, unit.has_unit ? 1 : 0, owner) == 0) continue;
        const std::uint32_t place = broadcast(warp, unit.place, owner);
        for (std::uint32_t begin = 0; begin < unit.far_targets; begin += warp.count) {
            const std::uint32_t left = unit.far_targets - begin, count = left < warp.count ? left : warp.count;
            std::uint32_t ticket = 0;
            if (!take_tickets_together(warp, state, count, ticket))
                return; // who waits next sees that the run has ended
            exchange_fields fields{0, unit.word, 0, {}};
            for (unsigned i = 0; i < 3 * unit_packets; ++i) fields.values[i] = broadcast(warp, value.words[i], owner);
            if (warp.index >= count) continue;
            const exchange_target& target = targets[begin + warp.index];
            fields.target = target.world_rank;
            fields.address = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(target.slot + place));
            store_command(state.device.ring, ticket + warp.index, make_command(state.device_rank, fields));
        }
    }
}

// Whom an exchange waits for, and whether the run may go on: it may not if a member is in another operation. `waits`:
// the thread waits for that position. The lead warp, after many polls.
DCUDA_COLD bool keep_exchanging(lead_warp warp, shared_state shared, awaited_unit& unit, std::uint32_t position,
                                bool waits) {
    rank_state& state = shared.get();
    const communicator_record& comm = *find_communicator(state, unit.request.comm);
    const bool is_first = !unit.has_waited;
    unit.has_waited = true;
    std::uint32_t world_rank = 0, seen = 0;
    if (waits) {
        if (unit.plan.by_leaders != 0) {
            world_rank = source_of_leaders(state, comm, unit.stage, position);
        } else {
            const exchange_stage stage = exchange_stage::make(comm, unit.request.by_number, unit.stage);
            world_rank = stage.world_rank(comm, stage.source(state, comm, position));
        }
        seen = load_packet<order_tag::none>(unit.slot + position * unit.distance, no_exchange_word).sequence;
    }
    const unsigned waiting_threads = vote(warp, waits);
    const unsigned wrong =
        vote(warp, waits && seen != unit.word && is_of_exchange(seen, unit.word >> exchange_digest_bits));
    const unsigned shown = wrong != 0 ? lowest(wrong) : waiting_threads != 0 ? lowest(waiting_threads) : 0;
    const std::uint32_t who = broadcast(warp, world_rank, shown), it_has = broadcast(warp, seen, shown);
    bool going = false;
    if (warp.leads()) {
        const lone_thread leader = exec::lead_access::alone();
        endpoint& own = state.own.of(leader);
        const auto number = static_cast<std::uint32_t>(unit.request.comm);
        if (wrong != 0) {
            report_fault(leader, state, fault::other_collective, unit.request.where, number, who, 0,
                         it_has & ((1u << exchange_digest_bits) - 1), 0);
        } else {
            if (is_first) begin_wait(leader, state, waiting::member, unit.request.where, number, who);
            if (own.wait.expected != who) count_as_new_wait(leader, state);
            own.wait.expected = who;
            going = keep_waiting(leader, state, 0);
        }
    }
    return any(warp, going);
}

// The same for any warp. Another than the lead warp sees by itself what ends the run, and no more.
template <class Group>
DCUDA_DEVICE bool keep_receiving(const Group& warp, rank_state& state, awaited_unit& unit, std::uint32_t position,
                                 bool waits) {
    if constexpr (std::is_same_v<Group, lead_warp>)
        return keep_exchanging(warp, state, unit, position, waits);
    else
        return !any(warp, load_relaxed(state.device.aborted) != 0);
}

// What comes from some positions, whose packets a thread looks for at the same time.
template <unsigned Count>
using received_values = maybe_value[Count];
template <unsigned Count, class Values>
DCUDA_DEVICE const maybe_value& combine_received(received_values<Count>& received, const Values& values) {
    if constexpr (Count == 2) combine_pair(received[0], received[1], values);
    return received[0];
}
// How many these are, for units of so many packets. PERF: with two a reduction by 1056 ranks of a device, which are 33
// rows, needs no function for many. Two of two packets would take too many registers, as would two in a barrier, which
// programs have beside other things.
template <unsigned Packets, class Values>
inline constexpr unsigned positions_at_once = Packets == 1 && !std::is_empty_v<Values> ? 2 : 1;

// Waits for the values of some positions, from `first` on; of those behind the last there is none. False if the run has
// ended. All threads of a warp, each for its own positions. Another warp than the lead warp does not say whom it waits
// for: the lead warp does, as the warps of a member begin together.
template <unsigned Packets, unsigned Count, class Group>
DCUDA_DEVICE bool receive_positions(const Group& warp, rank_state& state, awaited_unit& unit, std::uint32_t first,
                                    received_values<Count>& results) {
    const std::uint32_t word = unit.word;
    bool waits[Count];
    DCUDA_UNROLL
    for (unsigned k = 0; k < Count; ++k) {
        const std::uint32_t position = first + k;
        const bool is_sent = unit.plan.stages > 1 || position >= 64 || (unit.plan.present >> position & 1) != 0;
        results[k].is_there = results[k].is_there & unit.has_unit & (position < unit.positions) & is_sent;
        waits[k] = results[k].is_there & (position != unit.position);
    }
    return poll_until(
        [&](unsigned) {
            bool waits_for_some = false;
            DCUDA_UNROLL
            for (unsigned k = 0; k < Count; ++k) {
                if (waits[k])
                    waits[k] =
                        !load_unit_packets<Packets>(unit.slot + (first + k) * unit.distance, word, results[k].value);
                waits_for_some = waits_for_some | waits[k];
            }
            return any(warp, waits_for_some) ? poll_result::nothing : poll_result::all;
        },
        [&] { return keep_receiving(warp, state, unit, first + (waits[0] ? 0 : 1), waits[0] || waits[Count - 1]); },
        &state.status->doorbell);
}

// PERF: a function of its own, of which one with a loop around it needs fewer registers.
template <unsigned Packets, unsigned Count, class Group>
DCUDA_COLD bool await_positions(Group warp, shared_state shared, awaited_unit& unit, std::uint32_t first,
                                received_values<Count>& results) {
    return receive_positions<Packets>(warp, shared.get(), unit, first, results);
}

// The same for `each` positions of each thread, a power of two, which it combines.
template <unsigned Packets, class Group, class Values>
DCUDA_COLD bool receive_many(Group warp, shared_state shared, awaited_unit& unit, std::uint32_t each,
                             const value_unit& own, const Values& values, maybe_value& result) {
    constexpr unsigned count = positions_at_once<Packets, Values>;
    value_tree<Values, 10> tree(values); // a thread alone has at most 512 positions: rows of a device
    const std::uint32_t begin = unit.team.thread * each;
    DCUDA_NO_UNROLL
    for (std::uint32_t first = begin; first < begin + each; first += count) {
        received_values<count> received;
        for (maybe_value& one : received) one = {own, true};
        if (!exec::far(await_positions<Packets, count, Group>)(warp, shared, unit, first, received)) return false;
        tree.add(combine_received<count>(received, values));
    }
    result = tree.result();
    return true;
}

// Receives a team's unit from all positions, and combines these with its own, `value`, which those get first that are
// reached over a network. False if the run has ended. All threads of the warp.
// PERF: called by exec::far, so that kernels need not have its registers.
template <unsigned Packets, class Group, class Values>
DCUDA_COLD bool receive_unit(Group warp, shared_state shared, awaited_unit& unit, value_unit& value,
                             const Values& values) {
    if constexpr (std::is_same_v<Group, lead_warp>)
        if (unit.far_targets != 0) send_far(warp, shared, unit, value);
    const unsigned width = unit.team.width, thread = unit.team.thread;
    const std::uint32_t most = (unit.positions + width - 1) >> highest(width);
    maybe_value result{value, false};
    constexpr unsigned count = positions_at_once<Packets, Values>;
    if (most <= count) {
        received_values<count> received;
        for (unsigned k = 0; k < count; ++k) received[k] = {value, k < most};
        if (!receive_positions<Packets>(warp, shared.get(), unit, thread * most, received)) return false;
        result = combine_received<count>(received, values);
    } else if (!receive_many<Packets>(warp, shared, unit, power_above(most), value, values, result)) {
        return false;
    }
    combine_threads<Packets>(warp, width, result, values);
    value = result.value;
    if constexpr (std::is_same_v<Group, lead_warp>) {
        if (unit.has_waited && warp.leads()) end_wait(exec::lead_access::alone(), shared.get());
        unit.has_waited = false;
    }
    return true;
}

// What is awaited in a stage, but for the team, the places and whether there is a unit.
DCUDA_DEVICE void await_stage(awaited_unit& unit, unsigned number) {
    const exchange_plan::part part = unit.plan.parts[number];
    unit.positions = part.positions;
    unit.position = part.position;
    unit.stage = number;
    unit.far_targets = part.far_end - part.end;
}

// Exchanges one unit, and combines those of all members: a pairwise tree in the order of positions. False if the run
// has ended. To finish, `value` is what it was at the start. The lead warp, after the block's barrier.
template <unsigned Packets, bool IsOrdered, exchange_phase Phase = exchange_phase::whole, class Values>
DCUDA_DEVICE bool exchange_one(const lead_warp& warp, rank_state& state, communicator_record& comm,
                               const exchange_request& request, value_unit& value, const Values& values) {
    const exchange_plan& plan = comm.plan_of_value(request.by_number);
    constexpr bool finishes = Phase == exchange_phase::finish;
    const std::uint32_t sequence = comm.sequence + (finishes ? 0 : 1), turn = sequence % 2 * plan.half,
                        stages = Phase == exchange_phase::start ? 1 : plan.stages;
    sync(warp); // all have read the number that now changes
    if (warp.leads()) comm.sequence = sequence;
    if (!finishes) clear_if_due(warp, plan, sequence);
    const std::uint32_t distance = plan.units * unit_packets;
    awaited_unit unit{request, plan, exchange_team(warp.index, warp.count, 1), distance,
                      exchange_word(sequence, request.digest)};
    bool going = true;
    DCUDA_NO_UNROLL
    for (unsigned number = 0; going && number < stages; ++number) {
        await_stage(unit, number);
        const exchange_plan::part& part = plan.parts[number];
        unit.team = exchange_team(warp.index, warp.count, unit.positions);
        unit.has_unit = unit.team.number == 0; // the first team has it
        unit.slot = plan.slot + turn + part.first * distance;
        unit.place = turn + (part.first + part.place) * distance;
        if (IsOrdered && (part.order & stage_releases) != 0)
            fence_release<order_tag::exchange_publish>((part.order & stage_releases_far) != 0 ? scope::system
                                                                                              : scope::device);
        if (finishes && number == 0)
            unit.far_targets = 0; // they have it, and so have the others
        else
            send_unit<Packets>(state, plan, part, warp.index, warp.count, unit.place, value, unit.word);
        if constexpr (Phase == exchange_phase::start) {
            if (unit.far_targets != 0) send_far(warp, state, unit, value);
        } else if (unit.positions != 0) {
            going = exec::far(receive_unit<Packets, lead_warp, Values>)(warp, state, unit, value, values);
            if (IsOrdered) {
                acquire_packet<order_tag::exchange_observe>((part.order & stage_acquires_far) != 0 ? scope::system
                                                                                                   : scope::device);
                sync(warp);
            }
            DCUDA_UNROLL
            for (unsigned i = 0; i < 3 * Packets; ++i) value.words[i] = broadcast(warp, value.words[i], 0);
        }
    }
    return going;
}

// Warps of a rank that exchange an array together: this is one of them.
struct exchange_share {
    unsigned warp, warps;
};

// Sends the units of a chunk in the first stage to the members that are reached over a network. `first`: the number of
// the first unit, `place`: of that. The lead warp. PERF: called by exec::far, as most exchanges have no such members.
template <class Values>
DCUDA_COLD void send_chunk(lead_warp warp, shared_state shared, awaited_unit& unit, const Values& values,
                           std::size_t first, std::uint32_t count, std::uint32_t place) {
    await_stage(unit, 0);
    for (std::uint32_t pass = 0; pass < count; pass += unit.team.teams) {
        const std::uint32_t number = pass + unit.team.number;
        unit.has_unit = unit.team.number < unit.team.teams && number < count;
        unit.place = place + number * unit_packets;
        send_far(warp, shared, unit, unit.has_unit ? values.load(first + number) : value_unit{});
    }
}

// Exchanges values.load(unit) of all members, for each of the request's units that are this warp's; values.store(unit,
// value, team) gets the combined ones. `sequence`: of the last exchange before. False if the run has ended. Only one
// exchange is started, and finished.
template <exchange_phase Phase = exchange_phase::whole, class Group, class Values>
DCUDA_DEVICE bool exchange_many(const Group& warp, const exchange_share& share, rank_state& state,
                                const exchange_plan& plan, const exchange_request& request, std::uint32_t sequence,
                                Values& values) {
    // All members have as many teams, of as many threads. Were there more in one, it would wait for units that another
    // begins only after a unit before, which that one may not have sent: a deadlock (H100, 81 members of 40 and 41 on
    // two devices).
    const exchange_team team(warp.index, warp.count, plan.most_positions);
    const std::uint32_t teams = team.teams * share.warps, distance = plan.units * unit_packets;
    awaited_unit wait{request, plan, team, distance, 0};
    bool going = true;
    for (std::size_t first = 0; going && first < request.units; first += plan.units) {
        const std::size_t left = request.units - first;
        const auto count = left < plan.units ? static_cast<std::uint32_t>(left) : plan.units;
        const std::uint32_t turn = ++sequence % 2 * plan.half;
        wait.word = exchange_word(sequence, request.digest);
        // Of a unit at a position of a stage.
        const auto place = [&](unsigned number, std::uint32_t position, std::uint32_t unit) {
            return turn + (plan.parts[number].first + position) * distance + unit * unit_packets;
        };
        const std::uint32_t begin = share.warp * team.teams;
        DCUDA_NO_UNROLL
        for (std::uint32_t unit = begin + team.number;
             Phase != exchange_phase::finish && team.number < team.teams && unit < count; unit += teams)
            send_unit<unit_packets>(state, plan, plan.parts[0], team.thread, team.width,
                                    place(0, plan.parts[0].position, unit), values.load(first + unit), wait.word);
        if constexpr (std::is_same_v<Group, lead_warp>)
            if (Phase != exchange_phase::finish && plan.parts[0].end != plan.parts[0].far_end)
                exec::far(send_chunk<Values>)(warp, state, wait, values, first, count,
                                              place(0, plan.parts[0].position, 0));
        DCUDA_NO_UNROLL
        for (std::uint32_t pass = begin; Phase != exchange_phase::start && going && pass < count; pass += teams) {
            const std::uint32_t unit = pass + team.number;
            wait.has_unit = team.number < team.teams && unit < count;
            value_unit value{};
            if (wait.has_unit) value = values.load(first + unit);
            DCUDA_NO_UNROLL
            for (unsigned number = 0; going && number < plan.stages; ++number) {
                await_stage(wait, number);
                wait.slot = plan.slot + place(number, 0, unit);
                wait.place = place(number, wait.position, unit);
                if (number == 0)
                    wait.far_targets = 0; // they have it
                else if (wait.has_unit)
                    send_unit<unit_packets>(state, plan, plan.parts[number], team.thread, team.width, wait.place, value,
                                            wait.word);
                going = exec::far(receive_unit<unit_packets, Group, Values>)(warp, state, wait, value, values);
            }
            // In place a thread overwrites what the others of its team have loaded.
            sync(warp);
            if (going && wait.has_unit) values.store(first + unit, value, team);
        }
    }
    return going;
}

// The plan for exchanges by numbers, or those for all others. False if there is no room for them. The leader.
DCUDA_DEVICE bool make_plans(lone_thread leader, const rank_state& state, communicator_record& comm, bool by_number) {
    return make_plan(leader, state, comm, by_number) &&
           (by_number || comm.shape.has_leaders == 0 || make_leader_plan(leader, state, comm));
}

// Whether members can exchange values there; else the run ends. The lead warp.
DCUDA_COLD bool prepare_exchange(lead_warp warp, shared_state shared, communicator number, operation where,
                                 bool by_number) {
    rank_state& state = shared.get();
    communicator_record* const comm = find_communicator(state, number);
    const bool is_started = comm != nullptr && comm->started != 0;
    if (comm != nullptr && !is_started && comm->plan_of_array(by_number).stages != 0) return true;
    sync(warp);
    bool is_ready = false;
    if (warp.leads()) {
        const lone_thread leader = exec::lead_access::alone();
        const auto report = [&](fault kind, std::uint32_t target, std::uint32_t size, std::uint32_t limit) {
            report_fault(leader, state, kind, where, 0, target, size, 0, limit);
        };
        const std::uint32_t too_late = comm == nullptr          ? no_rank
                                       : is_started             ? no_rank
                                       : comm->shape.units != 0 ? no_rank
                                                                : find_shape(leader, state, *comm);
        if (comm == nullptr)
            report(fault::communicator, static_cast<std::uint32_t>(number), 0, 0);
        else if (is_started)
            report(fault::started, static_cast<std::uint32_t>(number), 0, 0);
        else if (too_late != no_rank)
            report(fault::late_process, too_late, 0, exchange_processes);
        else if (by_number && comm->size > most_by_number)
            report(fault::too_many_members, 0, comm->size, most_by_number);
        else if (!make_plans(leader, state, *comm, by_number))
            report(fault::communicators, static_cast<std::uint32_t>(number), comm->size, max_communicators);
        else
            is_ready = true;
    }
    sync(warp);
    return any(warp, is_ready);
}

} // namespace dcuda::detail
