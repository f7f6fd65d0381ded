// SPDX-License-Identifier: BSD-3-Clause
// CPU backend: half_message SENDER. That rank's process stops itself in the midst of a message, whose source lies
// across the end of memory that can be read. With SIGCONT the message goes on, and some work follows.
#include <dcuda/dcuda.hpp>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <sys/mman.h>
#include <unistd.h>

namespace {

constexpr std::size_t bytes = 600;
unsigned char* second_page = nullptr;

void stop_and_go_on(int) {
    mprotect(second_page, static_cast<std::size_t>(getpagesize()), PROT_READ | PROT_WRITE);
    raise(SIGSTOP);
}

unsigned char* make_source() {
    const auto page = static_cast<std::size_t>(getpagesize());
    void* const memory = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no memory");
    second_page = static_cast<unsigned char*>(memory) + page;
    std::memset(memory, 7, 2 * page);
    if (mprotect(second_page, page, PROT_NONE) != 0) throw std::runtime_error("mprotect failed");
    return second_page - bytes / 2;
}

__global__ void send_once(dcuda::context context, unsigned char* memory, const unsigned char* source, int sender) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const dcuda::window win = self.create_window(dcuda::world, memory, bytes);
    const int other = 1 - self.id();
    if (self.id() == sender) {
        std::signal(SIGSEGV, stop_and_go_on);
        self.put_notify(win, other, 0, bytes, source, 1);
    } else {
        if (threadIdx.x == 0) usleep(500'000); // so that the begin of the message is there when the wait begins
        self.wait_notifications(1, 1);
        self.log() << (memory[0] == 7 && memory[bytes - 1] == 7 ? "all is there" : "something is missing");
    }
    for (int round = 0; round < 1000; ++round) {
        self.notify(other, dcuda::world, 2);
        self.wait_notifications(2, 1);
    }
}

} // namespace

int main(int argc, char** argv) try {
    dcuda::runtime runtime(argc, argv);
    const int sender = argc > 1 ? std::atoi(argv[1]) : 0;
    std::printf("process %d has pid %d\n", runtime.plan(send_once, {.ranks_per_device = 1}).process_index,
                static_cast<int>(getpid()));
    std::fflush(stdout);
    unsigned char* memory = nullptr;
    if (cudaMalloc(&memory, bytes) != cudaSuccess) throw std::runtime_error("no device memory");
    const unsigned char* const source = make_source();
    runtime.run(send_once, {.ranks_per_device = 1}, memory, source, sender);
    return 0;
} catch (const std::exception& problem) {
    std::fprintf(stderr, "half_message: %s\n", problem.what());
    return 1;
}
