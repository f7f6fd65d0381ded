// SPDX-License-Identifier: BSD-3-Clause
// Device memory that is given back, and what a CUDA call returns.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>

#include <cuda_runtime.h>

namespace benchmark {

inline void check(cudaError_t status, const char* subject) {
    if (status != cudaSuccess) throw std::runtime_error(std::string(subject) + ": " + cudaGetErrorString(status));
}

struct free_device {
    void operator()(void* memory) const { cudaFree(memory); }
};
template <class Element>
using device_array = std::unique_ptr<Element[], free_device>;

// Cleared.
template <class Element>
device_array<Element> allocate(std::size_t count) {
    const std::size_t bytes = std::max<std::size_t>(1, count) * sizeof(Element);
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes), ("no device memory for " + std::to_string(bytes) + " B").c_str());
    device_array<Element> result(static_cast<Element*>(memory));
    check(cudaMemset(memory, 0, bytes), "cannot clear device memory");
    check(cudaDeviceSynchronize(), "cannot clear device memory");
    return result;
}

} // namespace benchmark
