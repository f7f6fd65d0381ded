// SPDX-License-Identifier: BSD-3-Clause
// Grey maps in the PGM format (binary, P5), with 8 or 16 bits per sample.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stencil {

struct gray_map {
    int width = 0;
    int height = 0;
    std::vector<std::uint16_t> samples; // rows from top to bottom
};

// Parses a file's contents. Throws std::runtime_error that names the file and what is wrong with it.
gray_map parse_pgm(std::string_view contents, const std::string& name);

// A 16-bit file (maximum 65535, most significant byte first) with a comment line.
std::string format_pgm(const gray_map& map, const std::string& comment);

} // namespace stencil
