// SPDX-License-Identifier: BSD-3-Clause
// The arithmetic of boxes, which never wraps around: what does not fit into 64 bits is the largest number.
#pragma once

#include "dcuda/types.hpp"

namespace dcuda::detail {

inline constexpr std::size_t most_bytes = ~std::size_t{0};

DCUDA_HOST_DEVICE constexpr std::size_t add_bounded(std::size_t a, std::size_t b) {
    return a > most_bytes - b ? most_bytes : a + b;
}
DCUDA_HOST_DEVICE constexpr std::size_t multiply_bounded(std::size_t a, std::size_t b) {
    if (((a | b) >> 32) == 0) return a * b; // PERF: on GPUs a division of 64 bits takes as long as 100 additions
    return b != 0 && a > most_bytes / b ? most_bytes : a * b;
}

DCUDA_HOST_DEVICE constexpr bool is_empty(const box& shape) {
    return shape.width_bytes == 0 || shape.height == 0 || shape.depth == 0;
}

// The bytes of all rows.
DCUDA_HOST_DEVICE constexpr std::size_t payload_of(const box& shape) {
    return is_empty(shape) ? 0 : multiply_bounded(multiply_bounded(shape.width_bytes, shape.height), shape.depth);
}

// From its first byte to its last.
DCUDA_HOST_DEVICE constexpr std::size_t span_of(const box& shape, const pitch& distance) {
    if (is_empty(shape)) return 0;
    return add_bounded(add_bounded(multiply_bounded(shape.depth - 1, distance.slice_bytes),
                                   multiply_bounded(shape.height - 1, distance.row_bytes)),
                       shape.width_bytes);
}

// Whether no two rows overlap: slices lie one after the other, or all rows with the same number do, one of each slice.
DCUDA_HOST_DEVICE constexpr bool is_apart(const box& shape, const pitch& distance) {
    const auto is_nested = [&](std::size_t inner, std::size_t inner_count, std::size_t outer, std::size_t outer_count) {
        return (inner_count <= 1 || inner >= shape.width_bytes) &&
               (outer_count <= 1 || outer >= add_bounded(multiply_bounded(inner_count - 1, inner), shape.width_bytes));
    };
    return is_empty(shape) || is_nested(distance.row_bytes, shape.height, distance.slice_bytes, shape.depth) ||
           is_nested(distance.slice_bytes, shape.depth, distance.row_bytes, shape.height);
}

// PERF: the same without a division, for a box of ordinary size. False may mean that is_apart() must tell.
DCUDA_HOST_DEVICE constexpr bool is_plainly_apart(const box& shape, const pitch& distance) {
    const auto is_nested = [&](std::size_t inner, std::size_t inner_count, std::size_t outer, std::size_t outer_count) {
        const bool is_small = ((inner | inner_count) >> 31) == 0;
        return (inner_count <= 1 || inner >= shape.width_bytes) &
               (outer_count <= 1 || (is_small & (outer >= (inner_count - 1) * inner + shape.width_bytes)));
    };
    return is_nested(distance.row_bytes, shape.height, distance.slice_bytes, shape.depth) ||
           is_nested(distance.slice_bytes, shape.depth, distance.row_bytes, shape.height);
}

// Where a row begins, of a box that is within memory.
DCUDA_HOST_DEVICE constexpr std::size_t place_in(const pitch& distance, std::size_t row, std::size_t slice) {
    return row * distance.row_bytes + slice * distance.slice_bytes;
}

// The distances that a box uses, as bits that its places may have.
DCUDA_HOST_DEVICE constexpr std::size_t distances(const pitch& distance, const box& shape) {
    return (shape.height > 1 ? distance.row_bytes : 0) | (shape.depth > 1 ? distance.slice_bytes : 0);
}

} // namespace dcuda::detail
