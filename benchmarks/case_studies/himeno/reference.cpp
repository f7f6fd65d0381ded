// SPDX-License-Identifier: BSD-3-Clause
#include "reference.hpp"

#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <map>

namespace himeno {

std::optional<grid> parse_size(const std::string& text) {
    static const std::map<std::string, grid> named = {{"XS", {32, 32, 64}},
                                                      {"S", {64, 64, 128}},
                                                      {"M", {128, 128, 256}},
                                                      {"L", {256, 256, 512}},
                                                      {"XL", {512, 512, 1024}}};
    if (const auto known = named.find(text); known != named.end()) return known->second;
    int sizes[3] = {};
    const char* next = text.c_str();
    for (int dimension = 0; dimension < 3; ++dimension) {
        char* end = nullptr;
        const long size = std::strtol(next, &end, 10);
        constexpr long most = 1 << 15; // squares of numbers of planes are ints
        if (end == next || size < 3 || size > most || *end != (dimension < 2 ? ',' : '\0')) return {};
        sizes[dimension] = static_cast<int>(size);
        next = end + 1;
    }
    return grid{sizes[0], sizes[1], sizes[2]};
}

std::vector<float> start_pressure(const grid& whole) {
    std::vector<float> pressure(whole.points());
    for (int i = 0; i < whole.ni; ++i)
        std::fill_n(pressure.begin() + static_cast<std::ptrdiff_t>(std::size_t(i) * whole.plane()), whole.plane(),
                    start_of(whole, i));
    return pressure;
}

outcome solve_serially(const grid& whole, int steps) {
    outcome result;
    std::vector<float> before = start_pressure(whole), after = before;
    const auto row = static_cast<std::ptrdiff_t>(whole.nk), plane = static_cast<std::ptrdiff_t>(whole.plane());
    const float a0 = a_of[0], a1 = a_of[1], a2 = a_of[2], a3 = a_of[3];
    for (int step = 0; step < steps; ++step) {
        result.gosa = 0.0;
        for (int i = 1; i < whole.ni - 1; ++i)
            for (int j = 1; j < whole.nj - 1; ++j)
                for (int k = 1; k < whole.nk - 1; ++k) {
                    const std::ptrdiff_t at = i * plane + j * row + k;
                    const float* const p = before.data() + at;
                    const float s0 = a0 * p[plane] + a1 * p[row] + a2 * p[1] +
                                     b_of * (p[plane + row] - p[plane - row] - p[-plane + row] + p[-plane - row]) +
                                     b_of * (p[row + 1] - p[-row + 1] - p[row - 1] + p[-row - 1]) +
                                     b_of * (p[plane + 1] - p[-plane + 1] - p[plane - 1] + p[-plane - 1]) +
                                     c_of * p[-plane] + c_of * p[-row] + c_of * p[-1] + wrk1_of;
                    const float ss = (s0 * a3 - p[0]) * bnd_of;
                    const float square = ss * ss;
                    result.gosa += static_cast<double>(square);
                    after[static_cast<std::size_t>(at)] = p[0] + omega * ss;
                }
        std::swap(before, after);
    }
    result.pressure = std::move(before);
    survey(result);
    return result;
}

void survey(outcome& result) {
    result.sum = 0.0;
    for (const float pressure : result.pressure) result.sum += static_cast<double>(pressure);
    result.crc = static_cast<std::uint32_t>(
        crc32_z(0, reinterpret_cast<const Bytef*>(result.pressure.data()), result.pressure.size() * sizeof(float)));
}

} // namespace himeno
