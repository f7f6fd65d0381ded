// SPDX-License-Identifier: BSD-3-Clause
// Collective operations that move data, and scans: gather, scatter, all_to_all and their kin, on communicators of all
// kinds and for many counts. Every value says who has sent it to whom, so members check what they get.
#include "collective_test.hpp"

using namespace dcuda::test;

namespace {

// The i-th value that a member sends to another; to all, if that is -1.
template <class T>
DCUDA_DEVICE T value_between(int from, int target, std::size_t i) {
    const std::uint32_t hash =
        mix(mix(static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(target)), static_cast<std::uint32_t>(i));
    return static_cast<T>(hash);
}

// A type whose size no word divides.
struct triple {
    std::uint8_t bytes[3];
    triple() = default;
    DCUDA_DEVICE explicit triple(std::uint32_t value) {
        for (unsigned i = 0; i < 3; ++i) bytes[i] = static_cast<std::uint8_t>(value >> 8 * i);
    }
    DCUDA_DEVICE friend bool operator==(const triple& a, const triple& b) {
        return a.bytes[0] == b.bytes[0] && a.bytes[1] == b.bytes[1] && a.bytes[2] == b.bytes[2];
    }
};

// The ranks of a random third of the world, in random order.
DCUDA_DEVICE dcuda::communicator random_split(dcuda::rank& self, int seed) {
    const std::uint32_t hash = mix(static_cast<std::uint32_t>(self.id()), static_cast<std::uint32_t>(seed));
    return self.split(dcuda::world, static_cast<int>(hash % 3), static_cast<int>(hash >> 8 & 0xff));
}

// A rank's memory: what it sends, what it gets, and numbers for all members.
template <class T>
struct buffers {
    T *in, *out;
    std::size_t* numbers[5];
    std::size_t capacity; // of in and of out
};

// Pieces of one size.
template <class T>
DCUDA_DEVICE void move_pieces(dcuda::rank& self, findings* found, dcuda::communicator comm, const buffers<T>& own,
                              std::size_t count) {
    const auto members = static_cast<std::size_t>(self.size(comm));
    const int number = self.id(comm);
    const int root = static_cast<int>(mix(static_cast<std::uint32_t>(count), 9) % static_cast<unsigned>(members));
    const auto fill = [&](int target) {
        __syncthreads();
        for_each_thread(members * count, [&](std::size_t i) {
            own.in[i] = value_between<T>(number, target < 0 ? target : static_cast<int>(i / count), i % count);
            own.out[i] = T(77u);
        });
        __syncthreads();
    };
    // What lies at out is what each member has sent to `target`, or nothing has changed.
    const auto check = [&](bool gets, int target) {
        for_each_thread(members * count, [&](std::size_t i) {
            const T expected = gets ? value_between<T>(static_cast<int>(i / count), target, i % count) : T(77u);
            EXPECT_SAME(own.out[i] == expected, true);
        });
    };
    fill(-1);
    self.gather(comm, own.out, own.in, count, root);
    check(number == root, -1);
    fill(-1);
    self.all_gather(comm, own.out, own.in, count);
    check(true, -1);
    fill(-1); // in place
    T* const place = own.out + static_cast<std::size_t>(number) * count;
    for_each_thread(count, [&](std::size_t i) { place[i] = value_between<T>(number, -1, i); });
    self.all_gather(comm, own.out, place, count);
    check(true, -1);
    fill(0);
    self.all_to_all(comm, own.out, own.in, count);
    check(true, number);
    fill(0);
    self.scatter(comm, own.out, own.in, count, root);
    for_each_thread(count, [&](std::size_t i) { EXPECT_SAME(own.out[i] == value_between<T>(root, number, i), true); });
    __syncthreads();
}

// How many values a member sends to another.
DCUDA_DEVICE std::size_t amount(int from, int target, std::size_t most) {
    return mix(static_cast<std::uint32_t>(from * 7919 + target), 3) % (most + 1);
}

// Pieces that differ. Those of one member lie apart.
template <class T>
DCUDA_DEVICE void move_differing(dcuda::rank& self, findings* found, dcuda::communicator comm, const buffers<T>& own,
                                 std::size_t most) {
    const int members = self.size(comm), number = self.id(comm), root = members / 2;
    std::size_t *const counts = own.numbers[0], *const places = own.numbers[1], *const from = own.numbers[2],
                       *const goes = own.numbers[3], *const received = own.numbers[4];
    const auto fill = [&] {
        __syncthreads();
        for_each_thread(own.capacity, [&](std::size_t i) { own.in[i] = own.out[i] = T(77u); });
        __syncthreads();
    };
    // gather_v and all_gather_v: member i brings amount(i, 0), the last first.
    fill();
    const std::size_t ours = amount(number, 0, most);
    for_each_thread(static_cast<std::size_t>(members), [&](std::size_t i) {
        counts[i] = amount(static_cast<int>(i), 0, most);
        places[i] = (static_cast<std::size_t>(members) - 1 - i) * most;
    });
    for_each_thread(ours, [&](std::size_t i) { own.in[i] = value_between<T>(number, -1, i); });
    const auto check = [&](bool gets) {
        for_each_thread(static_cast<std::size_t>(members) * most, [&](std::size_t i) {
            const int sender = members - 1 - static_cast<int>(i / most);
            const bool is_sent = gets && i % most < amount(sender, 0, most);
            EXPECT_SAME(own.out[i] == (is_sent ? value_between<T>(sender, -1, i % most) : T(77u)), true);
        });
        __syncthreads();
    };
    self.gather_v(comm, own.out, number == root ? counts : nullptr, number == root ? places : nullptr, own.in, ours,
                  root);
    check(number == root);
    for_each_thread(own.capacity, [&](std::size_t i) { own.out[i] = T(77u); });
    self.all_gather_v(comm, own.out, counts, places, own.in, ours);
    check(true);
    // all_to_all_v: the pieces of a member lie in the opposite order of members.
    fill();
    for_each_thread(static_cast<std::size_t>(members), [&](std::size_t i) {
        counts[i] = amount(number, static_cast<int>(i), most);
        from[i] = (static_cast<std::size_t>(members) - 1 - i) * most;
        goes[i] = i * most;
        received[i] = 99;
    });
    __syncthreads();
    for_each_thread(static_cast<std::size_t>(members) * most, [&](std::size_t i) {
        own.in[i] = value_between<T>(number, members - 1 - static_cast<int>(i / most), i % most);
    });
    self.all_to_all_v(comm, own.out, goes, own.in, counts, from, received);
    for_each_thread(static_cast<std::size_t>(members),
                    [&](std::size_t i) { EXPECT_SAME(received[i], amount(static_cast<int>(i), number, most)); });
    for_each_thread(static_cast<std::size_t>(members) * most, [&](std::size_t i) {
        const int sender = static_cast<int>(i / most);
        const bool is_sent = i % most < amount(sender, number, most);
        EXPECT_SAME(own.out[i] == (is_sent ? value_between<T>(sender, number, i % most) : T(77u)), true);
    });
    __syncthreads();
}

template <class T>
DCUDA_DEVICE void move_all(dcuda::rank& self, findings* found, void* memory, std::size_t* numbers,
                           std::size_t capacity) {
    const auto ranks = static_cast<std::size_t>(self.size());
    buffers<T> own{};
    own.in = piece_of(static_cast<T*>(memory), 2 * capacity, self);
    own.out = own.in + capacity;
    own.capacity = capacity;
    for (std::size_t i = 0; i < 5; ++i) own.numbers[i] = piece_of(numbers, 5 * ranks, self) + i * ranks;
    const dcuda::communicator some = random_split(self, 1);
    const dcuda::communicator column = self.split(dcuda::world, self.id(dcuda::device), 0);
    for (const dcuda::communicator comm : {dcuda::world, dcuda::device, column, some}) {
        const auto members = static_cast<std::size_t>(self.size(comm));
        for (const std::size_t count : {0, 1, 2, 3, 6, 31, 33, 129, 256, 257, 1000, 4097, 70001})
            if (members * count <= capacity) move_pieces(self, found, comm, own, count);
        for (const std::size_t most : {1, 5, 1000, 40000})
            if (members * most <= capacity) move_differing(self, found, comm, own, most);
    }
}

// `Threads`: of a rank. Whole warps or not, pieces are shared by some of them or by all.
template <int Threads>
__global__ void __launch_bounds__(Threads, Threads < 64 ? 1 : 1024 / Threads)
    moves(dcuda::context context, findings* found, int element_bytes, void* memory, std::size_t* numbers,
          std::size_t capacity) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    if (element_bytes == 4) move_all<std::uint32_t>(self, found, memory, numbers, capacity);
    if (element_bytes == 3) move_all<triple>(self, found, memory, numbers, capacity);
}

class CollectiveData : public device_test, public testing::WithParamInterface<int> {
protected:
    template <class T, int Threads = threads>
    void check_moves() {
        const auto ranks = static_cast<std::size_t>(GetParam());
        const std::size_t all_ranks = ranks * static_cast<std::size_t>(job().info().process_count);
        // Every rank has memory for some values for every other; few ranks for many, but under tools that are slow.
        const bool is_slow = few_addresses || under_tool;
        const std::size_t capacity = ranks <= 7 ? (is_slow ? 20'000 : 300'000) : all_ranks * (is_slow ? 3 : 5);
        const device_vector<T> memory(2 * capacity * ranks);
        const device_vector<std::size_t> numbers(5 * all_ranks * ranks);
        check(moves<Threads>, shape(GetParam(), dim3(Threads)), static_cast<int>(sizeof(T)),
              static_cast<void*>(memory.get()), numbers.get(), capacity);
    }
};

TEST_P(CollectiveData, Words) { check_moves<std::uint32_t>(); }
TEST_P(CollectiveData, Triples) { check_moves<triple>(); }
// Small pieces, too, which would go in packets.
TEST_P(CollectiveData, ThroughBounceBuffers) {
    setenv("DCUDA_BOUNCE_BYTES", "0", 1);
    if (GetParam() <= 7) check_moves<triple>();
    unsetenv("DCUDA_BOUNCE_BYTES");
}
TEST_P(CollectiveData, ByOneThread) {
    if (GetParam() <= 132) check_moves<std::uint32_t, 1>();
}
TEST_P(CollectiveData, ByFourWarpsOfWhichOneIsShort) {
    if (GetParam() <= 132) check_moves<triple, 100>();
}

// --- Arrays of which one warp does all ------------------------------------------------------------------------------

// The first array of a communicator: the lead warp alone exchanges it, as slots are cleared then. Rows of members have
// different lengths.
__global__ void __launch_bounds__(threads, 1024 / threads)
    reduces_first_arrays(dcuda::context context, findings* found, double* memory, std::size_t count) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    double *const in = piece_of(memory, 2 * count, self), *const out = in + count;
    for (int seed = 0; seed < 4; ++seed) {
        const dcuda::communicator some = random_split(self, seed);
        const double members = self.size(some), number = self.id(some);
        __syncthreads();
        for_each_thread(count, [&](std::size_t i) { in[i] = static_cast<double>(i) + number; });
        self.allreduce(some, out, in, count, dcuda::sum{});
        for_each_thread(count, [&](std::size_t i) {
            EXPECT_SAME(out[i], members * static_cast<double>(i) + members * (members - 1) / 2);
        });
        self.free_communicator(some);
    }
}

TEST_P(CollectiveData, FirstArraysOfCommunicators) {
    setenv("DCUDA_BOUNCE_BYTES", "1000000", 1);
    constexpr std::size_t count = 100;
    const device_vector<double> memory(2 * count * static_cast<std::size_t>(GetParam()));
    check(reduces_first_arrays, shape(GetParam(), dim3(threads)), memory.get(), count);
    unsetenv("DCUDA_BOUNCE_BYTES");
}

// --- Scans -----------------------------------------------------------------------------------------------------------

DCUDA_HOST_DEVICE double scanned_value(int rank) {
    return static_cast<double>(static_cast<int>(mix(static_cast<std::uint32_t>(rank), 7) >> 8) - (1 << 23)) / 1048573.0;
}

// A program's own type, of as many bytes as a value may have.
struct span_of_ranks {
    std::int64_t first, last, sum;
};
struct join_spans {
    DCUDA_DEVICE span_of_ranks operator()(const span_of_ranks& a, const span_of_ranks& b) const {
        return {a.first < b.first ? a.first : b.first, a.last > b.last ? a.last : b.last, a.sum + b.sum};
    }
};

__global__ void __launch_bounds__(threads, 1024 / threads)
    scans(dcuda::context context, findings* found, double* results, int* members) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const dcuda::communicator some = random_split(self, 2);
    for (const dcuda::communicator comm : {dcuda::world, dcuda::device, some}) {
        const std::int64_t number = self.id(comm);
        EXPECT_SAME(self.scan(comm, number + 1, dcuda::sum{}), (number + 1) * (number + 2) / 2);
        EXPECT_SAME(self.exclusive_scan(comm, number + 1, dcuda::sum{}, -5),
                    number == 0 ? -5 : number * (number + 1) / 2);
        const span_of_ranks span = self.scan(comm, span_of_ranks{number, number, 1}, join_spans{});
        EXPECT_SAME(span.first, 0);
        EXPECT_SAME(span.last, number);
        EXPECT_SAME(span.sum, number + 1);
    }
    const double inclusive = self.scan(some, scanned_value(self.id()), dcuda::sum{});
    const double exclusive = self.exclusive_scan(some, scanned_value(self.id()), dcuda::sum{}, 0.5);
    double* const own = piece_of(results, 2, self);
    by_one_thread([&] {
        own[0] = inclusive;
        own[1] = exclusive;
    });
    int* const list = piece_of(members, 1 + static_cast<std::size_t>(self.size()), self);
    for_each_thread(static_cast<std::size_t>(self.id(some)) + 1,
                    [&](std::size_t i) { list[1 + i] = self.translate(some, static_cast<int>(i), dcuda::world); });
    by_one_thread([&] { list[0] = self.id(some) + 1; });
}

double sum_in_pairs(std::vector<double> values) {
    while (values.size() > 1) {
        std::vector<double> next;
        for (std::size_t i = 0; i + 1 < values.size(); i += 2) next.push_back(values[i] + values[i + 1]);
        if (values.size() % 2 != 0) next.push_back(values.back());
        values = std::move(next);
    }
    return values.at(0);
}

TEST_P(CollectiveData, ScansInTheOrderThatIsPromised) {
    const auto ranks = static_cast<std::size_t>(GetParam());
    const std::size_t all_ranks = ranks * static_cast<std::size_t>(job().info().process_count);
    const device_vector<double> results(2 * ranks);
    const device_vector<int> members(ranks * (1 + all_ranks));
    check(scans, shape(GetParam(), dim3(threads)), results.get(), members.get());
    const std::vector<double> seen = results.read();
    const std::vector<int> lists = members.read();
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        std::vector<double> values;
        const int* const list = lists.data() + rank * (1 + all_ranks);
        for (int i = 0; i < list[0]; ++i) values.push_back(scanned_value(list[1 + i]));
        ASSERT_FALSE(values.empty());
        ASSERT_EQ(seen[2 * rank], sum_in_pairs(values)) << "rank " << rank;
        values.pop_back();
        ASSERT_EQ(seen[2 * rank + 1], values.empty() ? 0.5 : sum_in_pairs(values)) << "rank " << rank;
    }
}

INSTANTIATE_TEST_SUITE_P(Ranks, CollectiveData, testing::ValuesIn(rank_counts));

} // namespace
