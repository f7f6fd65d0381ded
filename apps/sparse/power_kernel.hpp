// What the ranks do in the power iteration. The six steps of an iteration:
//     1. The vector goes down the columns of devices, and after it the factor that makes its length 1.
//     2. The vector is scaled, where step 3 reads it. Before, the ranks of a device wait for each other: all have their
//        parts of the vector then, and the factor, which only rank 0 of each device receives.
//     3. Every device multiplies its block.
//     4. The products are added along the rows of devices.
//     5. The sums go from the first column to the first row: they are the next vector.
//     6. Every device of the first column sums their squares; device 0 adds those up and makes the next factor.
// Steps 5, 6 and the next 1 overlap: ranks pass the vector on while device 0 still waits for squares. And the ranks of
// the first row, which have a vector and its product, check meanwhile how near they are to an eigenvector; that is used
// an iteration later, and nobody waits for it.
//
// Nothing but notifications orders the devices. That no memory is overwritten that others still read, or that a put
// still sends, follows from one thing: factor t + 1 exists only after every rank of every device has finished product
// t, since device 0 waits for the squares of all rows of y(t), each of which waits for all devices of its row, and each
// device for all of its ranks (even if a rank has no elements: it sends empty messages).
//   - x(t) is overwritten by x(t + 3), which is made with factor t + 2. All ranks had received x(t + 1), passed it on
//   and
//     finished product t + 1 before, so they had done with x(t): its product, and the check in iteration t + 1. Two
//     vectors would not do: x(t + 2) may come while a rank still checks x(t).
//   - y(t) is overwritten by y(t + 2), with factor t + 2: x(t + 1) had arrived everywhere.
//   - A received product is overwritten in iteration t + 1, with factor t + 1: y(t) had been added up.
//   - Squares, and sums of checks on their way to device 0, are written anew with the next factor, which device 0 made
//     after it had received what became of them.
//   - A rank's check, and the control, lie in one of two places: they are read before the device's barrier of the next
//     iteration, and overwritten after it.
// Nor can a counter mix iterations: whoever sends message t + 1 of a kind has what was made from all messages t.
#pragma once

#include "exchange.hpp"
#include "iteration.hpp"

namespace sparse {

// The part of an iteration that is about the vector as a whole.
template <class Rank>
class normalisation {
public:
    DCUDA_DEVICE normalisation(Rank& self, const exchange<Rank>& messages, const task& work, const goal& wanted)
        : self_(self), messages_(messages), work_(work), wanted_(wanted), at_(messages.at()),
          ranks_(work.whole.ranks_per_device), notes_(*reinterpret_cast<board*>(work.memory)) {}

    // How many messages bring the rank its elements of the next vector.
    DCUDA_DEVICE int vector_messages() const {
        if (at_.row > 0) return 1;
        int result = 0;
        for_each_overlap(own_columns(), work_.whole.of_result(), [&](int, range) { ++result; });
        return result;
    }

    // Step 5: the rank's rows of the product to where they are elements of the vector.
    DCUDA_DEVICE void transpose(int product, int vector) const {
        const range rows = work_.whole.rows_of(at_, messages_.number());
        const double* const source = messages_.product(product) + messages_.rows().first;
        for_each_overlap(rows, work_.whole.of_vector(), [&](int owner, range overlap) {
            const place there{0, owner / ranks_};
            const int first_there = work_.whole.columns_at(there).first;
            messages_.put(there, owner % ranks_,
                          work_.memory_at(there).vector(vector) + bytes_of(overlap.first - first_there),
                          bytes_of(overlap.count()), source + (overlap.first - rows.first), vector_tag);
        });
    }

    // Step 6, on every rank: its squares to rank 0 of the device, which has the same memory, so that nothing is copied.
    DCUDA_DEVICE void send_squares(int product) const {
        const double* const y = messages_.product(product) + messages_.rows().first;
        const double sum = sum_of(messages_.rows().count(), [&](int i) { return y[i] * y[i]; });
        double* const own = notes_.squares() + messages_.number();
        if (thread() == 0) *own = sum;
        messages_.put(at_, 0, offset_of(own), sizeof(double), own, square_tag);
    }

    // Step 6, on rank 0 of a device of the first column: adds up, and on device 0 makes what goes with vector `t`.
    DCUDA_DEVICE void add_squares(int t) const {
        self_.wait_notifications(square_tag, ranks_);
        const double* const squares = notes_.squares();
        double sum = sum_of(ranks_, [&](int i) { return squares[i]; });
        const tree down{work_.whole.devices.rows};
        for (int level = 0; level < down.levels(at_.row); ++level) {
            self_.wait_notifications(square_tags + level, 1);
            sum += notes_.square_sums[level];
        }
        if (at_.row > 0) {
            if (thread() == 0) notes_.square_sum = sum;
            const int level = down.level(at_.row);
            messages_.put({down.parent(at_.row), 0}, 0, offset_of(&notes_.square_sums[level]), sizeof(double),
                          &notes_.square_sum, square_tags + level);
        } else if (thread() == 0) {
            if (t >= 2) notes_.found.see(notes_.check_sum, t - 2, wanted_);
            told(t) = notes_.found.next(t, sum, wanted_);
        }
    }

    // Step 1, on rank 0 of every device: the control along the first row, and down the columns.
    DCUDA_DEVICE void hand_on_control(int t) const {
        if (at_.row > 0 || at_.column > 0) self_.wait_notifications(factor_tag, 1);
        const auto hand_to = [&](place there) {
            messages_.put(there, 0, offset_of(&told(t)), sizeof(control), &told(t), factor_tag);
        };
        if (at_.row == 0)
            for (int level = tree{work_.whole.devices.columns}.levels(at_.column) - 1; level >= 0; --level)
                hand_to({0, at_.column + (1 << level)});
        for (int level = tree{work_.whole.devices.rows}.levels(at_.row) - 1; level >= 0; --level)
            hand_to({at_.row + (1 << level), at_.column});
    }

    // On the first row: checks the vector and its product, as far as the rank has them.
    DCUDA_DEVICE void note_check(int t, const control& before, int vector, int product) const {
        const double* const x = messages_.vector(vector) + messages_.columns().first;
        const double* const y = messages_.vector(product) + messages_.columns().first;
        const int count = messages_.columns().count();
        const double factor = before.factor, eigenvalue = before.eigenvalue;
        const double along = sum_of(count, [&](int i) { return factor * x[i] * y[i]; });
        const double off = sum_of(count, [&](int i) { return off_eigenvector(factor * x[i], y[i], eigenvalue); });
        if (thread() == 0) notes_.checks(ranks_, t)[messages_.number()] = {along, off};
    }

    // On rank 0 of a device of the first row, after a barrier of the device: adds up towards device 0.
    DCUDA_DEVICE void add_checks(int t) const {
        const check* const checks = notes_.checks(ranks_, t);
        check sum;
        sum.along = sum_of(ranks_, [&](int i) { return checks[i].along; });
        sum.off = sum_of(ranks_, [&](int i) { return checks[i].off; });
        const tree along{work_.whole.devices.columns};
        for (int level = 0; level < along.levels(at_.column); ++level) {
            self_.wait_notifications(check_tags + level, 1);
            sum.add(notes_.check_sums[level]);
        }
        if (thread() == 0) notes_.check_sum = sum;
        if (at_.column == 0) return;
        const int level = along.level(at_.column);
        messages_.put({0, along.parent(at_.column)}, 0, offset_of(&notes_.check_sums[level]), sizeof(check),
                      &notes_.check_sum, check_tags + level);
    }

    DCUDA_DEVICE board& notes() const { return notes_; }
    DCUDA_DEVICE control& told(int t) const { return notes_.told[t % 2]; }

private:
    DCUDA_DEVICE range own_columns() const { return work_.whole.columns_of(at_, messages_.number()); }
    // All devices have their board at the same place.
    DCUDA_DEVICE std::size_t offset_of(const void* note) const {
        return static_cast<std::size_t>(static_cast<const std::byte*>(note) - work_.memory);
    }

    Rank& self_;
    const exchange<Rank>& messages_;
    const task& work_;
    const goal& wanted_;
    place at_;
    int ranks_;
    board& notes_;
};

// Iterates from the vector that the first row of devices holds in buffer 0, and calls report(iterations) after each.
template <class Rank, class Report>
DCUDA_DEVICE void iterate_as(Rank& self, const task& work, const goal& wanted, const Report& report) {
    const exchange messages(self, work);
    const normalisation norm(self, messages, work, wanted);
    const bool first_row = messages.at().row == 0, first_column = messages.at().column == 0;
    const bool leads = messages.number() == 0;
    const int vector_messages = norm.vector_messages();

    self.barrier(dcuda::world); // windows are open everywhere
    self.start_timer();
    control told;
    int t = 0;
    for (;; ++t) {
        const int vector = t % layout::vectors, product = t % layout::products;
        messages.pass_down(vector, first_row && t == 0 ? 0 : vector_messages);
        if (leads && t > 0) {
            if (first_column) norm.add_squares(t);
            norm.hand_on_control(t);
        }
        if (first_row && t > 0) norm.note_check(t, told, (t + layout::vectors - 1) % layout::vectors, vector);
        self.barrier(dcuda::device);
        told = norm.told(t);
        if (told.state != outcome::none) break;

        messages.multiply(vector, product, told.factor);
        messages.add_along_row(product);
        if (first_column) {
            norm.transpose(product, (t + 1) % layout::vectors);
            norm.send_squares(product);
        }
        if (first_row && leads && t > 0) norm.add_checks(t);
        report(t + 1);
    }
    self.barrier(dcuda::world);
    self.stop_timer();

    // The last product's check.
    if (first_row && leads) {
        norm.add_checks(t);
        if (first_column && thread() == 0) norm.notes().found.see(norm.notes().check_sum, t - 1, wanted);
    }
    messages.close();
}

} // namespace sparse
