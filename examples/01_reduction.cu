// SPDX-License-Identifier: BSD-3-Clause
// Lesson 1: the sum of one array per device, with the published interface.
//
// Every rank sums its part of its device's array; a binomial tree over all ranks adds up the partial sums. A rank sends
// its sum to its parent by a notified put, once it has the sums of all its children.
//
//     dcuda-run -n 2 --ranks 16 ./01_reduction
#include <dcuda_device.cu.h>
#include <dcuda_host.h>

#include <cstdio>
#include <vector>

constexpr int threads_per_rank = 128;
constexpr int levels = 24; // of the tree: up to 16 million ranks
constexpr int ready_tag = 255;

struct reduction_data {
    double* values;   // the device's array
    double* slots;    // [rank on the device][level + 1]: what children sent, and last the rank's own sum
    long value_count; // on this device
    double sum;       // out: of all devices, on the device of rank 0
};

// All threads of the rank get the sum of their values.
__device__ double sum_over_rank(double value) {
    __shared__ double partial[threads_per_rank];
    partial[threadIdx.x] = value;
    for (int stride = threads_per_rank / 2; stride > 0; stride /= 2) {
        __syncthreads();
        if (int(threadIdx.x) < stride) partial[threadIdx.x] += partial[threadIdx.x + stride];
    }
    __syncthreads();
    return partial[0];
}

__global__ void reduce(dcuda_context_handle context) {
    __shared__ dcuda_state state;
    dcuda_gpu_init(context, state);

    reduction_data* data;
    int rank, ranks, device_rank, device_ranks;
    dcuda_get_data(state, reinterpret_cast<void**>(&data));
    dcuda_comm_rank(state, DCUDA_COMM_WORLD, &rank);
    dcuda_comm_size(state, DCUDA_COMM_WORLD, &ranks);
    dcuda_comm_rank(state, DCUDA_COMM_DEVICE, &device_rank);
    dcuda_comm_size(state, DCUDA_COMM_DEVICE, &device_ranks);
    dcuda_log log = dcuda_log_get(state);
    dcuda_start_cpu_timer(state);

    // Part one: this rank's share of the device's values.
    double sum = 0;
    for (long i = long(device_rank) * threads_per_rank + threadIdx.x; i < data->value_count;
         i += long(device_ranks) * threads_per_rank)
        sum += data->values[i];
    sum = sum_over_rank(sum);

    // Part two: the binomial tree. At level l, ranks whose number is an odd multiple of 2^l send to the one below.
    double* slots = data->slots + device_rank * (levels + 1);
    dcuda_win window;
    dcuda_win_create(state, DCUDA_COMM_WORLD, slots, (levels + 1) * sizeof(double), &window);
    for (int level = 0; (1 << level) < ranks; ++level) {
        const int stride = 1 << level;
        if (rank & stride) {
            if (threadIdx.x == 0) slots[levels] = sum;
            dcuda_put_notify(state, window, rank - stride, level * sizeof(double), sizeof(double), &slots[levels],
                             level);
            break;
        }
        if (rank + stride < ranks) {
            dcuda_wait_notifications(state, level, 1);
            sum += slots[level];
        }
    }
    if (rank == 0 && threadIdx.x == 0) data->sum = sum;
    dcuda_win_flush(state, window);

    // Rank 0 tells everybody that the sum is there; they look from time to time, as one would between pieces of work.
    if (rank == 0)
        for (int target = 0; target < ranks; ++target) {
            dcuda_put(state, window, target, levels * sizeof(double), sizeof(double), &data->sum);
            dcuda_notify(state, target, DCUDA_COMM_WORLD, ready_tag);
        }
    while (!dcuda_test_notifications(state, ready_tag, 1)) {
    }
    if (rank == ranks - 1) log << "rank " << rank << " of " << ranks << ": the sum is " << slots[levels] << log.flush;

    dcuda_comm_barrier(state, DCUDA_COMM_DEVICE);
    dcuda_stop_cpu_timer(state);
    dcuda_win_free(state, window);
    dcuda_comm_barrier(state, DCUDA_COMM_WORLD);
    dcuda_gpu_finish(state);
}

int main(int argc, char* argv[]) {
    dcuda_host_context_handle host;
    dcuda_host_init(argc, argv, &host, reduce, threads_per_rank);
    dcuda_rank_info info;
    dcuda_host_get_rank_info(host, &info);

    // Device d's values are d * n + 1, ..., (d + 1) * n: the sum over all devices is known.
    const long n = 1000000;
    std::vector<double> values(n);
    for (long i = 0; i < n; ++i) values[i] = double(info.process_index * n + i + 1);
    reduction_data data{nullptr, nullptr, n, 0};
    const size_t slot_bytes = sizeof(double) * (levels + 1) * info.rank_responsible;
    if (cudaMalloc(&data.values, n * sizeof(double)) != cudaSuccess ||
        cudaMalloc(&data.slots, slot_bytes) != cudaSuccess ||
        cudaMemcpy(data.values, values.data(), n * sizeof(double), cudaMemcpyHostToDevice) != cudaSuccess) {
        std::fprintf(stderr, "reduction: no device memory\n");
        return 1;
    }

    const double milliseconds = dcuda_host_run(host, &data, sizeof data);
    cudaFree(data.values);
    cudaFree(data.slots);

    int status = 0;
    if (info.process_index == 0) {
        const double count = double(n) * info.process_count, expected = count * (count + 1) / 2;
        status = data.sum == expected ? 0 : 1;
        std::printf("%s: sum %.0f, expected %.0f; %d ranks on %d devices; kernel %.3f ms, timer %.3f ms\n",
                    status == 0 ? "right" : "WRONG", data.sum, expected, info.rank_count, info.process_count,
                    milliseconds, dcuda_host_get_timings(host).at(0));
    }
    dcuda_host_finish(host);
    return status;
}
