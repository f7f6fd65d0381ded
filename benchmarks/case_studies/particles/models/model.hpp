// SPDX-License-Identifier: BSD-3-Clause
// Other ways to move the particles, to compare dCUDA with: --model. docs/guide/particles.md says what each does.
#pragma once

#include <cstddef>
#include <vector>

#include "common/models/model.hpp"
#include "options.hpp"
#include "task.hpp"

namespace particles {

// Threads of a block, unless --threads says.
inline constexpr int default_model_threads = 128;

// What a model works on: this device's part. It moves the particles that the lists hold at the start, and leaves them
// in blocks, velocities and numbers.
struct setting {
    const options& chosen;
    task work; // one rank per device, with a tally
    int threads = 0;
    std::vector<tally>& known; // a run's tallies, one of each device; all processes get the same
};

using models = common::models<setting>;

// Of each message between two devices, in a step.
std::size_t message_bytes(int capacity, double time_step);

} // namespace particles
