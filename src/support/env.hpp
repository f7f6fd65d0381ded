// SPDX-License-Identifier: BSD-3-Clause
// Typed reading of environment variables. A variable that is unset or empty counts as absent; a malformed value throws
// dcuda::error(invalid_argument), such as "DCUDA_RANKS_PER_DEVICE=abc: expected an integer from 1 to 1048576".
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace dcuda::support {

// The value as it stands.
std::optional<std::string> env_string(const char* name);

// A decimal integer from min to max.
std::optional<long> env_integer(const char* name, long min, long max);

// 1, true, yes, on; 0, false, no, off; in any case.
std::optional<bool> env_flag(const char* name);

// A number of seconds, 0 or more, such as "60" or "0.5".
std::optional<double> env_seconds(const char* name);

// A sentence for each variable of the environment that begins with DCUDA_ and that no part of dCUDA reads, such as one
// that is misspelled; it names the variable that is most like it. Variables of the project's own tests and builds are
// left out.
std::vector<std::string> unknown_variables();

} // namespace dcuda::support
