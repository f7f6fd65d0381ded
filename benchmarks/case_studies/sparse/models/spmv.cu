// SPDX-License-Identifier: BSD-3-Clause
// The product with two models: kernels on a stream, and a library that the host calls, on another of high priority.
// Every repetition:
//     messages   vector from above, to below | products from behind |     | to the front | barrier
//     kernels                                | product              | add |              |
#include <algorithm>
#include <memory>
#include <string>

#include "common/models/carrier.hpp"
#include "models/kernels.hpp"
#include "models/lists.hpp"
#include "models/model.hpp"

namespace sparse {

namespace {

using common::event;
using common::graph;
using common::launching;
using common::stream;

class spmv_model final : public common::model {
public:
    spmv_model(const setting& given, const std::string& carrier, launching how)
        : given_(given), how_(how), lists_(given.work), from_above_(lists_.from_above(0)),
          to_below_(lists_.to_below(0)), from_behind_(lists_.from_behind()), to_front_(lists_.to_front(0)),
          carrier_(common::carriers::make(carrier, {processes_, given.work.memory, memory_bytes(given.work),
                                                    lists::routes({from_above_, to_below_, from_behind_, to_front_})})),
          is_alone_(processes_.count() == 1) {
        // Before anything is captured or timed: kernels are loaded and connections made when first used.
        repeat(work::all);
        wait_on_host();
    }
    ~spmv_model() override { cudaDeviceSynchronize(); }

    double run() override { return timed(work::all); }
    double exchange_alone() override { return is_alone_ ? 0.0 : timed(work::exchanges); }
    std::string describe() const override {
        return carrier_->name() + (is_alone_ || given_.barrier ? "" : ", without a barrier");
    }

private:
    enum class work { all, exchanges };

    static std::size_t memory_bytes(const task& work) { return work.places().bytes(); }

    double timed(work kind) {
        carrier_->meet(messages_.get());
        wait_on_host();
        std::unique_ptr<graph>& made = graphs_[static_cast<int>(kind)];
        if (how_ == launching::in_graphs && made == nullptr)
            made = std::make_unique<graph>(kernels_, [&] {
                for (int i = 0; i < given_.repetitions; ++i) repeat(kind);
            });
        wait_on_host();
        start_.record(kernels_);
        if (how_ == launching::in_graphs)
            made->launch(kernels_);
        else
            for (int i = 0; i < given_.repetitions; ++i) repeat(kind);
        stop_.record(kernels_);
        wait_on_host();
        return processes_.largest(milliseconds(start_, stop_));
    }

    void wait_on_host() const {
        messages_.wait_on_host();
        kernels_.wait_on_host();
    }

    void repeat(work kind) {
        const auto multiply_rows = [&] {
            if (kind == work::all)
                multiply(given_.work, given_.threads, lists_.vector(0), lists_.product(0), fixed_factor{}, kernels_);
        };
        if (is_alone_) return multiply_rows();
        // The products before have read what comes now.
        order(kernels_, messages_);
        bring(from_above_);
        order(messages_, kernels_);
        bring(to_below_); // those below wait for it
        multiply_rows();
        if (!from_behind_.empty()) {
            bring(from_behind_);
            order(messages_, kernels_);
            if (kind == work::all)
                launch_at_indices(given_.work.whole.rows_at(given_.work.here()).count(),
                                  addition{lists_.product(0), lists_.received(), lists_.received_distance(),
                                           lists_.children_along_row()},
                                  kernels_);
        }
        order(kernels_, messages_);
        bring(to_front_);
        if (given_.barrier) carrier_->meet(messages_.get());
        order(messages_, kernels_);
    }

    void bring(const messages& list) { carrier_->bring(list, messages_.get()); }
    // What follows in one stream begins after what is in the other now.
    void order(const stream& first, const stream& second) {
        joined_.record(first);
        joined_.hold_up(second);
    }

    setting given_;
    launching how_;
    lists lists_;
    messages from_above_, to_below_, from_behind_, to_front_;
    common::processes processes_;
    std::unique_ptr<common::carrier> carrier_;
    bool is_alone_;
    stream messages_{stream::priority::high}, kernels_{stream::priority::low};
    event joined_{cudaEventDisableTiming}, start_{cudaEventDefault}, stop_{cudaEventDefault};
    std::unique_ptr<graph> graphs_[2];
};

const common::two_models<spmv_model, setting> made({"plain", "host", "mpi", "nccl"});

} // namespace

} // namespace sparse
