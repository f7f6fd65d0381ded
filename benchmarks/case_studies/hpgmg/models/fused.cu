// SPDX-License-Identifier: BSD-3-Clause
// One kernel for an exchange and the sweep after it, whose blocks put and wait by themselves (fused_kernel.hpp). The
// host launches it for what is to be computed next, with what was delivered last. Where nothing travels there are two,
// for ghost cells and for what is computed.
#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "dcuda/stream.hpp"
#include "models/fused_kernel.hpp"
#include "models/kernel_model.hpp"

namespace hpgmg {

using common::check;
using common::launching;

namespace {

// Cuts a piece into smaller ones of `most` cells, or of one row, whose cells lie side by side in its message.
void cut(const piece& whole, std::int64_t most, std::vector<piece>& into) {
    const region& all = whole.cells;
    const std::int64_t row = all.extent(2), slice = row * all.extent(1);
    const auto at_least_one = [](std::int64_t count) { return static_cast<int>(std::max<std::int64_t>(1, count)); };
    const int slices = at_least_one(most / slice), rows = slice <= most ? all.extent(1) : at_least_one(most / row);
    for (int i = all.first[0]; i < all.last[0]; i += slices)
        for (int j = all.first[1]; j < all.last[1]; j += rows) {
            piece part = whole;
            part.cells.first[0] = i;
            part.cells.last[0] = std::min(i + slices, all.last[0]);
            part.cells.first[1] = j;
            part.cells.last[1] = std::min(j + rows, all.last[1]);
            if (whole.message != nullptr) part.message += place_in(whole, i, j, all.first[2]);
            into.push_back(part);
        }
}

__global__ void __launch_bounds__(fused_threads) fill_alone(const __grid_constant__ fused_step step) {
    unpack_pieces(step, step.filled, step.filled_count, blockIdx.x, gridDim.x);
}

// For what is delivered alone.
struct nothing {
    static constexpr int reach = 0;

    DCUDA_DEVICE void operator()(int, int, int) const {}
};

class fused final : public kernel_model<fused> {
public:
    fused(const setting& given, launching how)
        : kernel_model(given, how, given.cut.levels() - 1), ready_tag_(static_cast<int>(deliveries_.all().size())),
          words_(1), port_(given.runtime, ready_tag_ + 2),
          window_(given.runtime.create_window(area_.data(), area_.bytes())) {
        words_.clear();
        prepare();
        start();
    }
    ~fused() override {
        end();
        if (std::uncaught_exceptions() == 0) given_.runtime.free_window(window_);
    }

    double exchange_alone() override { return 0.0; } // it is a part of the kernels
    std::string describe() const override { return "kernels that wait and put by themselves"; }

private:
    friend kernel_model;

    // Some of all pieces.
    struct list {
        std::size_t first = 0;
        int count = 0;
    };
    // Of a delivery, as blocks use it.
    struct prepared {
        list packed, filled, unpacked, puts;
        dcuda::wait_trigger arrived;
        bool is_needed() const { return packed.count + filled.count + unpacked.count > 0; }
    };

    // Each delivery has a tag, for a neighbour may be an exchange ahead of another one.
    void prepare() {
        std::vector<piece> pieces;
        std::vector<dcuda::put_trigger> puts;
        // PERF: a cell for each lane, while that takes no more warps than run at a time.
        const auto add = [&](const std::vector<piece>& all) {
            std::int64_t cells = 0;
            for (const piece& each : all) cells += each.cells.cells();
            const std::int64_t most = cells <= most_blocks_ * std::int64_t{fused_threads} ? 32 : 128;
            list added{pieces.size()};
            for (const piece& each : all) cut(each, most, pieces);
            added.count = static_cast<int>(pieces.size() - added.first);
            return added;
        };
        for (const delivery& each : deliveries_.all()) {
            const int tag = static_cast<int>(prepared_.size());
            const auto part_of = [&](std::size_t first, int count) {
                const auto begin = deliveries_.pieces().begin() + static_cast<std::ptrdiff_t>(first);
                return std::vector<piece>(begin, begin + count);
            };
            std::vector<piece> packed = part_of(each.packed, each.packed_count), filled, unpacked;
            for (const piece& one : part_of(each.unpacked, each.unpacked_count))
                (one.message == nullptr ? filled : unpacked).push_back(one);
            prepared next;
            next.puts.first = puts.size();
            for (piece& one : packed) {
                const common::message& out = each.messages[static_cast<std::size_t>(next.puts.count++)];
                puts.push_back(port_.prepare_put_notify(window_, out.peer, out.there, out.out, out.out_bytes, tag));
                // PERF: packed where it is to be, if the target's memory is mapped.
                if (puts.back().target != nullptr) one.message = reinterpret_cast<double*>(puts.back().target);
            }
            next.packed = add(packed);
            next.filled = add(filled);
            next.unpacked = add(unpacked);
            if (!unpacked.empty()) next.arrived = port_.prepare_wait(tag, static_cast<int>(unpacked.size()));
            prepared_.push_back(next);
        }
        pieces_ = on_device(pieces);
        puts_ = on_device(puts);
        is_there_ = port_.prepare_put_notify(window_, given_.device, 0, nullptr, 0, ready_tag_);
        all_there_ = port_.prepare_wait_from(given_.device, ready_tag_, 1);
    }

    // --- What kernel_model launches ----------------------------------------------------------------------------------

    void deliver(const delivered_array& next) {
        deliver_alone();
        const std::size_t number = next_delivery(next);
        if (prepared_[number].is_needed()) awaited_.emplace(awaited{next, prepared_[number]});
    }
    void deliver_alone() { compute(region{}, nothing{}); }

    template <class Action>
    void compute(const region& where, const Action& action) {
        if (!awaited_) {
            if (!where.empty()) hpgmg::launch(where, action, stream_.get());
            return;
        }
        fused_step step = step_of(awaited_->array, awaited_->by);
        const auto some = [&](int blocks) { return static_cast<unsigned>(std::min(blocks, most_blocks_)); };
        const auto blocks_of = [&](int pieces) { return some((pieces * 32 + fused_threads - 1) / fused_threads); };
        // PERF: blocks tell each other by atomic operations, one after the other: on one H200 a solve of 64^3 cells by
        // one kernel for each sweep took 2.1 ms, by two it takes 1.2 (2026-11-28).
        if (step.put_count + step.unpacked_count == 0) {
            awaited_.reset();
            launch(blocks_of(step.filled_count), fill_alone, step);
            return compute(where, action);
        }
        if (!where.empty()) divide(step, where, awaited_->array, Action::reach);
        awaited_.reset();
        int inside = step.part_count > 0 ? step.tiles_of[0].count() : 0, outside = 0;
        for (int part = 1; part < step.part_count; ++part) outside += step.tiles_of[part].count();
        if (outside <= most_of_last_block) outside = 0;
        step.filling_blocks = blocks_of(step.filled_count);
        step.blocks[packs] = blocks_of(step.packed_count);
        step.blocks[computes_inside] = some(inside);
        step.blocks[unpacks] = step.filling_blocks + blocks_of(step.unpacked_count);
        step.blocks[computes_outside] = some(outside);
        unsigned blocks = 0;
        for (const unsigned each : step.blocks) blocks += each;
        launch(blocks, deliver_and_compute<Action>, step, action);
    }
    template <class... Parameters>
    void launch(unsigned blocks, void (*kernel)(Parameters...), const std::decay_t<Parameters>&... arguments) const {
        cudaLaunchConfig_t shape{};
        shape.gridDim = dim3(blocks);
        shape.blockDim = dim3(fused_threads);
        shape.stream = stream_.get();
        check(cudaLaunchKernelEx(&shape, kernel, arguments...), "launching a kernel");
    }

    template <class Sweep>
    void sweep(int l, const Sweep& action, const delivered_array& next) {
        compute(cells(l), action);
        deliver(next);
    }

    void solve_last(bool, const delivered_array& next, int failure) {
        deliver_alone();
        if (has(last_)) launch_bottom(given_.arrays.bottom(), found_, failure, stream_.get());
        deliver(next);
    }

    void find_residual(int cycle, int failure) {
        deliver_alone();
        launch_largest(cells(0), level(0), found_, cycle, failure, stream_.get());
    }

    void meet() {
        dcuda::stream_batch all(port_);
        for (int other = 0; other < given_.cut.devices(); ++other)
            if (other != given_.device) all.notify(other, ready_tag_ + 1);
        for (int other = 0; other < given_.cut.devices(); ++other)
            if (other != given_.device) all.wait_from(other, ready_tag_ + 1, 1);
        all.post(stream_.get());
    }

    fused_step step_of(const delivered_array& next, const prepared& by) {
        fused_step step{};
        step.in = next.on.in;
        step.side = next.on.side;
        step.order = next.order;
        step.array = next.array;
        step.packed = pieces_.data() + by.packed.first;
        step.packed_count = by.packed.count;
        step.filled = pieces_.data() + by.filled.first;
        step.filled_count = by.filled.count;
        step.unpacked = pieces_.data() + by.unpacked.first;
        step.unpacked_count = by.unpacked.count;
        step.puts = puts_.data() + by.puts.first;
        step.put_count = by.puts.count;
        step.arrived = by.arrived;
        step.is_there = is_there_;
        step.all_there = all_there_;
        step.words = words_.data();
        return step;
    }

    // What reads nothing of what is filled and unpacked comes first.
    void divide(fused_step& step, const region& where, const delivered_array& from, int reach) const {
        const auto add = [&](const region& part) {
            step.parts[step.part_count] = part;
            step.tiles_of[step.part_count++] = part.empty() ? tiles() : tiles(part, fused_threads);
        };
        if (step.filled_count + step.unpacked_count == 0) return add(where);
        // PERF: few cells are not worth seven parts, each of a tile of its own.
        const bool are_few = where.cells() <= most_of_last_block * std::int64_t{fused_threads};
        if (are_few || from.why == way::to_coarse || cells(from.from).empty()) { // or all of it may have come
            add(region{});
            return add(where);
        }
        region inside = where, layers[6];
        int count = 0;
        for (int d = 0; d < 3; ++d)
            for (const bool is_low : {true, false}) layers[count++] = cut_off(inside, d, is_low, reach);
        add(inside);
        for (const region& each : layers)
            if (!each.empty()) add(each);
    }

    // What was delivered last, which the next kernel does.
    struct awaited {
        delivered_array array;
        prepared by;
    };

    // If no more tiles than these wait for what comes, the last block that unpacks computes them.
    static constexpr int most_of_last_block = 2;

    int ready_tag_; // the last one is for meeting
    common::device_buffer<dcuda::role_words> words_;
    common::device_buffer<piece> pieces_;
    common::device_buffer<dcuda::put_trigger> puts_;
    dcuda::stream_port port_;
    dcuda::window window_;
    std::vector<prepared> prepared_; // of each delivery
    dcuda::put_trigger is_there_;
    dcuda::wait_trigger all_there_;
    std::optional<awaited> awaited_;
    int most_blocks_ = DCUDA_BACKEND_CUDA ? 3 * common::multiprocessors() : 2; // of a role: as many as run at a time
};

const models::entry made_fused("fused", [](const setting& given) {
    return std::make_unique<fused>(given, launching::one_by_one);
});
#if DCUDA_BACKEND_CUDA
const models::entry made_fused_graph("fused-graph", [](const setting& given) {
    return std::make_unique<fused>(given, launching::in_graphs);
});
#endif

} // namespace

} // namespace hpgmg
