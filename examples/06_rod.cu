// SPDX-License-Identifier: BSD-3-Clause
// Lesson 6: looking into a program that hangs. Heat flows along a rod of cells; every step each cell becomes the mean
// of itself and its two neighbours. A rank has a part of the rod and exchanges its border cells.
//
//     dcuda-run -n 2 ./06_rod          all steps
//     dcuda-run -n 2 ./06_rod hasty    hangs: docs/guide/watching.md finds out why
#include <dcuda/dcuda.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

constexpr int cells = 64; // of a rank, and a halo cell on either side
constexpr int width = cells + 2;
constexpr int steps = 2000;
constexpr float small_change = 1e-4f;

// --- The kernel ------------------------------------------------------------------------------------------------------

enum tag : int { from_left = 1, from_right = 2 };

// rods: two copies of every rank's part; a step reads one and writes the other.
__global__ void run_steps(dcuda::context context, float* rods, bool hasty) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const bool has_left = self.id() > 0, has_right = self.id() + 1 < self.size();
    float* const own = rods + self.id(dcuda::device) * 2 * width;
    const dcuda::window window = self.create_window(dcuda::world, own, 2 * width * sizeof(float));

    for (int step = 0; step < steps; ++step) {
        const float* const now = own + step % 2 * width;
        float* const next = own + (step + 1) % 2 * width;
        const int i = 1 + static_cast<int>(threadIdx.x);
        next[i] = (now[i - 1] + now[i] + now[i + 1]) / 3;
        const bool moves = __syncthreads_or(std::abs(next[i] - now[i]) > small_change) != 0;
        if (hasty && !moves) break; // nothing happens here any more

        const std::size_t halo = (step + 1) % 2 * width * sizeof(float);
        if (has_left)
            self.put_notify(window, self.id() - 1, halo + (width - 1) * sizeof(float), sizeof(float), next + 1,
                            from_right);
        if (has_right) self.put_notify(window, self.id() + 1, halo, sizeof(float), next + cells, from_left);
        self.wait_notifications(from_left, has_left ? 1 : 0);
        self.wait_notifications(from_right, has_right ? 1 : 0);
    }
    self.free_window(window);
}

// --- The host --------------------------------------------------------------------------------------------------------

// Uneven everywhere; the ends of the rod keep theirs.
float start_value(int cell) { return static_cast<float>(cell * 37 % 101) / 100; }

void check(cudaError_t result) {
    if (result == cudaSuccess) return;
    std::fprintf(stderr, "06_rod: %s\n", cudaGetErrorString(result));
    std::exit(1);
}

int main(int argc, char** argv) try {
    dcuda::runtime runtime(argc, argv);
    const bool hasty = argc > 1 && std::strcmp(argv[1], "hasty") == 0;
    dcuda::launch_config config{.threads = cells};
    dcuda::rank_info job = runtime.plan(run_steps, config);
    config.ranks_per_device = std::min(job.rank_responsible, 16);
    job = runtime.plan(run_steps, config);

    std::vector<float> parts;
    for (int rank = job.rank_start; rank < job.rank_start + job.rank_responsible; ++rank)
        for (int copy = 0; copy < 2; ++copy)
            for (int i = 0; i < width; ++i) parts.push_back(start_value(rank * cells + i));
    float* rods = nullptr;
    check(cudaMalloc(&rods, parts.size() * sizeof(float)));
    check(cudaMemcpy(rods, parts.data(), parts.size() * sizeof(float), cudaMemcpyHostToDevice));
    const double milliseconds = runtime.run(run_steps, config, rods, hasty);
    check(cudaMemcpy(parts.data(), rods, parts.size() * sizeof(float), cudaMemcpyDeviceToHost));
    check(cudaFree(rods));

    // The whole rod on the host.
    const int all = job.rank_count * cells;
    std::vector<float> expected, next;
    for (int i = 0; i < all + 2; ++i) expected.push_back(start_value(i));
    next = expected;
    for (int step = 0; step < steps; ++step, std::swap(expected, next))
        for (int i = 1; i <= all; ++i) next[i] = (expected[i - 1] + expected[i] + expected[i + 1]) / 3;
    for (int i = 0; i < job.rank_responsible * cells; ++i) {
        const float is = parts[(i / cells * 2 + steps % 2) * width + 1 + i % cells];
        const float should = expected[job.rank_start * cells + 1 + i];
        if (std::abs(is - should) <= 1e-6f) continue;
        std::fprintf(stderr, "06_rod: cell %d is %g, not %g\n", job.rank_start * cells + i, is, should);
        return 1;
    }
    if (job.process_index == 0)
        std::printf("%d cells on %d ranks, %d steps in %.3f ms: correct\n", all, job.rank_count, steps, milliseconds);
    return 0;
} catch (const dcuda::error& problem) {
    std::fprintf(stderr, "06_rod: %s\n", problem.what());
    return 1;
}
