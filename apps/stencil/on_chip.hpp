// The iterations of `diffuse` by ranks that keep their part of the fields in shared memory, from the first iteration to
// the last. A kernel that ends after each step cannot: shared memory ends with it.
//
// A rank has its rows of in, lap and fy there. fx is computed where it is used, twice, since a line of it needs nothing
// but that line. What comes from the neighbours lands in the rank's window, which is in device memory: the row of lap
// and of in after its last, the row of fy and of in before its first. Everything else about exchanges is as in
// `diffuse` (kernels.hpp), and so is the argument why nobody overwrites what is still needed: a neighbour's row in the
// window is what is a halo row there, and a rank's own rows are read by itself alone, and by its puts.
//
// A warp computes a line (a row of one level) at a time. The lines of the first and the last row come first, so that
// they can leave.
#pragma once

#include "kernels.hpp"

namespace stencil {

// What the neighbours put, in the order of the window.
enum class received : int { lap_after, fy_before, in_before, in_after, count };

// What a rank needs of shared memory, and in its window: `rows` rows of `levels` levels.
inline constexpr int fields_on_chip = 3;
DCUDA_HOST_DEVICE std::size_t bytes_on_chip(int nx, int rows, int levels) {
    return std::size_t(fields_on_chip) * static_cast<std::size_t>(rows) * static_cast<std::size_t>(levels) *
           static_cast<std::size_t>(nx) * sizeof(double);
}
DCUDA_HOST_DEVICE std::size_t points_received(int nx, int levels) {
    return static_cast<std::size_t>(received::count) * static_cast<std::size_t>(levels) * static_cast<std::size_t>(nx);
}

// A line, and those before and after it. Stands for a field at the points around the line.
struct line_view {
    int y;
    const double* before;
    const double* at;
    const double* after;

    DCUDA_DEVICE double operator()(int x, int row, int) const { return (row < y ? before : row > y ? after : at)[x]; }
};

// A rank's rows and levels of a field, and the rows beside them.
struct rows_on_chip {
    double* data;
    const double* before; // the row before the first, or null
    const double* after;  // the row after the last, or null
    range rows, levels;
    int nx;

    DCUDA_DEVICE double* row(int y) const { return data + (y - rows.first) * levels.count() * nx; }
    DCUDA_DEVICE double* line(int y, int k) const { return row(y) + (k - levels.first) * nx; }
    DCUDA_DEVICE line_view around(int y, int k) const {
        const int level = (k - levels.first) * nx;
        return {y, (y == rows.first ? before : row(y - 1)) + level, row(y) + level,
                (y + 1 == rows.last ? after : row(y + 1)) + level};
    }
};

// The lines of a rank, numbered from both ends: first, last, second, ... A warp goes over some of them.
struct lines_of_rank {
    range rows, levels;

    DCUDA_DEVICE int count() const { return rows.count() * levels.count(); }
    // At least the first and the last row, and work for all warps.
    DCUDA_DEVICE int ends() const {
        const int warps = static_cast<int>(blockDim.y), of_rows = 2 * levels.count();
        const int most = warps > of_rows ? warps : of_rows;
        return most < count() ? most : count();
    }

    // body(y, k) for the lines first, ..., last - 1 in that order that lie in these rows.
    template <class Body>
    DCUDA_DEVICE void for_each(int first, int last, range where, const Body& body) const {
        for (int i = first + static_cast<int>(threadIdx.y); i < last; i += static_cast<int>(blockDim.y)) {
            const int line = i % 2 == 0 ? i / 2 : count() - 1 - i / 2;
            const int row = levels.count() == 1 ? line : line / levels.count(), y = rows.first + row;
            if (y >= where.first && y < where.last) body(y, levels.first + line - row * levels.count());
        }
    }
};

// A line of the field after an iteration, in place. The threads of a row of the block, together: each has read what it
// needs before any of them writes.
DCUDA_DEVICE void update_line(const task& work, const line_view& in, const line_view& lap, const line_view& fy,
                              double* out, int y, int k) {
    constexpr int flight = columns_in_flight;
    const int step = static_cast<int>(blockDim.x), lane = static_cast<int>(threadIdx.x);
    const unsigned all = step == 32 ? 0xffff'ffffu : (1u << step) - 1;
    const range columns = work.whole.flux_columns();
    double last = 0.0; // the flux out of the columns before
    for (int first = columns.first; first < columns.last; first += flight * step) {
        double fluxes[flight], values[flight];
        DCUDA_UNROLL
        for (int i = 0; i < flight; ++i) {
            fluxes[i] = flux_x(in, lap, at_most(first + i * step + lane, columns.last - 1), y, k);
        }
        DCUDA_UNROLL
        for (int i = 0; i < flight; ++i) {
            const int x = at_most(first + i * step + lane, columns.last - 1);
            const double neighbour = __shfl_up_sync(all, fluxes[i], 1), from = lane == 0 ? last : neighbour;
            last = __shfl_sync(all, fluxes[i], step - 1);
            const auto fx = [&](int at, int, int) { return at == x ? fluxes[i] : from; };
            values[i] = diffused(in, fx, fy, work.coefficient, x, y, k);
        }
        __syncwarp(all);
        DCUDA_UNROLL
        for (int i = 0; i < flight; ++i) {
            const int x = first + i * step + lane;
            if (x > columns.first && x < columns.last) out[x] = values[i];
        }
    }
}

// Blocks have rows of at most 32 threads. `arrivals`: the windows of the device's ranks, points_received() each.
__global__ void __launch_bounds__(most_threads) diffuse_on_chip(dcuda::context context, task work, double* arrivals) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);

    const grid& g = work.whole;
    const share mine(work, self.id());
    const lines_of_rank lines{mine.rows, mine.levels};
    const int row_points = mine.levels.count() * g.nx;

    double* const window = arrivals + static_cast<std::size_t>(self.id(dcuda::device)) *
                                          points_received(g.nx, work.ranks.levels_of(0).count());
    const auto place_of = [&](received what) { return static_cast<std::size_t>(what) * row_points; };
    const dcuda::window win = self.create_window(
        dcuda::world, window, static_cast<std::size_t>(received::count) * row_points * sizeof(double));

    const auto fields = dcuda::dynamic_shared<double>();
    const auto field = [&](int number, const double* before, const double* after) {
        return rows_on_chip{
            fields + number * mine.rows.count() * row_points, before, after, mine.rows, mine.levels, g.nx};
    };
    const rows_on_chip in = field(0, window + place_of(received::in_before), window + place_of(received::in_after));
    const rows_on_chip lap = field(1, nullptr, window + place_of(received::lap_after));
    const rows_on_chip fy = field(2, window + place_of(received::fy_before), nullptr);
    common::progress reported(self, "stencil: iteration", work.iterations, work.progress_seconds);

    // A row that neighbours need, to where it lies in their windows.
    const auto send = [&](const neighbour& to, const double* row, received what, tag kind) {
        if (!to.exists()) return;
        std::size_t target = place_of(what) * sizeof(double);
        const auto* source = reinterpret_cast<const std::byte*>(row);
        for (int i = 0; i < mine.pieces; ++i, source += mine.piece_bytes, target += mine.piece_bytes)
            self.put_notify(win, to.rank, target, mine.piece_bytes, source, kind);
    };
    const auto puts_of = [&](const neighbour& from) { return from.exists() ? mine.pieces : 0; };

    // The field comes from device memory, with the rows beside it, and goes back there.
    const field_view stored = work.view(work.in);
    const auto copy_row = [&](double* to, const double* from) {
        for (int i = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x); i < row_points;
             i += static_cast<int>(blockDim.x * blockDim.y))
            to[i] = from[i];
    };
    const auto stored_row = [&](int y) { return stored.row(y) + stored.offset(0, mine.levels.first); };
    for (int y = mine.rows.first; y < mine.rows.last; ++y) copy_row(in.row(y), stored_row(y));
    if (mine.previous.exists()) copy_row(window + place_of(received::in_before), stored_row(mine.rows.first - 1));
    if (mine.next.exists()) copy_row(window + place_of(received::in_after), stored_row(mine.rows.last));

    const auto compute_lap = [&](int first, int last) {
        lines.for_each(first, last, g.lap_rows(), [&](int y, int k) {
            const line_view at = in.around(y, k);
            double* const out = lap.line(y, k);
            for_each_column(
                g.lap_columns(), [&](int x) { return laplacian(at, x, y, k); },
                [&](int x, double value) { out[x] = value; });
        });
    };
    const auto compute_fy = [&](int first, int last) {
        lines.for_each(first, last, g.flux_rows(), [&](int y, int k) {
            const line_view at = in.around(y, k), lap_at = lap.around(y, k);
            double* const out = fy.line(y, k);
            for_each_column(
                g.flux_columns(), [&](int x) { return flux_y(at, lap_at, x, y, k); },
                [&](int x, double value) { out[x] = value; });
        });
    };
    const auto update = [&](int first, int last) {
        lines.for_each(first, last, g.inner_rows(), [&](int y, int k) {
            update_line(work, in.around(y, k), lap.around(y, k), fy.around(y, k), in.line(y, k), y, k);
        });
    };

    const int ends = lines.ends(), all = lines.count();
    double *const first_lap = lap.row(mine.rows.first), *const last_fy = fy.row(mine.rows.last - 1);
    double *const first_in = in.row(mine.rows.first), *const last_in = in.row(mine.rows.last - 1);
    self.barrier(dcuda::world);
    self.start_timer();
    for (int iteration = 0; iteration < work.iterations; ++iteration) {
        compute_lap(0, ends);
        send(mine.previous, first_lap, received::lap_after, lap_tag);
        compute_lap(ends, all);
        self.wait_notifications(lap_tag, puts_of(mine.next));

        compute_fy(0, ends);
        send(mine.next, last_fy, received::fy_before, flux_tag);
        compute_fy(ends, all);
        self.wait_notifications(flux_tag, puts_of(mine.previous));

        update(0, ends);
        send(mine.previous, first_in, received::in_after, from_next_tag);
        send(mine.next, last_in, received::in_before, from_previous_tag);
        update(ends, all);
        // PERF: a tag for each neighbour, so that the library foresees where the next message comes from.
        self.wait_notifications(from_previous_tag, puts_of(mine.previous));
        self.wait_notifications(from_next_tag, puts_of(mine.next));

        reported.done(iteration + 1);
    }
    self.barrier(dcuda::world);
    self.stop_timer();

    for (int y = mine.rows.first; y < mine.rows.last; ++y) copy_row(stored_row(y), in.row(y));
    self.free_window(win);
}

} // namespace stencil
