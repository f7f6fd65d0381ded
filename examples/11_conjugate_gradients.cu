// SPDX-License-Identifier: BSD-3-Clause
// Lesson 11: conjugate gradients for Poisson's equation on a grid, as in docs/guide/conjugate_gradients.md. Rows of the
// grid are divided over devices, those of a device over its ranks. A step needs two sums over the whole grid, and the
// second one says whether another step follows: ranks get them by allreduce, and no kernel ends.
//
//     dcuda-run -n 2 ./11_conjugate_gradients
#include <dcuda/dcuda.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

constexpr int columns = 64, rows = 48; // of a device; around the grid lies a border that is 0
constexpr int width = columns + 2;
constexpr int points = (rows + 2) * width; // of a device's vector: rows 1 to `rows`, and a halo row on either side
constexpr int threads = 64;
constexpr int most_steps = 2000;
constexpr double reduction = 1e-9; // the residual at the end, as a part of what it was
constexpr double tolerance = 1e-9; // of the solution's largest element: sums are made in another order

// What the matrix makes of the vector's element at this address.
__host__ __device__ double product_of(const double* at) { return 4 * at[0] - at[-1] - at[1] - at[-width] - at[width]; }

// --- The kernel ------------------------------------------------------------------------------------------------------

// A device's vectors: the solution, its residual, the direction of a step, and the matrix times the direction. Two
// directions take turns: a neighbour may still read one when the next one comes.
struct vectors {
    double *x, *r, *p[2], *q;
};
// How it ended: after so many steps, with this sum of the residual's squares.
struct outcome {
    int steps;
    double squares;
};

// All threads of the rank get the sum of their values. Before they call it again the block must have met, as it does in
// allreduce.
__device__ double sum_over_rank(double value) {
    __shared__ double partial[threads];
    partial[threadIdx.x] = value;
    for (int stride = threads / 2; stride > 0; stride /= 2) {
        __syncthreads();
        if (static_cast<int>(threadIdx.x) < stride) partial[threadIdx.x] += partial[threadIdx.x + stride];
    }
    __syncthreads();
    return partial[0];
}

enum tag : int { from_above, from_below };

__global__ void solve(dcuda::context context, vectors v, outcome* end) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);

    // This rank's rows, and its neighbours in the whole grid.
    const int local = self.id(dcuda::device), ranks = self.size(dcuda::device);
    const int first = 1 + rows * local / ranks, last = 1 + rows * (local + 1) / ranks;
    const int above = self.id() - 1, below = self.id() + 1;
    const bool has_above = above >= 0, has_below = below < self.size();

    // Where they keep this rank's border rows: in the same array, or in the halo of the next device's.
    const std::size_t row_bytes = width * sizeof(double), bytes = points * sizeof(double);
    const std::size_t place_above = row_bytes * (local > 0 ? first : rows + 1);
    const std::size_t place_below = row_bytes * (local + 1 < ranks ? last - 1 : 0);
    const dcuda::window windows[2] = {self.create_window(dcuda::world, v.p[0], bytes),
                                      self.create_window(dcuda::world, v.p[1], bytes)};

    // Calls function(i) with the index of each of this rank's points: a point always by the same thread.
    const auto for_points = [&](auto function) {
        for (int row = first; row < last; ++row)
            for (int x = 1 + static_cast<int>(threadIdx.x); x <= columns; x += threads) function(row * width + x);
    };
    // The sum of function(i) over all points of all devices. A rank has one value in an allreduce, not one per thread.
    const auto sum_over_grid = [&](auto function) {
        double sum = 0;
        for_points([&](int i) { sum += function(i); });
        return self.allreduce(dcuda::world, sum_over_rank(sum), dcuda::sum{});
    };

    // The sums have the same bits on all ranks, so all of them leave the loop after the same step.
    double squares = sum_over_grid([&](int i) { return v.r[i] * v.r[i]; });
    const double enough = reduction * reduction * squares;
    int step = 0;
    for (; step < most_steps && squares > enough; ++step) {
        const double* const p = v.p[step % 2];
        double* const next = v.p[(step + 1) % 2];
        const dcuda::window window = windows[step % 2];
        if (has_above) self.put_notify(window, above, place_above, row_bytes, p + first * width, from_below);
        if (has_below) self.put_notify(window, below, place_below, row_bytes, p + (last - 1) * width, from_above);
        self.wait_notifications(from_above, has_above ? 1 : 0);
        self.wait_notifications(from_below, has_below ? 1 : 0);

        const double curvature = sum_over_grid([&](int i) {
            v.q[i] = product_of(p + i);
            return p[i] * v.q[i];
        });
        const double before = squares, length = before / curvature;
        squares = sum_over_grid([&](int i) {
            v.x[i] += length * p[i];
            v.r[i] -= length * v.q[i];
            return v.r[i] * v.r[i];
        });
        for_points([&](int i) { next[i] = v.r[i] + squares / before * p[i]; });
    }
    if (local == 0 && threadIdx.x == 0) *end = {step, squares};
    for (const dcuda::window window : windows) self.free_window(window);
}

// --- The host --------------------------------------------------------------------------------------------------------

// The right side: some value of every point.
double right_side(int row, int x) { return (row * 37 + x * 11) % 101 / 101.0; }

std::vector<double> right_side_of(int first_row, int count) {
    std::vector<double> values(static_cast<std::size_t>(count + 2) * width);
    for (int row = 1; row <= count; ++row)
        for (int x = 1; x <= columns; ++x) values[row * width + x] = right_side(first_row + row, x);
    return values;
}

struct solution {
    std::vector<double> x;
    outcome end;
};

// The same on the host, of so many rows.
solution solve_serially(int count) {
    std::vector<double> r = right_side_of(0, count), p = r, q(r.size()), x(r.size());
    const auto for_points = [&](auto function) {
        for (int row = 1; row <= count; ++row)
            for (int i = row * width + 1; i <= row * width + columns; ++i) function(i);
    };
    double squares = 0;
    for_points([&](int i) { squares += r[i] * r[i]; });
    const double enough = reduction * reduction * squares;
    int step = 0;
    for (; step < most_steps && squares > enough; ++step) {
        double curvature = 0;
        for_points([&](int i) { curvature += p[i] * (q[i] = product_of(&p[i])); });
        const double before = squares, length = before / curvature;
        squares = 0;
        for_points([&](int i) {
            x[i] += length * p[i];
            r[i] -= length * q[i];
            squares += r[i] * r[i];
        });
        for_points([&](int i) { p[i] = r[i] + squares / before * p[i]; });
    }
    return {x, {step, squares}};
}

template <class Item>
Item* allocate(std::size_t count) {
    Item* memory = nullptr;
    if (cudaMalloc(&memory, count * sizeof(Item)) != cudaSuccess)
        throw dcuda::error(dcuda::error_code::out_of_resources, "no device memory");
    return memory;
}

int main(int argc, char** argv) try {
    dcuda::runtime runtime(argc, argv);
    dcuda::launch_config config{.threads = threads};
    dcuda::rank_info job = runtime.plan(solve, config);
    config.ranks_per_device = std::min(job.rank_responsible, rows); // none without a row
    job = runtime.plan(solve, config);
    const int first_row = job.process_index * rows, all_rows = job.process_count * rows;

    const auto vector = [] { return allocate<double>(points); };
    const vectors v{vector(), vector(), {vector(), vector()}, vector()};
    outcome* const device_end = allocate<outcome>(1);

    // From 0, where the right side is the residual and the first direction. Two runs must end with the same bits.
    const std::vector<double> zero(points), start = right_side_of(first_row, rows);
    constexpr std::size_t bytes = points * sizeof(double);
    double milliseconds = 0;
    solution found[2];
    for (solution& each : found) {
        for (double* field : {v.x, v.p[1], v.q}) cudaMemcpy(field, zero.data(), bytes, cudaMemcpyHostToDevice);
        for (double* field : {v.r, v.p[0]}) cudaMemcpy(field, start.data(), bytes, cudaMemcpyHostToDevice);
        milliseconds = runtime.run(solve, config, v, device_end);
        each.x.resize(points);
        cudaMemcpy(each.x.data(), v.x, bytes, cudaMemcpyDeviceToHost);
        cudaMemcpy(&each.end, device_end, sizeof each.end, cudaMemcpyDeviceToHost);
    }
    for (double* field : {v.x, v.r, v.p[0], v.p[1], v.q}) cudaFree(field);
    cudaFree(device_end);

    const auto& [x, end] = found[0];
    if (found[1].x != x || found[1].end.steps != end.steps || found[1].end.squares != end.squares) {
        std::fprintf(stderr, "11_conjugate_gradients: process %d: the second run has other bits\n", job.process_index);
        return 1;
    }
    const solution expected = solve_serially(all_rows);
    const double largest = *std::max_element(expected.x.begin(), expected.x.end());
    bool correct = end.steps == expected.end.steps && end.steps < most_steps;
    for (int i = width; i < points - width; ++i)
        correct = correct && std::abs(x[i] - expected.x[first_row * width + i]) <= tolerance * largest;
    if (!correct) {
        std::fprintf(stderr, "11_conjugate_gradients: process %d took %d steps, not %d, or has a wrong solution\n",
                     job.process_index, end.steps, expected.end.steps);
        return 1;
    }
    if (job.process_index == 0)
        std::printf("%d x %d points on %d ranks, %d steps in %.3f ms: correct, twice with the same bits\n", columns,
                    all_rows, job.rank_count, end.steps, milliseconds);
    return 0;
} catch (const dcuda::error& problem) {
    std::fprintf(stderr, "11_conjugate_gradients: %s\n", problem.what());
    return 1;
}
