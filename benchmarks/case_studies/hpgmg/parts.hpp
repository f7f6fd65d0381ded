// SPDX-License-Identifier: BSD-3-Clause
// The parts that the time of a solve goes into, on each level.
#pragma once

namespace hpgmg {

enum class part { smoothing, restriction, interpolation, bottom, norm, sending, waiting };
inline constexpr int part_count = 7;
inline constexpr const char* part_names[part_count] = {"smoothing", "restriction", "interpolation", "bottom",
                                                       "norm",      "sending",     "waiting"};

} // namespace hpgmg
