// SPDX-License-Identifier: BSD-3-Clause
// Streams of tests, and ordinary kernels in them.
#pragma once

#include "device/device_test.hpp"

namespace dcuda::test {

class own_stream {
public:
    own_stream() { require_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
    ~own_stream() { cudaStreamDestroy(stream_); }
    own_stream(const own_stream&) = delete;
    own_stream& operator=(const own_stream&) = delete;
    operator cudaStream_t() const { return stream_; }
    void finish() const { require_cuda(cudaStreamSynchronize(stream_)); }

private:
    cudaStream_t stream_ = nullptr;
};

template <class... Params, class... Args>
void launch(unsigned blocks, unsigned threads, cudaStream_t stream, void (*kernel)(Params...), Args... arguments) {
    cudaLaunchConfig_t shape{};
    shape.gridDim = dim3(blocks);
    shape.blockDim = dim3(threads);
    shape.stream = stream;
    require_cuda(cudaLaunchKernelEx(&shape, kernel, static_cast<Params>(arguments)...));
}

} // namespace dcuda::test
