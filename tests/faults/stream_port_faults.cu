// SPDX-License-Identifier: BSD-3-Clause
// Stream ports that cannot go on: stream_port_test.py looks at what two processes say then. Use: stream_port_faults
// CASE
#include <dcuda/stream.hpp>
#include <dcuda/trigger.hpp>

#include <array>
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

template <class Element>
struct pinned {
    pinned() {
        if (cudaHostAlloc(reinterpret_cast<void**>(&memory), sizeof(Element), cudaHostAllocDefault) != cudaSuccess)
            throw std::runtime_error("no pinned memory");
        *memory = {};
    }
    ~pinned() { cudaFreeHost(memory); }
    Element* memory = nullptr;
};

// Process 1 waits for what never comes; what it has behind the wait must not run.
void wait_in_vain(dcuda::runtime& job, const std::string& name) {
    const pinned<unsigned> behind;
    dcuda::stream_port port(job, name == "tags" ? 4 + job.info().process_index : 4);
    cudaStream_t stream = nullptr, other = nullptr;
    for (cudaStream_t* each : {&stream, &other}) cudaStreamCreateWithFlags(each, cudaStreamNonBlocking);
    if (job.info().process_index == 0) {
        if (name == "lost") {
            port.wait_on_host(2, 1); // the other one's wait is in its stream
            _exit(3);
        }
        if (name == "exception") throw std::runtime_error("process 0 has had enough");
        if (name == "host") return port.wait_on_host(1, 2);
        while (!port.test(0, 1)) usleep(1000); // as long as the other one waits
        return;
    }
    if (name == "host") return port.wait_on_host(0, 1);
    port.notify(1, 3, stream);
    if (name == "kernel") {
        launch(await_in_kernel, port.prepare_wait(3, 2), stream);
    } else if (name == "from") {
        port.wait_from(0, 3, 1, stream);
    } else if (name == "two") {
        port.wait(2, 1, stream);
        port.wait(2, 1, other);
    } else {
        port.wait(3, 2, stream);
    }
    cudaLaunchConfig_t shape{};
    shape.gridDim = shape.blockDim = dim3(1);
    shape.stream = stream;
    static_cast<void>(cudaLaunchKernelEx(&shape, store, behind.memory));
    if (name == "lost") port.notify(0, 2, other);
    if (cudaStreamSynchronize(stream) != cudaSuccess) std::fprintf(stderr, "the stream has failed\n");
    if (*behind.memory != 0) std::fprintf(stderr, "what is behind the wait has run\n");
    port.notify(0, 0, stream);
    std::fprintf(stderr, "the port goes on\n");
}

// What process 0 sends and process 1 receives does not match.
void send_in_vain(dcuda::runtime& job, const std::string& name) {
    const pinned<std::array<unsigned char, 20>> memory;
    const pinned<std::array<unsigned char, 4 << 20>> large;
    dcuda::stream_port port(job, 1);
    if (job.info().process_index == 0) {
        if (name == "full") port.wait(port.isend(large.memory, sizeof *large.memory, 1));
        if (name == "unread") port.wait(port.isend(memory.memory, 8, 1));
        if (name == "short") port.wait(port.isend(memory.memory, 20, 1));
        if (name == "unread") return;
        while (!port.test(0, 1)) usleep(1000); // as long as the other one waits
        return;
    }
    if (name == "unread") return;
    if (name == "full") port.wait_on_host(0, 1);
    const dcuda::request receive = port.irecv(memory.memory, 10, 0);
    if (name == "open") return;
    port.wait(receive);
    std::fprintf(stderr, "the port goes on\n");
}

} // namespace

int main(int argc, char** argv) {
    try {
        dcuda::runtime job(argc, argv);
        const std::string name = argc > 1 ? argv[1] : "";
        if (name == "unread" || name == "short" || name == "unsent" || name == "open" || name == "full")
            send_in_vain(job, name);
        else
            wait_in_vain(job, name);
        return 0;
    } catch (const std::exception& problem) {
        std::fprintf(stderr, "caught: %s\n", problem.what());
        return 1;
    }
}
