// SPDX-License-Identifier: BSD-3-Clause
// Lesson 9: a sparse matrix times a vector on a grid of devices, as in docs/guide/spmv.md. Each device has a block of
// the matrix. The vector's parts start in the grid's first row of devices and go down its columns; the products are
// added along its rows, and end in the first column. Both go along trees, between ranks of the same number on their
// devices. benchmarks/case_studies/sparse is the same program, tuned.
//
//     dcuda-run -n 4 ./09_spmv
#include <dcuda/dcuda.hpp>

#include <algorithm>
#include <cstdio>
#include <vector>

constexpr int size = 128;     // rows and columns of a device's block
constexpr int row_stride = 3; // a row has an entry in every third to fifth column
constexpr int repetitions = 5;

// Whole numbers, so that sums are the same in any order.
__host__ __device__ int next_column(int row, int column) { return column + row_stride + (row * 7 + column) % 3; }
__host__ __device__ double entry(int row, int column) { return (row * 31 + column * 17) % 9 - 4; }
__host__ __device__ double element(int column) { return column * 13 % 11 - 5; }

// A place in a tree: the parent is at (place - 1) / 2, the children at 2 place + 1 and 2 place + 2.
struct tree {
    int place, places;
    __host__ __device__ int child(int i) const { return 2 * place + 1 + i; }
    __host__ __device__ bool has_child(int i) const { return child(i) < places; }
};

// The grid of devices, which are numbered column by column.
struct grid {
    int rows, columns;
    __host__ __device__ int row_of(int device) const { return device % rows; }
    __host__ __device__ int column_of(int device) const { return device / rows; }
    __host__ __device__ int device_at(int row, int column) const { return column * rows + row; }
};

// --- The kernel ------------------------------------------------------------------------------------------------------

// The memory of a device, which is the window of all its ranks.
struct block {
    double vector[size], products[size], received[2][size]; // received: of each child in the row
    int starts[size + 1];                                   // of each row, the first of its entries
    int columns[size * size / row_stride + size];           // of the entries, in the block
    double values[size * size / row_stride + size];
};

enum tag : int { vector_part, products_of_child }; // plus the child's number

__global__ void multiply(dcuda::context context, grid devices, block* device_block) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    block& here = *device_block;
    const dcuda::window window = self.create_window(dcuda::world, &here, sizeof here);

    // This rank has rows of the block, and as many elements of the vector.
    const int local = self.id(dcuda::device), ranks = self.size(dcuda::device), device = self.id() / ranks;
    const int first = size * local / ranks, last = size * (local + 1) / ranks;
    const std::size_t place = first * sizeof(double), bytes = (last - first) * sizeof(double);
    const int row = devices.row_of(device), column = devices.column_of(device);
    const tree down{row, devices.rows}, along{column, devices.columns};
    const auto rank_of = [&](int other) { return other * ranks + local; }; // on another device

    for (int repetition = 0; repetition < repetitions; ++repetition) {
        if (row > 0) self.wait_notifications(vector_part, 1);
        for (int i = 0; i < 2; ++i)
            if (down.has_child(i))
                self.put_notify(window, rank_of(devices.device_at(down.child(i), column)),
                                offsetof(block, vector) + place, bytes, here.vector + first, vector_part);
        self.barrier(dcuda::device); // now all parts of the vector are here

        for (int i = first + static_cast<int>(threadIdx.x); i < last; i += static_cast<int>(blockDim.x)) {
            double sum = 0;
            for (int k = here.starts[i]; k < here.starts[i + 1]; ++k)
                sum += here.values[k] * here.vector[here.columns[k]];
            here.products[i] = sum;
        }
        for (int child = 0; child < 2; ++child) {
            if (!along.has_child(child)) continue;
            self.wait_notifications(products_of_child + child, 1);
            for (int i = first + static_cast<int>(threadIdx.x); i < last; i += static_cast<int>(blockDim.x))
                here.products[i] += here.received[child][i];
        }
        if (column > 0)
            self.put_notify(window, rank_of(devices.device_at(row, (column - 1) / 2)),
                            offsetof(block, received) + (column - 1) % 2 * sizeof here.received[0] + place, bytes,
                            here.products + first, products_of_child + (column - 1) % 2);
        self.barrier(dcuda::world); // nothing of the next product comes before everybody has used this one's
    }
    self.free_window(window);
}

// --- The host --------------------------------------------------------------------------------------------------------

// Calls function(column, value) for each entry of a row of the matrix.
template <class Function>
void for_entries(int row, int column_count, Function function) {
    for (int column = row % row_stride; column < column_count; column = next_column(row, column))
        function(column, entry(row, column));
}

int main(int argc, char** argv) try {
    dcuda::runtime runtime(argc, argv);
    dcuda::launch_config config{.threads = 64};
    const dcuda::rank_info job = runtime.plan(multiply, config);
    config.ranks_per_device = std::min(job.rank_responsible, size); // none without a row
    grid devices{job.process_count, 1};
    for (int columns = 2; columns * columns <= job.process_count; ++columns)
        if (job.process_count % columns == 0) devices = {job.process_count / columns, columns};
    const int first_row = devices.row_of(job.process_index) * size;
    const int first_column = devices.column_of(job.process_index) * size;

    std::vector<block> host_block(1);
    block& part = host_block[0];
    int entries = 0;
    for (int row = 0; row < size; ++row) {
        if (first_row == 0) part.vector[row] = element(first_column + row);
        part.starts[row] = entries;
        for_entries(first_row + row, devices.columns * size, [&](int column, double value) {
            if (column < first_column || column >= first_column + size) return;
            part.columns[entries] = column - first_column;
            part.values[entries++] = value;
        });
    }
    part.starts[size] = entries;

    block* memory = nullptr;
    if (cudaMalloc(&memory, sizeof(block)) != cudaSuccess)
        throw dcuda::error(dcuda::error_code::out_of_resources, "no device memory");
    cudaMemcpy(memory, &part, sizeof(block), cudaMemcpyHostToDevice);
    const double milliseconds = runtime.run(multiply, config, devices, memory);
    cudaMemcpy(&part, memory, sizeof(block), cudaMemcpyDeviceToHost);
    cudaFree(memory);

    // Devices of the first column have the result.
    for (int row = 0; first_column == 0 && row < size; ++row) {
        double expected = 0;
        for_entries(first_row + row, devices.columns * size,
                    [&](int column, double value) { expected += value * element(column); });
        if (part.products[row] == expected) continue;
        std::fprintf(stderr, "09_spmv: row %d is %g, not %g\n", first_row + row, part.products[row], expected);
        return 1;
    }
    if (job.process_index == 0)
        std::printf("%d x %d matrix on %d x %d devices with %d ranks each, %d products in %.3f ms: correct\n",
                    devices.rows * size, devices.columns * size, devices.rows, devices.columns, config.ranks_per_device,
                    repetitions, milliseconds);
    return 0;
} catch (const dcuda::error& problem) {
    std::fprintf(stderr, "09_spmv: %s\n", problem.what());
    return 1;
}
