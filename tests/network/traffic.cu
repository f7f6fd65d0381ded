// SPDX-License-Identifier: BSD-3-Clause
// Traffic without an end, for tests that end it: traffic BYTES [exit | ROUNDS [FILE]]
//
// Each rank puts BYTES bytes to the next, again and again, or ROUNDS times. `exit`: process 1 ends in the middle of it.
// FILE: process 1 does not begin before that exists.
#include <dcuda/dcuda.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <unistd.h>

__global__ void traffic(dcuda::context context, unsigned char* memory, std::size_t bytes, long rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    unsigned char* const own = memory + 2 * bytes * static_cast<std::size_t>(self.id(dcuda::device));
    const dcuda::window win = self.create_window(dcuda::world, own, bytes);
    for (long round = 0; round < rounds; ++round) {
        self.put_notify(win, (self.id() + 1) % self.size(), 0, bytes, own + bytes, 1);
        self.wait_notifications(1, 1);
        if (round == 0) self.log() << "under way";
    }
}

int main(int argc, char** argv) try {
    dcuda::runtime runtime(argc, argv);
    constexpr int ranks = 2;
    const std::size_t bytes = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 1000;
    const dcuda::launch_config config{.ranks_per_device = ranks};
    const dcuda::rank_info info = runtime.plan(traffic, config);
    unsigned char* memory = nullptr;
    if (cudaMalloc(&memory, 2 * bytes * ranks) != cudaSuccess) {
        std::fprintf(stderr, "traffic: no device memory\n");
        return 1;
    }
    std::printf("process %d has pid %d\n", info.process_index, static_cast<int>(getpid()));
    std::fflush(stdout);
    const bool exits = argc > 2 && std::string_view(argv[2]) == "exit";
    const long rounds = argc > 2 && !exits ? std::atol(argv[2]) : 1'000'000'000L;
    if (exits && info.process_index == 1)
        std::thread([] {
            std::this_thread::sleep_for(std::chrono::seconds(1));
            std::_Exit(1);
        }).detach();
    if (argc > 3 && info.process_index == 1)
        while (access(argv[3], F_OK) != 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    runtime.run(traffic, config, memory, bytes, rounds);
    std::printf("process %d is done\n", info.process_index);
    std::fflush(stdout);
    return 0;
} catch (const dcuda::error& problem) {
    std::fprintf(stderr, "traffic: %s\n", problem.what());
    return 1;
}
