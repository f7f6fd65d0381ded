// SPDX-License-Identifier: BSD-3-Clause
// The serial reference against known results, sizes, and what the program says of energy.
#include "reference.hpp"
#include "report.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace himeno;

namespace {

struct known_result {
    const char* size;
    int steps;
    double gosa, sum;
    std::uint32_t crc;
};

// Computed by an independent serial program: squares of single precision added in double precision, CRC-32 of the
// pressures' bytes, little-endian, k fastest.
constexpr known_result known[] = {
    {"9,17,33", 1, 8.829806972e-02, 1.801750054624e+03, 0x1d49d9ee},
    {"9,17,33", 10, 4.168863978e-02, 1.896001858229e+03, 0x52d4233f},
    {"XS", 3, 6.229796349e-03, 2.224315522317e+04, 0x794c7c80},
    {"XS", 64, 3.042699344e-03, 2.293382602158e+04, 0xa4fa2cf1},
    {"S", 3, 3.296793923e-03, 1.762463137989e+05, 0x0b33b1a4},
};

TEST(Reference, GivesKnownResults) {
    for (const known_result& each : known) {
        SCOPED_TRACE(std::string(each.size) + ", " + std::to_string(each.steps) + " steps");
        const outcome found = solve_serially(parse_size(each.size).value(), each.steps);
        EXPECT_NEAR(found.gosa, each.gosa, 1e-9 * each.gosa);
        EXPECT_NEAR(found.sum, each.sum, 1e-12 * each.sum);
        EXPECT_EQ(found.crc, each.crc);
    }
}

TEST(Reference, ChangesNoBoundary) {
    const grid whole{5, 6, 7};
    const outcome found = solve_serially(whole, 4);
    const std::vector<float> start = start_pressure(whole);
    for (int i = 0; i < whole.ni; ++i)
        for (int j = 0; j < whole.nj; ++j)
            for (int k = 0; k < whole.nk; ++k) {
                const bool is_inside = i % (whole.ni - 1) != 0 && j % (whole.nj - 1) != 0 && k % (whole.nk - 1) != 0;
                const auto at =
                    std::size_t(i) * whole.plane() + std::size_t(j) * std::size_t(whole.nk) + std::size_t(k);
                if (!is_inside) {
                    EXPECT_EQ(found.pressure[at], start[at]);
                }
            }
}

TEST(Report, TellsTheEnergyThatIsKnown) {
    options chosen;
    chosen.whole = {13, 13, 13}; // 1000 points by the official count
    chosen.steps = 500;
    chosen.repeat = 2;
    report about;
    about.devices = 2;
    about.milliseconds = {600.0, 600.0};
    for (const std::optional<double> joules : {std::optional(0.0), std::optional(17.0), std::optional<double>()}) {
        about.energy = {};
        dcuda::run_energy of_run;
        of_run.all_devices = joules;
        for (int run = 0; run < chosen.repeat; ++run) about.energy.add(of_run);
        const auto json = nlohmann::json::parse(as_json(about, chosen));
        EXPECT_EQ(json["joules"]["devices"].is_number(), joules.has_value());
        const bool is_told = joules.value_or(0.0) > 0.0;
        EXPECT_EQ(json.contains("mflop_per_joule"), is_told);
        EXPECT_EQ(in_words(about, chosen).find("17 J per device in 2 runs, 1 MFLOP per joule") != std::string::npos,
                  is_told);
        if (is_told) {
            EXPECT_DOUBLE_EQ(json["joules_per_device"], 17.0);
            EXPECT_DOUBLE_EQ(json["mflop_per_joule"], 1.0);
            report is_short = about;
            is_short.milliseconds = {1.0, 1.0};
            EXPECT_FALSE(nlohmann::json::parse(as_json(is_short, chosen)).contains("mflop_per_joule"));
        }
    }
}

TEST(Sizes, AreNamedOrNumbers) {
    ASSERT_TRUE(parse_size("XL"));
    EXPECT_EQ(parse_size("XL")->nk, 1024);
    ASSERT_TRUE(parse_size("384,640,641"));
    EXPECT_EQ(parse_size("384,640,641")->ni, 384);
    EXPECT_EQ(parse_size("384,640,641")->nk, 641);
    for (const char* text :
         {"", "xs", "XXL", "3", "3,3", "2,3,3", "3,3,2", "3,3,3,", "3,3,3,3", "3,,3", "3,3,32769", "-3,3,3", "3,3,3 "})
        EXPECT_FALSE(parse_size(text)) << text;
}

} // namespace
