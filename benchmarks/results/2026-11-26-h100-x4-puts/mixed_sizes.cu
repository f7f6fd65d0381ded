// SPDX-License-Identifier: BSD-3-Clause
// A step in which every rank sends its neighbour a small message and a large one, by size, with one tag and with two.
//
//   nvcc -std=c++20 -O3 -arch=sm_90 -I include -I src mixed_sizes.cu build/cuda/libdcuda_cuda.a -lfmt -lsodium -ldl
#include <dcuda/dcuda.hpp>

#include <algorithm>
#include <cstdio>

struct step {
    int small, large; // bytes; 0: none
    bool by_put;      // the large one by put and notify
    bool has_tags;    // a tag for each
};

__global__ void exchange(dcuda::context context, char* memory, step of, int rounds, long long* ticks) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    char* const own = memory + (std::size_t(self.id(dcuda::device)) << 18);
    const auto win = self.create_window(dcuda::world, own, 1 << 17);
    char* const source = own + (1 << 17);
    const int other = self.id() ^ 1, tag = of.has_tags ? 1 : 0;
    long long begin = 0;
    for (int i = -200; i < rounds; ++i) {
        if (i == 0) begin = clock64();
        if (of.small != 0) self.put_notify(win, other, (i & 1) * 4096, of.small, source, 0);
        if (of.large != 0 && of.by_put) {
            self.put(win, other, 65536, of.large, source);
            self.notify(other, dcuda::world, tag);
        } else if (of.large != 0) {
            self.put_notify(win, other, of.large <= 1024 ? 16384 : 65536, of.large, source, tag);
        }
        const int smalls = of.small != 0 ? 1 : 0, larges = of.large != 0 ? 1 : 0;
        if (of.has_tags) {
            self.wait_notifications(0, smalls);
            self.wait_notifications(1, larges);
        } else {
            self.wait_notifications(0, smalls + larges);
        }
    }
    if (self.id() == 0 && threadIdx.x == 0) *ticks = clock64() - begin;
    self.barrier(dcuda::world);
    self.free_window(win);
}

int main(int argc, char** argv) {
    dcuda::runtime runtime(argc, argv);
    char* memory = nullptr;
    long long* ticks = nullptr;
    int khz = 0;
    if (cudaMalloc(&memory, std::size_t(1056) << 18) != cudaSuccess ||
        cudaMalloc(&ticks, sizeof *ticks) != cudaSuccess ||
        cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0) != cudaSuccess)
        return 1;
    for (const int ranks : {2, 132, 1056}) {
        std::printf("%d ranks:", ranks);
        for (const step of :
             {step{64, 0, false, false}, step{0, 2048, false, false}, step{64, 64, false, false},
              step{64, 512, false, false}, step{64, 512, false, true}, step{64, 2048, false, false},
              step{64, 2048, false, true}, step{512, 16384, false, true}, step{512, 2048, true, true}}) {
            dcuda::launch_config config;
            config.ranks_per_device = ranks;
            config.threads = dim3(64);
            const int rounds = 2000;
            double best_us = 1e9;
            for (int k = 0; k < 3; ++k) {
                runtime.run(exchange, config, memory, of, rounds, ticks);
                long long taken = 0;
                cudaMemcpy(&taken, ticks, sizeof taken, cudaMemcpyDeviceToHost);
                best_us = std::min(best_us, static_cast<double>(taken) / khz * 1e3 / rounds);
            }
            std::printf(" %d + %d B%s%s %.2f us;", of.small, of.large, of.by_put ? " put" : "",
                        of.has_tags ? " two tags" : "", best_us);
        }
        std::printf("\n");
    }
}
