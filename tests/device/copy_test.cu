// SPDX-License-Identifier: BSD-3-Clause
// How puts copy: every alignment and size, by words and by the copy engine, with and without staging, and the order
// between copies of both kinds. On the CPU backend the same programs show that the API keeps its promises there.
#include "device_test.hpp"

#include <optional>

using namespace dcuda::test;

namespace {

class Copy : public device_test {
protected:
    static dcuda::launch_config staged(int ranks_per_device, unsigned threads,
                                       std::optional<std::size_t> staging_bytes = {}, std::size_t shared_bytes = 0) {
        dcuda::launch_config config = shape(ranks_per_device, dim3(threads), shared_bytes);
        config.staging_bytes = staging_bytes;
        return config;
    }

    // As the library chooses, none, and what makes for four stages of 3 and of 4 KiB.
    static constexpr std::optional<std::size_t> stagings[] = {std::nullopt, 0, 12'500, 16'500};
};

// --- alignment ---

constexpr std::size_t margin = 64; // around a message; must stay as it was
constexpr unsigned char untouched = 0xee;

// A message of each size from each to each offset within 16 bytes, around a ring.
__global__ void skewed(dcuda::context context, findings* found, unsigned char* memory, std::size_t most_bytes,
                       const unsigned* sizes, int size_count, const unsigned* skews, int skew_count) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id();
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    const std::size_t room = most_bytes + 2 * margin;
    unsigned char* const inbox = piece_of(memory, 2 * room, self);
    unsigned char* const outbox = inbox + room;
    const dcuda::window win = self.create_window(dcuda::world, inbox, room);
    for (int s = 0; s < size_count; ++s)
        for (int target = 0; target < skew_count; ++target)
            for (int from = 0; from < skew_count; ++from) {
                const std::size_t bytes = sizes[s], begin = margin + skews[target], end = begin + bytes;
                const unsigned seed = 1000 * s + 100 * skews[target] + skews[from];
                for_each_thread(room, [&](std::size_t i) { inbox[i] = untouched; });
                for_each_thread(bytes, [&](std::size_t i) { outbox[skews[from] + i] = pattern(i, seed + rank); });
                self.notify(previous, dcuda::world, 1);
                self.wait_notifications(1, 1);
                self.put_notify(win, next, begin, bytes, outbox + skews[from], 2);
                self.wait_notifications(2, 1);
                self.flush(win); // the outbox changes in the next round, whether or not `next` has what it held
                for_each_thread(room, [&](std::size_t i) {
                    EXPECT_SAME(inbox[i], i < begin || i >= end ? untouched : pattern(i - begin, seed + previous));
                });
            }
    self.free_window(win);
}

TEST_F(Copy, EveryAlignmentAndSize) {
    const std::vector<unsigned> sizes{0, 1, 3, 15, 16, 17, 33, 100, 1024, 2049, 4100, 12'304, 70'001};
    const device_vector<unsigned> device_sizes(sizes),
        skews(few_addresses ? std::vector<unsigned>{0, 1, 8} : std::vector<unsigned>{0, 1, 2, 4, 8, 15});
    const std::size_t most = sizes.back() + 16;
    const device_vector<unsigned char> memory(2 * 2 * (most + 2 * margin));
    for (const unsigned threads : {32u, 100u})
        for (const auto& staging : {stagings[0], stagings[1]}) {
            SCOPED_TRACE(threads);
            check(skewed, staged(2, threads, staging), memory.get(), most, device_sizes.get(),
                  static_cast<int>(device_sizes.size()), skews.get(), static_cast<int>(skews.size()));
        }
}

// --- order between copies ---

// Puts of all kinds to one place, each with another content, then a notification without data: the last one wins.
// The first put covers all. kinds: a letter per put; l: large; u: large, not aligned as the target; s: small, in the
// middle; e: large, with edges.
__global__ void overwritten(dcuda::context context, findings* found, unsigned char* memory, std::size_t bytes,
                            const char* kinds, int count, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id();
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    const std::size_t room = bytes + 16;
    unsigned char* const inbox = piece_of(memory, (count + 1) * room, self);
    unsigned char* const outbox = inbox + room;
    const dcuda::window win = self.create_window(dcuda::world, inbox, bytes);
    const auto begin = [&](int put) { return kinds[put] == 's' ? bytes / 2 : kinds[put] == 'e' ? std::size_t(3) : 0; };
    const auto size = [&](int put) {
        return kinds[put] == 's' ? std::size_t(36) : kinds[put] == 'e' ? bytes - 8 : bytes;
    };
    const auto content = [&](std::size_t i, int put, int source, int round) {
        return pattern(i, 10'000 * source + 100 * put + round);
    };
    for (int round = 0; round < rounds; ++round) {
        for (int put = 0; put < count; ++put) {
            unsigned char* const source = outbox + put * room + (kinds[put] == 'u' ? 5 : 0);
            for_each_thread(bytes, [&](std::size_t i) { source[i] = content(i, put, rank, round); });
        }
        for (int put = 0; put < count; ++put) {
            const unsigned char* const source = outbox + put * room + (kinds[put] == 'u' ? 5 : 0);
            self.put(win, next, begin(put), size(put), source + begin(put));
        }
        self.notify(next, dcuda::world, 1);
        self.wait_notifications(1, 1);
        for_each_thread(bytes, [&](std::size_t i) {
            int last = count - 1;
            while (i < begin(last) || i >= begin(last) + size(last)) --last;
            EXPECT_SAME(inbox[i], content(i, last, previous, round));
        });
        self.notify(previous, dcuda::world, 2);
        self.wait_notifications(2, 1);
    }
    self.free_window(win);
}

TEST_F(Copy, TheLaterOfTwoPutsWins) {
    constexpr std::size_t bytes = 30'000;
    constexpr int most_puts = 6;
    const device_vector<unsigned char> memory(2 * (most_puts + 1) * (bytes + 16));
    for (const std::string kinds : {"ll", "lu", "ul", "ls", "us", "le", "el", "lee", "lsesul"}) {
        SCOPED_TRACE(kinds);
        const device_vector<char> device_kinds(std::vector<char>(kinds.begin(), kinds.end()));
        for (const auto& staging : stagings)
            check(overwritten, staged(2, 64, staging), memory.get(), bytes,
                  static_cast<const char*>(device_kinds.get()), static_cast<int>(kinds.size()), 5);
    }
}

// --- what tells of a copy ---

// After a plain put, what tells of it: a notification of its own, a flush, a barrier, or the end of the kernel.
enum class teller { notification, flush, barrier, end };

__global__ void plain_puts(dcuda::context context, findings* found, unsigned char* memory, std::size_t bytes,
                           teller how, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id();
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    unsigned char* const inbox = piece_of(memory, 2 * bytes, self);
    unsigned char* const outbox = inbox + bytes;
    const dcuda::window win = self.create_window(dcuda::world, inbox, bytes);
    for (int round = 0; round < rounds; ++round) {
        for_each_thread(bytes, [&](std::size_t i) { outbox[i] = pattern(i, rank + 100 * round); });
        self.put(win, next, 0, bytes, outbox);
        if (how == teller::end) break;
        if (how == teller::flush) {
            // The source may change at once.
            self.flush(win);
            for_each_thread(bytes, [&](std::size_t i) { outbox[i] = 0; });
        }
        if (how == teller::barrier)
            self.barrier(dcuda::world);
        else {
            self.notify(next, dcuda::world, 1);
            self.wait_notifications(1, 1);
        }
        for_each_thread(bytes, [&](std::size_t i) { EXPECT_SAME(inbox[i], pattern(i, previous + 100 * round)); });
        self.barrier(dcuda::world);
    }
}

TEST_F(Copy, PlainPutsAreToldOf) {
    constexpr std::size_t bytes = 150'000;
    const device_vector<unsigned char> memory(2 * 2 * bytes);
    for (const auto& staging : stagings)
        for (const teller how : {teller::notification, teller::flush, teller::barrier, teller::end}) {
            SCOPED_TRACE(static_cast<int>(how));
            check(plain_puts, staged(2, 128, staging), memory.get(), bytes, how, 5);
        }
    // The last was `end`: the host sees what the ranks of this process got.
    const auto content = memory.read();
    const int first = job().info().rank_start, ranks = job().info().rank_count;
    for (int local = 0; local < 2; ++local)
        for (std::size_t i = 0; i < bytes; ++i) {
            const int previous = (first + local + ranks - 1) % ranks;
            ASSERT_EQ(content[2 * bytes * static_cast<std::size_t>(local) + i],
                      pattern(i, static_cast<std::uint64_t>(previous)))
                << "rank " << first + local << ", byte " << i;
        }
}

// --- where sources come from ---

// A token runs around the ring, each rank passing on the very memory that it got it in, changed in one byte by a thread
// of its own: what others wrote by the engine and what this rank wrote by words is read by the engine again.
__global__ void passed_on(dcuda::context context, findings* found, unsigned char* memory, std::size_t bytes, int laps) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id(), next = (rank + 1) % ranks;
    unsigned char* const inbox = piece_of(memory, bytes, self);
    const dcuda::window win = self.create_window(dcuda::world, inbox, bytes);
    if (rank == 0) for_each_thread(bytes, [&](std::size_t i) { inbox[i] = pattern(i, 0); });
    for (int lap = 0; lap < laps; ++lap) {
        if (rank != 0 || lap > 0) self.wait_notifications(1, 1);
        for_each_thread(bytes, [&](std::size_t i) {
            if (i % 997 == static_cast<std::size_t>(lap * ranks + rank) % 997)
                inbox[i] = static_cast<unsigned char>(inbox[i] + 1);
        });
        self.put_notify(win, next, 0, bytes, inbox, 1);
    }
    if (rank == 0) {
        self.wait_notifications(1, 1);
        const auto hops = static_cast<std::size_t>(laps * ranks);
        for_each_thread(bytes, [&](std::size_t i) {
            const std::size_t changes = (hops + 996 - i % 997) / 997; // hops h with h % 997 == i % 997
            EXPECT_SAME(inbox[i], (pattern(i, 0) + changes) % 256);
        });
    }
    self.free_window(win);
}

TEST_F(Copy, ATokenIsPassedOn) {
    constexpr std::size_t bytes = 40'000;
    const device_vector<unsigned char> memory(3 * bytes);
    for (const auto& staging : stagings) check(passed_on, staged(3, 64, staging), memory.get(), bytes, 10);
}

// The user's dynamic shared memory, of any size, is a source, and stays as it is.
__global__ void from_shared_memory(dcuda::context context, findings* found, unsigned char* memory, std::size_t bytes,
                                   std::size_t large) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id();
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    unsigned char* const inbox = piece_of(memory, bytes + 2 * large, self);
    unsigned char* const outbox = inbox + bytes + large;
    auto* const shared = dcuda::dynamic_shared<unsigned char>();
    const dcuda::window win = self.create_window(dcuda::world, inbox, bytes + large);
    for_each_thread(bytes, [&](std::size_t i) { shared[i] = pattern(i, rank); });
    for_each_thread(large, [&](std::size_t i) { outbox[i] = pattern(i, rank + 7); });
    self.put(win, next, bytes, large, outbox);
    self.put_notify(win, next, 0, bytes, shared, 1);
    self.wait_notifications(1, 1);
    for_each_thread(bytes, [&](std::size_t i) {
        EXPECT_SAME(shared[i], pattern(i, rank));
        EXPECT_SAME(inbox[i], pattern(i, previous));
    });
    for_each_thread(large, [&](std::size_t i) { EXPECT_SAME(inbox[bytes + i], pattern(i, previous + 7)); });
    self.free_window(win);
}

TEST_F(Copy, SharedMemoryIsASource) {
    constexpr std::size_t large = 40'000;
    for (const std::size_t bytes : {16u, 1000u, 20'000u, 99'984u}) {
        const device_vector<unsigned char> memory(2 * (bytes + 2 * large));
        for (const auto& staging : {stagings[0], stagings[1]})
            check(from_shared_memory, staged(2, 64, staging, bytes), memory.get(), bytes, large);
    }
}

// --- staging and the number of ranks ---

TEST_F(Copy, StagingTakesNoRanks) {
    for (const std::size_t shared_bytes : {std::size_t(0), std::size_t(1000), std::size_t(50'000)}) {
        const int without = job().plan(passed_on, staged(0, 64, 0, shared_bytes)).rank_responsible;
        for (const auto& staging : stagings)
            EXPECT_EQ(job().plan(passed_on, staged(0, 64, staging, shared_bytes)).rank_responsible, without);
        EXPECT_EQ(job().plan(passed_on, staged(0, 64, 1'000'000, shared_bytes)).rank_responsible, without);
    }
}

// As many ranks as fit, with and without shared memory of their own, and with all that there is asked for staging.
TEST_F(Copy, AllRanks) {
    constexpr std::size_t bytes = 20'000;
    for (const std::size_t shared_bytes : {std::size_t(0), std::size_t(5000)})
        for (const std::optional<std::size_t> staging : {stagings[0], std::optional<std::size_t>(1'000'000)}) {
            const dcuda::launch_config config = staged(0, 128, staging, shared_bytes);
            const auto ranks = static_cast<std::size_t>(job().plan(plain_puts, config).rank_responsible);
            const device_vector<unsigned char> memory(ranks * 2 * bytes);
            check(plain_puts, config, memory.get(), bytes, teller::barrier, 2);
        }
}

// --- the end of a run that failed ---

__global__ void put_beyond(dcuda::context context, unsigned char* memory, std::size_t bytes) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    unsigned char* const inbox = piece_of(memory, 2 * bytes, self);
    const dcuda::window win = self.create_window(dcuda::world, inbox, bytes);
    const int next = (self.id() + 1) % self.size();
    self.put(win, next, 0, bytes, inbox + bytes);
    if (self.id() == 0) self.put(win, next, 16, bytes, inbox + bytes);
    self.wait_notifications(1, 1);
}

TEST_F(Copy, AFaultMayFollowALargePut) {
    constexpr std::size_t bytes = 100'000;
    const device_vector<unsigned char> memory(2 * 2 * bytes);
    EXPECT_THROW(job().run(put_beyond, staged(2, 128), memory.get(), bytes), dcuda::error);
    end_job();
}

} // namespace
