// SPDX-License-Identifier: BSD-3-Clause
// The same steps with particles in shared memory: a rank keeps its own there from the first step to the last, and
// beside them the positions of the neighbours' that it needs.
//
// Ranks share the cells, not the segments: of all cells, numbered along x and segment by segment, each rank has as many
// as any other in a row, wherever that begins and ends within a segment. So work is dealt out evenly: 416 segments
// would leave some of 132 multiprocessors with four and others with three. As a rank has more cells than a segment, all
// cells around one of its own are its own or among the last of the rank before or the first of the rank after: the
// border of either has as many as a segment and one more.
//
// Per step, a rank r with a neighbour p
//     1. computes the forces on particles inside, which see none of p's; waits for p's block, and copies it
//     2. computes the other forces; moves its border's particles; puts p the list of those that left for p; moves the
//        others; waits for p's list
//     3. sorts all; puts p its border's block
// That nobody overwrites what a neighbour still reads (or what a put still sends) follows from the chain:
//   - The list is read by p in its part 3. r fills it again after it has received p's block, which p put after that.
//   - The border's block is read by p in its part 1. r overwrites it in part 3, after it has received p's list, which p
//     put after it had copied.
// Counters of notifications cannot mix steps: p puts its next list only after it has r's block, which r puts after it
// has waited for p's last list; blocks likewise. Errors travel as kernels.hpp says.
//
// PERF: what goes to the second neighbour goes a little later, so that in the meantime the threads that do not send
// have something else to do: before a message about what lies in place the sender waits until all its stores have
// arrived.
#pragma once

#include <cstddef>

#include "common/progress.hpp"
#include "exchange.hpp"
#include "steps.hpp"

namespace particles {

// Particles that a thread sorts at most.
inline constexpr int sorted_per_thread = DCUDA_BACKEND_CUDA ? 4 : 64;

// Cells over devices, then over the ranks of each. A rank beside another device has `relief` cells less than others:
// its messages take longer.
// PERF: by this part of a rank's cells. Two H200, published size: none 49 us a step, a tenth 47.4, a fifth 46.3.
inline constexpr double usual_relief = 0.3;
struct cell_partition : partition {
    int relief = 0;

    // As if the device had cells beyond its ends, which nobody has to compute.
    DCUDA_HOST_DEVICE range extended(int device) const {
        const range own = of_device(device);
        return {own.first - (device > 0 ? relief : 0), own.last + (device + 1 < devices ? relief : 0)};
    }
    DCUDA_HOST_DEVICE range of_rank(int rank) const {
        const int device = rank / ranks_per_device;
        return intersection(part_of(extended(device), ranks_per_device, rank % ranks_per_device), of_device(device));
    }
    int owner(int cell) const {
        const int device = part_that_holds(all(), devices, cell);
        return device * ranks_per_device + part_that_holds(extended(device), ranks_per_device, cell);
    }
};

// A rank's shared memory: of `cells` of its own at most, with so many in the border of a neighbour. Positions lie in
// the order of cells, and in a cell by number: those of the rank before, which end where its own begin; its own; and
// those of the rank after.
// PERF: where all begins is worked out by the host, in bytes. The compiler would keep it in registers otherwise, and
// spill those to a cache of which so much shared memory leaves next to nothing.
struct chip_layout {
    int cells = 0, border_cells = 0;
    int room = 0, border_room = 0; // particles
    int velocities = 0;
    int numbers = 0, numbers_by_cell = 0;
    int places = 0;  // of a particle: its cell, or -1 if it has left; and then where it goes
    int begins = 0;  // of all cells, and the end: among the positions
    int waiting = 0; // of each cell of the rank's: particles without a place yet
    int bytes = 0;

    chip_layout() = default;
    chip_layout(int cells_, int border_cells_, int room_, int border_room_)
        : cells(cells_), border_cells(border_cells_), room(room_), border_room(border_room_) {
        const auto add = [this](int& begin, int count, std::size_t size) {
            begin = bytes;
            bytes += count * static_cast<int>(size);
        };
        int positions = 0;
        add(positions, room + 2 * border_room, sizeof(vector));
        add(velocities, room, sizeof(vector));
        for (int* of_each : {&numbers, &numbers_by_cell, &places}) add(*of_each, room, sizeof(int));
        add(begins, cells + 2 * border_cells + 1, sizeof(int));
        add(waiting, cells, sizeof(int));
    }
};

// What the host hands to the kernels. In device memory each rank has its particles before and after all steps, lists
// and blocks for its neighbours, and places for theirs. Ranks of a device have one place more on either side.
struct chip_task {
    domain whole;
    cell_partition cells;
    chip_layout layout;
    std::byte* particles = nullptr; // of each rank: a list
    std::byte* blocks = nullptr;    // two at each place: for the rank before and for the one after
    std::byte* lists = nullptr;     // the same
    vector* forces = nullptr;       // of the start
    tally* tallies = nullptr;       // of each rank of the device
    tally* known = nullptr;         // of each rank of the world
    int steps = 0;
    double time_step = 0.0;
    common::run_series runs;

    DCUDA_HOST_DEVICE std::size_t particle_bytes() const { return list_view::stride(layout.room); }
    DCUDA_HOST_DEVICE std::size_t list_bytes() const { return list_view::stride(layout.border_room); }
    DCUDA_HOST_DEVICE std::size_t block_bytes() const {
        return block_view::bytes_of(layout.border_cells, layout.border_room);
    }
    DCUDA_HOST_DEVICE std::size_t index_on_device(int rank) const {
        return static_cast<std::size_t>(rank % cells.ranks_per_device);
    }
    DCUDA_HOST_DEVICE list_view particles_of(int rank) const {
        return {reinterpret_cast<list_view::head*>(particles + index_on_device(rank) * particle_bytes())};
    }

    // Windows are three places: of the rank before, the rank's own, and of the one after.
    DCUDA_DEVICE borders borders_of(int rank) const {
        const std::size_t before = 2 * index_on_device(rank), own = before + 2, after = own + 2;
        const bool is_last = rank + 1 == cells.devices * cells.ranks_per_device;
        return {side_of(rank - 1, own, before + 1, 4 + 0),
                side_of(is_last ? -1 : rank + 1, own + 1, after, 0 + 1),
                blocks + before * block_bytes(),
                lists + before * list_bytes(),
                6 * block_bytes(),
                6 * list_bytes()};
    }

private:
    DCUDA_DEVICE side side_of(int rank, std::size_t ours, std::size_t theirs, std::size_t in_their_window) const {
        return {rank,
                list(ours),
                list(theirs),
                block(ours),
                block(theirs),
                in_their_window * list_bytes(),
                in_their_window * block_bytes()};
    }
    DCUDA_DEVICE list_view list(std::size_t i) const {
        return {reinterpret_cast<list_view::head*>(lists + i * list_bytes())};
    }
    DCUDA_DEVICE block_view block(std::size_t i) const {
        return {reinterpret_cast<int*>(blocks + i * block_bytes()), layout.border_cells};
    }
};

// A rank's particles. All threads of the rank call everything; what the others did they find after the rank's next
// barrier.
class chip {
public:
    DCUDA_DEVICE chip(const chip_task& work, const exchange& neighbours, int rank)
        : work_(work), neighbours_(neighbours) {
        if (thread() == 0)
            own() = {work.cells.of_rank(rank), 0, 0, 0, 0, 0, 0, 0, &work.tallies[work.index_on_device(rank)], rank};
        for (int c = thread(); c < work.layout.cells; c += threads()) waiting()[c] = 0;
        __syncthreads();
    }

    DCUDA_DEVICE tally& result() const { return *own().result; }
    // Whether nothing has failed. Between a barrier of the rank and what may fail next, so that all threads agree.
    DCUDA_DEVICE bool is_fine() const { return own().has_failed == 0; }

    // Which particles: all; those around which are no neighbour's cells, and the others before and after them.
    DCUDA_DEVICE range all() const { return {0, own().count}; }
    DCUDA_DEVICE range inside() const {
        const int border = work_.layout.border_cells, cells = own().cells.count();
        if (cells <= 2 * border) return {0, 0};
        return {index_of(begins()[2 * border]), index_of(begins()[cells])};
    }

    // The particles of the start, in any order. They are sorted as if they had been moved.
    DCUDA_DEVICE void load() const {
        const list_view start = work_.particles_of(own().rank);
        for (int i = thread(); i < start.count(); i += threads()) {
            const particle& p = start.items()[i];
            positions()[i] = p.at;
            velocities()[i] = p.velocity;
            numbers()[i] = static_cast<int>(p.number);
            places()[i] = work_.whole.cell_of(p.at) - own().cells.first;
            atomicAdd(&waiting()[places()[i]], 1);
        }
        __syncthreads();
        if (thread() == 0) own().count = start.count();
        __syncthreads();
    }
    // The particles as they are, for the host.
    DCUDA_DEVICE void store() const {
        const list_view end = work_.particles_of(own().rank);
        for (int i = thread(); i < own().count; i += threads())
            end.items()[i] = {positions()[i], velocities()[i], numbers()[i]};
        if (thread() == 0) end.count() = own().count;
    }

    // Forces on particles, and the kicks before and after their motion. Returns with how many others all this thread's
    // have interacted.
    template <advance How>
    DCUDA_DEVICE unsigned long long kick_all(range which, range without = {}) const {
        int partners = 0;
        for (int next = which.first + thread(); next < which.last; next += threads()) {
            const int i = next < without.first ? next : next + without.count();
            influence felt;
            if constexpr (How == advance::first)
                felt.force = particles::load(forces() + i);
            else
                felt = influence_on(i);
            vector velocity = particles::load(velocities() + i);
            if (How != advance::first) kick(velocity, felt.force, work_.time_step);
            if (How != advance::end) kick(velocity, felt.force, work_.time_step);
            particles::store(velocities() + i, velocity);
            partners += felt.partners;
        }
        return static_cast<unsigned long long>(partners);
    }
    // All that are not inside.
    template <advance How>
    DCUDA_DEVICE unsigned long long kick_border() const {
        const range rest = inside();
        return kick_all<How>({0, own().count - rest.count()}, rest);
    }

    // Moves some by a step, when nobody reads the old positions any more. Who leaves the rank's cells is in a list
    // then, and the others are counted.
    DCUDA_DEVICE void drift_all(int step, range which) const {
        const range own_cells = own().cells;
        for (int i = which.first + thread(); i < which.last; i += threads()) {
            particle moved{particles::load(positions() + i), particles::load(velocities() + i), 0};
            if (is_slow(moved.velocity, work_.time_step)) {
                const vector taken = drift(moved, work_.whole, work_.time_step);
                if (taken.x != 0.0) atomicAdd(&result().walls.x, taken.x);
                if (taken.y != 0.0) atomicAdd(&result().walls.y, taken.y);
            } else { // it stays where it is: who finds the note asks no more
                note({failure::too_fast, step, work_.whole.segment_of(moved.at.y), 0, numbers()[i], moved.velocity});
            }
            particles::store(positions() + i, moved.at);
            particles::store(velocities() + i, moved.velocity);
            const int cell = work_.whole.cell_of(moved.at);
            const bool stays = cell >= own_cells.first && cell < own_cells.last;
            places()[i] = stays ? cell - own_cells.first : -1;
            if (stays)
                atomicAdd(&waiting()[cell - own_cells.first], 1);
            else if (cell < own_cells.first)
                leave(neighbours_.previous(), own().left_down, moved, numbers()[i]);
            else
                leave(neighbours_.next(), own().left_up, moved, numbers()[i]);
        }
    }

    // Moves all, and sends the neighbours who left for them.
    DCUDA_DEVICE void drift_and_send(int step) const {
        __syncthreads();
        const range rest = inside();
        drift_all(step, {0, rest.empty() ? own().count : rest.first});
        send_list(neighbours_.previous(), own().left_down);
        if (!rest.empty()) drift_all(step, {rest.last, own().count});
        send_list(neighbours_.next(), own().left_up);
        drift_all(step, rest);
    }

    // Sorts the particles that did not leave, and those that came. False, after a note in the tally, if they are too
    // many.
    DCUDA_DEVICE bool sort(int step) const {
        const domain& whole = work_.whole;
        const range own_cells = own().cells;
        const int border = work_.layout.border_cells, count_before = own().count;
        const list_view up = neighbours_.previous().their_list, down = neighbours_.next().their_list;
        const int from_below = neighbours_.previous().rank < 0 ? 0 : up.count();
        const int came = from_below + (neighbours_.next().rank < 0 ? 0 : down.count());
        const int before = count_before + came; // particles to sort, with those that have left
        if (before > work_.layout.room) return refuse(step, before);
        // They come behind the others, and then are like them.
        for (int i = count_before + thread(); i < before; i += threads()) {
            const int from_list = i - count_before;
            const particle& p = from_list < from_below ? up.items()[from_list] : down.items()[from_list - from_below];
            positions()[i] = p.at;
            velocities()[i] = p.velocity;
            numbers()[i] = static_cast<int>(p.number);
            places()[i] = whole.cell_of(p.at) - own_cells.first;
            atomicAdd(&waiting()[places()[i]], 1);
        }
        __syncthreads();

        int* const begin = begins() + border; // of the rank's own cells
        sum_along(block_team{}, waiting(), own_cells.count(), begin, own_begin());
        const int count = begin[own_cells.count()] - own_begin();
        const bool has_borders = neighbours_.previous().rank >= 0 || neighbours_.next().rank >= 0;
        const int first_of_last = has_borders ? begin[own_cells.count() - border] : 0;
        const int in_first = has_borders ? begin[border] - own_begin() : 0;
        const int in_last = has_borders ? own_begin() + count - first_of_last : 0;
        if (in_first > work_.layout.border_room || in_last > work_.layout.border_room)
            return refuse(step, in_first > in_last ? in_first : in_last);
        const block_view first_block = neighbours_.previous().block, last_block = neighbours_.next().block;
        if (has_borders)
            for (int c = thread(); c <= border; c += threads()) {
                first_block.cells[c] = begin[c] - own_begin();
                last_block.cells[c] = begin[own_cells.count() - border + c] - first_of_last;
            }

        // Any place in the cell for the number; and then, for the particle, the place that its number says. A cell has
        // few.
        for (int i = thread(); i < before; i += threads()) {
            const int cell = places()[i];
            if (cell >= 0)
                numbers_by_cell()[index_of(begin[cell]) + atomicAdd(&waiting()[cell], -1) - 1] = numbers()[i];
        }
        __syncthreads();
        for (int i = thread(); i < before; i += threads()) {
            const int cell = places()[i];
            if (cell < 0) continue;
            const int number = numbers()[i], first = index_of(begin[cell]), last = index_of(begin[cell + 1]);
            int place = first;
#if DCUDA_BACKEND_CUDA
#pragma unroll 1
#endif
            for (int other = first; other < last; ++other) place += numbers_by_cell()[other] < number ? 1 : 0;
            places()[i] = place;
        }
        move_all(positions(), before, [&](int target, const vector& at) {
            if (target < in_first) particles::store(first_block.at() + target, at);
            const int from_last = target - (count - in_last);
            if (has_borders && from_last >= 0) particles::store(last_block.at() + from_last, at);
        });
        move_all(velocities(), before, [](int, const vector&) {});
        move_all(numbers(), before, [](int, int) {});
        if (thread() == 0) {
            own().count = count;
            own().fullest = own().fullest < count ? count : own().fullest;
            own().in_first = in_first;
            own().in_last = in_last;
            own().left_down = own().left_up = 0;
        }
        __syncthreads();
        return true;
    }
    DCUDA_DEVICE void send_first_block(bool fine = true) const {
        neighbours_.send_block(neighbours_.previous(), own().in_first, fine);
    }
    DCUDA_DEVICE void send_last_block(bool fine = true) const {
        neighbours_.send_block(neighbours_.next(), own().in_last, fine);
    }

    // Copies what the neighbours' blocks hold.
    DCUDA_DEVICE void load_borders() const {
        const int border = work_.layout.border_cells, cells = own().cells.count(), own_end = own_begin() + own().count;
        const side &previous = neighbours_.previous(), &next = neighbours_.next();
        const block_view before = previous.their_block, after = next.their_block;
        const int from_before = previous.rank < 0 ? 0 : before.count(), from_after = next.rank < 0 ? 0 : after.count();
        for (int c = thread(); c < border; c += threads()) {
            begins()[c] = own_begin() - from_before + (from_before > 0 ? before.cells[c] : 0);
            begins()[border + cells + 1 + c] = own_end + (from_after > 0 ? after.cells[c + 1] : 0);
        }
        vector* const all = all_positions();
        for_each_loaded<2>(
            block_team{}, from_before + from_after,
            [&](int i) {
                return placed{i, particles::load(i < from_before ? before.at() + i : after.at() + i - from_before)};
            },
            [&](const placed& p) {
                const int target =
                    p.index < from_before ? own_begin() - from_before + p.index : own_end + p.index - from_before;
                particles::store(all + target, p.at);
            });
        __syncthreads();
    }

    // Adds up momentum and energy; at the start keeps forces for the first step.
    DCUDA_DEVICE void survey(bool is_start) const {
        tally& sum = result();
        for (int i = thread(); i < own().count; i += threads()) {
            const influence felt = influence_on(i);
            if (is_start) particles::store(forces() + i, felt.force);
            add_to_survey(sum, is_start, velocities()[i], felt);
        }
    }
    DCUDA_DEVICE void count_particles(unsigned long long partners) const {
        atomicAdd(&result().partners, partners);
        if (thread() == 0) {
            result().count = static_cast<unsigned long long>(own().count);
            result().fullest = own().fullest;
        }
        __syncthreads();
    }

private:
    // PERF: in shared memory, as with the exchange.
    struct desk {
        range cells;           // cells
        int count;             // particles
        int in_first, in_last; // of them, in the borders that neighbours see
        int left_down, left_up;
        int fullest;
        int has_failed;
        tally* result;
        int rank;
    };
    static DCUDA_DEVICE desk& own() {
        __shared__ desk result;
        return result;
    }
    struct placed {
        int index;
        vector at;
    };

    template <class T>
    static DCUDA_DEVICE T* memory(int offset) {
        return reinterpret_cast<T*>(dcuda::dynamic_shared<std::byte>() + offset);
    }
    DCUDA_DEVICE int own_begin() const { return work_.layout.border_room; }
    DCUDA_DEVICE int index_of(int begin) const { return begin - own_begin(); }
    DCUDA_DEVICE vector* all_positions() const { return memory<vector>(0); }
    DCUDA_DEVICE vector* positions() const { return all_positions() + own_begin(); }
    DCUDA_DEVICE vector* velocities() const { return memory<vector>(work_.layout.velocities); }
    DCUDA_DEVICE int* numbers() const { return memory<int>(work_.layout.numbers); }
    DCUDA_DEVICE int* numbers_by_cell() const { return memory<int>(work_.layout.numbers_by_cell); }
    DCUDA_DEVICE int* places() const { return memory<int>(work_.layout.places); }
    DCUDA_DEVICE int* begins() const { return memory<int>(work_.layout.begins); }
    DCUDA_DEVICE int* waiting() const { return memory<int>(work_.layout.waiting); }
    DCUDA_DEVICE vector* forces() const {
        return work_.forces + work_.index_on_device(own().rank) * static_cast<std::size_t>(work_.layout.room);
    }
    DCUDA_DEVICE void note(const failure& found) const {
        particles::note(result().failed, found);
        atomicExch(&own().has_failed, 1);
    }

    DCUDA_DEVICE bool refuse(int step, int count) const {
        if (thread() == 0) note({failure::full_rank, step, own().rank, count, 0, {}});
        __syncthreads();
        return false;
    }

    // Moves everything of an array to its place, and tells `also` what goes where. A thread reads all of its own before
    // anyone writes.
    template <class T, class Also>
    DCUDA_DEVICE void move_all(T* array, int count, const Also& also) const {
        T moved[sorted_per_thread];
        const auto for_each_mine = [&](const auto& body) {
            DCUDA_UNROLL
            for (int k = 0; k < sorted_per_thread; ++k)
                if (const int i = thread() + k * threads(); i < count) body(moved[k], i);
        };
        for_each_mine([&](T& value, int i) { value = array[i]; });
        __syncthreads();
        for_each_mine([&](const T& value, int i) {
            const int target = places()[i];
            if (target < 0) return;
            array[target] = value;
            also(target, value);
        });
    }

    // Only particles of a border can leave, and a list has room for all of them.
    static DCUDA_DEVICE void leave(const side& target, int& left, const particle& moved, int number) {
        target.list.items()[atomicAdd(&left, 1)] = {moved.at, moved.velocity, number};
    }
    DCUDA_DEVICE void send_list(const side& target, int& left) const {
        __syncthreads();
        const int count = left;
        if (thread() == 0) target.list.count() = count;
        neighbours_.send_list(target, count);
    }

    // What all others in the nine cells around do to the i-th particle.
    DCUDA_DEVICE influence influence_on(int i) const {
        const vector here = particles::load(positions() + i);
        const int columns = work_.whole.columns;
        const range around = work_.whole.columns_around(work_.whole.column_of(here.x));
        const int* const line =
            begins() + (work_.layout.border_cells - own().cells.first + work_.whole.segment_of(here.y) * columns);
        const int begin[3] = {line[around.first - columns], line[around.first], line[around.first + columns]};
        const int end[3] = {line[around.last - columns], line[around.last], line[around.last + columns]};
        return influence_among(here, {all_positions(), begin, end});
    }

    const chip_task& work_;
    const exchange& neighbours_;
};

// Moves the particles that the lists hold at the start, and leaves them there at the end.
__global__ void __launch_bounds__(most_threads) simulate_on_chip(dcuda::context context, chip_task work) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);

    const exchange neighbours(self, work);
    const chip own_chip(work, neighbours, self.id());
    common::progress reported(self, "particles", "step", work.steps, work.runs);

    // Windows are open everywhere. The host left room for the particles at the start.
    self.barrier(dcuda::world);
    own_chip.load();
    bool fine = own_chip.sort(0);
    own_chip.send_first_block(fine);
    own_chip.send_last_block(fine);
    fine = neighbours.receive_blocks() && fine;
    if (fine) {
        own_chip.load_borders();
        own_chip.survey(true);
    }

    unsigned long long partners = 0;
    const auto compute_forces = [&]<advance How>(std::integral_constant<advance, How>) {
        const range inside = own_chip.inside();
        const int middle = inside.first + inside.count() / 2;
        partners += own_chip.template kick_all<How>({inside.first, middle});
        own_chip.send_last_block();
        partners += own_chip.template kick_all<How>({middle, inside.last});
        if (!neighbours.receive_blocks()) return false;
        own_chip.load_borders();
        partners += own_chip.template kick_border<How>();
        return true;
    };
    self.barrier(dcuda::world);
    self.start_timer();
    for (int step = 1; step <= work.steps; ++step) {
        if (step > 1) fine = compute_forces(std::integral_constant<advance, advance::middle>{});
        if (!fine) {
            neighbours.send_lists(false);
            break;
        }
        if (step == 1) own_chip.template kick_all<advance::first>(own_chip.all());
        own_chip.drift_and_send(step);
        fine = neighbours.receive_lists();
        fine = own_chip.is_fine() & fine; // PERF: not &&, so that all that says so is read at once
        fine = fine && own_chip.sort(step);
        own_chip.send_first_block(fine);
        if (!fine) {
            own_chip.send_last_block(false);
            break;
        }
        reported.done(step);
    }
    if (fine && work.steps > 0) fine = compute_forces(std::integral_constant<advance, advance::end>{});
    self.barrier(dcuda::world);
    self.stop_timer();

    if (fine) own_chip.survey(false);
    own_chip.store();
    own_chip.count_particles(partners);
    share_tally(self, work.cells, work.known, own_chip.result());
    neighbours.close();
}

// Every rank puts its particles to `all`, which holds a list for each rank on process 0 and is not used elsewhere.
__global__ void __launch_bounds__(most_threads)
    gather_from_ranks(dcuda::context context, chip_task work, std::byte* all) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);

    const bool collects = self.id() == 0;
    const list_view own_list = work.particles_of(self.id());
    const std::size_t bytes = list_view::bytes_of(own_list.count());
    const dcuda::window win =
        self.create_window(dcuda::world, collects ? all : reinterpret_cast<std::byte*>(own_list.start),
                           collects ? static_cast<std::size_t>(self.size()) * work.particle_bytes() : bytes);
    self.put_notify(win, 0, static_cast<std::size_t>(self.id()) * work.particle_bytes(), bytes, own_list.start,
                    gather_tag);
    if (collects) self.wait_notifications(gather_tag, self.size());
    self.free_window(win);
}

} // namespace particles
