// SPDX-License-Identifier: BSD-3-Clause
// The threads of a block, for all that is done in many cells; and as the bottom solver's crew.
#pragma once

#include "bottom.hpp"
#include "common/block.hpp"

namespace hpgmg {

class block_of_threads {
public:
    // `lanes`: of shared memory, one for each partial sum.
    DCUDA_DEVICE explicit block_of_threads(double* lanes) : lanes_(lanes) {}

    // Calls action(i, j, k) for all cells, without waiting for the other threads.
    // PERF: not unrolled: on coarse levels a thread has a cell or none.
    template <class Action>
    DCUDA_DEVICE void start_for_each_cell(const region& cells, const Action& action) const {
        const int rows = cells.extent(1), columns = cells.extent(2);
        const auto count = static_cast<int>(cells.cells());
        DCUDA_NO_UNROLL
        for (int n = common::thread(); n < count; n += common::threads()) {
            const int row = n / columns;
            action(cells.first[0] + row / rows, cells.first[1] + row % rows, cells.first[2] + n % columns);
        }
    }
    template <class Action>
    DCUDA_DEVICE void for_each_cell(const region& cells, const Action& action) const {
        start_for_each_cell(cells, action);
        __syncthreads();
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
    // Combines what lies in the first lanes, in their order.
    template <class Combine>
    DCUDA_DEVICE double of_lanes(int count, const Combine& add) const {
        double result = 0.0;
        for (int lane = 0; lane < count; ++lane) result = add(result, lanes_[lane]);
        return result;
    }
    DCUDA_DEVICE double& lane(int number) const { return lanes_[number]; }

private:
    double* lanes_;
};

// PERF: its functions are called, not inlined: in line the solver is 147 KB of code, of which each visit uses little.
class bottom_crew {
public:
    DCUDA_DEVICE explicit bottom_crew(const block_of_threads& threads) : threads_(threads) {}

    template <class Action>
    DCUDA_COLD void for_each_cell(const region& cells, const Action& action) const {
        threads_.for_each_cell(cells, action);
    }
    template <class Value>
    DCUDA_DEVICE double sum(int side, const Value& value) const {
        return combine(side, value, [](double a, double b) { return a + b; });
    }
    template <class Value>
    DCUDA_DEVICE double largest(int side, const Value& value) const {
        return combine(side, value, [](double a, double b) { return larger(a, b); });
    }

private:
    template <class Value, class Combine>
    DCUDA_COLD double combine(int side, const Value& value, const Combine& add) const {
        for (int lane = common::thread(); lane < sum_lanes; lane += common::threads()) {
            double result = 0.0;
            DCUDA_NO_UNROLL
            for (int n = lane; n < side * side * side; n += sum_lanes)
                result = add(result, value(n / (side * side), n / side % side, n % side));
            threads_.lane(lane) = result;
        }
        __syncthreads();
        const double result = threads_.of_lanes(sum_lanes, add);
        __syncthreads();
        return result;
    }

    const block_of_threads& threads_;
};

} // namespace hpgmg
