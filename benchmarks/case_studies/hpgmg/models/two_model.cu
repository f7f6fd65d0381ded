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
#include "models/kernel_model.hpp"
#include "reference.hpp"

namespace hpgmg {

using common::carriers;
using common::check;
using common::event;
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

class two_model final : public kernel_model<two_model> {
public:
    two_model(const setting& given, const std::string& carrier, launching how)
        : kernel_model(given, how, std::min(first_of_host(given.cut, given.chosen.cpu_below), given.cut.levels() - 1)),
          has_host_levels_(first_of_host(given.cut, given.chosen.cpu_below) < given.cut.levels()),
          carrier_(
              carriers::make(carrier, {processes_, area_.data(), area_.bytes(), deliveries_.routes(), &given.runtime})),
          pieces_(on_device(deliveries_.pieces())) {
        if (has_host_levels_ && has(last_)) {
            host_.emplace(given.cut.level(0), given.chosen.smooths_by, given.chosen.amplitude, last_);
            pinned_ = common::allocate_pinned<double>(host_->u_of_first().size());
        }
        start();
    }
    ~two_model() override { end(); }

    double exchange_alone() override {
        if (given_.cut.devices() == 1) return 0.0;
        computes_ = false;
        const double result = timed(1, [&] { solve(); });
        computes_ = true;
        return result;
    }
    std::string describe() const override {
        if (!has_host_levels_) return carrier_->name();
        return carrier_->name() + ", levels from " + std::to_string(given_.cut.level(last_).side()) +
               "^3 on by the host's processor";
    }

private:
    friend kernel_model;

    // --- What kernel_model launches ----------------------------------------------------------------------------------

    template <class Action>
    void compute(const region& where, const Action& action) {
        compute(where, action, stream_);
    }
    template <class Action>
    void compute(const region& where, const Action& action, const stream& by) {
        if (computes_ && !where.empty()) launch(where, action, by.get());
    }

    void deliver(const delivered_array& next) {
        deliver(next, [] {});
    }
    // before_filling() comes between: when it is done, so are all cells inside.
    template <class Action>
    void deliver(const delivered_array& next, const Action& before_filling) {
        const delivery& list = deliveries_.all()[next_delivery(next)];
        const device_level& on = next.on;
        if (computes_)
            launch(pieces_.data() + list.packed, list.packed_count, list.most_packed,
                   pack{on.in, on.side, next.order, next.array}, stream_.get());
        if (!list.messages.empty()) carrier_->bring(list.messages, stream_.get());
        before_filling();
        if (computes_)
            launch(pieces_.data() + list.unpacked, list.unpacked_count, list.most_unpacked,
                   unpack_and_fill{on.in, on.side, next.order, next.array}, stream_.get());
    }

    // On a large level what other devices read is computed first, and the rest while it travels.
    template <class Sweep>
    void sweep(int l, const Sweep& action, const delivered_array& next) {
        if (!computes_ || !overlaps(l)) {
            compute(cells(l), action);
            deliver(next);
            return;
        }
        begun_.record(stream_);
        begun_.hold_up(inner_stream_);
        region inside = cells(l);
        for (int d = 0; d < 3; ++d)
            for (const bool is_low : {true, false}) {
                const region own = cells(l);
                if (is_low ? own.first[d] == 0 : own.last[d] == level(l).side) continue;
                compute(cut_off(inside, d, is_low, ghost_layers), action);
            }
        compute(inside, action, inner_stream_);
        deliver(next, [&] {
            done_.record(inner_stream_);
            done_.hold_up(stream_);
        });
    }
    bool overlaps(int l) const { return given_.cut.is_shared(l) && cells(l).cells() >= given_.chosen.overlap_from; }

    // By the bottom solver, or by the host with all coarser ones.
    void solve_last(bool corrects, const delivered_array& next, int failure) {
        if (computes_ && has(last_)) {
            if (has_host_levels_)
                solve_on_host(corrects, failure);
            else
                launch_bottom(given_.arrays.bottom(), found_, failure, stream_.get());
        }
        deliver(next);
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

    void find_residual(int cycle, int failure) {
        if (computes_) launch_largest(cells(0), level(0), found_, cycle, failure, stream_.get());
    }

    void meet() { carrier_->meet(stream_.get()); }

    bool has_host_levels_;
    std::unique_ptr<common::carrier> carrier_;
    common::device_buffer<piece> pieces_;
    std::optional<serial_solver> host_;
    common::pinned_array<double> pinned_;
    stream inner_stream_{stream::priority::low};
    event begun_{cudaEventDisableTiming}, done_{cudaEventDisableTiming};
    bool computes_ = true; // or exchanges alone
};

const common::two_models<two_model, setting> made({"plain", "host", "stream", "mpi", "nccl"});

} // namespace

} // namespace hpgmg
