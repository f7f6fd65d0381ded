// SPDX-License-Identifier: BSD-3-Clause
// What dcuda-top shows: the processes of a job together.
#pragma once

#include "processes.hpp"

#include <string>
#include <vector>

namespace top {

enum class detail { groups, ranks }; // ranks that wait for the same thing share a line, or each has one

// Lines.
std::string as_text(const std::vector<process>& processes, detail level);

// One line.
std::string as_json(const std::vector<process>& processes);

} // namespace top
