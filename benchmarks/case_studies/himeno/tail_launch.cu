// SPDX-License-Identifier: BSD-3-Clause
#include "tail_launch.hpp"

#include "common/device_buffer.hpp"

namespace himeno {

namespace {

// PERF: by itself the compiler gives relocatable kernels 80 registers, twice as many as others.
template <bool IsFused>
__global__ void __launch_bounds__(block_threads, 5)
    compute_half_and_send(slab work, half_step part, sums squares, triggers by, dcuda::role_words* words) {
    compute_and_send<IsFused>(work, part, squares, by, words);
}

// One thread.
template <bool IsFused>
__global__ void launch_step(const tail_launches* all, int step) {
    for (const half_launch& next : all->of_parity[step % 2]) {
        if (next.part.planes.empty()) continue;
        triggers by = next.by;
        if (step == 0) by.wait_count = 0; // its planes are there from the beginning
        compute_half_and_send<IsFused>
            <<<static_cast<unsigned>(next.part.blocks(all->work.whole)), block_threads, 0, cudaStreamTailLaunch>>>(
                all->work, next.part, next.squares, by, next.words);
    }
    if (step + 1 < all->steps) launch_step<IsFused><<<1, 1, 0, cudaStreamTailLaunch>>>(all, step + 1);
    if (cudaGetLastError() != cudaSuccess) __trap();
}

} // namespace

void launch_first_step(const tail_launches* all, bool is_fused, cudaStream_t stream) {
    const auto kernel = is_fused ? launch_step<true> : launch_step<false>;
    kernel<<<1, 1, 0, stream>>>(all, 0);
    common::check(cudaGetLastError(), "launching a kernel");
}

} // namespace himeno
