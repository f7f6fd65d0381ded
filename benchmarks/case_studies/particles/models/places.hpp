// SPDX-License-Identifier: BSD-3-Clause
// Where programs with two models have what a step reads and writes: in arrays, and in messages between devices.
//
// One exchange a step is enough, for a device sorts its neighbours' border segments too. For that it gets from each
// neighbour, in one message of fixed size, with room for what has no fixed size:
//     where the particles of the border segment are now, and their numbers; who has left it for this device; and who
//     has left the segment behind it for it.
// The kernels write to the message what a message takes, where else they would write to arrays: nothing is packed.
#pragma once

#include <cstddef>

#include "steps.hpp"

namespace particles {

// A message between neighbours, in memory.
struct message_view {
    std::byte* start;
    int capacity; // of a segment
    int room;     // of a list

    DCUDA_HOST_DEVICE int& count() const { return *reinterpret_cast<int*>(start); } // positions and numbers
    DCUDA_HOST_DEVICE vector* at() const { return reinterpret_cast<vector*>(start + 16); }
    DCUDA_HOST_DEVICE long long* numbers() const { return reinterpret_cast<long long*>(at() + capacity); }
    // Who left the border segment (0), and the one behind it (1), both in the direction of the message.
    DCUDA_HOST_DEVICE list_view list(int which) const {
        std::byte* const first = start + 16 + position_bytes(capacity);
        return {reinterpret_cast<list_view::head*>(first + static_cast<std::size_t>(which) * list_view::stride(room))};
    }
    static DCUDA_HOST_DEVICE std::size_t position_bytes(int capacity) {
        return (static_cast<std::size_t>(capacity) * (sizeof(vector) + sizeof(long long)) + 15) / 16 * 16;
    }
    static DCUDA_HOST_DEVICE std::size_t bytes_of(int capacity, int room) {
        return 16 + position_bytes(capacity) + 2 * list_view::stride(room);
    }
};

// Room of a list that goes to another device: for as many as leave if all have the largest speed of the start, which is
// four times what leave then; and some more.
inline int list_room(int capacity, double time_step) {
    const double some = start_speed * time_step / cutoff * capacity + 64;
    return some < capacity ? static_cast<int>(some) : capacity;
}

// What the host hands to the kernels: the places of a step. Messages that come are there twice and take turns: those of
// even and of odd steps.
struct two_model_task {
    task base;
    range own;
    int room = 0; // of a list that goes to another device
    bool has_neighbour[2] = {};
    std::byte* messages = nullptr; // two that come and one that goes, for each border
    std::byte* scratch = nullptr;  // for the sort of each segment, where shared memory is too small
    tally* tallies = nullptr;      // of each segment
    int* steps_before = nullptr;   // before those of the launch or graph

    // Where a message is among all, on every device alike: two that come over the border, then one that goes.
    static constexpr int message_count = 6;
    static DCUDA_HOST_DEVICE int index_in(int border, int turn) { return 3 * border + turn; }
    DCUDA_HOST_DEVICE std::size_t message_bytes() const { return message_view::bytes_of(base.capacity, room); }
    DCUDA_HOST_DEVICE message_view message(int index) const {
        return {messages + static_cast<std::size_t>(index) * message_bytes(), base.capacity, room};
    }
    DCUDA_HOST_DEVICE message_view in(int border, int turn) const { return message(index_in(border, turn)); }
    DCUDA_HOST_DEVICE message_view out(int border) const { return message(3 * border + 2); }

    DCUDA_HOST_DEVICE std::size_t sort_bytes() const { return sort_space::bytes_of(base.whole.columns, base.capacity); }
    DCUDA_HOST_DEVICE std::byte* scratch_of(int segment) const { return scratch + base.place(segment) * sort_bytes(); }

    // The border that a segment of this device lies at, with a neighbour there; or -1.
    DCUDA_DEVICE int border_of(int segment) const {
        if (segment == own.first && has_neighbour[0]) return 0;
        return segment == own.last - 1 && has_neighbour[1] ? 1 : -1;
    }

    // --- As steps.hpp asks

    DCUDA_DEVICE bool is_mine(int segment) const { return segment >= own.first && segment < own.last; }
    DCUDA_DEVICE tally& tally_of(int segment) const { return tallies[segment - own.first]; }
    DCUDA_DEVICE int number_of(int step) const { return *steps_before + step; }

    DCUDA_DEVICE void keep(int turn, int segment, int i, const vector& at) const {
        const std::size_t slot = base.first_slot(segment) + static_cast<std::size_t>(i);
        const int border = border_of(segment);
        if (border < 0) return store(base.moved + slot, at);
        store(out(border).at() + i, at);
        out(border).numbers()[i] = base.numbers[turn][slot];
    }
    DCUDA_DEVICE stayers stayed(int segment, int turn) const {
        const int border = border_of(segment);
        if (!is_mine(segment)) {
            const message_view message = in(segment < own.first ? 0 : 1, turn);
            const int count = message.count();
            return {count < base.capacity ? count : base.capacity, message.at(), message.numbers()};
        }
        return {base.block(segment).count(), border < 0 ? base.moved + base.first_slot(segment) : out(border).at(),
                base.numbers[turn] + base.first_slot(segment)};
    }

    // In an array, in a message that goes, or in one that came.
    DCUDA_DEVICE leavers left(int segment, leaving how, int turn) const {
        const int border = how == leaving::down ? 0 : 1;
        if (has_neighbour[border]) { // down from the first two, or up from the last two
            const int behind = border == 0 ? segment - own.first : own.last - 1 - segment;
            if (behind < 2) return {out(border).list(behind), room};
        }
        if (has_neighbour[1 - border]) { // down from the two after the last, or up from the two before the first
            const int behind = border == 0 ? segment - own.last : own.first - 1 - segment;
            if (behind >= 0) return {in(1 - border, turn).list(behind), room};
        }
        return {base.list(segment, how), base.capacity};
    }
    // For the next step: nobody else reads the counts.
    DCUDA_DEVICE void forget(const leavers& up, const leavers& down) const { up.list.count() = down.list.count() = 0; }
};

// Once for each segment, beside its advance.
DCUDA_DEVICE void begin_segment(const two_model_task& work, advance how, int segment) {
    const int count = count_before(work.base, how, segment), border = work.border_of(segment);
    if (how == advance::load) work.base.block(segment).cells[work.base.whole.columns] = count;
    if (border >= 0) work.out(border).count() = count;
}

} // namespace particles
