// SPDX-License-Identifier: BSD-3-Clause
// Random numbers that depend on their place alone, not on those before: any process computes any of them.
#pragma once

#include <cstdint>

namespace common {

// Splitmix64, which scrambles a counter.
inline std::uint64_t scrambled(std::uint64_t value) {
    value += 0x9e3779b97f4a7c15u;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

// From 0 to below 1.
inline double fraction(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

} // namespace common
