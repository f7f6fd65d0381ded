// SPDX-License-Identifier: BSD-3-Clause
// Every function of the published interface, dcuda_host.h and dcuda_device.cu.h, as a program of the publication uses
// it. The functions themselves are tested through the C++ interface that they forward to.
#include <dcuda_device.cu.h>
#include <dcuda_host.h>

#include <cstdlib>
#include <gtest/gtest.h>
#include <string>

namespace {

constexpr int threads_per_rank = 32;

struct user_data {
    unsigned* memory; // two words per rank of the device
    int rank_start;
    int rank_count;
    int input;
    int failures; // out
    int output;   // out
};

__global__ void published(dcuda_context_handle context) {
    __shared__ dcuda_state state;
    dcuda_gpu_init(context, state);
    user_data* data = nullptr;
    dcuda_get_data(state, reinterpret_cast<void**>(&data));
    const auto expect = [&](bool condition) {
        if (!condition) atomicAdd(&data->failures, 1);
    };
    int rank, ranks, device_rank, device_ranks;
    dcuda_comm_rank(state, DCUDA_COMM_WORLD, &rank);
    dcuda_comm_size(state, DCUDA_COMM_WORLD, &ranks);
    dcuda_comm_rank(state, DCUDA_COMM_DEVICE, &device_rank);
    dcuda_comm_size(state, DCUDA_COMM_DEVICE, &device_ranks);
    expect(rank == data->rank_start + device_rank && ranks == data->rank_count && device_rank < device_ranks);
    expect(device_rank == static_cast<int>(blockIdx.x));

    dcuda_start_cpu_timer(state);
    unsigned* const inbox = data->memory + 2 * device_rank;
    unsigned* const outbox = inbox + 1;
    dcuda_win world, device, none = DCUDA_WIN_NONE;
    dcuda_win_create(state, DCUDA_COMM_WORLD, inbox, sizeof(unsigned), &world);
    dcuda_win_create(state, DCUDA_COMM_DEVICE, inbox, sizeof(unsigned), &device);
    expect(world != DCUDA_WIN_NONE && device != DCUDA_WIN_NONE && none == DCUDA_WIN_NONE && world != device);
    if (threadIdx.x == 0) *outbox = 100 + rank;
    dcuda_put_notify(state, world, (rank + 1) % ranks, 0, sizeof(unsigned), outbox, 0);
    dcuda_wait_notifications(state, 0, 1);
    expect(*inbox == 100u + (rank + ranks - 1) % ranks);
    dcuda_win_flush(state, world);
    dcuda_comm_barrier(state, DCUDA_COMM_WORLD);

    if (threadIdx.x == 0) *outbox = 200 + device_rank;
    dcuda_put(state, device, (device_rank + 1) % device_ranks, 0, sizeof(unsigned), outbox);
    dcuda_notify(state, (device_rank + 1) % device_ranks, DCUDA_COMM_DEVICE, 255);
    while (dcuda_test_notifications(state, 255, 1) == 0) {
    }
    expect(*inbox == 200u + (device_rank + device_ranks - 1) % device_ranks);
    expect(dcuda_test_notifications(state, 255, 1) == 0);
    dcuda_comm_barrier(state, DCUDA_COMM_DEVICE);
    dcuda_stop_cpu_timer(state);

    dcuda_log log = dcuda_log_get(state);
    if (device_rank == 0) {
        log << "x = " << 5 << log.flush;
        log << "y = " << 1.5 << log.flush;
    }
    if (device_rank == 0 && threadIdx.x == 0) data->output = data->input + 1;
    dcuda_win_free(state, device);
    dcuda_win_free(state, world);
    dcuda_gpu_finish(state);
}

TEST(PublishedApi, EveryFunction) {
    // The launcher says how many ranks; the program's own argument stays.
    char program[] = "program", own[] = "own", ranks[] = "--dcuda-ranks=3";
    char* arguments[] = {program, ranks, own, nullptr};
    dcuda_host_context_handle host;
    dcuda_host_init(3, arguments, &host, published, threads_per_rank);
    EXPECT_STREQ(arguments[2], "own");
    dcuda_rank_info info;
    dcuda_host_get_rank_info(host, &info);
    EXPECT_EQ(info.rank_responsible, 3);
    EXPECT_EQ(info.rank_count, 3 * info.process_count);
    EXPECT_EQ(info.rank_start, 3 * info.process_index);

    user_data data{nullptr, info.rank_start, info.rank_count, 0, 0, 0};
    ASSERT_EQ(cudaMalloc(&data.memory, 2 * sizeof(unsigned) * 3), cudaSuccess);
    for (int run = 0; run < 3; ++run) {
        data.input = 10 * run;
        testing::internal::CaptureStdout();
        EXPECT_GT(dcuda_host_run(host, &data, sizeof data), 0);
        EXPECT_EQ(testing::internal::GetCapturedStdout(), "x = 5\ny = 1.5\n");
        EXPECT_EQ(data.failures, 0);
        EXPECT_EQ(data.output, 10 * run + 1);
        const vector<double> timings = dcuda_host_get_timings(host);
        ASSERT_EQ(timings.size(), 1u);
        EXPECT_GE(timings[0], 0);
    }
    cudaFree(data.memory);
    dcuda_host_finish(host);
    unsetenv("DCUDA_RANKS_PER_DEVICE");
}

__global__ void without_data(dcuda_context_handle context) {
    __shared__ dcuda_state state;
    dcuda_gpu_init(context, state);
    void* data = &state;
    dcuda_get_data(state, &data);
    if (data != nullptr) dcuda_notify(state, -1, DCUDA_COMM_WORLD, 0); // ends the program
    dcuda_gpu_finish(state);
}

TEST(PublishedApi, RunWithoutData) {
    char program[] = "program";
    char* arguments[] = {program, nullptr};
    dcuda_host_context_handle host;
    dcuda_host_init(1, arguments, &host, without_data, 1);
    EXPECT_GE(dcuda_host_run(host), 0);
    EXPECT_TRUE(dcuda_host_get_timings(host).empty());
    dcuda_host_finish(host);
}

} // namespace
