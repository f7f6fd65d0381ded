// SPDX-License-Identifier: BSD-3-Clause
#include "models/two_model.hpp"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>

#include "common/models/streams.hpp"
#include "dcuda/host.hpp"

namespace stencil {

using common::carriers;
using common::check;
using common::event;
using common::graph;
using common::launching;
using common::stream;

// --- Arrays ----------------------------------------------------------------------------------------------------------

device_arrays::device_arrays(const setting& given, int arrays, int halo)
    : halo_(halo), nx_(given.whole.nx), devices_{given.whole.ny, given.ranks.rows.devices, 1}, mine_(given.own()),
      plane_(given.whole.plane()), stride_(static_cast<std::size_t>(mine_.count() + 2 * halo) * plane_) {
    if (!mine_.empty()) {
        neighbours_[0] = devices_.owner(mine_.first - 1);
        neighbours_[1] = devices_.owner(mine_.last);
    }
    memory_ = common::device_buffer<double>(stride_ * static_cast<std::size_t>(arrays));
    check(cudaMemset(memory_.data(), 0, memory_.bytes()), "clearing the fields");
    check(cudaDeviceSynchronize(), "clearing the fields"); // other streams and neighbours do not wait for it
}

exchange device_arrays::rows_of(int array, bool to_previous, bool to_next) const {
    exchange result;
    const field_view field = view(array);
    const bool sends[2] = {to_previous, to_next};
    const int out_rows[2] = {mine_.first, mine_.last - halo_}, in_rows[2] = {mine_.first - halo_, mine_.last};
    const std::size_t bytes = row_bytes();
    for (int border = 0; border < 2; ++border) {
        const int neighbour = neighbours_[border];
        if (neighbour < 0) continue;
        common::message rows{neighbour};
        if (sends[border]) {
            rows.out = field.row(out_rows[border]);
            rows.out_bytes = bytes;
            rows.there = offset_at(neighbour, array, out_rows[border]);
            result.sends[border] = true;
        }
        if (sends[1 - border]) {
            rows.in = field.row(in_rows[border]);
            rows.in_bytes = bytes;
        }
        if (rows.out_bytes + rows.in_bytes > 0) result.messages[result.count++] = rows;
    }
    return result;
}

// Where a device stores a row, in bytes from its arrays' start.
std::size_t device_arrays::offset_at(int device, int array, int row) const {
    const range rows = devices_.of_device(device);
    const auto stored = static_cast<std::size_t>(rows.count() + 2 * halo_);
    const auto before = static_cast<std::size_t>(row - (rows.first - halo_));
    return (static_cast<std::size_t>(array) * stored + before) * plane_ * sizeof(double);
}

std::vector<common::route> device_arrays::routes() const {
    std::vector<common::route> result;
    for (const int neighbour : neighbours_)
        if (neighbour >= 0) result.push_back({neighbour, row_bytes(), row_bytes()});
    return result;
}

namespace {

// --- Kernels ---------------------------------------------------------------------------------------------------------

// What is computed for a column, `rows` rows (or less, where the rows end) and a level.
struct lap_point {
    static constexpr int rows = 1, most_threads = 1024;
    field_view in, lap;

    DCUDA_DEVICE void operator()(int x, range ys, int k) const { lap(x, ys.first, k) = laplacian(in, x, ys.first, k); }
};
struct flux_point {
    static constexpr int rows = 1, most_threads = 1024;
    field_view in, lap, fx, fy;

    DCUDA_DEVICE void operator()(int x, range ys, int k) const {
        fx(x, ys.first, k) = flux_x(in, lap, x, ys.first, k);
        fy(x, ys.first, k) = flux_y(in, lap, x, ys.first, k);
    }
};
struct update_point {
    static constexpr int rows = 1, most_threads = 1024;
    field_view in, fx, fy;
    double coefficient;

    DCUDA_DEVICE void operator()(int x, range ys, int k) const {
        in(x, ys.first, k) = diffused(in, fx, fy, coefficient, x, ys.first, k);
    }
};
// Several rows share most of what they read and of what is computed in between, in registers: all is read before
// anything is written, so the compiler may keep it.
template <int Rows>
struct fused_point {
    static constexpr int rows = Rows, most_threads = Rows == 1 ? 1024 : 256;
    field_view in, out;
    double coefficient;

    DCUDA_DEVICE void operator()(int x, range ys, int k) const {
        if (ys.count() < rows) {
            for (int y = ys.first; y < ys.last; ++y) out(x, y, k) = diffused_at_once(in, coefficient, x, y, k);
            return;
        }
        double results[rows];
        DCUDA_UNROLL
        for (int i = 0; i < rows; ++i) results[i] = diffused_at_once(in, coefficient, x, ys.first + i, k);
        DCUDA_UNROLL
        for (int i = 0; i < rows; ++i) out(x, ys.first + i, k) = results[i];
    }
};

// Two ranges of rows, such as both borders, in groups of `size` rows or less.
struct row_groups {
    range first, second;
    int size;

    DCUDA_HOST_DEVICE int of(range rows) const { return (rows.count() + size - 1) / size; }
    DCUDA_HOST_DEVICE int count() const { return of(first) + of(second); }
    DCUDA_HOST_DEVICE range at(int group) const {
        const bool in_first = group < of(first);
        const range rows = in_first ? first : second;
        const int begin = rows.first + (in_first ? group : group - of(first)) * size;
        return {begin, begin + size < rows.last ? begin + size : rows.last};
    }
};

#if DCUDA_BACKEND_CUDA

template <class Point>
__global__ void __launch_bounds__(Point::most_threads)
    at_points(row_groups rows, range columns, int levels, const Point point) {
    const int x = static_cast<int>(blockIdx.z * blockDim.x + threadIdx.x);
    const int k = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
    if (k < levels && x >= columns.first && x < columns.last) point(x, rows.at(static_cast<int>(blockIdx.x)), k);
}

// Threads lie along x, which is contiguous, then over levels.
template <class Point>
void launch(const row_groups& rows, range columns, int levels, int threads, const Point& point, cudaStream_t stream) {
    const auto all = static_cast<unsigned>(std::min(threads, Point::most_threads));
    const unsigned warps_of_line = (static_cast<unsigned>(columns.last) + 31) / 32;
    const unsigned along_x = all < 32 ? all : std::min({warps_of_line * 32, all, 128u});
    const dim3 block(along_x, all / along_x);
    const dim3 blocks(static_cast<unsigned>(rows.count()), (static_cast<unsigned>(levels) + block.y - 1) / block.y,
                      (static_cast<unsigned>(columns.last) + block.x - 1) / block.x);
    at_points<<<blocks, block, 0, stream>>>(rows, columns, levels, point);
    check(cudaGetLastError(), "launching a kernel");
}

#else

// A loop, as work of the stream.
template <class Point>
void launch(const row_groups& rows, range columns, int levels, int, const Point& point, cudaStream_t stream) {
    const auto loop = [=] {
        for (int group = 0; group < rows.count(); ++group)
            for (int k = 0; k < levels; ++k)
                for (int x = columns.first; x < columns.last; ++x) point(x, rows.at(group), k);
    };
    common::launch_on_host(loop, stream);
}

#endif

// --- The model -------------------------------------------------------------------------------------------------------

class two_model final : public common::model {
public:
    two_model(const setting& given, const std::string& carrier, launching how)
        : given_(given), how_(how), fused_(given.chosen.fused),
          arrays_(given, fused_ ? 2 : arrays_of_steps, fused_ ? 2 : 1),
          carrier_(carriers::make(carrier,
                                  {processes_, arrays_.base(), arrays_.bytes(), arrays_.routes(), &given.runtime})) {
        // Once before anything is captured or timed: kernels are loaded and connections made when first used.
        iterate(0, work::all);
        border_.wait_on_host();
    }
    ~two_model() override { cudaDeviceSynchronize(); }

    double run() override {
        load();
        const double time = timed(work::all);
        store();
        return time;
    }

    double exchange_alone() override { return given_.ranks.rows.devices > 1 ? timed(work::exchanges) : 0.0; }

    std::string describe() const override { return carrier_->name(); }

private:
    enum array { in_array, lap_array, fy_array, fx_array, arrays_of_steps };
    enum class work { all, exchanges };
    static constexpr int iterations_per_graph = 100; // even, for the two arrays of fused iterations take turns

    // The neighbours begin together: after an exchange, which also fills the halo.
    double timed(work kind) {
        bring(arrays_.rows_of(in_array, true, true));
        border_.wait_on_host();
        if (how_ == launching::in_graphs)
            for (const int iterations : {iterations_per_graph, given_.chosen.iterations % iterations_per_graph})
                if (iterations > 0 && iterations <= given_.chosen.iterations) captured(iterations, kind);
        border_.wait_on_host();
        start_.record(border_);
        if (how_ == launching::in_graphs) {
            const int rest = given_.chosen.iterations % iterations_per_graph;
            for (int done = 0; done + iterations_per_graph <= given_.chosen.iterations; done += iterations_per_graph)
                captured(iterations_per_graph, kind).launch(border_);
            if (rest > 0) captured(rest, kind).launch(border_);
        } else {
            for (int i = 0; i < given_.chosen.iterations; ++i) iterate(i, kind);
        }
        stop_.record(border_);
        border_.wait_on_host();
        return processes_.largest(milliseconds(start_, stop_));
    }

    void bring(const exchange& rows) {
        carrier_->bring({rows.messages, static_cast<std::size_t>(rows.count)}, border_.get());
    }

    const graph& captured(int iterations, work kind) {
        std::unique_ptr<graph>& made = graphs_[{iterations, kind}];
        if (made == nullptr)
            made = std::make_unique<graph>(border_, [&] {
                for (int i = 0; i < iterations; ++i) iterate(i, kind);
            });
        return *made;
    }

    void iterate(int iteration, work kind) {
        const grid& g = given_.whole;
        const double coefficient = given_.chosen.coefficient;
        if (fused_) {
            const int from = iteration % 2, target = 1 - from;
            const field_view in = arrays_.view(from), out = arrays_.view(target);
            const exchange rows = arrays_.rows_of(target, true, true);
            if (given_.chosen.rows_per_thread == 1)
                step(kind, fused_point<1>{in, out, coefficient}, g.inner_columns(), g.inner_rows(), rows);
            else if (given_.chosen.rows_per_thread == 2)
                step(kind, fused_point<2>{in, out, coefficient}, g.inner_columns(), g.inner_rows(), rows);
            else
                step(kind, fused_point<4>{in, out, coefficient}, g.inner_columns(), g.inner_rows(), rows);
            return;
        }
        const field_view in = arrays_.view(in_array), lap = arrays_.view(lap_array), fx = arrays_.view(fx_array),
                         fy = arrays_.view(fy_array);
        step(kind, lap_point{in, lap}, g.lap_columns(), g.lap_rows(), arrays_.rows_of(lap_array, true, false));
        step(kind, flux_point{in, lap, fx, fy}, g.flux_columns(), g.flux_rows(),
             arrays_.rows_of(fy_array, false, true));
        step(kind, update_point{in, fx, fy, coefficient}, g.inner_columns(), g.inner_rows(),
             arrays_.rows_of(in_array, true, true));
    }

    // Computes this device's rows of the given ones and exchanges some. No kernel of a step touches the halo rows that
    // its exchange fills.
    template <class Point>
    void step(work kind, const Point& point, range columns, range rows, const exchange& crossing) {
        if (kind == work::exchanges) {
            if (crossing.count > 0) bring(crossing);
            return;
        }
        const auto compute = [&](range first, range second, const stream& on) {
            const row_groups groups{intersection(first, rows), intersection(second, rows), Point::rows};
            if (groups.count() > 0 && !columns.empty())
                launch(groups, columns, given_.whole.nz, given_.threads, point, on.get());
        };
        const range own = arrays_.own();
        if (crossing.count == 0) {
            compute(own, {}, border_);
            return;
        }
        // What goes out, and the rest, each row once.
        const int halo = arrays_.halo();
        const range before{own.first, own.first + (crossing.sends[0] ? std::min(halo, own.count()) : 0)};
        const range after{std::max(before.last, own.last - (crossing.sends[1] ? halo : 0)), own.last};
        begun_.record(border_);
        begun_.hold_up(interior_);
        compute(before, after, border_);
        compute({before.last, after.first}, {}, interior_);
        bring(crossing);
        done_.record(interior_);
        done_.hold_up(border_);
    }

    std::size_t own_bytes() const {
        return static_cast<std::size_t>(arrays_.own().count()) * arrays_.plane() * sizeof(double);
    }
    // The rows that never change must be in both arrays of fused iterations.
    void load() {
        check(cudaDeviceSynchronize(), "copying the field"); // these streams do not wait for what put it there
        if (arrays_.own().empty()) return;
        for (int i = 0; i < (fused_ ? 2 : 1); ++i)
            check(cudaMemcpyAsync(arrays_.view(i).row(arrays_.own().first), given_.in + arrays_.plane(), own_bytes(),
                                  cudaMemcpyDeviceToDevice, border_.get()),
                  "copying the field");
    }
    void store() {
        if (arrays_.own().empty()) return;
        const int last = fused_ ? given_.chosen.iterations % 2 : static_cast<int>(in_array);
        check(cudaMemcpyAsync(given_.in + arrays_.plane(), arrays_.view(last).row(arrays_.own().first), own_bytes(),
                              cudaMemcpyDeviceToDevice, border_.get()),
              "copying the field");
        border_.wait_on_host();
    }

    setting given_;
    launching how_;
    bool fused_;
    common::processes processes_;
    device_arrays arrays_;
    std::unique_ptr<common::carrier> carrier_;
    stream border_{stream::priority::high}, interior_{stream::priority::low};
    event begun_{cudaEventDisableTiming}, done_{cudaEventDisableTiming}, start_{cudaEventDefault},
        stop_{cudaEventDefault};
    std::map<std::pair<int, work>, std::unique_ptr<graph>> graphs_;
};

const common::two_models<two_model, setting> made({"plain", "host", "stream", "mpi", "nccl"});

} // namespace

} // namespace stencil
