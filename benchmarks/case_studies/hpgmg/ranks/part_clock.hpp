// SPDX-License-Identifier: BSD-3-Clause
// Measures which parts the time of a rank goes into.
#pragma once

#include <cstdint>

#include "common/block.hpp"
#include "common/clock.hpp"
#include "parts.hpp"

namespace hpgmg {

// Of one rank. Its first thread measures; without a table nobody does.
class part_clock {
public:
    // `table`: nanoseconds by level and part, to add to; or null.
    DCUDA_DEVICE explicit part_clock(std::uint64_t* table) : table_(common::thread() == 0 ? table : nullptr) {}

    DCUDA_DEVICE void start() {
        if (table_ != nullptr) since_ = common::now_ns();
    }
    // The time from now on is that of this part on this level. Returns the part so far.
    DCUDA_DEVICE part turn(int level, part next) {
        const part before = part_;
        if (table_ != nullptr) {
            const std::uint64_t now = common::now_ns();
            table_[level_ * part_count + static_cast<int>(part_)] += now - since_;
            since_ = now;
        }
        level_ = level;
        part_ = next;
        return before;
    }

private:
    std::uint64_t* table_;
    std::uint64_t since_ = 0;
    int level_ = 0;
    part part_ = part::norm;
};

} // namespace hpgmg
