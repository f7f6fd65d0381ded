// SPDX-License-Identifier: BSD-3-Clause
// What a result was measured on.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace benchmark {

// Devices, versions, processor, date and commit. `commit` empty: the environment variable DCUDA_COMMIT.
nlohmann::ordered_json describe_machine(const std::string& commit);

// The same in one line.
std::string machine_in_words(const nlohmann::ordered_json& machine);

// Whether the goals (goals.hpp) are for this machine.
bool has_goals();

// Of this process's device, now: its multiprocessors', or the first core's. 0 if nothing tells.
int clock_mhz();

} // namespace benchmark
