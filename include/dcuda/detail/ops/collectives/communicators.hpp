// SPDX-License-Identifier: BSD-3-Clause
// Communicators that programs make: split, free, and barriers of their members.
//
// Nobody but the ranks takes part in a split. Each tells its color and key to every device that has ranks of the parent
// communicator, in a table of the device; after a barrier all read what the others have said, and each works out the
// same: who is in its communicator, in which order, and in which slot and which part of the pools it lies. A second
// barrier ends the split: slots are cleared before anybody sends a packet there, and entries are read before a next
// split changes them.
#pragma once

#include "dcuda/detail/ops/collectives/barrier.hpp"
#include "dcuda/detail/ops/collectives/exchange.hpp"

namespace dcuda::detail {

// --- Barriers -------------------------------------------------------------------------------------------------------

// Nothing but the members' order: in place of values.
struct no_values {
    DCUDA_DEVICE value_unit combine(const value_unit& a, const value_unit&) const { return a; }
};

// complete_own_traffic() for the lead warp. Whether the run goes on.
DCUDA_DEVICE bool complete_before_meeting(const lead_warp& warp, rank_state& state) {
    const bool going = !warp.leads() || complete_own_traffic(exec::lead_access::alone(), state);
    sync(warp);
    return any(warp, warp.leads() && going);
}

// The members meet. What they had sent each other before has been taken then. Whether the run goes on. The lead warp,
// after the block's barrier.
DCUDA_COLD bool meet_members(lead_warp warp, shared_state shared, communicator number, operation where) {
    rank_state& state = shared.get();
    if (!prepare_exchange(warp, state, number, where, false)) return false;
    // Other members than their targets may look for them.
    if (!complete_quiet_puts(warp, state, where)) return false;
    if (!complete_before_meeting(warp, state)) return false;
    value_unit nothing{};
    const exchange_request request{where, number, exchange_digest(where, 0), false, 1};
    if (!exchange_one<1, true>(warp, state, *find_communicator(state, number), request, nothing, no_values{}))
        return false;
    exec::far(answer_sources<lead_warp>)(warp, state);
    return load_in_block(&state.ended) == 0;
}

// All threads of the rank.
DCUDA_DEVICE void cross_members(rank_state& state, communicator comm, operation where) {
    state.group().sync();
    leave(exec::decide(state.group(), state.decision, [&](const lead_warp& warp) {
        return exec::far(meet_members)(warp, state, comm, where) ? 1u : 0u;
    }));
}

// A barrier of any communicator. All threads of the rank.
DCUDA_COLD void cross_any(shared_state shared, communicator comm, operation where) {
    rank_state& state = shared.get();
    if (comm == world || comm == device)
        cross_barrier_seldom(state, collective{operation::barrier, comm}.index());
    else
        cross_members(state, comm, where);
}

DCUDA_DEVICE void barrier(rank_state& state, communicator comm) {
    if (static_cast<std::uint32_t>(comm) < communicator_count)
        cross_barrier(state, collective{operation::barrier, comm}.index());
    else
        exec::far(cross_any)(state, comm, operation::barrier);
}

// --- Numbers --------------------------------------------------------------------------------------------------------

DCUDA_DEVICE int comm_rank(const rank_state& state, communicator comm) {
    if (static_cast<std::uint32_t>(comm) < communicator_count)
        return static_cast<int>(state.device.communicators[static_cast<std::uint32_t>(comm)].rank_of(state.world_rank));
    const communicator_record* const found = find_communicator(state, comm);
    return found != nullptr ? static_cast<int>(found->number) : -1;
}

DCUDA_DEVICE int comm_size(rank_state& state, communicator comm) { return static_cast<int>(size_of(state, comm)); }

// The number in one communicator of the member that has this number in another; -1 if it is no member of both, or this
// rank is not. Any single thread.
DCUDA_COLD int translate(shared_state shared, communicator from, int number, communicator other) {
    rank_state& state = shared.get();
    const communicator_record *const source = find_communicator(state, from), *const target =
                                                                                  find_communicator(state, other);
    if (source == nullptr || target == nullptr || static_cast<std::uint32_t>(number) >= source->size) return -1;
    const std::uint32_t world_rank = source->world_rank_of(static_cast<std::uint32_t>(number));
    if (target->members == nullptr) {
        const std::uint32_t distance = world_rank - target->first_rank;
        const bool is_member = world_rank >= target->first_rank && distance % target->stride == 0 &&
                               distance / target->stride < target->size;
        return is_member ? static_cast<int>(distance / target->stride) : -1;
    }
    for (std::uint32_t member = 0; member < target->size; ++member)
        if (target->members[member] == world_rank) return static_cast<int>(member);
    return -1;
}

// --- Split ----------------------------------------------------------------------------------------------------------

// The entries of all ranks, on this device or on another: see slot_of.
DCUDA_DEVICE split_entry* split_entries(const rank_state& state, std::uint32_t process) {
    auto* const base = reinterpret_cast<packet*>(state.device.peers[process].barriers);
    return reinterpret_cast<split_entry*>(base + communicators_of(state).memory.entries);
}

// Puts this rank's entry to the devices with members that are reached over a network. The lead warp.
//
// ORDER: as any put: the barrier that follows waits until it has arrived.
DCUDA_COLD void put_entry(lead_warp warp, shared_state shared, const communicator_record& comm) {
    rank_state& state = shared.get();
    const std::uint32_t ranks = state.device.ranks_per_device;
    const auto* const own = split_entries(state, state.device.process_index) + state.world_rank;
    for (std::uint64_t left = comm.shape.processes; left != 0; left &= left - 1) {
        const std::uint32_t process = lowest_of(left);
        if (!is_remote(state, process)) continue;
        const std::uint32_t member = comm.world_rank_by_process(comm.members_before(process, ranks));
        const auto home = reinterpret_cast<std::uintptr_t>(split_entries(state, process) + state.world_rank);
        store_commands(
            warp, state,
            {state.device_rank, member, no_tag, home, reinterpret_cast<const std::byte*>(own), sizeof *own, false},
            false, 0);
    }
}

// Tells what this rank brings to a split. False if the run ends. The lead warp.
DCUDA_COLD bool publish_split(lead_warp warp, shared_state shared, communicator parent, int color, int key) {
    rank_state& state = shared.get();
    if (!prepare_exchange(warp, state, parent, operation::split, false)) return false;
    const communicator_record& comm = *find_communicator(state, parent);
    const communicator_table& table = communicators_of(state);
    const split_entry entry{color, key, comm.number, table.uses, table.slots, table.blocks};
    for (std::uint32_t process = warp.index; process < state.device.process_count; process += warp.count)
        if (process < exchange_processes && (comm.shape.processes >> process & 1) != 0 && !is_remote(state, process))
            split_entries(state, process)[state.world_rank] = entry;
    // What is written to other devices a barrier of the world has still to release.
    if (warp.leads() && comm.shape.devices > 1)
        state.own.of(warp).unreleased |= bit_of(scope::device) | bit_of(scope::system);
    sync(warp);
    if (comm.shape.is_networked != 0) exec::far(put_entry)(warp, state, comm);
    return true;
}

// What a rank learns of its new communicator.
struct split_findings {
    std::uint32_t size = 0, number = 0;
    std::uint32_t least = UINT32_MAX, most = 0; // world ranks
    std::uint32_t uses = 0;
    std::uint64_t slots = (1u << fixed_communicators) - 1, blocks = 0;
};

// The sum of what the threads of the lead warp have found. All of them get it.
DCUDA_DEVICE split_findings add_findings(const lead_warp& warp, const split_findings& own) {
    split_findings all;
    for (unsigned thread = 0; thread < warp.count; ++thread) {
        const auto get = [&](std::uint32_t value) { return broadcast(warp, value, thread); };
        const auto get_wide = [&](std::uint64_t value) {
            return get(static_cast<std::uint32_t>(value)) |
                   static_cast<std::uint64_t>(get(static_cast<std::uint32_t>(value >> 32))) << 32;
        };
        all.size += get(own.size);
        all.number += get(own.number);
        const std::uint32_t least = get(own.least), most = get(own.most), uses = get(own.uses);
        all.least = least < all.least ? least : all.least;
        all.most = most > all.most ? most : all.most;
        all.uses = uses > all.uses ? uses : all.uses;
        all.slots |= get_wide(own.slots);
        all.blocks |= get_wide(own.blocks);
    }
    return all;
}

// A split, as the threads of one rank's lead warp read it.
struct split_reader {
    const communicator_record& parent;
    const split_entry* entries;
    std::uint32_t ranks_per_process;

    // Whether one member comes before another in the order of keys, then of numbers in the parent communicator.
    DCUDA_DEVICE static bool is_before(const split_entry& a, const split_entry& b) {
        return a.key != b.key ? a.key < b.key : a.number < b.number;
    }
    template <class Visit>
    DCUDA_DEVICE void for_each(unsigned first, unsigned step, const Visit& visit) const {
        for (std::uint32_t number = first; number < parent.size; number += step) {
            const std::uint32_t world_rank = parent.world_rank_of(number);
            visit(world_rank, entries[world_rank]);
        }
    }

    DCUDA_DEVICE split_findings find(const lead_warp& warp, const split_entry& own) const {
        split_findings found;
        for_each(warp.index, warp.count, [&](std::uint32_t world_rank, const split_entry& entry) {
            found.uses = entry.uses > found.uses ? entry.uses : found.uses;
            found.slots |= entry.slots;
            found.blocks |= entry.blocks;
            if (entry.color != own.color) return;
            ++found.size;
            found.number += is_before(entry, own) ? 1 : 0;
            found.least = world_rank < found.least ? world_rank : found.least;
            found.most = world_rank > found.most ? world_rank : found.most;
        });
        return add_findings(warp, found);
    }

    // Whether the members' world ranks have one distance, and their order.
    DCUDA_DEVICE bool is_regular(const lead_warp& warp, const split_findings& found, std::int32_t color,
                                 std::uint32_t stride) const {
        // With distances that are multiples of the stride this fills every place between the first and the last.
        bool is_so = found.most - found.least == stride * (found.size - 1);
        for_each(warp.index, warp.count, [&](std::uint32_t world_rank, const split_entry& entry) {
            if (entry.color != color) return;
            // The next member, if all of this holds.
            is_so = is_so && (world_rank - found.least) % stride == 0 &&
                    (world_rank == found.most || is_before(entry, entries[world_rank + stride]));
        });
        return !any(warp, !is_so);
    }

    // Writes the members' world ranks, in their order and in that of processes, and their numbers in the latter.
    DCUDA_DEVICE void list(const lead_warp& warp, std::int32_t color, std::uint32_t size,
                           std::uint32_t* members) const {
        for_each(warp.index, warp.count, [&](std::uint32_t world_rank, const split_entry& entry) {
            if (entry.color != color) return;
            std::uint32_t number = 0, place = 0;
            const std::uint32_t process = world_rank / ranks_per_process;
            for_each(0, 1, [&](std::uint32_t other_rank, const split_entry& other) {
                if (other.color != color) return;
                const bool before = is_before(other, entry);
                const std::uint32_t other_process = other_rank / ranks_per_process;
                number += before ? 1 : 0;
                place += other_process < process || (other_process == process && before) ? 1 : 0;
            });
            members[number] = world_rank;
            members[size + place] = world_rank;
            members[2 * size + place] = number;
        });
    }
};

// PERF: functions of their own, so that kernels need not have the registers of all.
DCUDA_COLD split_findings find_members(lead_warp warp, const split_reader& reader, const split_entry& own) {
    return reader.find(warp, own);
}
DCUDA_COLD bool are_regular(lead_warp warp, const split_reader& reader, const split_findings& found, std::int32_t color,
                            std::uint32_t stride) {
    return reader.is_regular(warp, found, color, stride);
}
DCUDA_COLD void list_members(lead_warp warp, const split_reader& reader, std::int32_t color, std::uint32_t size,
                             std::uint32_t* members) {
    reader.list(warp, color, size, members);
}

// Bits of so many blocks of a pool, from one on.
DCUDA_DEVICE std::uint64_t bits_of_blocks(std::uint32_t first, std::uint32_t count) {
    return (count == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1) << first;
}

// So many blocks of a pool that are free, one after the other: the first, or pool_blocks.
DCUDA_DEVICE std::uint32_t find_blocks(std::uint64_t used, std::uint32_t count) {
    for (std::uint32_t first = 0; first + count <= pool_blocks; ++first)
        if ((used & bits_of_blocks(first, count)) == 0) return first;
    return pool_blocks;
}

// A slot of a new communicator is meant for values of so many units, as long as few blocks of the pool are in use.
// PERF: 1 KiB, which takes one flight.
inline constexpr std::uint32_t usual_units = 43;
inline constexpr unsigned few_blocks = pool_blocks / 4;

// Finds room for the packets of a new communicator, whose members and shape are known: the same on all of them. False
// if there is none. The leader.
DCUDA_COLD bool find_slots(lone_thread leader, rank_state& state, communicator_record& comm, std::uint64_t used) {
    const exchange_memory& memory = communicators_of(state).memory;
    comm.slots_packets = 0;
    if (find_shape(leader, state, comm) != no_rank) return false;
    const std::uint32_t each = 2 * unit_packets * slot_positions(comm.shape, comm.size);
    const auto blocks_for = [&](std::uint32_t units) {
        return (units * each + memory.block_packets - 1) / memory.block_packets;
    };
    const std::uint32_t least = blocks_for(1), usual = blocks_for(usual_units), most = pool_blocks / 8;
    const bool are_few = bits_in(static_cast<unsigned>(used)) + bits_in(static_cast<unsigned>(used >> 32)) < few_blocks;
    std::uint32_t blocks = !are_few ? least : usual < most ? usual : most;
    if (blocks < least) blocks = least;
    for (; blocks >= least; --blocks) {
        comm.first_block = find_blocks(used, blocks);
        if (comm.first_block == pool_blocks) continue;
        comm.blocks = blocks;
        comm.slots = memory.pool + comm.first_block * memory.block_packets;
        comm.slots_stride = pool_blocks * memory.block_packets;
        comm.slots_packets = blocks * memory.block_packets;
        comm.bounce_from = bounce_from_of(comm.shape, comm.size, memory.bounce_from);
        return find_shape(leader, state, comm) == no_rank;
    }
    return false;
}

// Makes the rank's communicator, when all have told. Its number, as post_answer leaves it. The lead warp.
DCUDA_COLD unsigned make_communicator(lead_warp warp, shared_state shared, communicator parent) {
    rank_state& state = shared.get();
    communicator_table& table = communicators_of(state);
    const split_reader reader{*find_communicator(state, parent), split_entries(state, state.device.process_index),
                              state.device.ranks_per_device};
    const split_entry own = reader.entries[state.world_rank];
    const split_findings found = exec::far(find_members)(warp, reader, own);
    sync(warp); // all have read the table that now changes
    if (warp.leads()) table.uses = found.uses + 1;
    if (own.color < 0) return 1 + post_answer(warp, state, static_cast<std::uint32_t>(communicator::none));

    const std::uint32_t slot = lowest_of(~found.slots);
    const std::uint32_t stride = found.size == 1 ? 1 : (found.most - found.least) / (found.size - 1);
    const bool is_regular = exec::far(are_regular)(warp, reader, found, own.color, stride);
    const std::uint32_t list_words = is_regular ? 0 : 3 * found.size;
    bool fits = ~found.slots != 0;
    list_range list{};
    if (warp.leads() && fits) fits = find_list_place(table, list_words, list);
    fits = broadcast(warp, fits ? 1 : 0, 0) != 0;
    std::uint32_t* const members = table.lists + broadcast(warp, list.begin, 0);
    if (fits && !is_regular) exec::far(list_members)(warp, reader, own.color, found.size, members);
    sync(warp);
    communicator_record& record = table.records[fits ? slot : 0];
    if (fits && warp.leads()) {
        communicator_record made{};
        made.size = found.size;
        made.number = found.number;
        made.first_rank = found.least;
        made.stride = stride;
        made.members = is_regular ? nullptr : members;
        made.by_process = is_regular ? nullptr : members + found.size;
        made.numbers = is_regular ? nullptr : members + 2 * found.size;
        made.uses = found.uses % communicator_uses;
        made.list = list;
        made.sequence = state.device.counter_start;
        fits = find_slots(exec::lead_access::alone(), state, made, found.blocks);
        if (fits) {
            record = made;
            table.slots |= std::uint64_t{1} << slot;
            table.blocks |= bits_of_blocks(made.first_block, made.blocks);
        }
    }
    sync(warp);
    if (!any(warp, warp.leads() && fits)) {
        if (warp.leads())
            report_fault(exec::lead_access::alone(), state, fault::communicators, operation::split, 0,
                         static_cast<std::uint32_t>(parent), found.size, bits_in(static_cast<unsigned>(table.slots)),
                         max_communicators);
        return 0;
    }
    clear_slot(warp, slot_of(state, record, state.world_rank), record.slots_packets);
    return 1 + post_answer(warp, state, communicator_number(slot, record.uses));
}

// All threads of the rank, all ranks of the parent communicator.
DCUDA_COLD communicator split(shared_state shared, communicator parent, int color, int key) {
    rank_state& state = shared.get();
    leave(exec::decide(state.group(), state.decision, [&](const lead_warp& warp) {
        return exec::far(publish_split)(warp, state, parent, color, key) ? 1u : 0u;
    }));
    // Not the barrier's words: a member's barrier would pass for its split.
    cross_members(state, parent, operation::split);
    const unsigned made = exec::decide(state.group(), state.decision, [&](const lead_warp& warp) {
        return exec::far(make_communicator)(warp, state, parent);
    });
    leave(made);
    const auto result = static_cast<communicator>(state.answers[made - 1]);
    exec::far(cross_any)(state, parent, operation::split);
    return result;
}

// All threads of the rank, all members.
DCUDA_COLD void free_communicator(shared_state shared, communicator comm) {
    rank_state& state = shared.get();
#if DCUDA_CHECKS
    if (static_cast<std::uint32_t>(comm) < fixed_communicators)
        report_and_leave(state, fault::fixed_communicator, operation::free_communicator, 0,
                         static_cast<std::uint32_t>(comm), 0, 0);
    if (const communicator_record* const record = find_communicator(state, comm);
        record != nullptr && record->windows != 0)
        report_and_leave(state, fault::windows_left, operation::free_communicator, 0, static_cast<std::uint32_t>(comm),
                         record->windows, 0);
#endif
    cross_members(state, comm, operation::free_communicator);
    exec::leader_then_sync(state.group(), [&](lone_thread leader) {
        communicator_table& table = communicators_of(state);
        communicator_record& record = *find_communicator(state, comm);
        table.slots &= ~(std::uint64_t{1} << slot_of_communicator(static_cast<std::uint32_t>(comm)));
        table.blocks &= ~bits_of_blocks(record.first_block, record.blocks);
        record.size = 0;
        for (target_entry& target : state.own.of(leader).targets)
            if (target.key >> 32 == notify_window(comm)) target.key = no_target;
    });
}

} // namespace dcuda::detail
