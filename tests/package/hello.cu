// SPDX-License-Identifier: BSD-3-Clause
// A program of a user of dCUDA, whose project lies elsewhere: each rank notifies the next one.
#include <cstdio>
#include <exception>

#include <dcuda/dcuda.hpp>

__global__ void ring(dcuda::context context) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    self.notify((self.id() + 1) % self.size(), dcuda::world, 0);
    self.wait_notifications(0, 1);
}

int main(int argc, char** argv) {
    try {
        dcuda::runtime runtime(argc, argv);
        runtime.run(ring, {.threads = dim3(32)});
        std::printf("hello from %d ranks\n", runtime.info().rank_count);
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "%s\n", failure.what());
        return 1;
    }
}
