// SPDX-License-Identifier: BSD-3-Clause
// The kernel that makes deliveries beside the user's if some processes are reached over a network (delivery.hpp). The
// library brings it along: a program's kernels may come from anywhere.
#pragma once

namespace dcuda {

inline constexpr unsigned most_delivery_threads = 256;

// It takes the place of one rank, so it has no more threads than a rank.
inline unsigned delivery_threads(unsigned threads_of_rank) {
    const unsigned whole_warps = threads_of_rank / 32 * 32;
    return whole_warps < 32 ? 32 : whole_warps < most_delivery_threads ? whole_warps : most_delivery_threads;
}

// Of the CUDA backend; the CPU backend's host makes deliveries itself.
const void* delivery_kernel_address();

} // namespace dcuda
