// SPDX-License-Identifier: BSD-3-Clause
#include "generator.hpp"

#include <algorithm>
#include <cmath>

#include "common/random.hpp"

namespace sparse {

using common::fraction;
using common::scrambled;

csr random_matrix::block(range of_rows, range of_columns) const {
    const double width = std::max(1.0, 0.5 / density);
    const double probability = density * width;
    const auto first_place = [&](std::int64_t slot) {
        return static_cast<std::int64_t>(static_cast<double>(slot) * width);
    };
    csr result;
    for (int row = of_rows.first; row < of_rows.last; ++row) {
        const std::uint64_t of_row = scrambled(scrambled(seed) + static_cast<std::uint64_t>(row));
        // The division may be off by a rounding: begin one slot early.
        auto slot = std::max<std::int64_t>(0, static_cast<std::int64_t>(of_columns.first / width) - 1);
        for (; first_place(slot) < of_columns.last; ++slot) {
            const std::uint64_t chance = scrambled(of_row + 3 * static_cast<std::uint64_t>(slot));
            if (fraction(chance) >= probability) continue;
            const std::uint64_t where = scrambled(of_row + 3 * static_cast<std::uint64_t>(slot) + 1);
            const auto places = static_cast<std::uint64_t>(first_place(slot + 1) - first_place(slot));
            const std::int64_t column = first_place(slot) + static_cast<std::int64_t>(where % places);
            if (column < of_columns.first || column >= of_columns.last) continue;
            const std::uint64_t value = scrambled(of_row + 3 * static_cast<std::uint64_t>(slot) + 2);
            result.add(static_cast<int>(column - of_columns.first), fraction(value | 1u << 11));
        }
        result.end_row();
    }
    return result;
}

double random_element(std::uint64_t seed, int number, int index) {
    const std::uint64_t of_vector = scrambled(~scrambled(seed) + static_cast<std::uint64_t>(number));
    return fraction(scrambled(of_vector + static_cast<std::uint64_t>(index)));
}

} // namespace sparse
