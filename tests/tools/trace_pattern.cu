// SPDX-License-Identifier: BSD-3-Clause
// A program whose operations are known exactly, to be traced and counted: pattern CASE
//
//   pattern   two runs of the kernel below, then one that is not profiled; prints what runtime::statistics says
//   waits     one run of the other waits; DCUDA_MATCH_SOURCES=1
//   deadlock  rank 0 waits for what nobody sends
#include <dcuda/dcuda.hpp>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {

constexpr int steps = 3;
constexpr std::size_t large_bytes = 8192, small_bytes = 16,
                      put_bytes = 64;                                     // direct; as a message; without notification
constexpr std::size_t part_bytes = large_bytes + small_bytes + put_bytes; // of what comes, and of what is sent

// Each rank puts to its right and left neighbour and notifies the right one; in the end all notify rank 0.
__global__ void pattern(dcuda::context context, std::byte* memory) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    auto whole = self.range("whole");
    std::byte* const own = memory + 2 * part_bytes * static_cast<std::size_t>(self.id(dcuda::device));
    const std::byte* const source = own + part_bytes;
    const dcuda::window window = self.create_window(dcuda::world, own, part_bytes);
    const int ranks = self.size(), right = (self.id() + 1) % ranks, left = (self.id() + ranks - 1) % ranks;
    self.start_timer();
    for (int step = 0; step < steps; ++step) {
        auto inner = self.range("step", step);
        self.put(window, right, 0, put_bytes, source);
        self.flush(window);
        self.put_notify(window, right, put_bytes, large_bytes, source, 1);
        self.put_notify(window, left, put_bytes + large_bytes, small_bytes, source, 2);
        self.notify(right, dcuda::world, 3);
        self.wait_notifications(1, 1);
        self.wait_notifications(2, 1);
        self.wait_notifications(3, 1);
        self.barrier(dcuda::world); // the next step writes there again
    }
    self.stop_timer();
    self.notify(0, dcuda::world, 4);
    if (self.id() == 0) self.wait_notifications(4, ranks);
    self.notify(self.id(dcuda::device), dcuda::device, 5);
    self.barrier(dcuda::device);
    while (!self.test_notifications(5, 1)) {
    }
    self.free_window(window);
}

// What comes from both neighbours is waited for in all other ways.
__global__ void waits(dcuda::context context) {
    __shared__ dcuda::state state;
    __shared__ int arrived[2];
    dcuda::rank self(context, state);
    const int ranks = self.size(), right = (self.id() + 1) % ranks, left = (self.id() + ranks - 1) % ranks;
    constexpr int matched = 255;
    for (int step = 0; step < steps; ++step) {
        for (const int tag : {1, 3, 5, matched}) self.notify(right, dcuda::world, tag);
        for (const int tag : {2, 4, matched}) self.notify(left, dcuda::world, tag);
        self.wait_any(1, 2);
        self.wait_any(1, 2);
        for (int missing = 2; missing != 0;) missing -= self.wait_some(3, 2, arrived);
        while (!self.wait_notifications_for(5, 1, 1'000'000)) {
        }
        self.wait_notifications_from(right, dcuda::world, matched, 1);
        self.wait_notifications_from(left, dcuda::world, matched, 1);
        self.barrier(dcuda::world);
    }
}

__global__ void deadlock(dcuda::context context) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    auto doomed = self.range("doomed");
    self.notify((self.id() + 1) % self.size(), dcuda::world, 1);
    self.wait_notifications(1, 1);
    if (self.id() != 0) return;
    self.log() << "under way";
    self.wait_notifications(9, 2);
}

} // namespace

int main(int argc, char** argv) try {
    dcuda::runtime runtime(argc, argv);
    dcuda::launch_config config{.threads = 32};
    if (argc != 2) throw dcuda::error(dcuda::error_code::invalid_argument, "use: pattern CASE");
    if (std::string_view(argv[1]) == "deadlock") {
        runtime.run(deadlock, config);
        return 0;
    }
    if (std::string_view(argv[1]) == "waits") {
        runtime.run(waits, config);
        return 0;
    }
    const auto ranks = static_cast<std::size_t>(runtime.plan(pattern, config).rank_responsible);
    void* memory = nullptr;
    if (cudaMalloc(&memory, 2 * part_bytes * ranks) != cudaSuccess)
        throw dcuda::error(dcuda::error_code::out_of_resources, "no device memory");
    for (int run = 0; run < 3; ++run) {
        config.profiled = run < 2;
        runtime.run(pattern, config, static_cast<std::byte*>(memory));
    }
    cudaFree(memory);
    const dcuda::statistics counted = runtime.statistics();
    const dcuda::rank_statistics total = counted.total();
    std::printf("%d runs, %d ranks, %llu waits, %llu B\n", counted.runs, static_cast<int>(counted.ranks.size()),
                static_cast<unsigned long long>(total.waits),
                static_cast<unsigned long long>(total.local.bytes + total.peer.bytes + total.network.bytes));
    return 0;
} catch (const dcuda::error& problem) {
    std::fprintf(stderr, "pattern: %s\n", problem.what());
    return 3;
}
