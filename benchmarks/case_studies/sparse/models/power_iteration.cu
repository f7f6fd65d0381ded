// SPDX-License-Identifier: BSD-3-Clause
// The power iteration with two models: kernels on a stream, and a library that the host calls, on another of high
// priority. Iteration t of a device in the first row and column, which has a part in everything:
//     kernels    product t, with what was told | add |        squares of product t, check of product t - 1 |
//     messages   products from behind          |     | transposition of product t        | vector t + 1 down; records
//
// Every device tells all others its part of the sums (a record), and all of them add these up in the same order and
// come to the same factor: so one exchange takes the place of a sum to device 0 and of the way back, and it goes with
// the vector. The kernel of the next product does that before it multiplies. The host learns of it two iterations later
// and never stops the stream; what has been launched too much changes nothing that counts:
//   - A vector is overwritten three iterations later.
//   - What was told stays as it is from then on, and there are no more products.
//
// Records go from all to all, so whoever has them knows that all others have come as far, with all their kernels: what
// they read in that iteration may be overwritten.
#include <algorithm>
#include <array>
#include <memory>
#include <stdexcept>
#include <string>

#include "common/models/carrier.hpp"
#include "models/kernels.hpp"
#include "models/lists.hpp"
#include "models/model.hpp"

namespace sparse {

namespace {

using common::device_buffer;
using common::event;
using common::stream;

constexpr int most_in_line = 16; // devices in a row or a column of them
constexpr int turns = 4;         // of what the host is told

// Adds up what devices gave.
template <class Value, class Get>
DCUDA_HOST_DEVICE Value sum_of_members(int count, const Get& get) {
    Value members[most_in_line];
    for (int i = 0; i < count; ++i) members[i] = get(i);
    sum_of_tree(members, count);
    return members[0];
}
DCUDA_HOST_DEVICE check sum_of_checks(const record* records, const grid& devices) {
    return sum_of_members<check>(devices.columns, [&](int column) {
        return records[devices.device_at({0, column})].seen;
    });
}
DCUDA_HOST_DEVICE double sum_of_squares(const record* records, const grid& devices) {
    return sum_of_members<double>(devices.rows, [&](int row) { return records[devices.device_at({row, 0})].square; });
}

// What goes with vector `t`: from the records of the iteration before.
struct decision {
    const record* records;
    control* told; // two, in turn
    findings* found;
    control* host; // in turn
    grid devices;
    goal wanted;
    int t;

    DCUDA_DEVICE control operator()(bool writes) const {
        control result;
        findings now;
        if (t > 0) {
            // All of it is asked for at once: memory takes long to answer.
            const double squares = sum_of_squares(records, devices);
            const check seen = sum_of_checks(records, devices);
            result = told[(t - 1) % 2];
            now = found[(t - 1) % 2];
            if (result.state == outcome::none) {
                if (t >= 2) now.see(seen, t - 2, wanted);
                result = now.next(t, squares, wanted);
            }
        }
        if (writes) {
            told[t % 2] = result;
            found[t % 2] = now;
            host[t % turns] = result;
        }
        return result;
    }
};

// The device's sums in an iteration, and what is copied on the way.
struct sums {
    int rows, columns;          // 0: not this device
    int parts;                  // in which either is added up
    const double *y, *x, *next; // the product; the vector before, and its product
    double* copy;               // where the product's first elements are the next vector on this device
    int copied;                 // how many of them
    const control* told;        // with the vector before
    double* partial;            // of parts: squares, x y, distances
    unsigned* finished;         // blocks
    record* own;

    DCUDA_DEVICE range part(int count, int number) const { return common::part_of({0, count}, parts, number); }
    DCUDA_DEVICE double square(int i) const {
        if (i < copied) copy[i] = y[i];
        return y[i] * y[i];
    }
    DCUDA_DEVICE double along(int i) const { return told->factor * x[i] * next[i]; }
    DCUDA_DEVICE double off(int i) const { return off_eigenvector(told->factor * x[i], next[i], told->eigenvalue); }
};

#if DCUDA_BACKEND_CUDA

// One array for all sums of a block.
__device__ double* partial_sums() {
    __shared__ double sums[bins];
    return sums;
}

// ordered_sum by a block of `bins` threads.
template <class Term>
__device__ double sum_of_block(int count, const Term& term) {
    double* const partial = partial_sums();
    const int thread = static_cast<int>(threadIdx.x);
    double sum = 0.0;
    for (int i = thread; i < count; i += bins) sum += term(i);
    partial[thread] = sum;
    __syncthreads();
    for (int half = bins / 2; half > 0; half /= 2) {
        if (thread < half) partial[thread] += partial[thread + half];
        __syncthreads();
    }
    sum = partial[0];
    __syncthreads();
    return sum;
}

// A block for each part of the rows, then one for each part of the columns; the last to end adds up theirs.
__global__ void __launch_bounds__(bins) add_up(const sums of) {
    const int block = static_cast<int>(blockIdx.x);
    const bool of_rows = of.rows > 0 && block < of.parts;
    const int number = block % of.parts;
    const range part = of.part(of_rows ? of.rows : of.columns, number);
    const auto sum_to = [&](int kind, const auto& term) {
        const double sum = sum_of_block(part.count(), [&](int i) { return term(part.first + i); });
        if (threadIdx.x == 0) of.partial[kind * of.parts + number] = sum;
    };
    if (of_rows) {
        sum_to(0, [&](int i) { return of.square(i); });
    } else {
        sum_to(1, [&](int i) { return of.along(i); });
        sum_to(2, [&](int i) { return of.off(i); });
    }

    __shared__ bool is_last;
    if (threadIdx.x == 0) {
        __threadfence();
        is_last = atomicAdd(of.finished, 1u) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!is_last) return;
    const auto whole = [&](int kind) {
        return sum_of_block(of.parts, [&](int i) { return __ldcg(&of.partial[kind * of.parts + i]); });
    };
    record result;
    if (of.rows > 0) result.square = whole(0);
    if (of.columns > 0) result.seen = {whole(1), whole(2)};
    if (threadIdx.x == 0) {
        *of.own = result;
        *of.finished = 0;
    }
}

#endif

void launch(const sums& of, const stream& on) {
    const int kinds = (of.rows > 0 ? 1 : 0) + (of.columns > 0 ? 1 : 0);
    if (kinds == 0) return;
#if DCUDA_BACKEND_CUDA
    add_up<<<static_cast<unsigned>(kinds * of.parts), bins, 0, on.get()>>>(of);
    common::check(cudaGetLastError(), "launching a kernel");
#else
    const auto sum_of_parts = [](const sums& parts, int count, const auto& term) {
        for (int number = 0; number < parts.parts; ++number) {
            const range part = parts.part(count, number);
            parts.partial[number] = ordered_sum(part.count(), [&](int i) { return term(part.first + i); });
        }
        return ordered_sum(parts.parts, [&](int i) { return parts.partial[i]; });
    };
    const auto loop = [=] {
        record result;
        if (of.rows > 0) result.square = sum_of_parts(of, of.rows, [&](int i) { return of.square(i); });
        if (of.columns > 0)
            result.seen = {sum_of_parts(of, of.columns, [&](int i) { return of.along(i); }),
                           sum_of_parts(of, of.columns, [&](int i) { return of.off(i); })};
        *of.own = result;
    };
    common::launch_on_host(loop, on.get());
#endif
}

class power_model final : public common::model {
public:
    power_model(const setting& given, const std::string& carrier)
        : given_(given), lists_(given.work), exchanges_(prepare(given.work, lists_)),
          carrier_(
              common::carriers::make(carrier, {processes_, given.work.memory, given.work.places().bytes(), routes()})),
          told_(2), found_(2), partial_(3 * static_cast<std::size_t>(given.work.whole.ranks_per_device)), finished_(1),
          host_(common::allocate_pinned<control>(turns)) {
        const grid& devices = given.work.whole.devices;
        if (std::max(devices.rows, devices.columns) > most_in_line)
            throw std::runtime_error("the models to compare with are for at most " + std::to_string(most_in_line) +
                                     " devices in a row or a column: choose another --grid");
        common::check(cudaMemset(finished_.data(), 0, finished_.bytes()), "clearing memory");
        common::check(cudaDeviceSynchronize(), "clearing memory"); // these streams do not wait for it
        // Before anything is timed: kernels are loaded and connections made when first used.
        for (int t = 0; t < 2; ++t) iterate(t, work::all);
        wait_on_host();
    }
    ~power_model() override { cudaDeviceSynchronize(); }

    double run() override {
        meet();
        start_.record(kernels_);
        int t = 0;
        for (; t <= given_.wanted.iterations && (t < 2 || !has_ended(t - 2)); ++t) iterate(t, work::all);
        wait_on_host();
        iterations_ =
            host_[static_cast<std::size_t>((t - 1) % turns)].iterations; // since it ended, nothing has changed
        note();
        return processes_.largest(milliseconds(start_, ended_[iterations_ % turns]));
    }

    double exchange_alone() override {
        if (processes_.count() == 1) return 0.0;
        meet();
        start_.record(messages_);
        for (int t = 0; t < iterations_; ++t) iterate(t, work::exchanges);
        stop_.record(messages_);
        wait_on_host();
        return processes_.largest(milliseconds(start_, stop_));
    }

    std::string describe() const override { return carrier_->name(); }

private:
    enum class work { all, exchanges };
    static constexpr int period = layout::vectors * layout::products; // of places

    // What an iteration brings.
    struct exchange_lists {
        messages from_behind, to_front, transposed;
        messages records_and_vector;   // records, and the next vector from the first row to its children
        messages from_above, to_below; // the next vector, farther down
    };

    static record* records(const task& of, int t) {
        return reinterpret_cast<record*>(of.memory + offset_of_records(of.whole)) + t % 2 * of.whole.devices.devices();
    }

    static std::array<exchange_lists, period> prepare(const task& of, const lists& known) {
        std::array<exchange_lists, period> result;
        for (int t = 0; t < period; ++t) {
            exchange_lists& made = result[static_cast<std::size_t>(t)];
            const int product = t % layout::products, next = (t + 1) % layout::vectors;
            made.from_behind = known.from_behind();
            made.to_front = known.to_front(product);
            made.transposed = known.transposition(product, next);
            const auto offset =
                static_cast<std::size_t>(reinterpret_cast<const std::byte*>(records(of, t)) - of.memory);
            const messages told = known.to_all(offset, sizeof(record));
            const int row = of.here().row;
            const bool is_first = row == 0, is_second = !is_first && tree{of.whole.devices.rows}.parent(row) == 0;
            made.records_and_vector = told;
            if (is_first) made.records_and_vector = told + known.to_below(next);
            if (is_second) made.records_and_vector = told + known.from_above(next);
            if (!is_first && !is_second) made.from_above = known.from_above(next);
            if (!is_first) made.to_below = known.to_below(next);
        }
        return result;
    }
    std::vector<common::route> routes() const {
        const exchange_lists& any = exchanges_[0]; // all are of one size
        return lists::routes({any.from_behind, any.to_front, any.transposed, any.records_and_vector,
                              lists_.from_above(0), lists_.to_below(0)});
    }

    void iterate(int t, work which) {
        const exchange_lists& all = exchanges_[static_cast<std::size_t>(t % period)];
        const task& own = given_.work;
        const place here = own.here();
        const bool computes = which == work::all;
        const int vector = t % layout::vectors, product = t % layout::products, next = (t + 1) % layout::vectors;
        const int rows = own.whole.rows_at(here).count(), columns = own.whole.columns_at(here).count();
        if (t == 0) start_vector();

        if (computes) {
            const decision decide{
                records(own, t + 1), told_.data(), found_.data(), host_.get(), own.whole.devices, given_.wanted, t};
            multiply(own, given_.threads, lists_.vector(vector), lists_.product(product), decide, kernels_);
            ended_[t % turns].record(kernels_);
        }
        if (!all.from_behind.empty()) {
            bring(all.from_behind);
            order(messages_, kernels_);
            if (computes)
                launch_at_indices(rows,
                                  addition{lists_.product(product), lists_.received(), lists_.received_distance(),
                                           lists_.children_along_row()},
                                  kernels_);
        }
        order(kernels_, messages_); // the product is complete
        bring(all.to_front);
        if (computes) {
            const bool checks = here.row == 0 && t > 0;
            const int before = (t + layout::vectors - 1) % layout::vectors;
            launch(sums{here.column == 0 ? rows : 0, checks ? columns : 0, own.whole.ranks_per_device,
                        lists_.product(product), lists_.vector(before), lists_.vector(vector), lists_.vector(next),
                        own.device == 0 ? std::min(rows, columns) : 0, &told_.data()[(t + 1) % 2], partial_.data(),
                        finished_.data(), &records(own, t)[own.device]},
                   kernels_);
        }
        bring(all.transposed);
        order(kernels_, messages_);
        bring(all.records_and_vector);
        bring(all.from_above);
        order(messages_, kernels_);
        bring(all.to_below);
    }

    // The vector that the first row has goes down the columns.
    void start_vector() {
        order(kernels_, messages_);
        bring(lists_.from_above(0));
        bring(lists_.to_below(0));
        order(messages_, kernels_);
    }

    bool has_ended(int t) {
        ended_[t % turns].wait_on_host();
        return host_[static_cast<std::size_t>(t % turns)].state != outcome::none;
    }

    // What was found, with the last product's check, to where the ranks note it.
    void note() {
        const task& own = given_.work;
        std::vector<record> last(static_cast<std::size_t>(own.whole.devices.devices()));
        common::check(
            cudaMemcpy(last.data(), records(own, iterations_), last.size() * sizeof(record), cudaMemcpyDeviceToHost),
            "copying what was found");
        findings found[2];
        found_.download(found, 2);
        board result;
        result.told = host_[static_cast<std::size_t>(iterations_ % turns)];
        result.found = found[iterations_ % 2];
        result.found.see(sum_of_checks(last.data(), own.whole.devices), iterations_ - 1, given_.wanted);
        common::check(cudaMemcpy(own.memory, &result, sizeof result, cudaMemcpyHostToDevice), "copying what was found");
    }

    void meet() {
        common::check(cudaDeviceSynchronize(), "copying the vector"); // these streams do not wait for it
        carrier_->meet(messages_.get());
        wait_on_host();
    }
    void wait_on_host() const {
        messages_.wait_on_host();
        kernels_.wait_on_host();
    }
    void bring(const messages& list) { carrier_->bring(list, messages_.get()); }
    // What follows in one stream begins after what is in the other now.
    void order(const stream& first, const stream& second) {
        if (processes_.count() == 1) return; // nothing is in the other
        joined_.record(first);
        joined_.hold_up(second);
    }

    setting given_;
    lists lists_;
    std::array<exchange_lists, period> exchanges_;
    common::processes processes_;
    std::unique_ptr<common::carrier> carrier_;
    device_buffer<control> told_;
    device_buffer<findings> found_;
    device_buffer<double> partial_;
    device_buffer<unsigned> finished_;
    common::pinned_array<control> host_;
    int iterations_ = 0;
    stream messages_{stream::priority::high}, kernels_{stream::priority::low};
    event joined_{cudaEventDisableTiming}, start_{cudaEventDefault}, stop_{cudaEventDefault};
    event ended_[turns] = {event(cudaEventDefault), event(cudaEventDefault), event(cudaEventDefault),
                           event(cudaEventDefault)};
};

std::unique_ptr<common::model> make(const char* carrier, const setting& given) {
    return std::make_unique<power_model>(given, carrier);
}

const models::entry plain("plain", [](const setting& given) { return make("plain", given); });
const models::entry host("host", [](const setting& given) { return make("host", given); });
const models::entry mpi("mpi", [](const setting& given) { return make("mpi", given); });
#if DCUDA_BACKEND_CUDA
const models::entry nccl("nccl", [](const setting& given) { return make("nccl", given); });
#endif

} // namespace

} // namespace sparse
