// SPDX-License-Identifier: BSD-3-Clause
// One-way latency between two ranks of one device, by size, in one line: what changes of the device side are compared
// by. dcuda-bench latency measures the same with intervals, rivals and peers.
//
//   nvcc -std=c++20 -O3 -arch=sm_90 -I include -I src ping_pong.cu build/cuda/libdcuda_cuda.a -lfmt -lsodium -ldl
#include <dcuda/dcuda.hpp>

#include <algorithm>
#include <cstdio>

__global__ void ping(dcuda::context context, char* memory, std::size_t bytes, bool only_notify, int rounds,
                     long long* ticks) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const auto win = self.create_window(dcuda::world, memory + self.id() * (2 << 20), 1 << 20);
    char* const source = memory + self.id() * (2 << 20) + (1 << 20);
    const int other = 1 - self.id();
    long long begin = 0;
    const auto send = [&] {
        if (only_notify)
            self.notify(other, dcuda::world, 0);
        else
            self.put_notify(win, other, 0, bytes, source, 0);
    };
    for (int i = -50; i < rounds; ++i) {
        if (i == 0) begin = clock64();
        if (self.id() == 0) send();
        self.wait_notifications(0, 1);
        if (self.id() == 1) send();
    }
    if (self.id() == 0 && threadIdx.x == 0) *ticks = clock64() - begin;
    self.free_window(win);
}

int main(int argc, char** argv) {
    dcuda::runtime runtime(argc, argv);
    char* memory = nullptr;
    long long* ticks = nullptr;
    if (cudaMalloc(&memory, 4 << 20) != cudaSuccess || cudaMalloc(&ticks, sizeof *ticks) != cudaSuccess) return 1;
    int khz = 0;
    cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0);
    dcuda::launch_config config;
    config.ranks_per_device = 2;
    config.threads = dim3(128);
    const int rounds = 2000;
    for (int bytes : {-1, 4, 64, 384, 1024, 2048, 4096, 65536}) {
        double best_us = 1e9;
        for (int k = 0; k < 3; ++k) {
            runtime.run(ping, config, memory, static_cast<std::size_t>(std::max(bytes, 0)), bytes < 0, rounds, ticks);
            long long taken = 0;
            cudaMemcpy(&taken, ticks, sizeof taken, cudaMemcpyDeviceToHost);
            best_us = std::min(best_us, static_cast<double>(taken) / khz * 1e3 / rounds / 2);
        }
        if (bytes < 0)
            std::printf("notify %.3f us;", best_us);
        else
            std::printf(" %d B %.3f", bytes, best_us);
    }
    std::printf("\n");
}
