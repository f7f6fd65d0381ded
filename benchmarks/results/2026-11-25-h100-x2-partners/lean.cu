// SPDX-License-Identifier: BSD-3-Clause
// An exchange with both neighbours, by bytes and by ranks per multiprocessor, in a kernel that keeps nothing but what
// the exchange needs. (exchange.cu of 2026-11-24-h200-x1 measures each call, and holds its sums in local memory.) Ranks
// have 64 threads, and 64 registers a thread, so that sixteen fit.
//
//   nvcc -std=c++20 -O3 -arch=sm_90 -I include -I src lean.cu build/cuda/libdcuda_cuda.a -lfmt -lsodium -ldl
#include <dcuda/dcuda.hpp>

#include <algorithm>
#include <cstdio>
#include <vector>

constexpr int threads = 64, steps = 400, warm_up = 20, multiprocessors = 132, largest = 1024;

__global__ void __launch_bounds__(1024) exchange(dcuda::context context, char* memory, int bytes, long long* ticks) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int id = self.id(), size = self.size(), below = (id + size - 1) % size, above = (id + 1) % size;
    const int stride = (bytes + 255) / 256 * 256;
    char* const base = memory + static_cast<std::size_t>(id) * 6 * stride;
    const dcuda::window win = self.create_window(dcuda::world, base, 6 * stride);
    long long begin = 0;
    for (int step = -warm_up; step < steps; ++step) {
        if (step == 0) {
            self.barrier(dcuda::world);
            begin = clock64();
        }
        const int turn = (step & 1) * stride;
        self.put_notify(win, below, 2 * stride + turn, bytes, base + 4 * stride, 1);
        self.put_notify(win, above, turn, bytes, base + 4 * stride, 0);
        self.wait_notifications(0, 1);
        self.wait_notifications(1, 1);
    }
    if (threadIdx.x == 0) ticks[id] = clock64() - begin;
    self.free_window(win);
}

int main(int argc, char** argv) {
    dcuda::runtime runtime(argc, argv);
    constexpr int most_ranks = 16 * multiprocessors;
    char* memory = nullptr;
    long long* ticks = nullptr;
    if (cudaMalloc(&memory, std::size_t(most_ranks) * 6 * largest) != cudaSuccess) return 1;
    if (cudaMalloc(&ticks, most_ranks * sizeof *ticks) != cudaSuccess) return 1;
    int khz = 0;
    cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0);
    for (const int bytes : {8, 64, 128, 256, 372, 384, 512, largest})
        for (const int per_multiprocessor : {1, 4, 8, 16}) {
            const int ranks = per_multiprocessor * multiprocessors;
            dcuda::launch_config config;
            config.ranks_per_device = ranks;
            config.threads = dim3(threads);
            double best_us = 1e9;
            for (int run = 0; run < 3; ++run) {
                runtime.run(exchange, config, memory, bytes, ticks);
                std::vector<long long> spent(static_cast<std::size_t>(ranks));
                cudaMemcpy(spent.data(), ticks, spent.size() * sizeof spent[0], cudaMemcpyDeviceToHost);
                double mean_us = 0;
                for (const long long each : spent) mean_us += static_cast<double>(each) / khz * 1e3 / steps / ranks;
                best_us = std::min(best_us, mean_us);
            }
            std::printf("%4d B, %2d ranks per multiprocessor: %.2f us\n", bytes, per_multiprocessor, best_us);
        }
}
