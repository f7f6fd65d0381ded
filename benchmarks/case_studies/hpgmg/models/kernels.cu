// SPDX-License-Identifier: BSD-3-Clause
#include "models/kernels.hpp"

namespace hpgmg {

#if DCUDA_BACKEND_CUDA

namespace {

__global__ void __launch_bounds__(most_threads)
    solve_on_bottom(bottom_arrays arrays, findings_view found, int failure) {
    __shared__ double lanes[sum_lanes];
    const block_of_threads threads(lanes);
    const bottom_crew crew(threads);
    if (!bottom_solver(crew, arrays).solve() && threadIdx.x == 0) atomicMin(found.failure, failure);
}

// The largest of numbers without a sign, as the bits that they are.
__global__ void __launch_bounds__(kernel_threads)
    find_largest(region cells, device_level on, findings_view found, int cycle, int failure) {
    const int rows = cells.extent(1), lines = cells.extent(0) * rows;
    double most = 0.0;
    for (int line = static_cast<int>(blockIdx.x); line < lines; line += static_cast<int>(gridDim.x))
        for (int k = cells.first[2] + static_cast<int>(threadIdx.x); k < cells.last[2];
             k += static_cast<int>(blockDim.x)) {
            const double value =
                residual_at(on, on.in.place(cells.first[0] + line / rows, cells.first[1] + line % rows, k));
            most = larger(most, value < 0.0 ? -value : value);
        }
    for (int distance = 16; distance > 0; distance /= 2)
        most = larger(most, __shfl_down_sync(0xffffffffU, most, distance));
    if (threadIdx.x % 32 != 0) return;
    if (most - most != 0.0) atomicMin(found.failure, failure);
    atomicMax(reinterpret_cast<unsigned long long*>(found.residuals + cycle),
              static_cast<unsigned long long>(__double_as_longlong(most)) & ~(1ULL << 63));
}

} // namespace

void launch_bottom(const bottom_arrays& arrays, const findings_view& found, int failure, cudaStream_t stream) {
    solve_on_bottom<<<1, 128, 0, stream>>>(arrays, found, failure);
    common::check(cudaGetLastError(), "launching a kernel");
}

void launch_largest(const region& cells, const device_level& on, const findings_view& found, int cycle, int failure,
                    cudaStream_t stream) {
    common::check(cudaMemsetAsync(found.residuals + cycle, 0, sizeof(double), stream), "clearing a residual");
    if (cells.empty()) return;
    const int lines = cells.extent(0) * cells.extent(1);
    find_largest<<<static_cast<unsigned>(std::min(lines, 1024)), 64, 0, stream>>>(cells, on, found, cycle, failure);
    common::check(cudaGetLastError(), "launching a kernel");
}

#else

void launch_bottom(const bottom_arrays& arrays, const findings_view& found, int failure, cudaStream_t stream) {
    const auto work = [=] {
        const one_worker alone;
        if (!bottom_solver(alone, arrays).solve()) *found.failure = std::min(*found.failure, failure);
    };
    common::launch_on_host(work, stream);
}

void launch_largest(const region& cells, const device_level& on, const findings_view& found, int cycle, int failure,
                    cudaStream_t stream) {
    const auto loop = [=] {
        double most = 0.0;
        one_worker().for_each_cell(cells, [&](int i, int j, int k) {
            const double value = residual_at(on, on.in.place(i, j, k));
            most = larger(most, value < 0.0 ? -value : value);
        });
        found.residuals[cycle] = most;
        if (most - most != 0.0) *found.failure = std::min(*found.failure, failure);
    };
    common::launch_on_host(loop, stream);
}

#endif

} // namespace hpgmg
