// What the kernels of programs with two models do: a step is an advance of all particles, an exchange between devices,
// and a sort of all segments.
//
//     advance  forces on each particle from blocks, the kick that ends the last step, kick and drift of this one. The
//              particle stays in its place, with its new position beside the block, which others still read; and if it
//              leaves its segment, it is in a list as well. Few do: that is all that is dealt out.
//     sort     the particles of a segment, from where they stayed and from two lists, into its block
//
// One exchange a step is enough, for a device sorts its neighbours' border segments too. For that it gets from each
// neighbour, in one message of fixed size, with room for what has no fixed size:
//     where the particles of the border segment are now, and their numbers; who has left it for this device; and who
//     has left the segment behind it for it.
// The kernels write to the message what a message takes, where else they would write to arrays: nothing is packed.
#pragma once

#include <cstddef>

#include "task.hpp"

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

// What a segment's sort needs beside its block, in shared memory or elsewhere.
struct sort_space {
    int* waiting; // for each cell: particles without a place
    int* begins;  // of each cell; one more for the end
    int* sums;    // of groups of cells
    int* items;   // for each place: which particle, and its number
    long long* numbers;

    static DCUDA_HOST_DEVICE int group_of(int columns) { // about the square root
        int group = 1;
        while (group * group < columns) group *= 2;
        return group;
    }
    static DCUDA_HOST_DEVICE std::size_t int_count(int columns, int capacity) {
        const int groups = (columns + group_of(columns) - 1) / group_of(columns);
        return 2 * static_cast<std::size_t>(columns) + 1 + static_cast<std::size_t>(groups) +
               static_cast<std::size_t>(capacity);
    }
    static DCUDA_HOST_DEVICE std::size_t bytes_of(int columns, int capacity) {
        return (static_cast<std::size_t>(capacity) * sizeof(long long) + int_count(columns, capacity) * sizeof(int) +
                15) /
               16 * 16;
    }
    DCUDA_DEVICE sort_space(std::byte* start, int columns, int capacity)
        : waiting(reinterpret_cast<int*>(start + static_cast<std::size_t>(capacity) * sizeof(long long))),
          begins(waiting + columns), sums(begins + columns + 1), items(nullptr),
          numbers(reinterpret_cast<long long*>(start)) {
        items = sums + (columns + group_of(columns) - 1) / group_of(columns);
    }
};

// Room of a list that goes to another device: for as many as leave if all have the largest speed of the start, which is
// four times what leave then; and some more.
inline int list_room(int capacity, double time_step) {
    const double some = start_speed * time_step / cutoff * capacity + 64;
    return some < capacity ? static_cast<int>(some) : capacity;
}

// What the host hands to the kernels. Velocities, numbers and messages that come are there twice and take turns: those
// of even and of odd steps.
struct two_model_task {
    task base;
    range mine;
    int room = 0; // of a list that goes to another device
    bool has_neighbour[2] = {};
    vector* moved = nullptr; // positions beside blocks
    vector* velocities[2] = {};
    long long* numbers[2] = {};
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

    DCUDA_DEVICE tally& tally_of(int segment) const { return tallies[segment - mine.first]; }

    // Who left a segment: in an array, in a message that goes, or in one that came.
    struct leavers {
        list_view list;
        int room;
    };
    DCUDA_DEVICE leavers left(int segment, leaving how, int turn) const {
        const int border = how == leaving::down ? 0 : 1;
        if (has_neighbour[border]) { // down from the first two, or up from the last two
            const int behind = border == 0 ? segment - mine.first : mine.last - 1 - segment;
            if (behind < 2) return {out(border).list(behind), room};
        }
        if (has_neighbour[1 - border]) { // down from the two after the last, or up from the two before the first
            const int behind = border == 0 ? segment - mine.last : mine.first - 1 - segment;
            if (behind >= 0) return {in(1 - border, turn).list(behind), room};
        }
        return {base.list(segment, how), base.capacity};
    }

    DCUDA_HOST_DEVICE std::size_t sort_bytes() const { return sort_space::bytes_of(base.whole.columns, base.capacity); }
    DCUDA_HOST_DEVICE std::byte* scratch_of(int segment) const { return scratch + base.place(segment) * sort_bytes(); }

    // The border that a segment of this device lies at, with a neighbour there; or -1.
    DCUDA_DEVICE int border_of(int segment) const {
        if (segment == mine.first && has_neighbour[0]) return 0;
        return segment == mine.last - 1 && has_neighbour[1] ? 1 : -1;
    }
};

// --- Advance ---------------------------------------------------------------------------------------------------------

// What an advance is for: the lists of the start, the first step (whose forces are known), the others, or what is left
// of the last one.
enum class advance : int { load, first, middle, end };

template <advance How>
DCUDA_DEVICE int count_before(const two_model_task& work, int segment) {
    if constexpr (How == advance::load) return work.base.list(segment, leaving::not_at_all).count();
    return work.base.block(segment).count();
}

// Once for each segment.
template <advance How>
DCUDA_DEVICE void begin_segment(const two_model_task& work, int segment) {
    const int count = count_before<How>(work, segment), border = work.border_of(segment);
    if constexpr (How == advance::load) work.base.block(segment).cells[work.base.whole.columns] = count;
    if (border >= 0) work.out(border).count() = count;
}

// Notes the first failure of a segment.
DCUDA_DEVICE void note(const two_model_task& work, const failure& what) {
    failure& noted = work.tally_of(what.segment).failed;
    if (atomicCAS(&noted.what, failure::none, what.what) == failure::none) noted = what;
}

// Puts a particle where it now belongs.
DCUDA_DEVICE void give(const two_model_task& work, int turn, int step, int segment, int i, const particle& moved) {
    const int border = work.border_of(segment);
    if (border >= 0) {
        work.out(border).at()[i] = moved.at;
        work.out(border).numbers()[i] = moved.number;
    } else {
        work.moved[work.base.first_slot(segment) + static_cast<std::size_t>(i)] = moved.at;
    }
    const int now = work.base.whole.segment_of(moved.at.y);
    if (now == segment) return;
    const two_model_task::leavers to = work.left(segment, now < segment ? leaving::down : leaving::up, turn);
    const int place = atomicAdd(&to.list.count(), 1);
    if (place < to.room)
        to.list.items()[place] = moved;
    else
        note(work, {failure::crowded, *work.steps_before + step, segment, to.room, 0, {}});
}

// The i-th particle of the segment. Returns with how many others it interacted.
template <advance How>
DCUDA_DEVICE int advance_one(const two_model_task& work, int turn, int step, int segment, int i) {
    const std::size_t slot = work.base.first_slot(segment) + static_cast<std::size_t>(i);
    vector& velocity = work.velocities[turn][slot];
    if constexpr (How == advance::load) {
        const particle& start = work.base.list(segment, leaving::not_at_all).items()[i];
        velocity = start.velocity;
        work.numbers[turn][slot] = start.number;
        give(work, turn, step, segment, i, start);
        return 0;
    } else {
        particle moved{load(work.base.block(segment).at() + i), velocity, work.numbers[turn][slot]};
        influence felt;
        if constexpr (How == advance::first) {
            felt.force = work.base.forces[slot];
        } else {
            felt = influence_on(work.base, segment, moved.at);
            kick(moved.velocity, felt.force, work.base.time_step);
        }
        if constexpr (How != advance::end) {
            kick(moved.velocity, felt.force, work.base.time_step);
            if (is_slow(moved.velocity, work.base.time_step)) {
                const vector taken = drift(moved, work.base.whole, work.base.time_step);
                if (taken.x != 0.0) atomicAdd(&work.tally_of(segment).walls.x, taken.x);
                if (taken.y != 0.0) atomicAdd(&work.tally_of(segment).walls.y, taken.y);
            } else { // it stays where it is: who finds the note asks no more
                note(work, {failure::too_fast, *work.steps_before + step, segment, 0, moved.number, moved.velocity});
            }
            give(work, turn, step, segment, i, moved);
        }
        velocity = moved.velocity;
        return felt.partners;
    }
}

// --- Sort ------------------------------------------------------------------------------------------------------------

// Sorts what a segment gets into its block, by cell and number. A segment of a neighbour: positions alone. The team:
// index(), size() and sync() of those who do it together.
template <class Team>
DCUDA_DEVICE void sort_segment(const Team& team, const two_model_task& work, std::byte* memory, int turn, int step,
                               int segment) {
    const int columns = work.base.whole.columns, capacity = work.base.capacity;
    const sort_space space(memory, columns, capacity);
    const block_view block = work.base.block(segment);
    const bool is_mine = segment >= work.mine.first && segment < work.mine.last;
    const int border = work.border_of(segment);
    const std::size_t first_slot = work.base.first_slot(segment);

    // Who was in the segment, and where they are now; and who came.
    const message_view message =
        is_mine ? work.out(border < 0 ? 0 : border) : work.in(segment < work.mine.first ? 0 : 1, turn);
    const bool in_message = !is_mine || border >= 0;
    const vector* const moved = in_message ? message.at() : work.moved + first_slot;
    const long long* const numbers = is_mine ? work.numbers[turn] + first_slot : message.numbers();
    const vector* const velocities = work.velocities[turn] + first_slot;
    const two_model_task::leavers up = work.left(segment - 1, leaving::up, turn),
                                  down = work.left(segment + 1, leaving::down, turn);
    const auto at_most = [](int count, int room) { return count < room ? count : room; };
    const int before = is_mine ? block.count() : at_most(message.count(), capacity);
    const int after_first = before + at_most(up.list.count(), up.room);
    const int all = after_first + at_most(down.list.count(), down.room);
    const auto came = [&](int i) -> const particle& {
        return i < after_first ? up.list.items()[i - before] : down.list.items()[i - after_first];
    };
    const auto place_of = [&](int i) { return i < before ? load(moved + i) : came(i).at; };
    const auto number_of = [&](int i) { return i < before ? numbers[i] : came(i).number; };

    for (int c = team.index(); c < columns; c += team.size()) space.waiting[c] = 0;
    team.sync();
    if (team.index() == 0) up.list.count() = down.list.count() = 0; // for the next step: nobody else reads them

    // How many are in each cell, and where cells begin: a sum of the groups before, and of the cells before in a group.
    const auto for_each_here = [&](const auto& body) { // without those who left
        for (int i = team.index(); i < all; i += team.size()) {
            const vector at = place_of(i);
            if (work.base.whole.segment_of(at.y) == segment) body(i, work.base.whole.column_of(at.x));
        }
        team.sync();
    };
    for_each_here([&](int, int column) { atomicAdd(&space.waiting[column], 1); });
    const int group = sort_space::group_of(columns);
    for (int g = team.index(); g * group < columns; g += team.size()) {
        int sum = 0;
        for (int c = g * group; c < columns && c < (g + 1) * group; ++c) sum += space.waiting[c];
        space.sums[g] = sum;
    }
    team.sync();
    for (int c = team.index(); c <= columns; c += team.size()) {
        int sum = 0;
        for (int g = 0; g < c / group; ++g) sum += space.sums[g];
        for (int inside = c / group * group; inside < c; ++inside) sum += space.waiting[inside];
        space.begins[c] = sum;
        block.cells[c] = at_most(sum, capacity);
    }
    team.sync();
    const int total = space.begins[columns], count = at_most(total, capacity);
    if (team.index() == 0 && is_mine) {
        int& fullest = work.tally_of(segment).fullest;
        if (total > fullest) fullest = total;
        if (total > capacity) note(work, {failure::overfull, *work.steps_before + step, segment, total, 0, {}});
    }

    // Any place in the cell, and then the one that the number says. A cell has few particles.
    for_each_here([&](int i, int column) {
        const int place = space.begins[column] + atomicAdd(&space.waiting[column], -1) - 1;
        if (place >= capacity) return;
        space.items[place] = i;
        space.numbers[place] = number_of(i);
    });
    for (int place = team.index(); place < count; place += team.size()) {
        const int i = space.items[place];
        const long long number = space.numbers[place];
        const vector at = place_of(i);
        const int column = work.base.whole.column_of(at.x);
        const int end = at_most(space.begins[column + 1], capacity);
        int to = space.begins[column];
        for (int other = to; other < end; ++other) to += space.numbers[other] < number ? 1 : 0;
        block.at()[to] = at;
        if (!is_mine) continue;
        const std::size_t slot = first_slot + static_cast<std::size_t>(to);
        work.velocities[1 - turn][slot] = i < before ? velocities[i] : came(i).velocity;
        work.numbers[1 - turn][slot] = number;
    }
}

} // namespace particles
