// SPDX-License-Identifier: BSD-3-Clause
// Lesson 10: the largest eigenvalue of a sparse matrix by power iteration, as in docs/guide/power_iteration.md. Rows
// are divided over devices, those of a device over its ranks. Every rank gives its part of the product to all devices,
// and makes the next vector of what all have given: no host, and no end of a kernel, stands between two iterations.
// benchmarks/case_studies/sparse has a program for larger matrices, tuned.
//
//     dcuda-run -n 2 ./10_power_iteration
#include <dcuda/dcuda.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

constexpr int rows = 16;   // of a rank
constexpr int entries = 6; // of a row: the diagonal, and others anywhere
constexpr int iterations = 40;
constexpr double tolerance = 1e-10; // a GPU rounds a product and a sum at once, a CPU each

// One row of the matrix times a vector. Entries are positive, so that one eigenvalue is larger than all others.
__host__ __device__ double product_of(const double* vector, int row, int size) {
    double sum = 0;
    for (int i = 0; i < entries; ++i) {
        const int column = (row + i * i * (row % 7 + 3)) % size, value = 1 + (row * 5 + i * 3) % 4;
        sum += value * vector[column];
    }
    return sum;
}

// --- The kernel ------------------------------------------------------------------------------------------------------

// What a rank gives of a product: its rows, and the sum of their squares.
struct part {
    double products[rows], squares;
};
// A device has two products, each of all ranks' parts, which take turns: one is read while the next one arrives.
struct products {
    part* parts[2];
};
enum tag : int { part_arrived }; // plus 0 or 1 in turn: a device may be one iteration ahead of another

// lengths: of each product that the device's first rank has seen.
__global__ void iterate(dcuda::context context, products device_products, double* lengths) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(dcuda::device), size = self.size() * rows;
    const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
    double* const vector = dcuda::dynamic_shared<double>(); // of length 1
    dcuda::window windows[2];
    for (int i = 0; i < 2; ++i)
        windows[i] = self.create_window(dcuda::world, device_products.parts[i], self.size() * sizeof(part));

    for (int iteration = 0; iteration < iterations; ++iteration) {
        const part* const before = device_products.parts[iteration % 2];
        double squares = 0;
        for (int rank = 0; rank < self.size(); ++rank) squares += before[rank].squares;
        const double length = std::sqrt(squares);
        for (int i = thread; i < size; i += threads) vector[i] = before[i / rows].products[i % rows] / length;
        if (self.id(dcuda::device) == 0 && thread == 0) lengths[iteration] = length;
        __syncthreads();

        const int next = (iteration + 1) % 2;
        part& own = device_products.parts[next][self.id()];
        for (int i = thread; i < rows; i += threads) own.products[i] = product_of(vector, self.id() * rows + i, size);
        __syncthreads();
        if (thread == 0) {
            own.squares = 0;
            for (const double product : own.products) own.squares += product * product;
        }
        __syncthreads();

        // The part goes to one rank of each device, of the same number there; to this rank itself nothing is copied.
        // After the barrier all parts are on this device, and nobody, here or elsewhere, reads the product before.
        for (int rank = self.id(dcuda::device); rank < self.size(); rank += ranks)
            self.put_notify(windows[next], rank, self.id() * sizeof(part), sizeof(part), &own, part_arrived + next);
        self.wait_notifications(part_arrived + next, self.size() / ranks);
        self.barrier(dcuda::device);
    }
    for (const dcuda::window window : windows) self.free_window(window);
}

// --- The host --------------------------------------------------------------------------------------------------------

template <class Item>
Item* allocate(std::size_t count) {
    Item* memory = nullptr;
    if (cudaMalloc(&memory, count * sizeof(Item)) != cudaSuccess)
        throw dcuda::error(dcuda::error_code::out_of_resources, "no device memory");
    return memory;
}

int main(int argc, char** argv) try {
    dcuda::runtime runtime(argc, argv);
    dcuda::launch_config config{.threads = 64};
    dcuda::rank_info job = runtime.plan(iterate, config);
    config.ranks_per_device = std::min(job.rank_responsible, 16); // each makes the whole vector
    job = runtime.plan(iterate, config);
    const int size = job.rank_count * rows;
    config.shared_bytes = size * sizeof(double);

    part start{};
    for (double& element : start.products) element = 1;
    start.squares = rows;
    std::vector<part> parts(job.rank_count, start);
    const std::size_t bytes = parts.size() * sizeof(part);
    const products memory{{allocate<part>(parts.size()), allocate<part>(parts.size())}};
    double* const device_lengths = allocate<double>(iterations);
    cudaMemcpy(memory.parts[0], parts.data(), bytes, cudaMemcpyHostToDevice);
    const double milliseconds = runtime.run(iterate, config, memory, device_lengths);
    std::vector<double> lengths(iterations);
    cudaMemcpy(parts.data(), memory.parts[iterations % 2], bytes, cudaMemcpyDeviceToHost);
    cudaMemcpy(lengths.data(), device_lengths, iterations * sizeof(double), cudaMemcpyDeviceToHost);
    for (part* product : memory.parts) cudaFree(product);
    cudaFree(device_lengths);

    // The same on the host.
    std::vector<double> product(size, 1), vector(size);
    double length = 0;
    for (int iteration = 0; iteration < iterations; ++iteration) {
        double squares = 0;
        for (const double element : product) squares += element * element;
        length = std::sqrt(squares);
        for (int i = 0; i < size; ++i) vector[i] = product[i] / length;
        for (int i = 0; i < size; ++i) product[i] = product_of(vector.data(), i, size);
    }
    bool correct = std::abs(lengths.back() - length) <= tolerance * length;
    for (int i = 0; i < size; ++i)
        correct = correct && std::abs(parts[i / rows].products[i % rows] - product[i]) <= tolerance * length;
    if (!correct) {
        std::fprintf(stderr, "10_power_iteration: process %d has %.10f as eigenvalue, not %.10f, or a wrong vector\n",
                     job.process_index, lengths.back(), length);
        return 1;
    }
    if (job.process_index == 0)
        std::printf("%d x %d matrix on %d ranks, %d iterations in %.3f ms: eigenvalue %.8f: correct\n", size, size,
                    job.rank_count, iterations, milliseconds, lengths.back());
    return 0;
} catch (const dcuda::error& problem) {
    std::fprintf(stderr, "10_power_iteration: %s\n", problem.what());
    return 1;
}
