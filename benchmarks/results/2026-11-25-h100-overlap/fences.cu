// SPDX-License-Identifier: BSD-3-Clause
// What fences cost beside copies: each block copies its part of 16 MiB within the L2 cache, its threads meet, and one
// executes `fences` of a kind. us of a step, by blocks of 64 threads per multiprocessor.
// nvcc -std=c++20 -O3 -arch=sm_90 fences.cu && ./a.out
#include <cstdint>
#include <cstdio>
enum kind { none, release, acquire, both, release_sys };
template <int Kind>
__device__ void fence() {
    if (Kind == release) asm volatile("fence.release.gpu;" ::: "memory");
    if (Kind == acquire) asm volatile("fence.acquire.gpu;" ::: "memory");
    if (Kind == both) asm volatile("fence.acq_rel.gpu;" ::: "memory");
    if (Kind == release_sys) asm volatile("fence.release.sys;" ::: "memory");
}
template <int Kind>
__global__ void __launch_bounds__(64)
    step(uint4* to, const uint4* from, unsigned words, int fences, int steps, bool copies, unsigned* flags) {
    extern __shared__ char room[];
    uint4* const t = to + std::size_t(blockIdx.x) * words;
    const uint4* const f = from + std::size_t(blockIdx.x) * words;
    for (int s = 0; s < steps; ++s) {
        __syncthreads();
        if (copies) {
#pragma unroll 8
            for (unsigned i = threadIdx.x; i < words; i += 64) t[i] = f[i];
        }
        for (int k = 0; k < fences; ++k) {
            __syncthreads();
            if (threadIdx.x == 0) {
                fence<Kind>();
                asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(flags + blockIdx.x * 32), "r"(s));
            }
        }
    }
}
template <int Kind>
void run(const char* name, int fences) {
    int sms;
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0);
    const std::size_t bytes = 16 << 20;
    uint4 *a, *b;
    unsigned* flags;
    cudaMalloc(&a, bytes);
    cudaMalloc(&b, bytes);
    cudaMalloc(&flags, 16 * 132 * 128);
    cudaMemset(a, 1, bytes);
    const int smem = 5120, steps = 400;
    for (bool copies : {false, true}) {
        printf("%-12s %d fences %-5s", name, fences, copies ? "copy" : "");
        for (int per : {1, 2, 4, 8, 16}) {
            const int blocks = per * sms;
            const unsigned words = bytes / 16 / blocks;
            cudaEvent_t x, y;
            cudaEventCreate(&x);
            cudaEventCreate(&y);
            float best = 1e9f;
            for (int r = 0; r < 3; ++r) {
                cudaEventRecord(x);
                step<Kind><<<blocks, 64, smem>>>(b, a, words, fences, steps, copies, flags);
                cudaEventRecord(y);
                cudaEventSynchronize(y);
                float ms;
                cudaEventElapsedTime(&ms, x, y);
                if (ms < best) best = ms;
            }
            printf(" %7.2f", best * 1e3 / steps);
        }
        printf("  %s\n", cudaGetErrorString(cudaGetLastError()));
    }
    cudaFree(a);
    cudaFree(b);
    cudaFree(flags);
}
int main() {
    puts("blocks per multiprocessor:             1       2       4       8      16");
    run<none>("none", 0);
    run<none>("meet", 2);
    run<release>("release", 1);
    run<release>("release", 2);
    run<acquire>("acquire", 1);
    run<acquire>("acquire", 2);
    run<both>("acq_rel", 2);
    run<release_sys>("release.sys", 2);
}
