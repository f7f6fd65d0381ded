// SPDX-License-Identifier: BSD-3-Clause
// A sparse matrix on the host.
#pragma once

#include <cstdint>
#include <vector>

#include "arithmetic.hpp"
#include "decomposition.hpp"

namespace sparse {

// A block in compressed rows: see csr_view.
struct csr {
    std::vector<std::int64_t> starts{0};
    std::vector<int> columns;
    std::vector<double> values;

    int rows() const { return static_cast<int>(starts.size()) - 1; }
    std::int64_t entries() const { return static_cast<std::int64_t>(values.size()); }
    csr_view view() const { return {starts.data(), columns.data(), values.data()}; }

    // To be called in ascending rows and columns: adds an entry to the last row, ends that row.
    void add(int column, double value) {
        columns.push_back(column);
        values.push_back(value);
    }
    void end_row() { starts.push_back(entries()); }
};

struct entry {
    int row = 0;
    int column = 0;
    double value = 0.0;
};

// A matrix as a list of its entries, sorted by rows, then columns, with no place twice.
struct entry_list {
    int rows = 0;
    int columns = 0;
    std::vector<entry> entries;

    // Sorts; entries of the same place become one, added in the order of the list.
    void tidy();

    csr block(range of_rows, range of_columns) const;
};

} // namespace sparse
