// SPDX-License-Identifier: BSD-3-Clause
// As many ranks as a device can have: every rank exchanges messages of 0 to 64 KiB with four partners, and every byte
// is looked at. What warps of a block decide must not depend on which of them is ahead, and with many ranks on a
// multiprocessor they are far apart.
#include "device_test.hpp"

using namespace dcuda::test;

namespace {

#if DCUDA_BACKEND_CUDA
constexpr int rank_counts[] = {1, 132, 1056, 2112};
constexpr int largest_count = 2112;
#else
constexpr int rank_counts[] = {1, 8, 24};
constexpr int largest_count = 24;
#endif

constexpr int partners = 4;
constexpr int credit_tag = 100;

// A number that both sides know.
DCUDA_HOST_DEVICE std::uint32_t draw(int source, int slot, int round, unsigned number) {
    std::uint32_t x = static_cast<std::uint32_t>(source) * 0x9E3779B1u +
                      static_cast<std::uint32_t>(slot) * 0x85EBCA6Bu + static_cast<std::uint32_t>(round) * 0xC2B2AE35u +
                      number * 0x27D4EB2Fu;
    x = (x ^ x >> 15) * 0x2C1B3C6Du;
    x = (x ^ x >> 12) * 0x297A2D39u;
    return x ^ x >> 15;
}

DCUDA_HOST_DEVICE std::size_t size_of(int source, int slot, int round, std::size_t largest) {
    const std::uint32_t kind = draw(source, slot, round, 0) % 8, number = draw(source, slot, round, 1);
    if (kind == 0) return 0;
    if (kind == 1) return number % (largest + 1);                            // any
    if (kind < 5) return number % (1025 < largest ? 1025 : largest) / 4 * 4; // words
    return number % (130 < largest ? 130 : largest);
}

// Of a payload's words, as both sides know them.
DCUDA_HOST_DEVICE unsigned char content(std::size_t place, int source, int slot, int round) {
    return static_cast<unsigned char>(place * 7 + place / 256 + draw(source, slot, round, 2));
}

DCUDA_DEVICE int partner_of(int rank, int slot, int ranks) {
    constexpr int distances[] = {1, -1, 17, -17};
    return ((rank + distances[slot]) % ranks + ranks) % ranks;
}

// memory: for each rank, as many places as it has partners for what comes, and one for what goes.
template <int Threads>
__global__ void __launch_bounds__(Threads, 1024 / Threads)
    exchange(dcuda::context context, findings* found, unsigned char* memory, std::size_t largest, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id();
    const std::size_t slot_bytes = largest + 64;
    unsigned char* const inbox = piece_of(memory, (partners + 1) * slot_bytes, self);
    unsigned char* const outbox = inbox + partners * slot_bytes;
    const dcuda::window win = self.create_window(dcuda::world, inbox, partners * slot_bytes);
    for (int round = 0; round < rounds; ++round) {
        for (int slot = 0; slot < partners; ++slot) {
            // What this rank sends lies in the slot of the same number at its partner.
            const std::size_t bytes = size_of(rank, slot, round, largest), skew = draw(rank, slot, round, 3) % 2 * 4;
            if (round != 0) self.wait_notifications(credit_tag + slot, 1);
            if (slot != 0) self.flush(win); // a large source is read until then
            for_each_thread(bytes, [&](std::size_t i) { outbox[skew + i] = content(i, rank, slot, round); });
            const int target = partner_of(rank, slot, ranks);
            if (draw(rank, slot, round, 4) % 4 == 0) {
                self.put(win, target, slot * slot_bytes, bytes, outbox + skew);
                self.notify(target, dcuda::world, slot);
            } else {
                self.put_notify(win, target, slot * slot_bytes, bytes, outbox + skew, slot);
            }
        }
        for (int slot = 0; slot < partners; ++slot) {
            const int source = partner_of(rank, slot ^ 1, ranks);
            if (draw(rank, slot, round, 5) % 4 == 0)
                while (!self.test_notifications(slot, 1)) {
                }
            else
                self.wait_notifications(slot, 1);
            const unsigned char* const payload = inbox + slot * slot_bytes;
            for_each_thread(size_of(source, slot, round, largest),
                            [&](std::size_t i) { EXPECT_SAME(payload[i], content(i, source, slot, round)); });
            __syncthreads();
            self.notify(source, dcuda::world, credit_tag + slot);
        }
        self.flush(win);
    }
    for (int slot = 0; slot < partners; ++slot) self.wait_notifications(credit_tag + slot, 1);
    for (int slot = 0; slot < partners; ++slot) EXPECT_SAME(self.test_notifications(slot, 1), false);
    self.free_window(win);
}

class Occupancy : public device_test, public testing::WithParamInterface<int> {
protected:
    template <int Threads>
    void run(std::size_t largest, int rounds) {
        const int ranks = GetParam();
        const device_vector<unsigned char> memory(static_cast<std::size_t>(ranks) * (partners + 1) * (largest + 64));
        check(exchange<Threads>, shape(ranks, dim3(Threads)), memory.get(), largest, rounds);
    }
};

// Rounds: fewer where there are many ranks, or much to copy.
TEST_P(Occupancy, SmallMessages) { run<64>(2048, rounds_of(60, 6)); }

TEST_P(Occupancy, AllSizes) { run<64>(65536, rounds_of(12, 3)); }

// Half as many ranks of twice as many threads.
TEST_P(Occupancy, MoreThreads) {
    if (DCUDA_BACKEND_CUDA && GetParam() == largest_count) GTEST_SKIP() << "so many ranks of 128 threads do not fit";
    run<128>(2048, rounds_of(60, 6));
}

TEST_P(Occupancy, OneWarp) { run<32>(4096, rounds_of(40, 4)); }

INSTANTIATE_TEST_SUITE_P(, Occupancy, testing::ValuesIn(rank_counts),
                         [](const auto& instance) { return "Ranks" + std::to_string(instance.param); });

} // namespace
