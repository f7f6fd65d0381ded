// SPDX-License-Identifier: BSD-3-Clause
// Streams, events, graphs and pinned memory of programs with two models.
#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>

#include "common/device_buffer.hpp"
#include "common/models/model.hpp"

namespace common {

class stream {
public:
    enum class priority { low, high };
    explicit stream(priority how) {
        int least = 0, greatest = 0;
        check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for priorities");
        check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, how == priority::high ? greatest : least),
              "creating a stream");
    }
    ~stream() { cudaStreamDestroy(stream_); }
    stream(const stream&) = delete;
    stream& operator=(const stream&) = delete;
    cudaStream_t get() const { return stream_; }
    void wait_on_host() const { check(cudaStreamSynchronize(stream_), "the kernels failed"); }

private:
    cudaStream_t stream_ = nullptr;
};

class event {
public:
    // cudaEventDefault to take times, cudaEventDisableTiming to join streams.
    explicit event(unsigned flags) { check(cudaEventCreateWithFlags(&event_, flags), "creating an event"); }
    ~event() { cudaEventDestroy(event_); }
    event(const event&) = delete;
    event& operator=(const event&) = delete;
    void record(const stream& on) const { check(cudaEventRecord(event_, on.get()), "recording an event"); }
    void hold_up(const stream& other) const { check(cudaStreamWaitEvent(other.get(), event_, 0), "joining streams"); }
    void wait_on_host() const { check(cudaEventSynchronize(event_), "the kernels failed"); }
    friend double milliseconds(const event& from, const event& last) {
        float elapsed = 0;
        check(cudaEventElapsedTime(&elapsed, from.event_, last.event_), "taking the time");
        return static_cast<double>(elapsed);
    }

private:
    cudaEvent_t event_ = nullptr;
};

// What was captured, to be launched again and again.
#if DCUDA_BACKEND_CUDA
class graph {
public:
    template <class Work>
    graph(const stream& on, const Work& work) {
        check(cudaStreamBeginCapture(on.get(), cudaStreamCaptureModeThreadLocal), "capturing a graph");
        work();
        cudaGraph_t captured = nullptr;
        check(cudaStreamEndCapture(on.get(), &captured), "capturing a graph");
        const cudaError_t made = cudaGraphInstantiate(&ready_, captured, 0);
        cudaGraphDestroy(captured);
        check(made, "making a graph");
        check(cudaGraphUpload(ready_, on.get()), "uploading a graph");
    }
    ~graph() { cudaGraphExecDestroy(ready_); }
    graph(const graph&) = delete;
    graph& operator=(const graph&) = delete;
    void launch(const stream& on) const { check(cudaGraphLaunch(ready_, on.get()), "launching a graph"); }

private:
    cudaGraphExec_t ready_ = nullptr;
};
#else
class graph {
public:
    template <class Work>
    graph(const stream&, const Work&) {}
    void launch(const stream&) const {}
};

// A function as work of the stream: what a kernel is on the CPU backend.
inline void launch_on_host(std::function<void()> work, cudaStream_t stream) {
    const auto run = [](void* given) {
        const std::unique_ptr<std::function<void()>> own(static_cast<std::function<void()>*>(given));
        (*own)();
    };
    check(cudaLaunchHostFunc(stream, run, new std::function<void()>(std::move(work))), "launching a loop");
}
#endif

// Memory of the host that devices read and write.
struct free_pinned {
    void operator()(void* memory) const { cudaFreeHost(memory); }
};
template <class Element>
using pinned_array = std::unique_ptr<Element[], free_pinned>;
template <class Element>
pinned_array<Element> allocate_pinned(std::size_t count) {
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, count * sizeof(Element), cudaHostAllocDefault), "pinning memory");
    return pinned_array<Element>(static_cast<Element*>(memory));
}

enum class launching { one_by_one, in_graphs };

// The names of a case study's models, each of which is a Model(setting, carrier, launching): a constant in the file
// that has it. By the names of carriers; where the host does not wait in them, on GPUs by "-graph", too.
template <class Model, class Setting>
struct two_models {
    explicit two_models(std::initializer_list<const char*> names) {
        for (const std::string carrier : names) {
            if (carrier != "nccl" || DCUDA_BACKEND_CUDA) add(carrier, carrier, launching::one_by_one);
            if (carrier != "host" && carrier != "mpi" && DCUDA_BACKEND_CUDA)
                add(carrier + "-graph", carrier, launching::in_graphs);
        }
    }

private:
    static void add(const std::string& name, const std::string& carrier, launching how) {
        typename models<Setting>::entry(
            name, [=](const Setting& given) { return std::make_unique<Model>(given, carrier, how); });
    }
};

} // namespace common
