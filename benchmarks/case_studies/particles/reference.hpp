// SPDX-License-Identifier: BSD-3-Clause
// The serial reference.
#pragma once

#include <cstddef>
#include <vector>

#include "motion.hpp"

namespace particles {

// Moves all particles, one step after the other, on one core of the host. Particle i of the list has the number i.
// Returns the momentum that the walls took. Throws std::runtime_error if a particle is too fast.
vector move_serially(std::vector<particle>& all, const domain& whole, int steps, double time_step);

// Sums over all particles.
struct sums {
    vector momentum;
    double energy = 0.0; // kinetic and potential
};
sums sum_up(const std::vector<particle>& all, const domain& whole);

// How two lists of particles differ.
struct comparison {
    std::size_t differing = 0; // particles that differ in at least one bit of position, velocity or number
    double largest = 0.0;      // largest absolute difference of a coordinate or speed
    std::size_t first = 0;     // the first particle that differs
    bool equal() const { return differing == 0; }
};

// Compares bit by bit. Particle i of both lists should have the number i; `seen` has been brought to the same length.
comparison compare(const std::vector<particle>& expected, const std::vector<particle>& seen);

} // namespace particles
