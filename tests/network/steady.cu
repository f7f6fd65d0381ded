// SPDX-License-Identifier: BSD-3-Clause
// A job that goes on until a file exists, and then ends in good order: steady FILE
//
// Each rank puts a pattern of its own to the next, round after round, and looks at every byte that has come from the
// one before it.
#include <dcuda/dcuda.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <unistd.h>

namespace {

constexpr int ranks = 2, words = 1500;

DCUDA_DEVICE unsigned pattern(int rank, unsigned round, int place) {
    return (round * 2654435761u) ^ (static_cast<unsigned>(rank) << 20) ^ static_cast<unsigned>(place);
}

} // namespace

// `memory`: of each rank the window, then what it sends. The first word of a message is the round that is the last one,
// as far as the sender knows: rank 0 sets it when it is told to end, and the others learn it from each other.
__global__ void steady(dcuda::context context, unsigned* memory, const volatile int* ends, unsigned* wrong) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    unsigned* const inbox = memory + 2 * words * self.id(dcuda::device);
    unsigned* const outbox = inbox + words;
    const int next = (self.id() + 1) % self.size(), before = (self.id() + self.size() - 1) % self.size();
    const dcuda::window win = self.create_window(dcuda::world, inbox, words * sizeof(unsigned));
    unsigned last = 0;
    for (unsigned round = 1; last == 0 || round <= last; ++round) {
        if (self.id() == 0 && last == 0 && *ends != 0) last = round + static_cast<unsigned>(self.size());
        outbox[0] = last;
        for (int i = 1; i < words; ++i) outbox[i] = pattern(self.id(), round, i);
        self.put_notify(win, next, 0, words * sizeof(unsigned), outbox, 1);
        self.wait_notifications(1, 1);
        for (int i = 1; i < words; ++i)
            if (inbox[i] != pattern(before, round, i)) ++*wrong;
        if (inbox[0] != 0) last = inbox[0];
        self.barrier(dcuda::world);
        if (round == 1) self.log() << "under way";
    }
}

int main(int argc, char** argv) try {
    dcuda::runtime runtime(argc, argv);
    if (argc != 2) {
        std::fprintf(stderr, "Use: steady FILE\n");
        return 2;
    }
    const dcuda::launch_config config{.threads = 1, .ranks_per_device = ranks};
    const dcuda::rank_info info = runtime.plan(steady, config);
    unsigned* memory = nullptr;
    int* ends = nullptr;
    if (cudaMalloc(&memory, 2 * ranks * words * sizeof(unsigned)) != cudaSuccess ||
        cudaMallocHost(&ends, 2 * sizeof(int)) != cudaSuccess) {
        std::fprintf(stderr, "steady: no memory on the device\n");
        return 1;
    }
    ends[0] = ends[1] = 0;
    std::printf("process %d has pid %d over %s\n", info.process_index, static_cast<int>(getpid()),
                runtime.network().c_str());
    std::fflush(stdout);
    std::thread([file = std::string(argv[1]), &end = *static_cast<volatile int*>(ends)] {
        while (access(file.c_str(), F_OK) != 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        end = 1;
    }).detach();
    unsigned* const wrong = reinterpret_cast<unsigned*>(ends + 1);
    runtime.run(steady, config, memory, static_cast<const volatile int*>(ends), wrong);
    std::printf("process %d ends with %u wrong words\n", info.process_index, *wrong);
    return *wrong == 0 ? 0 : 1;
} catch (const dcuda::error& problem) {
    std::fprintf(stderr, "steady: %s\n", problem.what());
    return 1;
}
