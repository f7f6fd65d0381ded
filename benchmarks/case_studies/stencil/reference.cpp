// SPDX-License-Identifier: BSD-3-Clause
#include "reference.hpp"

#include <bit>
#include <cmath>
#include <cstdint>

namespace stencil {

void diffuse_serially(field& in, int iterations, double coefficient) {
    const grid& g = in.whole();
    field lap_values(g), fx_values(g), fy_values(g);
    const field_view f = in.view(), lap = lap_values.view(), fx = fx_values.view(), fy = fy_values.view();

    const auto for_each_point = [&](range columns, range rows, auto body) {
        for (int y = rows.first; y < rows.last; ++y)
            for (int k = 0; k < g.nz; ++k)
                for (int x = columns.first; x < columns.last; ++x) body(x, y, k);
    };
    for (int iteration = 0; iteration < iterations; ++iteration) {
        for_each_point(g.lap_columns(), g.lap_rows(),
                       [&](int x, int y, int k) { lap(x, y, k) = laplacian(f, x, y, k); });
        for_each_point(g.flux_columns(), g.flux_rows(), [&](int x, int y, int k) {
            fx(x, y, k) = flux_x(f, lap, x, y, k);
            fy(x, y, k) = flux_y(f, lap, x, y, k);
        });
        for_each_point(g.inner_columns(), g.inner_rows(),
                       [&](int x, int y, int k) { f(x, y, k) = diffused(f, fx, fy, coefficient, x, y, k); });
    }
}

comparison compare(const field& expected, const field& seen) {
    comparison result;
    for (std::size_t i = 0; i < expected.values().size(); ++i) {
        const double a = expected.values()[i];
        const double b = seen.values()[i];
        if (std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b)) continue;
        if (result.differing++ == 0) result.first = i;
        const double difference = std::abs(a - b);
        if (!(difference <= result.largest)) result.largest = difference;
    }
    return result;
}

} // namespace stencil
