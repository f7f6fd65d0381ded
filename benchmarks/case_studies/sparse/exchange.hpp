// SPDX-License-Identifier: BSD-3-Clause
// What a rank does for a product: the vector comes down the columns of devices, meets the rows of the matrix that the
// rank owns, and the sums go along the rows of devices.
//
// All ranks of a device share its memory and open it as one window. Trees connect ranks of the same number on different
// devices, which own the same elements. A message without elements is sent as well: the programs rely on the chain of
// messages, not on what is in them.
#pragma once

#include <cstddef>
#include <utility>

#include "common/block.hpp"
#include "common/progress.hpp"
#include "dcuda/device.hpp"
#include "layout.hpp"

namespace sparse {

// Squares and checks have a tag for even and one for odd iterations. Products have one for each level of the tree: the
// receiver adds in that order.
enum tag : int { vector_tag, gather_tag, square_tags, check_tags = square_tags + 2, product_tags = check_tags + 2 };

using common::for_each_index;
using common::thread;
using common::threads;

// sum_by_halves of what each of `Team` threads has, which are side by side in a warp. The first gets it.
template <int Team>
DCUDA_DEVICE double sum_of_team(double sum) {
    const int lane = thread() % warpSize;
    const auto members = static_cast<unsigned>(((1ull << Team) - 1) << (lane - lane % Team));
    DCUDA_UNROLL
    for (int half = Team / 2; half > 0; half /= 2) sum += __shfl_down_sync(members, sum, half, Team);
    return sum;
}

// One array for all sums of a rank.
DCUDA_DEVICE double* partial_sums() {
    __shared__ double sums[bins];
    return sums;
}

// Calls use(sum) in one thread with what ordered_sum makes of term(0), ..., term(count - 1). One warp adds: `which`, if
// there are as many, so that a rank can add up several things at a time. Thread 0 alone does if there are no whole
// warps.
template <class Term, class Use>
DCUDA_DEVICE void add_up(int which, int count, const Term& term, const Use& use) {
    constexpr int warp = 32;
    const int warps = threads() / warp;
    if (threads() % warp == 0) {
        if (thread() / warp != (which < warps ? which : warps - 1)) return;
        const double sum = sum_of_team<warp>(sum_of_member<bins, warp>(count, term, thread() % warp));
        if (thread() % warp == 0) use(sum);
    } else if (thread() == 0) {
        use(ordered_sum(count, term, partial_sums()));
    }
}

// What a rank's rows of the matrix take.
DCUDA_HOST_DEVICE constexpr std::size_t bytes_of_rows(std::size_t rows, std::size_t entries) {
    return (rows + 1) * sizeof(std::int64_t) + entries * (sizeof(double) + sizeof(int));
}

// These rows of the device's block, counted from the first of them: in shared memory, if there is room for them, else
// where they are.
DCUDA_DEVICE csr_view keep_rows(const task& work, range rows) {
    const csr_view block{work.matrix.starts + rows.first, work.matrix.columns, work.matrix.values};
    const std::int64_t first = block.starts[0];
    const int entries = static_cast<int>(block.starts[rows.count()] - first);
    if (bytes_of_rows(static_cast<std::size_t>(rows.count()), static_cast<std::size_t>(entries)) > work.on_chip_bytes)
        return block;
    auto* const starts = dcuda::dynamic_shared<std::int64_t>();
    auto* const values = reinterpret_cast<double*>(starts + rows.count() + 1);
    auto* const columns = reinterpret_cast<int*>(values + entries);
    for (int row = thread(); row <= rows.count(); row += threads()) starts[row] = block.starts[row] - first;
    for_each_index(entries, [&](int i) {
        values[i] = block.values[first + i];
        columns[i] = block.columns[first + i];
    });
    return {starts, columns, values};
}

// Rank: dcuda::rank, or what has the same calls.
template <class Rank>
class exchange {
public:
    // Collective over all ranks.
    DCUDA_DEVICE exchange(Rank& self, const task& work)
        : self_(self), work_(work), at_(work.here()), number_(self.id(dcuda::device)) {
        const range rows = local(work.whole.rows_of(at_, number_), work.whole.rows_at(at_));
        const csr_view matrix = keep_rows(work, rows);
        if (thread() == 0) {
            own() = {work.places(),
                     rows,
                     local(work.whole.columns_of(at_, number_), work.whole.columns_at(at_)),
                     matrix,
                     tree{work.whole.devices.rows}.levels(at_.row),
                     tree{work.whole.devices.columns}.levels(at_.column)};
        }
        __syncthreads();
        window_ = self.create_window(dcuda::world, work.memory, memory().bytes());
    }
    DCUDA_DEVICE void close() const { self_.free_window(window_); }

    DCUDA_DEVICE place at() const { return at_; }
    DCUDA_DEVICE const layout& memory() const { return own().memory; }
    DCUDA_DEVICE int number() const { return number_; }
    // The rank's rows and elements of the vector, counted from the device's first.
    DCUDA_DEVICE range rows() const { return own().rows; }
    DCUDA_DEVICE range columns() const { return own().columns; }

    DCUDA_DEVICE double* vector(int buffer) const { return array(memory().vector(buffer)); }
    DCUDA_DEVICE double* product(int buffer) const { return array(memory().product(buffer)); }

    // Puts to a rank of another device, into that device's memory.
    DCUDA_DEVICE void put(int device, int number, std::size_t offset, std::size_t bytes, const void* source,
                          int message_tag) const {
        self_.put_notify(window_, device * work_.whole.ranks_per_device + number, offset, bytes, source, message_tag);
    }

    // Receives the rank's elements of the vector, in as many messages, and hands them down the column.
    DCUDA_DEVICE void pass_down(int buffer, int messages) const {
        if (messages > 0) self_.wait_notifications(vector_tag, messages);
        const std::size_t offset = memory().vector(buffer) + bytes_of(columns().first);
        // The child with the largest subtree comes first.
        for (int level = own().levels_below - 1; level >= 0; --level)
            put(work_.device + (1 << level), number_, offset, bytes_of(columns().count()), work_.memory + offset,
                vector_tag);
    }

    // The rank's rows of the block times factor * x. All ranks of the device have x.
    DCUDA_DEVICE void multiply(const double* x, double* y, double factor) const {
        const csr_view matrix = own().matrix;
        const int count = rows().count();
        y += rows().first;
        if (work_.team == 1)
            for (int row = thread(); row < count; row += threads()) y[row] = product_of_row(matrix, row, x, factor);
        else
            multiply_in_teams(matrix, count, x, y, factor);
        __syncthreads();
    }

    // Adds to the rank's rows of the product what the devices behind in the tree along the row have, and hands the sums
    // on. In the first column they are complete.
    DCUDA_DEVICE void add_along_row(double* y) const {
        for (int level = 0; level < own().levels_behind; ++level) {
            const double* const received = array(memory().received(level));
            self_.wait_notifications(product_tags + level, 1);
            const range ours = rows();
            for_each_index(ours.count(), [&](int i) { y[ours.first + i] += received[ours.first + i]; });
        }
        if (at_.column == 0) return;
        const tree along{work_.whole.devices.columns};
        const place parent{at_.row, along.parent(at_.column)};
        const int level = along.level(at_.column);
        put(work_.whole.devices.device_at(parent), number_, memory().received(level) + bytes_of(rows().first),
            bytes_of(rows().count()), y + rows().first, product_tags + level);
    }

private:
    // PERF: in shared memory. Registers are not enough for all, and every acquire empties the cache of spilled ones.
    struct plan {
        layout memory;
        range rows, columns;
        csr_view matrix;                 // the rank's rows
        int levels_below, levels_behind; // of the trees: how many children it has
    };
    static DCUDA_DEVICE plan& own() {
        __shared__ plan result;
        return result;
    }
    static DCUDA_DEVICE range local(range part, range whole) {
        return {part.first - whole.first, part.last - whole.first};
    }
    DCUDA_DEVICE double* array(std::size_t offset) const { return reinterpret_cast<double*>(work_.memory + offset); }

    static DCUDA_DEVICE void multiply_in_teams(const csr_view& matrix, int count, const double* x, double* y,
                                               double factor) {
        constexpr int team = row_lanes;
        const int member = thread() % team;
        for (int row = thread() / team; row < count; row += threads() / team) {
            const double sum = sum_of_team<team>(product_of_member<team>(matrix, row, x, factor, member));
            if (member == 0) y[row] = sum;
        }
    }

    Rank& self_;
    const task& work_;
    place at_;
    int number_;
    layout memory_;
    decltype(std::declval<Rank&>().create_window(dcuda::world, nullptr, 0)) window_;
};

} // namespace sparse
