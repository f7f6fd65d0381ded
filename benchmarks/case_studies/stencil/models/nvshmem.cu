// SPDX-License-Identifier: BSD-3-Clause
// NVSHMEM: one persistent kernel whose blocks own rows, like dCUDA's ranks. A block tells its neighbours on the same
// device by flags in device memory, and puts border rows with a signal into symmetric memory of other devices. The
// steps and what keeps rows from being overwritten too early are those of kernels.hpp.
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include <cuda/atomic>

#include "common/device_buffer.hpp"
#include "common/models/nvshmem.hpp"
#include "models/model.hpp"
#include "points.hpp"

namespace stencil {

namespace {

// What is waited for.
enum kind : int { lap_kind, fy_kind, field_kind, kinds };

struct job {
    grid whole;
    division ranks;
    int device = 0;
    int halo = 1;           // rows on either side
    double* fields[4] = {}; // symmetric: in, lap, fy, fx; or both arrays of fused iterations
    std::uint64_t* flags;   // of this device's blocks: flag_of
    std::uint64_t* signals; // symmetric: from the device before, and after, of each kind
    std::uint64_t done;     // iterations of earlier runs: numbers only grow
    std::uint64_t* stamps;  // nanoseconds: start, stop
    int iterations = 0;
    double coefficient = 0.0;
    bool stores = false; // stores to the other device, then a signal

    __host__ __device__ field_view view(int array) const {
        return {fields[array], ranks.rows.of_device(device).first - halo, whole.nx, whole.plane()};
    }
};

using common::meet;
using common::now_ns;

// A block, its rows and its neighbours.
class owner {
public:
    __device__ explicit owner(const job& of)
        : of_(of), ranks_(of.ranks.ranks_per_device()), block_(static_cast<int>(blockIdx.x)),
          rank_(of.device * ranks_ + block_), mine_(of.ranks.rows_of(rank_)), levels_(of.ranks.levels_of(rank_)) {
        neighbours_[0] = mine_.empty() ? -1 : of.ranks.beside(rank_, mine_.first - 1);
        neighbours_[1] = mine_.empty() ? -1 : of.ranks.beside(rank_, mine_.last);
    }

    __device__ range rows() const { return mine_; }
    __device__ range levels() const { return levels_; }

    // To the neighbour before (0) or after (1): rows from `first_row` on, `halo` of them, are as iteration `number`
    // makes them. All threads call it; it begins with the block's barrier.
    __device__ void send(int border, kind which, const field_view& field, int first_row, std::uint64_t number) const {
        const int neighbour = neighbours_[border];
        if (neighbour < 0) return;
        __syncthreads();
        if (neighbour / ranks_ == of_.device) {
            if (is_first_thread()) flag(block_, border, which).store(number, cuda::memory_order_release);
            return;
        }
        const int pe = neighbour / ranks_;
        const bool is_whole = of_.ranks.level_parts == 1; // then all rows lie together
        const int pieces = is_whole ? 1 : of_.halo;
        const std::size_t row_points =
            static_cast<std::size_t>(levels_.count()) * static_cast<std::size_t>(of_.whole.nx);
        const std::size_t count = is_whole ? static_cast<std::size_t>(of_.halo) * of_.whole.plane() : row_points;
        const int first_there = of_.ranks.rows.of_device(pe).first - of_.halo;
        std::uint64_t* const signal = &of_.signals[signal_index(1 - border, which)];
        for (int row = 0; row < pieces; ++row) {
            const std::size_t first_level = field.offset(0, levels_.first);
            double* const source = field.row(first_row + row) + first_level;
            double* const target =
                field.data + static_cast<std::size_t>(first_row + row - first_there) * of_.whole.plane() + first_level;
            const bool is_last = row + 1 == pieces;
            if (of_.stores)
                store_there(static_cast<double*>(nvshmem_ptr(target, pe)), source, static_cast<int>(count));
            else if (is_last)
                nvshmemx_putmem_signal_nbi_block(target, source, count * sizeof(double), signal, number,
                                                 NVSHMEM_SIGNAL_SET, pe);
            else {
                nvshmemx_putmem_nbi_block(target, source, count * sizeof(double), pe);
                if (is_first_thread()) nvshmem_fence(); // the signal is of the last row
                __syncthreads();
            }
        }
        if (!of_.stores) return;
        __syncthreads();
        if (is_first_thread()) {
            __threadfence_system(); // what all threads of the block have stored, before the signal
            nvshmemx_signal_op(signal, number, NVSHMEM_SIGNAL_SET, pe);
        }
    }

    // Until that neighbour has sent what belongs to iteration `number`. wait_end must follow.
    __device__ void wait(int border, kind which, std::uint64_t number) const {
        const int neighbour = neighbours_[border];
        if (neighbour < 0 || !is_first_thread()) return;
        if (neighbour / ranks_ == of_.device) {
            const auto theirs = flag(neighbour % ranks_, 1 - border, which);
            while (theirs.load(cuda::memory_order_acquire) < number) {
            }
        } else {
            nvshmem_signal_wait_until(&of_.signals[signal_index(border, which)], NVSHMEM_CMP_GE, number);
        }
    }
    __device__ void wait_end() const { __syncthreads(); }

    __device__ static void store_there(double* there, const double* source, int count) {
        const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
        const int threads = static_cast<int>(blockDim.x * blockDim.y);
        if ((count | static_cast<int>(reinterpret_cast<std::uintptr_t>(source) / sizeof(double))) % 2 == 0)
            for (int i = thread; i < count / 2; i += threads)
                reinterpret_cast<double2*>(there)[i] = reinterpret_cast<const double2*>(source)[i];
        else
            for (int i = thread; i < count; i += threads) there[i] = source[i];
    }

    static std::size_t flag_words(int ranks) { return static_cast<std::size_t>(ranks) * 2 * kinds * line; }
    static std::size_t signal_words(const division& ranks) {
        return static_cast<std::size_t>(ranks.level_parts) * 2 * kinds;
    }

private:
    static constexpr std::size_t line = 16; // words of 128 B: no two flags share one

    __device__ static bool is_first_thread() { return threadIdx.x == 0 && threadIdx.y == 0; }
    // Of this device's border: a signal per border, kind and part of the levels.
    __device__ int signal_index(int border, kind which) const {
        return (of_.ranks.level_part_of(rank_) * 2 + border) * kinds + which;
    }
    __device__ cuda::atomic_ref<std::uint64_t, cuda::thread_scope_device> flag(int block, int border,
                                                                               kind which) const {
        return cuda::atomic_ref<std::uint64_t, cuda::thread_scope_device>(
            of_.flags[static_cast<std::size_t>((block * 2 + border) * kinds + which) * line]);
    }

    const job& of_;
    int ranks_, block_, rank_;
    range mine_, levels_;
    int neighbours_[2];
};

__global__ void __launch_bounds__(512) diffuse_in_steps(const __grid_constant__ job of) {
    const owner self(of);
    const grid& g = of.whole;
    const range own = self.rows();
    const border_rows border(own, of.halo);
    const field_view in = of.view(0), lap = of.view(1), fy = of.view(2), fx = of.view(3);
    const auto compute_lap = [&](range rows) {
        for_each_point(
            g.lap_columns(), intersection(rows, g.lap_rows()), self.levels(),
            [&](int x, int y, int k) { return laplacian(in, x, y, k); },
            [&](int x, int y, int k, double value) { lap(x, y, k) = value; });
    };
    const auto compute_fluxes = [&](range rows) {
        for_each_point(
            g.flux_columns(), intersection(rows, g.flux_rows()), self.levels(),
            [&](int x, int y, int k) { return flux(in, lap, x, y, k); },
            [&](int x, int y, int k, const fluxes& value) {
                fx(x, y, k) = value.x;
                fy(x, y, k) = value.y;
            });
    };
    const auto update = [&](range rows) {
        for_each_point(
            g.inner_columns(), intersection(rows, g.inner_rows()), self.levels(),
            [&](int x, int y, int k) { return diffused(in, fx, fy, of.coefficient, x, y, k); },
            [&](int x, int y, int k, double value) { in(x, y, k) = value; });
    };

    meet();
    if (blockIdx.x == 0 && threadIdx.x == 0 && threadIdx.y == 0) of.stamps[0] = now_ns();
    for (int iteration = 0; iteration < of.iterations; ++iteration) {
        const std::uint64_t number = of.done + static_cast<std::uint64_t>(iteration) + 1;
        compute_lap(border.first);
        self.send(0, lap_kind, lap, own.first, number);
        compute_lap({border.first.last, own.last});
        self.wait(1, lap_kind, number);
        self.wait_end();

        compute_fluxes(intersection(own, {own.last - 1, own.last}));
        self.send(1, fy_kind, fy, own.last - 1, number);
        compute_fluxes({own.first, own.last - 1});
        self.wait(0, fy_kind, number);
        self.wait_end();

        update(border.first);
        self.send(0, field_kind, in, own.first, number);
        update(border.last);
        self.send(1, field_kind, in, own.last - 1, number);
        update(border.inner);
        self.wait(0, field_kind, number);
        self.wait(1, field_kind, number);
        self.wait_end();
    }
    meet();
    if (blockIdx.x == 0 && threadIdx.x == 0 && threadIdx.y == 0) of.stamps[1] = now_ns();
}

// One exchange of two rows per iteration, between two arrays. A block writes the array that its neighbours read in the
// iteration before, and has heard from them after that.
__global__ void __launch_bounds__(512) diffuse_at_once(const __grid_constant__ job of) {
    const owner self(of);
    const grid& g = of.whole;
    const range own = self.rows();
    const border_rows border(own, of.halo);

    meet();
    if (blockIdx.x == 0 && threadIdx.x == 0 && threadIdx.y == 0) of.stamps[0] = now_ns();
    for (int iteration = 0; iteration < of.iterations; ++iteration) {
        const std::uint64_t number = of.done + static_cast<std::uint64_t>(iteration) + 1;
        const field_view in = of.view(iteration % 2), out = of.view(1 - iteration % 2);
        const auto compute = [&](range rows) {
            for_each_point(
                g.inner_columns(), intersection(rows, g.inner_rows()), self.levels(),
                [&](int x, int y, int k) { return diffused_at_once(in, of.coefficient, x, y, k); },
                [&](int x, int y, int k, double value) { out(x, y, k) = value; });
        };
        compute(border.first);
        self.send(0, field_kind, out, own.first, number);
        compute(border.last);
        self.send(1, field_kind, out, own.last - of.halo, number);
        compute(border.inner);
        self.wait(0, field_kind, number);
        self.wait(1, field_kind, number);
        self.wait_end();
    }
    meet();
    if (blockIdx.x == 0 && threadIdx.x == 0 && threadIdx.y == 0) of.stamps[1] = now_ns();
}

// Before the iterations: the border rows of devices into the halo of their neighbours.
__global__ void __launch_bounds__(1024) fill_halo(const __grid_constant__ job of) {
    const range own = of.ranks.rows.of_device(of.device);
    const field_view in = of.view(0);
    const partition devices{of.ranks.rows.rows, of.ranks.rows.devices, 1};
    const std::size_t bytes = static_cast<std::size_t>(of.halo) * of.whole.plane_bytes();
    for (int border = 0; border < 2; ++border) {
        const int pe = own.empty() ? -1 : devices.owner(border == 0 ? own.first - 1 : own.last);
        if (pe < 0) continue;
        const int row = border == 0 ? own.first : own.last - of.halo;
        const int first_there = of.ranks.rows.of_device(pe).first - of.halo;
        nvshmemx_putmem_block(in.data + static_cast<std::size_t>(row - first_there) * of.whole.plane(), in.row(row),
                              bytes, pe);
    }
    nvshmemx_barrier_all_block();
}

// --- Host ------------------------------------------------------------------------------------------------------------

using common::check;
using common::symmetric_array;

class nvshmem_model final : public common::model {
public:
    explicit nvshmem_model(const setting& given)
        : given_(given), fused_(given.chosen.fused), library_(processes_), stamps_(2),
          flags_(owner::flag_words(given.ranks.ranks_per_device())),
          signals_(common::allocate_symmetric<std::uint64_t>(owner::signal_words(given.ranks))) {
        job_.whole = given.whole;
        job_.ranks = given.ranks;
        job_.device = given.device;
        job_.halo = fused_ ? 2 : 1;
        const int arrays = fused_ ? 2 : 4;
        // The same size everywhere: the first device has the most rows.
        const auto most_rows = static_cast<std::size_t>(given.ranks.rows.of_device(0).count() + 2 * job_.halo);
        for (int i = 0; i < arrays; ++i) {
            fields_[i] = common::allocate_symmetric<double>(most_rows * given.whole.plane());
            job_.fields[i] = fields_[i].get();
        }
        check(cudaMemset(flags_.data(), 0, flags_.bytes()), "clearing memory");
        job_.flags = flags_.data();
        job_.signals = signals_.get();
        job_.done = 0;
        job_.stamps = stamps_.data();
        job_.iterations = given.chosen.iterations;
        job_.coefficient = given.chosen.coefficient;
        job_.stores = given.chosen.stores;
        const auto threads = static_cast<unsigned>(given.threads);
        block_ = threads < 32 ? dim3(threads) : dim3(32, threads / 32);
        check(cudaDeviceSynchronize(), "clearing memory");
        nvshmem_barrier_all();
        if (given.chosen.stores && processes_.largest(reaches_neighbours() ? 0.0 : 1.0) > 0.0)
            throw std::runtime_error("--stores takes devices that map each other's memory");
    }

    double run() override {
        const range own = given_.own();
        const std::size_t bytes = static_cast<std::size_t>(own.count()) * given_.whole.plane_bytes();
        // The rows that never change must be in both arrays of fused iterations.
        for (int i = 0; i < (fused_ ? 2 : 1); ++i)
            check(cudaMemcpy(job_.view(i).row(own.first), given_.in + given_.whole.plane(), bytes,
                             cudaMemcpyDeviceToDevice),
                  "copying the field");
        launch(reinterpret_cast<const void*>(&fill_halo), dim3(1), dim3(1024));
        launch(reinterpret_cast<const void*>(fused_ ? &diffuse_at_once : &diffuse_in_steps),
               dim3(static_cast<unsigned>(given_.ranks.ranks_per_device())), block_);
        job_.done += static_cast<std::uint64_t>(job_.iterations);
        std::uint64_t stamps[2] = {};
        stamps_.download(stamps, 2);
        const int last = fused_ ? job_.iterations % 2 : 0;
        check(cudaMemcpy(given_.in + given_.whole.plane(), job_.view(last).row(own.first), bytes,
                         cudaMemcpyDeviceToDevice),
              "copying the field");
        return processes_.largest(1e-6 * static_cast<double>(stamps[1] - stamps[0]));
    }

    double exchange_alone() override { return 0.0; } // exchanges are in the kernel

    std::string describe() const override {
        return common::nvshmem_library::name() + (job_.stores ? ", stores and signals" : ", puts with signals");
    }

private:
    bool reaches_neighbours() const {
        for (int pe = 0; pe < processes_.count(); ++pe)
            if (nvshmem_ptr(job_.fields[0], pe) == nullptr) return false;
        return true;
    }

    void launch(const void* kernel, dim3 blocks, dim3 threads) {
        void* arguments[] = {&job_};
        common::check_nvshmem(nvshmemx_collective_launch(kernel, blocks, threads, arguments, 0, nullptr),
                              "cannot launch; with fewer --ranks or --threads it may fit");
        check(cudaDeviceSynchronize(), "the kernel failed");
    }

    setting given_;
    bool fused_;
    common::processes processes_;
    common::nvshmem_library library_;
    common::device_buffer<std::uint64_t> stamps_, flags_;
    symmetric_array<std::uint64_t> signals_;
    symmetric_array<double> fields_[4];
    job job_{};
    dim3 block_;
};

const models::entry nvshmem("nvshmem", [](const setting& given) -> std::unique_ptr<common::model> {
    return std::make_unique<nvshmem_model>(given);
});

} // namespace

} // namespace stencil
