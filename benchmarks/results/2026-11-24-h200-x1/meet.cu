// SPDX-License-Identifier: BSD-3-Clause
// Time of a barrier of one device by number of ranks, in one line: what changes of the device side are compared by.
//
//   nvcc -std=c++20 -O3 -arch=sm_90 -I include -I src meet.cu build/cuda/libdcuda_cuda.a -lfmt -lsodium -ldl
#include <algorithm>
#include <cstdio>
#include <dcuda/dcuda.hpp>
__global__ void meet(dcuda::context context, int rounds, long long* ticks) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    long long begin = 0;
    for (int i = -50; i < rounds; ++i) {
        if (i == 0) begin = clock64();
        self.barrier(dcuda::device);
    }
    if (self.id() == 0 && threadIdx.x == 0) *ticks = clock64() - begin;
}
int main(int argc, char** argv) {
    dcuda::runtime runtime(argc, argv);
    long long* ticks = nullptr;
    if (cudaMalloc(&ticks, 8) != cudaSuccess) return 1;
    int khz = 0;
    cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0);
    for (int ranks : {1, 132, 1056}) {
        dcuda::launch_config config;
        config.ranks_per_device = ranks;
        config.threads = dim3(32);
        double best = 1e9;
        const int rounds = 1000;
        for (int k = 0; k < 3; ++k) {
            runtime.run(meet, config, rounds, ticks);
            long long t = 0;
            cudaMemcpy(&t, ticks, 8, cudaMemcpyDeviceToHost);
            best = std::min(best, double(t) / khz * 1e3 / rounds);
        }
        std::printf("%d ranks %.3f us; ", ranks, best);
    }
    std::printf("\n");
}
