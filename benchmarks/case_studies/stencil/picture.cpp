// SPDX-License-Identifier: BSD-3-Clause
#include "picture.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "canvas.hpp"
#include "pgm.hpp"

namespace stencil {

namespace {

constexpr color paper{0.97, 0.96, 0.93};
constexpr color ink{0.20, 0.19, 0.18};
constexpr color frame{0.55, 0.53, 0.50};

// From valleys to summits.
const std::vector<color> relief_colors = {{0.16, 0.39, 0.33}, {0.36, 0.57, 0.38}, {0.62, 0.72, 0.46},
                                          {0.88, 0.83, 0.60}, {0.80, 0.63, 0.42}, {0.63, 0.44, 0.33},
                                          {0.60, 0.50, 0.47}, {0.97, 0.96, 0.95}};
// From lost to gained.
const std::vector<color> change_colors = {{0.02, 0.19, 0.38}, {0.13, 0.40, 0.67}, {0.57, 0.77, 0.87},
                                          {0.97, 0.97, 0.96}, {0.96, 0.65, 0.51}, {0.70, 0.09, 0.17},
                                          {0.40, 0.00, 0.12}};

struct limits {
    double low = 0.0;
    double high = 0.0;
    double part(double value) const { return high > low ? (value - low) / (high - low) : 0.5; }
};

limits limits_of(const std::vector<double>& map) {
    const auto [low, high] = std::minmax_element(map.begin(), map.end());
    return {*low, *high};
}

// The absolute value below which the given part of the values lies.
double quantile_of_size(std::vector<double> map, double part) {
    for (double& value : map) value = std::abs(value);
    const auto at = map.begin() + static_cast<std::ptrdiff_t>(part * static_cast<double>(map.size() - 1));
    std::nth_element(map.begin(), at, map.end());
    return *at;
}

struct slope {
    double x = 0.0;
    double y = 0.0;
};

class map_view {
public:
    map_view(const std::vector<double>& values, int nx)
        : values_(values), nx_(nx), ny_(static_cast<int>(values.size()) / nx) {}

    int nx() const { return nx_; }
    int ny() const { return ny_; }
    double at(int x, int y) const {
        const auto column = static_cast<std::size_t>(std::clamp(x, 0, nx_ - 1));
        const auto row = static_cast<std::size_t>(std::clamp(y, 0, ny_ - 1));
        return values_[row * static_cast<std::size_t>(nx_) + column];
    }
    slope slope_at(int x, int y) const {
        return {0.5 * (at(x + 1, y) - at(x - 1, y)), 0.5 * (at(x, y + 1) - at(x, y - 1))};
    }

private:
    const std::vector<double>& values_;
    int nx_;
    int ny_;
};

// Typical steepness, which the shading makes a slope of one half.
double steepness(const map_view& map) {
    double sum = 0.0;
    for (int y = 0; y < map.ny(); ++y)
        for (int x = 0; x < map.nx(); ++x) {
            const slope s = map.slope_at(x, y);
            sum += s.x * s.x + s.y * s.y;
        }
    return std::sqrt(sum / map.nx() / map.ny());
}

// How bright the light from the north-west, 45 degrees high, makes a slope; 1 for level ground.
double brightness(slope s, double typical) {
    const double scale = typical > 0.0 ? 0.5 / typical : 0.0;
    const double dx = s.x * scale;
    const double dy = s.y * scale;
    const double light = (dx + dy) * std::sqrt(0.5) + 1.0;
    return std::max(0.0, light / std::sqrt(dx * dx + dy * dy + 1.0));
}

// Where the parts of a panel are, in points of the picture.
struct layout {
    int magnification;
    int width;
    int height;
    static constexpr int margin = 28;
    static constexpr int title = 34;
    static constexpr int legend = 72;

    int left(int panel) const { return margin + panel * (width + margin); }
    int top() const { return margin + title; }
    int picture_width() const { return left(3); }
    int picture_height() const { return top() + height + legend; }
};

layout lay_out(const map_view& map) {
    // Small maps are magnified to a width that carries the titles.
    const int magnification = std::clamp((400 + map.nx() - 1) / map.nx(), 1, std::max(1, 1200 / map.ny()));
    const int width = std::max(320, map.nx() * magnification);
    return {magnification, width, map.ny() * magnification};
}

template <class ColorOf>
void draw_map(canvas& picture, const layout& place, int panel, const map_view& map, ColorOf color_of) {
    const int m = place.magnification;
    const int left = place.left(panel) + (place.width - map.nx() * m) / 2;
    picture.box(left - 1, place.top() - 1, map.nx() * m + 2, map.ny() * m + 2, frame);
    for (int y = 0; y < map.ny(); ++y)
        for (int x = 0; x < map.nx(); ++x) picture.box(left + x * m, place.top() + y * m, m, m, color_of(x, y));
}

void draw_title(canvas& picture, const layout& place, int panel, const std::string& words) {
    const int x = place.left(panel) + (place.width - canvas::text_width(words, 2)) / 2;
    picture.text(x, layout::margin, words, 2, ink);
}

void draw_legend(canvas& picture, const layout& place, int panel, const std::vector<color>& scale, limits values,
                 const char* format) {
    const int width = place.width * 3 / 4;
    const int left = place.left(panel) + (place.width - width) / 2;
    const int top = place.top() + place.height + 16;
    picture.box(left - 1, top - 1, width + 2, 14, frame);
    for (int x = 0; x < width; ++x) picture.box(left + x, top, 1, 12, pick(scale, (x + 0.5) / width));
    for (int tick = 0; tick <= 2; ++tick) {
        const double value = values.low + (values.high - values.low) * tick / 2.0;
        const std::string words = value == 0.0 ? "0" : fmt::format(fmt::runtime(format), value);
        const int x = left + width * tick / 2;
        picture.box(x, top + 13, 1, 5, frame);
        picture.text(x - canvas::text_width(words, 2) / 2, top + 22, words, 2, ink);
    }
}

} // namespace

std::string format_map(const std::vector<double>& map, int nx, scaling how) {
    const limits values = limits_of(map);
    const bool stretched = how == scaling::stretch && values.high > values.low;
    const double offset = stretched ? values.low : 0.0;
    const double step = stretched ? (values.high - values.low) / 65535.0 : 1.0;
    gray_map result{nx, static_cast<int>(map.size()) / nx, {}};
    result.samples.reserve(map.size());
    for (const double value : map)
        result.samples.push_back(
            static_cast<std::uint16_t>(std::lround(std::clamp((value - offset) / step, 0.0, 65535.0))));
    return format_pgm(result, fmt::format("value = {} + {} * sample", offset, step));
}

std::string draw_comparison(const std::vector<double>& before, const std::vector<double>& after, int nx,
                            int iterations) {
    std::vector<double> change(before.size());
    std::transform(after.begin(), after.end(), before.begin(), change.begin(), std::minus<>());

    const map_view maps[] = {{before, nx}, {after, nx}};
    const map_view change_map(change, nx);
    const layout place = lay_out(maps[0]);
    const limits heights = limits_of(before);
    const double typical = steepness(maps[0]);
    // One point in a hundred is beyond the end of the scale: a few steep places would leave all others pale.
    const double most = quantile_of_size(change, 0.99);
    const limits changes{-most, most};

    canvas picture(place.picture_width(), place.picture_height(), paper);
    for (int panel = 0; panel < 2; ++panel) {
        const map_view& map = maps[panel];
        draw_map(picture, place, panel, map, [&](int x, int y) {
            const double light = brightness(map.slope_at(x, y), typical);
            return pick(relief_colors, heights.part(map.at(x, y))) * (0.35 + 0.65 * light);
        });
        draw_legend(picture, place, panel, relief_colors, heights, "{:.4g}");
    }
    draw_map(picture, place, 2, change_map,
             [&](int x, int y) { return pick(change_colors, changes.part(change_map.at(x, y))); });
    draw_legend(picture, place, 2, change_colors, changes, "{:+.3g}");

    draw_title(picture, place, 0, "before");
    draw_title(picture, place, 1, fmt::format("after {} iteration{}", iterations, iterations == 1 ? "" : "s"));
    draw_title(picture, place, 2, "change");
    return picture.png();
}

} // namespace stencil
