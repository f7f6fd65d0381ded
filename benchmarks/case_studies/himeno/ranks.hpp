// SPDX-License-Identifier: BSD-3-Clause
// Himeno by ranks: one kernel for all steps. The planes are cut over the devices, and the rows of each device over its
// ranks, so a rank has a column of the grid: some rows of all planes of its device. The pressure is in memory twice, as
// each step reads one and writes the other. Ranks of a device read each other's border rows where they are, so they
// flush before they tell each other of them; to the neighbouring devices they put their rows of the border planes.
// Devices may be cut along the rows as well. Then the first and the last rank of a device have neighbours on the
// devices before and behind it: to these they put their border row of all planes, which is a box, and to the devices at
// the corners that row of a border plane.
//
// Why nobody reads what is not there, or writes what is still read. A rank's neighbours have the same rows, the ones
// before or the ones behind, on its own planes or on the planes of a device beside it, since points are computed from
// all 18 around them. So there are up to eight. A rank begins step n when each of them has told it that step n - 1 is
// done. It tells a neighbour on its device after its whole step, and one on another device when its border planes and
// its border rows towards other devices are done, which alone read what comes from there. (1) What step n reads has
// been written: by this rank, or by neighbours that have told it so. A border plane comes from the rank with the same
// rows, and the ranks before and behind that one's rows read it, too; a border row, or its piece in a border plane,
// comes from the neighbour who computes it, and nobody else reads it. (2) Step n writes the pressure that step n - 1
// has read. On this device its readers are this rank and the ones before and behind it, who have done step n - 1. On
// another device the readers of what this rank puts there are neighbours whom it tells; each of them has told it that
// the border planes and rows of step n - 1 are done. (3) A neighbour is at most one step ahead: for the next one it
// waits for this rank. So two tags in turn tell the steps apart.
#pragma once

#include "common/progress.hpp"
#include "dcuda/dcuda.hpp"
#include "slab.hpp"

namespace himeno {

// What a kernel of ranks has of a device.
struct task : slab {
    int steps = 0;
    bool sums_every_step = true; // else after the last one
    double* gosa = nullptr;      // the last step's
    common::run_series runs{};
};

// A rank's part. All threads of the rank call everything. PERF: without `CutsRows`, no two devices share planes, and
// nothing of border rows is compiled.
template <bool IsFused, bool CutsRows>
class column {
public:
    DCUDA_DEVICE column(dcuda::rank& self, const task& work) : self_(self), work_(work) {
        number_ = self.id() % ranks();
        const range own = rows_of(number_);
        rows_ = {own.first + 1, own.last + 1};
        for (int along_rows = -1; along_rows <= 1; ++along_rows) {
            if (!has_neighbour(along_rows)) continue;
            if (along_rows != 0) ++expected_;
            expected_ += (has_device(-1) ? 1 : 0) + (has_device(1) ? 1 : 0);
        }
    }
    DCUDA_DEVICE bool is_empty() const { return rows_.empty(); }

    // A step: border planes and rows, messages, then the others. Adds the squares of this thread's changes.
    DCUDA_DEVICE double compute(int step) const {
        if (step > 0) self_.wait_notifications(step % 2, expected_);
        const range planes = work_.computed();
        range inside = planes, rows = rows_;
        double squares = 0.0;
        if (has_device(-1) && !inside.empty()) squares += compute(step, {planes.first, ++inside.first}, rows_);
        if (has_device(1) && !inside.empty()) squares += compute(step, {--inside.last, planes.last}, rows_);
        if (is_far(-1)) squares += compute(step, inside, {rows_.first, ++rows.first});
        if (is_far(1) && !rows.empty()) squares += compute(step, inside, {--rows.last, rows_.last});
        const bool tells = step + 1 < work_.steps;
        if (tells && (has_device(-1) || has_device(1) || is_far(-1) || is_far(1))) {
            if (has_device(-1)) send_plane(step, -1, planes.first);
            if (has_device(1)) send_plane(step, 1, planes.last - 1);
            if (is_far(-1)) send_row(step, -1, rows_.first);
            if (is_far(1)) send_row(step, 1, rows_.last - 1);
            self_.flush(work_.window);
            if (has_device(-1)) tell_device(step, -1);
            if (has_device(1)) tell_device(step, 1);
            if (is_far(-1)) tell(step, 0, -1);
            if (is_far(1)) tell(step, 0, 1);
        }
        squares += compute(step, inside, rows);
        if (tells && (is_near(-1) || is_near(1))) {
            self_.flush(work_.window);
            if (is_near(-1)) tell(step, 0, -1);
            if (is_near(1)) tell(step, 0, 1);
        }
        return squares;
    }

private:
    DCUDA_DEVICE int ranks() const { return work_.rows.ranks_per_device; }
    DCUDA_DEVICE int row_part() const { return CutsRows ? work_.row_part(work_.device) : 0; }
    // Of a rank of this device, counted from 0.
    DCUDA_DEVICE range rows_of(int number) const { return work_.rows.of_rank(row_part() * ranks() + number); }
    // Whether there is a rank that computes the planes of the device before or behind this one's.
    DCUDA_DEVICE bool has_device(int along_planes) const {
        const int part = (CutsRows ? work_.plane_part(work_.device) : work_.device) + along_planes;
        return part >= 0 && part < work_.planes.devices; // each has a plane
    }
    // Whether a rank of this device has the rows before or behind this one's, or these.
    DCUDA_DEVICE bool is_near(int along_rows) const {
        const int number = number_ + along_rows;
        return number >= 0 && number < ranks() && !rows_of(number).empty();
    }
    // Whether a rank of another device has them.
    DCUDA_DEVICE bool is_far(int along_rows) const {
        if constexpr (!CutsRows) return false;
        const int part = row_part() + along_rows;
        return !is_near(along_rows) && part >= 0 && part < work_.rows.devices; // each has a row
    }
    DCUDA_DEVICE bool has_neighbour(int along_rows) const { return is_near(along_rows) || is_far(along_rows); }

    DCUDA_DEVICE int device_beside(int along_planes, int along_rows) const {
        return work_.device + along_planes * (CutsRows ? work_.rows.devices : 1) +
               (is_far(along_rows) ? along_rows : 0);
    }
    // Of a neighbour, in the world.
    DCUDA_DEVICE int id_of(int along_planes, int along_rows) const {
        const int device = device_beside(along_planes, along_rows);
        int number = number_ + along_rows;
        if (is_far(along_rows)) {
            // The first ranks of a device have the rows.
            const int rows = work_.computed_rows(device).count();
            number = along_rows > 0 ? 0 : (rows < ranks() ? rows : ranks()) - 1;
        }
        return device * ranks() + number;
    }

    DCUDA_DEVICE double compute(int step, range planes, range rows) const {
        const float* const in = work_.pressure[step % 2];
        float* const out = work_.pressure[(step + 1) % 2];
        double squares = 0.0;
        // Threads take the points of a row of lines along the planes; where there are more threads than lines, each
        // line is cut into pieces.
        const int width = work_.whole.nk - 2, lines = rows.count() * width, count = planes.count();
        const int threads = static_cast<int>(blockDim.x);
        const int pieces = lines >= threads || lines == 0 ? 1 : count * lines <= threads ? count : threads / lines;
        for (int item = static_cast<int>(threadIdx.x); item < lines * pieces; item += threads) {
            const int line = item % lines, piece = item / lines;
            const int first = planes.first + count * piece / pieces, last = planes.first + count * (piece + 1) / pieces;
            std::uint32_t at = work_.index(first, rows.first + line / width, 1 + line % width);
            for (int i = first; i < last; ++i, at = work_.next_plane(at))
                squares += static_cast<double>(compute_point<IsFused>(work_, in, out, at));
        }
        return squares;
    }

    // A point that step `step` has written.
    DCUDA_DEVICE const float* written(int step, int plane, int row) const {
        return work_.pressure[(step + 1) % 2] + work_.place(work_.device, plane, row, 0);
    }
    DCUDA_DEVICE std::size_t row_bytes() const { return std::size_t(work_.whole.nk) * sizeof(float); }

    // This rank's rows of a plane that step `step` has written, to where the device beside has it as well.
    DCUDA_DEVICE void send_plane(int step, int along_planes, int plane) const {
        self_.put(work_.window, id_of(along_planes, 0),
                  work_.place_in_window(device_beside(along_planes, 0), step, plane, rows_.first),
                  std::size_t(rows_.count()) * row_bytes(), written(step, plane, rows_.first));
    }

    // A row of all planes, likewise; of the border planes also to the devices at the corners.
    DCUDA_DEVICE void send_row(int step, int along_rows, int row) const {
        const range planes = work_.computed();
        if (!planes.empty()) {
            const int device = device_beside(0, along_rows);
            self_.put(work_.window, id_of(0, along_rows), work_.place_in_window(device, step, planes.first, row),
                      dcuda::pitch{work_.plane_points(device) * sizeof(float)},
                      dcuda::box{row_bytes(), std::size_t(planes.count())}, written(step, planes.first, row),
                      dcuda::pitch{work_.plane_points(work_.device) * sizeof(float)});
        }
        for (int along_planes = -1; along_planes <= 1; along_planes += 2) {
            if (!has_device(along_planes)) continue;
            const int plane = along_planes < 0 ? planes.first : planes.last - 1;
            self_.put(work_.window, id_of(along_planes, along_rows),
                      work_.place_in_window(device_beside(along_planes, along_rows), step, plane, row), row_bytes(),
                      written(step, plane, row));
        }
    }

    // Tells a neighbour that the step is done. After a flush: a notification by itself tells only of puts to who gets
    // it, and not of what was stored without a put.
    DCUDA_DEVICE void tell(int step, int along_planes, int along_rows) const {
        self_.notify(id_of(along_planes, along_rows), dcuda::world, (step + 1) % 2);
    }
    // Tells all neighbours that compute the planes of the device beside.
    DCUDA_DEVICE void tell_device(int step, int along_planes) const {
        for (int along_rows = -1; along_rows <= 1; ++along_rows)
            if (has_neighbour(along_rows)) tell(step, along_planes, along_rows);
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
template <bool IsFused, bool CutsRows>
__global__ void __launch_bounds__(1024, 1) solve(dcuda::context context, task work) {
    auto* const parts = dcuda::dynamic_shared<double>();
    __shared__ double sums[sums_at_a_time];
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const column<IsFused, CutsRows> own(self, work);
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
