// SPDX-License-Identifier: BSD-3-Clause
// Lesson 13: a rank that is one warp of its block, as in docs/guide/warps.md. Eight warps of a block compute tiles of a
// matrix product; the ninth, which alone is the rank, sends each tile as soon as it is finished to another rank, on
// another device if there is one. Nobody who computes waits for that.
//
//     dcuda-run -n 2 ./13_warps_that_communicate
#include <dcuda/dcuda.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

constexpr int tile = 64; // rows and columns
constexpr int depth = 64, tiles = 8;
constexpr int workers = 256, warp_threads = 32;
constexpr std::size_t tile_numbers = tile * tile, strip_numbers = tiles * tile_numbers;

// Of each rank: `tile` rows of the first matrix, as many columns of tiles of the result, and room for those of another.
struct matrices {
    const float* a;         // [rank][tile][depth]
    const float* b;         // [depth][tiles * tile]
    float *result, *copies; // [rank][tiles][tile][tile]
};

__host__ __device__ float first(int row, int k) { return static_cast<float>((row * 7 + k * 3) % 11 - 5); }
__host__ __device__ float second(int k, int column) { return static_cast<float>((k * 5 + column) % 13 - 6); }

// A worker's part of a tile: 4 rows and 4 columns.
__device__ void multiply(const float* a, const float* b, float* out, int number) {
    const int row = static_cast<int>(threadIdx.x) / 16 * 4, column = static_cast<int>(threadIdx.x) % 16 * 4;
    float sum[4][4] = {};
    for (int k = 0; k < depth; ++k)
        for (int i = 0; i < 4; ++i)
            for (int j = 0; j < 4; ++j)
                sum[i][j] += a[(row + i) * depth + k] * b[k * tiles * tile + number * tile + column + j];
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) out[(row + i) * tile + column + j] = sum[i][j];
}

__global__ void __launch_bounds__(workers + warp_threads) multiply_and_send(dcuda::context context, matrices all) {
    __shared__ dcuda::state state;
    __shared__ int finished[tiles]; // workers that have done their part of it
    if (threadIdx.x < tiles) finished[threadIdx.x] = 0;
    __syncthreads();

    float* const result = all.result + blockIdx.x * strip_numbers;
    if (threadIdx.x < workers) {
        for (int number = 0; number < tiles; ++number) {
            multiply(all.a + blockIdx.x * tile * depth, all.b, result + number * tile_numbers, number);
            __threadfence(); // the numbers before the count
            atomicAdd(&finished[number], 1);
        }
        return;
    }

    dcuda::rank self(context, state, dcuda::part{.first_thread = workers, .threads = warp_threads});
    const auto window = self.create_typed_window(dcuda::world, all.copies + blockIdx.x * strip_numbers, strip_numbers);
    const int partner = (self.id() + (self.size() + 1) / 2) % self.size();
    for (int number = 0; number < tiles; ++number) {
        if (self.thread() == 0)
            while (atomicAdd(&finished[number], 0) < workers) __nanosleep(200);
        __threadfence(); // the count before the numbers
        self.sync();
        self.put_notify(window, partner, number * tile_numbers, tile_numbers, result + number * tile_numbers, 0);
    }
    self.wait_notifications(0, tiles); // from whom this rank is the partner
    self.free_window(window);
}

template <class Item>
Item* upload(const std::vector<Item>& content) {
    Item* memory = nullptr;
    const std::size_t bytes = content.size() * sizeof(Item);
    if (cudaMalloc(&memory, bytes) != cudaSuccess ||
        cudaMemcpy(memory, content.data(), bytes, cudaMemcpyHostToDevice) != cudaSuccess)
        throw dcuda::error(dcuda::error_code::out_of_resources, "no device memory");
    return memory;
}

int main(int argc, char** argv) try {
    dcuda::runtime runtime(argc, argv);
    dcuda::launch_config config{.threads = workers + warp_threads};
    dcuda::rank_info job = runtime.plan(multiply_and_send, config);
    config.ranks_per_device = std::min(job.rank_responsible, 132);
    job = runtime.plan(multiply_and_send, config);
    const int ranks = job.rank_responsible, all = job.rank_count, columns = tiles * tile;

    std::vector<float> a(static_cast<std::size_t>(ranks) * tile * depth), b(static_cast<std::size_t>(depth) * columns);
    for (std::size_t i = 0; i < a.size(); ++i)
        a[i] = first(job.rank_start * tile + static_cast<int>(i) / depth, static_cast<int>(i) % depth);
    for (std::size_t i = 0; i < b.size(); ++i)
        b[i] = second(static_cast<int>(i) / columns, static_cast<int>(i) % columns);
    std::vector<float> copies(static_cast<std::size_t>(ranks) * strip_numbers);
    const matrices memory{upload(a), upload(b), upload(copies), upload(copies)};
    const double ms = runtime.run(multiply_and_send, config, memory);

    // What has come from the partner, in one column of each of its rows.
    cudaMemcpy(copies.data(), memory.copies, copies.size() * sizeof(float), cudaMemcpyDeviceToHost);
    std::size_t wrong = 0;
    for (int rank = 0; rank < ranks; ++rank) {
        const int source = (job.rank_start + rank + all - (all + 1) / 2) % all;
        for (int number = 0; number < tiles; ++number)
            for (int row = 0; row < tile; ++row) {
                const int column = (row * 5 + rank) % tile;
                float expected = 0;
                for (int k = 0; k < depth; ++k)
                    expected += first(source * tile + row, k) * second(k, number * tile + column);
                const std::size_t at = static_cast<std::size_t>((rank * tiles + number) * tile + row) * tile + column;
                wrong += copies[at] != expected;
            }
    }
    std::printf("process %d: %d ranks of one warp beside %d that compute, %d tiles each in %.3f ms: %s\n",
                job.process_index, ranks, workers / warp_threads, tiles, ms, wrong == 0 ? "correct" : "WRONG");
    cudaFree(const_cast<float*>(memory.a));
    cudaFree(const_cast<float*>(memory.b));
    cudaFree(memory.result);
    cudaFree(memory.copies);
    return wrong == 0 ? 0 : 1;
} catch (const std::exception& problem) {
    std::fprintf(stderr, "13_warps_that_communicate: %s\n", problem.what());
    return 1;
}
