// SPDX-License-Identifier: BSD-3-Clause
// Communicators, and reductions and broadcasts on them, beside a host program that follows the order that
// rank::allreduce promises: results must have the same bits.
#include "collective_test.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <string_view>

using namespace dcuda::test;

namespace {

// How ranks of the world are split.
enum class pattern_of : int { world, device, columns, rows, random, random_order, backwards, all_but_one };
const std::vector<pattern_of> all_patterns{pattern_of::world,     pattern_of::device,     pattern_of::columns,
                                           pattern_of::rows,      pattern_of::random,     pattern_of::random_order,
                                           pattern_of::backwards, pattern_of::all_but_one};
struct membership {
    int color, key;
};
DCUDA_HOST_DEVICE membership membership_of(pattern_of how, int rank, int ranks_per_device, int seed) {
    const auto number = static_cast<std::uint32_t>(rank);
    const std::uint32_t hash = mix(number, static_cast<std::uint32_t>(seed));
    switch (how) {
    case pattern_of::world:
        return {0, 0};
    case pattern_of::device:
        return {rank / ranks_per_device, 0};
    case pattern_of::columns:
        return {rank % ranks_per_device, 0};
    case pattern_of::rows:
        return {rank / 3, 5};
    case pattern_of::random:
        return {static_cast<int>(hash % 5) - 1, 0};
    case pattern_of::random_order:
        return {static_cast<int>(hash % 3), static_cast<int>(hash >> 8 & 0xff)};
    case pattern_of::backwards:
        return {rank % 2, -rank};
    case pattern_of::all_but_one: // no regular distance, though all are multiples of what would be one
        return {rank == 2 + seed % 2 ? 1 : 0, 0};
    }
    return {};
}

// The members of the communicator that a rank is in, in their order.
std::vector<int> members_of(pattern_of how, int rank, int ranks, int ranks_per_device, int seed) {
    const membership own = membership_of(how, rank, ranks_per_device, seed);
    std::vector<int> members;
    for (int other = 0; other < ranks; ++other)
        if (own.color >= 0 && membership_of(how, other, ranks_per_device, seed).color == own.color)
            members.push_back(other);
    std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
        return membership_of(how, a, ranks_per_device, seed).key < membership_of(how, b, ranks_per_device, seed).key;
    });
    return members;
}

template <class T, class Op>
T reduce_tree(std::vector<T> values, const Op& op) {
    while (values.size() > 1) {
        std::vector<T> next;
        for (std::size_t i = 0; i + 1 < values.size(); i += 2) next.push_back(op(values[i], values[i + 1]));
        if (values.size() % 2 != 0) next.push_back(values.back());
        values = std::move(next);
    }
    return values.at(0);
}

// The order that is promised: the members of each device, then the devices.
template <class T, class Value, class Op>
T reduce_in_order(const std::vector<int>& members, int ranks_per_device, const Value& value_of, const Op& op) {
    std::vector<std::vector<T>> by_device;
    for (const int member : members) {
        const auto device = static_cast<std::size_t>(member / ranks_per_device);
        if (by_device.size() <= device) by_device.resize(device + 1);
        by_device[device].push_back(value_of(member));
    }
    std::vector<T> results;
    for (const auto& values : by_device)
        if (!values.empty()) results.push_back(reduce_tree(values, op));
    return reduce_tree(results, op);
}

class Collectives : public device_test, public testing::WithParamInterface<int> {
protected:
    dcuda::launch_config all_ranks() { return shape(GetParam(), dim3(threads)); }
    int ranks_per_device() { return GetParam(); }
    // Of these ways of splitting, those that are tried.
    static std::vector<pattern_of> tried(std::vector<pattern_of> patterns) {
        if (one_way_only(GetParam())) patterns = {pattern_of::random_order};
        return patterns;
    }
    void check_barriers();
    void check_across_the_end(std::initializer_list<const char*> starts, int rounds);
};

// --- Communicators ---------------------------------------------------------------------------------------------------

// Every member finds itself, its neighbours, and hears from its predecessor through the communicator.
__global__ void __launch_bounds__(threads, 1024 / threads)
    meets_members(dcuda::context context, findings* found, int* seen, int how, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int per_device = self.size(dcuda::device);
    for (int round = 0; round < rounds; ++round) {
        const membership own = membership_of(static_cast<pattern_of>(how), self.id(), per_device, round);
        const dcuda::communicator comm = self.split(dcuda::world, own.color, own.key);
        EXPECT_SAME(comm == dcuda::none, own.color < 0);
        const int number = self.id(comm), size = self.size(comm);
        if (comm != dcuda::none) {
            EXPECT_SAME(self.translate(comm, number, dcuda::world), self.id());
            EXPECT_SAME(self.translate(dcuda::world, self.id(), comm), number);
            EXPECT_SAME(self.translate(comm, size, dcuda::world), -1);
            const int next = (number + 1) % size;
            const int next_in_world = self.translate(comm, next, dcuda::world);
            EXPECT_SAME(membership_of(static_cast<pattern_of>(how), next_in_world, per_device, round).color, own.color);
            self.notify(next, comm, 7);
            self.wait_notifications(7, 1);
            self.barrier(comm);
            EXPECT_SAME(self.pending_notifications(7), 0);
        }
        if (round + 1 == rounds) {
            by_one_thread([&] {
                seen[2 * self.id(dcuda::device)] = number;
                seen[2 * self.id(dcuda::device) + 1] = size;
            });
        }
        if (comm != dcuda::none) {
            self.free_communicator(comm);
            EXPECT_SAME(self.size(comm), 0);
            EXPECT_SAME(self.id(comm), -1);
        }
    }
}

TEST_P(Collectives, SplitNumbersMembersByKeys) {
    const int per_device = ranks_per_device();
    for (const pattern_of how : tried(all_patterns)) {
        const int rounds = rounds_of(3, 2);
        const device_vector<int> seen(2 * static_cast<std::size_t>(per_device));
        check(meets_members, all_ranks(), seen.get(), static_cast<int>(how), rounds);
        const int ranks = job().info().process_count * per_device;
        const std::vector<int> numbers = seen.read();
        for (int local = 0; local < per_device; ++local) {
            const int rank = job().info().process_index * per_device + local;
            const std::vector<int> members = members_of(how, rank, ranks, per_device, rounds - 1);
            const auto place = std::find(members.begin(), members.end(), rank) - members.begin();
            const int number = members.empty() ? -1 : static_cast<int>(place);
            ASSERT_EQ(numbers[2 * static_cast<std::size_t>(local)], number)
                << "rank " << rank << ", pattern " << static_cast<int>(how);
            ASSERT_EQ(numbers[2 * static_cast<std::size_t>(local) + 1], static_cast<int>(members.size()));
        }
    }
}

// Communicators of communicators, many at a time, and again when they have been freed.
constexpr int nested = 40;

__global__ void __launch_bounds__(threads, 1024 / threads) nests(dcuda::context context, findings* found, int count) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    for (int round = 0; round < 2; ++round) {
        dcuda::communicator made[nested];
        made[0] = self.split(dcuda::world, self.id() / 2, 0);
        for (int i = 1; i < count; ++i) made[i] = self.split(made[i - 1], 0, -self.id());
        const int pair = self.size(made[0]);
        for (int i = count; i-- > 0;) {
            EXPECT_SAME(self.size(made[i]), pair);
            EXPECT_SAME(self.id(made[i]), i == 0 ? self.id() % 2 : pair - 1 - self.id() % 2);
            EXPECT_SAME(self.allreduce(made[i], self.id(), dcuda::sum{}),
                        pair == 2 ? self.id() / 2 * 4 + 1 : self.id());
            self.free_communicator(made[i]);
        }
    }
}
TEST_P(Collectives, ManyCommunicatorsAtATime) { check(nests, all_ranks(), one_way_only(GetParam()) ? 4 : nested); }

// split_strided and node.
__global__ void __launch_bounds__(threads, 1024 / threads) strides(dcuda::context context, findings* found) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id();
    const dcuda::communicator odd = self.split_strided(dcuda::world, 1, 2, ranks / 2);
    EXPECT_SAME(odd != dcuda::none, rank % 2 == 1);
    if (odd != dcuda::none) {
        EXPECT_SAME(self.size(odd), ranks / 2);
        EXPECT_SAME(self.id(odd), rank / 2);
    }
    const dcuda::communicator back = self.split_strided(dcuda::world, ranks - 1, -1, ranks);
    EXPECT_SAME(self.id(back), ranks - 1 - rank);
    EXPECT_SAME(self.broadcast(back, rank, 0), ranks - 1);
    EXPECT_SAME(self.size(dcuda::node) % self.size(dcuda::device), 0);
    EXPECT_SAME(self.translate(dcuda::node, self.id(dcuda::node), dcuda::world), rank);
    self.barrier(dcuda::node);
    EXPECT_SAME(self.allreduce(dcuda::node, 1, dcuda::sum{}), self.size(dcuda::node));
}
TEST_P(Collectives, StridesAndNode) { check(strides, all_ranks()); }

// --- Reductions ------------------------------------------------------------------------------------------------------

// A value of a rank, which looks random and rounds when it is added.
template <class T>
DCUDA_HOST_DEVICE T value_of(int rank, std::size_t place, int round) {
    const std::uint32_t hash = mix(mix(static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(place)),
                                   static_cast<std::uint32_t>(round));
    if constexpr (std::is_integral_v<T>)
        return static_cast<T>(hash);
    else
        return static_cast<T>(static_cast<float>(static_cast<int>(hash >> 8) - (1 << 23)) / 1048573.0f);
}

// A pair that a program reduces with a function of its own: the largest value, and where it is.
struct largest {
    double value;
    int rank;
};
struct larger {
    DCUDA_HOST_DEVICE largest operator()(const largest& a, const largest& b) const {
        if (a.value != b.value) return a.value > b.value ? a : b;
        return a.rank < b.rank ? a : b;
    }
};

// What of 16 bits is combined as float.
template <class T>
using combined = std::conditional_t<std::is_arithmetic_v<T> || sizeof(T) != 2, T, float>;

// What is reduced in one run. One kernel for all: they are compiled in a part of the time that one for each takes.
enum class reduced : int {
    doubles,
    bytes,
    shorts,
    ints,
    longs,
    unsigned_ints,
    unsigned_bytes,
    signed_longs,
    floats,
    halves,
    bfloats
};

template <class T, class Op>
DCUDA_DEVICE void reduce_values(dcuda::rank& self, void* memory, int how, int rounds) {
    T* const results = static_cast<T*>(memory);
    const int per_device = self.size(dcuda::device), rank = self.id(), local = self.id(dcuda::device);
    const membership own = membership_of(static_cast<pattern_of>(how), rank, per_device, 1);
    const dcuda::communicator comm = self.split(dcuda::world, own.color, own.key);
    for (int round = 0; round < rounds; ++round) {
        if (own.color < 0) continue;
        // Some come late.
        if (mix(static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(round)) % 16 == 0)
            for (const long long begin = clock64(); clock64() - begin < 2000;) {
            }
        const T result = self.allreduce(comm, value_of<T>(rank, 0, round), Op{});
        if (dcuda::detail::exec::thread_index() == threads - 1) results[local * rounds + round] = result;
    }
}

template <reduced What>
struct reduced_as;
#define REDUCED(asked, T, Op)                                                                                          \
    template <>                                                                                                        \
    struct reduced_as<reduced::asked> {                                                                                \
        using type = T;                                                                                                \
        using op = Op;                                                                                                 \
    };
REDUCED(doubles, double, dcuda::sum)
REDUCED(bytes, std::int8_t, dcuda::sum)
REDUCED(shorts, std::uint16_t, dcuda::product)
REDUCED(ints, int, dcuda::minimum)
REDUCED(longs, std::uint64_t, dcuda::maximum)
REDUCED(unsigned_ints, std::uint32_t, dcuda::bit_and)
REDUCED(unsigned_bytes, std::uint8_t, dcuda::bit_or)
REDUCED(signed_longs, std::int64_t, dcuda::bit_xor)
REDUCED(floats, float, dcuda::sum)
REDUCED(halves, __half, dcuda::sum)
REDUCED(bfloats, __nv_bfloat16, dcuda::sum)
#undef REDUCED

__global__ void __launch_bounds__(threads, 1024 / threads)
    reduces_values(dcuda::context context, findings*, reduced asked, void* results, int how, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const auto run = [&](auto constant) {
        using as = reduced_as<decltype(constant)::value>;
        if (asked == decltype(constant)::value)
            reduce_values<typename as::type, typename as::op>(self, results, how, rounds);
    };
    run(std::integral_constant<reduced, reduced::doubles>{});
    run(std::integral_constant<reduced, reduced::bytes>{});
    run(std::integral_constant<reduced, reduced::shorts>{});
    run(std::integral_constant<reduced, reduced::ints>{});
    run(std::integral_constant<reduced, reduced::longs>{});
    run(std::integral_constant<reduced, reduced::unsigned_ints>{});
    run(std::integral_constant<reduced, reduced::unsigned_bytes>{});
    run(std::integral_constant<reduced, reduced::signed_longs>{});
    run(std::integral_constant<reduced, reduced::floats>{});
    run(std::integral_constant<reduced, reduced::halves>{});
    run(std::integral_constant<reduced, reduced::bfloats>{});
}

template <class T>
bool same_bits(const T& a, const T& b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
}

class CollectiveTypes : public Collectives {
protected:
    template <reduced What>
    void check_values(pattern_of how, int rounds) {
        using T = typename reduced_as<What>::type;
        using Op = typename reduced_as<What>::op;
        const int per_device = ranks_per_device();
        const device_vector<T> results(static_cast<std::size_t>(per_device * rounds));
        check(reduces_values, all_ranks(), What, results.get(), static_cast<int>(how), rounds);
        const std::vector<T> seen = results.read();
        const int processes = job().info().process_count, process = job().info().process_index;
        std::vector<int> done;
        for (int local = 0; local < per_device; ++local) {
            const int rank = process * per_device + local;
            const std::vector<int> members = members_of(how, rank, processes * per_device, per_device, 1);
            if (members.empty()) continue;
            if (per_device > 200 && local % 37 != 0) continue; // the host is slow
            for (int round = 0; round < rounds; ++round) {
                using element = combined<T>;
                const auto expected = static_cast<T>(reduce_in_order<element>(
                    members, per_device,
                    [&](int member) { return static_cast<element>(value_of<T>(member, 0, round)); },
                    [](const element& a, const element& b) { return static_cast<element>(Op{}(a, b)); }));
                ASSERT_TRUE(same_bits(seen[static_cast<std::size_t>(local * rounds + round)], expected))
                    << "rank " << rank << ", round " << round << ", pattern " << static_cast<int>(how);
            }
        }
    }
};

TEST_P(CollectiveTypes, ValuesInTheOrderThatIsPromised) {
    for (const pattern_of how : tried(all_patterns)) check_values<reduced::doubles>(how, rounds_of(50, 4));
}
TEST_P(CollectiveTypes, AllTypesAndOperators) {
    const int rounds = rounds_of(20, 2);
    constexpr pattern_of how = pattern_of::random_order;
    check_values<reduced::halves>(how, rounds);
    if (one_way_only(GetParam())) return;
    check_values<reduced::bytes>(how, rounds);
    check_values<reduced::shorts>(how, rounds);
    check_values<reduced::ints>(how, rounds);
    check_values<reduced::longs>(how, rounds);
    check_values<reduced::unsigned_ints>(how, rounds);
    check_values<reduced::unsigned_bytes>(how, rounds);
    check_values<reduced::signed_longs>(how, rounds);
    check_values<reduced::floats>(how, rounds);
    check_values<reduced::bfloats>(how, rounds);
}

// --- Arrays ----------------------------------------------------------------------------------------------------------

// With few ranks so large that it goes in many parts.
std::size_t largest_count(int ranks_per_device) { return ranks_per_device <= 7 && !few_addresses ? 100'003 : 1000; }

// allreduce apart and in place, reduce and broadcast, of the last of ten lengths. What all members must get the members
// check with each other, by sums of bits; the first member's results go to the host.
template <class T>
DCUDA_DEVICE void reduce_arrays(dcuda::rank& self, findings* found, T* memory, std::size_t largest, int how,
                                int lengths) {
    const int per_device = self.size(dcuda::device), rank = self.id();
    T* const in = piece_of(memory, 4 * largest, self);
    T* const out = in + largest;
    T* const kept = out + largest;
    T* const scattered = kept + largest;
    const membership own = membership_of(static_cast<pattern_of>(how), rank, per_device, 1);
    const dcuda::communicator comm = self.split(dcuda::world, own.color, own.key);
    if (own.color < 0) return;
    const int members = self.size(comm);
    constexpr int most = 10;
    const std::size_t counts[most] = {0, 1, 2, 3, 4, 31, 128, 1000, 33, largest};
    for (int place = most - lengths; place < most; ++place) {
        const std::size_t count = counts[place];
        const auto fill = [&](T* target) {
            for_each_thread(count, [&](std::size_t i) { target[i] = value_of<T>(rank, i, static_cast<int>(count)); });
        };
        fill(in);
        fill(kept);
        for_each_thread(largest - count, [&](std::size_t i) { out[count + i] = T(3); });
        self.allreduce(comm, out, in, count, dcuda::sum{});
        for_each_thread(largest - count, [&](std::size_t i) { EXPECT_SAME(out[count + i] == T(3), true); });
        for_each_thread(
            count, [&](std::size_t i) { EXPECT_SAME(in[i] == value_of<T>(rank, i, static_cast<int>(count)), true); });
        self.allreduce(comm, kept, kept, count, dcuda::sum{});
        for_each_thread(count, [&](std::size_t i) { EXPECT_SAME(kept[i] == out[i], true); });
        const int root = static_cast<int>(mix(static_cast<std::uint32_t>(count), 5) % static_cast<unsigned>(members));
        for_each_thread(count, [&](std::size_t i) { kept[i] = T(5); });
        self.reduce(comm, kept, in, count, dcuda::sum{}, root);
        for_each_thread(count,
                        [&](std::size_t i) { EXPECT_SAME(kept[i] == (self.id(comm) == root ? out[i] : T(5)), true); });
        const std::size_t part = count / static_cast<std::size_t>(members);
        for_each_thread(largest, [&](std::size_t i) { scattered[i] = T(9); });
        self.reduce_scatter(comm, scattered, in, part, dcuda::sum{});
        const T* const expected = out + part * static_cast<std::size_t>(self.id(comm));
        for_each_thread(largest,
                        [&](std::size_t i) { EXPECT_SAME(scattered[i] == (i < part ? expected[i] : T(9)), true); });
        __syncthreads();
        // What the root of a broadcast has got all others have.
        for_each_thread(count, [&](std::size_t i) { kept[i] = self.id(comm) == root ? out[i] : T(7); });
        self.broadcast(comm, kept, count, root);
        for_each_thread(count, [&](std::size_t i) { EXPECT_SAME(kept[i] == out[i], true); });
        EXPECT_SAME(self.broadcast(comm, rank, root), self.translate(comm, root, dcuda::world));
        __syncthreads();
    }
}

// PERF: a kernel for each type. One for all takes minutes to compile.
template <class T>
__global__ void __launch_bounds__(threads, 1024 / threads)
    reduces_arrays(dcuda::context context, findings* found, T* memory, std::size_t largest, int how, int lengths) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    reduce_arrays(self, found, memory, largest, how, lengths);
}

class CollectiveArrays : public Collectives {
protected:
    template <class T>
    void check_arrays(pattern_of how) {
        const int per_device = ranks_per_device();
        const std::size_t largest = largest_count(per_device);
        const device_vector<T> memory(4 * largest * static_cast<std::size_t>(per_device));
        check(reduces_arrays<T>, all_ranks(), memory.get(), largest, static_cast<int>(how),
              one_way_only(per_device) ? 2 : 10);
        const std::vector<T> seen = memory.read();
        const int processes = job().info().process_count, process = job().info().process_index;
        for (int local = 0; local < per_device; local += 1 + per_device / 3) {
            const int rank = process * per_device + local;
            const std::vector<int> members = members_of(how, rank, processes * per_device, per_device, 1);
            if (members.empty()) continue;
            for (std::size_t i = 0; i < largest; i += 1 + largest / 4000) {
                using element = combined<T>;
                const auto expected = static_cast<T>(reduce_in_order<element>(
                    members, per_device,
                    [&](int member) { return static_cast<element>(value_of<T>(member, i, static_cast<int>(largest))); },
                    [](const element& a, const element& b) { return static_cast<element>(a + b); }));
                ASSERT_TRUE(same_bits(seen[(4 * static_cast<std::size_t>(local) + 1) * largest + i], expected))
                    << "rank " << rank << ", place " << i << ", pattern " << static_cast<int>(how);
            }
        }
    }
};

TEST_P(CollectiveArrays, Doubles) {
    for (const pattern_of how : tried({pattern_of::world, pattern_of::columns, pattern_of::random_order}))
        check_arrays<double>(how);
}
TEST_P(CollectiveArrays, Bytes) { check_arrays<std::uint8_t>(pattern_of::random); }
TEST_P(CollectiveArrays, Halves) { check_arrays<__half>(pattern_of::device); }
// All of them through bounce buffers, however small.
TEST_P(CollectiveArrays, ThroughBounceBuffers) {
    setenv("DCUDA_BOUNCE_BYTES", "0", 1);
    for (const pattern_of how : tried({pattern_of::world, pattern_of::columns, pattern_of::random_order}))
        check_arrays<double>(how);
    if (!one_way_only(GetParam())) {
        check_arrays<std::uint8_t>(pattern_of::random);
        check_arrays<__half>(pattern_of::random_order);
    }
    unsetenv("DCUDA_BOUNCE_BYTES");
}

// In place in shared memory: there racecheck sees that no thread loads what another one has overwritten.
__global__ void __launch_bounds__(threads, 1024 / threads)
    reduces_in_shared_memory(dcuda::context context, findings* found) {
    constexpr int most = 33;
    __shared__ double sums[most];
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int rank = self.id(), ranks = self.size();
    for (const int count : {1, 5, 32, most}) {
        for_each_thread(static_cast<std::size_t>(count),
                        [&](std::size_t i) { sums[i] = rank + static_cast<double>(i); });
        self.allreduce(dcuda::world, sums, sums, static_cast<std::size_t>(count), dcuda::sum{});
        for_each_thread(static_cast<std::size_t>(count), [&](std::size_t i) {
            EXPECT_SAME(sums[i] == ranks * ((ranks - 1) / 2.0 + static_cast<double>(i)), true);
        });
        __syncthreads();
    }
}
TEST_P(CollectiveArrays, InSharedMemory) { check(reduces_in_shared_memory, all_ranks()); }

// --- A program's own type, and one tree over all devices
// ---------------------------------------------------------------

__global__ void __launch_bounds__(threads, 1024 / threads)
    finds_largest(dcuda::context context, findings* found, double* sums) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int rank = self.id(), ranks = self.size();
    const auto of = [](int number) { return static_cast<double>(mix(static_cast<std::uint32_t>(number), 3) % 1000); };
    const largest best = self.allreduce(dcuda::world, largest{of(rank), rank}, larger{});
    for (int other = 0; other < ranks; ++other)
        EXPECT_SAME(of(other) > best.value || (of(other) == best.value && other < best.rank), false);
    EXPECT_SAME(of(best.rank) == best.value, true);
    // One tree over up to 64 ranks of all devices.
    const dcuda::communicator few = self.split(dcuda::world, rank / 64, 0);
    const double sum = self.allreduce(few, value_of<double>(rank, 0, 0), dcuda::by_rank(dcuda::sum{}));
    by_one_thread([&] { sums[self.id(dcuda::device)] = sum; });
}

TEST_P(Collectives, OwnTypesAndOneTreeOverAllDevices) {
    const int per_device = ranks_per_device();
    const device_vector<double> sums(static_cast<std::size_t>(per_device));
    check(finds_largest, all_ranks(), sums.get());
    const std::vector<double> seen = sums.read();
    const int ranks = per_device * job().info().process_count;
    for (int local = 0; local < per_device; ++local) {
        const int rank = job().info().process_index * per_device + local, first = rank / 64 * 64;
        std::vector<double> values;
        for (int member = first; member < std::min(first + 64, ranks); ++member)
            values.push_back(value_of<double>(member, 0, 0));
        ASSERT_TRUE(same_bits(seen[static_cast<std::size_t>(local)], reduce_tree(values, dcuda::sum{})));
    }
}

// --- Together with everything else -----------------------------------------------------------------------------------

// Collectives on four communicators between notified puts around the ring.
__global__ void __launch_bounds__(threads, 1024 / threads)
    mixes(dcuda::context context, findings* found, int* memory, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int rank = self.id(), ranks = self.size(), per_device = self.size(dcuda::device);
    ring around(self, memory);
    const dcuda::communicator column = self.split(dcuda::world, rank % per_device, 0);
    const dcuda::communicator pair = self.split(dcuda::world, rank / 2, 0);
    const int pair_sum = self.size(pair) == 2 ? rank / 2 * 4 + 1 : rank;
    for (int round = 0; round < rounds; ++round) {
        around.send(round);
        EXPECT_SAME(self.allreduce(pair, rank + round, dcuda::sum{}), pair_sum + self.size(pair) * round);
        around.answer();
        EXPECT_SAME(self.allreduce(column, 1, dcuda::sum{}), self.size(column));
        around.receive(found, round);
        EXPECT_SAME(self.allreduce(dcuda::device, std::int64_t{1}, dcuda::sum{}), per_device);
        around.await_answer();
        EXPECT_SAME(self.allreduce(dcuda::world, 1u, dcuda::sum{}), ranks);
    }
}
TEST_P(Collectives, BetweenPutsAndNotifications) {
    const device_vector<int> memory(2 * static_cast<std::size_t>(GetParam()));
    check(mixes, all_ranks(), memory.get(), rounds_of(2000, few_addresses ? 5 : 30));
}
// Numbers of exchanges that wrap around, and slots that are cleared.
void Collectives::check_across_the_end(std::initializer_list<const char*> starts, int rounds) {
    const device_vector<int> memory(2 * static_cast<std::size_t>(GetParam()));
    for (const char* start : starts) {
        if (one_way_only(GetParam()) && start != *starts.begin()) continue;
        setenv("DCUDA_COUNTER_START", start, 1);
        check(mixes, all_ranks(), memory.get(), rounds);
        end_job();
    }
    unsetenv("DCUDA_COUNTER_START");
}
TEST_P(Collectives, AcrossTheEndOfNumbers) {
    check_across_the_end({"4294967285", "262138", "1048570"}, rounds_of(50, 12));
}

// A barrier of a communicator orders what members wrote, and takes what they have put.
__global__ void __launch_bounds__(threads, 1024 / threads)
    meets(dcuda::context context, findings* found, unsigned* memory, unsigned char* inboxes, int how, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    constexpr std::size_t bytes = 256;
    const int rank = self.id(), per_device = self.size(dcuda::device), first = rank - self.id(dcuda::device);
    unsigned char* const inbox = piece_of(inboxes, 2 * bytes, self);
    const dcuda::window win = self.create_window(dcuda::world, inbox, bytes);
    const membership own = membership_of(static_cast<pattern_of>(how), rank, per_device, 1);
    const dcuda::communicator comm = self.split(dcuda::world, own.color, own.key);
    if (own.color < 0) return;
    const int size = self.size(comm), number = self.id(comm);
    const int next = self.translate(comm, (number + 1) % size, dcuda::world);
    const int before = self.translate(comm, (number + size - 1) % size, dcuda::world);
    for (int round = 0; round < rounds; ++round) {
        const int seed = rank + 1000 * round;
        for_each_thread(bytes, [&](std::size_t i) { inbox[bytes + i] = pattern(i, static_cast<unsigned>(seed)); });
        by_one_thread([&] { memory[rank - first] = static_cast<unsigned>(seed); });
        if (round % 2 == 0)
            self.put(win, next, 0, bytes, inbox + bytes);
        else
            self.put_notify(win, next, 0, bytes, inbox + bytes, 3);
        self.barrier(comm);
        const int seed_before = before + 1000 * round;
        for_each_thread(bytes,
                        [&](std::size_t i) { EXPECT_SAME(inbox[i], pattern(i, static_cast<unsigned>(seed_before))); });
        if (before >= first && before < first + per_device) EXPECT_SAME(memory[before - first], seed_before);
        if (round % 2 != 0) self.wait_notifications(3, 1);
        self.barrier(comm);
    }
}
void Collectives::check_barriers() {
    const auto ranks = static_cast<std::size_t>(GetParam());
    for (const pattern_of how : tried({pattern_of::columns, pattern_of::random_order, pattern_of::world})) {
        const device_vector<unsigned> memory(ranks);
        const device_vector<unsigned char> inboxes(512 * ranks);
        check(meets, all_ranks(), memory.get(), inboxes.get(), static_cast<int>(how), rounds_of(100, 6));
    }
}
TEST_P(Collectives, BarriersOfCommunicators) { check_barriers(); }

// Rank 0 of a device puts over bytes of small notified puts of its own, without a notification, and rank 1 comes last
// to their barrier. Rank 2 sees afterwards what was put last.
__global__ void __launch_bounds__(threads, 1024 / threads)
    third_member_looks(dcuda::context context, findings* found, unsigned* flag, unsigned char* inboxes, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    constexpr std::size_t bytes = 256;
    constexpr int earlier = 4;
    const int number = self.id(dcuda::device);
    unsigned char* const inbox = piece_of(inboxes, 2 * bytes, self);
    const dcuda::window win = self.create_window(dcuda::device, inbox, bytes);
    const dcuda::communicator comm = self.split(dcuda::device, number < 3 ? 0 : -1, 0);
    for (int round = 1; round <= rounds && number < 3; ++round) {
        const auto seed = static_cast<unsigned>(round);
        if (number == 0) {
            for (int i = 0; i < earlier; ++i) self.put_notify(win, 1, 0, bytes, inbox + bytes, 3);
            self.sync();
            for_each_thread(bytes, [&](std::size_t i) { inbox[bytes + i] = pattern(i, seed); });
            self.put(win, 1, 0, bytes, inbox + bytes);
            by_one_thread([&] { atomicExch(flag, seed); });
        } else if (number == 1) {
            by_one_thread([&] { EXPECT_SAME(spin([&] { return atomicAdd(flag, 0u) == seed; }), true); });
            self.sync();
        }
        self.barrier(comm);
        if (number == 2)
            for_each_thread(bytes, [&](std::size_t i) { EXPECT_SAME(inboxes[2 * bytes + i], pattern(i, seed)); });
        if (number == 1) self.wait_notifications(3, earlier);
        self.barrier(comm);
    }
}
TEST_P(Collectives, BarriersShowPutsToOtherMembers) {
    if (GetParam() < 3) return;
    const device_vector<unsigned> flag(1);
    const device_vector<unsigned char> inboxes(512 * static_cast<std::size_t>(GetParam()));
    check(third_member_looks, all_ranks(), flag.get(), inboxes.get(), rounds_of(100, 20));
}

// Single values and barriers by leaders, of as many members as there are more than one row of.
class CollectiveLeaders : public CollectiveTypes {
protected:
    void SetUp() override {
        setenv("DCUDA_LEADER_MEMBERS", "33", 1);
        CollectiveTypes::SetUp();
    }
    void TearDown() override {
        CollectiveTypes::TearDown();
        unsetenv("DCUDA_LEADER_MEMBERS");
    }
};

TEST_P(CollectiveLeaders, ValuesInTheOrderThatIsPromised) {
    for (const pattern_of how : tried({pattern_of::world, pattern_of::device, pattern_of::random_order,
                                       pattern_of::backwards, pattern_of::all_but_one}))
        check_values<reduced::doubles>(how, rounds_of(50, 4));
    check_values<reduced::halves>(pattern_of::world, rounds_of(20, 2));
}
TEST_P(CollectiveLeaders, OwnTypes) {
    const device_vector<double> sums(static_cast<std::size_t>(ranks_per_device()));
    check(finds_largest, all_ranks(), sums.get());
}
TEST_P(CollectiveLeaders, BetweenPutsAndNotifications) {
    check_across_the_end({"4294967285", "262138"}, rounds_of(200, few_addresses ? 2 : 12));
}
TEST_P(CollectiveLeaders, Barriers) { check_barriers(); }

// One tree over more than 64 members, after exchanges by leaders.
__global__ void __launch_bounds__(threads, 1024 / threads)
    sums_by_rank(dcuda::context context, double* array, std::size_t count) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const auto by_rank = dcuda::by_rank(dcuda::sum{});
    self.allreduce(dcuda::world, 1.0, dcuda::sum{});
    if (count == 0)
        self.allreduce(dcuda::world, 1.0, by_rank);
    else
        self.allreduce(dcuda::world, array, array, count, by_rank);
}
TEST_P(CollectiveLeaders, OneTreeIsOfFewMembers) {
    if (job().info().process_count * GetParam() < 65) GTEST_SKIP() << "there are fewer than 65 ranks";
    const device_vector<double> array(2000);
    for (const std::size_t count : {0, 2, 2000}) {
        try {
            job().run(sums_by_rank, all_ranks(), array.get(), count);
            ADD_FAILURE() << count << " values: no error";
        } catch (const dcuda::error& problem) {
            EXPECT_EQ(problem.code(), dcuda::error_code::device_fault);
            EXPECT_NE(std::string_view(problem.what()).find("at most 64"), std::string_view::npos) << problem.what();
        }
        end_job();
    }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, testing::ValuesIn(rank_counts));
INSTANTIATE_TEST_SUITE_P(Ranks, CollectiveTypes, testing::ValuesIn(rank_counts));
INSTANTIATE_TEST_SUITE_P(Ranks, CollectiveArrays, testing::ValuesIn(rank_counts));
INSTANTIATE_TEST_SUITE_P(Ranks, CollectiveLeaders, testing::ValuesIn(leader_rank_counts));

} // namespace
