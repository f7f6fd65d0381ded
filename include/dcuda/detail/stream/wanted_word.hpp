// SPDX-License-Identifier: BSD-3-Clause
// What the host is told of a stream's or a short kernel's wait that lasts: one word, so that it is told all at once.
#pragma once

#include "dcuda/config.hpp"

#include <cstdint>

namespace dcuda::detail {

// 0 tells of no wait: each is for one notification or more.
DCUDA_HOST_DEVICE std::uint64_t wanted_word(std::uint32_t count, std::uint32_t expected) {
    return std::uint64_t{count} << 32 | expected;
}
DCUDA_HOST_DEVICE std::uint32_t wanted_count(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); }

// Up to which number of notifications the wait lasts.
DCUDA_HOST_DEVICE std::uint32_t wanted_number(std::uint64_t word) { return static_cast<std::uint32_t>(word); }

} // namespace dcuda::detail
