// SPDX-License-Identifier: BSD-3-Clause
// Numbers in the words of a report.
#pragma once

#include <concepts>
#include <cstddef>
#include <string>

#include <fmt/format.h>

namespace common {

// 1234567 as 1,234,567.
inline std::string grouped(std::integral auto number) {
    std::string text = std::to_string(number);
    for (std::ptrdiff_t at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3)
        text.insert(static_cast<std::size_t>(at), 1, ',');
    return text;
}

inline std::string duration(double seconds) {
    if (seconds >= 1.0) return fmt::format("{:.2f} s", seconds);
    if (seconds >= 1e-3) return fmt::format("{:.2f} ms", seconds * 1e3);
    return fmt::format("{:.2f} us", seconds * 1e6);
}

inline std::string counted(int count, const char* noun) {
    return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

} // namespace common
