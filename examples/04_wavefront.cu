// SPDX-License-Identifier: BSD-3-Clause
// Lesson 4: a wavefront. Rows of a field lie on the ranks from top to bottom, and each row needs the one above it, as
// it is after the sweep. So a rank must wait for the rank above; but with some columns it can begin as soon as those
// have come. docs/guide/tracing.md finds the right number of pieces with a timeline.
//
//     dcuda-run --trace wave.json ./04_wavefront [pieces]
#include <dcuda/dcuda.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

constexpr int columns = 4096, rows = 64; // of a rank
constexpr int most_ranks = 8;            // of a device

// Some work that needs what comes from above; mistakes show.
__host__ __device__ inline std::uint32_t update(std::uint32_t above, std::uint32_t own) {
    for (int i = 0; i < 16; ++i) own = own * 1664525u + above;
    return own;
}

// field: of each rank of the device a row for what comes from above, then its rows.
__global__ void sweep(dcuda::context context, std::uint32_t* field, int pieces) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int id = self.id(), last = self.size() - 1, width = columns / pieces;
    std::uint32_t* const above = field + (rows + 1) * columns * self.id(dcuda::device);
    const std::uint32_t* const bottom = above + rows * columns;
    const dcuda::window window = self.create_window(dcuda::world, above, columns * sizeof(std::uint32_t));

    for (int piece = 0; piece < pieces; ++piece) {
        const int begin = piece * width;
        if (id != 0) self.wait_notifications(/*tag*/ 0, 1); // those of one source come in order
        {
            auto work = self.range("piece", piece);
            for (int x = begin + static_cast<int>(threadIdx.x); x < begin + width; x += static_cast<int>(blockDim.x))
                for (int row = 1; row <= rows; ++row) {
                    std::uint32_t* const at = above + row * columns + x;
                    *at = update(at[-columns], *at);
                }
        }
        const std::size_t bytes = static_cast<std::size_t>(width) * sizeof(std::uint32_t);
        if (id != last)
            self.put_notify(window, id + 1, bytes * static_cast<std::size_t>(piece), bytes, bottom + begin, 0);
    }
    self.free_window(window);
}

// What a point is before the sweep.
std::uint32_t start_value(std::size_t row, int x) {
    return static_cast<std::uint32_t>(row) * 2654435761u ^ static_cast<std::uint32_t>(x);
}

int main(int argc, char** argv) try {
    dcuda::runtime runtime(argc, argv);
    const int pieces = argc > 1 ? std::atoi(argv[1]) : 16;
    if (pieces < 1 || columns % pieces != 0) {
        std::fprintf(stderr, "04_wavefront: pieces must divide %d\n", columns);
        return 2;
    }
    dcuda::launch_config config{.threads = 64};
    config.ranks_per_device = std::min(runtime.plan(sweep, config).rank_responsible, most_ranks);
    const dcuda::rank_info job = runtime.plan(sweep, config);

    // The rows of this device's ranks, each rank's behind a row of zeros.
    const auto count = static_cast<std::size_t>(job.rank_responsible);
    std::vector<std::uint32_t> ours(count * (rows + 1) * columns);
    for (std::size_t rank = 0; rank < count; ++rank)
        for (std::size_t row = 1; row <= rows; ++row)
            for (int x = 0; x < columns; ++x)
                ours[(rank * (rows + 1) + row) * columns + static_cast<std::size_t>(x)] =
                    start_value((static_cast<std::size_t>(job.rank_start) + rank) * rows + row, x);
    std::uint32_t* field = nullptr;
    const std::size_t bytes = ours.size() * sizeof(std::uint32_t);
    if (cudaMalloc(&field, bytes) != cudaSuccess ||
        cudaMemcpy(field, ours.data(), bytes, cudaMemcpyHostToDevice) != cudaSuccess)
        throw dcuda::error(dcuda::error_code::out_of_resources, "no device memory");
    const double milliseconds = runtime.run(sweep, config, field, pieces);
    if (cudaMemcpy(ours.data(), field, bytes, cudaMemcpyDeviceToHost) != cudaSuccess)
        throw dcuda::error(dcuda::error_code::cuda_failure, "the field cannot be copied");
    cudaFree(field);

    // The same on the host, column by column from the top.
    const std::size_t first = static_cast<std::size_t>(job.rank_start) * rows, end = first + count * rows;
    for (int x = 0; x < columns; ++x) {
        std::uint32_t above = 0;
        for (std::size_t row = 0; row < end; ++row) {
            above = update(above, start_value(row + 1, x));
            if (row < first) continue;
            const std::size_t place = (row - first) / rows * (rows + 1) + 1 + (row - first) % rows;
            if (ours[place * columns + static_cast<std::size_t>(x)] == above) continue;
            std::fprintf(stderr, "04_wavefront: row %zu is wrong in column %d\n", row, x);
            return 1;
        }
    }
    if (job.process_index == 0)
        std::printf("%d ranks, %d pieces, %.3f ms: correct\n", job.rank_count, pieces, milliseconds);
    return 0;
} catch (const dcuda::error& problem) {
    std::fprintf(stderr, "04_wavefront: %s\n", problem.what());
    return 1;
}
