// SPDX-License-Identifier: BSD-3-Clause
// What is fuzzed: functions that read what others have written. Each takes any bytes; whatever it does that is wrong
// ends the process, by a sanitizer or by abort().
#pragma once

#include <string_view>

namespace dcuda::fuzz {

using target = void(std::string_view input);

// Files that users give to the case studies and to dcuda-run.
target matrix_market, labels, pgm, host_list;
// What processes, launchers and tools send each other.
target frames, parts, records, authentication, server_clients, launcher_store, snapshots;
// What arrives over a network, and the environment.
target fragments, port_arrivals, environment;

} // namespace dcuda::fuzz
