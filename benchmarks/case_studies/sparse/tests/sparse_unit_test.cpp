// SPDX-License-Identifier: BSD-3-Clause
// The host's part of the sparse programs: division, matrices, files, references, reports, options.
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "generator.hpp"
#include "labels.hpp"
#include "matrix_market.hpp"
#include "options.hpp"
#include "reference.hpp"
#include "report.hpp"

namespace sparse {
namespace {

// --- Division --------------------------------------------------------------------------------------------------------

TEST(grid, numbers_devices_column_by_column) {
    const grid devices{2, 3};
    EXPECT_EQ(devices.device_at({1, 0}), 1);
    EXPECT_EQ(devices.device_at({0, 1}), 2);
    for (int device = 0; device < 6; ++device) EXPECT_EQ(devices.device_at(devices.place_of(device)), device);
}

TEST(grid, is_as_square_as_can_be) {
    const int expected[][3] = {{1, 1, 1}, {2, 2, 1}, {3, 3, 1}, {4, 2, 2}, {6, 3, 2}, {8, 4, 2}, {9, 3, 3}, {7, 7, 1}};
    for (const auto& [devices, rows, columns] : expected) {
        const grid chosen = choose_grid({0, 0}, devices);
        EXPECT_EQ(chosen.rows, rows) << devices;
        EXPECT_EQ(chosen.columns, columns) << devices;
    }
    EXPECT_EQ(choose_grid({1, 4}, 4).columns, 4);
    EXPECT_THROW(choose_grid({2, 3}, 4), std::runtime_error);
}

TEST(decomposition, every_place_has_one_owner) {
    for (const decomposition& whole : {decomposition{11, 7, {2, 3}, 3}, {3, 20, {4, 1}, 2}, {9, 9, {3, 3}, 1}}) {
        std::vector<int> owners(static_cast<std::size_t>(whole.rows) * static_cast<std::size_t>(whole.columns));
        for (int device = 0; device < whole.devices.devices(); ++device) {
            const place at = whole.devices.place_of(device);
            for (int number = 0; number < whole.ranks_per_device; ++number)
                for (int row = whole.rows_of(at, number).first; row < whole.rows_of(at, number).last; ++row)
                    for (int column = whole.columns_at(at).first; column < whole.columns_at(at).last; ++column)
                        ++owners[static_cast<std::size_t>(row * whole.columns + column)];
        }
        for (const int count : owners) EXPECT_EQ(count, 1);
    }
}

TEST(decomposition, result_and_vector_overlap_in_every_element_once) {
    const decomposition whole{17, 17, {4, 2}, 3}; // some ranks of the first have nothing
    std::vector<int> seen(17);
    int messages = 0;
    for (int part = 0; part < whole.devices.rows * whole.ranks_per_device; ++part)
        for_each_overlap(whole.of_result().of_rank(part), whole.of_vector(), [&](int owner, range overlap) {
            ++messages;
            EXPECT_FALSE(overlap.empty());
            for (int i = overlap.first; i < overlap.last; ++i) {
                ++seen[static_cast<std::size_t>(i)];
                EXPECT_EQ(whole.of_vector().owner(i), owner);
            }
        });
    for (const int count : seen) EXPECT_EQ(count, 1);
    int received = 0; // as the receivers count
    for (int part = 0; part < whole.devices.columns * whole.ranks_per_device; ++part)
        for_each_overlap(whole.of_vector().of_rank(part), whole.of_result(), [&](int, range) { ++received; });
    EXPECT_EQ(received, messages);
}

TEST(tree, reaches_every_member_once) {
    for (int count = 1; count < 40; ++count) {
        const tree all{count};
        std::vector<int> parents(static_cast<std::size_t>(count));
        for (int member = 0; member < count; ++member)
            for (int level = 0; level < all.levels(member); ++level) {
                const int child = member + (1 << level);
                ASSERT_LT(child, count);
                EXPECT_EQ(all.parent(child), member);
                EXPECT_EQ(all.level(child), level);
                ++parents[static_cast<std::size_t>(child)];
            }
        EXPECT_EQ(parents[0], 0);
        for (std::size_t member = 1; member < parents.size(); ++member) EXPECT_EQ(parents[member], 1) << count;
    }
}

// --- Sums ------------------------------------------------------------------------------------------------------------

TEST(arithmetic, members_of_a_team_have_the_row_in_the_same_order) {
    const random_matrix random{0.4, 3};
    const csr block = random.block({0, 20}, {0, 100});
    std::vector<double> x;
    for (int i = 0; i < 100; ++i) x.push_back(random_element(3, 0, i));
    for (int row = 0; row < 20; ++row) {
        double of_members[row_lanes];
        for (int member = 0; member < row_lanes; ++member)
            of_members[member] = product_of_member<row_lanes>(block.view(), row, x.data(), 0.7, member);
        EXPECT_EQ(sum_by_halves<row_lanes>(of_members), product_of_row(block.view(), row, x.data(), 0.7));
        double plain = 0.0;
        for (auto k = static_cast<std::size_t>(block.starts[static_cast<std::size_t>(row)]);
             k < static_cast<std::size_t>(block.starts[static_cast<std::size_t>(row) + 1]); ++k)
            plain += block.values[k] * 0.7 * x[static_cast<std::size_t>(block.columns[k])];
        EXPECT_NEAR(product_of_row(block.view(), row, x.data(), 0.7), plain, 1e-13);
    }
}

TEST(arithmetic, ordered_sum_adds_all) {
    for (const int count : {0, 1, 255, 256, 257, 5000})
        EXPECT_EQ(ordered_sum(count, [](int i) { return double(i); }), 0.5 * count * (count - 1.0));
}

TEST(arithmetic, members_of_a_team_have_a_sum_in_the_same_order) {
    const auto term = [](int i) { return random_element(3, 0, i); };
    for (const int count : {0, 1, 23, 255, 256, 257, 464, 5000}) {
        double of_members[32];
        for (int member = 0; member < 32; ++member) of_members[member] = sum_of_member<bins, 32>(count, term, member);
        EXPECT_EQ(sum_by_halves<32>(of_members), ordered_sum(count, term));
    }
}

// --- Random matrices -------------------------------------------------------------------------------------------------

void expect_equal(const csr& a, const csr& b) {
    EXPECT_EQ(a.starts, b.starts);
    EXPECT_EQ(a.columns, b.columns);
    EXPECT_EQ(a.values, b.values);
}

// The block of a whole matrix.
csr cut_out(const csr& whole, range rows, range columns) {
    csr result;
    for (int row = rows.first; row < rows.last; ++row) {
        for (auto k = whole.starts[static_cast<std::size_t>(row)]; k < whole.starts[static_cast<std::size_t>(row) + 1];
             ++k) {
            const int column = whole.columns[static_cast<std::size_t>(k)];
            if (column >= columns.first && column < columns.last)
                result.add(column - columns.first, whole.values[static_cast<std::size_t>(k)]);
        }
        result.end_row();
    }
    return result;
}

TEST(random_matrix, blocks_equal_the_whole) {
    for (const double density : {0.003, 0.05, 0.37, 0.5, 0.8, 1.0}) {
        const random_matrix random{density, 5};
        const csr whole = random.block({0, 90}, {0, 1100});
        for (const range columns : {range{0, 1100}, {0, 1}, {1, 2}, {333, 334}, {500, 777}, {1099, 1100}})
            expect_equal(random.block({30, 61}, columns), cut_out(whole, {30, 61}, columns));
    }
}

TEST(random_matrix, is_as_dense_as_asked_for) {
    for (const double density : {0.003, 0.05, 0.37, 0.5, 0.8, 1.0}) {
        const csr block = random_matrix{density, 1}.block({0, 300}, {0, 3000});
        const double places = 300.0 * 3000.0;
        // Five standard deviations of as many independent places.
        const double spread = 5.0 * std::sqrt(places * density * (1.0 - density));
        EXPECT_NEAR(static_cast<double>(block.entries()), places * density, spread + 1e-9);
        for (int row = 0; row < 300; ++row)
            for (auto k = static_cast<std::size_t>(block.starts[static_cast<std::size_t>(row)]) + 1;
                 k < static_cast<std::size_t>(block.starts[static_cast<std::size_t>(row) + 1]); ++k)
                ASSERT_LT(block.columns[k - 1], block.columns[k]);
        for (const double value : block.values) ASSERT_TRUE(value > 0.0 && value < 1.0);
    }
}

TEST(random_matrix, depends_on_the_seed) {
    const csr one = random_matrix{0.05, 1}.block({0, 50}, {0, 200});
    EXPECT_NE(one.columns, (random_matrix{0.05, 2}.block({0, 50}, {0, 200}).columns));
    EXPECT_NE(random_element(1, 0, 7), random_element(2, 0, 7));
    EXPECT_NE(random_element(1, 0, 7), random_element(1, 1, 7));
    EXPECT_NE(random_element(1, 0, 7), random_element(1, 0, 8));
}

// --- Files -----------------------------------------------------------------------------------------------------------

std::vector<double> dense(const entry_list& matrix) {
    std::vector<double> result(static_cast<std::size_t>(matrix.rows) * static_cast<std::size_t>(matrix.columns));
    for (const entry& e : matrix.entries) result[static_cast<std::size_t>(e.row * matrix.columns + e.column)] = e.value;
    return result;
}

const std::string real_header = "%%MatrixMarket matrix coordinate real general\n";

TEST(matrix_market, reads_coordinates) {
    const entry_list matrix = parse_matrix_market("%%MatrixMarket matrix coordinate real general\n"
                                                  "% a comment\n"
                                                  "\n"
                                                  "2 3 4\n"
                                                  "2 1 -1.5e2\r\n"
                                                  "  1\t3   +2\n"
                                                  "% another\n"
                                                  "1 1 .5\n"
                                                  "1 3 0.25", // the same place again, no end of line
                                                  "file");
    EXPECT_EQ(matrix.entries.size(), 3u);
    EXPECT_EQ(dense(matrix), (std::vector<double>{0.5, 0.0, 2.25, -150.0, 0.0, 0.0}));
    expect_equal(matrix.block({0, 2}, {1, 3}), cut_out(matrix.block({0, 2}, {0, 3}), {0, 2}, {1, 3}));
}

TEST(matrix_market, reads_every_kind) {
    const auto read = [](const std::string& kind, const std::string& rest) {
        return dense(parse_matrix_market("%%MatrixMarket matrix " + kind + "\n" + rest, "file"));
    };
    EXPECT_EQ(read("coordinate pattern general", "2 2 2\n1 2\n2 2\n"), (std::vector<double>{0, 1, 0, 1}));
    EXPECT_EQ(read("coordinate integer symmetric", "2 2 2\n1 1 5\n2 1 -3\n"), (std::vector<double>{5, -3, -3, 0}));
    EXPECT_EQ(read("coordinate real skew-symmetric", "2 2 1\n2 1 4\n"), (std::vector<double>{0, -4, 4, 0}));
    EXPECT_EQ(read("array real general", "2 3\n1\n2\n3\n4\n5\n6\n"), (std::vector<double>{1, 3, 5, 2, 4, 6}));
    EXPECT_EQ(read("array integer symmetric", "2 2\n1\n2\n3\n"), (std::vector<double>{1, 2, 2, 3}));
    EXPECT_EQ(read("array real skew-symmetric", "2 2\n7\n"), (std::vector<double>{0, -7, 7, 0}));
    EXPECT_EQ(read("COORDINATE Real GENERAL", "1 1 0\n"), (std::vector<double>{0}));
}

TEST(matrix_market, names_the_line_of_an_error) {
    const auto refused = [](const std::string& contents, const std::string& reason) {
        try {
            parse_matrix_market(contents, "file");
            ADD_FAILURE() << "read: " << contents;
        } catch (const std::runtime_error& error) {
            EXPECT_EQ(std::string(error.what()).find("file, line "), 0u) << error.what();
            EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
        }
    };
    refused("", "does not begin with %%MatrixMarket");
    refused("2 2 1\n1 1 1\n", "line 1: does not begin with %%MatrixMarket");
    refused("%%MatrixMarket matrix coordinate real\n", "line 1: expected %%MatrixMarket matrix FORMAT FIELD SYMMETRY");
    refused("%%MatrixMarket vector coordinate real general\n", "the object 'vector'");
    refused("%%MatrixMarket matrix list real general\n", "the format 'list'");
    refused("%%MatrixMarket matrix coordinate complex general\n", "the field 'complex'");
    refused("%%MatrixMarket matrix array pattern general\n", "the field 'pattern'");
    refused("%%MatrixMarket matrix coordinate real hermitian\n", "the symmetry 'hermitian'");
    refused("%%MatrixMarket matrix coordinate pattern skew-symmetric\n", "a pattern cannot be skew-symmetric");
    refused(real_header + "% nothing else\n", "line 2: the file ends before the line with the sizes");
    refused(real_header + "2 2\n", "line 2: expected the numbers of rows, columns and entries, found '2 2'");
    refused(real_header + "2 x 1\n", "line 2: the number of columns 'x' is not a whole number");
    refused(real_header + "0 2 1\n", "the number of rows 0 is not within 1 to");
    refused(real_header + "2 2000000000 1\n", "the number of columns 2000000000 is not within 1 to");
    refused(real_header + "99999999999999999999 2 1\n", "is not a whole number");
    refused(real_header + "2 2 -1\n", "the number of entries is -1");
    refused(real_header + "2 2 1\n0 1 1\n", "line 3: row 0 is not within 1 to 2");
    refused(real_header + "2 2 1\n1 3 1\n", "line 3: column 3 is not within 1 to 2");
    refused(real_header + "2 2 1\n1 1.5 1\n", "line 3: column '1.5' is not a whole number");
    refused(real_header + "2 2 1\n1 1\n", "line 3: expected row, column and value, found '1 1'");
    refused(real_header + "2 2 1\n1 1 1 1\n", "expected row, column and value");
    refused(real_header + "2 2 1\n1 1 1,5\n", "the value '1,5' is not a number");
    refused(real_header + "2 2 1\n1 1 nan\n", "is not finite");
    refused(real_header + "2 2 1\n1 1 inf\n", "is not finite");
    refused(real_header + "2 2 1\n1 1 1e999\n", "is not a number");
    refused(real_header + "2 2 2\n1 1 1\n% end\n", "line 4: the file ends after 1 of 2 entries");
    refused(real_header + "2 2 1000000000000000000\n1 1 1\n", "the file ends after 1 of 1000000000000000000 entries");
    refused(real_header + "2 2 1\n1 1 1\n\n2 2 1\n", "line 5: more entries than the 1");
    refused("%%MatrixMarket matrix coordinate integer general\n1 1 1\n1 1 1.5\n", "the value '1.5' is not a whole");
    refused("%%MatrixMarket matrix coordinate real symmetric\n2 3 1\n1 1 1\n", "line 2: a matrix of 2 x 3 cannot be");
    refused("%%MatrixMarket matrix coordinate real symmetric\n2 2 1\n1 2 1\n", "line 3: an entry above the diagonal");
    refused("%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n1 1 1\n", "line 3: an entry on the diagonal");
    refused("%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n",
            "line 5: the file ends before the value of row 2, "
            "column 2");
    refused("%%MatrixMarket matrix array real general\n1 1\n1\n2\n", "line 4: more values");
}

TEST(labels, are_the_first_column) {
    EXPECT_EQ(parse_labels("code,name\nA,b\n\"C, \"\"d\"\"\",e\r\n\"f\ng\",\"\"\nh,", "file"),
              (std::vector<std::string>{"A", "C, \"d\"", "f\ng", "h"}));
    EXPECT_TRUE(parse_labels("code\n", "file").empty());
    const auto refused = [](const std::string& contents, const std::string& reason) {
        try {
            parse_labels(contents, "file");
            ADD_FAILURE() << "read: " << contents;
        } catch (const std::runtime_error& error) {
            EXPECT_EQ(std::string(error.what()), "file, " + reason);
        }
    };
    refused("", "line 1: the file is empty");
    refused("a,b\nc\n", "line 2: 1 fields, but 2 headings");
    refused("a,b\n\"x\ny\",1\nc,d,e\n", "line 4: 3 fields, but 2 headings");
    refused("a,b\nc,d\n\"e,f\n", "line 3: a quotation mark is never closed");
    refused("a\n\"b\"c\n", "line 2: something follows a closing quotation mark");
    refused("a\nb\"c\"\n", "line 2: a quotation mark inside a field that does not begin with one");
    refused("a\nb\n\nc\n", "line 3: the label is empty");
}

// --- References ------------------------------------------------------------------------------------------------------

strips strips_of(const random_matrix& random, const decomposition& whole) {
    strips result;
    for (int column = 0; column < whole.devices.columns; ++column)
        result.push_back(random.block({0, whole.rows}, whole.columns_at({0, column})));
    return result;
}

strips strips_of(const entry_list& matrix, const decomposition& whole) {
    strips result;
    for (int column = 0; column < whole.devices.columns; ++column)
        result.push_back(matrix.block({0, whole.rows}, whole.columns_at({0, column})));
    return result;
}

TEST(reference, multiplies) {
    const random_matrix random{0.3, 2};
    const csr plain = random.block({0, 40}, {0, 70});
    std::vector<double> x;
    for (int i = 0; i < 70; ++i) x.push_back(random_element(2, 0, i));
    for (const grid devices : {grid{1, 1}, {2, 3}, {1, 7}}) {
        const decomposition whole{40, 70, devices, 4};
        const std::vector<double> y = multiply_serially(strips_of(random, whole), whole, x, 0.5);
        ASSERT_EQ(y.size(), 40u);
        for (std::size_t row = 0; row < 40; ++row) {
            double sum = 0.0;
            for (auto k = static_cast<std::size_t>(plain.starts[row]);
                 k < static_cast<std::size_t>(plain.starts[row + 1]); ++k)
                sum += plain.values[k] * x[static_cast<std::size_t>(plain.columns[k])];
            EXPECT_NEAR(y[row], 0.5 * sum, 1e-14 * std::abs(sum));
        }
    }
}

iterated iterate(const std::string& lines, int size, const goal& wanted, const grid& devices = {1, 1}) {
    const entry_list matrix = parse_matrix_market(real_header + lines, "file");
    const decomposition whole{size, size, devices, 2};
    std::vector<double> start(static_cast<std::size_t>(size), 1.0 / std::sqrt(double(size)));
    start[0] *= 1.0 + 1e-3; // not at right angles to anything
    return iterate_serially(strips_of(matrix, whole), whole, start, wanted);
}

TEST(reference, finds_dominant_eigenvalues) {
    const iterated known = iterate("2 2 4\n1 1 2\n1 2 1\n2 1 1\n2 2 3\n", 2, {200, 1e-13});
    EXPECT_EQ(known.told.state, outcome::converged);
    EXPECT_LT(known.told.iterations, 100);
    EXPECT_NEAR(known.found.eigenvalue, 0.5 * (5.0 + std::sqrt(5.0)), 1e-12);
    EXPECT_NEAR(known.vector[1] / known.vector[0], 0.5 * (1.0 + std::sqrt(5.0)), 1e-10);
    EXPECT_NEAR(std::hypot(known.vector[0], known.vector[1]), 1.0, 1e-14);

    const iterated negative = iterate("2 2 2\n1 1 -3\n2 2 1\n", 2, {200, 1e-13}, {2, 2});
    EXPECT_EQ(negative.told.state, outcome::converged);
    EXPECT_NEAR(negative.found.eigenvalue, -3.0, 1e-12);
}

TEST(reference, tells_why_it_ends) {
    EXPECT_EQ(iterate("2 2 2\n1 1 1\n2 2 0.9\n", 2, {7, 0.0}).told.state, outcome::enough);
    EXPECT_EQ(iterate("2 2 2\n1 1 1\n2 2 0.9\n", 2, {7, 0.0}).told.iterations, 7);
    EXPECT_EQ(iterate("2 2 2\n1 2 1\n2 1 -1\n", 2, {50, 1e-9}).told.state, outcome::enough);
    EXPECT_EQ(iterate("2 2 1\n1 2 1\n", 2, {50, 1e-9}).told.state, outcome::vanished);
    EXPECT_EQ(iterate("2 2 1\n1 2 1\n", 2, {50, 1e-9}).told.iterations, 2);
    EXPECT_EQ(iterate("2 2 2\n1 2 1e300\n2 1 1\n", 2, {50, 1e-9}).told.state, outcome::overflowed);
}

TEST(reference, residual_is_that_of_the_definition) {
    const random_matrix random{0.4, 9};
    const decomposition whole{30, 30, {3, 2}, 3};
    const strips matrix = strips_of(random, whole);
    const std::vector<double> start(30, 1.0 / std::sqrt(30.0));
    const auto after = [&](int iterations) { return iterate_serially(matrix, whole, start, {iterations, 0.0}); };
    const iterated seen = after(12), before = after(11), older = after(10);
    // The last vector but one, its product, and the estimate that it came with.
    const std::vector<double> y = multiply_serially(matrix, whole, before.vector, 1.0);
    double along = 0.0, off = 0.0, squares = 0.0;
    const double estimate = older.found.eigenvalue;
    for (std::size_t i = 0; i < y.size(); ++i) {
        along += before.vector[i] * y[i];
        off += (y[i] - estimate * before.vector[i]) * (y[i] - estimate * before.vector[i]);
        squares += y[i] * y[i];
    }
    EXPECT_NEAR(seen.found.eigenvalue, along, 1e-13 * along);
    EXPECT_NEAR(seen.found.residual, std::sqrt(off / squares), 1e-13);
    EXPECT_LT(seen.found.residual, older.found.residual);
}

TEST(reference, comparison_sees_one_bit) {
    std::vector<double> a{1.0, 2.0, 3.0}, b = a;
    EXPECT_TRUE(compare(a, b).equal());
    b[1] = std::nextafter(2.0, 3.0);
    EXPECT_EQ(compare(a, b).differing, 1u);
    EXPECT_EQ(compare(a, b).first, 1u);
    b[1] = std::numeric_limits<double>::quiet_NaN();
    EXPECT_FALSE(compare(a, b).equal());
}

TEST(reference, distance_ignores_the_sign) {
    EXPECT_DOUBLE_EQ(distance({1.0, 0.0}, {-1.0, 0.0}), 0.0);
    EXPECT_DOUBLE_EQ(distance({1.0, 0.0}, {0.0, 1.0}), std::sqrt(2.0));
}

// --- Report and options ----------------------------------------------------------------------------------------------

TEST(report, counts_messages) {
    EXPECT_EQ(traffic_per_product({10, 10, {1, 1}, 4}).puts, 0);
    const traffic product = traffic_per_product({10, 20, {3, 2}, 4});
    EXPECT_EQ(product.puts, (2 * 2 + 1 * 3) * 4);
    EXPECT_EQ(product.puts_between_devices, product.puts);
    EXPECT_EQ(product.bytes_between_devices, (2 * 20 + 1 * 10) * 8);

    EXPECT_EQ(traffic_per_iteration({12, 12, {1, 1}, 4}).puts, 0);
    const traffic square = traffic_per_iteration({16, 16, {2, 2}, 4});
    // Product; transposition, half of which stays on the device; what two devices tell three others of squares and
    // checks.
    EXPECT_EQ(square.puts, 4 * 4 + 4 + 2 * 3 + 2 * 3);
    EXPECT_EQ(square.puts_between_devices, square.puts);
    EXPECT_EQ(square.bytes_between_devices, 8 * (16 + 16 + 8) + 6 * 8 + 6 * 16);
}

TEST(report, ranks_rows) {
    const std::vector<ranked> top = rank_rows({0.1, -0.7, 0.5, 0.5}, {"a", "b", "c", "d"}, 3);
    ASSERT_EQ(top.size(), 3u);
    EXPECT_EQ(top[0].label, "b");
    EXPECT_EQ(top[0].share, 0.7);
    EXPECT_EQ(top[1].label, "c");
    EXPECT_EQ(top[2].label, "d");
    EXPECT_EQ(rank_rows({0.1, 0.2}, {}, 10).front().label, "2");
    EXPECT_EQ(rank_rows({0.1, 0.2}, {}, 10).size(), 2u);
}

TEST(report, tells_why_there_is_no_eigenvalue) {
    power_options chosen;
    chosen.tolerance = 1e-12;
    const auto failure = [&](outcome state, double halfway, double end) {
        discovery seen;
        seen.told.state = state;
        seen.told.iterations = 100;
        seen.found.residual_halfway = halfway;
        seen.found.residual = end;
        return failure_of(seen, chosen);
    };
    EXPECT_EQ(failure(outcome::converged, 1e-3, 1e-13), "");
    EXPECT_EQ(failure(outcome::vanished, 1.0, 1.0).find("no dominant eigenvalue"), 0u);
    EXPECT_NE(failure(outcome::overflowed, 1.0, 1.0).find("scale the matrix"), std::string::npos);
    EXPECT_EQ(failure(outcome::enough, 0.3, 0.3).find("no dominant eigenvalue"), 0u);
    EXPECT_EQ(failure(outcome::enough, 1e-3, 1e-6).find("not yet an eigenvalue"), 0u);
    chosen.tolerance = 0.0; // an estimate was asked for
    EXPECT_EQ(failure(outcome::enough, 0.3, 0.3), "");

    chosen.tolerance = 1e-12;
    discovery second;
    second.told.state = outcome::converged;
    EXPECT_EQ(failure_of_second(second, 1e-9, chosen), "");
    EXPECT_EQ(failure_of_second(second, 0.1, chosen).find("no dominant eigenvalue"), 0u);
}

template <class Parse>
auto parse(const Parse& parser, std::vector<std::string> words) {
    words.insert(words.begin(), "program");
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    return parser(static_cast<int>(pointers.size()), pointers.data());
}

TEST(options, defaults_and_choices) {
    const spmv_options plain = parse(parse_spmv, {}).chosen.value();
    EXPECT_EQ(plain.whole_rows(1), 10'816);
    EXPECT_EQ(plain.whole_rows(4), 2 * 10'816);
    EXPECT_EQ(plain.whole_rows(9), 3 * 10'816);
    EXPECT_EQ(plain.whole_rows(2), 15'296); // 10816 times the root of 2
    EXPECT_EQ(plain.density, 0.003);
    EXPECT_EQ(plain.repetitions, 100);
    const spmv_options chosen = parse(parse_spmv, {"--rows", "7", "--grid", "2x3", "--json", "-"}).chosen.value();
    EXPECT_EQ(chosen.whole_rows(4), 7);
    EXPECT_EQ(chosen.devices.rows, 2);
    EXPECT_EQ(chosen.devices.columns, 3);
    EXPECT_EQ(chosen.progress, 0.0);

    const power_options published = parse(parse_power_iteration, {}).chosen.value();
    EXPECT_EQ(published.iterations, 100);
    EXPECT_EQ(published.tolerance, 0.0);
    EXPECT_EQ(published.top, 0);
    const power_options with_file = parse(parse_power_iteration, {"--matrix", "a.mtx"}).chosen.value();
    EXPECT_EQ(with_file.iterations, 1000);
    EXPECT_EQ(with_file.tolerance, 1e-12);
    EXPECT_EQ(with_file.top, 10);
    EXPECT_EQ(parse(parse_power_iteration, {"--matrix", "a.mtx", "--tolerance", "0"}).chosen.value().tolerance, 0.0);
}

TEST(options, refuse_with_reason) {
    const auto refused = [](const auto& parser, std::vector<std::string> words, const char* reason) {
        const auto result = parse(parser, std::move(words));
        EXPECT_FALSE(result.chosen);
        EXPECT_EQ(result.status, 2);
        EXPECT_NE(result.text.find(reason), std::string::npos) << result.text;
    };
    refused(parse_spmv, {"--density", "0"}, "0 is not within 0.000001 to 1");
    refused(parse_spmv, {"--density", "nan"}, "not within 0.000001 to 1");
    refused(parse_spmv, {"--grid", "2"}, "2 is not ROWSxCOLUMNS");
    refused(parse_spmv, {"--grid", "0x3"}, "0x3 is not ROWSxCOLUMNS");
    refused(parse_spmv, {"--team", "3"}, "--team");
    refused(parse_spmv, {"--matrix", "a", "--size", "3"}, "--matrix");
    refused(parse_spmv, {"--threads", "33"}, "multiple of 32");
    refused(parse_spmv, {"--seed", "-1"}, "--seed");
    refused(parse_power_iteration, {"--tolerance", "1"}, "1 is not 0 or a part of the eigenvalue");
    refused(parse_power_iteration, {"--labels", "a.csv"}, "--matrix");
    refused(parse_power_iteration, {"--iterations", "0"}, "--iterations");
    refused(parse_power_iteration, {"--unknown"}, "--unknown");
    EXPECT_EQ(parse(parse_spmv, {"--help"}).status, 0);
    EXPECT_EQ(parse(parse_power_iteration, {"--help"}).status, 0);
}

TEST(options, team_divides_the_threads) {
    EXPECT_EQ(choose_team(0, 256, 8), 8);
    EXPECT_EQ(choose_team(0, 12, 8), 1);
    EXPECT_EQ(choose_team(8, 64, 1), 8);
    EXPECT_THROW(choose_team(8, 12, 1), std::runtime_error);
}

} // namespace
} // namespace sparse
