// SPDX-License-Identifier: BSD-3-Clause
// The host's part of the stencil: mathematics, partition, files, statistics, options.
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "canvas.hpp"
#include "common/files.hpp"
#include "common/partition.hpp"
#include "common/run_series.hpp"
#include "common/statistics.hpp"
#include "field.hpp"
#include "options.hpp"
#include "pgm.hpp"
#include "picture.hpp"
#include "reference.hpp"
#include "report.hpp"

namespace stencil {

using common::check_writable;
using common::read_file;
using common::write_file;

namespace {

// --- Mathematics
// ------------------------------------------------------------------------------------------------------

// The scheme straight from its formulas, point by point, without arrays in between and without shared code.
double value_after_one_iteration(const field& in, int x, int y, int k, double c) {
    const grid& g = in.whole();
    const auto u = [&](int i, int j) {
        const long at = (static_cast<long>(j) * g.nz + k) * g.nx + i;
        return in.values()[static_cast<std::size_t>(at)];
    };
    if (x < 2 || x >= g.nx - 2 || y < 2 || y >= g.ny - 2) return u(x, y);
    const auto lap = [&](int i, int j) {
        return u(i - 1, j) + u(i + 1, j) + u(i, j - 1) + u(i, j + 1) - 4.0 * u(i, j);
    };
    const auto fx = [&](int i, int j) {
        const double flux = lap(i + 1, j) - lap(i, j);
        return flux * (u(i + 1, j) - u(i, j)) > 0.0 ? 0.0 : flux;
    };
    const auto fy = [&](int i, int j) {
        const double flux = lap(i, j + 1) - lap(i, j);
        return flux * (u(i, j + 1) - u(i, j)) > 0.0 ? 0.0 : flux;
    };
    return u(x, y) - c * (fx(x, y) - fx(x - 1, y) + fy(x, y) - fy(x, y - 1));
}

// Rough everywhere, so that the limiter is at work.
field rough_field(grid g) {
    field result = smooth_field(g, {0, g.ny});
    unsigned random = 1;
    for (double& value : result.values()) {
        random = random * 1664525u + 1013904223u;
        value += static_cast<double>(random >> 8) / (1 << 24);
    }
    return result;
}

TEST(reference, equals_the_formulas) {
    for (const grid g : {grid{9, 7, 3}, grid{5, 5, 1}, grid{6, 20, 2}}) {
        field in = rough_field(g);
        for (int iteration = 0; iteration < 3; ++iteration) {
            field expected(g);
            const field_view out = expected.view();
            for (int y = 0; y < g.ny; ++y)
                for (int k = 0; k < g.nz; ++k)
                    for (int x = 0; x < g.nx; ++x) out(x, y, k) = value_after_one_iteration(in, x, y, k, 0.025);
            diffuse_serially(in, 1, 0.025);
            EXPECT_TRUE(compare(expected, in).equal()) << g.nx << " x " << g.ny << " x " << g.nz;
        }
    }
}

TEST(reference, is_the_same_computed_at_once) {
    const grid g{11, 9, 2};
    field in = rough_field(g), expected = in, out = in;
    diffuse_serially(expected, 1, 0.025);
    for (int y = g.inner_rows().first; y < g.inner_rows().last; ++y)
        for (int k = 0; k < g.nz; ++k)
            for (int x = g.inner_columns().first; x < g.inner_columns().last; ++x)
                out.view()(x, y, k) = diffused_at_once(in.view(), 0.025, x, y, k);
    EXPECT_TRUE(compare(expected, out).equal());
}

TEST(reference, keeps_the_two_outermost_rows_and_columns) {
    const grid g{12, 11, 2};
    const field before = rough_field(g);
    field after = before;
    diffuse_serially(after, 10, 1.0 / 32.0);
    int inner_changes = 0;
    for (std::size_t i = 0; i < before.values().size(); ++i) {
        const auto y = static_cast<int>(i / g.plane());
        const auto x = static_cast<int>(i % static_cast<std::size_t>(g.nx));
        const bool inner = x >= 2 && x < g.nx - 2 && y >= 2 && y < g.ny - 2;
        if (inner)
            inner_changes += before.values()[i] != after.values()[i] ? 1 : 0;
        else
            EXPECT_EQ(before.values()[i], after.values()[i]) << "x = " << x << ", y = " << y;
    }
    EXPECT_GT(inner_changes, 0);
}

TEST(reference, does_not_change_grids_without_inner_points) {
    for (const grid g : {grid{1, 1, 1}, grid{4, 9, 2}, grid{9, 4, 2}, grid{2, 3, 1}}) {
        const field before = rough_field(g);
        field after = before;
        diffuse_serially(after, 3, 0.025);
        EXPECT_TRUE(compare(before, after).equal());
    }
}

TEST(reference, stays_within_bounds_and_smooths) {
    const field before = rough_field({40, 40, 1});
    field after = before;
    diffuse_serially(after, 2000, 1.0 / 32.0);
    const values seen = survey(before, after);
    EXPECT_GE(seen.after_low, seen.before_low - 0.1);
    EXPECT_LE(seen.after_high, seen.before_high + 0.1);
}

TEST(reference, comparison_sees_one_bit) {
    const field a = rough_field({8, 8, 2});
    field b = a;
    b.values()[77] = std::nextafter(b.values()[77], 100.0);
    const comparison seen = compare(a, b);
    EXPECT_EQ(seen.differing, 1u);
    EXPECT_EQ(seen.first, 77u);
    EXPECT_GT(seen.largest, 0.0);
}

TEST(field, parts_equal_the_whole) {
    const grid g{7, 9, 3};
    const field whole = smooth_field(g, {0, g.ny});
    const field part = smooth_field(g, {3, 6});
    EXPECT_TRUE(std::equal(part.values().begin(), part.values().end(),
                           whole.values().begin() + static_cast<std::ptrdiff_t>(3 * g.plane())));
    EXPECT_EQ(whole.level(2)[7], whole.values()[g.plane() + 14]);
}

// --- Partition
// --------------------------------------------------------------------------------------------------------

TEST(partition, covers_each_row_once_and_in_order) {
    for (const int rows : {0, 1, 2, 5, 7, 64, 320, 344})
        for (const int devices : {1, 2, 3, 4, 7})
            for (const int ranks : {1, 2, 3, 8, 61}) {
                const partition p{rows, devices, ranks};
                int covered = 0;
                for (int rank = 0; rank < devices * ranks; ++rank) {
                    const range own = p.of_rank(rank);
                    if (own.empty()) continue;
                    EXPECT_EQ(own.first, covered);
                    covered = own.last;
                    for (int row = own.first; row < own.last; ++row) EXPECT_EQ(p.owner(row), rank);
                }
                EXPECT_EQ(covered, rows);
                EXPECT_EQ(p.owner(-1), -1);
                EXPECT_EQ(p.owner(rows), -1);
            }
}

TEST(partition, parts_differ_by_one_row_at_most) {
    const partition p{344, 3, 7};
    for (int device = 0; device < 3; ++device) {
        const int of_device = p.of_device(device).count();
        EXPECT_TRUE(of_device == 114 || of_device == 115);
        for (int rank = 0; rank < 7; ++rank) {
            const int of_rank = p.of_rank(device * 7 + rank).count();
            EXPECT_TRUE(of_rank == 16 || of_rank == 17);
        }
    }
}

TEST(report, counts_puts_between_owners_only) {
    const grid g{8, 10, 3};
    // Ten rows over 2 x 8 ranks: five owners on each device, nine borders, one of them between the devices.
    const traffic by_level = traffic_per_iteration(g, {{10, 2, 8}, g.nz}, message::level);
    EXPECT_EQ(by_level.puts, 9 * 4 * 3);
    EXPECT_EQ(by_level.puts_between_devices, 4 * 3);
    EXPECT_EQ(by_level.bytes_between_devices, 4 * 8 * 3 * 8);
    EXPECT_EQ(traffic_per_iteration(g, {{10, 2, 8}, g.nz}, message::plane).puts, 9 * 4);
    EXPECT_EQ(traffic_per_iteration(g, {{10, 1, 1}, g.nz}, message::plane).puts, 0);
    // Two rows in one put, unless it carries one of several levels.
    EXPECT_EQ(traffic_per_iteration(g, {{10, 2, 8}, g.nz}, message::plane, 2).puts, 9 * 2);
    EXPECT_EQ(traffic_per_iteration(g, {{10, 2, 8}, g.nz}, message::level, 2).puts, by_level.puts);
}

// --- Files
// ------------------------------------------------------------------------------------------------------------

TEST(pgm, round_trip) {
    gray_map map{3, 2, {0, 1, 255, 256, 65534, 65535}};
    const gray_map again = parse_pgm(format_pgm(map, "a comment"), "test");
    EXPECT_EQ(again.width, 3);
    EXPECT_EQ(again.height, 2);
    EXPECT_EQ(again.samples, map.samples);
}

TEST(pgm, accepts_8_bits_comments_and_what_follows) {
    const gray_map map = parse_pgm("P5 # one\n# two\n2\t2 # three\n200\n\n\x01\xc8\x03 more", "test");
    EXPECT_EQ(map.samples, (std::vector<std::uint16_t>{10, 1, 200, 3})); // the second line feed is data
}

void expect_refused(const std::string& contents, const std::string& reason) {
    try {
        parse_pgm(contents, "some.pgm");
        ADD_FAILURE() << "accepted: " << contents;
    } catch (const std::runtime_error& error) {
        const std::string message = error.what();
        EXPECT_NE(message.find("some.pgm"), std::string::npos) << message;
        EXPECT_NE(message.find(reason), std::string::npos) << message;
    }
}

TEST(pgm, malformed_files_name_the_reason) {
    expect_refused("", "does not begin with P5");
    expect_refused("P6 1 1 255\nabc", "does not begin with P5");
    expect_refused("P2 1 1 255\n7", "text form");
    expect_refused("P5", "cut short");
    expect_refused("P5\n# only a comment", "no width");
    expect_refused("P5 3", "cut short");
    expect_refused("P5 3 x", "no height");
    expect_refused("P5 3 2 255", "no white space");
    expect_refused("P5 0 2 255\n", "size is 0 x 2");
    expect_refused("P5 3 -2 255\n", "size is 3 x -2");
    expect_refused("P5 99999999999 2 255\n", "width is too large");
    expect_refused("P5 2000000000 2000000000 255\nx", "only 1 B follow");
    expect_refused("P5 1 1 0\nx", "maximum is 0");
    expect_refused("P5 1 1 65536\nxx", "maximum is 65536");
    expect_refused("P5 2 1 255\nx", "2 x 1 samples of 1 B need 2 B, but only 1 B follow");
    expect_refused("P5 2 1 256\nxxx", "need 4 B, but only 3 B follow");
    expect_refused("P5 1 1 100\n\xff", "sample 0 is 255, above its maximum 100");
}

class folder {
public:
    folder() {
        std::string name = (std::filesystem::temp_directory_path() / "stencil_XXXXXX").string();
        path_ = ::mkdtemp(name.data());
    }
    ~folder() { std::filesystem::remove_all(path_); }
    std::filesystem::path operator/(const char* name) const { return path_ / name; }
    std::size_t entries() const {
        return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
    }

private:
    std::filesystem::path path_;
};

TEST(files, are_written_whole_or_not_at_all) {
    const folder place;
    write_file(place / "a", "first");
    write_file(place / "a", "second");
    EXPECT_EQ(read_file(place / "a"), "second");
    EXPECT_NO_THROW(check_writable(place / "b"));
    EXPECT_EQ(place.entries(), 1u);

    EXPECT_THROW(write_file(place / "missing/b", "x"), std::runtime_error);
    EXPECT_THROW(check_writable(place / "missing/b"), std::runtime_error);
    EXPECT_THROW(read_file(place / "missing"), std::runtime_error);
    std::filesystem::create_directory(place / "c");
    EXPECT_THROW(write_file(place / "c", "x"), std::runtime_error);
    EXPECT_THROW(read_file(place / "c"), std::runtime_error);
    EXPECT_EQ(place.entries(), 2u);
}

TEST(picture, keeps_heights_and_stretches_others) {
    const std::vector<double> map = {-3.0, 0.4, 1000.6, 70000.0};
    EXPECT_EQ(parse_pgm(format_map(map, 2, scaling::none), "test").samples,
              (std::vector<std::uint16_t>{0, 0, 1001, 65535}));
    EXPECT_EQ(parse_pgm(format_map({5.0, 6.0, 9.0}, 3, scaling::stretch), "test").samples,
              (std::vector<std::uint16_t>{0, 16384, 65535}));
    EXPECT_EQ(parse_pgm(format_map({5.0, 5.0}, 2, scaling::stretch), "test").samples,
              (std::vector<std::uint16_t>{5, 5}));
}

TEST(picture, of_any_shape_is_a_png) {
    for (const int nx : {1, 2, 60}) {
        const std::vector<double> flat(60, 7.0);
        std::vector<double> changed = flat;
        changed[0] = 8.0;
        EXPECT_EQ(draw_comparison(flat, changed, nx, 1).substr(1, 3), "PNG");
    }
}

// --- Statistics and options
// -------------------------------------------------------------------------------------------

TEST(statistics, median_and_interval) {
    std::vector<double> samples;
    for (int i = 20; i >= 1; --i) samples.push_back(i);
    const measure::summary seen = measure::summarise(samples);
    EXPECT_DOUBLE_EQ(seen.median, 10.5);
    EXPECT_TRUE(seen.confident);
    EXPECT_DOUBLE_EQ(seen.low, 6.0); // the textbook's order statistics for 20 samples: 6 and 15
    EXPECT_DOUBLE_EQ(seen.high, 15.0);

    const measure::summary few = measure::summarise({3.0, 1.0, 2.0});
    EXPECT_FALSE(few.confident);
    EXPECT_DOUBLE_EQ(few.median, 2.0);
    EXPECT_DOUBLE_EQ(few.low, 1.0);
    EXPECT_DOUBLE_EQ(few.high, 3.0);
    EXPECT_TRUE(measure::summarise({6, 5, 4, 3, 2, 1}).confident);
    EXPECT_DOUBLE_EQ(measure::summarise({4.0}).high, 4.0);
}

TEST(run_series, the_first_run_tells_how_long_all_take) {
    const common::run_series three{3, 2.0};
    EXPECT_DOUBLE_EQ(three.seconds_left(1.0, 10, 50), 14.0); // 4 of this run, and two runs of 5
    EXPECT_DOUBLE_EQ(three.seconds_left(5.0, 50, 50), 10.0);
    EXPECT_DOUBLE_EQ(common::run_series{}.seconds_left(3.0, 3, 4), 1.0);
}

TEST(run_series, runs_that_have_ended_tell_how_long_the_others_take) {
    common::run_series three{3, 2.0};
    three.next(4.0);
    EXPECT_EQ(three.current, 2);
    EXPECT_DOUBLE_EQ(three.seconds_left(1.0, 1, 50), 7.0); // 3 of this run, whatever its first step took, and one of 4
    three.next(8.0);
    EXPECT_EQ(three.current, 3);
    EXPECT_DOUBLE_EQ(three.seconds_left(2.0, 1, 50), 4.0);  // 6 on average
    EXPECT_DOUBLE_EQ(three.seconds_left(7.0, 49, 50), 0.0); // it takes longer than the others
}

TEST(run_series, lines_come_at_equal_intervals_over_short_runs) {
    common::run_series many{100, 2.0};
    many.next(1.5);
    EXPECT_DOUBLE_EQ(many.seconds_since_line, 1.5);
    many.next(1.5); // one was due in it
    EXPECT_DOUBLE_EQ(many.seconds_since_line, 1.0);
    common::run_series silent{100, 0.0};
    silent.next(1.5);
    EXPECT_DOUBLE_EQ(silent.seconds_since_line, 0.0);
}

command_line parse(std::vector<std::string> words) {
    words.insert(words.begin(), "stencil");
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    return parse_command_line(static_cast<int>(pointers.size()), pointers.data());
}

TEST(options, defaults_and_choices) {
    const options plain = parse({}).chosen.value();
    EXPECT_EQ(plain.nx, 128);
    EXPECT_EQ(plain.ny, 320);
    EXPECT_EQ(plain.nz, 26);
    EXPECT_EQ(plain.message_kind, message::level);
    const options chosen = parse({"--input", "x.pgm", "--message", "plane", "--threads", "64"}).chosen.value();
    EXPECT_EQ(chosen.nz, 1);
    EXPECT_EQ(chosen.message_kind, message::plane);
    EXPECT_EQ(chosen.threads, 64);
    EXPECT_EQ(plain.model, "dcuda");
    EXPECT_TRUE(parse({"--model", "nccl-graph", "--fused"}).chosen.value().fused);
}

TEST(options, refuse_with_reason) {
    const auto refused = [](std::vector<std::string> words, const char* reason) {
        const command_line result = parse(std::move(words));
        EXPECT_FALSE(result.chosen);
        EXPECT_NE(result.status, 0);
        EXPECT_NE(result.text.find(reason), std::string::npos) << result.text;
    };
    refused({"--coefficient", "0.04"}, "0.04 is not within 0 to 1/32");
    refused({"--coefficient", "-1"}, "not within");
    refused({"--coefficient", "nan"}, "not within");
    refused({"--nx", "0"}, "--nx");
    refused({"--input", "x.pgm", "--nx", "5"}, "excludes");
    refused({"--message", "row"}, "--message");
    refused({"--threads", "33"}, "multiple of 32");
    refused({"--unknown"}, "--unknown");
    refused({"--model", "other"}, "--model");
    refused({"--model", "host", "--message", "level"}, "--message is for dcuda only, not for the model host");
    refused({"--model", "nccl", "--stores"}, "--stores");
    EXPECT_EQ(parse({"--help"}).status, 0);
}

} // namespace
} // namespace stencil
