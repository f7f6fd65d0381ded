// SPDX-License-Identifier: BSD-3-Clause
// Lesson 16: what is not contiguous. A matrix of all ranks is transposed: each has some rows of it, and puts the part
// of them that belongs to another rank there by one call, as a box, whose elements lie the other way round at the
// target.
//
//     dcuda-run -n 2 ./16_transpose
#include <dcuda/dcuda.hpp>

#include <cstdio>
#include <vector>

constexpr std::size_t order = 500; // rows, and columns

// Which rows of a matrix a rank has: from first_of(rank) to first_of(rank + 1).
DCUDA_HOST_DEVICE std::size_t first_of(int rank, int ranks) {
    return order * static_cast<std::size_t>(rank) / static_cast<std::size_t>(ranks);
}

// The rows of this device, of both matrices, begin at `matrix` and `transposed`.
__global__ void transpose(dcuda::context context, const double* matrix, double* transposed) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), first_rank = self.id() - self.id(dcuda::device);
    const std::size_t first = first_of(self.id(), ranks), rows = first_of(self.id() + 1, ranks) - first;
    const std::size_t before = (first - first_of(first_rank, ranks)) * order; // elements of this device's ranks before
    const dcuda::window win = self.create_window(dcuda::world, transposed + before, rows * order * sizeof(double));

    // Element (i, j) of the rank's rows goes to (j, i). Rows of the box are single elements.
    constexpr std::size_t element = sizeof(double), line = order * element;
    constexpr dcuda::pitch here{.row_bytes = line, .slice_bytes = element};
    constexpr dcuda::pitch there{.row_bytes = element, .slice_bytes = line};
    for (int step = 0; step < ranks; ++step) { // each rank begins with another target
        const int target = (self.id() + step) % ranks;
        const std::size_t column = first_of(target, ranks), columns = first_of(target + 1, ranks) - column;
        const dcuda::box part{.width_bytes = element, .height = rows, .depth = columns};
        self.put_notify(win, target, first * element, there, part, matrix + before + column, here, 0);
    }
    self.wait_notifications(0, ranks); // what all have put
    self.free_window(win);
}

int main(int argc, char** argv) try {
    dcuda::runtime runtime(argc, argv);
    dcuda::launch_config config{.threads = 64};
    dcuda::rank_info info = runtime.plan(transpose, config);
    if (info.rank_count > static_cast<int>(order)) { // no rank is without a row
        config.ranks_per_device = static_cast<int>(order) / info.process_count;
        info = runtime.plan(transpose, config);
    }
    const std::size_t first = first_of(info.rank_start, info.rank_count);
    const std::size_t rows = first_of(info.rank_start + info.rank_responsible, info.rank_count) - first;

    std::vector<double> matrix(rows * order + 1);
    for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < order; ++j) matrix[i * order + j] = static_cast<double>((first + i) * order + j);
    const std::size_t bytes = matrix.size() * sizeof(double);
    double* memory = nullptr;
    if (cudaMalloc(&memory, 2 * bytes) != cudaSuccess ||
        cudaMemcpy(memory, matrix.data(), bytes, cudaMemcpyHostToDevice) != cudaSuccess)
        throw dcuda::error(dcuda::error_code::out_of_resources, "no device memory");
    const double milliseconds = runtime.run(transpose, config, memory, memory + matrix.size());
    if (cudaMemcpy(matrix.data(), memory + matrix.size(), bytes, cudaMemcpyDeviceToHost) != cudaSuccess)
        throw dcuda::error(dcuda::error_code::device_fault, "the matrix cannot be read");
    cudaFree(memory);

    bool is_right = true;
    for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < order; ++j)
            is_right = is_right && matrix[i * order + j] == static_cast<double>(j * order + first + i);
    for (const int of_process : runtime.gather(is_right ? 1 : 0))
        is_right = is_right && of_process == 1; // on process 0
    if (info.process_index != 0) return is_right ? 0 : 1;
    std::printf("%s: a matrix of order %zu by %d ranks, %.3f ms\n", is_right ? "right" : "WRONG", order,
                info.rank_count, milliseconds);
    return is_right ? 0 : 1;
} catch (const dcuda::error& problem) {
    std::fprintf(stderr, "16_transpose: %s\n", problem.what());
    return 1;
}
