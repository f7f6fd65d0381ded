// SPDX-License-Identifier: BSD-3-Clause
// The CPU backend by itself: blocks, threads, warps, memory, streams, and what it reports when a kernel is wrong.
#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <dcuda/detail/exec/exec_cpu.hpp>
#include <dcuda/error.hpp>

#if defined(__SANITIZE_THREAD__)
#define TEST_TSAN 1
#elif defined(__SANITIZE_ADDRESS__)
#define TEST_ASAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TEST_TSAN 1
#elif __has_feature(address_sanitizer)
#define TEST_ASAN 1
#endif
#endif
#ifndef TEST_TSAN
#define TEST_TSAN 0
#endif
#ifndef TEST_ASAN
#define TEST_ASAN 0
#endif

namespace exec = dcuda::detail::exec;

namespace {

constexpr unsigned full = 0xffffffffu;

// Runs the body in blocks x threads and waits; "" or why the kernel failed.
template <class Body>
std::string run(unsigned blocks, dim3 threads, Body body, std::size_t shared_bytes = 0) {
    exec::launch({threads, blocks, shared_bytes, 0}, nullptr, body);
    const cudaError_t e = cudaDeviceSynchronize();
    const std::string failure = exec::kernel_failure();
    EXPECT_EQ(e, failure.empty() ? cudaSuccess : cudaErrorLaunchFailure);
    return failure;
}

template <class T>
std::vector<T> zeros(std::size_t n) {
    return std::vector<T>(n);
}

__global__ void reduce_block(const int* in, int* out, int n) {
    __shared__ int partial[32];
    int sum = 0;
    for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) sum += in[i];
    for (unsigned delta = 16; delta > 0; delta /= 2) sum += __shfl_down_sync(full, sum, delta);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        int total = 0;
        for (unsigned w = 0; w < (blockDim.x + 31) / 32; ++w) total += partial[w];
        out[blockIdx.x] = total + static_cast<int>(blockIdx.x);
    }
}

void expect_reduction(unsigned blocks, unsigned threads) {
    std::vector<int> in(5000, 3), out(blocks);
    ASSERT_EQ(run(blocks, threads, [&] { reduce_block(in.data(), out.data(), 5000); }), "");
    for (unsigned b = 0; b < blocks; ++b) EXPECT_EQ(out[b], 15000 + static_cast<int>(b));
}

} // namespace

TEST(Blocks, ReduceByShuffle64x96) { expect_reduction(TEST_TSAN ? 8 : 64, 96); } // 64 take 21 s there

TEST(Blocks, ReduceByShuffle64x128) {
    if (TEST_TSAN) GTEST_SKIP() << "8192 threads are more than ThreadSanitizer handles";
    expect_reduction(64, 128);
}

TEST(Blocks, ReduceByShuffle8x1024) {
    if (TEST_TSAN) GTEST_SKIP() << "8192 threads are more than ThreadSanitizer handles";
    expect_reduction(8, 1024);
}

TEST(Blocks, OneThread) {
    std::atomic<unsigned> sum{0};
    ASSERT_EQ(run(16, 1,
                  [&] {
                      __syncthreads();
                      __syncwarp();
                      exec::run_then_sync(exec::whole_block{}, [&] { sum += 1 + blockIdx.x; });
                      sum += __ballot_sync(full, 1);
                  }),
              "");
    EXPECT_EQ(sum, 16 + 120 + 16);
}

TEST(Blocks, IndicesInThreeDimensions) {
    auto seen = zeros<int>(2 * 5 * 3 * 4);
    ASSERT_EQ(run(2, dim3(5, 3, 4),
                  [&] {
                      EXPECT_EQ(gridDim.x, 2u);
                      const unsigned linear = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
                      seen[blockIdx.x * exec::block_threads() + linear] = exec::thread_index() == 0 ? 2 : 1;
                  }),
              "");
    for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], i % 60 == 0 ? 2 : 1) << i;
}

TEST(Blocks, SharedMemoryBelongsToTheBlock) {
    std::atomic<int> wrong{0};
    ASSERT_EQ(run(
                  32, 32,
                  [&] {
                      __shared__ unsigned owner[32];
                      auto* dynamic = static_cast<unsigned*>(exec::dynamic_shared());
                      owner[threadIdx.x] = dynamic[threadIdx.x] = blockIdx.x;
                      for (int round = 0; round < 20; ++round) {
                          __syncthreads();
                          const unsigned other = (threadIdx.x + 7) % 32;
                          if (owner[other] != blockIdx.x || dynamic[other] != blockIdx.x) ++wrong;
                      }
                      if (reinterpret_cast<std::uintptr_t>(dynamic) % 128 != 0) ++wrong;
                  },
                  32 * sizeof(unsigned)),
              "");
    EXPECT_EQ(wrong, 0);
}

TEST(Barrier, ExitedThreadsCountAsArrived) {
    std::atomic<int> passed{0}, counted{0}, both{0};
    ASSERT_EQ(run(2, 100,
                  [&] {
                      if (threadIdx.x % 3 == 1) return;
                      if (threadIdx.x % 3 == 2 && threadIdx.x > 50) exec::exit_thread();
                      __syncthreads();
                      ++passed;
                      counted += __syncthreads_count(threadIdx.x < 10);
                      both +=
                          __syncthreads_and(1) + 10 * __syncthreads_or(threadIdx.x == 0) + 100 * __syncthreads_or(0);
                  }),
              "");
    const int left = 34 + 17; // multiples of 3; 2 + 3k up to 50
    EXPECT_EQ(passed, 2 * left);
    EXPECT_EQ(counted, 2 * left * 7); // 0 2 3 5 6 8 9
    EXPECT_EQ(both, 2 * left * 11);
}

TEST(Barrier, LastThreadToLeaveReleasesTheOthers) {
    std::atomic<int> passed{0};
    ASSERT_EQ(run(1, 64,
                  [&] {
                      if (threadIdx.x == 63) return; // the others have arrived by then
                      __syncthreads();
                      ++passed;
                      if (threadIdx.x == 62) exec::exit_thread();
                      __syncwarp(full);
                      ++passed;
                  }),
              "");
    EXPECT_EQ(passed, 63 + 62);
}

TEST(Warp, Shuffles) {
    std::atomic<int> wrong{0};
    ASSERT_EQ(run(1, 64,
                  [&] {
                      const int lane = static_cast<int>(threadIdx.x % 32);
                      const auto check = [&](double got, double expected) { wrong += got != expected; };
                      check(__shfl_sync(full, lane * 1.5, 7), 7 * 1.5);
                      check(__shfl_sync(full, lane, 3, 8), lane / 8 * 8 + 3);
                      check(__shfl_up_sync(full, lane, 2u), lane < 2 ? lane : lane - 2);
                      check(__shfl_down_sync(full, lane, 5u, 16), lane % 16 + 5 > 15 ? lane : lane + 5);
                      check(__shfl_xor_sync(full, static_cast<float>(lane), 9), lane ^ 9);
                      check(__shfl_xor_sync(full, lane, 16, 16), lane < 16 ? lane : lane - 16);
                  }),
              "");
    EXPECT_EQ(wrong, 0);
}

TEST(Warp, VotesMatchesReductions) {
    std::atomic<int> wrong{0};
    ASSERT_EQ(run(1, 48, // the second warp is half empty
                  [&] {
                      const unsigned lane = threadIdx.x % 32;
                      const unsigned present = threadIdx.x < 32 ? full : 0xffffu;
                      int all = 0;
                      wrong += __ballot_sync(full, lane % 2) != (0xaaaaaaaau & present);
                      wrong += __any_sync(full, lane == 3) != 1 || __any_sync(full, 0) != 0;
                      wrong += __all_sync(full, lane < 32) != 1 || __all_sync(full, lane != 3) != 0;
                      wrong += __match_any_sync(full, lane % 4) != ((0x11111111u << lane % 4) & present);
                      wrong += __match_all_sync(full, 5, &all) != present || all != 1;
                      wrong += __match_all_sync(full, lane, &all) != 0 || all != 0;
                      const int n = threadIdx.x < 32 ? 32 : 16;
                      wrong += __reduce_add_sync(full, static_cast<int>(lane)) != n * (n - 1) / 2;
                      wrong += __reduce_min_sync(full, -static_cast<int>(lane)) != 1 - n;
                      wrong += __reduce_max_sync(full, lane) != static_cast<unsigned>(n - 1);
                      wrong += __reduce_or_sync(full, 1u << lane) != present;
                      wrong += __reduce_xor_sync(full, 1u) != 0 || __reduce_and_sync(full, lane | 64) != 64;
                      wrong += __activemask() != 1u << lane;
                  }),
              "");
    EXPECT_EQ(wrong, 0);
}

TEST(Warp, DivergentMasks) {
    std::atomic<int> wrong{0};
    ASSERT_EQ(run(4, 64,
                  [&] {
                      const unsigned lane = threadIdx.x % 32;
                      for (int round = 0; round < 50; ++round) {
                          if (lane < 10) {
                              wrong += __reduce_add_sync(0x3ffu, 1) != 10;
                              if (lane % 2) wrong += __shfl_sync(0x2aau, lane, 9) != 9;
                          } else {
                              wrong += __ballot_sync(~0x3ffu, lane == 31) != 1u << 31;
                          }
                          __syncwarp();
                          wrong += __shfl_sync(full, round, round % 32) != round;
                      }
                  }),
              "");
    EXPECT_EQ(wrong, 0);
}

TEST(Atomics, AsInCuda) {
    struct {
        int i = 0;
        unsigned u = 0, wrap = 0, down = 0, bits = 0;
        unsigned long long l = 0;
        float f = 0;
        double d = 0;
        int low = 100, high = -100;
    } v;
    ASSERT_EQ(run(8, 64,
                  [&] {
                      const int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
                      atomicAdd(&v.i, 1);
                      atomicAdd_block(&v.u, 2u);
                      atomicAdd_system(&v.l, 3ull);
                      atomicAdd(&v.f, 1);
                      atomicAdd(&v.d, 0.5);
                      atomicInc(&v.wrap, 9);
                      atomicDec(&v.down, 4);
                      atomicOr(&v.bits, 1u << x % 31);
                      atomicMin(&v.low, x);
                      atomicMax(&v.high, x);
                  }),
              "");
    EXPECT_EQ(v.i, 512);
    EXPECT_EQ(v.u, 1024u);
    EXPECT_EQ(v.l, 1536u);
    EXPECT_EQ(v.f, 512.f);
    EXPECT_EQ(v.d, 256.0);
    EXPECT_EQ(v.wrap, 512u % 10);
    EXPECT_EQ(v.down, (5 - 512u % 5) % 5);
    EXPECT_EQ(v.bits, 0x7fffffffu);
    EXPECT_EQ(v.low, 0);
    EXPECT_EQ(v.high, 511);
    EXPECT_EQ(atomicCAS(&v.i, 512, 7), 512);
    EXPECT_EQ(atomicCAS(&v.i, 512, 8), 7);
    EXPECT_EQ(atomicExch(&v.i, 9), 7);
}

TEST(Atomics, LocksBetweenThreadsOfOneBlock) {
    int lock = 0, inside = 0;
    ASSERT_EQ(run(4, 64,
                  [&] {
                      while (atomicCAS(&lock, 0, 1) != 0) {
                      }
                      __threadfence();
                      atomicAdd(&inside, 1);
                      __nanosleep(10); // lets the siblings try
                      __threadfence();
                      atomicExch(&lock, 0);
                  }),
              "");
    EXPECT_EQ(inside, 256);
}

TEST(Collectives, RunOnceInOrder) {
    std::array<int, 64> source{}, target{};
    std::atomic<int> wrong{0};
    ASSERT_EQ(run(1, 64,
                  [&] {
                      __shared__ int calls, published;
                      for (int round = 1; round <= 100; ++round) {
                          source[threadIdx.x] = round;
                          exec::sync_block();
                          exec::copy_bytes(exec::whole_block{}, reinterpret_cast<std::byte*>(target.data()),
                                           reinterpret_cast<const std::byte*>(source.data()), sizeof source);
                          exec::cpu::sync_and_run(
                              {}, [] {}, [&] { published = round; });
                          exec::sync_block();
                          wrong += target[(threadIdx.x + 1) % 64] != round || published != round;
                          exec::run_then_sync(exec::whole_block{}, [&] { ++calls; });
                          wrong += calls != round;
                          exec::sync_block();
                      }
                  }),
              "");
    EXPECT_EQ(wrong, 0);
}

TEST(Collectives, ActionMayEndItsThread) {
    std::atomic<int> after{0}, destroyed{0};
    struct counted {
        std::atomic<int>& n;
        ~counted() { ++n; }
    };
    ASSERT_EQ(run(3, 32,
                  [&] {
                      const counted c{destroyed};
                      exec::run_then_sync(exec::whole_block{}, [] { exec::exit_thread(); });
                      ++after;
                      __syncthreads();
                      exec::cpu::sync_and_run(
                          {}, [] {}, [] { exec::exit_thread(); });
                      ++after;
                  }),
              "");
    EXPECT_EQ(after, 3 * (31 + 30));
    EXPECT_EQ(destroyed, 3 * 32);
}

namespace {

class Failures : public testing::Test {
protected:
    void TearDown() override {
        EXPECT_EQ(run(1, 1, [] {}), "");
    } // a launch forgets earlier failures
};

} // namespace

TEST_F(Failures, ExceptionIsReported) {
    std::atomic<int> destroyed{0};
    struct counted {
        std::atomic<int>& n;
        ~counted() {
            ++n;
            __syncthreads(); // finds nobody, and must not hang
        }
    };
    const std::string failure = run(8, 64, [&] {
        const counted c{destroyed};
        if (blockIdx.x == 5 && threadIdx.x == 3) throw std::runtime_error("matrix is singular");
        __syncthreads();
    });
    EXPECT_NE(failure.find("rank 5 (block 5): thread (3,0,0) left the kernel with an exception: matrix is singular"),
              std::string::npos)
        << failure;
    EXPECT_GE(destroyed, 1); // the thread that failed; the others end at once
}

TEST_F(Failures, TrapIsReported) {
    EXPECT_NE(run(1, 32, [] { __trap(); }).find("__trap()"), std::string::npos);
}

TEST_F(Failures, DeadlockInsideTheBlockIsReported) {
    exec::launch({dim3(128), 6, 0, 100}, nullptr, [] {
        if (blockIdx.x != 5) return;
        if (threadIdx.x < 64)
            __syncthreads();
        else if (threadIdx.x % 32 != 0)
            __syncwarp();
        else
            __shfl_sync(0x3u, 1, 0);
    });
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaErrorLaunchFailure);
    EXPECT_EQ(exec::kernel_failure(),
              "rank 105 (block 5): deadlock inside the block: 64 threads wait in __syncthreads or "
              "a call of the whole block, 64 in a warp operation, 0 have ended");
}

TEST_F(Failures, DeadlockInsideAnOperationNamesIt) {
    const std::string failure = run(1, 64, [] {
        const exec::operation_scope named(threadIdx.x < 32 ? "put" : nullptr);
        threadIdx.x < 32 || threadIdx.x % 2 == 1 ? __syncthreads() : __syncwarp();
    });
    EXPECT_EQ(failure, "rank 0 (block 0): deadlock inside the block: 48 threads wait in __syncthreads or a call of the "
                       "whole block, 16 in a warp operation, 0 have ended; 32 threads (0,0,0) to (31,0,0) are in put, "
                       "16 threads (32,0,0) to (62,0,0), with gaps, are in a warp operation, "
                       "16 threads (33,0,0) to (63,0,0), with gaps, are in __syncthreads");
}

TEST_F(Failures, WrongWarpCallsAreReported) {
    EXPECT_NE(run(1, 32, [] { __syncwarp(1); }).find("that is not in it"), std::string::npos);
    EXPECT_NE(run(1, 32, [] { __shfl_sync(full, 1, 0, 7); }).find("width 7"), std::string::npos);
    const auto mixed = [] { threadIdx.x == 0 ? void(__ballot_sync(full, 1)) : __syncwarp(); };
    EXPECT_NE(run(1, 32, mixed).find("different warp operations"), std::string::npos);
}

TEST(Launch, LimitsAreNamed) {
    EXPECT_GE(exec::limit(dim3(64), 0).max_blocks, 64);
    EXPECT_FALSE(exec::limit(dim3(64), 0).reason.empty());
    EXPECT_EQ(exec::limit(dim3(1025), 0).max_blocks, 0);
    EXPECT_EQ(exec::limit(dim3(32), 228 * 1024).max_blocks, 0);
    EXPECT_EQ(exec::limit(dim3(1, 1, 65), 0).max_blocks, 0);
    const auto too_many = static_cast<unsigned>(exec::limit(dim3(1024), 0).max_blocks) + 100;
    try {
        exec::launch({dim3(1024), too_many, 0, 0}, nullptr, [] {});
        FAIL() << "accepted " << too_many;
    } catch (const dcuda::error& e) {
        EXPECT_EQ(e.code(), dcuda::error_code::out_of_resources);
        EXPECT_NE(std::string(e.what()).find(exec::limit(dim3(1024), 0).reason.substr(0, 6)), std::string::npos)
            << e.what();
    }
}

// Of the mappings that a process may have; a few remain of threads that have ended.
TEST(Launch, StacksThatAreKeptDoNotCount) {
    constexpr unsigned threads = 32, blocks = 128;
    const int before = exec::limit(dim3(threads), 0).max_blocks;
    exec::launch({dim3(threads), blocks, 0, 0}, nullptr, [] {});
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_GT(exec::limit(dim3(threads), 0).max_blocks, before - static_cast<int>(blocks) / 2);
}

// The runtime relies on it (cuda::allocate_zeros).
TEST(Memory, HoldsZerosWhenItIsNew) {
    constexpr std::size_t sizes[] = {100, 5000, 20000};
    for (int round = 0; round < 3000; ++round) {
        const std::size_t bytes = sizes[round % 3];
        unsigned char* p = nullptr;
        ASSERT_EQ(cudaMalloc(&p, bytes), cudaSuccess);
        ASSERT_TRUE(std::all_of(p, p + bytes, [](unsigned char each) { return each == 0; })) << round;
        std::memset(p, 0xff, bytes);
        ASSERT_EQ(cudaFree(p), cudaSuccess);
    }
}

TEST(Memory, ErrorsAreThoseOfCuda) {
    char* p = nullptr;
    std::size_t free_bytes = 0, total = 0;
    ASSERT_EQ(cudaMemGetInfo(&free_bytes, &total), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&p, total + 1), cudaErrorMemoryAllocation);
    EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&p, 1000), cudaSuccess);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p) % 256, 0u);
    EXPECT_EQ(cudaMemset(p, 7, 1001), cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemset(p, 7, 1000), cudaSuccess);
    std::array<char, 1000> host{};
    EXPECT_EQ(cudaMemcpy(host.data(), p + 1, 1000, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemcpy(host.data(), p, 1000, static_cast<cudaMemcpyKind>(9)), cudaErrorInvalidMemcpyDirection);
    EXPECT_EQ(cudaMemcpy(host.data(), p, 1000, cudaMemcpyDeviceToHost), cudaSuccess);
    EXPECT_EQ(host[999], 7);
    void* base = nullptr;
    std::size_t bytes = 0;
    unsigned long long id = 0, next_id = 0;
    EXPECT_EQ(dcudaCpuGetAddressRange(&base, &bytes, p + 999, &id), cudaSuccess);
    EXPECT_EQ(base, p);
    EXPECT_EQ(bytes, 1000u);
    cudaPointerAttributes a;
    EXPECT_EQ(cudaPointerGetAttributes(&a, p), cudaSuccess);
    EXPECT_EQ(a.type, cudaMemoryTypeDevice);
    EXPECT_EQ(cudaFree(p + 1), cudaErrorInvalidValue);
    EXPECT_EQ(cudaFree(p), cudaSuccess);
    EXPECT_EQ(cudaFree(p), cudaErrorInvalidValue);
    char* q = nullptr;
    ASSERT_EQ(cudaMalloc(&q, 1000), cudaSuccess);
    EXPECT_NE(p, q) << "fresh memory comes before memory that was just freed";
    EXPECT_EQ(dcudaCpuGetAddressRange(nullptr, nullptr, q, &next_id), cudaSuccess);
    EXPECT_NE(id, next_id);
    EXPECT_EQ(cudaFree(q), cudaSuccess);
    std::size_t free_after = 0;
    EXPECT_EQ(cudaMemGetInfo(&free_after, &total), cudaSuccess);
    EXPECT_EQ(free_after, free_bytes);
}

TEST(Memory, ArenaIsSparseAndReused) {
    std::size_t free_bytes = 0, total = 0;
    ASSERT_EQ(cudaMemGetInfo(&free_bytes, &total), cudaSuccess);
    const std::size_t big = TEST_ASAN ? total / 64 : total / 3; // ASan pays for what is freed
    for (int i = 0; i < 10; ++i) {
        char* p = nullptr;
        ASSERT_EQ(cudaMalloc(&p, big), cudaSuccess) << i;
        p[0] = p[big - 1] = 1;
        ASSERT_EQ(cudaFree(p), cudaSuccess);
    }
    if (TEST_ASAN) return;
    std::vector<char*> all;
    for (char* p = nullptr; cudaMalloc(&p, total / 10) == cudaSuccess && all.size() < 20;) all.push_back(p);
    EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
    EXPECT_EQ(all.size(), 9u);
    for (char* p : all) EXPECT_EQ(cudaFree(p), cudaSuccess);
}

TEST(Memory, Symbols) {
    static __device__ int values[4] = {1, 2, 3, 4};
    const int two[2] = {8, 9};
    int back[4] = {};
    EXPECT_EQ(cudaMemcpyToSymbol(values, two, sizeof two, sizeof(int)), cudaSuccess);
    EXPECT_EQ(cudaMemcpyToSymbol(values, two, sizeof two, 3 * sizeof(int)), cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemcpyFromSymbol(back, values, sizeof back), cudaSuccess);
    EXPECT_EQ(back[1] + back[2] + back[3], 8 + 9 + 4);
}

TEST(Memory, OtherProcessesMapIt) {
    int to_child[2], to_parent[2];
    ASSERT_EQ(pipe(to_child), 0);
    ASSERT_EQ(pipe(to_parent), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) { // exports one allocation between two others, and answers when told
        int *before = nullptr, *shared = nullptr;
        cudaIpcMemHandle_t h;
        bool ok = cudaMalloc(&before, 4000) == cudaSuccess && cudaMalloc(&shared, 4000) == cudaSuccess;
        shared[5] = 55;
        ok = ok && cudaIpcGetMemHandle(&h, shared + 3) == cudaSuccess;
        void* own = nullptr;
        ok = ok && cudaIpcOpenMemHandle(&own, h, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess;
        ok = ok && write(to_parent[1], &h, sizeof h) == sizeof h;
        char go;
        ok = ok && read(to_child[0], &go, 1) == 1 && shared[6] == 66;
        _exit(ok ? 0 : 1);
    }
    cudaIpcMemHandle_t h;
    ASSERT_EQ(read(to_parent[0], &h, sizeof h), static_cast<ssize_t>(sizeof h));
    int *p = nullptr, *again = nullptr;
    ASSERT_EQ(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&p), h, cudaIpcMemLazyEnablePeerAccess), cudaSuccess);
    ASSERT_EQ(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&again), h, cudaIpcMemLazyEnablePeerAccess), cudaSuccess);
    EXPECT_EQ(p, again);
    void* base = nullptr;
    std::size_t bytes = 0;
    EXPECT_EQ(dcudaCpuGetAddressRange(&base, &bytes, p + 100, nullptr), cudaSuccess);
    EXPECT_EQ(base, p);
    EXPECT_EQ(bytes, 4000u);
    EXPECT_EQ(p[5], 55); // the base of that allocation, not of the pointer that was exported
    EXPECT_EQ(run(1, 32, [p] { p[6 + threadIdx.x] = 66; }), "");
    EXPECT_EQ(cudaIpcCloseMemHandle(again), cudaSuccess);
    EXPECT_EQ(p[5], 55);
    EXPECT_EQ(cudaIpcCloseMemHandle(p), cudaSuccess);
    EXPECT_EQ(cudaIpcCloseMemHandle(p), cudaErrorInvalidValue);
    ASSERT_EQ(write(to_child[1], "g", 1), 1);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(cudaIpcOpenMemHandle(reinterpret_cast<void**>(&p), h, cudaIpcMemLazyEnablePeerAccess),
              cudaErrorInvalidResourceHandle)
        << "its process has ended";
    for (int fd : {to_child[0], to_child[1], to_parent[0], to_parent[1]}) close(fd);
}

TEST(Streams, QueriesEventsAndOrder) {
    cudaStream_t stream = nullptr;
    cudaEvent_t start = nullptr, stop = nullptr, never = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    for (cudaEvent_t* e : {&start, &stop, &never}) ASSERT_EQ(cudaEventCreate(e), cudaSuccess);
    std::atomic<bool> go{false};
    int copied = 0;
    int value = 1;
    ASSERT_EQ(cudaEventRecord(start, stream), cudaSuccess);
    exec::launch({dim3(32), 4, 0, 0}, stream, [&] {
        while (!go) __nanosleep(1000);
        if (blockIdx.x == 0 && threadIdx.x == 0) value = 2;
    });
    // All of this waits for the kernel, without holding up the host.
    ASSERT_EQ(cudaMemcpyAsync(&copied, &value, sizeof value, cudaMemcpyDefault, stream), cudaSuccess);
    exec::launch({dim3(32), 4, 0, 0}, stream, [&] { atomicAdd(&value, 1); });
    ASSERT_EQ(cudaEventRecord(stop, stream), cudaSuccess);
    EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
    EXPECT_EQ(cudaEventQuery(start), cudaSuccess);
    EXPECT_EQ(cudaEventQuery(stop), cudaErrorNotReady);
    EXPECT_EQ(cudaEventQuery(never), cudaSuccess);
    float ms = 0;
    EXPECT_EQ(cudaEventElapsedTime(&ms, start, stop), cudaErrorNotReady);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    go = true;
    EXPECT_EQ(cudaEventSynchronize(stop), cudaSuccess);
    EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
    EXPECT_EQ(copied, 2);
    EXPECT_EQ(value, 2 + 128);
    EXPECT_EQ(cudaEventElapsedTime(&ms, start, stop), cudaSuccess);
    EXPECT_GE(ms, 30);
    EXPECT_LT(ms, 10000);
    EXPECT_EQ(cudaEventElapsedTime(&ms, start, never), cudaErrorInvalidResourceHandle);
    for (cudaEvent_t e : {start, stop, never}) EXPECT_EQ(cudaEventDestroy(e), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaErrorInvalidResourceHandle);
    EXPECT_EQ(cudaStreamQuery(stream), cudaErrorInvalidResourceHandle);
}

// --- ordinary kernels ---

namespace {

__global__ void count_blocks(int* blocks, int* threads, int value) {
    if (threadIdx.x == 0) blocks[blockIdx.x] += value;
    atomicAdd(threads, 1);
}
__global__ void wait_for_last_block(int* done) {
    if (blockIdx.x == gridDim.x - 1) {
        atomicExch(done, 1);
        return;
    }
    while (atomicAdd(done, 0) == 0) __nanosleep(1000);
}
__global__ void trap_in_one_block(int* blocks) {
    if (blockIdx.x == 1) __trap();
    if (threadIdx.x == 0) atomicAdd(blocks, 1);
}

template <class... Params, class... Args>
cudaError_t start(unsigned blocks, unsigned threads, cudaStream_t stream, void (*kernel)(Params...),
                  Args... arguments) {
    cudaLaunchConfig_t shape{};
    shape.gridDim = dim3(blocks);
    shape.blockDim = dim3(threads);
    shape.stream = stream;
    return cudaLaunchKernelEx(&shape, kernel, arguments...);
}

} // namespace

// Far more blocks than there are at a time; kernels of a stream one after the other, of which many may wait.
TEST(OrdinaryKernels, AllBlocksRunInStreamOrder) {
    constexpr unsigned blocks = TEST_TSAN ? 80 : 500, threads = 8; // 500 take 40 s there
    std::vector<int> counts(blocks);
    int all = 0;
    cudaStream_t stream = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    for (int round = 0; round < 20; ++round)
        ASSERT_EQ(start(blocks, threads, stream, count_blocks, counts.data(), &all, round), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(counts, std::vector<int>(blocks, 190));
    EXPECT_EQ(all, static_cast<int>(20 * blocks * threads));
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

// As many as a GPU would certainly have at a time may wait for each other.
TEST(OrdinaryKernels, SomeBlocksWaitForOthers) {
    int done = 0;
    ASSERT_EQ(start(32, 4, nullptr, wait_for_last_block, &done), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST(OrdinaryKernels, NoneFollowsOneThatHasFailed) {
    int blocks = 0, all = 0;
    std::vector<int> counts(4);
    cudaStream_t stream = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(start(8, 4, stream, trap_in_one_block, &blocks), cudaSuccess);
    static_cast<void>(start(4, 4, stream, count_blocks, counts.data(), &all, 1));
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
    EXPECT_NE(exec::kernel_failure().find("block 1"), std::string::npos) << exec::kernel_failure();
    EXPECT_EQ(exec::kernel_failure().find("rank"), std::string::npos) << exec::kernel_failure();
    EXPECT_EQ(all, 0);
    EXPECT_EQ(start(4, 4, stream, count_blocks, counts.data(), &all, 1), cudaErrorLaunchFailure);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    EXPECT_EQ(run(1, 1, [] {}), ""); // a run begins anew
}

TEST(OrdinaryKernels, WrongShapesAreErrors) {
    int done = 1;
    cudaLaunchConfig_t shape{};
    shape.gridDim = dim3(2, 2);
    shape.blockDim = dim3(1);
    EXPECT_EQ(cudaLaunchKernelEx(&shape, wait_for_last_block, &done), cudaErrorInvalidConfiguration);
    EXPECT_EQ(start(0, 1, nullptr, wait_for_last_block, &done), cudaErrorInvalidConfiguration);
    EXPECT_EQ(start(1, 1025, nullptr, wait_for_last_block, &done), cudaErrorInvalidConfiguration);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
    void (*const none)(int*) = nullptr;
    EXPECT_EQ(start(1, 1, nullptr, none, &done), cudaErrorInvalidValue);
}

// --- what ends the process: each case runs in a process of its own ---

namespace {

[[noreturn]] void run_and_exit(unsigned threads, void (*body)()) {
    run(2, threads, body);
    std::exit(0);
}

__shared__ int exchange[64];

void neighbour_without_barrier() {
    exchange[threadIdx.x] = 1;
    const volatile int seen = exchange[(threadIdx.x + 1) % blockDim.x];
    (void)seen;
}
void neighbour_with_barrier() {
    for (int round = 0; round < 10; ++round) {
        exchange[threadIdx.x] = round;
        __syncthreads();
        const volatile int seen = exchange[(threadIdx.x + 1) % blockDim.x];
        (void)seen;
        __syncthreads();
    }
}
void neighbour_with_warp_barrier() {
    exchange[threadIdx.x] = 1;
    __syncwarp();
    const volatile int seen = exchange[threadIdx.x ^ 1];
    (void)seen;
}
void read_of_unordered_copy() {
    __shared__ int source[4], target[4];
    exec::copy_bytes(exec::whole_block{}, reinterpret_cast<std::byte*>(target),
                     reinterpret_cast<const std::byte*>(source), sizeof source);
    const volatile int seen = target[0];
    (void)seen;
}

void overflow_device_memory(std::size_t bytes, std::size_t offset, bool freed) {
    char* p = nullptr;
    if (cudaMalloc(&p, bytes) != cudaSuccess) std::exit(3);
    if (freed && cudaFree(p) != cudaSuccess) std::exit(4);
    exec::launch({dim3(4), 2, 0, 0}, nullptr, [=] {
        if (threadIdx.x == 3) p[offset] = 1;
    });
    cudaDeviceSynchronize();
    std::exit(0);
}
// For AddressSanitizer: the undefined behaviour sanitizer would see it first.
__attribute__((no_sanitize("undefined"))) int overflow_stack_array() {
    int values[8] = {};
    const volatile unsigned n = 8;
    volatile int* v = values;
    v[threadIdx.x == 3 ? n : 0] = 1;
    return v[0];
}
int deep_recursion(int depth) {
    volatile char frame[512];
    frame[depth % 512] = 1;
    return depth == 0 ? 0 : deep_recursion(depth - 1) + frame[0];
}

class Deaths : public testing::Test {
protected:
    void SetUp() override { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

} // namespace

TEST_F(Deaths, StackOverflowIsCaughtByTheGuard) {
    const char* message = TEST_ASAN ? "stack-overflow" : TEST_TSAN ? "" : "stack overflow.*DCUDA_STACK_BYTES";
    EXPECT_DEATH(run_and_exit(4, [] { deep_recursion(100'000); }), message);
}

TEST_F(Deaths, BadAddressNamesTheThread) {
    const char* message = TEST_ASAN   ? "SEGV on unknown address"
                          : TEST_TSAN ? "SEGV on unknown address"
                                      : "rank . .block .[)]: no memory at address 0x40, used by thread .3,0,0.;";
    EXPECT_DEATH(run_and_exit(4,
                              [] {
                                  auto* volatile nowhere = reinterpret_cast<volatile char*>(0x40);
                                  if (threadIdx.x == 3) *nowhere = 1;
                              }),
                 message);
}

TEST_F(Deaths, ThreadSanitizerSeesThreadsOfOneBlock) {
    if (!TEST_TSAN) GTEST_SKIP() << "needs -fsanitize=thread";
    const testing::ExitedWithCode found(66), silent(0);
    EXPECT_EXIT(run_and_exit(32, neighbour_without_barrier), found, "data race(.|\n)*'rank . .block .. thread");
    EXPECT_EXIT(run_and_exit(32, neighbour_with_barrier), silent, "^$");
    EXPECT_EXIT(run_and_exit(32, neighbour_with_warp_barrier), silent, "^$");
    EXPECT_EXIT(run_and_exit(32, read_of_unordered_copy), found, "data race");
}

TEST_F(Deaths, AddressSanitizerSeesDeviceMemoryAndStacks) {
    if (!TEST_ASAN) GTEST_SKIP() << "needs -fsanitize=address";
    EXPECT_DEATH(overflow_device_memory(1000, 1000, false), "use-after-poison");
    EXPECT_DEATH(overflow_device_memory(256, 256 + 15, false), "use-after-poison");
    EXPECT_DEATH(overflow_device_memory(1000, 10, true), "use-after-poison");
    EXPECT_DEATH(run_and_exit(32, [] { overflow_stack_array(); }), "stack-buffer-overflow");
    EXPECT_EXIT(overflow_device_memory(1000, 999, false), testing::ExitedWithCode(0), "^$");
}
