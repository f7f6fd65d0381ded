// SPDX-License-Identifier: BSD-3-Clause
// The host's part of the particles: start, physics, reference, totals, options.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "motion.hpp"
#include "options.hpp"
#include "reference.hpp"
#include "report.hpp"
#include "start.hpp"

namespace particles {
namespace {

std::vector<particle> start_of_all(const domain& whole, std::uint64_t seed = 1) {
    return start_of(whole, {0, whole.segments}, seed);
}

// --- Start -----------------------------------------------------------------------------------------------------------

TEST(start, parts_equal_the_whole) {
    const domain whole{9, 14, 333};
    const std::vector<particle> all = start_of_all(whole, 5);
    ASSERT_EQ(all.size(), 333u);
    std::vector<particle> joined;
    for (int device = 0; device < 3; ++device)
        for (const particle& p : start_of(whole, partition{14, 3, 1}.of_device(device), 5)) joined.push_back(p);
    ASSERT_EQ(joined.size(), all.size());
    EXPECT_TRUE(compare(all, joined).equal());
}

TEST(start, every_segment_has_its_share) {
    for (const domain whole : {domain{9, 14, 333}, domain{416, 4, 3950}, domain{1, 1, 5}, domain{3, 7, 2}}) {
        std::vector<int> counts(static_cast<std::size_t>(whole.segments));
        long long number = 0;
        for (const particle& p : start_of_all(whole)) {
            EXPECT_EQ(p.number, number++);
            EXPECT_TRUE(p.at.x > 0.0 && p.at.x < whole.columns && p.at.y > 0.0 && p.at.y < whole.segments);
            EXPECT_TRUE(std::abs(p.velocity.x) <= start_speed && std::abs(p.velocity.y) <= start_speed);
            ++counts[static_cast<std::size_t>(whole.segment_of(p.at.y))];
        }
        EXPECT_EQ(number, whole.particles);
        for (int segment = 0; segment < whole.segments; ++segment) {
            EXPECT_EQ(counts[static_cast<std::size_t>(segment)], start_count(whole, segment));
            EXPECT_LE(start_count(whole, segment), start_count(whole, 0));
            EXPECT_GE(start_count(whole, segment) + 1, start_count(whole, 0));
        }
    }
}

TEST(start, depends_on_the_seed) {
    const domain whole{9, 14, 333};
    EXPECT_TRUE(compare(start_of_all(whole, 3), start_of_all(whole, 3)).equal());
    EXPECT_GT(compare(start_of_all(whole, 3), start_of_all(whole, 4)).differing, 300u);
}

// --- Physics ---------------------------------------------------------------------------------------------------------

TEST(motion, force_falls_linearly_to_the_cutoff) {
    influence near;
    near.add({2.0, 3.0}, {1.75, 3.0});
    EXPECT_DOUBLE_EQ(near.force.x, 0.75 * stiffness);
    EXPECT_EQ(near.force.y, 0.0);
    EXPECT_DOUBLE_EQ(near.potential, 0.5 * stiffness * 0.75 * 0.75);
    EXPECT_EQ(near.partners, 1);

    influence slanted;
    slanted.add({0.0, 0.0}, {0.3, 0.4});
    EXPECT_DOUBLE_EQ(slanted.force.x, -0.5 * 0.6 * stiffness);
    EXPECT_DOUBLE_EQ(slanted.force.y, -0.5 * 0.8 * stiffness);

    influence none;
    none.add({2.0, 3.0}, {1.0, 3.0}); // at the cut-off
    none.add({2.0, 3.0}, {2.0, 3.0}); // in the same place
    EXPECT_EQ(none.force.x, 0.0);
    EXPECT_EQ(none.force.y, 0.0);
    EXPECT_EQ(none.partners, 0);
}

TEST(motion, walls_reflect_and_take_momentum) {
    const domain whole{10, 20, 1};
    particle p{{0.5, 19.5}, {-0.75, 2.0}, 0};
    const vector taken = drift(p, whole, 1.0);
    EXPECT_DOUBLE_EQ(p.at.x, 0.25);
    EXPECT_DOUBLE_EQ(p.at.y, 18.5);
    EXPECT_EQ(p.velocity.x, 0.75);
    EXPECT_EQ(p.velocity.y, -2.0);
    EXPECT_EQ(taken.x, -1.5 * mass);
    EXPECT_EQ(taken.y, 4.0 * mass);
    const vector none = drift(p, whole, 1.0);
    EXPECT_EQ(none.x, 0.0);
    EXPECT_EQ(none.y, 0.0);
}

TEST(motion, a_slow_particle_stays_beside_its_segment) {
    const domain whole{4, 1000, 1};
    const double most = std::nextafter(1.0, 0.0);
    for (int segment : {0, 1, 2, 3, 255, 256, 511, 512, 998, 999})
        for (const double at : {double(segment), std::nextafter(segment + 1.0, 0.0)})
            for (const double speed : {-most, most}) {
                ASSERT_TRUE(is_slow({0.0, speed}, 1.0));
                particle p{{1.5, at}, {0.0, speed}, 0};
                drift(p, whole, 1.0);
                EXPECT_LE(std::abs(whole.segment_of(p.at.y) - segment), 1) << at << " + " << speed;
            }
    EXPECT_FALSE(is_slow({1.0, 0.0}, 1.0));
    EXPECT_FALSE(is_slow({0.0, -1.0}, 1.0));
    EXPECT_FALSE(is_slow({0.0, std::numeric_limits<double>::quiet_NaN()}, 1.0));
}

TEST(motion, walls_belong_to_the_last_cells) {
    const domain whole{10, 20, 1};
    EXPECT_EQ(whole.column_of(10.0), 9);
    EXPECT_EQ(whole.segment_of(20.0), 19);
    EXPECT_EQ(whole.segment_of(0.0), 0);
    EXPECT_EQ(whole.segment_of(7.0), 7);
}

// --- Reference -------------------------------------------------------------------------------------------------------

// Velocity Verlet straight from its formulas, over all pairs and without shared code.
void move_plainly(std::vector<particle>& all, double width, double height, int steps, double dt) {
    const auto push_all = [&] {
        for (particle& a : all)
            for (const particle& b : all) {
                const double r = std::hypot(a.at.x - b.at.x, a.at.y - b.at.y);
                if (&a == &b || r >= 1.0) continue;
                a.velocity.x += dt / 2.0 * (1.0 - r) * (a.at.x - b.at.x) / r;
                a.velocity.y += dt / 2.0 * (1.0 - r) * (a.at.y - b.at.y) / r;
            }
    };
    const auto move = [&](double& at, double& speed, double length) {
        at += dt * speed;
        if (at >= 0.0 && at <= length) return;
        at = at < 0.0 ? -at : length - (at - length);
        speed = -speed;
    };
    for (int step = 0; step < steps; ++step) {
        push_all();
        for (particle& p : all) {
            move(p.at.x, p.velocity.x, width);
            move(p.at.y, p.velocity.y, height);
        }
        push_all();
    }
}

TEST(reference, equals_the_formulas) {
    for (const domain whole : {domain{6, 5, 80}, domain{1, 9, 30}, domain{3, 2, 40}}) {
        std::vector<particle> all = start_of_all(whole, 11), plain = all;
        const std::vector<particle> before = all;
        move_serially(all, whole, 50, 0.02);
        move_plainly(plain, whole.columns, whole.segments, 50, 0.02);
        EXPECT_LT(compare(plain, all).largest, 1e-11) << whole.columns << " x " << whole.segments;
        EXPECT_GT(compare(before, all).largest, 0.5);
    }
}

TEST(reference, conserves_momentum_and_nearly_energy) {
    const domain whole{8, 12, 300};
    std::vector<particle> all = start_of_all(whole);
    totals seen;
    seen.before = sum_up(all, whole);
    seen.walls = move_serially(all, whole, 500, 0.01);
    seen.after = sum_up(all, whole);
    seen.particles = static_cast<long long>(all.size());
    EXPECT_EQ(violated_conservation(seen, whole, 500), "");
    EXPECT_GT(std::abs(seen.walls.x) + std::abs(seen.walls.y), 0.1);
    EXPECT_LT(std::abs(seen.after.energy - seen.before.energy), 1e-3 * seen.before.energy);
    for (const particle& p : all)
        EXPECT_TRUE(p.at.x >= 0.0 && p.at.x <= whole.columns && p.at.y >= 0.0 && p.at.y <= whole.segments);
}

TEST(reference, refuses_too_fast_particles) {
    const domain whole{8, 8, 1};
    std::vector<particle> all{{{4.0, 4.0}, {0.0, 101.0}, 0}};
    EXPECT_THROW(move_serially(all, whole, 1, 0.01), std::runtime_error);
}

TEST(reference, comparison_sees_one_bit) {
    const std::vector<particle> a = start_of_all({8, 8, 40});
    std::vector<particle> b = a;
    b[17].velocity.y = std::nextafter(b[17].velocity.y, 100.0);
    const comparison seen = compare(a, b);
    EXPECT_EQ(seen.differing, 1u);
    EXPECT_EQ(seen.first, 17u);
    EXPECT_GT(seen.largest, 0.0);
    b = a;
    b[3].number = -1; // a particle that was lost
    EXPECT_EQ(compare(a, b).first, 3u);
}

// --- Report and options ----------------------------------------------------------------------------------------------

TEST(report, tells_what_is_not_conserved) {
    const domain whole{8, 8, 40};
    totals seen;
    seen.particles = 39;
    EXPECT_EQ(violated_conservation(seen, whole, 1), "40 particles at the start, but 39 at the end");
    seen.particles = 40;
    EXPECT_EQ(violated_conservation(seen, whole, 1), "");
    seen.walls.y = 1e-6; // a wall that took momentum which no particle lost
    EXPECT_NE(violated_conservation(seen, whole, 1), "");
    seen.after.momentum.y = -1e-6;
    EXPECT_EQ(violated_conservation(seen, whole, 1), "");
    seen.after.momentum.x = std::numeric_limits<double>::quiet_NaN();
    EXPECT_NE(violated_conservation(seen, whole, 1), "");
}

TEST(report, counts_puts_between_ranks) {
    EXPECT_EQ(traffic_per_step({12, 1, 1}, "dcuda").puts, 0);
    const traffic seen = traffic_per_step({12, 2, 3}, "dcuda");
    EXPECT_EQ(seen.puts, 5 * 4);
    EXPECT_EQ(seen.puts_between_devices, 4);
    EXPECT_EQ(traffic_per_step({12, 3, 1}, "mpi").puts_between_devices, 2 * 2);
}

command_line parse(std::vector<std::string> words) {
    words.insert(words.begin(), "particles");
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    return parse_command_line(static_cast<int>(pointers.size()), pointers.data());
}

TEST(options, defaults_and_choices) {
    const options plain = parse({}).chosen.value();
    EXPECT_EQ(plain.width, 416);
    EXPECT_EQ(plain.height, 416);
    EXPECT_EQ(plain.particles, 410'600);
    EXPECT_EQ(plain.steps, 100);
    const options chosen = parse({"--seed", "9", "--capacity", "77", "--json", "-"}).chosen.value();
    EXPECT_EQ(chosen.seed, 9u);
    EXPECT_EQ(chosen.capacity, 77);
    EXPECT_EQ(chosen.progress, 0.0);
}

TEST(options, refuse_with_reason) {
    const auto refused = [](std::vector<std::string> words, const char* reason) {
        const command_line result = parse(std::move(words));
        EXPECT_FALSE(result.chosen);
        EXPECT_EQ(result.status, 2);
        EXPECT_NE(result.text.find(reason), std::string::npos) << result.text;
    };
    refused({"--time-step", "0"}, "0 is not above 0 and below 1");
    refused({"--time-step", "1"}, "not above 0 and below 1");
    refused({"--time-step", "nan"}, "not above 0 and below 1");
    refused({"--width", "0"}, "--width");
    refused({"--capacity", "0"}, "--capacity");
    refused({"--threads", "33"}, "multiple of 32");
    refused({"--seed", "-1"}, "--seed");
    refused({"--unknown"}, "--unknown");
    EXPECT_EQ(parse({"--help"}).status, 0);
}

} // namespace
} // namespace particles
