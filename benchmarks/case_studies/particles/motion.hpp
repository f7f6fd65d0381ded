// SPDX-License-Identifier: BSD-3-Clause
// The physics of the particles, for host and device: constants, forces, and the motion of one particle.
//
// Particles of equal mass repel each other when they are closer than the cut-off, and fly freely otherwise. Four walls
// reflect them. A step is kick, drift, kick: half a step of acceleration, a step of motion, and half a step of the
// acceleration in the new place.
//
// The sum of forces depends on its order in the last bit, so that is fixed: the nine cells around a particle by y, then
// x, and in each cell by the particles' numbers. Compile without contraction to fused multiply-add (nvcc -fmad=false,
// host -ffp-contract=off): then every backend rounds alike and results are equal to the last bit, however the domain is
// divided.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "common/partition.hpp"

namespace particles {

using common::partition;
using common::range;

// All constants. Lengths are in units of the cut-off, so that cells and segments are the unit squares and rows, and an
// integer part is all it takes to find them.
inline constexpr double cutoff = 1.0;
inline constexpr double mass = 1.0;
inline constexpr double stiffness = 1.0;       // the force at distance 0
inline constexpr double start_speed = 1.0;     // the largest in x and in y at the start
inline constexpr double start_jitter = 0.25;   // how far at most from its place in the lattice, in parts of the spacing
inline constexpr double default_step = 0.01;   // of time
inline constexpr int default_size = 416;       // of the published domain: in x, and on each device in y
inline constexpr int default_count = 410'600;  // of particles on each device, as published
inline constexpr double default_spare = 0.25;  // of a segment's capacity: above the average by this part of it,
inline constexpr double shared_spare = 0.1;    // in shared memory by this part,
inline constexpr int default_spare_count = 64; // and by this many

struct vector {
    double x = 0.0;
    double y = 0.0;
};

struct particle {
    vector at;
    vector velocity;
    long long number = 0;
};

// The domain: a rectangle with its corner in 0, cut along y into segments, and those along x into cells.
struct domain {
    int columns = 0;  // cells of a segment: the size in x
    int segments = 0; // the size in y
    long long particles = 0;

    // A particle on the far wall belongs to the last cell.
    DCUDA_HOST_DEVICE int column_of(double x) const {
        const auto column = static_cast<int>(x);
        return column < columns ? column : columns - 1;
    }
    DCUDA_HOST_DEVICE int segment_of(double y) const {
        const auto segment = static_cast<int>(y);
        return segment < segments ? segment : segments - 1;
    }
    // All cells are numbered along x, segment by segment.
    DCUDA_HOST_DEVICE int cell_of(const vector& at) const { return segment_of(at.y) * columns + column_of(at.x); }

    // The column and those beside it.
    DCUDA_HOST_DEVICE range columns_around(int column) const {
        return {column > 0 ? column - 1 : 0, column + 2 < columns ? column + 2 : columns};
    }
};

// Whether particles act on each other at the distance with this square: not beyond the cut-off, and not in the very
// same place, which has no direction.
inline constexpr double same_place = 0x1p-900;
constexpr unsigned upper_half(double value) { return static_cast<unsigned>(std::bit_cast<std::uint64_t>(value) >> 32); }
inline constexpr unsigned first_close = upper_half(same_place), end_close = upper_half(cutoff * cutoff);
static_assert(static_cast<unsigned>(std::bit_cast<std::uint64_t>(cutoff * cutoff)) == 0, "or compare all bits");
DCUDA_HOST_DEVICE bool is_close(double square) {
#if defined(__CUDA_ARCH__)
    // PERF: by the upper halves, as whole numbers: that takes nothing from the arithmetic in double precision.
    return static_cast<unsigned>(__double2hiint(square)) - first_close < end_close - first_close;
#else
    return square >= same_place && square < cutoff * cutoff;
#endif
}

// What acts at the distance with this square: of the distance, what is left to the cut-off, in parts of that; and that
// by the distance. Both are rounded as a root and a division are.
struct repulsion {
    double left, by_distance;

    DCUDA_HOST_DEVICE explicit repulsion(double square) {
#if defined(__CUDA_ARCH__)
        // PERF: what the compiler makes of a root and a division, but the division begins with the reciprocal that the
        // root has found, and neither checks for what is_close excludes. Each last step adds a correction from a
        // remainder that is exact (Markstein, IBM J. Res. Dev. 34, 1990), so the result is rounded correctly.
        double reciprocal;
        asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(reciprocal) : "d"(square));
        const double error = __fma_rn(square, -(reciprocal * reciprocal), 1.0);
        reciprocal = __fma_rn(__fma_rn(error, 0.375, 0.5), reciprocal * error, reciprocal);
        const double root = square * reciprocal;
        const double distance = __fma_rn(__fma_rn(root, -root, square), 0.5 * reciprocal, root);
        left = 1.0 - distance / cutoff;
        reciprocal = __fma_rn(__fma_rn(reciprocal, -distance, 1.0), reciprocal, reciprocal);
        const double quotient = left * reciprocal;
        by_distance = __fma_rn(reciprocal, __fma_rn(quotient, -distance, left), quotient);
#else
        const double distance = std::sqrt(square);
        left = 1.0 - distance / cutoff;
        by_distance = left / distance;
#endif
    }
};

// What its neighbours do to a particle.
struct influence {
    vector force;
    double potential = 0.0;
    int partners = 0;

    // The force stiffness * (1 - r / cutoff) along the connecting line. A particle does nothing to itself.
    DCUDA_HOST_DEVICE void add(const vector& here, const vector& there) {
        const double dx = here.x - there.x;
        const double dy = here.y - there.y;
        const double square = dx * dx + dy * dy;
        if (is_close(square)) add_close(dx, dy, square);
    }
    DCUDA_HOST_DEVICE void add_close(double dx, double dy, double square) {
        const repulsion between(square);
        const double scale = stiffness * between.by_distance;
        force.x += scale * dx;
        force.y += scale * dy;
        potential += 0.5 * stiffness * cutoff * between.left * between.left;
        ++partners;
    }
};

// Half a step of acceleration.
DCUDA_HOST_DEVICE void kick(vector& velocity, const vector& force, double time_step) {
    velocity.x += 0.5 * time_step / mass * force.x;
    velocity.y += 0.5 * time_step / mass * force.y;
}

// Whether a particle moves by less than the cut-off: then it meets at most one wall of each direction, and its next
// segment is its own or one beside it. Not so either if something is no number.
DCUDA_HOST_DEVICE bool is_slow(const vector& velocity, double time_step) {
    return std::abs(time_step * velocity.x) < cutoff && std::abs(time_step * velocity.y) < cutoff;
}

// Brings a coordinate back between the walls at 0 and `length`. Returns the momentum that the wall took.
DCUDA_HOST_DEVICE double reflect(double& at, double& speed, double length) {
    if (at >= 0.0 && at <= length) return 0.0;
    at = at < 0.0 ? -at : 2.0 * length - at;
    speed = -speed;
    return -2.0 * mass * speed;
}

// A step of motion. Returns the momentum that the walls took.
DCUDA_HOST_DEVICE vector drift(particle& moved, const domain& whole, double time_step) {
    moved.at.x += time_step * moved.velocity.x;
    moved.at.y += time_step * moved.velocity.y;
    return {reflect(moved.at.x, moved.velocity.x, whole.columns),
            reflect(moved.at.y, moved.velocity.y, whole.segments)};
}

} // namespace particles
