// SPDX-License-Identifier: BSD-3-Clause
// The benchmark on one core, as its authors wrote it: additions in the order written, no fused multiply-add.
#pragma once

#include <cstdint>
#include <vector>

#include "grid.hpp"

namespace himeno {

// What a run comes to.
struct outcome {
    double gosa = 0.0;                // sum of the squares of the last step's changes
    double sum = 0.0;                 // of all pressures
    std::uint32_t crc = 0;            // CRC-32 of their bytes
    std::vector<float> pressure = {}; // of all points, if they are known here
};

std::vector<float> start_pressure(const grid& whole);

outcome solve_serially(const grid& whole, int steps);

// Sum and CRC-32 of a pressure.
void survey(outcome& result);

} // namespace himeno
