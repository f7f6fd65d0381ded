// SPDX-License-Identifier: BSD-3-Clause
// CUDA's own headers in kernels: cooperative groups, half and bfloat16, cuda::atomic. On the CPU backend these are
// stand-ins, which must give what CUDA gives.
#include "device_test.hpp"

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda/atomic>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

using namespace dcuda::test;
namespace cg = cooperative_groups;
namespace exec = dcuda::detail::exec;

namespace {

class CudaHeaders : public device_test {};

// --- cooperative groups ---

struct triple {
    double a;
    int b;
    float c;
};

template <unsigned Size>
__device__ void try_tiles(const dcuda::rank& self, findings* found) {
    const cg::thread_block block = cg::this_thread_block();
    const auto tile = cg::tiled_partition<Size>(block);
    const unsigned rank = block.thread_rank(), first = rank / Size * Size;
    EXPECT_SAME(tile.num_threads(), Size);
    EXPECT_SAME(tile.size(), Size);
    EXPECT_SAME(tile.thread_rank(), rank - first);
    EXPECT_SAME(tile.meta_group_rank(), rank / Size);
    EXPECT_SAME(tile.meta_group_size(), block.num_threads() / Size);
    EXPECT_SAME(tile.shfl(rank, 0), first);
    EXPECT_SAME(tile.shfl_xor(rank, Size / 2), Size == 1 ? rank : first + ((rank - first) ^ (Size / 2)));
    unsigned sum = rank; // as most programs do it
    for (unsigned delta = Size / 2; delta != 0; delta /= 2) sum += tile.shfl_down(sum, delta);
    if (tile.thread_rank() == 0) EXPECT_SAME(sum, Size * first + Size * (Size - 1) / 2);
    EXPECT_SAME(tile.shfl_up(rank, 1), tile.thread_rank() == 0 ? rank : rank - 1);
    EXPECT_SAME(cg::reduce(tile, rank, cg::plus<unsigned>()), Size * first + Size * (Size - 1) / 2);
    EXPECT_SAME(cg::reduce(tile, rank, cg::greater<unsigned>()), first + Size - 1);
    EXPECT_SAME(cg::reduce(tile, rank, cg::less<unsigned>()), first);
    EXPECT_SAME(tile.any(rank == first), 1);
    EXPECT_SAME(tile.all(rank == first), Size == 1 ? 1 : 0);
    EXPECT_SAME(tile.ballot(rank % 2 == 0), 0x55555555u & (0xffffffffu >> (32 - Size)) << (Size == 1 && rank % 2));
    const triple other =
        tile.shfl(triple{0.5 * rank, static_cast<int>(rank), 2.0f * static_cast<float>(rank)}, Size - 1);
    EXPECT_SAME(2 * other.a, first + Size - 1);
    EXPECT_SAME(other.b, first + Size - 1);
    EXPECT_SAME(other.c, 2 * (first + Size - 1));
    tile.sync();
}

__global__ void groups(dcuda::context context, findings* found) {
    __shared__ dcuda::state state;
    __shared__ unsigned shared;
    dcuda::rank self(context, state);
    const cg::thread_block block = cg::this_thread_block();
    const unsigned threads = blockDim.x * blockDim.y;
    EXPECT_SAME(block.num_threads(), threads);
    EXPECT_SAME(block.size(), threads);
    EXPECT_SAME(block.thread_rank(), threadIdx.y * blockDim.x + threadIdx.x);
    EXPECT_SAME(block.group_index().x, blockIdx.x);
    EXPECT_SAME(block.thread_index().y, threadIdx.y);
    if (block.thread_rank() == threads - 1) shared = 17;
    block.sync();
    EXPECT_SAME(shared, 17);
    cg::sync(block);
    try_tiles<32>(self, found);
    try_tiles<16>(self, found);
    try_tiles<8>(self, found);
    try_tiles<4>(self, found);
    try_tiles<2>(self, found);
    const cg::coalesced_group together = cg::coalesced_threads();
    EXPECT_SAME(together.thread_rank() < together.size(), true);
}

TEST_F(CudaHeaders, CooperativeGroups) {
    check(groups, shape(2, dim3(32)));
    check(groups, shape(3, dim3(16, 6)));
}

// --- numbers of 16 bits ---

__global__ void halves(dcuda::context context, findings* found) {
    __shared__ dcuda::state state;
    __shared__ half sum;
    dcuda::rank self(context, state);
    const auto bits = [](half x) { return __half_as_ushort(x); };
    EXPECT_SAME(bits(__float2half(1.0f)), 0x3c00);
    EXPECT_SAME(bits(__float2half(-2.5f)), 0xc100);
    EXPECT_SAME(bits(__float2half(0.0f)), 0);
    EXPECT_SAME(bits(__float2half(-0.0f)), 0x8000);
    EXPECT_SAME(bits(__float2half(65504.0f)), 0x7bff); // the largest
    EXPECT_SAME(bits(__float2half(65519.0f)), 0x7bff); // rounded down to it
    EXPECT_SAME(bits(__float2half(65520.0f)), 0x7c00); // and up to infinity
    EXPECT_SAME(bits(__float2half(-1e30f)), 0xfc00);
    EXPECT_SAME(bits(__float2half(6.103515625e-5f)), 0x0400); // the smallest normal number
    EXPECT_SAME(bits(__float2half(6.097555160522461e-5f)), 0x03ff);
    EXPECT_SAME(bits(__float2half(5.960464477539063e-8f)), 1);  // the smallest of all
    EXPECT_SAME(bits(__float2half(2.9802322387695312e-8f)), 0); // half of it: to even
    EXPECT_SAME(bits(__float2half(2.99e-8f)), 1);
    EXPECT_SAME(bits(__float2half(2049.0f)), bits(__float2half(2048.0f))); // between two: to even
    EXPECT_SAME(bits(__float2half(2051.0f)), bits(__float2half(2052.0f)));
    for (unsigned i = exec::thread_index(); i < 0x7c00; i += exec::block_threads()) {
        const half x = __ushort_as_half(static_cast<unsigned short>(i));
        EXPECT_SAME(bits(__float2half(__half2float(x))), i); // there and back
        EXPECT_SAME(bits(__hneg(x)), i | 0x8000);
    }
    const half three = __float2half(3.0f), third = __float2half(1.0f) / three;
    EXPECT_SAME(bits(third), 0x3555);
    EXPECT_SAME(bits(three * third), 0x3c00);
    EXPECT_SAME(bits(three + third), 0x42ab);
    EXPECT_SAME(bits(__hfma(three, three, __float2half(-9.0f))), 0);
    EXPECT_SAME(bits(hsqrt(__float2half(2.0f))), 0x3da8);
    EXPECT_SAME(third < three && three >= third && three != third && __hgt(three, third), true);
    EXPECT_SAME(__hisnan(__ushort_as_half(0x7e00)), true);
    EXPECT_SAME(__hisnan(__ushort_as_half(0x7c00)), false);
    EXPECT_SAME(__half2int_rn(__float2half(2.5f)), 2);
    half2 pair = __floats2half2_rn(1.5f, -2.0f);
    pair = __hfma2(pair, pair, __float2half2_rn(1.0f));
    EXPECT_SAME(bits(__low2half(pair)), bits(__float2half(3.25f)));
    EXPECT_SAME(bits(__high2half(pair)), bits(__float2half(5.0f)));
    EXPECT_SAME(sizeof(half), 2);
    EXPECT_SAME(sizeof(half2), 4);
    by_one_thread([&] { sum = __float2half(0.0f); });
    __syncthreads();
    atomicAdd(&sum, __float2half(1.0f));
    __syncthreads();
    EXPECT_SAME(__half2float(sum), exec::block_threads());
    EXPECT_SAME(__half2float(__shfl_sync(0xffffffffu, three, 0)), 3);
}

__global__ void bfloats(dcuda::context context, findings* found) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const auto bits = [](__nv_bfloat16 x) { return __bfloat16_as_ushort(x); };
    EXPECT_SAME(bits(__float2bfloat16(1.0f)), 0x3f80);
    EXPECT_SAME(bits(__float2bfloat16(-3.14159f)), 0xc049);
    EXPECT_SAME(bits(__float2bfloat16(257.0f)), bits(__float2bfloat16(256.0f))); // between two: to even
    EXPECT_SAME(bits(__float2bfloat16(259.0f)), bits(__float2bfloat16(260.0f)));
    EXPECT_SAME(bits(__float2bfloat16(3.3895314e38f)), 0x7f7f);
    EXPECT_SAME(bits(__float2bfloat16(3.4028235e38f)), 0x7f80);
    EXPECT_SAME(bits(__float2bfloat16(1e-40f)), 1); // a denormal number: 9.18e-41 is the next
    for (unsigned i = 0x80 + exec::thread_index(); i < 0x7f80; i += exec::block_threads())
        EXPECT_SAME(bits(__float2bfloat16(__bfloat162float(__ushort_as_bfloat16(static_cast<unsigned short>(i))))), i);
    const __nv_bfloat16 three = __float2bfloat16(3.0f), third = __float2bfloat16(1.0f) / three;
    EXPECT_SAME(bits(third), 0x3eab);
    EXPECT_SAME(bits(three * three - __float2bfloat16(8.0f)), 0x3f80);
    EXPECT_SAME(bits(__hmax(three, third)), bits(three));
    const __nv_bfloat162 pair = __hadd2(__floats2bfloat162_rn(1.0f, 2.0f), __bfloat162bfloat162(three));
    EXPECT_SAME(bits(__high2bfloat16(pair)), bits(__float2bfloat16(5.0f)));
}

TEST_F(CudaHeaders, HalfAndBfloat16) {
    check(halves, shape(2));
    check(bfloats, shape(2));
}

// --- cuda::atomic ---

__global__ void atomics(dcuda::context context, findings* found, unsigned* words) {
    __shared__ dcuda::state state;
    __shared__ cuda::atomic<int, cuda::thread_scope_block> turn;
    dcuda::rank self(context, state);
    const auto threads = static_cast<int>(exec::block_threads());
    const auto thread = static_cast<int>(exec::thread_index());
    by_one_thread([&] { turn.store(0, cuda::memory_order_relaxed); });
    __syncthreads();
    // One after the other: who waits lets its siblings run.
    while (turn.load(cuda::memory_order_acquire) != threads - 1 - thread) {
    }
    turn.fetch_add(1, cuda::std::memory_order_release);
    __syncthreads();
    EXPECT_SAME(turn.load(), threads);

    // All ranks of the device.
    const cuda::atomic_ref<unsigned, cuda::thread_scope_device> sum(words[0]), largest(words[1]), chain(words[2]);
    sum.fetch_add(1u);
    largest.fetch_max(static_cast<unsigned>(thread));
    unsigned before = chain.load();
    while (!chain.compare_exchange_weak(before, before + 2, cuda::memory_order_acq_rel, cuda::memory_order_acquire)) {
    }
    cuda::atomic_thread_fence(cuda::memory_order_seq_cst, cuda::thread_scope_device);
    self.barrier(dcuda::device);
    const auto all = static_cast<unsigned>(threads * self.size(dcuda::device));
    EXPECT_SAME(sum.load(cuda::memory_order_relaxed), all);
    EXPECT_SAME(largest.load(), threads - 1);
    EXPECT_SAME(chain.load(), 2 * all);
    self.barrier(dcuda::device);
    if (self.id(dcuda::device) == 0 && thread == 0) EXPECT_SAME(sum.exchange(5u), all);
    self.barrier(dcuda::device);
    EXPECT_SAME(words[0], 5);
}

TEST_F(CudaHeaders, Atomics) {
    const device_vector<unsigned> words(3);
    check(atomics, shape(4, dim3(48)), words.get());
}

} // namespace
