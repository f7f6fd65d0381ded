// SPDX-License-Identifier: BSD-3-Clause
#include "canvas.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include <png.h>

namespace stencil {

namespace {

constexpr int glyph_width = 5;
constexpr int glyph_height = 7;

struct glyph {
    char character;
    const char* rows; // from top to bottom, each followed by a blank
};

constexpr glyph font[] = {
    {'0', ".###. #...# #..## #.#.# ##..# #...# .###. "}, {'1', "..#.. .##.. ..#.. ..#.. ..#.. ..#.. .###. "},
    {'2', ".###. #...# ....# ..##. .#... #.... ##### "}, {'3', ".###. #...# ....# ..##. ....# #...# .###. "},
    {'4', "...#. ..##. .#.#. #..#. ##### ...#. ...#. "}, {'5', "##### #.... ####. ....# ....# #...# .###. "},
    {'6', "..##. .#... #.... ####. #...# #...# .###. "}, {'7', "##### ....# ...#. ..#.. ..#.. .#... .#... "},
    {'8', ".###. #...# #...# .###. #...# #...# .###. "}, {'9', ".###. #...# #...# .#### ....# ...#. .##.. "},
    {'a', ".###. #...# #...# ##### #...# #...# #...# "}, {'b', "####. #...# #...# ####. #...# #...# ####. "},
    {'c', ".###. #...# #.... #.... #.... #...# .###. "}, {'d', "####. #...# #...# #...# #...# #...# ####. "},
    {'e', "##### #.... #.... ####. #.... #.... ##### "}, {'f', "##### #.... #.... ####. #.... #.... #.... "},
    {'g', ".###. #...# #.... #.### #...# #...# .###. "}, {'h', "#...# #...# #...# ##### #...# #...# #...# "},
    {'i', ".###. ..#.. ..#.. ..#.. ..#.. ..#.. .###. "}, {'j', "..### ...#. ...#. ...#. ...#. #..#. .##.. "},
    {'k', "#...# #..#. #.#.. ##... #.#.. #..#. #...# "}, {'l', "#.... #.... #.... #.... #.... #.... ##### "},
    {'m', "#...# ##.## #.#.# #.#.# #...# #...# #...# "}, {'n', "#...# ##..# ##..# #.#.# #..## #..## #...# "},
    {'o', ".###. #...# #...# #...# #...# #...# .###. "}, {'p', "####. #...# #...# ####. #.... #.... #.... "},
    {'q', ".###. #...# #...# #...# #.#.# #..#. .##.# "}, {'r', "####. #...# #...# ####. #.#.. #..#. #...# "},
    {'s', ".#### #.... #.... .###. ....# ....# ####. "}, {'t', "##### ..#.. ..#.. ..#.. ..#.. ..#.. ..#.. "},
    {'u', "#...# #...# #...# #...# #...# #...# .###. "}, {'v', "#...# #...# #...# #...# #...# .#.#. ..#.. "},
    {'w', "#...# #...# #...# #.#.# #.#.# ##.## #...# "}, {'x', "#...# #...# .#.#. ..#.. .#.#. #...# #...# "},
    {'y', "#...# #...# .#.#. ..#.. ..#.. ..#.. ..#.. "}, {'z', "##### ....# ...#. ..#.. .#... #.... ##### "},
    {'.', "..... ..... ..... ..... ..... .##.. .##.. "}, {',', "..... ..... ..... ..... .##.. ..#.. .#... "},
    {'-', "..... ..... ..... ####. ..... ..... ..... "}, {'+', "..... ..#.. ..#.. ##### ..#.. ..#.. ..... "},
};

const glyph* find(char character) {
    const char wanted = static_cast<char>(std::tolower(static_cast<unsigned char>(character)));
    const auto* const found = std::find_if(std::begin(font), std::end(font),
                                           [&](const glyph& candidate) { return candidate.character == wanted; });
    return found == std::end(font) ? nullptr : found;
}

std::uint8_t to_byte(double value) {
    return static_cast<std::uint8_t>(std::lround(255.0 * std::clamp(value, 0.0, 1.0)));
}

} // namespace

color operator*(color c, double factor) { return {c.red * factor, c.green * factor, c.blue * factor}; }

color pick(const std::vector<color>& scale, double at) {
    const double place = std::clamp(at, 0.0, 1.0) * static_cast<double>(scale.size() - 1);
    const auto lower = std::min(static_cast<std::size_t>(place), scale.size() - 2);
    const double part = place - static_cast<double>(lower);
    const color a = scale[lower] * (1.0 - part);
    const color b = scale[lower + 1] * part;
    return {a.red + b.red, a.green + b.green, a.blue + b.blue};
}

canvas::canvas(int width, int height, color background)
    : width_(width), height_(height), bytes_(3 * static_cast<std::size_t>(width) * static_cast<std::size_t>(height)) {
    box(0, 0, width, height, background);
}

void canvas::point(int x, int y, color c) {
    if (x < 0 || x >= width_ || y < 0 || y >= height_) return;
    const auto at = 3 * (static_cast<std::size_t>(y) * static_cast<std::size_t>(width_) + static_cast<std::size_t>(x));
    bytes_[at] = to_byte(c.red);
    bytes_[at + 1] = to_byte(c.green);
    bytes_[at + 2] = to_byte(c.blue);
}

void canvas::box(int x, int y, int width, int height, color c) {
    for (int row = y; row < y + height; ++row)
        for (int column = x; column < x + width; ++column) point(column, row, c);
}

int canvas::text_width(std::string_view words, int size) {
    return std::max(0, static_cast<int>(words.size()) * (glyph_width + 1) - 1) * size;
}

void canvas::text(int x, int y, std::string_view words, int size, color c) {
    for (const char character : words) {
        if (const glyph* const shape = find(character))
            for (int row = 0; row < glyph_height; ++row)
                for (int column = 0; column < glyph_width; ++column)
                    if (shape->rows[row * (glyph_width + 1) + column] == '#')
                        box(x + column * size, y + row * size, size, size, c);
        x += (glyph_width + 1) * size;
    }
}

std::string canvas::png() const {
    png_image image;
    std::memset(&image, 0, sizeof image);
    image.version = PNG_IMAGE_VERSION;
    image.width = static_cast<png_uint_32>(width_);
    image.height = static_cast<png_uint_32>(height_);
    image.format = PNG_FORMAT_RGB;
    png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(image);
    std::string file(bytes, '\0');
    if (png_image_write_to_memory(&image, file.data(), &bytes, 0, bytes_.data(), 0, nullptr) == 0)
        throw std::runtime_error(std::string("cannot encode the picture: ") + image.message);
    file.resize(bytes);
    return file;
}

} // namespace stencil
