// SPDX-License-Identifier: BSD-3-Clause
// Matrix Market files.
#pragma once

#include <string>
#include <string_view>

#include "matrix.hpp"

namespace sparse {

// Reads `matrix`, `coordinate` or `array`, `real`, `integer` or `pattern` (whose entries are 1), `general`, `symmetric`
// or `skew-symmetric`. Entries of the same place are added up. Throws std::runtime_error that names the file, the line
// and what is wrong there.
entry_list parse_matrix_market(std::string_view contents, const std::string& name);

} // namespace sparse
