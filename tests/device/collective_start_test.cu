// SPDX-License-Identifier: BSD-3-Clause
// Reductions that are started and finished: several at a time, between other operations, beside members that call
// allreduce. What a rank gets must have the bits that allreduce gives, which collective_test.cu compares with a host
// program.
#include "collective_test.hpp"

using namespace dcuda::test;

namespace {

// Values whose sums depend on the order.
DCUDA_DEVICE double value_of(int rank, int round, std::size_t i) {
    const std::uint32_t hash =
        mix(mix(static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(round)), static_cast<std::uint32_t>(i));
    return static_cast<double>(hash % 2001) * (hash >> 30 == 0 ? 1e-9 : 1.0 / 3);
}

// Three reductions at a time, on communicators of all kinds, between notified puts around the ring. Ranks whose number
// is odd make some of them at once.
__global__ void __launch_bounds__(threads, 1024 / threads)
    three_at_a_time(dcuda::context context, findings* found, int* memory, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int rank = self.id(), per_device = self.size(dcuda::device);
    ring around(self, memory);
    const dcuda::communicator column = self.split(dcuda::world, rank % per_device, 0);
    const dcuda::communicator pair = self.split(dcuda::world, rank / 2, 0);
    const dcuda::communicator mixed = self.split(dcuda::world, static_cast<int>(mix(rank, 1) % 3), mix(rank, 2) & 0xff);
    for (int round = 0; round < rounds; ++round) {
        const double own = value_of(rank, round, 0);
        const int largest = static_cast<int>(mix(rank, round) % 1000);
        const auto of_world = self.start_allreduce(dcuda::world, own, dcuda::sum{});
        around.send(round);
        const auto of_mixed = self.start_allreduce(mixed, largest, dcuda::maximum{});
        if (round % 2 == 0) self.barrier(dcuda::world); // another way to meet
        const bool is_whole = rank % 2 == 1;
        const auto of_column = is_whole ? dcuda::started_value<double, dcuda::sum>{column, 0, {}, 0}
                                        : self.start_allreduce(column, own, dcuda::sum{});
        EXPECT_SAME(self.allreduce(dcuda::device, 1, dcuda::sum{}), per_device);
        around.answer();
        around.receive(found, round);
        const double column_sum =
            is_whole ? self.allreduce(column, own, dcuda::sum{}) : self.finish_allreduce(of_column);
        const int mixed_largest = self.finish_allreduce(of_mixed);
        // The value has left: who has got it tells the other, which has not finished yet.
        const auto by_number = dcuda::by_rank(dcuda::sum{});
        double pair_sum = 0;
        if (rank % 2 == 0) {
            const auto of_pair = self.start_allreduce(pair, own, by_number);
            if (self.size(pair) == 2) self.wait_notifications(3, 1);
            pair_sum = self.finish_allreduce(of_pair);
        } else {
            pair_sum = self.allreduce(pair, own, by_number);
            self.notify(rank - 1, dcuda::world, 3);
        }
        EXPECT_SAME(self.allreduce(pair, own, by_number) == pair_sum, true);
        const double world_sum = self.finish_allreduce(of_world);
        around.await_answer();
        EXPECT_SAME(self.allreduce(column, own, dcuda::sum{}) == column_sum, true);
        EXPECT_SAME(self.allreduce(mixed, largest, dcuda::maximum{}), mixed_largest);
        EXPECT_SAME(self.allreduce(dcuda::world, own, dcuda::sum{}) == world_sum, true);
    }
}

// The last of seven lengths: no elements, a part of an exchange, several exchanges, and through bounce buffers.
__global__ void __launch_bounds__(threads, 1024 / threads)
    arrays(dcuda::context context, findings* found, double* memory, std::size_t largest, int lengths) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int rank = self.id(), per_device = self.size(dcuda::device);
    double* const in = piece_of(memory, 3 * largest, self);
    double* const out = in + largest;
    double* const expected = out + largest;
    const dcuda::communicator comms[] = {self.split(dcuda::world, rank % per_device, 0),
                                         self.split(dcuda::world, 0, -rank)};
    constexpr int most = 7;
    const std::size_t counts[most] = {0, 1, 2, 100, 250, 31, largest};
    int step = 0;
    for (int round = 0; round < 2; ++round)
        for (int place = most - lengths; place < most; ++place)
            for (const dcuda::communicator comm : comms) {
                // Other values each time, which some warps of the block write when others start already.
                const std::size_t count = counts[place];
                ++step;
                for_each_thread(count, [&](std::size_t i) { in[i] = value_of(rank, step, i); });
                for_each_thread(largest, [&](std::size_t i) { out[i] = i < count && round == 1 ? in[i] : -1; });
                // Apart, and in place.
                // Some members make all of it where the others finish.
                const double* const from = round == 0 ? in : out;
                if (rank % 3 == 1) {
                    EXPECT_SAME(self.allreduce(dcuda::device, rank, dcuda::minimum{}), rank - self.id(dcuda::device));
                    self.allreduce(comm, out, from, count, dcuda::sum{});
                } else {
                    const auto started = self.start_allreduce(comm, out, from, count, dcuda::sum{});
                    EXPECT_SAME(self.allreduce(dcuda::device, rank, dcuda::minimum{}), rank - self.id(dcuda::device));
                    self.finish_allreduce(started);
                }
                self.allreduce(comm, expected, in, count, dcuda::sum{});
                for_each_thread(largest,
                                [&](std::size_t i) { EXPECT_SAME(out[i] == (i < count ? expected[i] : -1), true); });
            }
}

class CollectiveStart : public device_test, public testing::WithParamInterface<int> {
protected:
    dcuda::launch_config all_ranks() { return shape(GetParam(), dim3(threads)); }
    std::size_t ranks() { return static_cast<std::size_t>(GetParam()); }
    int lengths() { return one_way_only(GetParam()) ? 2 : 7; }
};

TEST_P(CollectiveStart, ThreeAtATime) {
    const device_vector<int> memory(2 * ranks());
    check(three_at_a_time, all_ranks(), memory.get(), rounds_of(500, 6, 3));
}

// Numbers of exchanges that wrap around, and slots that are cleared.
TEST_P(CollectiveStart, AcrossTheEndOfNumbers) {
    constexpr std::size_t most = 300;
    const device_vector<int> memory(2 * ranks());
    const device_vector<double> numbers(3 * most * ranks());
    for (const char* start : {"4294967285", "262138", "1048570"}) {
        setenv("DCUDA_COUNTER_START", start, 1);
        check(three_at_a_time, all_ranks(), memory.get(), rounds_of(40, 6, 3));
        check(arrays, all_ranks(), numbers.get(), most, lengths());
        end_job();
        if (one_way_only(GetParam())) break;
    }
    unsetenv("DCUDA_COUNTER_START");
}

TEST_P(CollectiveStart, Arrays) {
    const std::size_t largest = GetParam() <= 7 && !few_addresses ? 20'000 : 1200;
    const device_vector<double> memory(3 * largest * ranks());
    check(arrays, all_ranks(), memory.get(), largest, lengths());
}

INSTANTIATE_TEST_SUITE_P(Ranks, CollectiveStart, testing::ValuesIn(rank_counts));

} // namespace
