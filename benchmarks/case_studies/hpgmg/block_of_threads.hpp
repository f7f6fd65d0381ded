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
    // Calls action(i, j, k) for every other i, from the first one on, and all j and k: for the first of each pair of
    // cells that follow each other in the first dimension. For many cells. Without waiting for the other threads.
    // PERF: threads go along that dimension, side by side in tiles of up to 8 rows and 32 columns: what a pair and the
    // next one both read stays in the L1 cache. Lines of cells are counted in powers of two, of which some are empty,
    // so that nothing is divided.
    template <class Action>
    DCUDA_DEVICE void start_for_each_pair(const region& cells, const Action& action) const {
        constexpr int most_row_bits = 3, most_column_bits = 5;
        const int column_bits = bits_for(cells.extent(2), most_column_bits);
        const int tiles = ((cells.extent(2) - 1) >> column_bits) + 1; // side by side
        for (int row = cells.first[1]; row < cells.last[1]; row += 1 << most_row_bits) {
            const int tile_bits = column_bits + bits_for(cells.last[1] - row, most_row_bits);
            const int line_bits = tile_bits + bits_for(tiles, 16);
            // Where there are more threads than lines: team t takes every teams-th pair of each line, from pair t on.
            const int teams = common::threads() >> line_bits > 1 ? common::threads() >> line_bits : 1;
            DCUDA_NO_UNROLL
            for (int n = common::thread(); n < teams << line_bits; n += common::threads()) {
                const int line = n & ((1 << line_bits) - 1), in_tile = line & ((1 << tile_bits) - 1);
                const int j = row + (in_tile >> column_bits), k = cells.first[2] +
                                                                  ((line >> tile_bits) << column_bits) +
                                                                  (in_tile & ((1 << column_bits) - 1));
                if (j >= cells.last[1] || k >= cells.last[2]) continue;
                DCUDA_NO_UNROLL
                for (int i = cells.first[0] + 2 * (n >> line_bits); i < cells.last[0]; i += 2 * teams) action(i, j, k);
            }
        }
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
    // The bits of the smallest power of two that is no less than the count; but no more bits than these.
    static DCUDA_DEVICE int bits_for(int count, int most) {
        const int bits = 32 - __clz(count - 1);
        return bits < most ? bits : most;
    }

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
