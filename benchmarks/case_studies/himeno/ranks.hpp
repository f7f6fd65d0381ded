// SPDX-License-Identifier: BSD-3-Clause
// Himeno by ranks: one kernel for all steps. The planes are cut over the devices, and the rows of each device over its
// ranks, so a rank has a column of the grid: some rows of all planes of its device. The pressure is in memory twice, as
// each step reads one and writes the other. Ranks of a device read each other's border rows where they are, so they
// flush before they tell each other of them; to the neighbouring devices they put their rows of the border planes.
//
// Why nobody reads what is not there, or writes what is still read. A rank begins step n when each of its neighbours
// has told it that step n - 1 is done: two on its device, and up to three on either device beside it, the one with
// the same rows and those next to it, since points are computed from all 18 around them. It tells a neighbour on its
// device after its whole step, and one on another device when its border planes are done, which alone read the planes
// that come from there. (1) What step n reads has been written: by this rank, or by neighbours that have told it so.
// (2) Step n writes the pressure that step n - 1 has read. On this device its readers are this rank and the two beside
// it, who have done step n - 1. On the other device its readers are the three whom this rank tells; each of them has
// told it that its border planes of step n - 1 are done. (3) A neighbour is at most one step ahead: for the next one it
// waits for this rank. So two tags in turn tell the steps apart.
#pragma once

#include "common/progress.hpp"
#include "dcuda/dcuda.hpp"
#include "slab.hpp"

namespace himeno {

// What a kernel of ranks has of a device.
struct task : slab {
    common::partition rows; // 1 to nj - 2, counted from 0, over the ranks of a device
    int steps = 0;
    bool sums_every_step = true; // else after the last one
    double* gosa = nullptr;      // the last step's
    common::run_series runs{};
};

// A rank's part. All threads of the rank call everything.
template <bool IsFused>
class column {
public:
    DCUDA_DEVICE column(dcuda::rank& self, const task& work) : self_(self), work_(work) {
        number_ = self.id() % ranks();
        const range own = work.rows.of_rank(number_);
        rows_ = {own.first + 1, own.last + 1};
        for (int beside = -1; beside <= 1; ++beside) {
            if (!has_rows(number_ + beside)) continue;
            if (beside != 0) ++expected_;
            expected_ += (has_device(-1) ? 1 : 0) + (has_device(1) ? 1 : 0);
        }
    }
    DCUDA_DEVICE bool is_empty() const { return rows_.empty(); }

    // A step: border planes, messages, then the others. Adds the squares of this thread's changes.
    DCUDA_DEVICE double compute(int step) const {
        if (step > 0) self_.wait_notifications(step % 2, expected_);
        const range planes = work_.computed();
        range inside = planes;
        double squares = 0.0;
        if (has_device(-1) && !inside.empty()) squares += compute(step, {planes.first, ++inside.first});
        if (has_device(1) && !inside.empty()) squares += compute(step, {--inside.last, planes.last});
        const bool tells = step + 1 < work_.steps;
        if (tells && (has_device(-1) || has_device(1))) {
            if (has_device(-1)) send(step, -1, planes.first);
            if (has_device(1)) send(step, 1, planes.last - 1);
            self_.flush(work_.window);
            if (has_device(-1)) tell(step, -1);
            if (has_device(1)) tell(step, 1);
        }
        squares += compute(step, inside);
        if (tells && (has_rows(number_ - 1) || has_rows(number_ + 1))) {
            self_.flush(work_.window);
            tell(step, 0);
        }
        return squares;
    }

private:
    DCUDA_DEVICE int ranks() const { return work_.rows.ranks_per_device; }
    DCUDA_DEVICE bool has_rows(int number) const {
        return number >= 0 && number < ranks() && !work_.rows.of_rank(number).empty();
    }
    DCUDA_DEVICE bool has_device(int beside) const {
        const int device = work_.device + beside;
        return device >= 0 && device < work_.planes.devices; // each has a plane
    }

    DCUDA_DEVICE double compute(int step, range planes) const {
        const float* const in = work_.pressure[step % 2];
        float* const out = work_.pressure[(step + 1) % 2];
        double squares = 0.0;
        // Threads take the points of a row of lines along the planes; where there are more threads than lines, each
        // line is cut into pieces.
        const int width = work_.whole.nk - 2, lines = rows_.count() * width, count = planes.count();
        const int threads = static_cast<int>(blockDim.x);
        const int pieces = lines >= threads ? 1 : count * lines <= threads ? count : threads / lines;
        for (int item = static_cast<int>(threadIdx.x); item < lines * pieces; item += threads) {
            const int line = item % lines, piece = item / lines;
            const int first = planes.first + count * piece / pieces, last = planes.first + count * (piece + 1) / pieces;
            std::uint32_t at = work_.index(first, rows_.first + line / width, 1 + line % width);
            for (int i = first; i < last; ++i, at = work_.next_plane(at))
                squares += static_cast<double>(compute_point<IsFused>(work_, in, out, at));
        }
        return squares;
    }

    // This rank's rows of a plane that step `step` has written, to where the device beside has it as well.
    DCUDA_DEVICE void send(int step, int beside, int plane) const {
        const std::size_t bytes = std::size_t(rows_.count()) * std::size_t(work_.whole.nk) * sizeof(float);
        self_.put(work_.window, self_.id() + beside * ranks(),
                  work_.place_in_window(work_.device + beside, step, plane, rows_.first), bytes,
                  work_.pressure[(step + 1) % 2] + work_.place(work_.device, plane, rows_.first, 0));
    }

    // Tells the neighbours on this device (0), or on the one beside it, that the step is done. After a flush: a
    // notification by itself tells only of puts to who gets it, and not of what was stored without a put.
    DCUDA_DEVICE void tell(int step, int device_beside) const {
        for (int beside = -1; beside <= 1; ++beside)
            if (has_rows(number_ + beside) && (beside != 0 || device_beside != 0))
                self_.notify(self_.id() + device_beside * ranks() + beside, dcuda::world, (step + 1) % 2);
    }

    dcuda::rank& self_;
    const task& work_;
    int number_ = 0;   // on the device
    range rows_{};     // of the grid
    int expected_ = 0; // messages before each step but the first
};

// The sums of that many steps are added up over all ranks at a time, as nobody waits for one.
inline constexpr int sums_at_a_time = 32;

// All ranks. Shared memory: a double for each thread. PERF: with few registers many threads share a multiprocessor.
template <bool IsFused>
__global__ void __launch_bounds__(1024, 1) solve(dcuda::context context, task work) {
    auto* const parts = dcuda::dynamic_shared<double>();
    __shared__ double sums[sums_at_a_time];
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const column<IsFused> own(self, work);
    self.barrier(dcuda::world);
    self.start_timer();
    common::progress progress(self, "himeno", "step", work.steps, work.runs);
    double gosa = 0.0;
    int kept = 0; // sums that have not been added up
    for (int step = 0; step < work.steps; ++step) {
        const bool is_last = step + 1 == work.steps;
        const double squares = own.is_empty() ? 0.0 : own.compute(step);
        if (work.sums_every_step || is_last) {
            const double sum = sum_of_block(parts, squares);
            if (threadIdx.x == 0) sums[kept] = sum;
            ++kept;
        }
        if (kept == sums_at_a_time || (is_last && kept > 0)) {
            __syncthreads();
            self.allreduce(dcuda::world, sums, sums, static_cast<std::size_t>(kept), dcuda::sum{});
            gosa = sums[kept - 1];
            kept = 0;
        }
        progress.done(step + 1);
    }
    self.barrier(dcuda::world);
    self.stop_timer();
    if (self.id(dcuda::device) == 0 && threadIdx.x == 0) *work.gosa = gosa;
}

} // namespace himeno
