// SPDX-License-Identifier: BSD-3-Clause
// Lesson 17: short kernels on a stream, as most programs have them, that communicate in stream order. Heat spreads
// along a rod, which is cut over the devices. In each step the host appends two kernels: the ends of the piece, whose
// cells go to the neighbours at once, and the middle, which is computed meanwhile. The host waits for nothing.
//
//     dcuda-run -n 2 ./17_streams
#include <dcuda/dcuda.hpp>
#include <dcuda/stream.hpp>

#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <utility>
#include <vector>

constexpr int cells = 1000; // of a device
constexpr int steps = 100;
constexpr int end_cells = 64;
constexpr double spread = 0.25;

void check(cudaError_t result) {
    if (result != cudaSuccess) throw std::runtime_error(cudaGetErrorString(result));
}

__host__ __device__ double next_of(const double* rod, int i) {
    return rod[i] + spread * (rod[i - 1] - 2 * rod[i] + rod[i + 1]);
}
__host__ __device__ double start_of(long long cell) { return static_cast<double>(cell * 7919 % 1000); }

// Cells first, ..., last - 1 of a piece, which has a cell of each neighbour at 0 and at cells + 1.
__global__ void spread_heat(const double* now, double* then, int first, int last) {
    const int i = first + static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < last) then[i] = next_of(now, i);
}

// What kernel<<<blocks, threads, 0, stream>>>(...) does; this way both backends compile it.
void append_kernel(const double* now, double* then, int first, int last, cudaStream_t stream) {
    constexpr int threads = DCUDA_BACKEND_CUDA ? 128 : 8;
    cudaLaunchConfig_t shape{};
    shape.gridDim = dim3(static_cast<unsigned>((last - first + threads - 1) / threads));
    shape.blockDim = dim3(threads);
    shape.stream = stream;
    check(cudaLaunchKernelEx(&shape, spread_heat, now, then, first, last));
}

// The same by one core.
std::vector<double> solve_serially(int pieces) {
    const int all = pieces * cells;
    std::vector<double> now(static_cast<std::size_t>(all) + 2), then(now.size());
    for (int i = 0; i < all; ++i) now[static_cast<std::size_t>(i) + 1] = start_of(i);
    for (int step = 0; step < steps; ++step) {
        for (int i = 1; i <= all; ++i) then[static_cast<std::size_t>(i)] = next_of(now.data(), i);
        std::swap(now, then);
    }
    return now;
}

int run(dcuda::runtime& job) {
    const int own = job.info().process_index, processes = job.info().process_count;
    const int before = own - 1, after = own + 1; // neighbours, where there are such
    constexpr std::size_t length = cells + 2;
    double* memory = nullptr; // the rod now and then, which take turns
    check(cudaMalloc(reinterpret_cast<void**>(&memory), 2 * length * sizeof(double)));
    std::vector<double> piece(2 * length);
    for (int i = 0; i <= cells + 1; ++i) {
        const long long cell = static_cast<long long>(own) * cells + i - 1;
        if (cell >= 0 && cell < static_cast<long long>(processes) * cells)
            piece[static_cast<std::size_t>(i)] = start_of(cell);
    }
    check(cudaMemcpy(memory, piece.data(), piece.size() * sizeof(double), cudaMemcpyHostToDevice));
    const dcuda::window win = job.create_window(memory, 2 * length * sizeof(double));
    {
        dcuda::stream_port port(job, 2);
        cudaStream_t stream = nullptr;
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        for (int step = 0; step < steps; ++step) {
            const std::size_t from = step % 2 * length, target = length - from;
            double *const now = memory + from, *const then = memory + target;
            // Cells of the neighbours have come: tag 0 from the one before, tag 1 from the one after. Each has sent its
            // cell when it had read ours of the step before, so we may overwrite that.
            if (step > 0 && before >= 0) port.wait_from(before, 0, 1, stream);
            if (step > 0 && after < processes) port.wait_from(after, 1, 1, stream);
            append_kernel(now, then, 1, 1 + end_cells, stream);
            append_kernel(now, then, 1 + cells - end_cells, 1 + cells, stream);
            if (before >= 0)
                port.put_notify(win, before, (target + cells + 1) * sizeof(double), then + 1, sizeof(double), 1,
                                stream);
            if (after < processes)
                port.put_notify(win, after, target * sizeof(double), then + cells, sizeof(double), 0, stream);
            append_kernel(now, then, 1 + end_cells, 1 + cells - end_cells, stream);
        }
        check(cudaStreamSynchronize(stream));
        check(cudaStreamDestroy(stream));
    }
    job.free_window(win);
    check(cudaMemcpy(piece.data(), memory + steps % 2 * length, length * sizeof(double), cudaMemcpyDeviceToHost));
    check(cudaFree(memory));

    const std::vector<double> expected = solve_serially(processes);
    int wrong = 0;
    for (std::size_t i = 1; i <= cells; ++i)
        if (std::abs(piece[i] - expected[static_cast<std::size_t>(own) * cells + i]) > 1e-9) ++wrong;
    int all_wrong = 0;
    for (const int each : job.gather(wrong)) all_wrong += each;
    job.broadcast(all_wrong);
    if (own == 0) std::printf("%d cells, %d steps: %d wrong\n", processes * cells, steps, all_wrong);
    return all_wrong == 0 ? 0 : 1;
}

int main(int argc, char** argv) {
    try {
        dcuda::runtime job(argc, argv);
        return run(job);
    } catch (const std::exception& problem) {
        std::fprintf(stderr, "17_streams: %s\n", problem.what());
        return 1;
    }
}
