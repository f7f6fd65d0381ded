// SPDX-License-Identifier: BSD-3-Clause
#include "matrix.hpp"

#include <algorithm>
#include <cstddef>

namespace sparse {

namespace {

bool is_before(const entry& a, const entry& b) { return a.row != b.row ? a.row < b.row : a.column < b.column; }

} // namespace

void entry_list::tidy() {
    std::stable_sort(entries.begin(), entries.end(), is_before);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < entries.size(); ++i) {
        if (kept > 0 && !is_before(entries[kept - 1], entries[i]))
            entries[kept - 1].value += entries[i].value;
        else
            entries[kept++] = entries[i];
    }
    entries.resize(kept);
}

csr entry_list::block(range of_rows, range of_columns) const {
    csr result;
    auto next = std::lower_bound(entries.begin(), entries.end(), entry{of_rows.first, 0, 0.0}, is_before);
    for (int row = of_rows.first; row < of_rows.last; ++row) {
        for (; next != entries.end() && next->row == row; ++next)
            if (next->column >= of_columns.first && next->column < of_columns.last)
                result.add(next->column - of_columns.first, next->value);
        result.end_row();
    }
    return result;
}

} // namespace sparse
