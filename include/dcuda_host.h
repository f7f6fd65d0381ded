// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The published dCUDA interface, host side (Gysi, Baer, Hoefler: dCUDA, SC16, and the optimised-dCUDA thesis): thin
/// forwarders to dcuda/host.hpp. Errors print a message and end the process with a non-zero status.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "dcuda/host.hpp"

#ifndef DCUDA_NO_USING_STD // the published listings write `vector` without std::
using std::vector;
#endif

/// A kernel of the published interface: its one argument is the context.
typedef void (*dcuda_kernel_t)(dcuda::context);
/// Where this process's ranks are in the system.
using dcuda_rank_info = dcuda::rank_info;

/// What dcuda_host_init makes and dcuda_host_finish ends.
struct dcuda_host_context {
    dcuda::runtime runtime;      ///< the connections of the job
    dcuda_kernel_t kernel;       ///< what dcuda_host_run runs
    dcuda::launch_config config; ///< how many threads a rank has
};
/// How the host's functions name it.
typedef struct dcuda_host_context* dcuda_host_context_handle;

namespace dcuda::detail {

// Runs an operation; its error is the end of the program.
template <class Operation>
auto or_exit(const Operation& operation) {
    try {
        return operation();
    } catch (const std::exception& problem) {
        std::fprintf(stderr, "dcuda: %s\n", problem.what());
        std::fflush(nullptr);
        std::_Exit(EXIT_FAILURE);
    }
}

inline void require(cudaError_t result, const char* subject) {
    if (result != cudaSuccess)
        throw error(error_code::cuda_failure, std::string(subject) + ": " + cudaGetErrorString(result));
}

// Device memory with a copy of the user's data, for one run.
class device_copy {
public:
    device_copy(void* host_data, std::size_t bytes) : host_data_(host_data), bytes_(bytes) {
        if (bytes == 0) return;
        require(cudaMalloc(&memory_, bytes), "memory for the user's data");
        require(cudaMemcpy(memory_, host_data, bytes, cudaMemcpyHostToDevice), "copying the user's data in");
    }
    ~device_copy() { cudaFree(memory_); }
    device_copy(const device_copy&) = delete;
    device_copy& operator=(const device_copy&) = delete;

    void* get() const { return memory_; }
    void copy_back() const {
        if (bytes_ != 0)
            require(cudaMemcpy(host_data_, memory_, bytes_, cudaMemcpyDeviceToHost), "copying the user's data out");
    }

private:
    void* host_data_;
    std::size_t bytes_;
    void* memory_ = nullptr;
};

} // namespace dcuda::detail

/// Connects all processes and fixes the number of ranks: as many blocks of `threads_per_rank` threads as are
/// co-resident for this kernel, or fewer if asked (--dcuda-ranks=N, DCUDA_RANKS_PER_DEVICE). Collective over the
/// processes. Arguments that do not begin with --dcuda- are the program's.
inline void dcuda_host_init(int argc, char* argv[], dcuda_host_context_handle* ctx, dcuda_kernel_t kernel,
                            int threads_per_rank) {
    *ctx = dcuda::detail::or_exit([&] {
        if (threads_per_rank < 1)
            throw dcuda::error(dcuda::error_code::invalid_argument,
                               "dcuda_host_init: threads_per_rank must be at least 1");
        std::vector<char*> arguments(argv, argv + argc); // the program's own array stays as it is
        arguments.push_back(nullptr);
        dcuda::launch_config config;
        config.threads = dim3(static_cast<unsigned>(threads_per_rank));
        auto* host = new dcuda_host_context{dcuda::runtime(argc, arguments.data()), kernel, config};
        host->runtime.plan(kernel, config);
        return host;
    });
}

/// Where this process's ranks are in the system. Each process by itself.
inline void dcuda_host_get_rank_info(dcuda_host_context_handle ctx, dcuda_rank_info* rank_info) {
    *rank_info = ctx->runtime.info();
}

/// Copies gpu_size bytes at gpu_data to the device, runs the kernel, copies them back. Returns the kernel's time in
/// milliseconds. Collective over the processes; may be called again.
inline double dcuda_host_run(dcuda_host_context_handle ctx, void* gpu_data = nullptr, std::size_t gpu_size = 0) {
    return dcuda::detail::or_exit([&] {
        const dcuda::detail::device_copy data(gpu_data, gpu_size);
        ctx->runtime.set_user_data(data.get());
        const double elapsed_ms = ctx->runtime.run(ctx->kernel, ctx->config);
        data.copy_back();
        return elapsed_ms;
    });
}

/// Milliseconds, one entry per stop of the CPU timer in the last run. Each process by itself.
inline std::vector<double> dcuda_host_get_timings(dcuda_host_context_handle ctx) { return ctx->runtime.timings(); }

/// Leaves the job and frees `ctx`. Every process calls it last.
inline void dcuda_host_finish(dcuda_host_context_handle ctx) { delete ctx; }
