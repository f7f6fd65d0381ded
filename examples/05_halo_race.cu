// SPDX-License-Identifier: BSD-3-Clause
// Lesson 5: a mistake that a GPU forgives, and how the protocol checker finds it. A bar of metal is divided over the
// ranks; every step each point becomes the mean of its neighbours, and ranks exchange their border points.
// docs/guide/checker.md tells the story.
//
//     dcuda-run -n 2 ./05_halo_race                               two halos in turn: right
//     DCUDA_CHECK=1 dcuda-run -n 2 ./05_halo_race --one-halo      one halo: wrong, and nobody sees it
#include <dcuda/dcuda.hpp>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <vector>

constexpr int points = 512; // of each rank
constexpr int steps = 40;

enum tag : int { from_left, from_right };

// A rank's memory: its points, twice, and what its neighbours send: a halo, left and right, for each turn.
struct bar {
    double field[2][points];
    double halo[2][2];
};

__host__ __device__ double start_value(int i) { return i * 37 % 101; }

__global__ void diffuse(dcuda::context context, bar* bars, int halos) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    bar& own = bars[self.id(dcuda::device)];
    const int left = self.id() - 1, right = self.id() + 1;
    const bool has_left = left >= 0, has_right = right < self.size();
    for (int i = threadIdx.x; i < points; i += blockDim.x) own.field[0][i] = start_value(self.id() * points + i);

    const dcuda::window win = self.create_window(dcuda::world, &own, sizeof own);
    for (int step = 0; step < steps; ++step) {
        const double* const in = own.field[step % 2];
        double* const out = own.field[1 - step % 2];
        const int turn = step % halos;
        const auto place = [&](int side) { return offsetof(bar, halo) + (2 * turn + side) * sizeof(double); };
        if (has_left) self.put_notify(win, left, place(1), sizeof(double), &in[0], from_right);
        if (has_right) self.put_notify(win, right, place(0), sizeof(double), &in[points - 1], from_left);
        self.wait_notifications(from_left, has_left ? 1 : 0);
        self.wait_notifications(from_right, has_right ? 1 : 0);

        const double* const halo = own.halo[turn];
        for (int i = threadIdx.x; i < points; i += blockDim.x) {
            const double before = i > 0 ? in[i - 1] : has_left ? halo[0] : in[0];
            const double after = i + 1 < points ? in[i + 1] : has_right ? halo[1] : in[i];
            out[i] = 0.25 * before + 0.5 * in[i] + 0.25 * after;
        }
        __syncthreads();
    }
    self.flush(win);
    self.free_window(win);
}

// What one rank after the other computes.
std::vector<double> reference(int ranks) {
    std::vector<double> in(static_cast<std::size_t>(ranks) * points), out(in.size());
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = start_value(static_cast<int>(i));
    for (int step = 0; step < steps; ++step, in.swap(out))
        for (std::size_t i = 0; i < in.size(); ++i)
            out[i] = 0.25 * in[i > 0 ? i - 1 : i] + 0.5 * in[i] + 0.25 * in[i + 1 < in.size() ? i + 1 : i];
    return in;
}

int main(int argc, char** argv) try {
    dcuda::runtime runtime(argc, argv);
    const int halos = argc > 1 && std::strcmp(argv[1], "--one-halo") == 0 ? 1 : 2;
    const dcuda::launch_config config{.threads = dim3(64)};
    const dcuda::rank_info info = runtime.plan(diffuse, config);
    const auto ranks = static_cast<std::size_t>(info.rank_responsible);

    void* memory = nullptr;
    if (cudaMalloc(&memory, ranks * sizeof(bar)) != cudaSuccess)
        throw dcuda::error(dcuda::error_code::out_of_resources, "no device memory");
    runtime.run(diffuse, config, static_cast<bar*>(memory), halos);
    std::vector<bar> bars(ranks);
    if (cudaMemcpy(bars.data(), memory, ranks * sizeof(bar), cudaMemcpyDeviceToHost) != cudaSuccess)
        throw dcuda::error(dcuda::error_code::cuda_failure, "the bars cannot be copied");
    cudaFree(memory);

    const std::vector<double> expected = reference(info.rank_count);
    std::size_t wrong = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank)
        for (std::size_t i = 0; i < points; ++i) {
            const std::size_t place = (static_cast<std::size_t>(info.rank_start) + rank) * points + i;
            const double difference = bars[rank].field[steps % 2][i] - expected[place];
            if (difference > 1e-9 || difference < -1e-9) ++wrong;
        }
    std::printf("process %d: %zu of %zu points are wrong\n", info.process_index, wrong, ranks * points);
    return wrong == 0 ? 0 : 1;
} catch (const dcuda::error& problem) {
    std::fprintf(stderr, "05_halo_race: %s\n", problem.what());
    return 1;
}
