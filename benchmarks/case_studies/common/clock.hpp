// SPDX-License-Identifier: BSD-3-Clause
// The clock of kernels that measure themselves.
#pragma once

#include <cstdint>
#include <ctime>

#include "dcuda/config.hpp"

namespace common {

// Nanoseconds on the clock of the processor that runs the kernel.
DCUDA_DEVICE std::uint64_t now_ns() {
#if defined(__CUDA_ARCH__)
    std::uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
#elif DCUDA_BACKEND_CPU
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
#else
    return 0; // nvcc's host pass: never called
#endif
}

} // namespace common
