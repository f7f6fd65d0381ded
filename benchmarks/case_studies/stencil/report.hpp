// SPDX-License-Identifier: BSD-3-Clause
// What the program says at the end: in plain words, and as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/times.hpp"
#include "diffusion.hpp"
#include "division.hpp"
#include "options.hpp"
#include "reference.hpp"

namespace stencil {

struct verdict {
    comparison worst;               // of the first run that differs
    double reference_seconds = 0.0; // what the serial reference took
};

// Smallest and largest value, and how far any point moved.
struct values {
    double before_low = 0.0, before_high = 0.0;
    double after_low = 0.0, after_high = 0.0;
    double largest_change = 0.0;
};
values survey(const field& before, const field& after);

struct report {
    grid whole;
    division ranks;
    int threads = 0;
    bool on_chip = false; // the ranks keep their fields in shared memory
    std::string backend;
    std::string carrier;                            // of a model to compare with: what brings rows to the neighbours
    std::vector<double> milliseconds = {};          // one entry per run
    std::vector<double> exchange_milliseconds = {}; // of the exchanges alone; 0 where that is not known
    std::optional<verdict> verified = {};
    std::optional<values> surveyed = {};
    common::joules energy = {};
    int band_rows = 0; // that a rank takes through the three steps before the next
};

// Border planes and bytes that the ranks put in one iteration, and the part of them that leaves a device. A put that
// is not cut into pieces carries `rows_together` rows.
struct traffic {
    long puts = 0;
    long puts_between_devices = 0;
    long long bytes_between_devices = 0;
};
traffic traffic_per_iteration(const grid& whole, const division& ranks, message kind, int rows_together = 1);

std::string in_words(const report& about, const options& chosen);
std::string as_json(const report& about, const options& chosen);

} // namespace stencil
