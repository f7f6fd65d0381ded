// SPDX-License-Identifier: BSD-3-Clause
// Lesson 3: halo exchange. Rows of a grid are divided over devices, those of a device over its ranks; every step each
// point becomes the mean of its four neighbours. docs/guide/porting.md shows the same program with MPI and with
// NVSHMEM.
//
//     dcuda-run -n 2 ./03_halo_exchange
#include <dcuda/dcuda.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

constexpr int columns = 256, rows = 64; // of a device; around them lies a border that never changes
constexpr int width = columns + 2;
constexpr int steps = 50;

// --- The kernel ------------------------------------------------------------------------------------------------------

__device__ void relax(const float* in, float* out, int first, int last) {
    for (int row = first; row < last; ++row)
        for (int x = 1 + threadIdx.x; x <= columns; x += blockDim.x) {
            const float* at = in + row * width + x;
            out[row * width + x] = 0.25f * (at[-1] + at[1] + at[-width] + at[width]);
        }
}

enum tag : int { from_above, from_below };

// in and out: the device's rows 1 to `rows`, and a halo row on either side.
__global__ void run_steps(dcuda::context context, float* in, float* out) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);

    // This rank's rows, and its neighbours in the whole grid.
    const int local = self.id(dcuda::device), ranks = self.size(dcuda::device);
    const int first = 1 + rows * local / ranks, last = 1 + rows * (local + 1) / ranks;
    const int above = self.id() - 1, below = self.id() + 1;
    const bool has_above = above >= 0, has_below = below < self.size();

    // Where they keep this rank's border rows: in the same array, or in the halo of the next device's.
    const std::size_t row_bytes = width * sizeof(float), bytes = (rows + 2) * row_bytes;
    const std::size_t place_above = row_bytes * (local > 0 ? first : rows + 1);
    const std::size_t place_below = row_bytes * (local + 1 < ranks ? last - 1 : 0);

    // Each array is a window of all ranks of its device. They take turns.
    const dcuda::window in_window = self.create_window(dcuda::world, in, bytes);
    const dcuda::window out_window = self.create_window(dcuda::world, out, bytes);
    for (int step = 0; step < steps; ++step) {
        const bool forth = step % 2 == 0;
        float* const next = forth ? out : in;
        const dcuda::window window = forth ? out_window : in_window;
        relax(forth ? in : out, next, first, last);
        if (has_above) self.put_notify(window, above, place_above, row_bytes, next + first * width, from_below);
        if (has_below) self.put_notify(window, below, place_below, row_bytes, next + (last - 1) * width, from_above);
        self.wait_notifications(from_above, has_above ? 1 : 0);
        self.wait_notifications(from_below, has_below ? 1 : 0);
    }
    self.free_window(out_window);
    self.free_window(in_window);
}

// --- The host --------------------------------------------------------------------------------------------------------

// Some initial value of every point of the whole grid.
float start_value(int row, int x) { return static_cast<float>((row * 37 + x * 11) % 101); }

std::vector<float> start_rows(int first, int count) {
    std::vector<float> values;
    for (int row = first; row < first + count; ++row)
        for (int x = 0; x < width; ++x) values.push_back(start_value(row, x));
    return values;
}

void check(cudaError_t result) {
    if (result == cudaSuccess) return;
    std::fprintf(stderr, "03_halo_exchange: %s\n", cudaGetErrorString(result));
    std::exit(1);
}

int main(int argc, char** argv) try {
    dcuda::runtime runtime(argc, argv);
    dcuda::launch_config config{.threads = 128};
    const dcuda::rank_info job = runtime.plan(run_steps, config);
    config.ranks_per_device = std::min(job.rank_responsible, rows); // none without a row

    // This device's rows, of both arrays; the border must be in both.
    const std::vector<float> own = start_rows(job.process_index * rows, rows + 2);
    const std::size_t bytes = own.size() * sizeof(float);
    float *in = nullptr, *out = nullptr;
    for (float** array : {&in, &out}) {
        check(cudaMalloc(array, bytes));
        check(cudaMemcpy(*array, own.data(), bytes, cudaMemcpyHostToDevice));
    }
    const double milliseconds = runtime.run(run_steps, config, in, out);
    std::vector<float> result(own.size());
    check(cudaMemcpy(result.data(), steps % 2 == 0 ? in : out, bytes, cudaMemcpyDeviceToHost));
    check(cudaFree(in));
    check(cudaFree(out));

    // The same on the host, of the whole grid.
    const int all_rows = job.process_count * rows;
    std::vector<float> expected = start_rows(0, all_rows + 2), next = expected;
    for (int step = 0; step < steps; ++step, std::swap(expected, next))
        for (int row = 1; row <= all_rows; ++row)
            for (int x = 1; x <= columns; ++x) {
                const float* at = expected.data() + row * width + x;
                next[row * width + x] = 0.25f * (at[-1] + at[1] + at[-width] + at[width]);
            }
    // The halo rows too: they are what the neighbours sent last.
    if (!std::equal(result.begin(), result.end(), expected.begin() + job.process_index * rows * width)) {
        std::fprintf(stderr, "03_halo_exchange: process %d has wrong rows\n", job.process_index);
        return 1;
    }
    if (job.process_index == 0)
        std::printf("%d x %d points on %d devices with %d ranks each, %d steps in %.3f ms: correct\n", columns,
                    all_rows, job.process_count, config.ranks_per_device, steps, milliseconds);
    return 0;
} catch (const dcuda::error& problem) {
    std::fprintf(stderr, "03_halo_exchange: %s\n", problem.what());
    return 1;
}
