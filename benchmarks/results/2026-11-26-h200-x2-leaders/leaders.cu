// SPDX-License-Identifier: BSD-3-Clause
// Reductions of a value, broadcasts and barriers of all ranks of the devices, with everybody and by leaders: what
// DCUDA_LEADER_MEMBERS was chosen by.
//
//   nvcc -std=c++20 -O3 -arch=sm_90 -I include -I src leaders.cu build/cuda/libdcuda_cuda.a -lfmt -lsodium -ldl
//   for from in 33 1000000; do DCUDA_LEADER_MEMBERS=$from dcuda-run -n 2 ./leaders; done
#include <dcuda/dcuda.hpp>

#include <cstdio>

__device__ unsigned long long now_ns() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

__global__ void __launch_bounds__(64, 16)
    measure(dcuda::context context, int rounds, double* sums, float* microseconds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const dcuda::communicator all = self.split(dcuda::world, 0, 0);
    double sum = 0;
    for (int operation = 0; operation < 3; ++operation) {
        self.barrier(dcuda::world);
        unsigned long long begin = 0;
        for (int i = -10; i < rounds; ++i) {
            if (i == 0) begin = now_ns();
            if (operation == 0) sum += self.allreduce(all, 1.0, dcuda::sum{});
            if (operation == 1) sum += self.broadcast(all, 1.0, 0);
            if (operation == 2) self.barrier(all);
        }
        if (self.id() == 0 && threadIdx.x == 0)
            microseconds[operation] = static_cast<float>(now_ns() - begin) / 1000.0f / static_cast<float>(rounds);
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

int main(int argc, char** argv) {
    dcuda::runtime job(argc, argv);
    double* sums = nullptr;
    float* microseconds = nullptr;
    if (cudaMalloc(&sums, 4096 * sizeof *sums) != cudaSuccess ||
        cudaMalloc(&microseconds, 3 * sizeof *microseconds) != cudaSuccess)
        return 1;
    constexpr int rounds = 500;
    for (int ranks : {48, 132, 264, 396, 528, 1056, 2112}) {
        dcuda::launch_config config;
        config.threads = dim3(64);
        config.ranks_per_device = ranks;
        job.run(measure, config, rounds, sums, microseconds);
        float taken[3];
        double sum = 0;
        cudaMemcpy(taken, microseconds, sizeof taken, cudaMemcpyDeviceToHost);
        cudaMemcpy(&sum, sums, sizeof sum, cudaMemcpyDeviceToHost);
        const double members = ranks * job.info().process_count;
        if (sum != (rounds + 10) * (members + 1)) std::printf("WRONG: %f\n", sum);
        if (job.info().process_index == 0)
            std::printf("%5d ranks of each of %d devices: allreduce %6.2f, broadcast %6.2f, barrier %6.2f us\n", ranks,
                        job.info().process_count, taken[0], taken[1], taken[2]);
    }
}
