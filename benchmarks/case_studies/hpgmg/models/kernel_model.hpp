// SPDX-License-Identifier: BSD-3-Clause
// A solve by kernels that the host launches on a stream: their order, and what is delivered between them. Models differ
// in how cells come to other devices.
#pragma once

#include <memory>
#include <vector>

#include "common/models/processes.hpp"
#include "models/deliveries.hpp"
#include "models/kernels.hpp"
#include "models/model.hpp"

namespace hpgmg {

// An array of a level that gets its ghost cells, and other devices what they read of it. `from`: the level that it
// comes from, which is the finer one of two on the way to coarse.
struct delivered_array {
    way why;
    int from;
    const device_level& on;
    double* array;
    ghosts order;
};

// Launcher is the model itself. It has
//   compute(cells, action)                     launches action(i, j, k) in all these cells
//   deliver(delivered)                         what follows sees the array as it is then
//   sweep(level, action, delivered)            both, of a sweep over a level
//   solve_last(corrects, delivered, failure)   the last level, and deliver
//   find_residual(cycle, failure)
//   meet()                                     what follows in the stream comes after all that devices did before
template <class Launcher>
class kernel_model : public common::model {
public:
    double run() override {
        return timed(0, [&] { solve(); });
    }

protected:
    kernel_model(const setting& given, common::launching how, int last)
        : given_(given), found_(given.found.view()), last_(last), staging_(given.cut, given.device),
          area_(staging_.cells()), deliveries_(given.cut, given.device, staging_, area_.data()), how_(how) {}

    bool has(int level) const { return !cells(level).empty(); }
    region cells(int level) const { return given_.cut.owned(level, given_.device); }
    const device_level& level(int number) const { return given_.arrays.level(number); }

    std::size_t next_delivery(const delivered_array& next) {
        int turn = 0;
        if (next.why == way::exchange) turn = staging::turn_of(exchanges_[static_cast<std::size_t>(next.from)]++);
        return staging::number_of(next.why, next.from, turn);
    }

    // At the end of the model's constructor: kernels are loaded and connections made when first used, which is to be
    // before anything is captured or timed.
    void start() {
        common::check(cudaDeviceSynchronize(), "filling the levels"); // this stream does not wait for what did it
        solve();
        stream_.wait_on_host();
        if (how_ == common::launching::in_graphs)
            graphs_[0] = std::make_unique<common::graph>(stream_, [&] { solve(); });
    }

    // First in the model's destructor: what graphs call outlives them.
    void end() {
        cudaDeviceSynchronize();
        for (std::unique_ptr<common::graph>& each : graphs_) each.reset();
    }

    void solve() {
        exchanges_.assign(static_cast<std::size_t>(given_.cut.levels()), 0);
        residuals_ = 0;
        f_cycle();
        self().find_residual(0, next_failure(0));
        for (int cycle = 1; cycle <= given_.chosen.v_cycles; ++cycle) {
            v_cycle(0);
            self().find_residual(cycle, next_failure(0));
        }
    }

    // All solves of a run, each of which is `work`. Milliseconds. `number`: of the work's graph.
    template <class Work>
    double timed(int number, const Work& work) {
        const bool is_in_graphs = how_ == common::launching::in_graphs;
        std::unique_ptr<common::graph>& all = graphs_[number];
        if (is_in_graphs && all == nullptr) all = std::make_unique<common::graph>(stream_, work);
        self().meet();
        stream_.wait_on_host();
        start_.record(stream_);
        for (int solves = 0; solves < given_.chosen.solves; ++solves) {
            if (is_in_graphs)
                all->launch(stream_);
            else
                work();
        }
        stop_.record(stream_);
        stream_.wait_on_host();
        return processes_.largest(milliseconds(start_, stop_));
    }

private:
    Launcher& self() { return static_cast<Launcher&>(*this); }
    bool is_chebyshev() const { return given_.chosen.smooths_by == smoother::chebyshev; }
    int next_failure(int number) { return failure_at(residuals_++, number); }

    void f_cycle() {
        for (int l = 0; l < last_; ++l) {
            self().compute(halved(cells(l)), restrict_source{level(l), level(l + 1)});
            deliver_source(l);
        }
        solve_last(false, level(last_).order);
        for (int l = last_ - 1; l >= 0; --l) {
            interpolate_from_coarse<of_f_cycle>(l, false);
            v_cycle(l);
        }
    }

    void v_cycle(int finest) {
        for (int l = finest; l < last_; ++l) {
            if (l > finest)
                self().sweep(l, sweep_from_zero{level(l), is_chebyshev()},
                             {way::exchange, l, level(l), level(l).u[1], level(l).order});
            smooth(l, way::exchange, level(l).order, l > finest ? 1 : 0);
            self().compute(halved(cells(l)), restrict_residual{level(l), level(l + 1), found_, next_failure(l)});
            deliver_source(l);
        }
        solve_last(true, ghosts::quadratic);
        for (int l = last_ - 1; l >= finest; --l) {
            interpolate_from_coarse<of_v_cycle>(l, true);
            const bool is_done = l == finest; // then the next is the F-cycle's, or the residual
            smooth(l, l == 0 ? way::exchange : way::to_fine, is_done ? level(l).order : ghosts::quadratic, 0);
        }
    }

    void deliver_source(int fine) {
        const device_level& coarse = level(fine + 1);
        self().deliver({way::to_coarse, fine, coarse, coarse.source, coarse.order});
    }
    void solve_last(bool corrects, ghosts order) {
        self().solve_last(corrects, {way::to_fine, last_, level(last_), level(last_).u[0], order}, next_failure(last_));
    }

    // The last sweep's result goes `why`, with such ghost cells.
    void smooth(int l, way why, ghosts order, int first_sweep) {
        const device_level& on = level(l);
        for (int sweep = first_sweep; sweep < sweeps; ++sweep) {
            const bool is_last = sweep + 1 == sweeps;
            const delivered_array next{is_last ? why : way::exchange, l, on, on.u[1 - sweep % 2],
                                       is_last ? order : on.order};
            if (is_chebyshev())
                self().sweep(l, chebyshev_sweep{on, sweep}, next);
            else
                self().sweep(l, red_black_sweep{on, sweep}, next);
        }
    }

    template <class Cycle>
    void interpolate_from_coarse(int l, bool adds) {
        self().compute(cells(l), interpolate_to_fine<Cycle>{level(l), level(l + 1), adds});
        self().deliver({way::exchange, l, level(l), level(l).u[0], level(l).order});
    }

protected:
    setting given_;
    findings_view found_;
    int last_; // of the device's levels
    common::processes processes_;
    staging staging_;
    common::device_buffer<double> area_; // of what travels
    deliveries deliveries_;
    common::stream stream_{common::stream::priority::high};

private:
    common::launching how_;
    common::event start_{cudaEventDefault}, stop_{cudaEventDefault};
    std::unique_ptr<common::graph> graphs_[2];
    // Of the solve that is launched.
    std::vector<int> exchanges_; // of each level
    int residuals_ = 0;
};

} // namespace hpgmg
