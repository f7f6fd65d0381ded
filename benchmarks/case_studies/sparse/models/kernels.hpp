// SPDX-License-Identifier: BSD-3-Clause
// Kernels of the programs with two models; on the CPU backend loops, as work of the stream.
#pragma once

#include <algorithm>
#include <cstddef>

#include "common/models/streams.hpp"
#include "iteration.hpp"
#include "layout.hpp"

namespace sparse {

// The factor of a product is known.
struct fixed_factor {
    double factor = 1.0;

    // Called by one thread of each block, which is told whether it is of the first. The state tells whether to go on.
    DCUDA_DEVICE control operator()(bool) const { return {factor, 0.0, outcome::none, 0}; }
};

#if DCUDA_BACKEND_CUDA

template <int Team, class Factor>
__global__ void __launch_bounds__(1024)
    multiply_rows(csr_view a, int rows, const double* x, double* y, const Factor find_factor) {
    __shared__ control told;
    if (threadIdx.x == 0) told = find_factor(blockIdx.x == 0);
    __syncthreads();
    if (told.state != outcome::none) return;
    const int thread = static_cast<int>(threadIdx.x), member = thread % Team;
    const int row = static_cast<int>(blockIdx.x * (blockDim.x / Team)) + thread / Team;
    if (row >= rows) return;
    double sum = product_of_member<Team>(a, row, x, told.factor, member);
    const unsigned members = ((1ull << Team) - 1) << (thread % 32 - member);
    DCUDA_UNROLL
    for (int half = Team / 2; half > 0; half /= 2) sum += __shfl_down_sync(members, sum, half, Team);
    if (member == 0) y[row] = sum;
}

template <class Body>
__global__ void __launch_bounds__(1024) at_indices(int count, const Body body) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < count) body(i);
}

#endif

// The device's rows times factor * x.
template <class Factor>
void multiply(const task& work, int threads, const double* x, double* y, const Factor& factor,
              const common::stream& on) {
    const int rows = work.whole.rows_at(work.here()).count();
#if DCUDA_BACKEND_CUDA
    const int rows_per_block = threads / work.team;
    const auto blocks = static_cast<unsigned>(std::max(1, (rows + rows_per_block - 1) / rows_per_block));
    const auto of = work.team == 1 ? multiply_rows<1, Factor> : multiply_rows<row_lanes, Factor>;
    of<<<blocks, static_cast<unsigned>(threads), 0, on.get()>>>(work.matrix, rows, x, y, factor);
    common::check(cudaGetLastError(), "launching a kernel");
#else
    static_cast<void>(threads);
    const csr_view matrix = work.matrix;
    const auto loop = [=] {
        const control told = factor(true);
        if (told.state != outcome::none) return;
        for (int row = 0; row < rows; ++row) y[row] = product_of_row(matrix, row, x, told.factor);
    };
    common::launch_on_host(loop, on.get());
#endif
}

// Adds received products to the device's rows, in their order.
struct addition {
    double* y;
    const double* received;
    std::size_t distance; // from one to the next
    int count;

    DCUDA_DEVICE void operator()(int row) const {
        double sum = y[row];
        for (int i = 0; i < count; ++i) sum += received[static_cast<std::size_t>(i) * distance + row];
        y[row] = sum;
    }
};

template <class Body>
void launch_at_indices(int count, const Body& body, const common::stream& on) {
    if (count == 0) return;
#if DCUDA_BACKEND_CUDA
    constexpr int threads = 128;
    at_indices<<<static_cast<unsigned>((count + threads - 1) / threads), threads, 0, on.get()>>>(count, body);
    common::check(cudaGetLastError(), "launching a kernel");
#else
    const auto loop = [=] {
        for (int i = 0; i < count; ++i) body(i);
    };
    common::launch_on_host(loop, on.get());
#endif
}

} // namespace sparse
