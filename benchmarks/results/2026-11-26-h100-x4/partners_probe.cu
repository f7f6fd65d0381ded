// SPDX-License-Identifier: BSD-3-Clause
// What a message to one of many targets takes, in a kernel of 64 registers.
//
//   nvcc -std=c++20 -O3 -arch=sm_90 -DDCUDA_BACKEND_CUDA=1 -I include partners_probe.cu build/cuda/libdcuda_cuda.a
//   -lfmt -lsodium -ldl -lcuda
#include <algorithm>
#include <cstdio>
#include <dcuda/dcuda.hpp>
#include <vector>
__device__ unsigned long long now() {
    unsigned long long t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}
__global__ void __launch_bounds__(64, 16)
    turn(dcuda::context c, int partners, int laps, int bytes, unsigned char* memory, unsigned long long* times) {
    __shared__ dcuda::state state;
    dcuda::rank self(c, state);
    unsigned char* own = memory + self.id(dcuda::device) * 32768;
    dcuda::window win = self.create_window(dcuda::world, own + 16384, 16384);
    const int id = self.id();
    for (int batch = 0; batch < 6; ++batch) {
        self.barrier(dcuda::world);
        if (id == 0) {
            unsigned long long sum = 0;
            for (int lap = 0; lap < laps; ++lap) {
                const unsigned long long s = now();
                for (int i = 1; i <= partners; ++i) {
                    if (bytes)
                        self.put_notify(win, i, 0, bytes, own, 0);
                    else
                        self.notify(i, dcuda::world, 0);
                }
                sum += now() - s;
                self.wait_notifications(0, partners);
            }
            if (threadIdx.x == 0) times[batch] = sum;
        } else if (id <= partners) {
            for (int lap = 0; lap < laps; ++lap) {
                self.wait_notifications(0, 1);
                self.notify(0, dcuda::world, 0);
            }
        }
    }
    self.free_window(win);
}
int main(int argc, char** argv) {
    dcuda::runtime rt(argc, argv);
    unsigned char* memory;
    unsigned long long* times;
    cudaMalloc(&memory, 600 * 32768);
    cudaMallocManaged(&times, 64);
    for (int bytes : {0, 64, 1024, 4096})
        for (int partners : {1, 16, 17, 64, 500}) {
            const int laps = std::max(4, 2000 / partners);
            rt.run(turn, dcuda::launch_config{.threads = 64, .ranks_per_device = partners + 1}, partners, laps, bytes,
                   memory, times);
            std::vector<double> v;
            for (int i = 1; i < 6; ++i) v.push_back(times[i] / 1e3 / laps / partners);
            std::sort(v.begin(), v.end());
            std::printf("bytes %d one of %d: %.3f us\n", bytes, partners, v[2]);
        }
}
