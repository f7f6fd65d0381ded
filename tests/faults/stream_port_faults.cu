// SPDX-License-Identifier: BSD-3-Clause
// Stream ports that cannot go on: stream_port_test.py looks at what two processes say then. Use: stream_port_faults
// CASE
#include <dcuda/stream.hpp>
#include <dcuda/trigger.hpp>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <unistd.h>

namespace {

__global__ void await_in_kernel(dcuda::wait_trigger wait) { dcuda::await(wait); }

__global__ void store(unsigned* memory) { *memory = 1; }

void launch(void (*kernel)(dcuda::wait_trigger), dcuda::wait_trigger wait, cudaStream_t stream) {
    cudaLaunchConfig_t shape{};
    shape.gridDim = dim3(1);
    shape.blockDim = dim3(32);
    shape.stream = stream;
    if (cudaLaunchKernelEx(&shape, kernel, wait) != cudaSuccess) throw std::runtime_error("a launch failed");
}

// Process 1 waits for what never comes; what it has behind the wait must not run.
void wait_in_vain(dcuda::runtime& job, const std::string& name) {
    dcuda::stream_port port(job, name == "tags" ? 4 + job.info().process_index : 4);
    cudaStream_t stream = nullptr;
    unsigned* memory = nullptr;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaMalloc(reinterpret_cast<void**>(&memory), sizeof *memory);
    cudaMemset(memory, 0, sizeof *memory);
    if (job.info().process_index == 0) {
        if (name == "lost") _exit(3);
        if (name == "exception") throw std::runtime_error("process 0 has had enough");
        port.wait_on_host(0, 1); // as long as the other one waits
        return;
    }
    port.notify(1, 3, stream);
    if (name == "kernel") {
        launch(await_in_kernel, port.prepare_wait(3, 2), stream);
    } else if (name == "from") {
        port.wait_from(0, 3, 1, stream);
    } else {
        port.wait(3, 2, stream);
    }
    cudaLaunchConfig_t shape{};
    shape.gridDim = shape.blockDim = dim3(1);
    shape.stream = stream;
    static_cast<void>(cudaLaunchKernelEx(&shape, store, memory));
    if (cudaStreamSynchronize(stream) != cudaSuccess) std::fprintf(stderr, "the stream has failed\n");
    port.notify(0, 0, stream);
    std::fprintf(stderr, "the port goes on\n");
}

} // namespace

int main(int argc, char** argv) {
    try {
        dcuda::runtime job(argc, argv);
        wait_in_vain(job, argc > 1 ? argv[1] : "");
        return 0;
    } catch (const std::exception& problem) {
        std::fprintf(stderr, "caught: %s\n", problem.what());
        return 1;
    }
}
