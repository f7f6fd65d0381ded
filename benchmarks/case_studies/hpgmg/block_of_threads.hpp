// SPDX-License-Identifier: BSD-3-Clause
// The threads of a block as one crew: the bottom solver's, and for all that is done in many cells.
#pragma once

#include "bottom.hpp"
#include "common/block.hpp"

namespace hpgmg {

class block_of_threads {
public:
    // `lanes`: of shared memory, one for each partial sum.
    DCUDA_DEVICE explicit block_of_threads(double* lanes) : lanes_(lanes) {}

    // Calls action(i, j, k) for all cells, without waiting for the other threads. Thread number `first`, modulo the
    // number of threads, begins.
    template <class Action>
    DCUDA_DEVICE void start_for_each_cell(const region& cells, int first, const Action& action) const {
        const int rows = cells.extent(1), columns = cells.extent(2);
        const auto count = static_cast<int>(cells.cells());
        const int behind = common::thread() - first % common::threads();
        for (int n = behind < 0 ? behind + common::threads() : behind; n < count; n += common::threads()) {
            const int row = n / columns;
            action(cells.first[0] + row / rows, cells.first[1] + row % rows, cells.first[2] + n % columns);
        }
    }
    template <class Action>
    DCUDA_DEVICE void for_each_cell(const region& cells, const Action& action) const {
        start_for_each_cell(cells, 0, action);
        __syncthreads();
    }
    template <class Value>
    DCUDA_DEVICE double sum(int side, const Value& value) const {
        return combine(side, value, [](double a, double b) { return a + b; });
    }
    template <class Value>
    DCUDA_DEVICE double largest(int side, const Value& value) const {
        return combine(side, value, [](double a, double b) { return larger(a, b); });
    }
    // The largest of the threads' values.
    DCUDA_DEVICE double largest_of_threads(double own) const {
        for (int first = 0; first < common::threads(); first += sum_lanes) {
            const int lane = common::thread() - first;
            if (lane >= 0 && lane < sum_lanes) lanes_[lane] = first == 0 ? own : larger(lanes_[lane], own);
            __syncthreads();
        }
        const double result = of_lanes(common::threads() < sum_lanes ? common::threads() : sum_lanes,
                                       [](double a, double b) { return larger(a, b); });
        __syncthreads();
        return result;
    }

private:
    template <class Value, class Combine>
    DCUDA_DEVICE double combine(int side, const Value& value, const Combine& add) const {
        for (int lane = common::thread(); lane < sum_lanes; lane += common::threads()) {
            double result = 0.0;
            for (int n = lane; n < side * side * side; n += sum_lanes)
                result = add(result, value(n / (side * side), n / side % side, n % side));
            lanes_[lane] = result;
        }
        __syncthreads();
        const double result = of_lanes(sum_lanes, add);
        __syncthreads();
        return result;
    }
    template <class Combine>
    DCUDA_DEVICE double of_lanes(int count, const Combine& add) const {
        double result = 0.0;
        for (int lane = 0; lane < count; ++lane) result = add(result, lanes_[lane]);
        return result;
    }

    double* lanes_;
};

} // namespace hpgmg
