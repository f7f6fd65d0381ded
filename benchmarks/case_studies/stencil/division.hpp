// SPDX-License-Identifier: BSD-3-Clause
// Who computes what.
#pragma once

#include "common/partition.hpp"
#include "diffusion.hpp"

namespace stencil {

// Rows are cut into one part per device and these into parts of ranks; the ranks of a part share its levels, which do
// not depend on each other. On a device, the ranks with the first levels come first.
struct division {
    partition rows; // ranks_per_device: parts of a device's rows
    int levels = 1;
    int level_parts = 1;

    DCUDA_HOST_DEVICE int ranks_per_device() const { return rows.ranks_per_device * level_parts; }
    DCUDA_HOST_DEVICE int ranks() const { return rows.devices * ranks_per_device(); }

    DCUDA_HOST_DEVICE range rows_of(int rank) const {
        return rows.of_rank(device_of(rank) * rows.ranks_per_device + number_of(rank) % rows.ranks_per_device);
    }
    DCUDA_HOST_DEVICE int level_part_of(int rank) const { return number_of(rank) / rows.ranks_per_device; }
    DCUDA_HOST_DEVICE range levels_of(int rank) const {
        return common::part_of({0, levels}, level_parts, level_part_of(rank));
    }

    // The rank that has the same levels of this row, or -1 for a row outside the grid.
    DCUDA_HOST_DEVICE int beside(int rank, int row) const {
        const int owner = rows.owner(row), parts = rows.ranks_per_device;
        return owner < 0 ? -1 : owner / parts * ranks_per_device() + level_part_of(rank) * parts + owner % parts;
    }

    DCUDA_HOST_DEVICE int device_of(int rank) const { return rank / ranks_per_device(); }
    DCUDA_HOST_DEVICE int number_of(int rank) const { return rank % ranks_per_device(); }
};

// A part's rows: `halo` at either end, which neighbours need, and what lies between. Of few rows there is no last.
struct border_rows {
    range first, inner, last;

    constexpr border_rows() = default;
    DCUDA_HOST_DEVICE border_rows(range rows, int halo)
        : first(common::intersection(rows, {rows.first, rows.first + halo})),
          inner{first.last, rows.last - halo > first.last ? rows.last - halo : first.last}, last{inner.last,
                                                                                                 rows.last} {}
};

} // namespace stencil
