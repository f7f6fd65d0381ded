// SPDX-License-Identifier: BSD-3-Clause
// Lesson 2: a first kernel with the C++ interface. Every rank gives its number to its right neighbour, wherever that
// runs: on the same device, on another one, in another process.
//
//     dcuda-run -n 2 --ranks 4 ./02_ring
#include <dcuda/dcuda.hpp>

#include <cstdio>

__global__ void ring(dcuda::context context, int* memory) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state); // waits until all ranks are there

    int* own = memory + 2 * self.id(dcuda::device); // [0]: to send, [1]: to receive
    dcuda::window window = self.create_window(dcuda::world, own, 2 * sizeof(int));

    if (threadIdx.x == 0) own[0] = self.id();
    const int right = (self.id() + 1) % self.size();
    self.put_notify(window, right, sizeof(int), sizeof(int), own, /*tag*/ 7);
    self.wait_notifications(/*tag*/ 7, /*count*/ 1);
    self.log() << "rank " << self.id() << " of " << self.size() << " received " << own[1];

    self.free_window(window);
} // the end of `self` waits until all ranks are done

int main(int argc, char** argv) try {
    dcuda::runtime runtime(argc, argv);
    const dcuda::launch_config config{.threads = 64};
    const dcuda::rank_info info = runtime.plan(ring, config);

    int* memory = nullptr;
    if (cudaMalloc(&memory, 2 * sizeof(int) * info.rank_responsible) != cudaSuccess)
        throw dcuda::error(dcuda::error_code::out_of_resources, "no device memory");
    const double milliseconds = runtime.run(ring, config, memory);
    cudaFree(memory);
    if (info.process_index == 0) std::printf("%d ranks, %.3f ms\n", info.rank_count, milliseconds);
    return 0;
} catch (const dcuda::error& problem) {
    std::fprintf(stderr, "02_ring: %s\n", problem.what());
    return 1;
}
