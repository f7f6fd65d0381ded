// SPDX-License-Identifier: BSD-3-Clause
// One-way latency between two ranks of one device that wait for one tag, for any of several, or for some of them.
//
//   nvcc -std=c++20 -O3 -arch=sm_90 -I include -I src wait_any.cu build/cuda/libdcuda_cuda.a -lfmt -lsodium -ldl
#include <algorithm>
#include <cstdio>
#include <dcuda/dcuda.hpp>
__global__ void ping(dcuda::context context, char* memory, int bytes, int tags, int how, int rounds, long long* ticks) {
    __shared__ dcuda::state state;
    __shared__ int got[256];
    dcuda::rank self(context, state);
    const auto win = self.create_window(dcuda::world, memory + self.id() * (2 << 20), 1 << 20);
    char* const source = memory + self.id() * (2 << 20) + (1 << 20);
    const int other = 1 - self.id();
    long long begin = 0;
    int tag = 0;
    const auto send = [&] {
        if (bytes == 0)
            self.notify(other, dcuda::world, tag);
        else
            self.put_notify(win, other, 0, bytes, source, tag);
        tag = (tag + 7) % tags;
    };
    for (int i = -50; i < rounds; ++i) {
        if (i == 0) begin = clock64();
        if (self.id() == 0) send();
        if (how == 0)
            self.wait_notifications(0, 1);
        else if (how == 1)
            self.wait_any(0, tags);
        else
            self.wait_some(0, tags, got);
        if (self.id() == 1) send();
    }
    if (self.id() == 0 && threadIdx.x == 0) *ticks = clock64() - begin;
    self.free_window(win);
}
int main(int argc, char** argv) {
    dcuda::runtime runtime(argc, argv);
    char* memory = nullptr;
    long long* ticks = nullptr;
    cudaMalloc(&memory, 4 << 20);
    cudaMallocManaged(&ticks, 8);
    int khz = 0;
    cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0);
    dcuda::launch_config config;
    config.ranks_per_device = 2;
    config.threads = dim3(128);
    for (int bytes : {0, 64, 1024}) {
        for (auto [tags, how] : {std::pair{1, 0}, {1, 1}, {8, 1}, {64, 1}, {256, 1}, {1, 2}, {8, 2}}) {
            double best = 1e9;
            for (int k = 0; k < 3; ++k) {
                runtime.run(ping, config, memory, bytes, tags, how, 2000, ticks);
                best = std::min(best, double(*ticks) / khz * 1e3 / 4000);
            }
            std::printf(" [%d B, %d tags, %s] %.3f", bytes, tags, how == 0 ? "wait" : how == 1 ? "any" : "some", best);
        }
        std::printf("\n");
    }
}
