// SPDX-License-Identifier: BSD-3-Clause
#include "field.hpp"

#include <cmath>
#include <numbers>

namespace stencil {

field::field(grid whole, range rows)
    : whole_(whole), rows_(rows), values_(whole.plane() * static_cast<std::size_t>(rows.count())) {}

std::vector<double> field::level(int k) const {
    std::vector<double> map;
    const auto nx = static_cast<std::size_t>(whole_.nx);
    map.reserve(nx * static_cast<std::size_t>(rows_.count()));
    for (std::size_t at = static_cast<std::size_t>(k) * nx; at < values_.size(); at += whole_.plane()) {
        const auto line = values_.begin() + static_cast<std::ptrdiff_t>(at);
        map.insert(map.end(), line, line + whole_.nx);
    }
    return map;
}

field smooth_field(grid whole, range rows) {
    constexpr double pi = std::numbers::pi;
    field result(whole, rows);
    const field_view out = result.view();
    for (int y = rows.first; y < rows.last; ++y)
        for (int k = 0; k < whole.nz; ++k)
            for (int x = 0; x < whole.nx; ++x) {
                const double s = (x + 0.5) / whole.nx + 1.5 * (y + 0.5) / whole.ny + static_cast<double>(k) / whole.nz;
                out(x, y, k) = 5.0 + 8.0 * (2.0 + std::cos(pi * s) + std::sin(2.0 * pi * s)) / 4.0;
            }
    return result;
}

field repeated_map(grid whole, range rows, const std::vector<double>& map) {
    field result(whole, rows);
    const field_view out = result.view();
    auto line = map.begin();
    for (int y = rows.first; y < rows.last; ++y, line += whole.nx)
        for (int k = 0; k < whole.nz; ++k) std::copy(line, line + whole.nx, &out(0, y, k));
    return result;
}

} // namespace stencil
