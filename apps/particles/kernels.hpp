// What the ranks do: move particles, and gather the result.
//
// A segment with room for `capacity` particles has, in arrays over all segments of the device and one more on either
// side (the halo: the neighbours' border segments),
//   - its block: where its cells begin, and the positions, sorted by cell and then number. Neighbours read it.
//   - velocities, forces and numbers in the same order. Nobody else reads them.
//   - three lists, of particles that left for the segment before, stay, and left for the segment after. The segments
//     before and after read theirs.
// As in the stencil, all ranks of a device share the arrays and the windows of neighbours overlap: on one device a put
// of a border segment finds source and target at one address, copies nothing, and only the notification remains. A put
// to another device fills the halo there.
//
// Nothing but notifications orders the ranks. Per step, a rank r with a neighbour p
//     1. deals its particles to lists by where they drift;  puts p the list of those that left for p;  waits for p's
//     2. sorts what its segments get from lists into blocks; puts p its border segment's block;        waits for p's
//     3. computes forces from blocks
// A wait makes data readable. That nobody overwrites what a neighbour still reads (or what a put still sends) follows
// from the chain, though there is one array of each and no second buffer:
//   - The list is read by p in its part 2. r overwrites it in the next step's part 1, after it has received p's block,
//     which p put after its part 2.
//   - The block is read by p in its part 3. r overwrites it in the next step's part 2, after it has received p's list
//     of that step, which p put after its part 3. Part 1 does not touch blocks: it writes to lists, for that reason.
// For another device the same holds for the halo there and for the source of the put: what r receives from p was sent
// after p had waited for, and used, what r put. Counters of notifications cannot mix steps either: p puts its next list
// only after it has r's block, which r puts after it has waited for p's last list; blocks likewise.
//
// Errors: a rank that cannot go on sends its next message with a mark in place of the data, and leaves the loop. Who
// receives a mark does the same. So every rank gets the message that it waits for, the whole kernel ends, and the host
// finds the reason in the rank's tally.
#pragma once

#include <cstddef>

#include "common/progress.hpp"
#include "dcuda/device.hpp"
#include "task.hpp"

namespace particles {

enum tag : int { list_tag, block_tag, tally_tag, gather_tag };

// The threads of a block are in one row.
DCUDA_DEVICE int thread() { return static_cast<int>(threadIdx.x); }
DCUDA_DEVICE int threads() { return static_cast<int>(blockDim.x); }

// Calls body(i) for 0, ..., count - 1, shared among the rank's threads. All have returned when it returns.
template <class Body>
DCUDA_DEVICE void for_each_index(int count, const Body& body) {
    for (int i = thread(); i < count; i += threads()) body(i);
    __syncthreads();
}

// Replaces each of `values` by the sum up to and with it.
DCUDA_DEVICE void sum_along(int* values, int count) {
    __shared__ int sums[1024];
    const int share = (count + threads() - 1) / threads();
    const int first = thread() * share < count ? thread() * share : count;
    const int last = first + share < count ? first + share : count;
    int own = 0;
    for (int i = first; i < last; ++i) own += values[i];
    sums[thread()] = own;
    __syncthreads();
    for (int stride = 1; stride < threads(); stride *= 2) {
        const int below = thread() >= stride ? sums[thread() - stride] : 0;
        __syncthreads();
        sums[thread()] += below;
        __syncthreads();
    }
    int sum = sums[thread()] - own;
    for (int i = first; i < last; ++i) values[i] = sum += values[i];
    __syncthreads();
}

// A rank's segments. All threads of the rank call everything.
class part {
public:
    DCUDA_DEVICE part(const task& work, int rank)
        : work_(work), mine_(work.segments.of_rank(rank)), tally_(work.tallies[rank % work.segments.ranks_per_device]),
          cursors_(work.scratch +
                   static_cast<std::size_t>(rank % work.segments.ranks_per_device) * work.scratch_ints()),
          order_(cursors_ + work.whole.columns) {}

    // Deals the particles to lists, after the first half of the step's acceleration and the motion.
    DCUDA_DEVICE bool deal(int step) const {
        for_each_index(3 * mine_.count(),
                       [&](int i) { work_.list(mine_.first + i / 3, static_cast<leaving>(i % 3)).count() = 0; });
        bool fine = true;
        for (int segment = mine_.first; segment < mine_.last; ++segment)
            for (int i = thread(); i < work_.block(segment).count(); i += threads())
                if (!deal_one(step, segment, i)) fine = false;
        return __syncthreads_or(!fine) == 0;
    }

    // Sorts what lists have for the segments into blocks.
    DCUDA_DEVICE bool sort(int step) const {
        bool fine = true;
        for (int segment = mine_.first; segment < mine_.last; ++segment) fine = fine && sort_one(step, segment);
        return fine;
    }

    // Computes forces. Returns with how many others all this thread's particles have interacted.
    DCUDA_DEVICE unsigned long long compute_forces() const {
        unsigned long long partners = 0;
        for_each_particle([&](int segment, int i, std::size_t slot) {
            const influence felt = influence_on(work_, segment, work_.block(segment).at()[i]);
            work_.forces[slot] = felt.force;
            partners += static_cast<unsigned long long>(felt.partners);
        });
        return partners;
    }

    // The second half of the step's acceleration.
    DCUDA_DEVICE void accelerate() const {
        for_each_particle(
            [&](int, int, std::size_t slot) { kick(work_.velocities[slot], work_.forces[slot], work_.time_step); });
    }

    // Adds up momentum and energy.
    DCUDA_DEVICE void sum_up(vector& momentum, double& energy) const {
        vector sum;
        double of_energy = 0.0;
        for_each_particle([&](int segment, int i, std::size_t slot) {
            const vector v = work_.velocities[slot];
            sum.x += mass * v.x;
            sum.y += mass * v.y;
            of_energy += 0.5 * mass * (v.x * v.x + v.y * v.y) +
                         0.5 * influence_on(work_, segment, work_.block(segment).at()[i]).potential;
        });
        atomicAdd(&momentum.x, sum.x);
        atomicAdd(&momentum.y, sum.y);
        atomicAdd(&energy, of_energy);
        __syncthreads();
    }

    DCUDA_DEVICE void count_particles(unsigned long long partners) const {
        atomicAdd(&tally_.partners, partners);
        for_each_index(mine_.count(), [&](int i) {
            atomicAdd(&tally_.count, static_cast<unsigned long long>(work_.block(mine_.first + i).count()));
        });
    }

    DCUDA_DEVICE range mine() const { return mine_; }
    DCUDA_DEVICE tally& result() const { return tally_; }

private:
    // Calls body(segment, index, slot) for all particles: index in the segment, slot in the device's arrays.
    template <class Body>
    DCUDA_DEVICE void for_each_particle(const Body& body) const {
        for (int segment = mine_.first; segment < mine_.last; ++segment) {
            const std::size_t first = work_.first_slot(segment);
            for (int i = thread(); i < work_.block(segment).count(); i += threads())
                body(segment, i, first + static_cast<std::size_t>(i));
        }
        __syncthreads();
    }

    // False, after a note in the tally, if the particle is too fast.
    DCUDA_DEVICE bool deal_one(int step, int segment, int i) const {
        const std::size_t slot = work_.first_slot(segment) + static_cast<std::size_t>(i);
        particle moved{work_.block(segment).at()[i], work_.velocities[slot], work_.numbers[slot]};
        kick(moved.velocity, work_.forces[slot], work_.time_step);
        if (!is_slow(moved.velocity, work_.time_step)) {
            failure& note = tally_.failed;
            if (atomicCAS(&note.what, failure::none, failure::too_fast) == failure::none) {
                note.step = step;
                note.segment = segment;
                note.number = moved.number;
                note.velocity = moved.velocity;
            }
            return false;
        }
        const vector taken = drift(moved, work_.whole, work_.time_step);
        if (taken.x != 0.0) atomicAdd(&tally_.walls.x, taken.x);
        if (taken.y != 0.0) atomicAdd(&tally_.walls.y, taken.y);
        const int way = work_.whole.segment_of(moved.at.y) - segment; // -1, 0 or 1, as it is slow
        const list_view list = work_.list(segment, static_cast<leaving>(way + 1));
        list.items()[atomicAdd(&list.count(), 1)] = moved;
        return true;
    }

    // False, after a note in the tally, if the segment gets more than it has room for.
    DCUDA_DEVICE bool sort_one(int step, int segment) const {
        const list_view come_up = work_.list(segment - 1, leaving::up);
        const list_view stayed = work_.list(segment, leaving::not_at_all);
        const list_view come_down = work_.list(segment + 1, leaving::down);
        const int after_first = come_up.count(), after_second = after_first + stayed.count();
        const int count = after_second + come_down.count();
        if (thread() == 0 && count > tally_.fullest) tally_.fullest = count;
        if (count > work_.capacity) {
            if (thread() == 0) tally_.failed = {failure::overfull, step, segment, count, 0, {}};
            return false;
        }
        const auto item = [&](int i) -> const particle& {
            if (i < after_first) return come_up.items()[i];
            return i < after_second ? stayed.items()[i - after_first] : come_down.items()[i - after_second];
        };

        // Count the particles of each cell, add up where cells begin, and give every particle a place in its cell.
        const block_view block = work_.block(segment);
        int* const cells = block.cells;
        const int columns = work_.whole.columns;
        for_each_index(columns + 1, [&](int c) { cells[c] = 0; });
        for_each_index(count, [&](int i) { atomicAdd(&cells[work_.whole.column_of(item(i).at.x) + 1], 1); });
        sum_along(cells, columns + 1);
        for_each_index(columns, [&](int c) { cursors_[c] = cells[c]; });
        for_each_index(count, [&](int i) { order_[atomicAdd(&cursors_[work_.whole.column_of(item(i).at.x)], 1)] = i; });

        // Which place was a matter of chance so far. A cell has few particles: insert one after the other.
        for_each_index(columns, [&](int c) {
            for (int i = cells[c] + 1; i < cells[c + 1]; ++i) {
                const int moved = order_[i];
                int to = i;
                for (; to > cells[c] && item(order_[to - 1]).number > item(moved).number; --to)
                    order_[to] = order_[to - 1];
                order_[to] = moved;
            }
        });
        const std::size_t first = work_.first_slot(segment);
        for_each_index(count, [&](int i) {
            const particle& p = item(order_[i]);
            const std::size_t slot = first + static_cast<std::size_t>(i);
            block.at()[i] = p.at;
            work_.velocities[slot] = p.velocity;
            work_.numbers[slot] = p.number;
        });
        return true;
    }

    const task& work_;
    range mine_;
    tally& tally_;
    int* cursors_;
    int* order_;
};

// A rank's messages to and from the ranks before and after it.
class exchange {
public:
    // Collective over all ranks.
    DCUDA_DEVICE exchange(dcuda::rank& self, const task& work, range mine)
        : self_(self), work_(work), mine_(mine), previous_(work.segments.owner(mine.first - 1)),
          next_(work.segments.owner(mine.last)) {
        const auto stored = static_cast<std::size_t>(with_halo(mine).count());
        blocks_ = self.create_window(dcuda::world, work.block(mine.first - 1).cells, stored * work.block_bytes());
        lists_ = self.create_window(dcuda::world, work.list(mine.first - 1, leaving::down).start,
                                    stored * 3 * work.list_bytes());
    }

    DCUDA_DEVICE void close() const {
        self_.free_window(lists_);
        self_.free_window(blocks_);
    }

    // Each: sends the data, or the mark of an error if not all is fine. Nothing where there is no neighbour.
    DCUDA_DEVICE void send_lists(bool fine) const {
        if (!fine && thread() == 0) {
            work_.list(mine_.first, leaving::down).count() = -1;
            work_.list(mine_.last - 1, leaving::up).count() = -1;
        }
        __syncthreads();
        send_list(mine_.first, leaving::down, previous_);
        send_list(mine_.last - 1, leaving::up, next_);
    }
    DCUDA_DEVICE void send_blocks(bool fine) const {
        if (!fine && thread() == 0) {
            work_.block(mine_.first).cells[0] = -1;
            work_.block(mine_.last - 1).cells[0] = -1;
        }
        __syncthreads();
        send_block(mine_.first, previous_, fine);
        send_block(mine_.last - 1, next_, fine);
    }

    // Each: waits for the neighbours' data. False if one of them sent a mark.
    DCUDA_DEVICE bool receive_lists() const {
        self_.wait_notifications(list_tag, neighbours());
        return work_.list(mine_.first - 1, leaving::up).count() >= 0 &&
               work_.list(mine_.last, leaving::down).count() >= 0;
    }
    DCUDA_DEVICE bool receive_blocks() const {
        self_.wait_notifications(block_tag, neighbours());
        return work_.block(mine_.first - 1).cells[0] >= 0 && work_.block(mine_.last).cells[0] >= 0;
    }

private:
    DCUDA_DEVICE int neighbours() const { return (previous_ < 0 ? 0 : 1) + (next_ < 0 ? 0 : 1); }

    // The segment's place among those that the neighbour has in its window.
    DCUDA_DEVICE std::size_t place_there(int segment, int neighbour) const {
        return static_cast<std::size_t>(segment - with_halo(work_.segments.of_rank(neighbour)).first);
    }
    DCUDA_DEVICE void send_list(int segment, leaving how, int neighbour) const {
        if (neighbour < 0) return;
        const list_view list = work_.list(segment, how);
        const std::size_t index = place_there(segment, neighbour) * 3 + static_cast<std::size_t>(how);
        const int count = list.count() > 0 ? list.count() : 0;
        self_.put_notify(lists_, neighbour, index * work_.list_bytes(), list_view::bytes_of(count), list.start,
                         list_tag);
    }
    DCUDA_DEVICE void send_block(int segment, int neighbour, bool fine) const {
        if (neighbour < 0) return;
        const block_view block = work_.block(segment);
        const std::size_t bytes = block_view::bytes_of(work_.whole.columns, fine ? block.count() : 0);
        self_.put_notify(blocks_, neighbour, place_there(segment, neighbour) * work_.block_bytes(), bytes, block.cells,
                         block_tag);
    }

    dcuda::rank& self_;
    const task& work_;
    range mine_;
    int previous_, next_; // world ranks, or -1
    dcuda::window blocks_, lists_;
};

// Puts the rank's tally to the first rank of every device, so that every host knows all.
DCUDA_DEVICE void share_tally(dcuda::rank& self, const task& work, const tally& mine) {
    const int ranks_per_device = work.segments.ranks_per_device;
    const bool receives = self.id(dcuda::device) == 0;
    const auto all = static_cast<std::size_t>(self.size());
    const dcuda::window win = self.create_window(dcuda::world, work.known, receives ? all * sizeof(tally) : 0);
    for (int device = 0; device < work.segments.devices; ++device)
        self.put_notify(win, device * ranks_per_device, static_cast<std::size_t>(self.id()) * sizeof(tally),
                        sizeof(tally), &mine, tally_tag);
    if (receives) self.wait_notifications(tally_tag, self.size());
    self.free_window(win);
}

// Moves the particles that the lists hold at the start. The bound keeps registers at 64 per thread, so that any number
// of threads can be launched.
__global__ void __launch_bounds__(1024) simulate(dcuda::context context, task work) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);

    const part segments(work, self.id());
    tally& result = segments.result();
    const exchange neighbours(self, work, segments.mine());
    common::progress reported(self, "particles: step", work.steps, work.progress_seconds);

    // Windows are open everywhere. The host left room for the particles at the start.
    self.barrier(dcuda::world);
    segments.sort(0);
    neighbours.send_blocks(true);
    bool fine = neighbours.receive_blocks();
    segments.compute_forces();
    segments.sum_up(result.momentum_before, result.energy_before);

    unsigned long long partners = 0;
    self.barrier(dcuda::world);
    self.start_timer();
    for (int step = 1; step <= work.steps; ++step) {
        fine = fine && segments.deal(step);
        neighbours.send_lists(fine);
        if (!fine) break;
        fine = neighbours.receive_lists() && segments.sort(step);
        neighbours.send_blocks(fine);
        if (!fine) break;
        fine = neighbours.receive_blocks();
        if (fine) {
            partners += segments.compute_forces();
            segments.accelerate();
            reported.done(step);
        }
    }
    self.barrier(dcuda::world);
    self.stop_timer();

    if (fine) segments.sum_up(result.momentum, result.energy);
    segments.count_particles(partners);
    share_tally(self, work, result);
    neighbours.close();
}

// Every rank puts its particles to `all`, which holds a list for each segment of the domain on process 0 and is not
// used elsewhere.
__global__ void __launch_bounds__(1024) gather(dcuda::context context, task work, std::byte* all) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);

    const range mine = work.segments.of_rank(self.id());
    const bool collects = self.id() == 0;
    const auto segments = static_cast<std::size_t>(work.whole.segments);
    const dcuda::window win =
        self.create_window(dcuda::world, collects ? all : work.lists, collects ? segments * work.list_bytes() : 0);
    for (int segment = mine.first; segment < mine.last; ++segment) {
        const block_view block = work.block(segment);
        const list_view list = work.list(segment, leaving::not_at_all);
        const int count = block.count();
        for_each_index(count, [&](int i) {
            const std::size_t slot = work.first_slot(segment) + static_cast<std::size_t>(i);
            list.items()[i] = {block.at()[i], work.velocities[slot], work.numbers[slot]};
        });
        if (thread() == 0) list.count() = count;
        __syncthreads();
        self.put_notify(win, 0, static_cast<std::size_t>(segment) * work.list_bytes(), list_view::bytes_of(count),
                        list.start, gather_tag);
    }
    if (collects) self.wait_notifications(gather_tag, work.whole.segments);
    self.free_window(win);
}

} // namespace particles
