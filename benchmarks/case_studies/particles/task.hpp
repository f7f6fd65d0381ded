// SPDX-License-Identifier: BSD-3-Clause
// A device's particles in memory, and what is computed from them, for the ranks of dCUDA and for the models to compare
// with.
#pragma once

#include <cstddef>

#include "common/run_series.hpp"
#include "dcuda/device.hpp"
#include "motion.hpp"

namespace particles {

// Why a rank could not go on.
struct failure {
    enum reason : int { none, overfull, too_fast, crowded, full_rank };
    int cause = none;
    int step = 0;
    int segment = 0;      // full_rank: the rank
    int count = 0;        // of particles in the segment or rank; crowded: how many may leave for another device
    long long number = 0; // too_fast: of the particle
    vector velocity;
};

// What a rank knows of its particles.
struct tally {
    failure failed;
    int fullest = 0;                 // the most particles in one of its segments, or in shared memory
    unsigned long long count = 0;    // particles at the end
    unsigned long long partners = 0; // pairs that a force acted on, over all steps; each pair counts for both particles
    vector momentum_before, momentum; // of its particles
    vector walls;                     // momentum that walls took
    double energy_before = 0.0, energy = 0.0;

    // Adds what others know. The failure that is kept is the first.
    tally& operator+=(const tally& other) {
        const auto add = [](vector& sum, const vector& v) {
            sum.x += v.x;
            sum.y += v.y;
        };
        const bool is_first = failed.cause == failure::none || other.failed.step < failed.step;
        if (other.failed.cause != failure::none && is_first) failed = other.failed;
        count += other.count;
        fullest = fullest > other.fullest ? fullest : other.fullest;
        partners += other.partners;
        add(momentum_before, other.momentum_before);
        add(momentum, other.momentum);
        add(walls, other.walls);
        energy_before += other.energy_before;
        energy += other.energy;
        return *this;
    }
};

enum class leaving : int { down = 0, not_at_all = 1, up = 2 };

// A list of particles, in memory.
struct list_view {
    struct head {
        int count; // negative: the mark of an error
        int fill[3];
    };
    head* start;

    DCUDA_HOST_DEVICE int& count() const { return start->count; }
    DCUDA_HOST_DEVICE particle* items() const { return reinterpret_cast<particle*>(start + 1); }
    static DCUDA_HOST_DEVICE std::size_t bytes_of(int count) {
        return sizeof(head) + static_cast<std::size_t>(count) * sizeof(particle);
    }
    // With a capacity's padding, so that every list lies at a multiple of 16 bytes.
    static DCUDA_HOST_DEVICE std::size_t stride(int capacity) { return (bytes_of(capacity) + 15) / 16 * 16; }
};

// The particles' positions in a segment, in memory.
struct block_view {
    int* cells; // where each begins; one more for the end, which is negative as the mark of an error
    int columns;

    DCUDA_HOST_DEVICE int count() const { return cells[columns]; }
    DCUDA_HOST_DEVICE vector* at() const {
        return reinterpret_cast<vector*>(reinterpret_cast<std::byte*>(cells) + bytes_of(columns, 0));
    }
    static DCUDA_HOST_DEVICE std::size_t bytes_of(int columns, int count) {
        const std::size_t cell_bytes = (static_cast<std::size_t>(columns) + 1) * sizeof(int);
        return (cell_bytes + 15) / 16 * 16 + static_cast<std::size_t>(count) * sizeof(vector);
    }
};

// A device's memory and the task: what the host hands to the kernels.
struct task {
    domain whole;
    partition segments;
    int device = 0;
    range stored;                 // the device's segments, with halo
    int capacity = 0;             // of a segment
    std::byte* blocks = nullptr;  // each: for the device's segments with halo, in device memory
    std::byte* lists = nullptr;   // three for each segment
    vector* moved = nullptr;      // of the particles in blocks: where they are before they are sorted
    vector* velocities[2] = {};   // of the particles in blocks, in turns
    long long* numbers[2] = {};   // the same
    vector* forces = nullptr;     // of the start
    std::byte* scratch = nullptr; // for the sort of each rank of the device; null: shared memory has room
    tally* tallies = nullptr;     // of each rank of the device
    tally* known = nullptr;       // of each rank of the world
    int steps = 0;
    double time_step = 0.0;
    common::run_series runs;

    DCUDA_HOST_DEVICE std::size_t block_bytes() const { return block_view::bytes_of(whole.columns, capacity); }
    DCUDA_HOST_DEVICE std::size_t list_bytes() const { return list_view::stride(capacity); }

    // Velocities and numbers have their turn in even or odd steps: step s reads those of its turn, and its sort writes
    // the others. Which are those of the particles in blocks after so many steps:
    static DCUDA_HOST_DEVICE int turn_of(int step) { return step % 2; }
    static DCUDA_HOST_DEVICE int turn_after(int steps) { return turn_of(steps + 1); }

    DCUDA_HOST_DEVICE std::size_t place(int segment) const { return static_cast<std::size_t>(segment - stored.first); }
    DCUDA_HOST_DEVICE std::size_t first_slot(int segment) const {
        return place(segment) * static_cast<std::size_t>(capacity);
    }
    DCUDA_HOST_DEVICE block_view block(int segment) const {
        return {reinterpret_cast<int*>(blocks + place(segment) * block_bytes()), whole.columns};
    }
    DCUDA_HOST_DEVICE list_view list(int segment, leaving how) const {
        const std::size_t index = place(segment) * 3 + static_cast<std::size_t>(how);
        return {reinterpret_cast<list_view::head*>(lists + index * list_bytes())};
    }
};

// A vector of an array, by one access.
DCUDA_DEVICE vector load(const vector* from) {
#if DCUDA_BACKEND_CUDA
    const double2 both = *reinterpret_cast<const double2*>(from);
    return {both.x, both.y};
#else
    return *from;
#endif
}
DCUDA_DEVICE void store(vector* target, const vector& value) {
#if DCUDA_BACKEND_CUDA
    *reinterpret_cast<double2*>(target) = {value.x, value.y};
#else
    *target = value;
#endif
}

// The particles in nine cells, which are three pieces of one array, each in order of number.
struct surroundings {
    const vector* start; // of the first piece
    // Candidates count through all pieces: up to these ends,
    int first_end, second_end, third_end;
    int to_second, to_third; // and a piece's lie so far behind `start`

    // Pieces by where they begin and end behind `array`.
    DCUDA_DEVICE surroundings(const vector* array, const int (&begins)[3], const int (&ends)[3])
        : start(array + begins[0]), first_end(ends[0] - begins[0]), second_end(first_end + ends[1] - begins[1]),
          third_end(second_end + ends[2] - begins[2]), to_second(begins[1] - begins[0] - first_end),
          to_third(begins[2] - begins[0] - second_end) {}
};

// What all others around it do to a particle, by y, x and number.
DCUDA_DEVICE influence influence_among(const vector& here, const surroundings& all) {
    // Two in three are too far away, and what a force takes is long. So find the others first: threads that run in step
    // then wait for whoever has the most partners, not for everyone's.
    influence sum;
    for (int begin = 0; begin < all.third_end; begin += 32) {
        const int end = begin + 32 < all.third_end ? begin + 32 : all.third_end;
        int next = begin;
        unsigned partners = 0; // a bit for each, the last one's the lowest
        const auto look_up_to = [&](int piece_end, const vector* at) {
            const int stop = piece_end < end ? piece_end : end;
            while (next < stop) {
                // PERF: loads of four are under way together; behind the piece they are of its last one.
                constexpr int flight = 4;
                const int count = stop - next < flight ? stop - next : flight;
                unsigned found = 0;
                DCUDA_UNROLL
                for (int k = 0; k < flight; ++k) {
                    const vector there = load(at + next + (k < count ? k : count - 1));
                    const double dx = here.x - there.x, dy = here.y - there.y;
                    found = 2 * found + (is_close(dx * dx + dy * dy) ? 1 : 0);
                }
                partners = partners << count | found >> (flight - count);
                next += count;
            }
        };
        look_up_to(all.first_end, all.start);
        look_up_to(all.second_end, all.start + all.to_second);
        look_up_to(all.third_end, all.start + all.to_third);
        while (partners != 0) {
            const int bit = 31 - __clz(static_cast<int>(partners)), at = end - 1 - bit;
            partners ^= 1U << bit;
            const int behind = at < all.first_end ? 0 : at < all.second_end ? all.to_second : all.to_third;
            const vector there = load(all.start + (at + behind));
            const double dx = here.x - there.x, dy = here.y - there.y;
            sum.add_close(dx, dy, dx * dx + dy * dy);
        }
    }
    return sum;
}

// What all others do to the i-th particle of the segment. The three cells of a segment are one piece of its block.
DCUDA_DEVICE influence influence_on(const task& work, int segment, int i) {
    const block_view before = work.block(segment - 1), same = work.block(segment), after = work.block(segment + 1);
    const vector here = load(same.at() + i);
    const range columns = work.whole.columns_around(work.whole.column_of(here.x));
    const auto behind_first = [&](const block_view& block) { return static_cast<int>(block.at() - before.at()); };
    const int second = behind_first(same), third = behind_first(after);
    const int begins[3] = {before.cells[columns.first], second + same.cells[columns.first],
                           third + after.cells[columns.first]};
    const int ends[3] = {before.cells[columns.last], second + same.cells[columns.last],
                         third + after.cells[columns.last]};
    return influence_among(here, {before.at(), begins, ends});
}

} // namespace particles
