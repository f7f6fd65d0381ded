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
struct kernel_context;
}

namespace dcuda {
// The kernel's first parameter: made by the host, given to the constructor of rank.
struct context {
    const detail::kernel_context* device = nullptr;
    // 1: this run is traced or counted. PERF: here, since the compiler knows that a kernel's parameters are the same
    // for all threads, and they take no register.
    std::uint32_t profiled = 0;
};
} // namespace dcuda

namespace dcuda::detail {

#if DCUDA_BACKEND_CUDA
namespace exec {
// All blocks are co-resident.
struct launch_shape {
    dim3 threads;
    unsigned blocks;
    std::size_t shared_bytes;
    int first_rank, ranks_per_block;
};
} // namespace exec
#endif

// Of a block; the first is that of __syncthreads.
inline constexpr unsigned hardware_barriers = 16;

// What large puts pass through: stages of each rank in its block's dynamic shared memory, then a barrier for each.
// The device aligns the first stage.
inline constexpr std::uint32_t stage_alignment = 128, stage_barrier_bytes = 8;
struct staging_shape {
    std::uint32_t offset;      // bytes; before it is the user's
    std::uint32_t stage_count; // of a rank; 0: none
    std::uint32_t stage_bytes;
    // What a rank takes: the next one's stages are aligned, too.
    DCUDA_HOST_DEVICE constexpr std::uint32_t bytes_of_rank() const {
        const std::uint32_t bytes = stage_count * (stage_bytes + stage_barrier_bytes);
        return (bytes + stage_alignment - 1) / stage_alignment * stage_alignment;
    }
};

// What a kernel is started with: its address, and what the backend needs to call it.
struct kernel_entry {
    const void* address = nullptr; // for the resources it needs
    int parameters = -1;           // behind the context; -1: not known
#if DCUDA_BACKEND_CPU
    // A call of the kernel with copies of the arguments.
    std::function<void(context)> (*bind)(const void* address, void* const* arguments) = nullptr;
#endif
    bool is_profilable = false; // as it was compiled
};

#if DCUDA_BACKEND_CPU
template <class... Params, std::size_t... Index>
std::function<void(context)> bind_arguments(void (*kernel)(context, Params...), void* const* arguments,
                                            std::index_sequence<Index...>) {
    (void)arguments; // of a kernel without parameters
    return [kernel, values = std::tuple<Params...>(*static_cast<const Params*>(arguments[Index])...)](context ctx) {
        std::apply([&](const Params&... params) { kernel(ctx, params...); }, values);
    };
}
template <class... Params>
std::function<void(context)> bind_kernel(const void* address, void* const* arguments) {
    return bind_arguments(reinterpret_cast<void (*)(context, Params...)>(const_cast<void*>(address)), arguments,
                          std::index_sequence_for<Params...>());
}
#endif

template <class... Params>
kernel_entry entry_of(void (*kernel)(context, Params...), bool is_profilable) {
    kernel_entry entry;
    entry.address = reinterpret_cast<const void*>(kernel);
    entry.parameters = static_cast<int>(sizeof...(Params));
#if DCUDA_BACKEND_CPU
    entry.bind = &bind_kernel<Params...>;
#endif
    entry.is_profilable = is_profilable;
    return entry;
}

} // namespace dcuda::detail
