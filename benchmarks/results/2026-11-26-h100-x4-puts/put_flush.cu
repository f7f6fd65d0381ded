// SPDX-License-Identifier: BSD-3-Clause
// Two ranks of one device: one-way latency of a notified put by size; and of so many puts with a flush. What changes of
// the device side are compared by: dcuda-bench latency and flush measure the same with intervals, rivals and peers.
//
//   nvcc -std=c++20 -O3 -arch=sm_90 -I include -I src put_flush.cu build/cuda/libdcuda_cuda.a -lfmt -lsodium -ldl
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

__global__ void flushes(dcuda::context context, char* memory, std::size_t bytes, int rounds, int puts,
                        long long* ticks) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const auto win = self.create_window(dcuda::world, memory + self.id() * (2 << 20), 1 << 20);
    char* const source = memory + self.id() * (2 << 20) + (1 << 20);
    long long begin = 0;
    if (self.id() == 0) {
        for (int i = -50; i < rounds; ++i) {
            if (i == 0) begin = clock64();
            for (int k = 0; k < puts; ++k) self.put(win, 1, 0, bytes, source);
            self.flush(win);
        }
        if (threadIdx.x == 0) *ticks = clock64() - begin;
    }
    self.barrier(dcuda::world);
    self.free_window(win);
}

int main(int argc, char** argv) {
    dcuda::runtime runtime(argc, argv);
    char* memory = nullptr;
    long long* ticks = nullptr;
    if (cudaMalloc(&memory, 4 << 20) != cudaSuccess || cudaMalloc(&ticks, sizeof *ticks) != cudaSuccess) return 1;
    int khz = 0;
    cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0);
    for (int threads : {64, 128, 256}) {
        dcuda::launch_config config;
        config.ranks_per_device = 2;
        config.threads = dim3(threads);
        const int rounds = 2000;
        std::printf("%d threads: ", threads);
        const auto best_of = [&](auto run, double per) {
            double best_us = 1e9;
            for (int k = 0; k < 3; ++k) {
                run();
                long long taken = 0;
                cudaMemcpy(&taken, ticks, sizeof taken, cudaMemcpyDeviceToHost);
                best_us = std::min(best_us, static_cast<double>(taken) / khz * 1e3 / rounds / per);
            }
            return best_us;
        };
        for (int bytes : {-1, 64, 1024, 2048, 4096, 16384, 65536, 262144})
            std::printf(" %d B %.3f", bytes,
                        best_of(
                            [&] {
                                runtime.run(ping, config, memory, static_cast<std::size_t>(std::max(bytes, 0)),
                                            bytes < 0, rounds, ticks);
                            },
                            2));
        std::printf("; flush alone %.3f",
                    best_of([&] { runtime.run(flushes, config, memory, 64ul, rounds, 0, ticks); }, 1));
        for (int bytes : {4, 1024, 4096, 65536})
            for (int puts : {1, 9})
                std::printf(" %dx%d B %.3f", puts, bytes,
                            best_of(
                                [&] {
                                    runtime.run(flushes, config, memory, static_cast<std::size_t>(bytes), rounds, puts,
                                                ticks);
                                },
                                1));
        std::printf("\n");
    }
}
