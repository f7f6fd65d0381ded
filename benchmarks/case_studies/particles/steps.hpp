// SPDX-License-Identifier: BSD-3-Clause
// What a step is made of, for the ranks of dCUDA and for the models to compare with: an advance of all particles,
// messages, and a sort of all segments.
//
//     advance  forces on each particle from blocks, the kick that ends the last step, kick and drift of this one. The
//              particle stays in its place, with its new position beside the block, which others still read; and if it
//              leaves its segment, it is in a list as well. Few do: that is all that is dealt out.
//     sort     the particles of a segment, from where they stayed and from two lists, into its block
//
// They ask `places` where everything lies, as that is what differs:
//     base                         the task
//     is_mine(segment)             whether the segment belongs to whoever asks, who then has velocities and numbers
//     tally_of(segment)
//     number_of(step)              of the whole run
//     keep(turn, segment, i, at)   puts down where the i-th particle of the segment is now
//     stayed(segment, turn)        the particles that have been in the segment before
//     left(segment, how, turn)     the list of those that leave it
//     forget(list, list)           called by one thread when a sort knows how many came; others may still read the
//     items
// and a `team` who they are: index(), size() and sync() of threads that do it together.
#pragma once

#include <cstddef>

#include "task.hpp"

namespace particles {

// The particles that were in a segment before the step, in the order of its block then.
struct stayers {
    int count;
    const vector* at; // now
    const long long* numbers;
};

struct leavers {
    list_view list;
    int room;

    // How many of those that the list counts it holds.
    DCUDA_DEVICE int count() const { return list.count() < room ? list.count() : room; }
};

// The threads of a block.
struct block_team {
    DCUDA_DEVICE int index() const { return static_cast<int>(threadIdx.x); }
    DCUDA_DEVICE int size() const { return static_cast<int>(blockDim.x); }
    DCUDA_DEVICE void sync() const { __syncthreads(); }
};

// Notes the first failure.
DCUDA_DEVICE void note(failure& noted, const failure& found) {
    if (atomicCAS(&noted.cause, failure::none, found.cause) != failure::none) return;
    noted.step = found.step; // not `cause`, at which others look
    noted.segment = found.segment;
    noted.count = found.count;
    noted.number = found.number;
    noted.velocity = found.velocity;
}
template <class Places>
DCUDA_DEVICE void note(const Places& places, const failure& found) {
    note(places.tally_of(found.segment).failed, found);
}

// --- Advance ---------------------------------------------------------------------------------------------------------

// What an advance is for: the lists of the start, the first step (whose forces are known), the others, or what is left
// of the last one.
enum class advance : int { load, first, middle, end };

DCUDA_DEVICE int count_before(const task& base, advance how, int segment) {
    return how == advance::load ? base.list(segment, leaving::not_at_all).count() : base.block(segment).count();
}

// Puts a particle that is not in its segment any more to where the next one finds it.
template <class Places>
DCUDA_DEVICE void leave(const Places& places, int turn, int step, int segment, const particle& moved) {
    const bool is_down = places.base.whole.segment_of(moved.at.y) < segment;
    const leavers target = places.left(segment, is_down ? leaving::down : leaving::up, turn);
    const int place = atomicAdd(&target.list.count(), 1);
    if (place < target.room)
        target.list.items()[place] = moved;
    else
        note(places, {failure::crowded, places.number_of(step), segment, target.room, 0, {}});
}

// The i-th particle of the segment. Returns with how many others it interacted.
template <class Places>
DCUDA_DEVICE int advance_one(const Places& places, advance how, int turn, int step, int segment, int i) {
    const task& base = places.base;
    const std::size_t slot = base.first_slot(segment) + static_cast<std::size_t>(i);
    vector* const velocity = base.velocities[turn] + slot;
    long long* const number = base.numbers[turn] + slot;
    if (how == advance::load) {
        const particle& start = base.list(segment, leaving::not_at_all).items()[i];
        *velocity = start.velocity;
        *number = start.number;
        places.keep(turn, segment, i, start.at);
        return 0;
    }
    particle moved{load(base.block(segment).at() + i), load(velocity)}; // PERF: few ask for the number
    influence felt;
    if (how == advance::first) {
        felt.force = load(base.forces + slot);
    } else {
        felt = influence_on(base, segment, i);
        kick(moved.velocity, felt.force, base.time_step);
    }
    if (how != advance::end) {
        kick(moved.velocity, felt.force, base.time_step);
        if (is_slow(moved.velocity, base.time_step)) {
            const vector taken = drift(moved, base.whole, base.time_step);
            if (taken.x != 0.0) atomicAdd(&places.tally_of(segment).walls.x, taken.x);
            if (taken.y != 0.0) atomicAdd(&places.tally_of(segment).walls.y, taken.y);
        } else { // it stays where it is: who finds the note asks no more
            note(places, {failure::too_fast, places.number_of(step), segment, 0, *number, moved.velocity});
        }
        places.keep(turn, segment, i, moved.at);
        if (base.whole.segment_of(moved.at.y) != segment) {
            moved.number = *number;
            leave(places, turn, step, segment, moved);
        }
    }
    store(velocity, moved.velocity);
    return felt.partners;
}

// Adds a particle to momentum and energy, at the start or at the end.
DCUDA_DEVICE void add_to_survey(tally& sum, bool is_start, const vector& velocity, const influence& felt) {
    vector& momentum = is_start ? sum.momentum_before : sum.momentum;
    atomicAdd(&momentum.x, mass * velocity.x);
    atomicAdd(&momentum.y, mass * velocity.y);
    atomicAdd(is_start ? &sum.energy_before : &sum.energy,
              0.5 * mass * (velocity.x * velocity.x + velocity.y * velocity.y) + 0.5 * felt.potential);
}

// Adds the i-th particle of the segment to momentum and energy, at the start or at the end. At the start, keeps its
// force for the first step. Counts no interactions: they are no part of a step.
template <class Places>
DCUDA_DEVICE void survey_one(const Places& places, int turn, bool is_start, int segment, int i) {
    const task& base = places.base;
    const std::size_t slot = base.first_slot(segment) + static_cast<std::size_t>(i);
    const vector v = load(base.velocities[turn] + slot);
    const influence felt = influence_on(base, segment, i);
    if (is_start) store(base.forces + slot, felt.force);
    add_to_survey(places.tally_of(segment), is_start, v, felt);
}

// --- Sort ------------------------------------------------------------------------------------------------------------

// What a segment's sort needs beside its block, in shared memory or elsewhere.
struct sort_space {
    long long* numbers; // of the particles, by cell
    int* waiting;       // for each cell: particles without a place. All are 0 before and after a sort
    int* begins;        // of each cell; one more for the end

    DCUDA_DEVICE sort_space(std::byte* start, int columns, int capacity)
        : numbers(reinterpret_cast<long long*>(start)), waiting(reinterpret_cast<int*>(numbers + capacity)),
          begins(waiting + columns) {}
    static DCUDA_HOST_DEVICE std::size_t bytes_of(int columns, int capacity) {
        const std::size_t ints = 2 * static_cast<std::size_t>(columns) + 1;
        return (static_cast<std::size_t>(capacity) * sizeof(long long) + ints * sizeof(int) + 15) / 16 * 16;
    }

    // Before the first sort.
    template <class Team>
    DCUDA_DEVICE void clear(const Team& team, int columns) const {
        for (int c = team.index(); c < columns; c += team.size()) waiting[c] = 0;
        team.sync();
    }
};

// Sets sums[i] to `first` and the sum of the values before i, for i from 0 to `count`.
template <class Team>
DCUDA_DEVICE void sum_along(const Team& team, const int* __restrict__ values, int count, int* __restrict__ sums,
                            int first = 0) {
    // On a GPU all whole warps take part, a thread with a few values each; else one thread.
    const bool has_warps = DCUDA_BACKEND_CUDA && team.size() >= 32;
    const int warp = team.index() / 32, warps = team.size() / 32;
    const bool takes_part = has_warps ? warp < warps : team.index() == 0;
    const int share = has_warps ? (count / (32 * warps) + 1) | 1 : count + 1; // odd: lanes read from different banks
    const int begin = team.index() * share;
    [[maybe_unused]] int own = 0; // of CUDA code
    int sum = first;
    if (takes_part)
        for (int i = begin; i < begin + share && i < count; ++i) own += values[i];
#if DCUDA_BACKEND_CUDA
    __shared__ int of_warps[32];
    const int lane = team.index() % 32;
    int up_to_own = own;
    for (int by = 1; has_warps && takes_part && by < 32; by *= 2) {
        const int below = __shfl_up_sync(0xffffffff, up_to_own, static_cast<unsigned>(by));
        if (lane >= by) up_to_own += below;
    }
    if (takes_part && lane == 31) of_warps[warp] = up_to_own;
    team.sync();
    if (has_warps && takes_part)
        sum += up_to_own - own + __reduce_add_sync(0xffffffff, lane < warp ? of_warps[lane] : 0);
#endif
    for (int i = begin; takes_part && i < begin + share && i <= count; ++i) {
        sums[i] = sum;
        if (i < count) sum += values[i];
    }
    team.sync();
}

// Calls use(load(i)) for 0, ..., count - 1, shared among the team.
// PERF: a thread's next `Flight` loads are all under way before the first use.
template <int Flight, class Team, class Load, class Use>
DCUDA_DEVICE void for_each_loaded(const Team& team, int count, const Load& load, const Use& use) {
    for (int first = team.index(); first < count; first += Flight * team.size()) {
        decltype(load(first)) loaded[Flight];
        for (int k = 0; k < Flight; ++k) {
            const int i = first + k * team.size();
            loaded[k] = load(i < count ? i : first);
        }
        for (int k = 0; k < Flight; ++k)
            if (first + k * team.size() < count) use(loaded[k]);
    }
}

// Sorts what a segment gets into its block, by cell and number. A segment of a neighbour: positions alone. False, after
// a note in the tally, if the segment gets more than it has room for.
template <class Team, class Places>
DCUDA_DEVICE bool sort_segment(const Team& team, const Places& places, const sort_space& space, int turn, int step,
                               int segment) {
    const task& base = places.base;
    const domain& whole = base.whole;
    const int columns = whole.columns, capacity = base.capacity;
    const bool is_mine = places.is_mine(segment);
    const std::size_t first_slot = base.first_slot(segment);
    const vector* const velocities = base.velocities[turn] + first_slot;

    // Who was in the segment, and who came.
    const stayers stayed = places.stayed(segment, turn);
    const leavers up = places.left(segment - 1, leaving::up, turn),
                  down = places.left(segment + 1, leaving::down, turn);
    const int from_below = up.count(), came = from_below + down.count();

    // Calls body(particle, column) for those that are in the segment now. Of those that stayed, `load` gets what is
    // needed.
    const auto for_each_here = [&]<int Flight>(std::integral_constant<int, Flight>, const auto& load,
                                               const auto& body) {
        for_each_loaded<Flight>(team, stayed.count, load, [&](const particle& p) {
            if (whole.segment_of(p.at.y) == segment) body(p, whole.column_of(p.at.x));
        });
        // PERF: the last threads, which have the fewest others.
        for (int i = team.size() - 1 - team.index(); i < came; i += team.size()) {
            const particle& p = i < from_below ? up.list.items()[i] : down.list.items()[i - from_below];
            body(p, whole.column_of(p.at.x));
        }
        team.sync();
    };
    constexpr std::integral_constant<int, 4> four;
    constexpr std::integral_constant<int, 2> two;

    for_each_here(
        four,
        [&](int i) {
            return particle{load(stayed.at + i), {}, 0};
        },
        [&](const particle&, int column) { atomicAdd(&space.waiting[column], 1); });
    if (team.index() == 0) places.forget(up, down);

    sum_along(team, space.waiting, columns, space.begins);
    const auto at_most = [](int count, int most) { return count < most ? count : most; };
    const block_view block = base.block(segment);
    const int count = space.begins[columns];
    for (int c = team.index(); c <= columns; c += team.size()) block.cells[c] = at_most(space.begins[c], capacity);
    if (team.index() == 0 && is_mine) {
        atomicMax(&places.tally_of(segment).fullest, count);
        if (count > capacity) note(places, {failure::overfull, places.number_of(step), segment, count, 0, {}});
    }

    const auto with_velocity = [&](int i) {
        return particle{load(stayed.at + i), is_mine ? load(velocities + i) : vector{}, stayed.numbers[i]};
    };
    const auto put_at = [&](int place, const particle& p) {
        store(block.at() + place, p.at);
        if (!is_mine) return;
        const std::size_t slot = first_slot + static_cast<std::size_t>(place);
        store(base.velocities[1 - turn] + slot, p.velocity);
        base.numbers[1 - turn][slot] = p.number;
    };
    // Any place in the cell for the number; and then, for the particle, the place that its number says. A cell has few.
    const auto any_place = [&](int column) { return space.begins[column] + atomicAdd(&space.waiting[column], -1) - 1; };
    if (count > capacity) { // the result is of no use, but each place has one particle
        for_each_here(two, with_velocity, [&](const particle& p, int column) {
            const int place = any_place(column);
            if (place < capacity) put_at(place, p);
        });
        return false;
    }
    for_each_here(
        four,
        [&](int i) {
            return particle{load(stayed.at + i), {}, stayed.numbers[i]};
        },
        [&](const particle& p, int column) { space.numbers[any_place(column)] = p.number; });
    for_each_here(two, with_velocity, [&](const particle& p, int column) {
        const int begin = space.begins[column], end = space.begins[column + 1];
        int place = begin;
        for (int other = begin; other < end; ++other) place += space.numbers[other] < p.number ? 1 : 0;
        put_at(place, p);
    });
    return true;
}

} // namespace particles
