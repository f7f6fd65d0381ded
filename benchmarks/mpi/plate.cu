// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/plate.hpp"

#include <cstring>

#include "common/session.hpp"
#include "dcuda/dcuda.hpp"

namespace benchmark {
namespace {

// --- Points ----------------------------------------------------------------------------------------------------------

constexpr int tile_columns = by_backend(256, 32), tile_rows = by_backend(16, 64);
constexpr int rank_threads = by_backend(256, 32);

// At a place of the plate, or just outside of it, where values never change. Uneven, so that a border that did not come
// is seen at once.
DCUDA_DEVICE double initial(long long x, long long y) {
    return static_cast<double>(((x + 1) * 7 + (y + 1) * 13) % 101) / 101.0;
}

// Points of some rows, in every so many columns: the largest change of one.
DCUDA_DEVICE double relax(const part_of_plate& part, int parity, int first_row, int last_row, int first_column,
                          int columns) {
    const double* const from = part.values[parity];
    double* const result = part.values[1 - parity];
    const int points = part.points, last = points - 1;
    double largest = 0.0;
    for (int x = first_column; x < points; x += columns) {
        std::size_t at = static_cast<std::size_t>(first_row) * part.length() + static_cast<std::size_t>(x);
        double upper = first_row > 0 ? from[at - part.length()] : part.in(parity, above)[x], middle = from[at];
        for (int y = first_row; y < last_row; ++y, at += part.length()) {
            const double lower = y < last ? from[at + part.length()] : part.in(parity, below)[x];
            const double before = x > 0 ? from[at - 1] : part.in(parity, left)[y];
            const double behind = x < last ? from[at + 1] : part.in(parity, right)[y];
            const double value = 0.25 * ((upper + lower) + (before + behind));
            result[at] = value;
            largest = fmax(largest, fabs(value - middle));
            if (y == 0) part.out(1 - parity, above)[x] = value;
            if (y == last) part.out(1 - parity, below)[x] = value;
            if (x == 0) part.out(1 - parity, left)[y] = value;
            if (x == last) part.out(1 - parity, right)[y] = value;
            upper = middle;
            middle = lower;
        }
    }
    return largest;
}

// Bits of numbers that are not negative have the order of the numbers.
DCUDA_HOST_DEVICE unsigned long long bits_of(double value) {
    unsigned long long bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
DCUDA_HOST_DEVICE double from_bits(unsigned long long bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// All threads of a block.
DCUDA_DEVICE double largest_of_block(unsigned long long& shared, double own) {
    if (threadIdx.x == 0) shared = 0;
    __syncthreads();
    atomicMax(&shared, bits_of(own));
    __syncthreads();
    const double result = from_bits(shared);
    __syncthreads();
    return result;
}

// --- Kernels between which the host exchanges borders ----------------------------------------------------------------

__global__ void fill_plate(part_of_plate part) {
    const int step = static_cast<int>(gridDim.x * blockDim.x), points = part.points;
    for (int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); x < points; x += step) {
        for (int y = 0; y < points; ++y)
            part.values[0][static_cast<std::size_t>(y) * part.length() + static_cast<std::size_t>(x)] =
                initial(part.first_x + x, part.first_y + y);
        for (int parity = 0; parity < 2; ++parity) {
            part.in(parity, above)[x] = initial(part.first_x + x, part.first_y - 1);
            part.in(parity, below)[x] = initial(part.first_x + x, part.first_y + points);
            part.in(parity, left)[x] = initial(part.first_x - 1, part.first_y + x);
            part.in(parity, right)[x] = initial(part.first_x + points, part.first_y + x);
        }
    }
}

// `change`: null, or the largest one so far.
__global__ void relax_tiles(part_of_plate part, int parity, unsigned long long* change) {
    __shared__ unsigned long long shared;
    const int first_row = static_cast<int>(blockIdx.y) * tile_rows,
              column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    const double own = relax(part, parity, first_row, min(first_row + tile_rows, part.points), column,
                             static_cast<int>(gridDim.x * blockDim.x));
    if (change == nullptr) return;
    const double largest = largest_of_block(shared, own);
    if (threadIdx.x == 0) atomicMax(change, bits_of(largest));
}

template <class... Params, class... Args>
void launch(void (*kernel)(Params...), dim3 blocks, cudaStream_t stream, const Args&... arguments) {
    cudaLaunchConfig_t shape{};
    shape.gridDim = blocks;
    shape.blockDim = dim3(tile_columns);
    shape.stream = stream;
    check(cudaLaunchKernelEx(&shape, kernel, static_cast<Params>(arguments)...), "cannot launch a kernel");
}

// --- Ranks -----------------------------------------------------------------------------------------------------------

// Processes beside the part, by edge.
struct surroundings {
    int process[edges];
};

// A rank has some rows of the part. It shares memory with the ranks above and below it on its device, and puts to those
// on other devices. Tags take turns: a neighbour may be one step ahead.
struct rank_of_plate {
    dcuda::rank& self;
    const part_of_plate& part;
    const surroundings& beside;
    dcuda::window window;
    int own, ranks, first_row, last_row;

    // The number, on its device, of the rank that this one puts to over an edge, or -1.
    DCUDA_DEVICE int partner_over(int over) const {
        if (beside.process[over] < 0) return -1;
        if (over == above) return own == 0 ? ranks - 1 : -1;
        if (over == below) return own == ranks - 1 ? 0 : -1;
        return own;
    }
    DCUDA_DEVICE void exchange(int parity) {
        int expected = 0;
        self.flush(window); // before notifications: the others on this device read these rows
        for (const int other : {own - 1, own + 1}) {
            if (other < 0 || other >= ranks) continue;
            self.notify(other, dcuda::device, parity);
            ++expected;
        }
        for (int over = 0; over < edges; ++over) {
            const int partner = partner_over(over);
            if (partner < 0) continue;
            const bool is_row = over == above || over == below;
            const int first = is_row ? 0 : first_row, last = is_row ? part.points : last_row;
            const double* const target = part.in(parity, opposite(static_cast<edge>(over))) + first;
            self.put_notify(window, beside.process[over] * ranks + partner,
                            static_cast<std::size_t>(target - part.borders[0]) * sizeof(double),
                            static_cast<std::size_t>(last - first) * sizeof(double), part.out(parity, over) + first,
                            parity);
            ++expected;
        }
        self.wait_notifications(parity, expected);
    }
};

__global__ void __launch_bounds__(rank_threads)
    solve_by_ranks(dcuda::context context, part_of_plate part, surroundings beside, stop_rule until, outcome* result) {
    __shared__ dcuda::state state;
    __shared__ unsigned long long shared;
    dcuda::rank self(context, state);
    const dcuda::window window =
        self.create_window(dcuda::world, part.borders[0], 4 * edges * part.length() * sizeof(double));
    const int own = self.id(dcuda::device), ranks = self.size(dcuda::device);
    rank_of_plate rank{
        self, part, beside, window, own, ranks, part.points * own / ranks, part.points * (own + 1) / ranks};
    self.barrier(dcuda::world);
    const std::uint64_t start = now_ns();
    int step = 0;
    bool goes_on = true;
    for (; goes_on && step < until.steps; ++step) {
        const double own_change = relax(part, step % 2, rank.first_row, rank.last_row, static_cast<int>(threadIdx.x),
                                        static_cast<int>(blockDim.x));
        rank.exchange(1 - step % 2);
        if (!until.looks_after(step)) continue;
        const double of_rank = largest_of_block(shared, own_change);
        goes_on = self.allreduce(dcuda::world, of_rank, dcuda::maximum{}) > until.change;
    }
    self.barrier(dcuda::world);
    if (own == 0 && threadIdx.x == 0) *result = {step, static_cast<double>(now_ns() - start) * 1e-3};
    self.free_window(window);
}

} // namespace

// --- Host ------------------------------------------------------------------------------------------------------------

int decomposition::neighbour(int process, edge beside) const {
    const int x = process % across + (beside == right ? 1 : beside == left ? -1 : 0);
    const int y = process / across + (beside == below ? 1 : beside == above ? -1 : 0);
    return x < 0 || x >= across || y < 0 || y >= down ? -1 : y * across + x;
}

plate::plate(const decomposition& parts, int process, int points) : parts_(parts), process_(process) {
    part_.points = points;
    part_.first_x = static_cast<long long>(process % parts.across) * points;
    part_.first_y = static_cast<long long>(process / parts.across) * points;
    for (std::size_t parity = 0; parity < 2; ++parity) {
        values_[parity] = allocate<double>(part_.length() * part_.length());
        part_.values[parity] = values_[parity].get();
    }
    change_ = allocate<unsigned long long>(1);
}

void plate::begin(double* borders) {
    for (int parity = 0; parity < 2; ++parity)
        part_.borders[parity] = borders + static_cast<std::size_t>(2 * edges * parity) * part_.length();
    launch(fill_plate, dim3(static_cast<unsigned>((part_.points + tile_columns - 1) / tile_columns)), nullptr, part_);
    check(cudaDeviceSynchronize(), "cannot fill the plate");
}

void plate::step(int number, bool looks, cudaStream_t stream) {
    if (looks) check(cudaMemsetAsync(change_.get(), 0, sizeof(unsigned long long), stream), "cannot clear memory");
    const dim3 tiles(static_cast<unsigned>((part_.points + tile_columns - 1) / tile_columns),
                     static_cast<unsigned>((part_.points + tile_rows - 1) / tile_rows));
    launch(relax_tiles, tiles, stream, part_, number % 2, looks ? change_.get() : nullptr);
}

double plate::change(cudaStream_t stream) const {
    unsigned long long bits = 0;
    check(cudaMemcpyAsync(&bits, change_.get(), sizeof bits, cudaMemcpyDeviceToHost, stream), "cannot copy the change");
    check(cudaStreamSynchronize(stream), "the kernels failed");
    return from_bits(bits);
}

outcome plate::run_by_ranks(dcuda::runtime& runtime, const stop_rule& until, int ranks) {
    surroundings beside{};
    for (int over = 0; over < edges; ++over) beside.process[over] = parts_.neighbour(process_, static_cast<edge>(over));
    const auto result = allocate<outcome>(1);
    runtime.run(solve_by_ranks, shape(rank_threads, ranks), part_, beside, until, result.get());
    return download(result.get(), 1)[0];
}

std::uint64_t plate::checksum(int steps) const {
    const std::vector<double> values = download(part_.values[steps % 2], part_.length() * part_.length());
    const auto width = static_cast<std::uint64_t>(parts_.across) * part_.length();
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const std::uint64_t x = static_cast<std::uint64_t>(part_.first_x) + i % part_.length(),
                            y = static_cast<std::uint64_t>(part_.first_y) + i / part_.length();
        sum += bits_of(values[i]) * (2 * (y * width + x) + 1);
    }
    return sum;
}

} // namespace benchmark
