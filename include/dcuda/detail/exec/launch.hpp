// SPDX-License-Identifier: BSD-3-Clause
// How the host starts a kernel, with the kernel's type erased: what runtime::run needs of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <tuple>
#include <utility>

#include "dcuda/config.hpp"

#if DCUDA_BACKEND_CUDA
#include <cuda_runtime.h>
#else
#include "dcuda/detail/exec/exec_cpu.hpp"
#endif

namespace dcuda::detail {
struct device_context;
}

namespace dcuda {
// The kernel's first parameter: made by the host, given to the constructor of rank.
struct context {
    const detail::device_context* device = nullptr;
    // 1: this run is traced or counted. PERF: here, since the compiler knows that a kernel's parameters are the same
    // for all threads, and they take no register.
    std::uint32_t profiled = 0;
};
} // namespace dcuda

namespace dcuda::detail {

#if DCUDA_BACKEND_CUDA
namespace exec {
// One block per rank, all of them co-resident.
struct launch_shape {
    dim3 threads;
    unsigned blocks;
    std::size_t shared_bytes;
    int first_rank;
};
} // namespace exec
#endif

// What large puts pass through: stages in a rank's dynamic shared memory, then a barrier for each.
// The device aligns the first stage.
inline constexpr std::uint32_t stage_alignment = 128;
struct staging_shape {
    std::uint32_t offset;      // bytes; before it is the user's
    std::uint32_t stage_count; // 0: none
    std::uint32_t stage_bytes;
};

struct delivery_task;
inline constexpr unsigned most_delivery_threads = 256;
// It takes the place of one rank, so it has no more threads than a rank.
inline unsigned delivery_threads(unsigned threads_of_rank) {
    const unsigned whole_warps = threads_of_rank / 32 * 32;
    return whole_warps < 32 ? 32 : whole_warps < most_delivery_threads ? whole_warps : most_delivery_threads;
}
#if defined(__CUDACC__)
template <class>
__global__ void delivery_kernel(delivery_task); // delivery_kernel.cuh
#endif

// The kernel that makes deliveries beside the user's if some processes are reached over a network. It has to come from
// the program, which nvcc compiles. Null where nvcc does not.
static inline const void* delivery_kernel_address() {
#if defined(__CUDACC__)
    return reinterpret_cast<const void*>(&delivery_kernel<void>);
#else
    return nullptr;
#endif
}

// A kernel with its arguments.
struct bound_kernel {
    const void* address;                                                                // for the resources it needs
    std::function<cudaError_t(const exec::launch_shape&, cudaStream_t, context)> start; // does not wait for the kernel
    const void* delivery_kernel =
        nullptr; // a kernel that runs beside it if there is a network: detail/delivery_kernel.cuh
    bool is_profilable = DCUDA_PROFILING != 0; // as it was compiled
};

template <class... Params>
const void* kernel_address(void (*kernel)(context, Params...)) {
    return reinterpret_cast<const void*>(kernel);
}

template <class... Params, class... Args>
bound_kernel bind_kernel(void (*kernel)(context, Params...), Args&&... arguments) {
    std::tuple<Params...> values(static_cast<Params>(std::forward<Args>(arguments))...);
    auto start = [kernel, values](const exec::launch_shape& shape, cudaStream_t stream, context ctx) mutable {
#if DCUDA_BACKEND_CUDA
        return std::apply(
            [&](Params&... params) {
                void* pointers[] = {static_cast<void*>(&ctx), static_cast<void*>(&params)...};
                return cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(kernel), dim3(shape.blocks),
                                                   shape.threads, pointers, shape.shared_bytes, stream);
            },
            values);
#else
        exec::launch(shape, stream, [kernel, values, ctx] {
            std::apply([&](const Params&... params) { kernel(ctx, params...); }, values);
        });
        return cudaSuccess;
#endif
    };
    return {kernel_address(kernel), std::move(start), delivery_kernel_address()};
}

} // namespace dcuda::detail
