// SPDX-License-Identifier: BSD-3-Clause
// An array in device memory.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "dcuda/host.hpp"

namespace common {

inline void check(cudaError_t status, const char* subject) {
    if (status != cudaSuccess) throw std::runtime_error(std::string(subject) + ": " + cudaGetErrorString(status));
}

// Of this process's device.
inline int multiprocessors() {
    int device = 0, count = 0;
    check(cudaGetDevice(&device), "asking for the device");
    check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "asking for multiprocessors");
    return count;
}

template <class Element>
class device_buffer {
public:
    device_buffer() = default;
    explicit device_buffer(std::size_t count) : count_(count) {
        const std::size_t bytes = (count > 0 ? count : 1) * sizeof(Element);
        void* memory = nullptr;
        check(cudaMalloc(&memory, bytes), ("cannot allocate " + std::to_string(bytes) + " B of device memory").c_str());
        data_ = static_cast<Element*>(memory);
    }
    device_buffer(device_buffer&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
    device_buffer& operator=(device_buffer&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(count_, other.count_);
        return *this;
    }
    ~device_buffer() { cudaFree(data_); }

    Element* data() const { return data_; }
    std::size_t count() const { return count_; }
    std::size_t bytes() const { return count_ * sizeof(Element); }

    void upload(const Element* source, std::size_t count, std::size_t at = 0) {
        if (count == 0) return;
        check(cudaMemcpy(data_ + at, source, count * sizeof(Element), cudaMemcpyHostToDevice), "copy to the device");
    }
    void clear() {
        const std::vector<Element> zeros(count_);
        upload(zeros.data(), zeros.size());
    }
    void download(Element* target, std::size_t count, std::size_t at = 0) const {
        if (count == 0) return;
        check(cudaMemcpy(target, data_ + at, count * sizeof(Element), cudaMemcpyDeviceToHost), "copy from the device");
    }

private:
    Element* data_ = nullptr;
    std::size_t count_ = 0;
};

} // namespace common
