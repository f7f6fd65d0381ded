// SPDX-License-Identifier: BSD-3-Clause
// A picture in memory, with what little drawing a labelled map needs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stencil {

struct color {
    double red = 0.0; // each 0 to 1
    double green = 0.0;
    double blue = 0.0;
};
color operator*(color c, double factor);

// A color scale: colors at equal distances, linear between them.
color pick(const std::vector<color>& scale, double at);

class canvas {
public:
    canvas(int width, int height, color background);

    int width() const { return width_; }
    int height() const { return height_; }

    // Points outside are left out.
    void point(int x, int y, color c);
    void box(int x, int y, int width, int height, color c);

    // Text in capitals of 7 points times `size`, its left upper corner at (x, y). Characters that the little font does
    // not have stay blank.
    void text(int x, int y, std::string_view words, int size, color c);
    static int text_width(std::string_view words, int size);

    // The picture as a PNG file.
    std::string png() const;

private:
    int width_;
    int height_;
    std::vector<std::uint8_t> bytes_; // red, green, blue
};

} // namespace stencil
