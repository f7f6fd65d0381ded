// SPDX-License-Identifier: BSD-3-Clause
// Where the time of an exchange with both neighbours goes: each rank's mean time in every call, by bytes and by ranks
// per multiprocessor. Ranks have 64 threads, and 64 registers a thread, so that sixteen fit. dcuda-bench overlap
// measures the same beside work, and checks what arrives.
//
//   nvcc -std=c++20 -O3 -arch=sm_90 -lineinfo -I include -I src exchange.cu build/cuda/libdcuda_cuda.a -lfmt -lsodium
//   -ldl
//   ./a.out [BYTES [RANKS_PER_MULTIPROCESSOR]]     one case alone (at most 1024 B), for
//   `ncu --section SourceCounters -k regex:exchange`; DCUDA_SMALL_PUT_BYTES=0: directly, 1152: as messages
#include <dcuda/dcuda.hpp>

#include <cstdio>
#include <cstdlib>
#include <vector>

constexpr int threads = 64, steps = 400, warm_up = 20, calls = 4, multiprocessors = 132;

__global__ void __launch_bounds__(1024) exchange(dcuda::context context, char* memory, int bytes, long long* ticks) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int id = self.id(), size = self.size(), below = (id + size - 1) % size, above = (id + 1) % size;
    const int stride = (bytes + 255) / 256 * 256;
    char* const base = memory + static_cast<std::size_t>(id) * 6 * stride;
    const dcuda::window win = self.create_window(dcuda::world, base, 6 * stride);
    long long spent[calls] = {};
    for (int step = -warm_up; step < steps; ++step) {
        if (step == 0) {
            self.barrier(dcuda::world);
            for (long long& time : spent) time = 0;
        }
        const int turn = step & 1;
        char* const source = base + (4 + turn) * stride;
        const long long begin = clock64();
        self.put_notify(win, below, (2 + turn) * stride, bytes, source, 1);
        const long long first_put = clock64();
        self.put_notify(win, above, turn * stride, bytes, source, 0);
        const long long second_put = clock64();
        self.wait_notifications(0, 1);
        const long long first_wait = clock64();
        self.wait_notifications(1, 1);
        const long long end = clock64();
        spent[0] += first_put - begin;
        spent[1] += second_put - first_put;
        spent[2] += first_wait - second_put;
        spent[3] += end - first_wait;
    }
    if (threadIdx.x == 0)
        for (int call = 0; call < calls; ++call) ticks[id * calls + call] = spent[call];
    self.free_window(win);
}

int main(int argc, char** argv) {
    dcuda::runtime runtime(argc, argv);
    const int only_bytes = argc > 1 ? std::atoi(argv[1]) : 0, only_ranks = argc > 2 ? std::atoi(argv[2]) : 0;
    constexpr int most_ranks = 16 * multiprocessors, largest = 1024;
    char* memory = nullptr;
    long long* ticks = nullptr;
    if (cudaMalloc(&memory, std::size_t(most_ranks) * 6 * largest) != cudaSuccess) return 1;
    if (cudaMalloc(&ticks, most_ranks * calls * sizeof *ticks) != cudaSuccess) return 1;
    int khz = 0;
    cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0);
    const std::vector<int> sizes = only_bytes != 0 ? std::vector<int>{only_bytes} : std::vector<int>{8, 256, largest};
    for (const int bytes : sizes)
        for (const int per_multiprocessor : {1, 4, 8, 16}) {
            if (only_ranks != 0 && per_multiprocessor != only_ranks) continue;
            const int ranks = per_multiprocessor * multiprocessors;
            dcuda::launch_config config;
            config.ranks_per_device = ranks;
            config.threads = dim3(threads);
            double best[calls + 1] = {};
            for (int run = 0; run < 3; ++run) {
                runtime.run(exchange, config, memory, bytes, ticks);
                std::vector<long long> spent(static_cast<std::size_t>(ranks) * calls);
                cudaMemcpy(spent.data(), ticks, spent.size() * sizeof spent[0], cudaMemcpyDeviceToHost);
                double mean[calls + 1] = {};
                for (std::size_t i = 0; i < spent.size(); ++i) {
                    const double us = static_cast<double>(spent[i]) / khz * 1e3 / steps / ranks;
                    mean[i % calls] += us;
                    mean[calls] += us;
                }
                if (run == 0 || mean[calls] < best[calls])
                    for (int call = 0; call <= calls; ++call) best[call] = mean[call];
            }
            std::printf("%4d B, %2d ranks per multiprocessor: %.2f us; put %.2f, put %.2f, wait %.2f, wait %.2f\n",
                        bytes, per_multiprocessor, best[calls], best[0], best[1], best[2], best[3]);
        }
}
