// SPDX-License-Identifier: BSD-3-Clause
// The solver by ranks: one kernel for a whole solve. Each rank owns a brick of each level or none (decomposition.hpp),
// and the ghost cells of the grid's boundary beside it, which it computes right after its cells. Ranks of a device
// share its arrays: they release and notify. To other devices they put cells, flush, and notify all ranks there that
// read them. Whoever owns nothing of a level goes on to the next finer one and waits there.
//
// Why nobody reads what is not there, or writes what is still read. Notifications on a level have three kinds of tags.
// (1) Exchange, before each sweep and each residual: a rank waits for all neighbours across faces and edges, whose
// cells it reads. They are those that read its cells, so when all have told it that sweep s - 1 is done, none reads any
// more what sweep s writes: u and its twin change places. Neighbours on other devices are told as soon as the outer
// layers that they read are done; the cells inside read nothing that other devices write. A neighbour is at most one
// exchange ahead, so two tags in turn tell them apart. (2) Restriction: the owners of coarse cells wait for all whose
// fine cells lie in them. These wrote f on the coarse level, which its owners have read for the last time before they
// sent the correction that the fine ranks waited for. The first sweep on the coarse level waits for nobody else: it
// reads no neighbour, and writes the twin. Neighbours read that for the last time in the last sweep of their visit
// before. That sweep has ended: fine ranks of the owner, which read two layers around theirs, waited for its result and
// have restricted since. (3) Interpolation: fine ranks wait for all owners of coarse cells that they read, two
// layers around their own. An owner begins to write its coarse cells again when its own fine ranks have restricted.
// Each of these has had six exchanges since it interpolated. Whoever else reads the owner's cells is a neighbour of one
// of these, perhaps across a corner, which is two exchanges away, for bricks have four cells a side. So it has
// interpolated, too. Fine cells inside a brick may read coarse ghost cells that another device puts: safe for the same
// reason, as the next to put them waits for its own fine ranks, each six exchanges on. Interpolation also overwrites u
// in place, which neighbours read when they restrict. None still does: each restricts to an owner of coarse cells
// within those two layers, and that owner waited for it before it sent what the writer has waited for.
#pragma once

#include "block_of_threads.hpp"
#include "common/progress.hpp"
#include "dcuda/dcuda.hpp"
#include "decomposition.hpp"
#include "findings.hpp"
#include "level_arrays.hpp"
#include "ranks/part_clock.hpp"

namespace hpgmg {

// --- What a kernel finds in its device's memory ----------------------------------------------------------------------

// A route: where its parcels and ranks begin in the arrays of all of the device's routes. Ranks of other devices are
// the first ones.
struct device_route {
    int parcels = 0, parcel_count = 0, ranks = 0, far_count = 0, near_count = 0, expected = 0;
};

// A section of a brick, and where its ghost cells begin in the device's list.
struct device_section {
    region cells{};
    int ghosts = 0, read_by_a = 0, ghost_count = 0;
};

struct device_share {
    region brick{};
    int section_count = 0;
    device_section sections[most_sections];
    device_route exchange, to_coarse, to_fine;
};

struct task {
    int level_count = 0, v_cycles = 0, solves = 1;
    bool is_chebyshev = false;
    const device_level* levels = nullptr;
    const device_share* shares = nullptr; // of each rank, level by level
    const ghost_cell* ghosts = nullptr;
    const parcel* parcels = nullptr;
    const int* ranks = nullptr; // to notify
    bottom_arrays bottom{};
    dcuda::window window{};
    std::uint64_t* parts = nullptr; // nanoseconds of each rank by level and part, added up; or null
    findings_view found{};
    common::run_series runs{};
};

// For a reduction over ranks: what is no number is not lost.
struct larger_value {
    DCUDA_HOST_DEVICE double operator()(double a, double b) const { return larger(a, b); }
};

// What a sweep with red and black cells reads and writes: from u to its twin, which change places after each.
struct sweep_arrays {
    layout in;
    level_operator of;
    const double* u;
    double* twin;
    const double *source, *inverse_diagonal;

    DCUDA_DEVICE sweep_arrays(const device_level& on, int sweep)
        : in(on.in), of(on), u(in_device_memory(on.u[sweep % 2])), twin(in_device_memory(on.u[1 - sweep % 2])),
          source(in_device_memory(on.source)), inverse_diagonal(in_device_memory(on.inverse_diagonal)) {}
    // A cell that changes.
    DCUDA_DEVICE double swept(std::ptrdiff_t at) const {
        return u[at] + (source[at] - of.image(u, at)) * inverse_diagonal[at];
    }
};
inline constexpr int cells_of_large_brick = 1 << 13; // 32 for each of 256 threads

// --- A rank ----------------------------------------------------------------------------------------------------------

// A rank's shared memory. PERF: what each sweep looks up is copied here: after a wait, memory of the device is as far
// as the L2 cache.
struct rank_tables {
    DCUDA_DEVICE device_level* levels() { return reinterpret_cast<device_level*>(level_bytes); }
    DCUDA_DEVICE device_share* shares() { return reinterpret_cast<device_share*>(share_bytes); }

    alignas(16) std::byte level_bytes[most_levels * sizeof(device_level)];
    alignas(16) std::byte share_bytes[most_levels * sizeof(device_share)];
    double lanes[sum_lanes];
};

template <class Element>
DCUDA_DEVICE void copy_to_shared(Element* destination, const Element* source, int count) {
    static_assert(sizeof(Element) % sizeof(int) == 0);
    const int words = count * static_cast<int>(sizeof(Element) / sizeof(int));
    for (int n = common::thread(); n < words; n += common::threads())
        reinterpret_cast<int*>(destination)[n] = reinterpret_cast<const int*>(source)[n];
}

// All threads of the rank call everything. PERF: its phases are called, not inlined, so each has registers enough for
// its loop.
class rank_solver {
public:
    DCUDA_DEVICE rank_solver(dcuda::rank& self, const task& work, rank_tables& tables)
        : self_(self), work_(work), threads_(tables.lanes), levels_(tables.levels()), shares_(tables.shares()),
          clock_(work.parts == nullptr ? nullptr
                                       : work.parts + self.id(dcuda::device) * work.level_count * part_count) {
        copy_to_shared(tables.levels(), work.levels, work.level_count);
        copy_to_shared(tables.shares(), work.shares + self.id(dcuda::device) * work.level_count, work.level_count);
        __syncthreads();
    }

    // Before all else. PERF: a rank looks fastest at the queues of its first 16 sources. These shall be its neighbours,
    // which are the same on all levels, and not whoever happens to restrict or interpolate first.
    DCUDA_COLD void meet_neighbours() {
        if (!has(0)) return;
        const device_route& by = shares_[0].exchange;
        const int tag = to_neighbours(0).tag;
        self_.notify_each(work_.ranks + by.ranks, by.far_count + by.near_count, dcuda::world, tag);
        self_.wait_notifications(tag, by.expected);
        turn_ ^= 1;
    }
    // Parts are measured from here on.
    DCUDA_DEVICE void start_clock() { clock_.start(); }

    DCUDA_DEVICE void f_cycle() {
        residuals_ = 0;
        for (int l = 0; l < bottom(); ++l) {
            if (l > 0) await_restriction(l);
            restrict_to(l, [&](const device_level& on, std::ptrdiff_t at) { return on.source[at]; });
        }
        solve_bottom(levels_[bottom()].order);
        for (int l = bottom() - 1; l >= 0; --l) {
            interpolate_to<of_f_cycle>(l, false);
            v_cycle(l);
        }
    }

    // Sends the result to where it is read next: to the F-cycle's next level, or to neighbours.
    DCUDA_DEVICE void v_cycle(int finest) {
        for (int l = finest; l < bottom(); ++l) {
            if (l > finest) sweep_from_zero(l);
            smooth(l, to_neighbours(l), l > finest ? 1 : 0);
            restrict_residual(l);
        }
        solve_bottom(ghosts::quadratic);
        for (int l = bottom() - 1; l >= finest; --l) {
            interpolate_to<of_v_cycle>(l, true);
            smooth(l,
                   l > finest    ? delivery{shares_[l].to_fine, ghosts::quadratic, tag_of(l, interpolation)}
                   : finest == 0 ? to_neighbours(l)
                                 : delivery{shares_[l].to_fine, levels_[l].order, tag_of(l, interpolation)},
                   0);
        }
    }

    // max|f - A u| on the finest level, over all ranks.
    DCUDA_COLD double residual() {
        await_neighbours(0);
        clock_.turn(0, part::norm);
        const device_level& on = levels_[0];
        double most = 0.0;
        threads_.start_for_each_cell(shares_[0].brick, [&](int i, int j, int k) {
            const double value = residual_at(on, on.in.place(i, j, k));
            most = larger(most, value < 0.0 ? -value : value);
        });
        const double own = threads_.largest_of_threads(most);
        note(0, own - own == 0.0);
        const double result = self_.allreduce(dcuda::world, own, larger_value{});
        clock_.turn(0, part::norm); // now the table has all of a solve's time
        return result;
    }

private:
    enum kind { exchange = 0, restriction = 2, interpolation = 3 }; // the first has two tags
    static constexpr int kinds = 4;
    static DCUDA_DEVICE int tag_of(int l, int of) { return l * kinds + of; }

    // Who gets the cells that are computed, with which ghost cells beside them.
    struct delivery {
        const device_route& by;
        ghosts order;
        int tag;
        bool is_exchange = false;
    };

    DCUDA_DEVICE int bottom() const { return work_.level_count - 1; }
    DCUDA_DEVICE bool has(int l) const { return !shares_[l].brick.empty(); }

    DCUDA_DEVICE delivery to_neighbours(int l) const {
        return {shares_[l].exchange, levels_[l].order, tag_of(l, exchange) + ((turn_ >> l) & 1), true};
    }
    // PERF: a level of one rank expects none.
    DCUDA_DEVICE void await(int tag, int expected) {
        if (expected != 0) self_.wait_notifications(tag, expected);
    }
    // Until the neighbours' cells are there, which they are until the next ones are sent.
    DCUDA_DEVICE void await_neighbours(int l) {
        if ((sent_ >> l & 1) == 0) return;
        clock_.turn(l, part::waiting);
        await(to_neighbours(l).tag, shares_[l].exchange.expected);
        sent_ ^= 1 << l;
        turn_ ^= 1 << l;
    }
    DCUDA_DEVICE void await_restriction(int l) {
        if (!has(l)) return;
        clock_.turn(l, part::waiting);
        await(tag_of(l, restriction), shares_[l].to_coarse.expected);
    }

    // Ghost cells of the list. All the cells inside that they come from have been computed.
    DCUDA_COLD void fill_ghosts(const device_level& on, double* u, int first, int count, ghosts order) const {
        if (count == 0) return;
        for (int n = common::thread(); n < count; n += common::threads()) {
            const ghost_cell cell = work_.ghosts[first + n];
            u[cell.place] = continued(u, on.in, order, cell);
        }
        __syncthreads();
    }

    // Computes the rank's cells of an array, u or its twin, by value(i, j, k), and sends them.
    template <class Value>
    DCUDA_DEVICE void compute(int l, int array, const delivery& next, const Value& value) {
        const device_level& on = levels_[l];
        double* const u = on.u[array];
        const auto store = [&](int i, int j, int k) { u[on.in.place(i, j, k)] = value(i, j, k); };
        compute_sections(l, array, next, [&](const region& cells) { threads_.start_for_each_cell(cells, store); });
    }
    // The same by start(region), which all threads call. What other devices read comes first.
    template <class Start>
    DCUDA_DEVICE void compute_sections(int l, int array, const delivery& next, const Start& start) {
        const device_level& on = levels_[l];
        const device_share& own = shares_[l];
        double* const u = on.u[array];
        const int last = own.section_count - 1;
        // PERF: one copy of the loops over cells, for the layers at each side and for what is left.
        DCUDA_NO_UNROLL
        for (int n = 0; n <= last; ++n) {
            if (n == last && n > 0) {
                const part so_far = clock_.turn(l, part::sending);
                send_far(next, on.u_place[array], u);
                clock_.turn(l, so_far);
            }
            const device_section& one = own.sections[n];
            start(one.cells);
            __syncthreads();
            fill_ghosts(on, u, one.ghosts, next.is_exchange ? one.read_by_a : one.ghost_count, next.order);
        }
        clock_.turn(l, part::sending);
        if (last == 0) send_far(next, on.u_place[array], u);
        send_near(next);
        if (next.is_exchange) sent_ |= 1 << l;
    }

    DCUDA_COLD void send_far(const delivery& next, std::ptrdiff_t place, const double* array) const {
        if (next.by.far_count == 0) return;
        constexpr std::size_t bytes = sizeof(double);
        for (int n = 0; n < next.by.parcel_count; ++n) {
            const parcel& one = work_.parcels[next.by.parcels + n];
            const auto size = [](std::ptrdiff_t count) { return static_cast<std::size_t>(count) * bytes; };
            self_.put(work_.window, one.target, size(place + one.destination), {size(one.there[1]), size(one.there[0])},
                      {size(one.extent[2]), std::size_t(one.extent[1]), std::size_t(one.extent[0])}, array + one.source,
                      {size(one.here[1]), size(one.here[0])});
        }
        self_.flush(work_.window); // also for those whose device another rank of it has got the cells for
        self_.notify_each(work_.ranks + next.by.ranks, next.by.far_count, dcuda::world, next.tag);
    }
    // Ranks of this device read where this one has stored.
    DCUDA_COLD void send_near(const delivery& next) const {
        if (next.by.near_count == 0) return;
        self_.release();
        self_.notify_each(work_.ranks + next.by.ranks + next.by.far_count, next.by.near_count, dcuda::world, next.tag);
    }

    // The first sweep from u = 0, of which A u is 0: no cells of neighbours are read.
    DCUDA_COLD void sweep_from_zero(int l) {
        if (!has(l)) return;
        await_restriction(l);
        clock_.turn(l, part::smoothing);
        const device_level& on = levels_[l];
        compute(l, 1, to_neighbours(l), [&](int i, int j, int k) {
            const std::ptrdiff_t at = on.in.place(i, j, k);
            return swept_from_zero(on, work_.is_chebyshev, i + j + k, at);
        });
    }

    DCUDA_COLD void smooth(int l, const delivery& last, int first_sweep) {
        if (!has(l)) return;
        const device_level& on = levels_[l];
        for (int sweep = first_sweep; sweep < sweeps; ++sweep) {
            await_neighbours(l);
            clock_.turn(l, part::smoothing);
            const double *const u = on.u[sweep % 2], *const twin = on.u[1 - sweep % 2];
            const bool is_last = sweep + 1 == sweeps;
            const delivery next =
                is_last && !last.is_exchange ? delivery{last.by, last.order, last.tag} : to_neighbours(l);
            if (!work_.is_chebyshev && shares_[l].brick.cells() >= cells_of_large_brick) {
                sweep_pairs(l, sweep, next);
                continue;
            }
            // PERF: one copy of A for both smoothers.
            compute(l, 1 - sweep % 2, next, [&](int i, int j, int k) {
                const std::ptrdiff_t at = on.in.place(i, j, k);
                const double before = u[at];
                if (!work_.is_chebyshev && (i + j + k + sweep) % 2 != 0) return before;
                const double change = (on.source[at] - image(on, u, at)) * on.inverse_diagonal[at];
                if (!work_.is_chebyshev) return before + change;
                const chebyshev_step& step = on.steps[sweep];
                return before + step.before * (before - twin[at]) + step.change * change;
            });
        }
    }

    // A sweep with red and black cells in a large brick.
    // PERF: of two cells that follow each other in the first dimension one changes. A thread takes both, so that all
    // threads of a warp have one to compute. On coarse levels that takes longer: there is less to do than to prepare.
    DCUDA_COLD void sweep_pairs(int l, int sweep, const delivery& next) {
        const sweep_arrays arrays(levels_[l], sweep);
        compute_sections(l, 1 - sweep % 2, next, [&](const region& cells) {
            const int last = cells.last[0];
            threads_.start_for_each_pair(cells, [=](int i, int j, int k) {
                const bool is_second = (i + j + k + sweep) % 2 != 0, has_second = i + 1 < last;
                const std::ptrdiff_t first = arrays.in.place(i, j, k), second = first + arrays.of.strides[0];
                const std::ptrdiff_t changed = is_second ? second : first, kept = is_second ? first : second;
                if (has_second || !is_second) arrays.twin[changed] = arrays.swept(changed);
                if (has_second || is_second) arrays.twin[kept] = arrays.u[kept];
            });
        });
    }

    // f of the coarser level from what value(level, place) says of fine cells.
    template <class Value>
    DCUDA_COLD void restrict_to(int fine, const Value& value) {
        if (!has(fine)) return;
        clock_.turn(fine, part::restriction);
        const device_level &from = levels_[fine], &coarse = levels_[fine + 1];
        threads_.for_each_cell(halved(shares_[fine].brick), [&](int i, int j, int k) {
            coarse.source[coarse.in.place(i, j, k)] =
                restricted(i, j, k, [&](int x, int y, int z) { return value(from, from.in.place(x, y, z)); });
        });
        clock_.turn(fine, part::sending);
        const delivery next{shares_[fine].to_coarse, coarse.order, tag_of(fine + 1, restriction)};
        send_far(next, coarse.source_place, coarse.source);
        send_near(next);
    }

    DCUDA_DEVICE void restrict_residual(int fine) {
        bool is_finite = true;
        if (has(fine)) await_neighbours(fine);
        restrict_to(fine, [&](const device_level& on, std::ptrdiff_t at) {
            const double value = residual_at(on, at);
            is_finite = is_finite && value - value == 0.0;
            return value;
        });
        note(fine, is_finite);
    }

    template <class Cycle>
    DCUDA_COLD void interpolate_to(int fine, bool adds) {
        if (!has(fine)) return;
        const device_level &on = levels_[fine], &coarse = levels_[fine + 1];
        clock_.turn(fine, part::waiting);
        await(tag_of(fine + 1, interpolation), shares_[fine].to_fine.expected);
        clock_.turn(fine, part::interpolation);
        const double* const u = on.u[0];
        compute(fine, 0, to_neighbours(fine), [&](int i, int j, int k) {
            return (adds ? u[on.in.place(i, j, k)] : 0.0) + interpolate<Cycle>(coarse.u[0], coarse.in, i, j, k);
        });
    }

    DCUDA_COLD void solve_bottom(ghosts order) {
        const int l = bottom();
        bool is_finite = true;
        if (has(l)) {
            await_restriction(l);
            clock_.turn(l, part::bottom);
            const bottom_crew crew(threads_);
            is_finite = bottom_solver(crew, work_.bottom).solve();
            const device_section& all = shares_[l].sections[0];
            fill_ghosts(levels_[l], levels_[l].u[0], all.ghosts, all.ghost_count, order);
            clock_.turn(l, part::sending);
            const delivery fine{shares_[l].to_fine, order, tag_of(l, interpolation)};
            send_far(fine, levels_[l].u_place[0], levels_[l].u[0]);
            send_near(fine);
        }
        note(l, is_finite);
    }

    DCUDA_DEVICE void note(int l, bool is_finite) {
        if (!is_finite) atomicMin(work_.found.failure, failure_at(residuals_, l));
        ++residuals_;
    }

    dcuda::rank& self_;
    const task& work_;
    block_of_threads threads_;
    const device_level* levels_;
    const device_share* shares_;
    part_clock clock_;
    int turn_ = 0, sent_ = 0; // a bit for each level: which of the exchange's tags is next; whether one is on its way
    int residuals_ = 0;
};

// PERF: 128 registers per thread.
__global__ void __launch_bounds__(most_threads) solve(dcuda::context context, task work) {
    __shared__ rank_tables tables;
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    rank_solver own(self, work, tables);
    own.meet_neighbours();
    self.barrier(dcuda::world);
    self.start_timer();
    own.start_clock();
    common::progress progress(self, "hpgmg", "solve", work.solves, work.runs);
    for (int number = 0; number < work.solves; ++number) {
        own.f_cycle();
        for (int cycle = 0;; ++cycle) {
            const double residual = own.residual();
            if (self.id(dcuda::device) == 0 && threadIdx.x == 0) work.found.residuals[cycle] = residual;
            if (cycle == work.v_cycles) break;
            own.v_cycle(0);
        }
        progress.done(number + 1);
    }
    self.barrier(dcuda::world);
    self.stop_timer();
}

} // namespace hpgmg
