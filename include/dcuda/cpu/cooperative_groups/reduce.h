// SPDX-License-Identifier: BSD-3-Clause
// The CPU backend's stand-in for <cooperative_groups/reduce.h>. Values are taken in the order of the threads; sums of
// floating-point numbers may differ from a GPU's in the last bits.
#pragma once

#include "dcuda/cpu/cooperative_groups.h"

namespace cooperative_groups {

template <class T>
struct plus {
    T operator()(T a, T b) const { return static_cast<T>(a + b); }
};
template <class T>
struct less {
    T operator()(T a, T b) const { return b < a ? b : a; }
};
template <class T>
struct greater {
    T operator()(T a, T b) const { return a < b ? b : a; }
};
template <class T>
struct bit_and {
    T operator()(T a, T b) const { return static_cast<T>(a & b); }
};
template <class T>
struct bit_or {
    T operator()(T a, T b) const { return static_cast<T>(a | b); }
};
template <class T>
struct bit_xor {
    T operator()(T a, T b) const { return static_cast<T>(a ^ b); }
};

// All threads of the tile get the result.
template <unsigned Size, class Parent, class T, class Operation>
T reduce(const thread_block_tile<Size, Parent>& group, T value, Operation&& operation) {
    const unsigned present = group.ballot(1);
    T result = value;
    bool is_first = true;
    for (unsigned rank = 0; rank < Size; ++rank) {
        if ((present >> rank & 1) == 0) continue;
        const T other = group.shfl(value, static_cast<int>(rank));
        result = is_first ? other : static_cast<T>(operation(result, other));
        is_first = false;
    }
    return result;
}
template <class T, class Operation>
T reduce(const coalesced_group&, T value, Operation&&) {
    return value;
}

} // namespace cooperative_groups
