// SPDX-License-Identifier: BSD-3-Clause
// Kernels of a few blocks that run at the same time and meet: on a GPU a cluster.
#pragma once

#include "dcuda/detail/exec/exec.hpp"

#include <algorithm>
#include <cstddef>
#include <cuda_runtime.h>

#if DCUDA_BACKEND_CUDA
#include <cooperative_groups.h>
#endif

namespace dcuda {

// The blocks of the calling kernel.
class block_cluster {
public:
#if DCUDA_BACKEND_CUDA
    DCUDA_DEVICE unsigned block() const { return blockIdx.x; }
    DCUDA_DEVICE unsigned blocks() const { return gridDim.x; }
    // All threads. What they have stored is seen by all of them.
    DCUDA_DEVICE void sync() const {
#if __CUDA_ARCH__ >= 900
        cooperative_groups::this_cluster().sync();
#else
        detail::exec::sync_block(); // of the only one
#endif
    }
#else
    unsigned block() const { return 0; }
    unsigned blocks() const { return 1; }
    void sync() const { detail::exec::sync_block(); }
#endif
    DCUDA_DEVICE bool leads() const { return block() == 0 && detail::exec::thread_index() == 0; }
};

// So many blocks of a kernel that each has at least `bytes_of_block` bytes to copy, and so many threads that each has
// 16 of them. PERF: a block copies some 40 GB/s to a peer. Of few bytes more blocks would only have more to wait for
// each other.
struct cluster_shape {
    unsigned blocks, threads;
};
template <class Kernel>
cluster_shape shape_for([[maybe_unused]] Kernel* kernel, [[maybe_unused]] std::size_t bytes,
                        [[maybe_unused]] std::size_t bytes_of_block, [[maybe_unused]] unsigned most_threads) {
#if DCUDA_BACKEND_CUDA
    // Of kernels that were compiled for a GPU without clusters sync() is for one block, also on a newer GPU.
    static const bool has_clusters = [&] {
        cudaFuncAttributes found{};
        return cudaFuncGetAttributes(&found, kernel) == cudaSuccess && found.ptxVersion >= 90;
    }();
    constexpr std::size_t most_blocks = 8; // that every GPU with clusters has
    const std::size_t blocks = has_clusters ? std::clamp<std::size_t>(bytes / bytes_of_block, 1, most_blocks) : 1;
    const std::size_t threads = std::clamp<std::size_t>((bytes / 16 + 31) / 32 * 32, 32, most_threads);
    return {static_cast<unsigned>(blocks), static_cast<unsigned>(threads)};
#else
    return {1, 32}; // one thread copies
#endif
}

template <class... Params, class... Args>
cudaError_t append(void (*kernel)(Params...), const cluster_shape& blocks, cudaStream_t stream,
                   const Args&... arguments) {
    cudaLaunchConfig_t shape{};
    shape.gridDim = dim3(blocks.blocks);
    shape.blockDim = dim3(blocks.threads);
    shape.stream = stream;
#if DCUDA_BACKEND_CUDA
    cudaLaunchAttribute cluster{};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = blocks.blocks;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    shape.attrs = &cluster;
    shape.numAttrs = blocks.blocks > 1 ? 1 : 0;
#endif
    return cudaLaunchKernelEx(&shape, kernel, static_cast<Params>(arguments)...);
}

} // namespace dcuda
