// SPDX-License-Identifier: BSD-3-Clause
// The table that people read: its columns, its width, and what stands below it.
#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/record.hpp"

namespace benchmark {
namespace {

constexpr std::size_t terminal_width = 120;

std::vector<std::string> lines_of(const std::string& text) {
    std::istringstream stream(text);
    std::vector<std::string> lines;
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

std::vector<std::string> table_of(const std::vector<row>& rows) {
    options chosen;
    chosen.commit = std::string(40, 'c');
    return lines_of(format_table({"dcuda-bench", "", 2, rows}, chosen));
}

std::vector<std::string> words_of(const std::string& line) {
    std::istringstream stream(line);
    std::vector<std::string> words;
    for (std::string word; stream >> word;) words.push_back(word);
    return words;
}

// The line of the columns' names, which begins with the benchmark's.
std::string title_of(const std::vector<std::string>& table, const std::string& benchmark) {
    const auto found = std::find_if(table.begin(), table.end(),
                                    [&](const std::string& line) { return line.starts_with(benchmark + " "); });
    return found == table.end() ? "" : *found;
}

void expect_fits(const std::vector<std::string>& table) {
    for (const std::string& line : table) {
        EXPECT_LE(line.size(), terminal_width) << line;
        EXPECT_FALSE(line.ends_with(' ')) << "'" << line << "'";
    }
}

row measured(const std::string& benchmark, const std::string& operation, double value) {
    row result{benchmark, "same device", operation};
    result.value = {value, 0.9 * value, 1.1 * value, true};
    return result;
}

// The longest operation, the largest puts and the most ranks that there are.
row widest() {
    row result = measured("bandwidth", "put_notify, Hockney, half of the ranks", 12345.678);
    result.unit = "GB/s";
    result.bytes = 16777216;
    result.threads = 1024;
    result.ranks = 2112;
    return result;
}

TEST(table, shows_no_column_in_which_no_row_says_anything) {
    const auto table = table_of({measured("flush", "put and flush", 1.0), measured("flush", "put", 2.0)});
    EXPECT_EQ(words_of(title_of(table, "flush")),
              (std::vector<std::string>{"flush", "operation", "value", "unit", "interval"}));
    expect_fits(table);
}

TEST(table, shows_a_column_in_which_one_row_says_something) {
    row with_threads = measured("flush", "put", 2.0);
    with_threads.threads = 128;
    const auto table = table_of({measured("flush", "put and flush", 1.0), with_threads});
    EXPECT_EQ(words_of(title_of(table, "flush")),
              (std::vector<std::string>{"flush", "operation", "threads", "value", "unit", "interval"}));
    // The other row has a dash there, so that its value stays below its name.
    EXPECT_TRUE(std::any_of(table.begin(), table.end(), [](const std::string& line) {
        return words_of(line) == std::vector<std::string>{"same",  "device", "put",   "and", "flush", "-",
                                                          "1.000", "us",     "0.900", "to",  "1.100"};
    }));
}

TEST(table, leaves_columns_out_for_each_benchmark_by_itself) {
    row waiting = measured("waiters", "copy, slow-down", 1.0);
    waiting.beside = 132;
    const auto table = table_of({measured("flush", "put", 2.0), waiting});
    EXPECT_EQ(title_of(table, "flush").find("waiting"), std::string::npos);
    EXPECT_NE(title_of(table, "waiters").find(" waiting "), std::string::npos);
}

TEST(table, fits_a_terminal_without_goals_and_rivals) {
    row busy = widest();
    busy.host_cores = 12.34;
    const auto table = table_of({widest(), busy});
    EXPECT_NE(title_of(table, "bandwidth").find(" cores"), std::string::npos);
    expect_fits(table);
}

TEST(table, has_rivals_below_a_row_where_they_do_not_fit_beside_it) {
    row with_rivals = measured("flush", "put", 2.0);
    with_rivals.rivals = {{"NVSHMEM", 4.0}};
    const auto narrow = table_of({with_rivals});
    EXPECT_NE(title_of(narrow, "flush").find(" rivals"), std::string::npos);
    expect_fits(narrow);

    with_rivals = widest();
    for (int i = 0; i < 8; ++i) with_rivals.rivals.push_back({"a rival with a long name", 400.0});
    const auto wide = table_of({with_rivals});
    EXPECT_EQ(title_of(wide, "bandwidth").find(" rivals"), std::string::npos);
    EXPECT_EQ(std::count_if(wide.begin(), wide.end(),
                            [](const std::string& line) { return line.starts_with("    rivals: a rival with"); }),
              1);
    expect_fits(wide);
}

TEST(table, folds_the_reason_for_what_is_missing_between_words) {
    row missing = widest();
    missing.missing = "the sources of all ranks of a device would need more memory than the 4 GiB that a benchmark "
                      "takes, and no smaller ones were asked for";
    const auto table = table_of({widest(), missing});
    expect_fits(table);
    std::string text;
    for (const std::string& line : table)
        for (const std::string& word : words_of(line)) text += word + " ";
    EXPECT_NE(text.find("2112 ranks: not measured: " + missing.missing), std::string::npos);
}

} // namespace
} // namespace benchmark
