// SPDX-License-Identifier: BSD-3-Clause
#include <cstdio>
#include <exception>

#include "common/session.hpp"
#include "dcuda/dcuda.hpp"

namespace benchmark {
namespace {

// Each process puts its bytes into its place at all others.
__global__ void gather(dcuda::context context, std::byte* all, std::size_t bytes) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int id = self.id(), size = self.size();
    const dcuda::window window = self.create_window(dcuda::world, all, static_cast<std::size_t>(size) * bytes);
    const std::size_t place = static_cast<std::size_t>(id) * bytes;
    for (int target = 0; target < size; ++target) self.put(window, target, place, bytes, all + place);
    self.barrier(dcuda::world);
    self.free_window(window);
}

} // namespace

neighbour_memory::neighbour_memory(dcuda::runtime& runtime, std::size_t bytes) : runtime_(runtime) {
    constexpr std::size_t unit = 2 << 20; // what the driver hands out: no allocation shares it
    const dcuda::rank_info job = runtime.info();
    mine_ = allocate<unsigned char>((bytes + unit - 1) / unit * unit);
    cudaIpcMemHandle_t handle{};
    check(cudaIpcGetMemHandle(&handle, mine_.get()), "cannot share device memory");

    const auto count = static_cast<std::size_t>(job.process_count);
    const device_array<std::byte> all = allocate<std::byte>(count * sizeof handle);
    check(cudaMemcpy(all.get() + static_cast<std::size_t>(job.process_index) * sizeof handle, &handle, sizeof handle,
                     cudaMemcpyHostToDevice),
          "cannot copy a handle");
    runtime.run(gather, shape(32, 1), all.get(), sizeof handle);
    const std::size_t other = job.process_index == 0 ? 1 : 0;
    check(cudaMemcpy(&handle, all.get() + other * sizeof handle, sizeof handle, cudaMemcpyDeviceToHost),
          "cannot copy a handle");
    check(cudaIpcOpenMemHandle(&theirs_, handle, cudaIpcMemLazyEnablePeerAccess), "cannot map a neighbour's memory");
}

neighbour_memory::~neighbour_memory() {
    cudaIpcCloseMemHandle(theirs_);
    if (std::uncaught_exceptions() > 0) return; // the others end as well
    try {
        runtime_.plan(gather, shape(32, 1)); // all meet: nobody frees what another one still maps
    } catch (const dcuda::error& problem) {
        std::fprintf(stderr, "dcuda-bench: freeing shared memory: %s\n", problem.what());
    }
}

} // namespace benchmark
