// How a report tells the times of a program's runs, each of which took a number of equal steps.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/statistics.hpp"

namespace common {

measure::summary seconds_per_run(const std::vector<double>& milliseconds);

// The median of a run and of a step, whose name is `step`, with its interval if there are several. No end of line.
std::string times_in_words(const std::vector<double>& milliseconds, int steps, const char* step);

// Microseconds of a step: median, interval, samples.
nlohmann::ordered_json times_as_json(const std::vector<double>& milliseconds, int steps);

} // namespace common
