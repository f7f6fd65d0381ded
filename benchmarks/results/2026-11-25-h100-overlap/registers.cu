// SPDX-License-Identifier: BSD-3-Clause
// What a kernel's registers have to do with overlap: ranks of 64 threads copy 16 MiB of a device in the L2 cache, and
// exchange with both neighbours by put_notify, or by packets of 16 B as one would write them by hand. us of a step, by
// ranks per multiprocessor. A rank may have as many registers as fit for RANKS of them.
//
//   for ranks in 8 10 12 16; do nvcc -std=c++20 -O3 -arch=sm_90 -DRANKS=$ranks -Xptxas -v -I include -I src
//   registers.cu
//     build/cuda/libdcuda_cuda.a -lsodium -ldl -o registers_$ranks; ./registers_$ranks 8; done
#include <dcuda/dcuda.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#ifndef RANKS
#define RANKS 8
#endif

constexpr int threads = 64, steps = 400, warm_up = 20, multiprocessors = 132;
constexpr std::size_t copied_bytes = 16 << 20, stride = 1024;
enum class exchange { none, library, packets };

struct task {
    char* memory;      // of each rank 6 times stride
    uint4* copies;     // of each rank twice words
    uint4* slots;      // of each rank [turn][side]
    long long* times;  // of each rank begin and end, ns
    unsigned words;    // of 16 B, that a rank copies
    std::size_t bytes; // that go to each neighbour
};

__device__ long long now_ns() {
    long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

__device__ void copy(uint4* memory, unsigned words) {
    unsigned i = threadIdx.x;
    for (; i + 3 * threads < words; i += 4 * threads) {
        uint4 in_flight[4];
        for (int k = 0; k < 4; ++k) in_flight[k] = memory[i + k * threads];
        for (int k = 0; k < 4; ++k) memory[words + i + k * threads] = in_flight[k];
    }
    for (; i < words; i += threads) memory[words + i] = memory[i];
}

// Two threads send 12 B and the number of the step to a neighbour each, and wait for its.
__device__ void exchange_packets(const task& of, int step) {
    const int id = blockIdx.x, size = gridDim.x, turn = step & 1;
    const unsigned number = static_cast<unsigned>(step + warm_up + 1);
    __syncthreads();
    if (threadIdx.x < 2) {
        const int partner = threadIdx.x == 0 ? (id == 0 ? size - 1 : id - 1) : (id + 1 == size ? 0 : id + 1);
        uint4* const there = of.slots + partner * 4 + turn * 2 + (1 - threadIdx.x);
        const uint4* const here = of.slots + id * 4 + turn * 2 + threadIdx.x;
        asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %1, %1, %1};" ::"l"(there), "r"(number) : "memory");
        unsigned a, b, c, seen;
        do
            asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(a), "=r"(b), "=r"(c), "=r"(seen)
                         : "l"(here)
                         : "memory");
        while (seen != number);
    }
    __syncthreads();
}

template <bool Copies, exchange Way>
__global__ void __launch_bounds__(threads, RANKS) alternate(dcuda::context context, const task of) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const dcuda::window win = self.create_window(dcuda::world, of.memory + self.id() * 6 * stride, 6 * stride);
    for (int step = -warm_up; step < steps; ++step) {
        if (step == 0) {
            self.barrier(dcuda::world);
            if (threadIdx.x == 0) of.times[2 * blockIdx.x] = now_ns();
        }
        if (Copies) {
            __syncthreads();
            copy(of.copies + std::size_t(blockIdx.x) * of.words * 2, of.words);
        }
        if (Way == exchange::packets) exchange_packets(of, step);
        if (Way == exchange::library) {
            const int turn = step & 1, id = self.id(), size = self.size();
            const char* const source = of.memory + (id * 6 + 4 + turn) * stride;
            self.put_notify(win, id == 0 ? size - 1 : id - 1, (2 + turn) * stride, of.bytes, source, 1);
            self.put_notify(win, id + 1 == size ? 0 : id + 1, turn * stride, of.bytes, source, 0);
            self.wait_notifications(0, 1);
            self.wait_notifications(1, 1);
        }
    }
    if (threadIdx.x == 0) of.times[2 * blockIdx.x + 1] = now_ns();
    self.free_window(win);
}

template <bool Copies, exchange Way>
double measure(dcuda::runtime& runtime, const task& of, int per_multiprocessor) {
    const int ranks = per_multiprocessor * multiprocessors;
    cudaMemset(of.slots, 0, std::size_t(ranks) * 4 * sizeof(uint4));
    runtime.run(alternate<Copies, Way>, dcuda::launch_config{.threads = threads, .ranks_per_device = ranks}, of);
    std::vector<long long> times(2 * ranks);
    cudaMemcpy(times.data(), of.times, times.size() * sizeof(long long), cudaMemcpyDeviceToHost);
    long long begin = times[0], end = times[1];
    for (std::size_t i = 0; i < times.size(); i += 2)
        begin = std::min(begin, times[i]), end = std::max(end, times[i + 1]);
    return static_cast<double>(end - begin) / 1e3 / steps;
}

int main(int argc, char** argv) {
    dcuda::runtime runtime(argc, argv);
    task of{};
    of.bytes = argc > 1 ? std::atoi(argv[1]) : 8;
    constexpr std::size_t most = 16 * multiprocessors;
    if (of.bytes == 0 || of.bytes > stride || cudaMalloc(&of.memory, most * 6 * stride) != cudaSuccess ||
        cudaMalloc(&of.copies, 2 * copied_bytes) != cudaSuccess ||
        cudaMalloc(&of.slots, most * 4 * sizeof(uint4)) != cudaSuccess ||
        cudaMalloc(&of.times, most * 2 * sizeof(long long)) != cudaSuccess)
        return 1;
    cudaMemset(of.copies, 1, 2 * copied_bytes);
    for (int ranks : {4, 8, 10, 12, 16}) {
        if (ranks > RANKS || (ranks < RANKS && RANKS > 8)) continue;
        of.words = copied_bytes / sizeof(uint4) / (ranks * multiprocessors);
        const double work = measure<true, exchange::none>(runtime, of, ranks);
        const double alone = measure<false, exchange::library>(runtime, of, ranks);
        const double both = measure<true, exchange::library>(runtime, of, ranks);
        std::printf("%4zu B, %2d ranks: copy %5.2f exchange %5.2f both %5.2f, hidden %5.2f of the exchange; ", of.bytes,
                    ranks, work, alone, both, (work + alone - both) / alone);
        std::printf("packets by hand %5.2f both %5.2f\n", measure<false, exchange::packets>(runtime, of, ranks),
                    measure<true, exchange::packets>(runtime, of, ranks));
    }
}
