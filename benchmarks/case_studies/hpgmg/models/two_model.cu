// SPDX-License-Identifier: BSD-3-Clause
// The structure of programs with two models, one for the device and one between devices: kernels on a stream, and a
// library that the host calls. What all of them share; a carrier is what differs (common/models/).
//
// After a sweep a kernel packs what other devices read, the carrier brings it, and a kernel unpacks what has come and
// fills the ghost cells of the grid's boundary. A device that has no cells of a level launches nothing for it. Coarse
// levels may be the host's (--cpu-below): it takes f of the first of them from its device, and gives u back.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/models/carrier.hpp"
#include "models/kernels.hpp"
#include "models/model.hpp"
#include "models/staging.hpp"
#include "reference.hpp"

namespace hpgmg {

using common::carriers;
using common::check;
using common::event;
using common::graph;
using common::launching;
using common::stream;

namespace {

// A host's levels are those of one device with few cells, and all coarser ones; the finest level is none.
int first_of_host(const decomposition& cut, int cpu_below) {
    int level = 1;
    for (; level < cut.levels(); ++level) {
        if (!cut.is_shared(level) && cut.level(level).cells() < cpu_below) break;
    }
    return level;
}

class two_model final : public common::model {
public:
    two_model(const setting& given, const std::string& carrier, launching how)
        : given_(given), how_(how), found_(given.found.view()), staging_(given.cut, given.device),
          area_(staging_.cells()), first_of_host_(first_of_host(given.cut, given.chosen.cpu_below)),
          last_(std::min(first_of_host_, given.cut.levels() - 1)),
          carrier_(carriers::make(carrier, {processes_, area_.data(), area_.bytes(), routes(), &given.runtime})) {
        make_pieces();
        if (has_host_levels() && has(last_)) {
            host_.emplace(given.cut.level(0), given.chosen.smooths_by, given.chosen.amplitude, first_of_host_);
            pinned_ = common::allocate_pinned<double>(host_->u_of_first().size());
        }
        check(cudaDeviceSynchronize(), "filling the levels"); // this stream does not wait for what did it
        // Once before anything is captured or timed: kernels are loaded and connections made when first used.
        solve();
        stream_.wait_on_host();
        if (how_ == launching::in_graphs) graphs_[0] = std::make_unique<graph>(stream_, [&] { solve(); });
    }
    ~two_model() override { cudaDeviceSynchronize(); }

    double run() override { return timed(work::all); }
    double exchange_alone() override { return given_.cut.devices() > 1 ? timed(work::exchanges) : 0.0; }
    std::string describe() const override {
        if (!has_host_levels()) return carrier_->name();
        return carrier_->name() + ", levels from " + std::to_string(given_.cut.level(last_).side()) +
               "^3 on by the host's processor";
    }

private:
    enum class work { all, exchanges };

    bool has(int level) const { return !cells(level).empty(); }
    region cells(int level) const { return given_.cut.owned(level, given_.device); }
    const device_level& level(int number) const { return given_.arrays.level(number); }
    bool is_chebyshev() const { return given_.chosen.smooths_by == smoother::chebyshev; }
    bool has_host_levels() const { return first_of_host_ < given_.cut.levels(); }

    // --- What travels ------------------------------------------------------------------------------------------------

    // A level's pieces in device memory, and what the carrier brings between packing and unpacking.
    struct delivery {
        std::size_t packed = 0, unpacked = 0; // in the array of all pieces
        int packed_count = 0, unpacked_count = 0;
        std::int64_t most_packed = 0, most_unpacked = 0; // cells of the largest
        std::vector<common::message> messages;
    };

    static std::size_t bytes(const staging::part& one) {
        return static_cast<std::size_t>(one.cells.cells()) * sizeof(double);
    }

    // What a list brings to a peer, and from it, is as much as all peers of the list say, or less.
    std::vector<common::route> routes() const {
        std::vector<common::route> all(static_cast<std::size_t>(given_.cut.devices()));
        for (const staging::list& list : staging_.lists()) {
            for (const staging::part& one : list.out) {
                common::route& to_peer = all[static_cast<std::size_t>(one.peer)];
                to_peer.out_bytes = std::max(to_peer.out_bytes, bytes(one));
            }
            for (const staging::part& one : list.in) {
                common::route& from_peer = all[static_cast<std::size_t>(one.peer)];
                from_peer.in_bytes = std::max(from_peer.in_bytes, bytes(one));
            }
        }
        std::vector<common::route> used;
        for (std::size_t peer = 0; peer < all.size(); ++peer) {
            all[peer].peer = static_cast<int>(peer);
            if (all[peer].out_bytes + all[peer].in_bytes > 0) used.push_back(all[peer]);
        }
        return used;
    }

    void make_pieces() {
        std::vector<piece> pieces;
        const auto add = [&](const region& of, double* message, std::int64_t& most) {
            pieces.push_back({of, message});
            most = std::max(most, of.cells());
        };
        staging::for_each(given_.cut.levels(), [&](way why, int number, int) {
            const staging::list& list = staging_.lists()[deliveries_.size()];
            delivery next;
            next.packed = pieces.size();
            for (const staging::part& one : list.out) {
                add(one.cells, area_.data() + one.at, next.most_packed);
                common::message out{one.peer};
                out.out = area_.data() + one.at;
                out.out_bytes = bytes(one);
                out.there = one.there * sizeof(double);
                next.messages.push_back(out);
            }
            next.unpacked = pieces.size();
            if (why != way::to_coarse && has(number))
                for (const region& layers : ghosts_of(number, why == way::to_fine))
                    add(layers, nullptr, next.most_unpacked);
            for (const staging::part& one : list.in) {
                add(one.cells, area_.data() + one.at, next.most_unpacked);
                common::message in{one.peer};
                in.in = area_.data() + one.at;
                in.in_bytes = bytes(one);
                next.messages.push_back(in);
            }
            next.packed_count = static_cast<int>(next.unpacked - next.packed);
            next.unpacked_count = static_cast<int>(pieces.size() - next.unpacked);
            deliveries_.push_back(std::move(next));
        });
        pieces_ = on_device(pieces);
    }

    // The ghost cells of the grid's boundary beside this device's cells: those that A reads, or all.
    std::vector<region> ghosts_of(int number, bool has_all) const {
        std::vector<region> result;
        region done = cells(number);
        const int side = level(number).side;
        const unsigned touched = touched_faces(done, side);
        if (!has_all)
            for (int piece = 0; piece < pieces_of_boundary; ++piece)
                if (const region one = piece_of_boundary(done, side, touched, piece); !one.empty())
                    result.push_back(one);
        const region all = given_.cut.with_ghosts(number, done);
        for (int d = 0; has_all && d < 3; ++d) {
            region low = done, high = done;
            low.first[d] = all.first[d];
            low.last[d] = done.first[d];
            high.first[d] = done.last[d];
            high.last[d] = all.last[d];
            for (const region& layers : {low, high})
                if (!layers.empty()) result.push_back(layers);
            done.first[d] = all.first[d];
            done.last[d] = all.last[d];
        }
        return result;
    }

    const delivery& next_delivery(way why, int number) {
        int turn = 0;
        if (why == way::exchange) turn = staging::turn_of(exchanges_[static_cast<std::size_t>(number)]++);
        return deliveries_[staging::number_of(why, number, turn)];
    }

    // Gives an array of a level, `in`, its ghost cells, and other devices what they read of it. `number` is the level
    // that it comes from. before_filling() comes between: when it is done, so are all cells inside.
    template <class Action>
    void deliver(way why, int number, const device_level& in, double* array, ghosts order,
                 const Action& before_filling) {
        const delivery& next = next_delivery(why, number);
        if (kind_ == work::all)
            launch(pieces_.data() + next.packed, next.packed_count, next.most_packed,
                   pack{in.in, in.side, order, array}, stream_.get());
        if (!next.messages.empty()) carrier_->bring(next.messages, stream_.get());
        before_filling();
        if (kind_ == work::all)
            launch(pieces_.data() + next.unpacked, next.unpacked_count, next.most_unpacked,
                   unpack_and_fill{in.in, in.side, order, array}, stream_.get());
    }
    void deliver(way why, int number, const device_level& in, double* array, ghosts order) {
        deliver(why, number, in, array, order, [] {});
    }

    // --- A solve -----------------------------------------------------------------------------------------------------

    template <class Action>
    void compute(const region& where, const Action& action) {
        compute(where, action, stream_);
    }
    template <class Action>
    void compute(const region& where, const Action& action, const stream& by) {
        if (kind_ == work::all && !where.empty()) launch(where, action, by.get());
    }
    int next_failure(int number) { return failure_at(residuals_++, number); }

    void solve() {
        exchanges_.assign(static_cast<std::size_t>(given_.cut.levels()), 0);
        residuals_ = 0;
        f_cycle();
        find_residual(0);
        for (int cycle = 1; cycle <= given_.chosen.v_cycles; ++cycle) {
            v_cycle(0);
            find_residual(cycle);
        }
    }

    void f_cycle() {
        for (int l = 0; l < last_; ++l) {
            compute(halved(cells(l)), restrict_source{level(l), level(l + 1)});
            deliver(way::to_coarse, l, level(l + 1), level(l + 1).source, level(l + 1).order);
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
                smooth_once(l, sweep_from_zero{level(l), is_chebyshev()}, way::exchange, level(l).order, level(l).u[1]);
            smooth(l, way::exchange, level(l).order, l > finest ? 1 : 0);
            compute(halved(cells(l)), restrict_residual{level(l), level(l + 1), found_, next_failure(l)});
            deliver(way::to_coarse, l, level(l + 1), level(l + 1).source, level(l + 1).order);
        }
        solve_last(true, ghosts::quadratic);
        for (int l = last_ - 1; l >= finest; --l) {
            interpolate_from_coarse<of_v_cycle>(l, true);
            const bool is_done = l == finest; // then the next is the F-cycle's, or the residual
            smooth(l, l == 0 ? way::exchange : way::to_fine, is_done ? level(l).order : ghosts::quadratic, 0);
        }
    }

    // The last sweep's result goes `why`, with such ghost cells.
    void smooth(int l, way why, ghosts order, int first_sweep) {
        const device_level& on = level(l);
        for (int sweep = first_sweep; sweep < sweeps; ++sweep) {
            const bool is_last = sweep + 1 == sweeps;
            const way next = is_last ? why : way::exchange;
            const ghosts next_order = is_last ? order : on.order;
            if (is_chebyshev())
                smooth_once(l, chebyshev_sweep{on, sweep}, next, next_order, on.u[1 - sweep % 2]);
            else
                smooth_once(l, red_black_sweep{on, sweep}, next, next_order, on.u[1 - sweep % 2]);
        }
    }
    // On a large level what other devices read is computed first, and the rest while it travels.
    template <class Sweep>
    void smooth_once(int l, const Sweep& sweep, way why, ghosts order, double* result) {
        if (kind_ != work::all || !overlaps(l)) {
            compute(cells(l), sweep);
            deliver(why, l, level(l), result, order);
            return;
        }
        begun_.record(stream_);
        begun_.hold_up(inner_stream_);
        region inside = cells(l);
        for (int d = 0; d < 3; ++d)
            for (const bool is_low : {true, false}) {
                const region own = cells(l);
                if (is_low ? own.first[d] == 0 : own.last[d] == level(l).side) continue;
                region layers = inside;
                (is_low ? layers.last : layers.first)[d] =
                    is_low ? inside.first[d] + ghost_layers : inside.last[d] - ghost_layers;
                (is_low ? inside.first : inside.last)[d] = (is_low ? layers.last : layers.first)[d];
                compute(layers, sweep);
            }
        compute(inside, sweep, inner_stream_);
        deliver(why, l, level(l), result, order, [&] {
            done_.record(inner_stream_);
            done_.hold_up(stream_);
        });
    }
    bool overlaps(int l) const { return given_.cut.is_shared(l) && cells(l).cells() >= given_.chosen.overlap_from; }

    template <class Cycle>
    void interpolate_from_coarse(int l, bool adds) {
        compute(cells(l), interpolate_to_fine<Cycle>{level(l), level(l + 1), adds});
        deliver(way::exchange, l, level(l), level(l).u[0], level(l).order);
    }

    // The last level of the device: by the bottom solver, or by the host with all coarser ones.
    void solve_last(bool corrects, ghosts order) {
        const int failure = next_failure(last_);
        if (kind_ == work::all && has(last_)) {
            if (has_host_levels())
                solve_on_host(corrects, failure);
            else
                launch_bottom(given_.arrays.bottom(), found_, failure, stream_.get());
        }
        deliver(way::to_fine, last_, level(last_), level(last_).u[0], order);
    }
    void solve_on_host(bool corrects, int failure) {
        std::vector<double>& source = host_->source_of_first();
        const std::size_t bytes = source.size() * sizeof(double);
        check(cudaMemcpyAsync(pinned_.get(), level(last_).source, bytes, cudaMemcpyDeviceToHost, stream_.get()),
              "copying to the host");
        stream_.wait_on_host();
        std::copy_n(pinned_.get(), source.size(), source.begin());
        if (corrects)
            host_->correct_coarse();
        else
            host_->solve_coarse();
        std::copy_n(host_->u_of_first().begin(), source.size(), pinned_.get());
        check(cudaMemcpyAsync(level(last_).u[0], pinned_.get(), bytes, cudaMemcpyHostToDevice, stream_.get()),
              "copying from the host");
        if (const std::optional<int> failed = host_->failed_level())
            compute(cube(1), note_failure{found_, failure + *failed - last_});
    }

    void find_residual(int cycle) {
        const int failure = next_failure(0);
        if (kind_ == work::all) launch_largest(cells(0), level(0), found_, cycle, failure, stream_.get());
    }

    // --- All solves of a run -----------------------------------------------------------------------------------------

    double timed(work kind) {
        kind_ = kind;
        const bool is_in_graphs = how_ == launching::in_graphs;
        std::unique_ptr<graph>& all = graphs_[kind == work::all ? 0 : 1];
        if (is_in_graphs && all == nullptr) all = std::make_unique<graph>(stream_, [&] { solve(); });
        carrier_->meet(stream_.get());
        stream_.wait_on_host();
        start_.record(stream_);
        for (int number = 0; number < given_.chosen.solves; ++number) {
            if (is_in_graphs)
                all->launch(stream_);
            else
                solve();
        }
        stop_.record(stream_);
        stream_.wait_on_host();
        return processes_.largest(milliseconds(start_, stop_));
    }

    setting given_;
    launching how_;
    findings_view found_;
    common::processes processes_;
    staging staging_;
    common::device_buffer<double> area_;
    int first_of_host_, last_;
    std::unique_ptr<common::carrier> carrier_;
    std::vector<delivery> deliveries_;
    common::device_buffer<piece> pieces_;
    std::optional<serial_solver> host_;
    common::pinned_array<double> pinned_;
    stream stream_{stream::priority::high}, inner_stream_{stream::priority::low};
    event begun_{cudaEventDisableTiming}, done_{cudaEventDisableTiming}, start_{cudaEventDefault},
        stop_{cudaEventDefault};
    std::unique_ptr<graph> graphs_[2];
    // Of the solve that is launched.
    work kind_ = work::all;
    std::vector<int> exchanges_; // of each level
    int residuals_ = 0;
};

const common::two_models<two_model, setting> made({"plain", "host", "stream", "mpi", "nccl"});

} // namespace

} // namespace hpgmg
