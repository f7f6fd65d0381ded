// SPDX-License-Identifier: BSD-3-Clause
// A field in host memory, and the initial field of the published measurements.
#pragma once

#include <vector>

#include "diffusion.hpp"

namespace stencil {

// Rows of a field of the grid: all of them, or those of one device.
class field {
public:
    field() = default;
    field(grid whole, range rows);
    explicit field(grid whole) : field(whole, whole.ny > 0 ? range{0, whole.ny} : range{}) {}

    const grid& whole() const { return whole_; }
    range rows() const { return rows_; }
    std::vector<double>& values() { return values_; }
    const std::vector<double>& values() const { return values_; }
    field_view view() { return {values_.data(), rows_.first, whole_.nx, whole_.plane()}; }

    // One level, x fastest: a map of nx by rows.
    std::vector<double> level(int k) const;

private:
    grid whole_;
    range rows_;
    std::vector<double> values_;
};

// The smooth field 5 + 8 (2 + cos(pi s) + sin(2 pi s)) / 4 with s = x + 1.5 y on the unit square. The published field
// is level 0; s grows by k / nz on level k, so that no two levels are alike.
field smooth_field(grid whole, range rows);

// The same map on every level. The map has nx values for each of the rows.
field repeated_map(grid whole, range rows, const std::vector<double>& map);

} // namespace stencil
