// SPDX-License-Identifier: BSD-3-Clause
// What many processes cost each of them: time to start, time of a first and a second run of a barrier and a ring
// exchange, memory, sockets. A line per process; scale.py runs it and makes the table.
#include <dcuda/dcuda.hpp>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

__global__ void exchange(dcuda::context context, int* memory) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    int* own = memory + 2 * self.id(dcuda::device);
    dcuda::window window = self.create_window(dcuda::world, own, 2 * sizeof(int));
    self.barrier(dcuda::world);
    if (threadIdx.x == 0) own[0] = self.id();
    self.put_notify(window, (self.id() + 1) % self.size(), sizeof(int), sizeof(int), own, 0);
    self.wait_notifications(0, 1);
    if (threadIdx.x == 0 && own[1] != (self.id() + self.size() - 1) % self.size())
        self.log() << "rank " << self.id() << " received " << own[1];
    self.free_window(window);
}

namespace {

using clock_type = std::chrono::steady_clock;

double milliseconds_since(clock_type::time_point begin) {
    return std::chrono::duration<double, std::milli>(clock_type::now() - begin).count();
}

long peak_kib() {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;)
        if (long value = 0; word == "VmHWM:" && status >> value) return value;
    return 0;
}

int sockets() {
    int count = 0;
    std::error_code gone; // the folder's own descriptor
    for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd"))
        if (std::filesystem::read_symlink(each, gone).string().starts_with("socket:")) ++count;
    return count;
}

} // namespace

int main(int argc, char** argv) try {
    const auto begin = clock_type::now();
    dcuda::runtime runtime(argc, argv);
    const double start_ms = milliseconds_since(begin);
    const int sockets_at_start = sockets();
    const long start_kib = peak_kib();

    const dcuda::launch_config config{.threads = 32};
    const dcuda::rank_info info = runtime.plan(exchange, config);
    int* memory = nullptr;
    if (cudaMalloc(&memory, 2 * sizeof(int) * static_cast<std::size_t>(info.rank_responsible)) != cudaSuccess) return 1;
    double run_ms[2];
    for (double& each : run_ms) {
        const auto run_begin = clock_type::now();
        runtime.run(exchange, config, memory);
        each = milliseconds_since(run_begin);
    }
    std::printf("process %d start_ms %.1f first_ms %.1f second_ms %.1f start_kib %ld peak_kib %ld sockets %d\n",
                info.process_index, start_ms, run_ms[0], run_ms[1], start_kib, peak_kib(),
                sockets() - sockets_at_start);
    cudaFree(memory);
    return 0;
} catch (const dcuda::error& problem) {
    std::fprintf(stderr, "scale: %s\n", problem.what());
    return 1;
}
