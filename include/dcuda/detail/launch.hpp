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
#include "dcuda/detail/exec_cpu.hpp"
#endif

namespace dcuda::detail {
struct device_context;
}

namespace dcuda {
// The kernel's first parameter: made by the host, given to the constructor of rank.
using context = const detail::device_context*;
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

// A kernel with its arguments.
struct bound_kernel {
    const void* address;                                                                // for the resources it needs
    std::function<cudaError_t(const exec::launch_shape&, cudaStream_t, context)> start; // does not wait for the kernel
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
    return {kernel_address(kernel), std::move(start)};
}

} // namespace dcuda::detail
