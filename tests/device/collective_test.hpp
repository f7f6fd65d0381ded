// SPDX-License-Identifier: BSD-3-Clause
// What the tests of collective operations share: how many ranks there are, and numbers that look random.
#pragma once

#include "device_test.hpp"

namespace dcuda::test {

#if DCUDA_BACKEND_CUDA
inline const std::vector<int> rank_counts =
    tries_one_way ? std::vector{1, 7, 132, 2112} : std::vector{1, 7, 132, 1056, 2112};
inline const std::vector<int> leader_rank_counts =
    tries_one_way ? std::vector{132, 2112} : std::vector{132, 1056, 2112};
#else
inline const std::vector rank_counts{1, 5, few_addresses ? 9 : few_threads ? 20 : 40}; // a row has up to 32
inline const std::vector leader_rank_counts{few_threads ? 35 : 70};
#endif
inline bool one_way_only(int ranks_per_device) { return tries_one_way && ranks_per_device > 132; }
inline constexpr int threads = 64;

DCUDA_HOST_DEVICE std::uint32_t mix(std::uint32_t a, std::uint32_t b) {
    std::uint32_t x = a * 0x9E3779B1u + b * 0x85EBCA6Bu + 0xC2B2AE35u;
    x = (x ^ x >> 15) * 0x2C1B3C6Du;
    return x ^ x >> 13;
}

// Notified values around the ring of ranks, for kernels that do something else in between. `memory`: two numbers of
// each rank.
class ring {
public:
    DCUDA_DEVICE ring(dcuda::rank& self, int* memory)
        : self_(self), rank_(self.id()), ranks_(self.size()), inbox_(piece_of(memory, 2, self)),
          window_(self.create_typed_window(dcuda::world, inbox_, 2)) {}
    DCUDA_DEVICE void send(int round) {
        self_.put_value_notify(window_, (rank_ + 1) % ranks_, round % 2, rank_ + round, value_tag);
    }
    // That the value before this one has been read.
    DCUDA_DEVICE void answer() { self_.notify(before(), dcuda::world, answer_tag); }
    DCUDA_DEVICE void receive(findings* found, int round) {
        const dcuda::rank& self = self_; // for what EXPECT_SAME says
        self_.wait_notifications(value_tag, 1);
        EXPECT_SAME(inbox_[round % 2], before() + round);
    }
    DCUDA_DEVICE void await_answer() { self_.wait_notifications(answer_tag, 1); }

private:
    static constexpr int value_tag = 1, answer_tag = 2;
    DCUDA_DEVICE int before() const { return (rank_ + ranks_ - 1) % ranks_; }

    dcuda::rank& self_;
    int rank_, ranks_;
    int* inbox_;
    dcuda::typed_window<int> window_;
};

} // namespace dcuda::test
