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
    const bool many = most >= communicators_of(state).memory.leaders_from && comm.size > most_by_number;
    shape.has_leaders = many && !shape.is_flat() ? 1 : 0;
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
    // By leaders, the first members of rows and of devices: to them, among those of devices, and back.
    enum class of { members, rows, devices, numbers, to_row, to_device, leaders, from_device, from_row } kind;
    std::uint32_t first;     // of its positions in the slots
    std::uint32_t positions; // that come to this member
    std::uint32_t position;  // of this member
    std::uint32_t place;     // the position at which others find its value

    DCUDA_DEVICE static exchange_stage make(const communicator_record& comm, exchange_form form, unsigned number) {
        const exchange_shape& shape = comm.shape;
        if (form == exchange_form::numbers) return {of::numbers, 0, comm.size, comm.number, comm.number};
        if (form == exchange_form::leaders) return make_of_leaders(shape, number);
        if (shape.is_flat()) {
            const std::uint32_t position = shape.device * shape.width + shape.member;
            return {of::members, 0, shape.devices * shape.width, position, position};
        }
        const std::uint32_t row = shape.member / exchange_row, place = shape.member % exchange_row;
        if (number == 0) return {of::members, 0, row_members(shape, row), place, place};
        if (number == 1 && shape.rows > 1) return {of::rows, shape.row_positions(), rows_of_device(shape), row, row};
        return {of::devices, shape.row_positions() + shape.column_positions(), shape.devices, shape.device,
                shape.device};
    }
    DCUDA_DEVICE static unsigned stages(const exchange_shape& shape, exchange_form form) {
        if (form == exchange_form::leaders) return shape.devices > 1 ? 5 : 4;
        if (form == exchange_form::numbers || shape.is_flat()) return 1;
        return 1 + (shape.rows > 1 ? 1 : 0) + (shape.devices > 1 ? 1 : 0);
    }
    // Positions are those of rows and of devices; a value that comes back has that of the leader who sends it, the
    // first one, which nobody else uses then.
    DCUDA_DEVICE static exchange_stage make_of_leaders(const exchange_shape& shape, unsigned number) {
        const std::uint32_t row = shape.member / exchange_row, place = shape.member % exchange_row;
        const bool leads_row = place == 0, leads_device = shape.member == 0;
        if (number == 0) return {of::to_row, 0, leads_row ? row_members(shape, row) : 0, place, place};
        if (number == 1)
            return {of::to_device, shape.row_positions(), leads_device ? rows_of_device(shape) : 0, row, row};
        if (number == 2 && shape.devices > 1)
            return {of::leaders, shape.row_positions() + shape.column_positions(), leads_device ? shape.devices : 0,
                    shape.device, shape.device};
        if (number == stages(shape, exchange_form::leaders) - 2)
            return {of::from_device, shape.row_positions(), leads_row && !leads_device ? 1u : 0u, 1, 0};
        return {of::from_row, 0, leads_row ? 0u : 1u, 1, 0};
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

    // Whether members of other devices take part.
    DCUDA_DEVICE bool spans_devices(const exchange_shape& shape) const {
        return shape.devices > 1 &&
               (kind == of::members ? shape.is_flat()
                                    : kind == of::devices || kind == of::numbers || kind == of::leaders);
    }

    // Of how many groups of members this one's targets are. By leaders, of one; else one for each position.
    DCUDA_DEVICE std::uint32_t groups() const {
        const bool has_one =
            kind == of::to_row || kind == of::to_device || kind == of::from_device || kind == of::from_row;
        return has_one ? 1 : positions;
    }
    // To whom of a group this member sends its value: what comes with numbers `first`, `first` + `step`, to before
    // `end`. Empty: to nobody.
    DCUDA_DEVICE member_range targets(const rank_state& state, const communicator_record& comm,
                                      std::uint32_t other) const {
        const exchange_shape& shape = comm.shape;
        const std::uint32_t row = shape.before + shape.member / exchange_row * exchange_row,
                            own = shape.before + shape.member;
        if (kind == of::numbers) return {other, other + 1, 1};
        if (kind == of::to_row) return {row, own == row ? row : row + 1, 1};
        if (kind == of::to_device)
            return {shape.before, own != row || own == shape.before ? shape.before : shape.before + 1, 1};
        if (kind == of::from_device)
            return {own + exchange_row, own == shape.before ? shape.before + shape.members : 0, exchange_row};
        if (kind == of::from_row)
            return {own + 1, own == row ? row + row_members(shape, shape.member / exchange_row) : 0, 1};
        if (kind == of::leaders) {
            const std::uint32_t leader = of_device(state, comm, other).first;
            return {leader, leader + 1, 1};
        }
        if (kind == of::rows) {
            const std::uint32_t begin = shape.before + other * exchange_row;
            return {begin + shape.member % exchange_row, begin + row_members(shape, other),
                    row_members(shape, shape.member / exchange_row)};
        }
        if (kind == of::devices) {
            const member_range all = of_device(state, comm, other);
            return {all.first + shape.member, all.end, shape.members};
        }
        if (!shape.is_flat()) return {row + other, row + other + 1, 1};
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
        const std::uint32_t row = shape.before + shape.member / exchange_row * exchange_row;
        if (kind == of::to_row) return row + other;
        if (kind == of::to_device) return shape.before + other * exchange_row;
        if (kind == of::from_device) return shape.before;
        if (kind == of::from_row) return row;
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
            avoid(each.plan_lists[0]);
            avoid(each.plan_lists[1]);
        }
    }
    found = {begin, begin + words};
    return begin + words <= table.memory.list_words;
}

// Works out the plan for exchanges of this communicator, whose shape is known. False if there is no room for it. The
// leader.
DCUDA_COLD bool make_plan(lone_thread, const rank_state& state, communicator_record& comm, exchange_form form) {
    const communicator_table& table = communicators_of(state);
    exchange_plan plan{};
    plan.slot = slot_of(state, comm, state.world_rank);
    plan.half = comm.slots_packets / 2;
    plan.units = comm.shape.units;
    plan.most_positions = form == exchange_form::numbers ? comm.size : comm.shape.most_positions();
    plan.form = form;
    const unsigned number_of_plan = form == exchange_form::everybody ? 0 : 1;
    const unsigned stages = exchange_stage::stages(comm.shape, form);
    // First how many targets there are, then which.
    for (const bool is_known : {false, true}) {
        std::uint32_t count = 0;
        auto* const targets = const_cast<exchange_target*>(plan.targets);
        for (unsigned number = 0; number < stages; ++number) {
            const exchange_stage stage = exchange_stage::make(comm, form, number);
            exchange_plan::part& part = plan.parts[number];
            const auto narrow = [](std::uint32_t value) { return static_cast<std::uint16_t>(value); };
            part = {narrow(stage.first),
                    narrow(stage.positions),
                    narrow(stage.position),
                    narrow(stage.place),
                    narrow(count),
                    0,
                    0,
                    narrow(stage.spans_devices(comm.shape) ? 1 : 0)};
            for (const bool is_far : {false, true}) {
                for (std::uint32_t other = 0; other < stage.groups(); ++other) {
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
        list_range& list = comm.plan_lists[number_of_plan];
        if (!find_list_place(table, count * sizeof(exchange_target) / sizeof(std::uint32_t), list)) {
            list = {};
            return false;
        }
        plan.targets = reinterpret_cast<const exchange_target*>(table.lists + list.begin);
    }
    plan.stages = stages;
    comm.plans[number_of_plan] = plan;
    return true;
}

} // namespace dcuda::detail
