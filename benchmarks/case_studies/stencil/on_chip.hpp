// SPDX-License-Identifier: BSD-3-Clause
// The iterations of `diffuse` and `diffuse_at_once` by ranks that keep their part of the fields in shared memory, from
// the first iteration to the last. A kernel that ends after each step cannot: shared memory ends with it.
//
// What comes from the neighbours lands in the rank's window, which is in device memory, and stands for the rows before
// the rank's first and after its last. Its own rows are read by itself alone, and by its puts. A warp computes a line
// (a row of one level) at a time; lines of the first and the last rows come first, so that they can leave.
//
// Of three steps, everything about exchanges is as in `diffuse` (kernels.hpp), and so is the argument why nobody
// overwrites what is still needed: a neighbour's row in the window is what is a halo row there. fx is computed where it
// is used, since a line of it needs nothing but that line.
// Of all at once, a neighbour may be an iteration ahead: it sends rows of the next while the last ones are still
// needed. So the window has two places, in turn, as `diffuse_at_once` has two arrays.
#pragma once

#include "kernels.hpp"

namespace stencil {

// The threads that compute a line: a row of the block. PERF: on a GPU a warp, a constant for the compiler.
DCUDA_DEVICE int lanes() { return DCUDA_BACKEND_CUDA ? 32 : static_cast<int>(blockDim.x); }

// Whether a line and those around it are the rank's own, in shared memory. PERF: nearly all are. Then addresses are
// constants apart; and behind the last column there is shared memory that may be read.
template <bool IsInner>
struct kind_of_line {
    static constexpr bool is_padded = IsInner && DCUDA_BACKEND_CUDA;
};

// A line and those around it, of the same level. Stands for a field at the points around the line.
struct inner_view {
    int y, pitch;
    const double* at;

    DCUDA_DEVICE double operator()(int x, int row, int) const { return at[(row - y) * pitch + x]; }
};
template <int Halo>
struct line_view {
    int y;
    const double* lines[2 * Halo + 1];

    DCUDA_DEVICE double operator()(int x, int row, int) const { return lines[row - y + Halo][x]; }
};

// A rank's rows and levels of a field in shared memory, and `Halo` rows before and after them elsewhere.
template <int Halo>
struct rows_on_chip {
    double* data;
    const double* before; // the first of them
    const double* after;
    range rows, levels;
    int nx;

    DCUDA_DEVICE int row_points() const { return levels.count() * nx; }
    DCUDA_DEVICE double* row(int y) const { return data + (y - rows.first) * row_points(); }
    DCUDA_DEVICE double* line(int y, int k) const { return row(y) + (k - levels.first) * nx; }
    DCUDA_DEVICE inner_view around(int y, int k, kind_of_line<true>) const { return {y, row_points(), line(y, k)}; }
    DCUDA_DEVICE line_view<Halo> around(int y, int k, kind_of_line<false>) const {
        line_view<Halo> result{y, {}};
        DCUDA_UNROLL
        for (int i = 0; i <= 2 * Halo; ++i) {
            const int at = y + i - Halo;
            const double* const from = at < rows.first   ? before + (at - rows.first + Halo) * row_points()
                                       : at >= rows.last ? after + (at - rows.last) * row_points()
                                                         : row(at);
            result.lines[i] = from + (k - levels.first) * nx;
        }
        return result;
    }
};

// The lines of a rank, numbered from both ends: first, last, second, ... A warp goes over some of them.
template <int Halo>
struct lines_of_rank {
    range rows, levels;

    DCUDA_DEVICE int count() const { return rows.count() * levels.count(); }
    // At least those of `Halo` rows at each end, and work for all warps.
    DCUDA_DEVICE int ends() const {
        const int warps = static_cast<int>(blockDim.y), of_rows = 2 * Halo * levels.count();
        const int most = warps > of_rows ? warps : of_rows;
        return most < count() ? most : count();
    }

    // body(y, k, kind_of_line) for the lines first, ..., last - 1 in that order that lie in these rows.
    template <class Body>
    DCUDA_DEVICE void for_each(int first, int last, range where, const Body& body) const {
        for (int i = first + static_cast<int>(threadIdx.y); i < last; i += static_cast<int>(blockDim.y)) {
            const int line = i % 2 == 0 ? i / 2 : count() - 1 - i / 2;
            // PERF: the usual rank has one level, and need not divide.
            const int row = levels.count() == 1 ? line : line / levels.count(), y = rows.first + row;
            const int k = levels.first + line - row * levels.count();
            if (y < where.first || y >= where.last) continue;
            if (row >= Halo && row < rows.count() - Halo)
                body(y, k, kind_of_line<true>());
            else
                body(y, k, kind_of_line<false>());
        }
    }
};

// What `fields` fields take of a rank's shared memory.
DCUDA_HOST_DEVICE std::size_t bytes_on_chip(int fields, int nx, int rows, int levels) {
    constexpr std::size_t padding = columns_in_flight * 32 + 4;
    return (static_cast<std::size_t>(fields) * static_cast<std::size_t>(rows) * static_cast<std::size_t>(levels) *
                static_cast<std::size_t>(nx) +
            padding) *
           sizeof(double);
}
inline constexpr int fields_in_steps = 3, fields_at_once = 2;

// The rows of a rank's window. Of three steps: of lap, fy, in and in. Of all at once: two before and two after, twice.
inline constexpr int lap_after = 0, fy_before = 1, in_before = 2, in_after = 3;
inline constexpr int rows_received_in_steps = 4, rows_received_at_once = 8;

// What a rank has beside its fields in shared memory: its window, and its rows in device memory.
class rank_on_chip {
public:
    // `arrivals`: the windows of the device's ranks, `rows` rows each. Collective over all ranks.
    DCUDA_DEVICE rank_on_chip(dcuda::rank& self, const task& work, const share& own, double* arrivals, int rows)
        : self_(self), mine_(own), stored_(work.view(work.in)), row_points_(own.levels.count() * work.whole.nx) {
        const int most = work.ranks.levels_of(0).count() * work.whole.nx;
        received_ = arrivals + static_cast<std::size_t>(self.id(dcuda::device)) * static_cast<std::size_t>(rows * most);
        window_ =
            self.create_window(dcuda::world, received_, static_cast<std::size_t>(rows * row_points_) * sizeof(double));
    }

    // A row of the window.
    DCUDA_DEVICE double* received(int row) const { return received_ + row * row_points_; }

    // The fields lie one after the other in the rank's dynamic shared memory.
    template <int Halo>
    DCUDA_DEVICE rows_on_chip<Halo> field(int number, const double* before, const double* after) const {
        double* const data = dcuda::dynamic_shared<double>() + number * mine_.rows.count() * row_points_;
        return {data, before, after, mine_.rows, mine_.levels, stored_.nx};
    }

    // Copies `rows` rows from device memory, from row y on; or all of the rank's rows back.
    DCUDA_DEVICE void load(double* receiver, int y, int rows) const {
        for (int i = 0; i < rows; ++i) copy_row(receiver + i * row_points_, stored_row(y + i));
    }
    DCUDA_DEVICE void store(const double* from) const {
        for (int y = mine_.rows.first; y < mine_.rows.last; ++y, from += row_points_) copy_row(stored_row(y), from);
    }

    // Puts `rows` rows that lie together into the neighbour's window. Nothing if there is none.
    DCUDA_DEVICE void send(const neighbour& receiver, const double* from, int rows, int received_row,
                           tag message_tag) const {
        if (!receiver.exists()) return;
        const auto* source = reinterpret_cast<const std::byte*>(from);
        const std::size_t bytes =
            mine_.pieces == 1 ? static_cast<std::size_t>(rows) * mine_.piece_bytes : mine_.piece_bytes; // of a put
        std::size_t target = static_cast<std::size_t>(received_row * row_points_) * sizeof(double);
        for (int i = 0; i < puts(rows); ++i, source += bytes, target += bytes)
            self_.put_notify(window_, receiver.rank, target, bytes, source, message_tag);
    }
    // Waits for so many rows of that neighbour.
    DCUDA_DEVICE void receive(const neighbour& from, int rows, tag message_tag) const {
        self_.wait_notifications(message_tag, from.exists() ? puts(rows) : 0);
    }

    DCUDA_DEVICE void close() const { self_.free_window(window_); }

private:
    DCUDA_DEVICE int puts(int rows) const { return mine_.pieces == 1 ? 1 : rows * mine_.pieces; }
    DCUDA_DEVICE double* stored_row(int y) const { return stored_.row(y) + stored_.offset(0, mine_.levels.first); }
    DCUDA_DEVICE void copy_row(double* receiver, const double* from) const {
        for (int i = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x); i < row_points_;
             i += static_cast<int>(blockDim.x * blockDim.y))
            receiver[i] = from[i];
    }

    dcuda::rank& self_;
    const share& mine_;
    field_view stored_;
    int row_points_;
    double* received_;
    dcuda::window window_;
};

// A line of the field after an iteration, in place. The threads of a row of the block, together: each has read what it
// needs before any of them writes.
template <class Kind, class Line>
DCUDA_DEVICE void update_line(const task& work, Kind, const Line& in, const Line& lap, const Line& fy, double* out,
                              int y, int k) {
    constexpr int flight = columns_in_flight;
    const int step = lanes(), lane = static_cast<int>(threadIdx.x);
    const unsigned all = step == 32 ? 0xffff'ffffu : (1u << step) - 1;
    const range columns = work.whole.flux_columns();
    double last = 0.0; // the flux out of the columns before
    for (int first = columns.first; first < columns.last; first += flight * step) {
        double fluxes[flight], values[flight];
        const auto column = [&](int i) {
            const int x = first + i * step + lane;
            return Kind::is_padded ? x : at_most(x, columns.last - 1);
        };
        DCUDA_UNROLL
        for (int i = 0; i < flight; ++i) fluxes[i] = flux_x(in, lap, column(i), y, k);
        DCUDA_UNROLL
        for (int i = 0; i < flight; ++i) {
            const int x = column(i);
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

// Blocks have rows of 32 threads; on the CPU backend at most that.
__global__ void __launch_bounds__(most_threads) diffuse_on_chip(dcuda::context context, task work, double* arrivals) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);

    const grid& g = work.whole;
    const share own(work, self.id()); // PERF: here registers are enough
    const rank_on_chip here(self, work, own, arrivals, rows_received_in_steps);
    const auto in = here.field<1>(0, here.received(in_before), here.received(in_after));
    double* const unused = here.received(0); // rows that nobody asks for
    const auto lap = here.field<1>(1, unused, here.received(lap_after));
    const auto fy = here.field<1>(2, here.received(fy_before), unused);
    common::progress reported(self, "stencil", "iteration", work.iterations, work.runs);

    here.load(in.data, own.rows.first, own.rows.count());
    if (own.previous.exists()) here.load(here.received(in_before), own.rows.first - 1, 1);
    if (own.next.exists()) here.load(here.received(in_after), own.rows.last, 1);

    const lines_of_rank<1> lines{own.rows, own.levels};
    const auto compute_lap = [&](int first, int last) {
        lines.for_each(first, last, g.lap_rows(), [&](int y, int k, auto kind) {
            const auto at = in.around(y, k, kind);
            double* const out = lap.line(y, k);
            for_each_column<kind.is_padded>(
                g.lap_columns(), lanes(), [&](int x) { return laplacian(at, x, y, k); },
                [&](int x, double value) { out[x] = value; });
        });
    };
    const auto compute_fy = [&](int first, int last) {
        lines.for_each(first, last, g.flux_rows(), [&](int y, int k, auto kind) {
            const auto at = in.around(y, k, kind), lap_at = lap.around(y, k, kind);
            double* const out = fy.line(y, k);
            for_each_column<kind.is_padded>(
                g.flux_columns(), lanes(), [&](int x) { return flux_y(at, lap_at, x, y, k); },
                [&](int x, double value) { out[x] = value; });
        });
    };
    const auto update = [&](int first, int last) {
        lines.for_each(first, last, g.inner_rows(), [&](int y, int k, auto kind) {
            update_line(work, kind, in.around(y, k, kind), lap.around(y, k, kind), fy.around(y, k, kind), in.line(y, k),
                        y, k);
        });
    };

    const int ends = lines.ends(), all = lines.count();
    self.barrier(dcuda::world);
    self.start_timer();
    for (int iteration = 0; iteration < work.iterations; ++iteration) {
        compute_lap(0, ends);
        here.send(own.previous, lap.row(own.rows.first), 1, lap_after, lap_tag);
        compute_lap(ends, all);
        here.receive(own.next, 1, lap_tag);

        compute_fy(0, ends);
        here.send(own.next, fy.row(own.rows.last - 1), 1, fy_before, flux_tag);
        compute_fy(ends, all);
        here.receive(own.previous, 1, flux_tag);

        update(0, ends);
        here.send(own.previous, in.row(own.rows.first), 1, in_after, from_next_tag);
        here.send(own.next, in.row(own.rows.last - 1), 1, in_before, from_previous_tag);
        update(ends, all);
        // PERF: a tag for each neighbour, so that the library foresees where the next message comes from. The next one
        // sends to this rank before it sends to the other.
        here.receive(own.next, 1, from_next_tag);
        here.receive(own.previous, 1, from_previous_tag);

        reported.done(iteration + 1);
    }
    self.barrier(dcuda::world);
    self.stop_timer();

    here.store(in.data);
    here.close();
}

__global__ void __launch_bounds__(most_threads)
    diffuse_at_once_on_chip(dcuda::context context, task work, double* arrivals) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);

    const grid& g = work.whole;
    const share& own = share_of(work, self.id());
    const rank_on_chip here(self, work, own, arrivals, rows_received_at_once);
    const auto before = [&](int turn) { return 4 * turn; };
    const auto after = [&](int turn) { return 4 * turn + 2; };
    const auto field = [&](int turn) {
        return here.field<2>(turn, here.received(before(turn)), here.received(after(turn)));
    };
    common::progress reported(self, "stencil", "iteration", work.iterations, work.runs);

    // Rows and columns that never change are in both.
    for (int turn = 0; turn < 2; ++turn) {
        here.load(field(turn).data, own.rows.first, own.rows.count());
        if (own.previous.exists()) here.load(here.received(before(turn)), own.rows.first - 2, 2);
        if (own.next.exists()) here.load(here.received(after(turn)), own.rows.last, 2);
    }

    const lines_of_rank<2> lines{own.rows, own.levels};
    const int ends = lines.ends(), all = lines.count();
    self.barrier(dcuda::world);
    self.start_timer();
    for (int iteration = 0; iteration < work.iterations; ++iteration) {
        const int turn = iteration % 2, next = 1 - turn;
        const auto in = field(turn), out = field(next);
        const auto compute = [&](int first, int last) {
            lines.for_each(first, last, g.inner_rows(), [&](int y, int k, auto kind) {
                const auto at = in.around(y, k, kind);
                double* const receiver = out.line(y, k);
                for_each_column<kind.is_padded>(
                    g.inner_columns(), lanes(), [&](int x) { return diffused_at_once(at, work.coefficient, x, y, k); },
                    [&](int x, double value) { receiver[x] = value; });
            });
        };
        compute(0, ends);
        here.send(own.previous, out.row(own.rows.first), 2, after(next), from_next_tag);
        here.send(own.next, out.row(own.rows.last - 2), 2, before(next), from_previous_tag);
        compute(ends, all);
        here.receive(own.next, 2, from_next_tag);
        here.receive(own.previous, 2, from_previous_tag);

        reported.done(iteration + 1);
    }
    self.barrier(dcuda::world);
    self.stop_timer();

    here.store(field(work.iterations % 2).data);
    here.close();
}

} // namespace stencil
