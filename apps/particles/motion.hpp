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

#include <cmath>

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
};

// Whether particles act on each other at the distance with this square.
DCUDA_HOST_DEVICE bool is_close(double square) { return square < cutoff * cutoff && square != 0.0; }

// What its neighbours do to a particle.
struct influence {
    vector force;
    double potential = 0.0;
    int partners = 0;

    // The force stiffness * (1 - r / cutoff) along the connecting line. None between particles in the very same place,
    // which have no such line; so a particle does nothing to itself.
    DCUDA_HOST_DEVICE void add(const vector& here, const vector& there) {
        const double dx = here.x - there.x;
        const double dy = here.y - there.y;
        const double square = dx * dx + dy * dy;
        if (!is_close(square)) return;
        const double distance = std::sqrt(square);
        const double left = 1.0 - distance / cutoff;
        const double scale = stiffness * left / distance;
        force.x += scale * dx;
        force.y += scale * dy;
        potential += 0.5 * stiffness * cutoff * left * left;
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
