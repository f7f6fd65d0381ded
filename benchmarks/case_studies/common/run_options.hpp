// SPDX-License-Identifier: BSD-3-Clause
// The options that every case study has.
#pragma once

#include <string>

#include "common/command_line.hpp"

namespace common {

struct run_options {
    int threads = 0; // per rank; 0: as suits the backend
    int ranks = 0;   // per device; 0: as many as are co-resident, but none without work
    int repeat = 1;
    double progress = 2.0; // seconds between two lines; 0: none
    bool verify = false;
    std::string json;
};

// Where ranks of dCUDA keep what they work on from step to step.
enum class place { fitting, shared, device };
const char* to_string(place where); // `fitting` is not told apart from `device`

// An option for that, by default `fitting`.
void add_place_option(CLI::App& app, const std::string& name, place& chosen, const std::string& description);

// `parts` are what ranks share, such as "rows": by default there is no rank without one.
void add_run_options(CLI::App& app, run_options& chosen, const std::string& parts);

// `chosen` is what the app's options write to.
template <class Options>
arguments::command_line<Options> parse(CLI::App& app, int argc, char** argv, const Options& chosen) {
    arguments::command_line<Options> result = arguments::parse(app, argc, argv, chosen);
    if (result.chosen && result.chosen->json == "-")
        result.chosen->progress = 0.0; // its lines go to standard output too
    return result;
}

// What a command line comes to that is wrong.
template <class Options>
arguments::command_line<Options> refused(const std::string& reason) {
    arguments::command_line<Options> result;
    result.text = reason;
    result.status = 2;
    return result;
}
std::string only_for(const std::string& option, const std::string& models, const std::string& model);

} // namespace common
