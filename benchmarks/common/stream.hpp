// SPDX-License-Identifier: BSD-3-Clause
// Streams, and rounds that are captured from one.
#pragma once

#include "common/device_memory.hpp"
#include "dcuda/config.hpp"

namespace benchmark {

class stream {
public:
    stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cannot create a stream"); }
    ~stream() { cudaStreamDestroy(stream_); }
    stream(const stream&) = delete;
    stream& operator=(const stream&) = delete;
    cudaStream_t get() const { return stream_; }
    void finish() const { check(cudaStreamSynchronize(stream_), "a stream failed"); }

private:
    cudaStream_t stream_ = nullptr;
};

#if DCUDA_BACKEND_CUDA
// So many rounds, captured from a stream.
class graph {
public:
    template <class Round>
    graph(cudaStream_t stream, int rounds, const Round& round) {
        check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cannot capture");
        for (int i = 0; i < rounds; ++i) round();
        check(cudaStreamEndCapture(stream, &graph_), "cannot capture");
        check(cudaGraphInstantiate(&ready_, graph_, 0), "cannot make a graph");
    }
    ~graph() {
        cudaGraphExecDestroy(ready_);
        cudaGraphDestroy(graph_);
    }
    graph(const graph&) = delete;
    graph& operator=(const graph&) = delete;
    void launch(cudaStream_t stream) const { check(cudaGraphLaunch(ready_, stream), "cannot launch a graph"); }

private:
    cudaGraph_t graph_ = nullptr;
    cudaGraphExec_t ready_ = nullptr;
};
#endif

} // namespace benchmark
