// SPDX-License-Identifier: BSD-3-Clause
// What the ranks do: move particles, and gather the result. What a step is made of is in steps.hpp.
//
// A segment with room for `capacity` particles has, in arrays over all segments of the device and one more on either
// side (the halo: the neighbours' border segments),
//   - its block: where its cells begin, and the positions, sorted by cell and then number. Neighbours read it.
//   - two lists, of particles that left for the segment before and for the one after, which read theirs. A third, of
//     those that did not leave, holds the start and the result.
//   - new positions, velocities and numbers in the block's order, the latter two twice, as a sort reads one and writes
//     the other. Nobody else reads them.
// As in the stencil, all ranks of a device share the arrays and the windows of neighbours overlap: on one device a put
// of a border segment finds source and target at one address, copies nothing, and only the notification remains. A put
// to another device fills the halo there.
//
// Nothing but notifications orders the ranks. Per step, a rank r with a neighbour p
//     1. advances its border segment; puts p the list of those that left for p; advances the others; waits for p's
//     2. sorts its border segment;    puts p its block;                         sorts the others;    waits for p's
// A wait makes data readable. That nobody overwrites what a neighbour still reads (or what a put still sends) follows
// from the chain, though there is one array of blocks and one of lists, and no second buffer:
//   - The list is read by p when it sorts its border segment. r empties it at the end of the step, after it has
//     received p's block, which p put after that sort.
//   - The block is read by p when it advances its border segment. r overwrites it in the same step's sort, after it has
//     received p's list, which p put after that advance. Advancing does not touch blocks: it writes beside them, for
//     that reason.
// For another device the same holds for the halo there and for the source of the put: what r receives from p was sent
// after p had waited for, and used, what r put. Counters of notifications cannot mix steps either: p puts its next list
// only after it has r's block, which r puts after it has waited for p's last list; blocks likewise. With the last
// step's blocks all forces are known: what is left of it takes no message.
//
// Errors: a rank that cannot go on sends its next message with a mark in place of the data, and leaves the loop: a
// block if it has not sent this step's, or else, when it has received the others', a list. Who receives a mark does the
// same. So every rank gets the message that it waits for, the whole kernel ends, and the host finds the reason in the
// rank's tally.
#pragma once

#include <cstddef>

#include "common/progress.hpp"
#include "exchange.hpp"
#include "steps.hpp"

namespace particles {

// Where a rank has what a step reads and writes: all in the device's arrays.
struct rank_places {
    const task& base;
    tally& result;

    DCUDA_DEVICE bool is_mine(int) const { return true; }
    DCUDA_DEVICE tally& tally_of(int) const { return result; }
    DCUDA_DEVICE int number_of(int step) const { return step; }
    DCUDA_DEVICE void keep(int, int segment, int i, const vector& at) const {
        store(base.moved + base.first_slot(segment) + i, at);
    }
    DCUDA_DEVICE stayers stayed(int segment, int turn) const {
        const std::size_t first = base.first_slot(segment);
        return {base.block(segment).count(), base.moved + first, base.numbers[turn] + first};
    }
    DCUDA_DEVICE leavers left(int segment, leaving how, int) const { return {base.list(segment, how), base.capacity}; }
    // Whose they are empties them, when they were read.
    DCUDA_DEVICE void forget(const leavers&, const leavers&) const {}
};

// A rank's segments. All threads of the rank call everything; what the others did they find after the rank's next
// barrier.
template <bool IsShared>
class part {
public:
    DCUDA_DEVICE part(const task& work, int rank) : work_(work) {
        const int number = rank % work.segments.ranks_per_device;
        if (thread() == 0) own() = {work.segments.of_rank(rank), &work.tallies[number], number};
        __syncthreads();
        space().clear(team_, work.whole.columns);
    }

    DCUDA_DEVICE range segments() const { return own().segments; }
    DCUDA_DEVICE tally& result() const { return *own().result; }

    // Whether nothing has failed. Between a barrier of the rank and what may fail next, so that all threads agree.
    DCUDA_DEVICE bool is_fine() const { return result().failed.cause == failure::none; }

    // Which segments, in the order of segment(i): all; those at the borders, which neighbours wait for; the others.
    DCUDA_DEVICE range all() const { return {0, segments().count()}; }
    DCUDA_DEVICE range border() const { return {0, segments().count() < 2 ? segments().count() : 2}; }
    DCUDA_DEVICE range inside() const { return {2, segments().count()}; }

    // From the lists of the start to blocks.
    DCUDA_DEVICE void load() const {
        advance_all<advance::load>(0, all());
        for_each_index(segments().count(), [&](int i) {
            const int here = segments().first + i;
            work_.block(here).cells[work_.whole.columns] = count_before(work_, advance::load, here);
        });
        sort(0, all());
    }

    DCUDA_DEVICE void empty_lists() const {
        for_each_index(2 * segments().count(), [&](int i) {
            work_.list(segments().first + i / 2, i % 2 == 0 ? leaving::down : leaving::up).count() = 0;
        });
    }

    // Returns with how many others all this thread's particles have interacted.
    template <advance How>
    DCUDA_DEVICE unsigned long long advance_all(int step, range which) const {
        int partners = 0;
        for (int index = which.first; index < which.last; ++index) {
            const int here = segment(index), count = count_before(work_, How, here);
            for (int i = thread(); i < count; i += threads())
                partners += advance_one(places(), How, task::turn_of(step), step, here, i);
        }
        return static_cast<unsigned long long>(partners);
    }

    // False if a segment gets too many.
    DCUDA_DEVICE bool sort(int step, range which) const {
        bool fine = true;
        for (int index = which.first; index < which.last; ++index)
            fine = sort_segment(team_, places(), space(), task::turn_of(step), step, segment(index)) && fine;
        return fine;
    }

    // Adds up momentum and energy after so many steps.
    DCUDA_DEVICE void survey(int steps, bool is_start) const {
        for (int here = segments().first; here < segments().last; ++here)
            for_each_index(work_.block(here).count(),
                           [&](int i) { survey_one(places(), task::turn_after(steps), is_start, here, i); });
    }

    DCUDA_DEVICE void count_particles(unsigned long long partners) const {
        atomicAdd(&result().partners, partners);
        for_each_index(segments().count(), [&](int i) {
            atomicAdd(&result().count, static_cast<unsigned long long>(work_.block(segments().first + i).count()));
        });
    }

private:
    // PERF: in shared memory. Registers are not enough for all, and every acquire empties the cache of spilled ones.
    struct desk {
        range segments;
        tally* result;
        int number; // of the rank, on its device
    };
    static DCUDA_DEVICE desk& own() {
        __shared__ desk result;
        return result;
    }
    DCUDA_DEVICE rank_places places() const { return {work_, result()}; }
    DCUDA_DEVICE sort_space space() const {
        const int columns = work_.whole.columns, capacity = work_.capacity;
        std::byte* const memory =
            IsShared ? dcuda::dynamic_shared<std::byte>()
                     : work_.scratch + static_cast<std::size_t>(own().number) * sort_space::bytes_of(columns, capacity);
        return {memory, columns, capacity};
    }
    // The first segment, the last one, and then the others.
    DCUDA_DEVICE int segment(int i) const {
        if (i == 1) return segments().last - 1;
        return i == 0 ? segments().first : segments().first + i - 1;
    }

    const task& work_;
    block_team team_;
};

// A rank sorts in shared memory if it takes no more. Then four have room on a multiprocessor, and its cache has some.
inline constexpr std::size_t most_sort_bytes = 32 * 1024;

// A rank's windows are its segments with the halo. Beside the domain there are segments, too: empty ones.
struct segment_borders {
    const task& work;

    DCUDA_DEVICE borders borders_of(int rank) const {
        const range segments = work.segments.of_rank(rank);
        const auto stored = static_cast<std::size_t>(with_halo(segments).count());
        return {side_of(segments.first, -1),
                side_of(segments.last - 1, 1),
                reinterpret_cast<std::byte*>(work.block(segments.first - 1).cells),
                reinterpret_cast<std::byte*>(work.list(segments.first - 1, leaving::down).start),
                stored * work.block_bytes(),
                stored * 3 * work.list_bytes()};
    }

private:
    DCUDA_DEVICE side side_of(int segment, int direction) const {
        const leaving here = direction < 0 ? leaving::down : leaving::up;
        const leaving there = direction < 0 ? leaving::up : leaving::down;
        side result{work.segments.owner(segment + direction),
                    work.list(segment, here),
                    work.list(segment + direction, there),
                    work.block(segment),
                    work.block(segment + direction),
                    0,
                    0};
        if (result.rank < 0) return result;
        const auto place = static_cast<std::size_t>(segment - with_halo(work.segments.of_rank(result.rank)).first);
        result.list_offset = (place * 3 + static_cast<std::size_t>(here)) * work.list_bytes();
        result.block_offset = place * work.block_bytes();
        return result;
    }
};

// Moves the particles that the lists hold at the start.
template <bool IsShared>
__global__ void __launch_bounds__(most_threads) simulate(dcuda::context context, task work) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);

    const part<IsShared> own_part(work, self.id());
    const exchange neighbours(self, segment_borders{work});
    common::progress reported(self, "particles", "step", work.steps, work.runs);

    // Windows are open everywhere. The host left room for the particles at the start.
    self.barrier(dcuda::world);
    own_part.load();
    neighbours.send_blocks(true);
    neighbours.receive_blocks();
    own_part.survey(0, true);

    bool fine = true;
    unsigned long long partners = 0;
    const auto advance_to = [&](int step, range which) {
        partners += step == 1 ? own_part.template advance_all<advance::first>(step, which)
                              : own_part.template advance_all<advance::middle>(step, which);
    };
    self.barrier(dcuda::world);
    self.start_timer();
    for (int step = 1; step <= work.steps; ++step) {
        advance_to(step, own_part.border());
        neighbours.send_lists(true);
        advance_to(step, own_part.inside());
        fine = neighbours.receive_lists();
        fine = own_part.is_fine() & fine; // PERF: not &&, so that all that says so is read at once
        fine = fine && own_part.sort(step, own_part.border());
        neighbours.send_blocks(fine);
        if (!fine) break;
        fine = own_part.sort(step, own_part.inside());
        fine = neighbours.receive_blocks() && fine;
        own_part.empty_lists();
        if (!fine) {
            neighbours.send_lists(false);
            break;
        }
        reported.done(step);
    }
    if (fine && work.steps > 0) partners += own_part.template advance_all<advance::end>(work.steps + 1, own_part.all());
    self.barrier(dcuda::world);
    self.stop_timer();

    if (fine) own_part.survey(work.steps, false);
    own_part.count_particles(partners);
    share_tally(self, work.segments, work.known, own_part.result());
    neighbours.close();
}

// Every rank puts its particles to `all`, which holds a list for each segment of the domain on process 0 and is not
// used elsewhere.
__global__ void __launch_bounds__(most_threads) gather(dcuda::context context, task work, std::byte* all) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);

    const range own_segments = work.segments.of_rank(self.id());
    const bool collects = self.id() == 0;
    const int turn = task::turn_after(work.steps);
    const auto segments = static_cast<std::size_t>(work.whole.segments);
    const dcuda::window win =
        self.create_window(dcuda::world, collects ? all : work.lists, collects ? segments * work.list_bytes() : 0);
    for (int segment = own_segments.first; segment < own_segments.last; ++segment) {
        const block_view block = work.block(segment);
        const list_view list = work.list(segment, leaving::not_at_all);
        const int count = block.count();
        for_each_index(count, [&](int i) {
            const std::size_t slot = work.first_slot(segment) + static_cast<std::size_t>(i);
            list.items()[i] = {block.at()[i], work.velocities[turn][slot], work.numbers[turn][slot]};
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
