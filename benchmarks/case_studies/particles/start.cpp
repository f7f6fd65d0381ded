// SPDX-License-Identifier: BSD-3-Clause
#include "start.hpp"

#include <algorithm>

#include "common/random.hpp"

namespace particles {

namespace {

// A particle's random numbers.
class randoms {
public:
    randoms(std::uint64_t seed, long long number)
        : state_(common::scrambled(seed) + static_cast<std::uint64_t>(number) * 4) {}

    // From -1 to 1.
    double next() { return static_cast<double>(common::scrambled(state_++) >> 11) * 0x1p-52 - 1.0; }

private:
    std::uint64_t state_;
};

long long first_number(const domain& whole, int segment) {
    const long long share = whole.particles / whole.segments;
    const long long larger = whole.particles % whole.segments;
    return segment * share + std::min<long long>(segment, larger);
}

} // namespace

int start_count(const domain& whole, int segment) {
    return static_cast<int>(first_number(whole, segment + 1) - first_number(whole, segment));
}

std::vector<particle> start_of(const domain& whole, range segments, std::uint64_t seed) {
    std::vector<particle> result;
    for (int segment = segments.first; segment < segments.last; ++segment) {
        const int count = start_count(whole, segment);
        const int lines = std::max(1, static_cast<int>(std::lround(std::sqrt(count / double(whole.columns)))));
        const int per_line = (count + lines - 1) / lines;
        for (int i = 0; i < count; ++i) {
            particle next;
            next.number = first_number(whole, segment) + i;
            randoms random(seed, next.number);
            const auto moved = [&](int place) { return place + 0.5 + start_jitter * random.next(); };
            next.at.x = moved(i % per_line) * whole.columns / per_line;
            next.at.y = segment + moved(i / per_line) / lines;
            next.velocity.x = start_speed * random.next();
            next.velocity.y = start_speed * random.next();
            result.push_back(next);
        }
    }
    return result;
}

} // namespace particles
