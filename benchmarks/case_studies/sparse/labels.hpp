// SPDX-License-Identifier: BSD-3-Clause
// Names of a matrix's rows.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sparse {

// The first column of a CSV file (RFC 4180), below its line of headings. Throws std::runtime_error that names the file,
// the line and what is wrong there.
std::vector<std::string> parse_labels(std::string_view contents, const std::string& name);

} // namespace sparse
