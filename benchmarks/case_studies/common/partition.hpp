// SPDX-License-Identifier: BSD-3-Clause
// Who owns which rows (of a grid, or of segments): they are cut into one part per device, and each part into one per
// rank of the device.
#pragma once

#include "dcuda/config.hpp"

namespace common {

// Rows or columns first, ..., last - 1.
struct range {
    int first = 0;
    int last = 0;

    DCUDA_HOST_DEVICE int count() const { return last > first ? last - first : 0; }
    DCUDA_HOST_DEVICE bool empty() const { return count() == 0; }
};

DCUDA_HOST_DEVICE range intersection(range a, range b) {
    return {a.first > b.first ? a.first : b.first, a.last < b.last ? a.last : b.last};
}

// The rows and some more on either side: its neighbours' border rows.
DCUDA_HOST_DEVICE range with_halo(range rows, int halo = 1) { return {rows.first - halo, rows.last + halo}; }

// Part `index` of `whole` cut into `parts`. The first parts are one longer if it does not divide; with more parts than
// rows the last ones are empty.
DCUDA_HOST_DEVICE range part_of(range whole, int parts, int index) {
    const int length = whole.count() / parts;
    const int longer = whole.count() % parts;
    const int first = whole.first + index * length + (index < longer ? index : longer);
    return {first, first + length + (index < longer ? 1 : 0)};
}

// Which part of `whole` cut into `parts` holds `row`: the inverse of part_of.
DCUDA_HOST_DEVICE int part_that_holds(range whole, int parts, int row) {
    const int length = whole.count() / parts;
    const int longer = whole.count() % parts;
    const int at = row - whole.first;
    if (at < longer * (length + 1)) return at / (length + 1);
    return longer + (at - longer * (length + 1)) / length;
}

// Rows over devices, then over the ranks of each device. World ranks are numbered device by device.
struct partition {
    int rows = 0;
    int devices = 1;
    int ranks_per_device = 1;

    DCUDA_HOST_DEVICE range all() const { return {0, rows}; }
    DCUDA_HOST_DEVICE range of_device(int device) const { return part_of(all(), devices, device); }
    DCUDA_HOST_DEVICE range of_rank(int rank) const {
        return part_of(of_device(rank / ranks_per_device), ranks_per_device, rank % ranks_per_device);
    }

    // The world rank that owns the row, or -1 for a row outside the grid.
    DCUDA_HOST_DEVICE int owner(int row) const {
        if (row < 0 || row >= rows) return -1;
        const int device = part_that_holds(all(), devices, row);
        return device * ranks_per_device + part_that_holds(of_device(device), ranks_per_device, row);
    }
};

} // namespace common
