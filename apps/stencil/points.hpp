// The points of a rank, computed by its threads.
#pragma once

#include <cuda_runtime.h>

#include "diffusion.hpp"

namespace stencil {

// Calls body(x, y, k) for all columns, rows and levels, shared among the rank's threads: threadIdx.x runs along x,
// threadIdx.y over lines of a row or level. All have returned when it returns.
template <class Body>
DCUDA_DEVICE void for_each_point(range columns, range rows, int levels, const Body& body) {
    const int lines = rows.count() * levels;
    for (int line = static_cast<int>(threadIdx.y); line < lines; line += static_cast<int>(blockDim.y)) {
        const int y = rows.first + line / levels;
        const int k = line % levels;
        for (int x = columns.first + static_cast<int>(threadIdx.x); x < columns.last; x += static_cast<int>(blockDim.x))
            body(x, y, k);
    }
    __syncthreads();
}

} // namespace stencil
