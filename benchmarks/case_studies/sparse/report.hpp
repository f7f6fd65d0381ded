// SPDX-License-Identifier: BSD-3-Clause
// What the programs say at the end: in plain words, and as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/times.hpp"
#include "options.hpp"
#include "reference.hpp"

namespace sparse {

struct verdict {
    comparison worst;               // of the first run that differs
    bool same_course = true;        // power iteration: as many iterations, and the same eigenvalue and residual
    double reference_seconds = 0.0; // what the serial reference took
    bool equal() const { return worst.equal() && same_course; }
};

struct report {
    decomposition whole;
    std::int64_t entries = 0;
    int threads = 0;
    int team = 0;
    bool on_chip = false; // ranks have their rows of the matrix in shared memory, those that fit
    std::string backend;
    std::string carrier;                       // of a model to compare with: what brings data from device to device
    std::vector<double> milliseconds;          // one entry per run
    std::vector<double> exchange_milliseconds; // of the exchanges alone; 0 where that is not known
    std::optional<verdict> verified;
    common::joules energy = {};
};

// What ranks put in one repetition or iteration, and the part of it that leaves a device.
struct traffic {
    long puts = 0;
    long puts_between_devices = 0;
    long long bytes_between_devices = 0;
};
traffic traffic_per_product(const decomposition& whole);
traffic traffic_per_iteration(const decomposition& whole);

std::string in_words(const report& about, const spmv_options& chosen);
std::string as_json(const report& about, const spmv_options& chosen);

// A row and its element of the eigenvector.
struct ranked {
    int row = 0;
    std::string label;
    double share = 0.0; // the element's absolute value; the vector has length 1
};

// The rows with the largest elements, in descending order; of equal ones the first. Labels may be missing: rows are
// then called by their number, from 1.
std::vector<ranked> rank_rows(const std::vector<double>& vector, const std::vector<std::string>& labels, int count);

// What a power iteration found.
struct discovery {
    control told; // last
    findings found;
    std::vector<ranked> top;
};

// Why there is no eigenvalue to report, and what to do; nothing if there is one.
std::string failure_of(const discovery& seen, const power_options& chosen);

// The same of a second iteration from another start, whose vector is this far from the first's.
std::string failure_of_second(const discovery& second, double apart, const power_options& chosen);

std::string in_words(const report& about, const power_options& chosen, const discovery& seen);
std::string as_json(const report& about, const power_options& chosen, const discovery& seen);

} // namespace sparse
