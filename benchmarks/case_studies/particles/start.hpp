// SPDX-License-Identifier: BSD-3-Clause
// Where the particles are at the start.
#pragma once

#include <cstdint>
#include <vector>

#include "motion.hpp"

namespace particles {

// The particles of some segments, by number. Every segment gets its share, on a lattice of its own in which each
// particle is moved a little; velocities are random. Both depend on the seed and the particle's number alone.
std::vector<particle> start_of(const domain& whole, range segments, std::uint64_t seed);

// How many particles a segment has at the start.
int start_count(const domain& whole, int segment);

} // namespace particles
