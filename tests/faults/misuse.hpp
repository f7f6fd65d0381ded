// SPDX-License-Identifier: BSD-3-Clause
// What the files of the program misuse share.
#pragma once

#include <dcuda/dcuda.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>

constexpr std::size_t window_bytes = 1024;

inline dcuda::launch_config shape(int ranks_per_device = 2) {
    dcuda::launch_config config;
    config.threads = dim3(8);
    config.ranks_per_device = ranks_per_device;
    return config;
}

template <class Element>
Element* device_memory(std::size_t count, Element content) {
    void* memory = nullptr;
    if (cudaMalloc(&memory, count * sizeof(Element)) != cudaSuccess ||
        cudaMemset(memory, 0, count * sizeof(Element)) != cudaSuccess ||
        cudaMemcpy(memory, &content, sizeof content, cudaMemcpyHostToDevice) != cudaSuccess)
        throw std::runtime_error("no device memory");
    return static_cast<Element*>(memory);
}

// Runs the kernel whose last rank breaks the contract of that name; false: there is none. The cases are in
// misuse_contracts.cu.
bool run_contract(const std::string& name, dcuda::runtime& job);
