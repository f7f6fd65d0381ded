// SPDX-License-Identifier: BSD-3-Clause
// What fences and atomic operations take by themselves, on a word of the same device and of another one: the floor of
// dCUDA's atomic operations. ns of each, one after the other, by one thread of a block of 128.
//
//   nvcc -std=c++17 -O3 -arch=sm_90 -o fences fences.cu; ./fences
#include <cstdio>
#include <cstdlib>

constexpr unsigned system_fence = 1, device_fence = 2, relaxed_add = 4, acquiring_add = 8, acquire_fence = 16,
                   barriers = 32, store = 64, ordered_add = 128, load = 256;
constexpr int rounds = 2000;

template <unsigned Steps>
__global__ void repeat(unsigned* word, unsigned long long* took_ns) {
    unsigned value = 0;
    for (int warmed_up = 0; warmed_up < 2; ++warmed_up) {
        __syncthreads();
        unsigned long long begin, end;
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
        for (int i = 0; i < rounds; ++i) {
            if (Steps & barriers) __syncthreads();
            if (threadIdx.x == 0) {
                if (Steps & store) asm volatile("st.relaxed.sys.u32 [%0], %1;" ::"l"(word + 64), "r"(value) : "memory");
                if (Steps & system_fence) asm volatile("fence.acq_rel.sys;" ::: "memory");
                if (Steps & device_fence) asm volatile("fence.acq_rel.gpu;" ::: "memory");
                // Each waits for the one before: it adds what that has returned.
                if (Steps & relaxed_add)
                    asm volatile("atom.relaxed.sys.global.add.u32 %0, [%1], %2;"
                                 : "=r"(value)
                                 : "l"(word), "r"(value | 1)
                                 : "memory");
                if (Steps & acquiring_add)
                    asm volatile("atom.acquire.sys.global.add.u32 %0, [%1], %2;"
                                 : "=r"(value)
                                 : "l"(word), "r"(value | 1)
                                 : "memory");
                if (Steps & ordered_add)
                    asm volatile("atom.acq_rel.sys.global.add.u32 %0, [%1], %2;"
                                 : "=r"(value)
                                 : "l"(word), "r"(value | 1)
                                 : "memory");
                if (Steps & load)
                    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];"
                                 : "=r"(value)
                                 : "l"(word + (value & 1))
                                 : "memory");
                if (Steps & acquire_fence) asm volatile("fence.acquire.sys;" ::: "memory");
            }
            if (Steps & barriers) __syncthreads();
        }
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(end));
        if (threadIdx.x == 0) *took_ns = end - begin;
    }
}

void require(cudaError_t result) {
    if (result == cudaSuccess) return;
    std::fprintf(stderr, "fences: %s\n", cudaGetErrorString(result));
    std::exit(1);
}

template <unsigned Steps>
void measure(const char* name, unsigned* word, unsigned long long* took_ns) {
    repeat<Steps><<<1, 128>>>(word, took_ns);
    unsigned long long ns = 0;
    require(cudaMemcpy(&ns, took_ns, sizeof ns, cudaMemcpyDeviceToHost));
    std::printf("  %-44s %7.1f ns\n", name, static_cast<double>(ns) / rounds);
}

int main() {
    int devices = 0;
    require(cudaGetDeviceCount(&devices));
    for (int owner = 0; owner < devices && owner < 2; ++owner) {
        unsigned* word = nullptr;
        unsigned long long* took_ns = nullptr;
        require(cudaSetDevice(owner));
        require(cudaMalloc(&word, 4096));
        require(cudaMemset(word, 0, 4096));
        require(cudaDeviceSynchronize());
        require(cudaSetDevice(0));
        require(cudaMalloc(&took_ns, sizeof *took_ns));
        if (owner != 0) require(cudaDeviceEnablePeerAccess(owner, 0));
        std::puts(owner != 0 ? "peer" : "same device");
        measure<0>("loop", word, took_ns);
        measure<barriers>("2 barriers", word, took_ns);
        measure<load>("ld.relaxed.sys", word, took_ns);
        measure<relaxed_add>("atom.relaxed.sys", word, took_ns);
        measure<acquiring_add>("atom.acquire.sys", word, took_ns);
        measure<relaxed_add | acquire_fence>("atom.relaxed, fence.acquire.sys", word, took_ns);
        measure<system_fence>("fence.acq_rel.sys", word, took_ns);
        measure<device_fence>("fence.acq_rel.gpu", word, took_ns);
        measure<system_fence | relaxed_add>("fence.acq_rel.sys, atom.relaxed", word, took_ns);
        measure<device_fence | relaxed_add>("fence.acq_rel.gpu, atom.relaxed", word, took_ns);
        measure<ordered_add>("atom.acq_rel.sys", word, took_ns);
        measure<system_fence | relaxed_add | acquire_fence>("fence.acq_rel.sys, atom, fence.acquire", word, took_ns);
        measure<system_fence | relaxed_add | acquire_fence | barriers>("  the same with 2 barriers", word, took_ns);
        measure<store | system_fence>("store, fence.acq_rel.sys", word, took_ns);
        measure<store | device_fence>("store, fence.acq_rel.gpu", word, took_ns);
        measure<store | system_fence | relaxed_add | acquire_fence | barriers>(
            "store, fence.sys, atom, fence.acquire, 2 bars", word, took_ns);
        measure<relaxed_add | barriers>("atom.relaxed, 2 barriers", word, took_ns);
    }
}
