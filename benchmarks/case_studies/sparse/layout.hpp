// SPDX-License-Identifier: BSD-3-Clause
// What a device has of the matrix and the vectors, and where it lies in its memory.
#pragma once

#include <cstddef>

#include "arithmetic.hpp"
#include "common/run_series.hpp"
#include "decomposition.hpp"

namespace sparse {

DCUDA_HOST_DEVICE std::size_t bytes_of(int elements) { return static_cast<std::size_t>(elements) * sizeof(double); }

// Where things lie in the memory of a device, in bytes from its start, each at a multiple of 16: first a program's own
// `board`, then three vectors, two products, and a received product for each child in the tree along the row. They have
// room for what the first device has, which is the most, so they lie at the same place on all devices; and a vector has
// room for a product.
struct layout {
    static constexpr int vectors = 3;
    static constexpr int products = 2;

    std::size_t board_bytes;
    std::size_t vector_bytes;
    std::size_t product_bytes;
    int levels; // of the tree

    layout() = default;
    DCUDA_HOST_DEVICE layout(const decomposition& whole, std::size_t board)
        : board_bytes((board + 15) / 16 * 16), vector_bytes(bytes_of(whole.columns_at({0, 0}))),
          product_bytes(bytes_of(whole.rows_at({0, 0}))), levels(tree{whole.devices.columns}.levels(0)) {
        if (vector_bytes < product_bytes) vector_bytes = product_bytes;
    }

    DCUDA_HOST_DEVICE std::size_t vector(int buffer) const {
        return board_bytes + static_cast<std::size_t>(buffer) * vector_bytes;
    }
    DCUDA_HOST_DEVICE std::size_t product(int buffer) const {
        return vector(vectors) + static_cast<std::size_t>(buffer) * product_bytes;
    }
    DCUDA_HOST_DEVICE std::size_t received(int level) const { return product(products + level); }
    DCUDA_HOST_DEVICE std::size_t bytes() const { return received(levels); }

private:
    static DCUDA_HOST_DEVICE std::size_t bytes_of(range elements) {
        return (static_cast<std::size_t>(elements.count()) * sizeof(double) + 15) / 16 * 16;
    }
};

// A device's memory and its part of the work: what the host hands to the kernels.
struct task {
    decomposition whole;
    int device = 0;
    csr_view matrix{}; // the device's block, in device memory
    std::byte* memory = nullptr;
    std::size_t board_bytes = 0;
    int team = 1;                  // threads that share a row: 1 or row_lanes
    std::size_t on_chip_bytes = 0; // of a rank's shared memory, for its rows of the matrix
    common::run_series runs;

    DCUDA_HOST_DEVICE place here() const { return whole.devices.place_of(device); }
    DCUDA_HOST_DEVICE layout places() const { return {whole, board_bytes}; }
};

} // namespace sparse
