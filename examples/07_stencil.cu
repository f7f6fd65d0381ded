// SPDX-License-Identifier: BSD-3-Clause
// Lesson 7: three stencils that depend on each other, the horizontal diffusion of docs/guide/stencil.md on one level.
// Rows of a grid are divided over devices, those of a device over its ranks. A step has three parts; after each of them
// neighbours exchange a row, and wait for nobody else. benchmarks/case_studies/stencil is the same program, tuned.
//
//     dcuda-run -n 2 ./07_stencil
#include <dcuda/dcuda.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

constexpr int columns = 96, rows = 40; // of a device; the grid's two outermost rows and columns keep their values
constexpr int steps = 30;
constexpr double coefficient = 0.025;
constexpr double tolerance = 1e-10; // a GPU rounds a product and a sum at once, a CPU each

// --- The stencils, for ranks and for the host ------------------------------------------------------------------------

// Fields of the same rows. `first_row` is their first row's number in the grid, which has `grid_rows`.
struct fields {
    double *in, *lap, *flux_x, *flux_y;
    int first_row, grid_rows;
    int thread = 0, threads = 1; // who computes: each thread every so many columns

    // For the points of rows `first` to `last - 1` but not of the grid's `before` first rows and columns or its `after`
    // last ones, calls function(i) with the point's index.
    template <class Function>
    __host__ __device__ void for_points(int first, int last, int before, int after, Function function) const {
        for (int row = first; row < last; ++row)
            if (first_row + row >= before && first_row + row < grid_rows - after)
                for (int x = before + thread; x < columns - after; x += threads) function(row * columns + x);
    }
    __host__ __device__ void compute_lap(int first, int last) const {
        for_points(first, last, 1, 1,
                   [this](int i) { lap[i] = in[i - 1] + in[i + 1] + in[i - columns] + in[i + columns] - 4 * in[i]; });
    }
    __host__ __device__ double flux(int i, int next) const { // nothing flows up the slope
        const double flow = lap[next] - lap[i];
        return flow * (in[next] - in[i]) > 0 ? 0 : flow;
    }
    __host__ __device__ void compute_fluxes(int first, int last) const {
        for_points(first, last, 1, 2, [this](int i) {
            flux_x[i] = flux(i, i + 1);
            flux_y[i] = flux(i, i + columns);
        });
    }
    __host__ __device__ void update(int first, int last) const {
        for_points(first, last, 2, 2, [this](int i) {
            in[i] -= coefficient * (flux_x[i] - flux_x[i - 1] + flux_y[i] - flux_y[i - columns]);
        });
    }
};

// --- The kernel ------------------------------------------------------------------------------------------------------

enum tag : int { lap_from_below, flux_from_above, field_from_above, field_from_below };

// The device's rows are 1 to `rows`, with a halo row on either side.
__global__ void diffuse(dcuda::context context, fields device_fields) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    fields f = device_fields;
    f.thread = static_cast<int>(threadIdx.x);
    f.threads = static_cast<int>(blockDim.x);

    // This rank's rows, and its neighbours in the whole grid.
    const int local = self.id(dcuda::device), ranks = self.size(dcuda::device);
    const int first = 1 + rows * local / ranks, last = 1 + rows * (local + 1) / ranks;
    const int above = self.id() - 1, below = self.id() + 1;
    const int has_above = above >= 0 ? 1 : 0, has_below = below < self.size() ? 1 : 0;

    // Where they keep this rank's border rows: in the same array, so that nothing is copied and only the notification
    // is left, or in the halo of another device.
    const std::size_t row_bytes = columns * sizeof(double), bytes = (rows + 2) * row_bytes;
    const std::size_t place_above = row_bytes * (local > 0 ? first : rows + 1);
    const std::size_t place_below = row_bytes * (local + 1 < ranks ? last - 1 : 0);
    const dcuda::window in = self.create_window(dcuda::world, f.in, bytes);
    const dcuda::window lap = self.create_window(dcuda::world, f.lap, bytes);
    const dcuda::window flux = self.create_window(dcuda::world, f.flux_y, bytes);
    const auto send_up = [&](dcuda::window window, const double* field, int tag) {
        if (has_above) self.put_notify(window, above, place_above, row_bytes, field + first * columns, tag);
    };
    const auto send_down = [&](dcuda::window window, const double* field, int tag) {
        if (has_below) self.put_notify(window, below, place_below, row_bytes, field + (last - 1) * columns, tag);
    };

    // One array of each is enough: before a rank overwrites a border row, the neighbour that reads it has sent what it
    // made of that row, and the rank has waited for it.
    for (int step = 0; step < steps; ++step) {
        f.compute_lap(first, last);
        send_up(lap, f.lap, lap_from_below);
        self.wait_notifications(lap_from_below, has_below);
        f.compute_fluxes(first, last);
        send_down(flux, f.flux_y, flux_from_above);
        self.wait_notifications(flux_from_above, has_above);
        f.update(first, last);
        send_up(in, f.in, field_from_below);
        send_down(in, f.in, field_from_above);
        self.wait_notifications(field_from_above, has_above);
        self.wait_notifications(field_from_below, has_below);
    }
    for (const dcuda::window window : {flux, lap, in}) self.free_window(window);
}

// --- The host --------------------------------------------------------------------------------------------------------

double start_value(int row, int x) { return std::sin(0.31 * x + 0.17 * row) + std::cos(0.05 * x * row); }

// Fields of so many rows in this memory, one after the other.
fields fields_in(double* memory, int count, int first_row, int grid_rows) {
    const std::size_t points = static_cast<std::size_t>(count) * columns;
    return {memory, memory + points, memory + 2 * points, memory + 3 * points, first_row, grid_rows};
}
std::vector<double> start_fields(int count, int first_row) {
    std::vector<double> values(4 * static_cast<std::size_t>(count) * columns);
    for (int i = 0; i < count * columns; ++i) values[i] = start_value(first_row + i / columns, i % columns);
    return values;
}

int main(int argc, char** argv) try {
    dcuda::runtime runtime(argc, argv);
    dcuda::launch_config config{.threads = columns};
    const dcuda::rank_info job = runtime.plan(diffuse, config);
    config.ranks_per_device = std::min(job.rank_responsible, rows); // none without a row
    const int grid_rows = job.process_count * rows;
    const int halo_row = job.process_index * rows - 1; // the number in the grid of the device's first halo row

    std::vector<double> part = start_fields(rows + 2, halo_row);
    const std::size_t bytes = part.size() * sizeof(double);
    double* memory = nullptr;
    if (cudaMalloc(&memory, bytes) != cudaSuccess)
        throw dcuda::error(dcuda::error_code::out_of_resources, "no device memory");
    cudaMemcpy(memory, part.data(), bytes, cudaMemcpyHostToDevice);
    const double milliseconds = runtime.run(diffuse, config, fields_in(memory, rows + 2, halo_row, grid_rows));
    cudaMemcpy(part.data(), memory, bytes, cudaMemcpyDeviceToHost);
    cudaFree(memory);

    // The whole grid on the host.
    std::vector<double> expected = start_fields(grid_rows, 0);
    const fields grid = fields_in(expected.data(), grid_rows, 0, grid_rows);
    for (int step = 0; step < steps; ++step) {
        grid.compute_lap(0, grid_rows);
        grid.compute_fluxes(0, grid_rows);
        grid.update(0, grid_rows);
    }
    for (int i = columns; i < (rows + 1) * columns; ++i) {
        const double should = expected[halo_row * columns + i];
        if (std::abs(part[i] - should) <= tolerance) continue;
        std::fprintf(stderr, "07_stencil: row %d column %d is %g, not %g\n", halo_row + i / columns, i % columns,
                     part[i], should);
        return 1;
    }
    if (job.process_index == 0)
        std::printf("%d x %d points on %d devices with %d ranks each, %d steps in %.3f ms: correct\n", columns,
                    grid_rows, job.process_count, config.ranks_per_device, steps, milliseconds);
    return 0;
} catch (const dcuda::error& problem) {
    std::fprintf(stderr, "07_stencil: %s\n", problem.what());
    return 1;
}
