// SPDX-License-Identifier: BSD-3-Clause
// What the program says at the end: in plain words, and as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/times.hpp"
#include "motion.hpp"
#include "options.hpp"
#include "reference.hpp"

namespace particles {

struct verdict {
    comparison worst;               // of the first run that differs
    double reference_seconds = 0.0; // what the serial reference took
};

// What all ranks counted in a run, together.
struct totals {
    long long particles = 0;
    long long pairs = 0; // that a force acted on, over all steps
    int fullest = 0;     // the most particles in one segment; in shared memory, of one rank
    sums before, after;
    vector walls; // momentum that walls took
};

// How far momentum, with that of the walls, is off its value at the start; and how far it may be.
double momentum_error(const totals& seen);
double momentum_tolerance(const totals& seen, int steps);

// What is wrong with the totals, or nothing.
std::string violated_conservation(const totals& seen, const domain& whole, int steps);

struct report {
    domain whole;
    partition parts;      // of segments, or of cells:
    int most_parts = 0;   // of a rank
    bool on_chip = false; // ranks keep their particles in shared memory
    int capacity = 0;     // of a segment; in shared memory, of a rank
    int threads = 0;
    std::string backend;
    std::string carrier;                       // of a model to compare with: what brings data to the neighbours
    std::size_t message_bytes = 0;             // of such a model: of each message
    std::vector<double> milliseconds;          // one entry per run
    std::vector<double> exchange_milliseconds; // of the exchanges alone; 0 where that is not known
    totals counted;
    std::optional<verdict> verified;
    common::joules energy = {};
};

// Notified puts of all ranks in one step, and the part of them that leaves a device: of a model to compare with,
// messages.
struct traffic {
    long puts = 0;
    long puts_between_devices = 0;
};
traffic traffic_per_step(const partition& parts, const std::string& model);

std::string in_words(const report& about, const options& chosen);
std::string as_json(const report& about, const options& chosen);

} // namespace particles
