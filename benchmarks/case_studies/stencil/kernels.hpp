// SPDX-License-Identifier: BSD-3-Clause
// What the ranks do: diffuse, and gather the result.
//
// All fields of a device lie in arrays that its ranks share: the device's rows and one halo row on either side. The
// window of a rank is its rows with the row before and the row after. So the windows of neighbours on one device
// overlap: the neighbour's border row IS the halo row, a put to it finds source and target at the same address and
// copies nothing, only the notification remains. A put to another device fills a halo row there.
//
// Nothing but these notifications orders the ranks. Per iteration, a rank r with a neighbour p before and n after it
//     1. computes lap,     puts its first row to p;           waits for n's
//     2. computes fx, fy,  puts its last row of fy to n;      waits for p's
//     3. updates in,       puts its first row to p, last to n; waits for both
// Rows that go out are computed first, and are on their way while the rank computes the others.
// A wait makes data readable. That nobody overwrites what a neighbour still reads (or what a put still sends) follows
// from the chain, though there is one array of each and no second buffer:
//   - lap's first row is read by p for its last row of fluxes. r overwrites it in the next step 1, after p's step 3.
//   - fy's last row is read by n when it updates its first row. r overwrites it in the next step 2, after n's next step
//     1, whose lap it has received.
//   - in's first row is read by p for its last rows of lap and of fluxes. r overwrites it in step 3, after it has
//     received p's last row of fy. Step 3 itself reads no other row of in.
//   - in's last row is read by n for its first row of lap. r overwrites it in step 3, after it has received that.
// For another device the same holds for the halo row there and for the source of the put: the neighbour sends what r
// waits for after it has waited for, and used, what r put. Counters of notifications cannot mix iterations either: no
// neighbour gets two puts of the same kind ahead, since it needs this rank's row in between.
//
// If the cache does not hold the fields, ranks go over them in bands of rows: steps 1 and 2 are for the last band (and
// lap's first row); then each band before it takes all steps, of which each finds in the cache what the step before has
// read and written; step 3 is left with the first row and the last band. Neighbours see nothing of it: rows that they
// read, write or receive have their place in the three steps as before.
//
// Levels do not depend on each other: ranks that share rows, each with some levels, know nothing of each other.
//
// diffuse_at_once is the same with all three stencils at once: one exchange of two rows in an iteration, which reads
// one array and writes the other. A rank writes rows that its neighbours' border rows needed in the iteration before,
// which they have computed before they sent what it has waited for. A neighbour may be an iteration ahead of the other
// one, so each has its own tag.
#pragma once

#include <cstddef>

#include "common/progress.hpp"
#include "dcuda/device.hpp"
#include "diffusion.hpp"
#include "division.hpp"
#include "points.hpp"

namespace stencil {

// A device's fields and the task: what the host hands to the kernels.
struct task {
    grid whole;
    division ranks;
    int device = 0;
    double* in = nullptr;  // each: the device's rows with halo, in device memory
    double* lap = nullptr; // or, of all three at once, the second array
    double* fx = nullptr;
    double* fy = nullptr;
    int halo = 1; // rows on either side, as many as are exchanged
    int iterations = 0;
    double coefficient = 0.0;
    bool by_level = false; // a put carries a level's line; else all that lies together
    common::run_series runs;
    int band_rows = 0; // that a rank takes through all steps before the next

    DCUDA_HOST_DEVICE range stored_rows() const { return with_halo(ranks.rows.of_device(device), halo); }
    DCUDA_HOST_DEVICE field_view view(double* data) const {
        return {data, stored_rows().first, whole.nx, whole.plane()};
    }
};

enum tag : int { lap_tag, flux_tag, field_tag, from_previous_tag, from_next_tag, gather_tag };

// A rank with the rows before or after, and the same levels; or none.
struct neighbour {
    int rank = -1;     // or below 0
    int first_row = 0; // of its window

    constexpr neighbour() = default;
    DCUDA_DEVICE neighbour(const task& work, int self, int row)
        : rank(work.ranks.beside(self, row)),
          first_row(rank >= 0 ? with_halo(work.ranks.rows_of(rank), work.halo).first : 0) {}
    DCUDA_DEVICE bool exists() const { return rank >= 0; }
};

// What a rank computes, and what it exchanges.
// PERF: worked out once; the divisions that it takes would cost more than a put.
struct share {
    range rows, levels;
    border_rows border;
    range last_band, last_but_first; // its rows; those but the rank's first
    neighbour previous, next;
    int pieces = 0; // of a border row's levels: a put each
    std::size_t piece_bytes = 0;

    constexpr share() = default; // a constant: nobody must initialize it in shared memory
    // A rank without rows has no neighbours: rows of nobody are outside the grid.
    DCUDA_DEVICE share(const task& work, int rank)
        : rows(work.ranks.rows_of(rank)), levels(work.ranks.levels_of(rank)), border(rows, work.halo),
          last_band(intersection(rows, {rows.last - work.band_rows, rows.last})),
          last_but_first(intersection(last_band, {border.first.last, rows.last})),
          previous(work, rank, rows.empty() ? -1 : rows.first - 1), next(work, rank, rows.empty() ? -1 : rows.last),
          pieces(work.by_level ? levels.count() : 1),
          piece_bytes(static_cast<std::size_t>(levels.count() / pieces * work.whole.nx) * sizeof(double)) {}
};

// The share of the calling rank. All threads.
// PERF: in shared memory. Registers are not enough for all, and every acquire empties the cache of spilled ones.
DCUDA_DEVICE const share& share_of(const task& work, int rank) {
    __shared__ share result;
    if (threadIdx.x == 0 && threadIdx.y == 0) result = share(work, rank);
    __syncthreads();
    return result;
}

// A field whose border rows neighbours put into each other's windows.
class shared_field {
public:
    // Collective over all ranks.
    DCUDA_DEVICE shared_field(dcuda::rank& self, const task& work, const share& own, double* data)
        : self_(self), work_(work), mine_(own), view_(work.view(data)) {
        const range rows = own.rows.empty() ? range{} : with_halo(own.rows, work.halo);
        double* const base = own.rows.empty() ? data : view_.row(rows.first);
        window_ =
            self.create_window(dcuda::world, base, static_cast<std::size_t>(rows.count()) * work.whole.plane_bytes());
    }

    DCUDA_DEVICE const field_view& view() const { return view_; }

    // Puts the rank's levels of the exchanged rows, from row y on, to where the neighbour has them. Nothing if there is
    // none.
    DCUDA_DEVICE void send(int y, const neighbour& receiver, tag message_tag) const {
        if (!receiver.exists()) return;
        for (int row = y; row < y + work_.halo; ++row) {
            const std::size_t level = view_.offset(0, mine_.levels.first);
            const auto* source = reinterpret_cast<const std::byte*>(view_.row(row) + level);
            std::size_t target =
                static_cast<std::size_t>(row - receiver.first_row) * work_.whole.plane_bytes() + level * sizeof(double);
            for (int i = 0; i < mine_.pieces; ++i, source += mine_.piece_bytes, target += mine_.piece_bytes)
                self_.put_notify(window_, receiver.rank, target, mine_.piece_bytes, source, message_tag);
        }
    }

    // How many puts of an exchange come from that neighbour.
    DCUDA_DEVICE int puts_of(const neighbour& from) const { return from.exists() ? work_.halo * mine_.pieces : 0; }

    DCUDA_DEVICE void close() const { self_.free_window(window_); }

private:
    dcuda::rank& self_;
    const task& work_;
    const share& mine_;
    field_view view_;
    dcuda::window window_;
};

// PERF: 128 registers per thread; with fewer they are spilled where they are used most.
inline constexpr int most_threads = 512;

// PERF: a kernel with bands and one without, which would take 2 % longer with the code for them.
template <bool InBands>
__global__ void __launch_bounds__(most_threads) diffuse(dcuda::context context, task work) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);

    const grid& g = work.whole;
    const share& own = share_of(work, self.id());
    const range levels = own.levels;

    const shared_field in_field(self, work, own, work.in);
    const shared_field lap_field(self, work, own, work.lap);
    const shared_field fy_field(self, work, own, work.fy);
    const field_view in = in_field.view(), lap = lap_field.view(), fy = fy_field.view(), fx = work.view(work.fx);
    common::progress reported(self, "stencil", "iteration", work.iterations, work.runs);

    const auto compute_lap = [&](range rows) {
        for_each_point(
            g.lap_columns(), intersection(rows, g.lap_rows()), levels,
            [&](int x, int y, int k) { return laplacian(in, x, y, k); },
            [&](int x, int y, int k, double value) { lap(x, y, k) = value; });
    };
    const auto compute_fluxes = [&](range rows) {
        for_each_point(
            g.flux_columns(), intersection(rows, g.flux_rows()), levels,
            [&](int x, int y, int k) { return flux(in, lap, x, y, k); },
            [&](int x, int y, int k, const fluxes& value) {
                fx(x, y, k) = value.x;
                fy(x, y, k) = value.y;
            });
    };
    const auto update = [&](range rows) {
        for_each_point(
            g.inner_columns(), intersection(rows, g.inner_rows()), levels,
            [&](int x, int y, int k) { return diffused(in, fx, fy, work.coefficient, x, y, k); },
            [&](int x, int y, int k, double value) { in(x, y, k) = value; });
    };

    self.barrier(dcuda::world);
    self.start_timer();
    for (int iteration = 0; iteration < work.iterations; ++iteration) {
        compute_lap(own.border.first);
        lap_field.send(own.rows.first, own.previous, lap_tag);
        compute_lap(own.last_but_first);
        self.wait_notifications(lap_tag, lap_field.puts_of(own.next));

        compute_fluxes(intersection(own.rows, {own.rows.last - 1, own.rows.last}));
        fy_field.send(own.rows.last - 1, own.next, flux_tag);
        compute_fluxes({own.last_band.first, own.rows.last - 1});
        if constexpr (InBands) {
            for (range band{own.rows.first, 0}; band.first < own.last_band.first; band.first = band.last) {
                band.last = at_most(band.first + work.band_rows, own.last_band.first);
                compute_lap({band.first + 1, at_most(band.last + 1, own.last_band.first)});
                __syncthreads();
                compute_fluxes(band);
                __syncthreads();
                update(intersection(band, own.border.inner));
            }
        }
        self.wait_notifications(flux_tag, fy_field.puts_of(own.previous));

        update(own.border.first);
        in_field.send(own.rows.first, own.previous, field_tag);
        update(own.border.last);
        in_field.send(own.rows.last - 1, own.next, field_tag);
        update({own.last_but_first.first, own.border.inner.last});
        self.wait_notifications(field_tag, in_field.puts_of(own.previous) + in_field.puts_of(own.next));

        reported.done(iteration + 1);
    }
    self.barrier(dcuda::world);
    self.stop_timer();

    fy_field.close();
    lap_field.close();
    in_field.close();
}

__global__ void __launch_bounds__(most_threads) diffuse_at_once(dcuda::context context, task work) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);

    const grid& g = work.whole;
    const share& own = share_of(work, self.id());

    const shared_field first(self, work, own, work.in), second(self, work, own, work.lap);
    common::progress reported(self, "stencil", "iteration", work.iterations, work.runs);

    self.barrier(dcuda::world);
    self.start_timer();
    for (int iteration = 0; iteration < work.iterations; ++iteration) {
        const bool forth = iteration % 2 == 0;
        const field_view in = forth ? first.view() : second.view(), out = forth ? second.view() : first.view();
        const auto compute = [&](range rows) {
            for_each_point_by_columns(
                g.inner_columns(), intersection(rows, g.inner_rows()), own.levels,
                [&](int x, int y, int k) { return diffused_at_once(in, work.coefficient, x, y, k); },
                [&](int x, int y, int k, double value) { out(x, y, k) = value; });
        };
        const shared_field made = forth ? second : first; // with a reference, ptxas 13.0 takes minutes
        compute(own.border.first);
        made.send(own.rows.first, own.previous, from_next_tag);
        compute(own.border.last);
        made.send(own.rows.last - work.halo, own.next, from_previous_tag);
        compute(own.border.inner);
        self.wait_notifications(from_previous_tag, made.puts_of(own.previous));
        self.wait_notifications(from_next_tag, made.puts_of(own.next));

        reported.done(iteration + 1);
    }
    self.barrier(dcuda::world);
    self.stop_timer();

    second.close();
    first.close();
}

// The rows that a rank puts to the whole field: those with the first levels, all levels of theirs.
DCUDA_DEVICE range sent_by(const task& work, int rank) {
    return work.ranks.level_part_of(rank) == 0 ? work.ranks.rows_of(rank) : range{};
}

// Every part's rows of the field are put to `whole`, which holds the whole field on process 0 and is not used
// elsewhere.
__global__ void __launch_bounds__(1024) gather(dcuda::context context, task work, double* whole) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);

    const range own = sent_by(work, self.id());
    const std::size_t row_bytes = work.whole.plane_bytes();
    const std::size_t bytes = static_cast<std::size_t>(own.count()) * row_bytes;
    double* const rows = own.empty() ? work.in : work.view(work.in).row(own.first);

    // The source of a put lies inside the putting rank's window.
    const bool collects = self.id() == 0;
    const dcuda::window win = self.create_window(dcuda::world, collects ? whole : rows,
                                                 collects ? work.whole.points() * sizeof(double) : bytes);
    if (!own.empty()) self.put_notify(win, 0, static_cast<std::size_t>(own.first) * row_bytes, bytes, rows, gather_tag);
    if (collects) {
        int owners = 0;
        for (int rank = 0; rank < self.size(); ++rank) owners += sent_by(work, rank).empty() ? 0 : 1;
        self.wait_notifications(gather_tag, owners);
    }
    self.free_window(win);
}

} // namespace stencil
