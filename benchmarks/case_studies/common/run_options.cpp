// SPDX-License-Identifier: BSD-3-Clause
#include "common/run_options.hpp"

#include <map>

#include <CLI/CLI.hpp>

namespace common {

const char* to_string(place where) { return where == place::shared ? "shared" : "device"; }

void add_place_option(CLI::App& app, const std::string& name, place& chosen, const std::string& description) {
    app.add_option(name, chosen, description)
        ->transform(
            CLI::CheckedTransformer(std::map<std::string, place>{{"shared", place::shared}, {"device", place::device}}))
        ->option_text("shared|device");
}

std::string only_for(const std::string& option, const std::string& models, const std::string& model) {
    return option + " is for " + models + " only, not for the model " + model + "\n";
}

void add_run_options(CLI::App& app, run_options& chosen, const std::string& parts) {
    CLI::Range at_least_one(1, 1 << 30);
    at_least_one.description(""); // it is said with the option's name when it matters
    app.add_option("--threads", chosen.threads,
                   "threads of a rank (default: as suits the program, on a GPU 256 to 1024; 8 on the CPU backend)")
        ->check(arguments::check_threads);
    app.add_option("--ranks", chosen.ranks, "ranks per device (default: all that fit, but no more than " + parts + ")")
        ->check(at_least_one)
        ->envname("DCUDA_RANKS_PER_DEVICE");
    app.add_option("--repeat", chosen.repeat, "runs to time")->check(at_least_one)->capture_default_str();
    app.add_option("--progress", chosen.progress,
                   "seconds between two lines of progress, 0 for none; none with --json -")
        ->check(CLI::Range(0.0, 1e9).description(""))
        ->capture_default_str();
    app.add_flag("--verify", chosen.verify, "compare with the serial reference, to the last bit");
    app.add_option("--json", chosen.json, "write sizes, times and the verdict as JSON (-: standard output)");
}

} // namespace common
