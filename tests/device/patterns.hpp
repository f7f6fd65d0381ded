// SPDX-License-Identifier: BSD-3-Clause
// Of tests of streams: who is beside whom, kernels that make data and look at it, and calls that are refused.
#pragma once

#include "device/device_test.hpp"

#include <dcuda/error.hpp>

#include <functional>

namespace dcuda::test {

// Processes in a ring.
class port_test : public device_test {
protected:
    int own() { return job().info().process_index; }
    int count() { return job().info().process_count; }
    int next() { return (own() + 1) % count(); }
    int previous() { return (own() + count() - 1) % count(); }
};

// Bytes that depend on their place and a seed; and whether they are there.
inline __global__ void fill(unsigned char* memory, std::size_t bytes, std::uint64_t seed) {
    for_each_thread(bytes, [=](std::size_t i) { memory[i] = pattern(i, seed); });
}
inline __global__ void compare(const unsigned char* memory, std::size_t bytes, std::uint64_t seed, unsigned* wrong) {
    for_each_thread(bytes, [=](std::size_t i) {
        if (memory[i] != pattern(i, seed)) atomicAdd(wrong, 1u);
    });
}

#if DCUDA_BACKEND_CUDA
// The same for graphs: bytes that depend also on how many launches there were.
inline __global__ void fill_by_launch(unsigned char* memory, std::size_t bytes, const unsigned* launches,
                                      std::uint64_t seed) {
    for_each_thread(bytes, [=](std::size_t i) { memory[i] = pattern(i, seed + *launches); });
}
inline __global__ void compare_by_launch(const unsigned char* memory, std::size_t bytes, unsigned* launches,
                                         std::uint64_t seed, unsigned* wrong) {
    for_each_thread(bytes, [=](std::size_t i) {
        if (memory[i] != pattern(i, seed + *launches)) atomicAdd(wrong, 1u);
    });
    __syncthreads();
    if (threadIdx.x == 0) ++*launches;
}
#endif

inline void expect_refused(const std::function<void()>& call, const std::string& part) {
    try {
        call();
        ADD_FAILURE() << "not refused: " << part;
    } catch (const dcuda::error& refusal) {
        EXPECT_EQ(refusal.code(), dcuda::error_code::invalid_argument);
        EXPECT_NE(std::string(refusal.what()).find(part), std::string::npos) << refusal.what();
    }
}

} // namespace dcuda::test
