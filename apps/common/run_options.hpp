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

// `parts` are what ranks share, such as "rows": by default there is no rank without one.
void add_run_options(CLI::App& app, run_options& chosen, const std::string& parts);

// `chosen` is what the app's options write to. An error ends with status 2.
template <class Options>
arguments::command_line<Options> parse(CLI::App& app, int argc, char** argv, const Options& chosen) {
    arguments::command_line<Options> result = arguments::parse(app, argc, argv, chosen);
    if (!result.chosen)
        result.status = result.status == 0 ? 0 : 2;
    else if (result.chosen->json == "-")
        result.chosen->progress = 0.0; // its lines go to standard output too
    return result;
}

} // namespace common
