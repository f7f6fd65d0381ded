// SPDX-License-Identifier: BSD-3-Clause
// What the ranks do in the power iteration. The six steps of an iteration:
//     1. The vector goes down the columns of devices, and what its factor, which makes its length 1, is made of.
//     2. The vector is scaled, where step 3 reads it.
//     3. Every device multiplies its block.
//     4. The products are added along the rows of devices.
//     5. The sums go from the first column to the first row: they are the next vector.
//     6. Every device of the first column sums their squares and tells all others. Every rank makes the next factor of
//        these sums: all the same.
// Steps 5, 6 and the next 1 overlap: ranks pass the vector on while the squares are added up. And the ranks of the
// first row, which have a vector and its product, check how near they are to an eigenvector; what comes of it is used
// an iteration later, and nobody waits for it.
//
// Between ranks of a device nothing is put: they write where the others read, and two of the device's barriers order
// that. At the first, which is for the first column, all squares are there; at the second the next vector, and what the
// factor is made of. Device 0 multiplies to where the next vector lies, since its rows are elements of its part; so it
// puts only what is for other devices. A device that is alone needs the second barrier only.
//
// Nothing but notifications orders the devices. That no memory is overwritten that others still read, or that a put
// still sends, follows from one thing: whoever has passed the second barrier of iteration t knows that every rank of
// every device has finished product t, and all that it did before: it has passed the second barrier of t - 1. For its
// device has the squares of all rows of y(t), each of which waits for all devices of its row, and each device for all
// of its ranks (even if a rank has no elements: it sends empty messages).
//   - x(t - 1) is overwritten by x(t + 2) in iteration t + 1, by device 0 with its product. All ranks have passed the
//     second barrier of t - 1; before, they received x(t), passed it on, and checked x(t - 1) with it. Two vectors
//     would not do: x(t + 1) may come while a rank still checks x(t - 1).
//   - y(t) is overwritten by y(t + 2), after the second barrier of t + 1: x(t + 1) has arrived everywhere.
//   - A received product is overwritten in iteration t + 1: y(t) has been added up.
//   - Squares, and what devices tell of them, are used before the second barrier of t, or after it but before product
//     t + 1. They lie in three places in turn: those of t + 3 are made after the second barrier of t + 2.
//   - Checks of product t are noted before the second barrier of t, told after it, received before that of t + 1 and
//     used after it, but before product t + 2. Those of t + 3 are made after the second barrier of t + 2.
//
// Nor can a counter mix iterations:
//   - Elements of x(t + 2) come from a rank that has its rows of y(t + 1). These were made of x(t + 1) on all devices
//     of its row, so all ranks of the first row had received x(t + 1).
//   - Products, and elements from above, have one source to each counter.
//   - Squares and checks have two counters in turn. Who tells squares of t + 2, or checks of t + 1, has passed the
//     second barrier of t + 1. So all ranks passed that of t, and before it took squares of t and checks of t - 1.
#pragma once

#include "exchange.hpp"
#include "iteration.hpp"

namespace sparse {

// PERF: 128 registers per thread; with fewer, sums wait for memory once for every two or three terms.
inline constexpr int most_threads = 512;

// Elements of the vector that a rank has as rows of the product, and another has as its own: counted from what either
// device has first.
struct piece {
    int device, number;
    int row, element;
    int count;
};

// The part of an iteration that is about the vector as a whole.
template <class Rank>
class normalisation {
public:
    DCUDA_DEVICE normalisation(Rank& self, const exchange<Rank>& messages, const task& work, const goal& wanted)
        : self_(self), messages_(messages), work_(work), wanted_(wanted), at_(messages.at()),
          ranks_(work.whole.ranks_per_device), devices_(work.whole.devices.devices()),
          notes_(*reinterpret_cast<board*>(work.memory)) {
        if (thread() == 0) {
            known() = board{};
            own().planned = 0;
            own().unplanned = {0, 0};
            if (at_.column == 0) plan_transposition();
            own().elements_come_in = at_.row == 0 ? 0 : 1;
            if (at_.row == 0)
                for_each_overlap(
                    work.whole.columns_of(at_, messages.number()), work.whole.of_result(),
                    [&](int part, range) { own().elements_come_in += part / ranks_ != work_.device ? 1 : 0; });
        }
        __syncthreads();
    }

    // Where product `t` lies.
    DCUDA_DEVICE double* product(int t) const {
        return work_.device == 0 ? messages_.vector((t + 1) % layout::vectors)
                                 : messages_.product(t % layout::products);
    }

    // Step 5: the rank's rows of product `t` to other devices, where they are elements of the next vector.
    DCUDA_DEVICE void transpose(int t) const {
        const double* const y = product(t);
        const std::size_t vector = messages_.memory().vector((t + 1) % layout::vectors);
        const auto send = [&](const piece& one) {
            messages_.put(one.device, one.number, vector + bytes_of(one.element), bytes_of(one.count), y + one.row,
                          vector_tag);
        };
        for (int i = 0; i < own().planned; ++i) send(own().pieces[i]);
        for_each_piece(own().unplanned, send);
    }
    // How many messages bring the rank its elements.
    DCUDA_DEVICE int elements_come_in() const { return own().elements_come_in; }

    // Step 6, on every rank of the first column.
    DCUDA_DEVICE void note_squares(int t) const {
        const double* const y = product(t) + messages_.rows().first;
        double* const own = sums(t).squares + messages_.number();
        add_up(
            0, messages_.rows().count(), [&](int i) { return y[i] * y[i]; }, [&](double sum) { *own = sum; });
    }

    // Step 6, on a device of the first column that has all its ranks' squares: they are added up, and told to all other
    // devices. PERF: by a rank for each of them.
    DCUDA_DEVICE void tell_squares(int t) const {
        const board::sums of = sums(t);
        for (int i = messages_.number(); i < devices_; i += ranks_) {
            const int device = work_.device + i < devices_ ? work_.device + i : work_.device + i - devices_;
            double* const there = of.squares_of_devices + at_.row;
            double* const here = i == 0 ? there : of.squares_to + device;
            add_up(
                0, ranks_, [&](int rank) { return of.squares[rank]; }, [&](double sum) { *here = sum; });
            if (i > 0) messages_.put(device, 0, offset_of(there), sizeof(double), here, square_tags + t % 2);
        }
    }

    // On the first row: checks vector and product `t`, as far as the rank has them.
    DCUDA_DEVICE void note_check(int t, const control& now) const {
        const int first = messages_.columns().first, count = messages_.columns().count();
        const double* const x = messages_.vector(t % layout::vectors) + first;
        const double* const y = messages_.vector((t + 1) % layout::vectors) + first;
        check* const own = sums(t).checks + messages_.number();
        const double factor = now.factor, eigenvalue = now.eigenvalue;
        add_up(
            1, count, [&](int i) { return factor * x[i] * y[i]; }, [&](double sum) { own->along = sum; });
        add_up(
            2, count, [&](int i) { return off_eigenvector(factor * x[i], y[i], eigenvalue); },
            [&](double sum) { own->off = sum; });
    }

    // On a device of the first row that has all its ranks' checks: the last rank adds them up, and tells all devices.
    // PERF: not rank 0, which has the squares; and by other warps than make the factor.
    DCUDA_DEVICE void tell_checks(int t) const {
        if (messages_.number() != ranks_ - 1) return;
        const board::sums of = sums(t);
        check* const there = of.checks_of_devices + at_.column;
        check* const here = of.check_to_all;
        add_up(
            1, ranks_, [&](int rank) { return of.checks[rank].along; },
            [&](double sum) { there->along = here->along = sum; });
        add_up(
            2, ranks_, [&](int rank) { return of.checks[rank].off; },
            [&](double sum) { there->off = here->off = sum; });
        for (int i = 1; i < devices_; ++i) {
            const int device = work_.device + i < devices_ ? work_.device + i : work_.device + i - devices_;
            messages_.put(device, ranks_ - 1, offset_of(there), sizeof(check), here, check_tags + t % 2);
        }
    }

    // What other devices tell of product `t`, on the rank that is told, is added up in the order of the tree.
    DCUDA_DEVICE void hear_squares(int t) const {
        if (messages_.number() != 0) return;
        const grid& devices = work_.whole.devices;
        hear(devices.rows, at_.column == 0, square_tags + t % 2, sums(t).squares_of_devices);
    }
    DCUDA_DEVICE void hear_checks(int t) const {
        if (messages_.number() != ranks_ - 1) return;
        hear(work_.whole.devices.columns, at_.row == 0, check_tags + t % 2, sums(t).checks_of_devices);
    }

    // What goes with vector `t`, on every rank.
    DCUDA_DEVICE control decide(int t) const {
        check seen; // PERF: asked for before the squares
        if (t >= 2) seen = *sums(t - 2).checks_of_devices;
        const auto conclude = [&](double squares) {
            if (t >= 2) known().found.see(seen, t - 2, wanted_);
            known().told = known().found.next(t, squares, wanted_);
        };
        const board::sums last = sums(t - 1);
        if (devices_ == 1)
            add_up(
                0, ranks_, [&](int rank) { return last.squares[rank]; }, conclude);
        else if (thread() == 0)
            conclude(*last.squares_of_devices);
        __syncthreads();
        return known().told;
    }

    // The iteration has ended with vector `t`.
    DCUDA_DEVICE void finish(int t) const {
        if (messages_.number() != 0 || thread() != 0) return;
        known().found.see(*sums(t - 1).checks_of_devices, t - 1, wanted_);
        notes_ = known();
    }

private:
    // PERF: worked out once; the divisions that it takes would cost more than a put. There is room for as many pieces
    // as ranks have with a usual grid. In shared memory, as that of exchange.
    struct plan {
        static constexpr int room = 4;
        piece pieces[room];
        int planned;
        range unplanned; // rows beyond
        int elements_come_in;
    };
    static DCUDA_DEVICE plan& own() {
        __shared__ plan result;
        return result;
    }
    // One thread.
    DCUDA_DEVICE void plan_transposition() const {
        const range rows = work_.whole.rows_of(at_, messages_.number());
        int last = rows.last;
        for_each_piece(rows, [&](const piece& one) {
            if (own().planned == plan::room) return;
            own().pieces[own().planned++] = one;
            if (own().planned == plan::room) last = work_.whole.rows_at(at_).first + one.row + one.count;
        });
        own().unplanned = {last, rows.last};
    }
    template <class Body>
    DCUDA_DEVICE void for_each_piece(range rows, const Body& body) const {
        const decomposition& whole = work_.whole;
        for_each_overlap(rows, whole.of_vector(), [&](int owner, range overlap) {
            const place there{0, owner / ranks_};
            const int device = whole.devices.device_at(there);
            if (device != work_.device)
                body({device, owner % ranks_, overlap.first - whole.rows_at(at_).first,
                      overlap.first - whole.columns_at(there).first, overlap.count()});
        });
    }

    // What a rank knows at last: its own, since all find out the same.
    static DCUDA_DEVICE board& known() {
        __shared__ board result;
        return result;
    }

    template <class Value>
    DCUDA_DEVICE void hear(int count, bool has_one, int tag, Value* values) const {
        const int come_in = has_one ? count - 1 : count;
        if (come_in > 0) self_.wait_notifications(tag, come_in);
        if (thread() == 0) sum_of_tree(values, count);
    }

    DCUDA_DEVICE board::sums sums(int t) const { return notes_.of_product(t, work_.whole); }
    // All devices have their board at the same place.
    DCUDA_DEVICE std::size_t offset_of(const void* note) const {
        return static_cast<std::size_t>(static_cast<const std::byte*>(note) - work_.memory);
    }

    Rank& self_;
    const exchange<Rank>& messages_;
    const task& work_;
    const goal& wanted_;
    place at_;
    int ranks_, devices_;
    board& notes_;
};

// Iterates from the vector that the first row of devices holds in buffer 0, and calls report(iterations) after each.
template <class Rank, class Report>
DCUDA_DEVICE void iterate_as(Rank& self, const task& work, const goal& wanted, const Report& report) {
    const exchange messages(self, work);
    const normalisation norm(self, messages, work, wanted);
    const bool first_row = messages.at().row == 0, first_column = messages.at().column == 0;
    const bool alone = work.whole.devices.devices() == 1;

    self.barrier(dcuda::world); // windows are open everywhere
    self.start_timer();
    messages.pass_down(0, first_row ? 0 : 1);
    if (!first_row) self.barrier(dcuda::device);
    control told;
    int t = 0;
    for (;; ++t) {
        messages.multiply(messages.vector(t % layout::vectors), norm.product(t), told.factor);
        messages.add_along_row(norm.product(t));
        if (first_column) {
            norm.transpose(t);
            norm.note_squares(t);
        }
        if (first_column && !alone) {
            self.barrier(dcuda::device);
            norm.tell_squares(t);
        }
        if (!alone) messages.pass_down((t + 1) % layout::vectors, norm.elements_come_in());
        if (first_row) norm.note_check(t, told);
        norm.hear_squares(t);
        if (t > 0) norm.hear_checks(t - 1);
        self.barrier(dcuda::device);

        told = norm.decide(t + 1);
        if (first_row) norm.tell_checks(t);
        if (told.state != outcome::none) break;
        report(t + 1);
    }
    norm.hear_checks(t);
    self.barrier(dcuda::world);
    self.stop_timer();
    norm.finish(t + 1);
    messages.close();
}

} // namespace sparse
