// SPDX-License-Identifier: BSD-3-Clause
// A device's part of the grid, and a point of a step: for ranks and for short kernels.
#pragma once

#include <cstdint>

#include "common/partition.hpp"
#include "dcuda/host.hpp"
#include "grid.hpp"

namespace himeno {

using common::range;

// What a device has, in its memory: some rows of some planes, and one row and one plane more on either side, which
// the devices beside it compute, or which are the grid's boundary. The pressure is there twice, as each step reads one
// and writes the other.
struct slab {
    grid whole;
    common::partition planes; // over the parts of the planes
    common::partition rows;   // 1 to nj - 2, counted from 0, over the parts of the rows, and over ranks
    int device = 0;
    int first_plane = 0, first_row = 0; // that this device has
    std::uint32_t plane_stride = 0;     // points on this device from one plane to the next
    const float* coefficients[coefficient_count] = {};
    float* pressure[2] = {}; // that step 0 reads, and writes; one after the other
    dcuda::window window{};  // over both

    slab(const grid& cut, device_grid devices, int on_device)
        : whole(cut), planes{cut.ni, devices.plane_parts, 1}, rows{cut.nj - 2, devices.row_parts, 1}, device(on_device),
          first_plane(stored(device).first), first_row(stored_rows(device).first),
          plane_stride(static_cast<std::uint32_t>(plane_points(device))) {}

    // Devices that share planes have consecutive numbers.
    DCUDA_HOST_DEVICE int plane_part(int on_device) const { return on_device / rows.devices; }
    DCUDA_HOST_DEVICE int row_part(int on_device) const { return on_device % rows.devices; }
    DCUDA_HOST_DEVICE int device_count() const { return planes.devices * rows.devices; }

    // The device's planes that are computed.
    DCUDA_HOST_DEVICE range computed() const { return computed_by(device); }
    DCUDA_HOST_DEVICE range computed_by(int on_device) const {
        return common::intersection(planes.of_device(plane_part(on_device)), {1, whole.ni - 1});
    }
    DCUDA_HOST_DEVICE range computed_rows(int on_device) const {
        const range counted = rows.of_device(row_part(on_device));
        return {counted.first + 1, counted.last + 1};
    }
    DCUDA_HOST_DEVICE range stored(int on_device) const {
        return common::with_halo(planes.of_device(plane_part(on_device)));
    }
    DCUDA_HOST_DEVICE range stored_rows(int on_device) const { return common::with_halo(computed_rows(on_device)); }
    DCUDA_HOST_DEVICE std::size_t plane_points(int on_device) const {
        return std::size_t(stored_rows(on_device).count()) * std::size_t(whole.nk);
    }
    DCUDA_HOST_DEVICE std::size_t array_points(int on_device) const {
        return std::size_t(stored(on_device).count()) * plane_points(on_device);
    }
    // Where a point is in the arrays of a device.
    DCUDA_HOST_DEVICE std::size_t place(int on_device, int i, int j, int k) const {
        return std::size_t(i - stored(on_device).first) * plane_points(on_device) +
               std::size_t(j - stored_rows(on_device).first) * std::size_t(whole.nk) + std::size_t(k);
    }
    // The same on this device. PERF: a number of half the registers; slab_memory sees to it that it suffices.
    DCUDA_DEVICE std::uint32_t index(int i, int j, int k) const {
        return static_cast<std::uint32_t>(i - first_plane) * plane_stride +
               static_cast<std::uint32_t>((j - first_row) * whole.nk + k);
    }
    DCUDA_DEVICE std::uint32_t next_plane(std::uint32_t at) const { return at + plane_stride; }
    // The same in the window, in bytes; of the array that step `step` writes.
    DCUDA_HOST_DEVICE std::size_t place_in_window(int on_device, int step, int i, int j) const {
        const std::size_t before = std::size_t((step + 1) % 2) * array_points(on_device);
        return (before + place(on_device, i, j, 0)) * sizeof(float);
    }
};

// With `IsFused`, each product and the addition behind it are rounded once.
template <bool IsFused>
DCUDA_DEVICE float multiply_add(float a, float b, float c) {
    return IsFused ? fmaf(a, b, c) : a * b + c;
}

// One point of a step. Returns the square of its change.
template <bool IsFused>
DCUDA_DEVICE float compute_point(const slab& work, const float* in, float* out, std::uint32_t at) {
    const auto row = static_cast<std::int32_t>(work.whole.nk), plane = static_cast<std::int32_t>(work.plane_stride);
    const float* const p = in + at;
    const auto c = [&](int which) { return work.coefficients[which][at]; };
    float s0 = c(0) * p[plane];
    s0 = multiply_add<IsFused>(c(1), p[row], s0);
    s0 = multiply_add<IsFused>(c(2), p[1], s0);
    s0 = multiply_add<IsFused>(c(4), p[plane + row] - p[plane - row] - p[-plane + row] + p[-plane - row], s0);
    s0 = multiply_add<IsFused>(c(5), p[row + 1] - p[-row + 1] - p[row - 1] + p[-row - 1], s0);
    s0 = multiply_add<IsFused>(c(6), p[plane + 1] - p[-plane + 1] - p[plane - 1] + p[-plane - 1], s0);
    s0 = multiply_add<IsFused>(c(7), p[-plane], s0);
    s0 = multiply_add<IsFused>(c(8), p[-row], s0);
    s0 = multiply_add<IsFused>(c(9), p[-1], s0);
    s0 += c(11);
    const float ss = multiply_add<IsFused>(s0, c(3), -p[0]) * c(10);
    out[at] = multiply_add<IsFused>(omega, ss, p[0]);
    return ss * ss;
}

// The sum of what the threads of a block have, in all of them. `parts`: of the block's shared memory, one for each.
DCUDA_DEVICE double sum_of_block(double* parts, double own) {
    __syncthreads(); // the last sum has been read
    parts[threadIdx.x] = own;
    __syncthreads();
    for (unsigned count = blockDim.x; count > 1; count = (count + 1) / 2) {
        if (threadIdx.x + (count + 1) / 2 < count) parts[threadIdx.x] += parts[threadIdx.x + (count + 1) / 2];
        __syncthreads();
    }
    return parts[0];
}

} // namespace himeno
