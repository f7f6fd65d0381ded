// SPDX-License-Identifier: BSD-3-Clause
// A step in which every rank sends its neighbour two messages with a tag each, and waits for them in the order in which
// they are sent, or in the other one.
//
//   nvcc -std=c++20 -O3 -arch=sm_90 -I include -I src reversed_tags.cu build/cuda/libdcuda_cuda.a -lfmt -lsodium -ldl
#include <algorithm>
#include <cstdio>
#include <dcuda/dcuda.hpp>
__global__ void exchange(dcuda::context context, char* memory, int bytes, bool is_reversed, int rounds,
                         long long* ticks) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    char* const own = memory + (std::size_t(self.id(dcuda::device)) << 17);
    const auto win = self.create_window(dcuda::world, own, 1 << 16);
    char* const source = own + (1 << 16);
    const int other = self.id() ^ 1;
    long long begin = 0;
    for (int i = -200; i < rounds; ++i) {
        if (i == 0) begin = clock64();
        self.put_notify(win, other, 0, bytes, source, is_reversed ? 1 : 0);
        self.put_notify(win, other, 8192, bytes, source, is_reversed ? 0 : 1);
        self.wait_notifications(0, 1);
        self.wait_notifications(1, 1);
    }
    if (self.id() == 0 && threadIdx.x == 0) *ticks = clock64() - begin;
    self.barrier(dcuda::world);
    self.free_window(win);
}
int main(int argc, char** argv) {
    dcuda::runtime runtime(argc, argv);
    char* memory = nullptr;
    long long* ticks = nullptr;
    cudaMalloc(&memory, std::size_t(1056) << 17);
    cudaMallocManaged(&ticks, sizeof *ticks);
    int khz = 0;
    cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0);
    for (int ranks : {2, 132, 1056})
        for (int bytes : {8, 256, 1024, 4096})
            for (bool r : {false, true}) {
                dcuda::launch_config config;
                config.ranks_per_device = ranks;
                config.threads = dim3(64);
                double best = 1e9;
                for (int k = 0; k < 3; ++k) {
                    runtime.run(exchange, config, memory, bytes, r, 2000, ticks);
                    best = std::min(best, double(*ticks) / khz * 1e3 / 2000);
                }
                std::printf(" [%d ranks %d B%s] %.2f", ranks, bytes, r ? " reversed" : "", best);
            }
    std::printf("\n");
}
