// SPDX-License-Identifier: BSD-3-Clause
// Who owns what of a matrix: devices form a grid of rows and columns, and each has the block of the matrix at its
// place.
//
// The vector's parts start in the first row of devices, go down the columns, and meet the blocks there; the sums of the
// products come together along the rows, in the first column. On every device, and alike on all devices of a row or a
// column, ranks share the rows of the block and the elements of the vector's part.
#pragma once

#include "common/partition.hpp"

namespace sparse {

using common::part_of;
using common::partition;
using common::range;

// A position in the grid.
struct place {
    int row = 0;
    int column = 0;
};

// Devices are numbered column by column.
struct grid {
    int rows = 1;
    int columns = 1;

    DCUDA_HOST_DEVICE int devices() const { return rows * columns; }
    DCUDA_HOST_DEVICE int device_at(place at) const { return at.column * rows + at.row; }
    DCUDA_HOST_DEVICE place place_of(int device) const { return {device % rows, device / rows}; }
};

struct decomposition {
    int rows = 0; // of the matrix
    int columns = 0;
    grid devices;
    int ranks_per_device = 1;

    DCUDA_HOST_DEVICE range rows_at(place at) const { return part_of({0, rows}, devices.rows, at.row); }
    DCUDA_HOST_DEVICE range columns_at(place at) const { return part_of({0, columns}, devices.columns, at.column); }

    // What of it belongs to the rank with this number on the device.
    DCUDA_HOST_DEVICE range rows_of(place at, int number) const {
        return part_of(rows_at(at), ranks_per_device, number);
    }
    DCUDA_HOST_DEVICE range columns_of(place at, int number) const {
        return part_of(columns_at(at), ranks_per_device, number);
    }

    // The result over the first column of devices, and the vector over the first row. Part r of either belongs to rank
    // r % ranks_per_device of its device number r / ranks_per_device.
    DCUDA_HOST_DEVICE partition of_result() const { return {rows, devices.rows, ranks_per_device}; }
    DCUDA_HOST_DEVICE partition of_vector() const { return {columns, devices.columns, ranks_per_device}; }
};

// Calls body(part, overlap) for every part of the partition that has something of `wanted`.
template <class Body>
DCUDA_HOST_DEVICE void for_each_overlap(range wanted, const partition& parts, const Body& body) {
    for (int at = wanted.first; at < wanted.last;) {
        const int part = parts.owner(at);
        const range overlap = intersection(wanted, parts.of_rank(part));
        body(part, overlap);
        at = overlap.last;
    }
}

// Binomial tree over members 0, ..., count - 1, with its root in 0. A member has the children member + 2^level for all
// levels below its own, which is that of its lowest bit; the root's is above all.
struct tree {
    int count = 1;

    DCUDA_HOST_DEVICE int parent(int member) const { return member & (member - 1); }
    // Where the member is among its parent's children.
    DCUDA_HOST_DEVICE int level(int member) const {
        int result = 0;
        while ((member >> result & 1) == 0) ++result;
        return result;
    }
    // How many levels have children of the member: 0, ..., levels - 1.
    DCUDA_HOST_DEVICE int levels(int member) const {
        int result = 0;
        while (result < 30 && (member >> result & 1) == 0 && member + (1 << result) < count) ++result;
        return result;
    }
};

// The sum over the members of a tree, as each adds its children's sums in ascending levels: it takes the place of the
// first value. The others are lost.
template <class Value>
DCUDA_HOST_DEVICE void sum_of_tree(Value* members, int count) {
    for (int step = 1; step < count; step *= 2)
        for (int target = 0; target + step < count; target += 2 * step) members[target] += members[target + step];
}

} // namespace sparse
