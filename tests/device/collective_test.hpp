// SPDX-License-Identifier: BSD-3-Clause
// What the tests of collective operations share: how many ranks there are, and numbers that look random.
#pragma once

#include "device_test.hpp"

namespace dcuda::test {

#if DCUDA_BACKEND_CUDA
inline constexpr int rank_counts[] = {1, 7, 132, 1056, 2112};
#else
inline constexpr int rank_counts[] = {1, 5, few_addresses ? 9 : 40};
#endif
inline constexpr int threads = 64;

DCUDA_HOST_DEVICE std::uint32_t mix(std::uint32_t a, std::uint32_t b) {
    std::uint32_t x = a * 0x9E3779B1u + b * 0x85EBCA6Bu + 0xC2B2AE35u;
    x = (x ^ x >> 15) * 0x2C1B3C6Du;
    return x ^ x >> 13;
}

} // namespace dcuda::test
