// SPDX-License-Identifier: BSD-3-Clause
// A rank's threads.
#pragma once

#include "dcuda/device.hpp"

namespace common {

// The threads of a block are in one row.
DCUDA_DEVICE int thread() { return static_cast<int>(threadIdx.x); }
DCUDA_DEVICE int threads() { return static_cast<int>(blockDim.x); }

// Calls body(i) for 0, ..., count - 1, shared among the rank's threads. All have returned when it returns.
template <class Body>
DCUDA_DEVICE void for_each_index(int count, const Body& body) {
    for (int i = thread(); i < count; i += threads()) body(i);
    __syncthreads();
}

} // namespace common
