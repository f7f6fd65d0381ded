// SPDX-License-Identifier: BSD-3-Clause
// The shape of a communicator's exchanges, and what a rank does in them, worked out in advance: exchange.hpp.
#pragma once

#include "dcuda/detail/ops/rank_state.hpp"

namespace dcuda::detail {

DCUDA_DEVICE unsigned lowest_of(std::uint64_t bits) {
    const auto low = static_cast<unsigned>(bits);
    return low != 0 ? lowest(low) : 32 + lowest(static_cast<unsigned>(bits >> 32));
}

// The smallest power of two that is not smaller.
DCUDA_DEVICE unsigned power_above(unsigned number) { return number <= 1 ? 1 : 2u << highest(number - 1); }

// --- Shapes ---------------------------------------------------------------------------------------------------------

// For how many positions a slot needs room, in exchanges by number as well.
DCUDA_DEVICE std::uint32_t slot_positions(const exchange_shape& shape, std::uint32_t size) {
    const std::uint32_t positions = shape.positions();
    return size <= most_by_number && size > positions ? size : positions;
}

// Whether the ranks of a process are reached over a network only.
DCUDA_DEVICE bool is_remote(const rank_state& state, std::uint32_t process) {
    return state.device.peers[process].counters == nullptr;
}

// Works out the communicator's shape for this rank. The world rank of a member whose process comes too late for that,
// or no_rank. The leader.
DCUDA_COLD std::uint32_t find_shape(lone_thread, const rank_state& state, communicator_record& comm) {
    const std::uint32_t ranks = state.device.ranks_per_device;
    exchange_shape shape{};
    std::uint32_t begin = 0, most = 0, least = UINT32_MAX;
    for (std::uint32_t process = 0; process < state.device.process_count; ++process) {
        const std::uint32_t end = comm.members_before(process + 1, ranks), count = end - begin;
        if (count != 0) {
            if (process >= exchange_processes) return comm.world_rank_by_process(begin);
            if (is_remote(state, process)) shape.is_networked = 1;
            if (process == state.device.process_index) {
                shape.before = begin;
                shape.members = count;
                shape.device = shape.devices;
                if (comm.by_process == nullptr)
                    shape.member = (state.world_rank - comm.first_rank) / comm.stride - begin;
                else
                    while (comm.by_process[begin + shape.member] != state.world_rank) ++shape.member;
            }
            shape.processes |= std::uint64_t{1} << process;
            ++shape.devices;
            most = most < count ? count : most;
            least = least < count ? least : count;
        }
        begin = end;
    }
    shape.is_even = most == least ? 1 : 0;
    shape.width = power_above(most);
    shape.rows = (most + exchange_row - 1) / exchange_row;
    for (std::uint64_t left = shape.processes; left != 0; left &= left - 1)
        if ((state.device.peers[lowest_of(left)].remote & shape.processes) != 0) shape.spans_network = 1;
    const bool many = most >= communicators_of(state).memory.leaders_from;
    shape.has_leaders = (many || shape.spans_network != 0) && !shape.is_flat() ? 1 : 0;
    shape.units = comm.slots_packets / (2 * unit_packets * slot_positions(shape, comm.size));
    comm.shape = shape;
    return no_rank;
}

// Members, as numbers in the order of processes: every `step`-th of those from `first` to `end`.
struct member_range {
    std::uint32_t first, end, step;
};

// One stage of an exchange, as one member sees it.
struct exchange_stage {
    enum class of { members, rows, devices, numbers } kind;
    std::uint32_t first;     // of its positions in the slots
    std::uint32_t positions; // that come to this member
    std::uint32_t position;  // of this member

    DCUDA_DEVICE static exchange_stage make(const communicator_record& comm, bool by_number, unsigned number) {
        const exchange_shape& shape = comm.shape;
        if (by_number) return {of::numbers, 0, comm.size, comm.number};
        if (shape.is_flat())
            return {of::members, 0, shape.devices * shape.width, shape.device * shape.width + shape.member};
        if (number == 0)
            return {of::members, 0, row_members(shape, shape.member / exchange_row), shape.member % exchange_row};
        if (number == 1 && shape.rows > 1)
            return {of::rows, shape.row_positions(), rows_of_device(shape), shape.member / exchange_row};
        return {of::devices, shape.row_positions() + shape.column_positions(), shape.devices, shape.device};
    }
    DCUDA_DEVICE static unsigned stages(const exchange_shape& shape, bool by_number) {
        if (by_number || shape.is_flat()) return 1;
        return 1 + (shape.rows > 1 ? 1 : 0) + (shape.devices > 1 ? 1 : 0);
    }
    DCUDA_DEVICE static std::uint32_t rows_of_device(const exchange_shape& shape) {
        return (shape.members + exchange_row - 1) / exchange_row;
    }
    DCUDA_DEVICE static std::uint32_t row_members(const exchange_shape& shape, std::uint32_t row) {
        const std::uint32_t left = shape.members - row * exchange_row;
        return left < exchange_row ? left : exchange_row;
    }

    // The members of a device.
    DCUDA_DEVICE static member_range of_device(const rank_state& state, const communicator_record& comm,
                                               std::uint32_t device) {
        const exchange_shape& shape = comm.shape;
        if (device == shape.device) return {shape.before, shape.before + shape.members, 1};
        if (shape.is_even != 0) return {device * shape.members, (device + 1) * shape.members, 1};
        std::uint64_t left = shape.processes;
        for (std::uint32_t before = device; before != 0; --before) left &= left - 1;
        const std::uint32_t process = lowest_of(left), ranks = state.device.ranks_per_device;
        return {comm.members_before(process, ranks), comm.members_before(process + 1, ranks), 1};
    }

    // To whom this member sends its value because of that position. Empty: to nobody.
    DCUDA_DEVICE member_range targets(const rank_state& state, const communicator_record& comm,
                                      std::uint32_t other) const {
        const exchange_shape& shape = comm.shape;
        if (kind == of::numbers) return {other, other + 1, 1};
        if (kind == of::rows) {
            const std::uint32_t row = shape.before + other * exchange_row;
            return {row + shape.member % exchange_row, row + row_members(shape, other),
                    row_members(shape, shape.member / exchange_row)};
        }
        if (kind == of::devices) {
            const member_range all = of_device(state, comm, other);
            return {all.first + shape.member, all.end, shape.members};
        }
        if (!shape.is_flat()) {
            const std::uint32_t member = shape.before + shape.member / exchange_row * exchange_row + other;
            return {member, member + 1, 1};
        }
        const member_range all = of_device(state, comm, other / shape.width);
        const std::uint32_t member = all.first + other % shape.width;
        return {member, member < all.end ? member + 1 : member, 1};
    }

    // Who sends the value at that position to this member, if somebody does.
    DCUDA_DEVICE std::uint32_t source(const rank_state& state, const communicator_record& comm,
                                      std::uint32_t other) const {
        const exchange_shape& shape = comm.shape;
        if (kind == of::rows)
            return shape.before + other * exchange_row + shape.member % exchange_row % row_members(shape, other);
        if (kind != of::devices) return targets(state, comm, other).first;
        const member_range all = of_device(state, comm, other);
        return all.first + shape.member % (all.end - all.first);
    }
    DCUDA_DEVICE std::uint32_t world_rank(const communicator_record& comm, std::uint32_t member) const {
        return kind == of::numbers ? comm.world_rank_of(member) : comm.world_rank_by_process(member);
    }
};

// --- Plans ----------------------------------------------------------------------------------------------------------

// Where the packets for a rank lie in this communicator. For one that is reached over a network: as its own process
// addresses them.
DCUDA_DEVICE packet* slot_of(const rank_state& state, const communicator_record& comm, std::uint32_t world_rank) {
    const auto [process, rank] = locate(state, world_rank);
    return reinterpret_cast<packet*>(state.device.peers[process].barriers) + communicators_of(state).memory.slots +
           comm.slots + std::size_t(rank) * comm.slots_stride;
}

// A place for so many words in the rank's memory for lists: the first gap between others. False if there is none. The
// leader.
DCUDA_COLD bool find_list_place(const communicator_table& table, std::uint32_t words, list_range& found) {
    std::uint32_t begin = 0;
    for (bool moved = true; moved;) {
        moved = false;
        const auto avoid = [&](const list_range& other) {
            if (other.begin >= begin + words || begin >= other.end) return;
            begin = (other.end + 1) / 2 * 2; // pointers are aligned
            moved = true;
        };
        for (const communicator_record& each : table.records) {
            if (each.size == 0) continue;
            avoid(each.list);
            for (const list_range& of_plan : each.plan_lists) avoid(of_plan);
        }
    }
    found = {begin, begin + words};
    return begin + words <= table.memory.list_words;
}

DCUDA_DEVICE std::uint16_t narrow(std::uint32_t value) { return static_cast<std::uint16_t>(value); }

// What an ordered exchange does in a stage. Stages in which only ranks of one device take part order for that. But what
// a rank itself has stored on other devices it releases for the system in the first stage, since PTX does not promise
// that another thread's release makes up for that; and it acquires so in the last one.
DCUDA_DEVICE std::uint16_t order_of_stage(const exchange_shape& shape, bool is_first, bool is_last, bool spans_devices,
                                          bool sends) {
    const bool has_devices = shape.devices > 1;
    return narrow((is_first || sends ? stage_releases : 0) |
                  (has_devices && (is_first || spans_devices) ? stage_releases_far : 0) |
                  (has_devices && (is_last || spans_devices) ? stage_acquires_far : 0));
}

// Works out the plan for exchanges of this communicator, whose shape is known. False if there is no room for it. The
// leader.
DCUDA_COLD bool make_plan(lone_thread, const rank_state& state, communicator_record& comm, bool by_number) {
    const communicator_table& table = communicators_of(state);
    const plan_kind kind = by_number ? plan_by_number : plan_for_all;
    exchange_plan plan{};
    plan.slot = slot_of(state, comm, state.world_rank);
    plan.half = comm.slots_packets / 2;
    plan.units = comm.shape.units;
    plan.most_positions = by_number ? comm.size : comm.shape.most_positions();
    const unsigned stages = exchange_stage::stages(comm.shape, by_number);
    // First how many targets there are, then which.
    for (const bool is_known : {false, true}) {
        std::uint32_t count = 0;
        auto* const targets = const_cast<exchange_target*>(plan.targets);
        for (unsigned number = 0; number < stages; ++number) {
            const exchange_stage stage = exchange_stage::make(comm, by_number, number);
            exchange_plan::part& part = plan.parts[number];
            const bool is_last = number + 1 == stages;
            part = {narrow(stage.first),
                    narrow(stage.positions),
                    narrow(stage.position),
                    narrow(stage.position),
                    narrow(count),
                    0,
                    0,
                    order_of_stage(comm.shape, number == 0, is_last, is_last, true)};
            for (const bool is_far : {false, true}) {
                for (std::uint32_t other = 0; other < stage.positions; ++other) {
                    const member_range all = stage.targets(state, comm, other);
                    if (other < 64 && all.first < all.end) plan.present |= std::uint64_t{1} << other;
                    if (other == stage.position) continue;
                    for (std::uint32_t member = all.first; member < all.end; member += all.step) {
                        const std::uint32_t world_rank = stage.world_rank(comm, member);
                        if (is_remote(state, locate(state, world_rank).process) != is_far) continue;
                        if (is_known) targets[count] = {slot_of(state, comm, world_rank), world_rank};
                        ++count;
                    }
                }
                (is_far ? part.far_end : part.end) = narrow(count);
            }
        }
        if (is_known) break;
        list_range& list = comm.plan_lists[kind];
        if (!find_list_place(table, count * sizeof(exchange_target) / sizeof(std::uint32_t), list)) {
            list = {};
            return false;
        }
        plan.targets = reinterpret_cast<const exchange_target*>(table.lists + list.begin);
    }
    plan.stages = stages;
    comm.plans[kind] = plan;
    return true;
}

// --- By leaders -----------------------------------------------------------------------------------------------------
// The first member of a row combines the values of the row, the first member of a device those of its rows, these
// exchange the devices' values, and the result goes back in the same way. Positions in the slots are those of rows and
// devices, as when everybody exchanges with everybody. What comes back has the leader's own position, the first one,
// which nobody else writes to then.

enum class leader_stage : unsigned { to_row, to_device, devices, from_device, from_row };

// Without other devices the stage among them is left out.
DCUDA_DEVICE leader_stage leader_stage_of(const exchange_shape& shape, unsigned number) {
    return static_cast<leader_stage>(number < 2 || shape.devices > 1 ? number : number + 1);
}

// Who sends the value at that position to this member.
DCUDA_DEVICE std::uint32_t source_of_leaders(const rank_state& state, const communicator_record& comm, unsigned number,
                                             std::uint32_t position) {
    const exchange_shape& shape = comm.shape;
    const std::uint32_t row = shape.before + shape.member / exchange_row * exchange_row;
    switch (leader_stage_of(shape, number)) {
    case leader_stage::to_row:
        return comm.world_rank_by_process(row + position);
    case leader_stage::to_device:
        return comm.world_rank_by_process(shape.before + position * exchange_row);
    case leader_stage::devices:
        return comm.world_rank_by_process(exchange_stage::of_device(state, comm, position).first);
    case leader_stage::from_device:
        return comm.world_rank_by_process(shape.before);
    default:
        return comm.world_rank_by_process(row);
    }
}

// Works out the plan for exchanges by leaders. False if there is no room for it. The leader.
DCUDA_COLD bool make_leader_plan(lone_thread, const rank_state& state, communicator_record& comm) {
    const communicator_table& table = communicators_of(state);
    const exchange_shape& shape = comm.shape;
    const std::uint32_t number_of_row = shape.member / exchange_row, place = shape.member % exchange_row;
    const std::uint32_t row = shape.before + number_of_row * exchange_row, own = shape.before + shape.member;
    const std::uint32_t row_end = row + exchange_stage::row_members(shape, number_of_row);
    const std::uint32_t rows = exchange_stage::rows_of_device(shape);
    const bool leads_row = place == 0, leads_device = shape.member == 0;
    const std::uint32_t most = (leads_row ? row_end - row : 1) + (leads_device ? rows + shape.devices : 1);
    list_range& list = comm.plan_lists[plan_by_leaders];
    if (!find_list_place(table, most * sizeof(exchange_target) / sizeof(std::uint32_t), list)) {
        list = {};
        return false;
    }
    auto* const targets = reinterpret_cast<exchange_target*>(table.lists + list.begin);
    exchange_plan plan{};
    plan.slot = slot_of(state, comm, state.world_rank);
    plan.targets = targets;
    plan.half = comm.slots_packets / 2;
    plan.units = shape.units;
    plan.stages = shape.devices > 1 ? 5 : 4;
    plan.most_positions = shape.most_positions();
    plan.by_leaders = 1;
    std::uint32_t count = 0;
    DCUDA_NO_UNROLL
    for (unsigned number = 0; number < plan.stages; ++number) {
        const leader_stage stage = leader_stage_of(shape, number);
        const bool is_of_row = stage == leader_stage::to_row || stage == leader_stage::from_row,
                   is_of_devices = stage == leader_stage::devices, goes_back = stage > leader_stage::devices;
        // Who receives, and how many; to whom this member sends: one, or every so many of some.
        std::uint32_t positions = 0, first = 0, end = 0, step = 1;
        if (stage == leader_stage::to_row) {
            if (leads_row) positions = row_end - row;
            first = row;
            end = leads_row ? row : row + 1;
        } else if (stage == leader_stage::to_device) {
            if (leads_device) positions = rows;
            first = shape.before;
            end = leads_row && !leads_device ? first + 1 : first;
        } else if (is_of_devices) {
            if (leads_device) end = positions = shape.devices;
        } else if (stage == leader_stage::from_device) {
            positions = leads_row && !leads_device ? 1 : 0;
            first = own + exchange_row;
            end = leads_device ? shape.before + shape.members : 0;
            step = exchange_row;
        } else {
            positions = leads_row ? 0 : 1;
            first = own + 1;
            end = leads_row ? row_end : 0;
        }
        exchange_plan::part& part = plan.parts[number];
        const std::uint32_t position = is_of_row ? place : is_of_devices ? shape.device : number_of_row;
        part.first = narrow(is_of_row       ? 0
                            : is_of_devices ? shape.row_positions() + shape.column_positions()
                                            : shape.row_positions());
        part.positions = narrow(positions);
        part.position = narrow(goes_back ? 1 : position);
        part.place = narrow(goes_back ? 0 : position);
        part.begin = narrow(count);
        DCUDA_NO_UNROLL
        for (unsigned is_far = 0; is_far < 2; ++is_far) {
            for (std::uint32_t other = first; other < end; other += step) {
                if (is_of_devices && other == shape.device) continue;
                const std::uint32_t member =
                    is_of_devices ? exchange_stage::of_device(state, comm, other).first : other;
                const std::uint32_t world_rank = comm.world_rank_by_process(member);
                if (is_remote(state, locate(state, world_rank).process) != (is_far != 0)) continue;
                targets[count++] = {slot_of(state, comm, world_rank), world_rank};
            }
            (is_far != 0 ? part.far_end : part.end) = narrow(count);
        }
        // The last that it receives comes back, or from other devices.
        part.order = order_of_stage(shape, number == 0, goes_back, is_of_devices, part.begin != part.far_end);
    }
    comm.plans[plan_by_leaders] = plan;
    return true;
}

} // namespace dcuda::detail
