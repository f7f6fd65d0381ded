// SPDX-License-Identifier: BSD-3-Clause
// The points of a rank, computed by its threads.
#pragma once

#include <cuda_runtime.h>

#include "diffusion.hpp"

namespace stencil {

// PERF: a thread loads what several points need before it stores the first of them. The compiler cannot do that by
// itself, since it does not know that no store changes what is loaded. What lies behind the last column is not asked
// for but replaced by that: a branch around loads keeps them from being under way together.
inline constexpr int columns_in_flight = DCUDA_BACKEND_CUDA ? 4 : 1;
DCUDA_DEVICE int at_most(int x, int last) { return x < last ? x : last; }

// Calls store(x, compute(x)) for the columns, shared among `step` threads along x. Threads do not wait for each other.
// IsPadded: compute may be called for columns behind the last one.
template <bool IsPadded = false, class Compute, class Store>
DCUDA_DEVICE void for_each_column(range columns, int step, const Compute& compute, const Store& store) {
    constexpr int flight = columns_in_flight;
    for (int x = columns.first + static_cast<int>(threadIdx.x); x < columns.last; x += flight * step) {
        decltype(compute(x)) values[flight];
        DCUDA_UNROLL
        for (int i = 0; i < flight; ++i)
            values[i] = compute(IsPadded ? x + i * step : at_most(x + i * step, columns.last - 1));
        DCUDA_UNROLL
        for (int i = 0; i < flight; ++i)
            if (x + i * step < columns.last) store(x + i * step, values[i]);
    }
}

// Calls store(x, y, k, compute(x, y, k)) for all columns, rows and levels, shared among the rank's threads: threadIdx.x
// runs along x, threadIdx.y over lines of a row or level. Threads do not wait for each other.
template <class Compute, class Store>
DCUDA_DEVICE void for_each_point(range columns, range rows, range levels, const Compute& compute, const Store& store) {
    const int lines = rows.count() * levels.count();
    int y = rows.first, k = levels.first + static_cast<int>(threadIdx.y);
    for (int line = static_cast<int>(threadIdx.y); line < lines; line += static_cast<int>(blockDim.y)) {
        for (; k >= levels.last; k -= levels.count()) ++y;
        for_each_column(
            columns, static_cast<int>(blockDim.x), [&](int x) { return compute(x, y, k); },
            [&](int x, const auto& value) { store(x, y, k, value); });
        k += static_cast<int>(blockDim.y);
    }
}

// The same for what is computed from many rows at once.
// PERF: a thread takes several rows of a column together: for one it has loaded and computed most of what the next
// needs.
template <class Compute, class Store>
DCUDA_DEVICE void for_each_point_by_columns(range columns, range rows, range levels, const Compute& compute,
                                            const Store& store) {
    constexpr int flight = DCUDA_BACKEND_CUDA ? 4 : 1;
    const int strips = (rows.count() + flight - 1) / flight * levels.count();
    int y = rows.first, k = levels.first + static_cast<int>(threadIdx.y);
    for (int strip = static_cast<int>(threadIdx.y); strip < strips; strip += static_cast<int>(blockDim.y)) {
        for (; k >= levels.last; k -= levels.count()) y += flight;
        for (int x = columns.first + static_cast<int>(threadIdx.x); x < columns.last;
             x += static_cast<int>(blockDim.x)) {
            if (y + flight <= rows.last) {
                decltype(compute(x, y, k)) values[flight];
                DCUDA_UNROLL
                for (int i = 0; i < flight; ++i) values[i] = compute(x, y + i, k);
                DCUDA_UNROLL
                for (int i = 0; i < flight; ++i) store(x, y + i, k, values[i]);
            } else {
                for (int i = y; i < rows.last; ++i) store(x, i, k, compute(x, i, k));
            }
        }
        k += static_cast<int>(blockDim.y);
    }
}

} // namespace stencil
