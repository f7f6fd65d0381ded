// SPDX-License-Identifier: BSD-3-Clause
// How results are shown, kept and compared.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/options.hpp"
#include "common/row.hpp"

namespace benchmark {

// What was measured, by which program and where.
struct record {
    std::string program;
    std::string version = {}; // of the rival's library
    int processes = 1;
    std::vector<row> rows = {};
    std::vector<std::pair<std::string, int>> clocks_mhz = {};         // after each subcommand
    std::vector<std::pair<std::string, std::string>> parameters = {}; // of a program with options of its own
};

// Reads the rows of a file that write_record wrote. Throws std::runtime_error.
std::vector<row> read_rows(const std::string& path);

// Puts what others needed for the same beside our rows. Theirs that nothing of ours stands for follow as they are.
void place_rivals(std::vector<row>& ours, const std::vector<row>& theirs);

// Adds how much slower ours are than the same rows of a program without checks, in percent.
void add_cost_of_checks(std::vector<row>& ours, const std::vector<row>& unchecked);

// The table that people read, with the machine above it, or comma-separated values.
std::string format_table(const record& results, const options& chosen);
std::string format_csv(const record& results);

void write_record(const std::string& path, const record& results, const options& chosen);

} // namespace benchmark
