// SPDX-License-Identifier: BSD-3-Clause
// An error that all processes of a job throw in the same place.
#pragma once

#include <stdexcept>

namespace common {

// Process 0 tells its reason; the others' does not matter.
struct agreed_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

} // namespace common
