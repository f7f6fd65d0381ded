// SPDX-License-Identifier: BSD-3-Clause
// What is special where ranks reach each other over a network only: sizes around the limits of the ways that a message
// can take, memory and sources of any kind, order and completeness over several ways, and more than the rings hold.
#include "device_test.hpp"

#include <algorithm>
#include <functional>

using namespace dcuda::test;

namespace {

constexpr unsigned char untouched = 0xee;

class Network : public device_test {
protected:
    // Every process of the job, whatever it was started with.
    static void SetUpTestSuite() {
        setenv("DCUDA_DISABLE_PEER", "1", 1);
        device_test::SetUpTestSuite();
    }
    static std::size_t ring_bytes() {
        const char* const chosen = std::getenv("DCUDA_NETWORK_RING_BYTES");
        return chosen != nullptr ? std::strtoul(chosen, nullptr, 10) : 2u << 20;
    }
};

// ---- sizes ----------------------------------------------------------------------------------------------------------

// A message of each size around the ring of ranks. Source and target are skewed against each other.
__global__ void sized(dcuda::context context, findings* found, unsigned char* memory, std::size_t most_bytes,
                      const std::uint64_t* sizes, int count) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id();
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    constexpr std::size_t margin = 16;
    const std::size_t room = most_bytes + 2 * margin;
    unsigned char* const inbox = piece_of(memory, 2 * room, self);
    unsigned char* const outbox = inbox + room;
    const dcuda::window win = self.create_window(dcuda::world, inbox, room);
    for (int i = 0; i < count; ++i) {
        const std::size_t bytes = sizes[i], begin = margin + i % 3, from = i % 5;
        for_each_thread(bytes + 2 * margin, [&](std::size_t at) { inbox[at] = untouched; });
        for_each_thread(bytes, [&](std::size_t at) { outbox[from + at] = pattern(at, 100 * i + rank); });
        self.notify(previous, dcuda::world, 1);
        self.wait_notifications(1, 1);
        self.put_notify(win, next, begin, bytes, outbox + from, 2);
        self.wait_notifications(2, 1);
        for_each_thread(bytes + 2 * margin, [&](std::size_t at) {
            EXPECT_SAME(inbox[at],
                        at < begin || at >= begin + bytes ? untouched : pattern(at - begin, 100 * i + previous));
        });
        self.flush(win);
    }
    self.free_window(win);
}

TEST_F(Network, EverySize) {
    // In order: packets and messages of 8 bytes, commands, what comes in packets, the default of
    // DCUDA_NETWORK_INLINE_BYTES, what the ring of commands takes at once, then parts of a ring of the connection: an
    // eighth without the headers, and all of it.
    std::vector<std::uint64_t> sizes{0,      1,      7,      8,      16,     17,     63,     64,     65,   735,
                                     736,    737,    1000,   4095,   4096,   4097,   8191,   8192,   8193, 9001,
                                     16'383, 16'384, 16'385, 32'767, 32'768, 32'769, 65'537, 100'001};
    const std::size_t chunk = (ring_bytes() / 8 - 64) / 64 * 64;
    for (const std::size_t near : {chunk, 2 * chunk, ring_bytes() / 8, 8 * chunk, ring_bytes()})
        for (const std::size_t bytes : {near - 1, near, near + 1, near + 64}) sizes.push_back(bytes);
    const std::size_t most = *std::max_element(sizes.begin(), sizes.end());
    const device_vector<std::uint64_t> device_sizes(sizes);
    const device_vector<unsigned char> memory(2 * (most + 32));
    check(sized, shape(1, dim3(32)), memory.get(), most, static_cast<const std::uint64_t*>(device_sizes.get()),
          static_cast<int>(sizes.size()));
}

TEST_F(Network, SixtyFourMebibytes) {
    constexpr std::size_t bytes = std::size_t(64) << 20;
    const device_vector<std::uint64_t> sizes(std::vector<std::uint64_t>{bytes});
    const device_vector<unsigned char> memory(2 * (bytes + 32));
    check(sized, shape(1, dim3(64)), memory.get(), bytes, static_cast<const std::uint64_t*>(sizes.get()), 1);
}

// ---- memory ---------------------------------------------------------------------------------------------------------

__global__ void into_any_memory(dcuda::context context, findings* found, unsigned char* memory, std::size_t bytes) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id();
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    unsigned char* const inbox = piece_of(memory, 2 * bytes, self);
    unsigned char* const outbox = inbox + bytes;
    const dcuda::window win = self.create_window(dcuda::world, inbox, bytes);
    for_each_thread(bytes, [&](std::size_t i) { outbox[i] = pattern(i, rank); });
    self.put(win, next, 0, 100, outbox);
    self.put_notify(win, next, 100, bytes - 100, outbox + 100, 1);
    self.wait_notifications(1, 1);
    for_each_thread(bytes, [&](std::size_t i) { EXPECT_SAME(inbox[i], pattern(i, previous)); });
    self.free_window(win);
}

// Nobody maps the memory, so it need not be cudaMalloc's.
TEST_F(Network, AnyMemoryIsAWindow) {
    constexpr std::size_t bytes = 50'000;
    using freeing = std::unique_ptr<unsigned char, std::function<void(unsigned char*)>>;
    unsigned char *managed = nullptr, *pinned = nullptr;
    require_cuda(cudaMallocManaged(&managed, 2 * 2 * bytes));
    const freeing managed_memory(managed, [](unsigned char* memory) { cudaFree(memory); });
    require_cuda(cudaMallocHost(&pinned, 2 * 2 * bytes));
    const freeing pinned_memory(pinned, [](unsigned char* memory) { cudaFreeHost(memory); });
    check(into_any_memory, shape(2), managed, bytes);
    check(into_any_memory, shape(2), pinned, bytes);
#if !DCUDA_BACKEND_CUDA
    std::vector<unsigned char> plain(2 * 2 * bytes);
    check(into_any_memory, shape(2), plain.data(), bytes);
#endif
}

// The host cannot read it on a GPU. It may change after a flush, as any source.
__global__ void from_shared_memory(dcuda::context context, findings* found, unsigned char* memory, std::size_t bytes,
                                   int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id();
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    unsigned char* const inbox = piece_of(memory, rounds * bytes, self);
    auto* const shared = dcuda::dynamic_shared<unsigned char>();
    const dcuda::window win = self.create_window(dcuda::world, inbox, rounds * bytes);
    for (int round = 0; round < rounds; ++round) {
        for_each_thread(bytes, [&](std::size_t i) { shared[i] = pattern(i, 100 * round + rank); });
        self.put_notify(win, next, round * bytes, bytes, shared, 1);
        self.flush(win);
        for_each_thread(bytes, [&](std::size_t i) { EXPECT_SAME(shared[i], pattern(i, 100 * round + rank)); });
    }
    self.wait_notifications(1, rounds);
    for (int round = 0; round < rounds; ++round)
        for_each_thread(
            bytes, [&](std::size_t i) { EXPECT_SAME(inbox[round * bytes + i], pattern(i, 100 * round + previous)); });
    self.free_window(win);
}

TEST_F(Network, SharedMemoryIsASource) {
    constexpr int rounds = 5;
    for (const std::size_t bytes : {4097u, 8192u, 8193u, 40'000u}) {
        SCOPED_TRACE(bytes);
        const device_vector<unsigned char> memory(2 * rounds * bytes);
        check(from_shared_memory, shape(2, dim3(32), bytes), memory.get(), bytes, rounds);
    }
}

// ---- random messages ------------------------------------------------------------------------------------------------

// Each source has a region of its own in each window, and its messages fall on each other there: which bytes remain
// says whether they came in order.
constexpr std::size_t region = 48 * 1024, pool = 64 * 1024;
constexpr int traffic_tags = 7, done_tag = traffic_tags;

struct message {
    int target, tag; // tag -1: a put alone
    std::size_t bytes, place, source;
};

// The numbers are the same everywhere: ranks know what others send.
DCUDA_HOST_DEVICE std::uint64_t random(std::uint64_t& stream) {
    stream += 0x9e3779b97f4a7c15u;
    std::uint64_t x = stream;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

DCUDA_HOST_DEVICE message message_of(std::uint64_t seed, int source, int index, int ranks) {
    std::uint64_t stream = seed * 1'000'003 + static_cast<std::uint64_t>(source) * 100'003 + index * 7919u;
    message now{};
    now.target = static_cast<int>(random(stream) % ranks);
    now.tag = static_cast<int>(random(stream) % (traffic_tags + 3)) - 3;
    if (now.tag < 0) now.tag = -1;
    const std::uint64_t limits[] = {1, 20, 200, 200, 4100, 8200, 8200, region};
    now.bytes = random(stream) % limits[random(stream) % 8];
    now.place = random(stream) % (region - now.bytes);
    now.source = random(stream) % (pool - now.bytes);
    return now;
}

__global__ void random_messages(dcuda::context context, findings* found, unsigned char* windows, unsigned char* pools,
                                const int* expected, std::uint64_t seed, int count) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id();
    unsigned char* const inbox = piece_of(windows, region * ranks, self);
    unsigned char* const outbox = piece_of(pools, pool, self);
    for_each_thread(region * ranks, [&](std::size_t i) { inbox[i] = untouched; });
    for_each_thread(pool, [&](std::size_t i) { outbox[i] = pattern(i, rank); });
    const dcuda::window win = self.create_window(dcuda::world, inbox, region * ranks);
    for (int i = 0; i < count; ++i) {
        const message now = message_of(seed, rank, i, ranks);
        const std::size_t place = region * rank + now.place;
        if (now.tag < 0)
            self.put(win, now.target, place, now.bytes, outbox + now.source);
        else
            self.put_notify(win, now.target, place, now.bytes, outbox + now.source, now.tag);
    }
    for (int i = 1; i <= ranks; ++i) self.notify((rank + i) % ranks, dcuda::world, done_tag);
    self.wait_notifications(done_tag, ranks);
    for (int tag = 0; tag < traffic_tags; ++tag)
        self.wait_notifications(tag, expected[self.id(dcuda::device) * traffic_tags + tag]);
    self.barrier(dcuda::world);
    for (int tag = 0; tag <= done_tag; ++tag) EXPECT_SAME(self.test_notifications(tag, 1), false);
    self.free_window(win);
}

class Traffic : public Network {
protected:
    void run_seed(std::uint64_t seed, int ranks_per_device, int count) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        const dcuda::rank_info info = job().plan(random_messages, shape(ranks_per_device));
        const int ranks = info.rank_count, first = info.rank_start;
        const std::size_t window = region * static_cast<std::size_t>(ranks);
        std::vector<int> counts(static_cast<std::size_t>(ranks_per_device) * traffic_tags);
        std::vector<unsigned char> images(window * static_cast<std::size_t>(ranks_per_device), untouched);
        for (int source = 0; source < ranks; ++source)
            for (int i = 0; i < count; ++i) {
                const message now = message_of(seed, source, i, ranks);
                const int local = now.target - first;
                if (local < 0 || local >= ranks_per_device) continue;
                if (now.tag >= 0) ++counts[static_cast<std::size_t>(local * traffic_tags + now.tag)];
                unsigned char* const place = images.data() + window * static_cast<std::size_t>(local) +
                                             region * static_cast<std::size_t>(source) + now.place;
                for (std::size_t byte = 0; byte < now.bytes; ++byte)
                    place[byte] = pattern(now.source + byte, static_cast<std::uint64_t>(source));
            }
        const device_vector<unsigned char> windows(images.size()),
            pools(pool * static_cast<std::size_t>(ranks_per_device));
        const device_vector<int> expected(counts);
        check(random_messages, shape(ranks_per_device), windows.get(), pools.get(),
              static_cast<const int*>(expected.get()), seed, count);
        const std::vector<unsigned char> seen = windows.read();
        const auto wrong = std::mismatch(seen.begin(), seen.end(), images.begin());
        EXPECT_TRUE(wrong.first == seen.end())
            << "byte " << wrong.first - seen.begin() << " of the windows, of " << window << " B each";
    }
};

TEST_F(Traffic, RandomMessages) {
    if (const char* const chosen = std::getenv("DCUDA_TEST_SEED"))
        return run_seed(std::strtoull(chosen, nullptr, 10), 2, 3000);
    run_seed(1, 1, 3000);
    run_seed(2, 2, 3000);
    run_seed(3, 5, 800);
}

// All ranks send more than all queues hold before anybody takes anything: nothing is lost.
TEST_F(Traffic, MoreThanTheRingsHold) { run_seed(4, 8, 1000); }

// ---- order and completeness -----------------------------------------------------------------------------------------

// Puts to one place, by every way that a put can take, some of them with notifications that nobody looks at yet; then
// one notification, which releases all. kinds: l large, m more than the inline limit, s small; in capitals with
// notification. The large ones cover all, the others only its middle.
__global__ void overwritten(dcuda::context context, findings* found, unsigned char* memory, std::size_t bytes,
                            const char* kinds, int count, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id();
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    unsigned char* const inbox = piece_of(memory, (count + 1) * bytes, self);
    const dcuda::window win = self.create_window(dcuda::world, inbox, bytes);
    const auto is_notified = [&](int put) { return kinds[put] < 'a'; };
    const auto size = [&](int put) {
        const char kind = static_cast<char>(kinds[put] | 0x20);
        return kind == 'l' ? bytes : kind == 'm' ? std::size_t(6000) : std::size_t(36);
    };
    const auto begin = [&](int put) { return size(put) == bytes ? 0 : bytes / 2; };
    int notified = 0;
    for (int put = 0; put < count; ++put) notified += is_notified(put) ? 1 : 0;
    for (int round = 0; round < rounds; ++round) {
        const auto seed = [&](int put, int source) { return 10'000 * source + 100 * put + round; };
        for (int put = 0; put < count; ++put) {
            unsigned char* const source = inbox + (put + 1) * bytes;
            for_each_thread(bytes, [&](std::size_t i) { source[i] = pattern(i, seed(put, rank)); });
        }
        for (int put = 0; put < count; ++put) {
            const unsigned char* const source = inbox + (put + 1) * bytes + begin(put);
            if (is_notified(put))
                self.put_notify(win, next, begin(put), size(put), source, 2);
            else
                self.put(win, next, begin(put), size(put), source);
        }
        self.notify(next, dcuda::world, 1);
        self.wait_notifications(1, 1);
        for_each_thread(bytes, [&](std::size_t i) {
            int last = count - 1;
            while (i < begin(last) || i >= begin(last) + size(last)) --last;
            EXPECT_SAME(inbox[i], pattern(i, seed(last, previous)));
        });
        EXPECT_SAME(self.test_notifications(2, notified), true);
        self.notify(previous, dcuda::world, 3);
        self.wait_notifications(3, 1);
    }
    self.free_window(win);
}

TEST_F(Network, TheLastOfManyPutsWins) {
    constexpr std::size_t bytes = 100'000;
    constexpr std::size_t most_puts = 7;
    const device_vector<unsigned char> memory(2 * (most_puts + 1) * bytes);
    for (const std::string kinds : {"ls", "lS", "Ls", "LS", "lm", "lMs", "lsl", "lSL", "lsmSMlL", "LmMsSms"}) {
        SCOPED_TRACE(kinds);
        const device_vector<char> device_kinds(std::vector<char>(kinds.begin(), kinds.end()));
        check(overwritten, shape(2), memory.get(), bytes, static_cast<const char*>(device_kinds.get()),
              static_cast<int>(kinds.size()), 4);
    }
}

// After a flush the source changes at once, and a third rank, which knows of the flush only, tells the target.
__global__ void told_by_another(dcuda::context context, findings* found, unsigned char* memory, std::size_t bytes,
                                int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id();
    const auto other = [&](int distance) { return (rank + distance + ranks) % ranks; };
    unsigned char* const inbox = piece_of(memory, 2 * bytes, self);
    unsigned char* const outbox = inbox + bytes;
    const dcuda::window win = self.create_window(dcuda::world, inbox, bytes);
    for (int round = 0; round < rounds; ++round) {
        for_each_thread(bytes, [&](std::size_t i) { outbox[i] = pattern(i, 100 * round + rank); });
        self.put(win, other(1), 0, bytes, outbox);
        self.flush(win);
        for_each_thread(bytes, [&](std::size_t i) { outbox[i] = untouched; });
        self.notify(other(2), dcuda::world, 1); // the next one's neighbour
        self.wait_notifications(1, 1);
        self.notify(other(-1), dcuda::world, 2);
        self.wait_notifications(2, 1);
        for_each_thread(bytes, [&](std::size_t i) { EXPECT_SAME(inbox[i], pattern(i, 100 * round + other(-1))); });
        self.barrier(dcuda::world);
    }
    self.free_window(win);
}

TEST_F(Network, AFlushCompletesPuts) {
    for (const std::size_t bytes : {36u, 5000u, 8192u, 500'000u}) {
        SCOPED_TRACE(bytes);
        const device_vector<unsigned char> memory(3 * 2 * bytes);
        check(told_by_another, shape(3), memory.get(), bytes, 6);
    }
}

// A barrier of the device completes what its ranks have put and got: another one of them reads it there, and overwrites
// it.
__global__ void meet_on_device(dcuda::context context, findings* found, unsigned char* memory, std::size_t bytes,
                               int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(dcuda::device), next_device = (self.id() + ranks) % self.size();
    const int target = next_device - next_device % ranks; // its first rank
    const bool is_first = self.id(dcuda::device) == 0;
    unsigned char* const inbox = piece_of(memory, 2 * bytes, self);
    unsigned char* const outbox = inbox + bytes;
    const dcuda::window win = self.create_window(dcuda::world, inbox, bytes);
    for (int round = 0; round < rounds; ++round) {
        if (is_first) {
            for_each_thread(bytes, [&](std::size_t i) { outbox[i] = pattern(i, round); });
            self.put(win, target, 0, bytes, outbox);
        }
        self.barrier(dcuda::device);
        if (!is_first) {
            self.get(win, target, bytes - 8, 8, outbox);
            self.flush(win);
            for_each_thread(8, [&](std::size_t i) { EXPECT_SAME(outbox[i], pattern(bytes - 8 + i, round)); });
        }
        self.barrier(dcuda::device);
        if (is_first) self.get(win, target, 0, bytes, outbox);
        self.barrier(dcuda::device);
        if (!is_first && self.id(dcuda::device) == 1) {
            for_each_thread(8, [&](std::size_t i) { outbox[i] = untouched; });
            self.put(win, target, bytes - 8, 8, outbox);
        }
        if (is_first) for_each_thread(bytes, [&](std::size_t i) { EXPECT_SAME(outbox[i], pattern(i, round)); });
        self.barrier(dcuda::world);
        if (is_first) for_each_thread(8, [&](std::size_t i) { EXPECT_SAME(inbox[bytes - 8 + i], untouched); });
        self.barrier(dcuda::world);
    }
    self.free_window(win);
}

TEST_F(Network, ABarrierOfTheDeviceCompletesPutsAndGets) {
    for (const std::size_t bytes : {36u, 5000u, 20'000u, 1'000'000u}) {
        SCOPED_TRACE(bytes);
        const device_vector<unsigned char> memory(3 * 2 * bytes);
        check(meet_on_device, shape(3), memory.get(), bytes, 6);
    }
}

// ---- windows --------------------------------------------------------------------------------------------------------

// Several at a time, over pieces of one memory and on both communicators; some are closed and opened anew elsewhere.
__global__ void several_windows(dcuda::context context, findings* found, unsigned char* memory, std::size_t bytes,
                                int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    constexpr int count = 4;
    unsigned char* const inbox = piece_of(memory, 2 * count * bytes, self);
    unsigned char* const outbox = inbox + count * bytes;
    for_each_thread(count * bytes, [&](std::size_t i) { outbox[i] = pattern(i, self.id()); });
    for (int round = 0; round < rounds; ++round) {
        const auto place = [&](int i) { return inbox + (i + round) % count * bytes; };
        const auto comm = [](int i) { return i == 1 ? dcuda::device : dcuda::world; };
        dcuda::window windows[count];
        for (int i = 0; i < count; ++i) windows[i] = self.create_window(comm(i), place(i), bytes);
        for (int i = count - 1; i >= 0; --i) {
            const int next = (self.id(comm(i)) + 1) % self.size(comm(i));
            self.put_notify(windows[i], next, i, bytes - i, outbox + i * bytes, i);
        }
        for (int i = 0; i < count; ++i) {
            const int ranks = self.size(comm(i)), first = self.id() - self.id(comm(i));
            const int previous = first + (self.id(comm(i)) + ranks - 1) % ranks;
            self.wait_notifications(i, 1);
            for_each_thread(bytes - i,
                            [&](std::size_t at) { EXPECT_SAME(place(i)[i + at], pattern(i * bytes + at, previous)); });
        }
        for (const dcuda::window each : windows) self.free_window(each);
    }
}

TEST_F(Network, SeveralWindows) {
    for (const std::size_t bytes : {100u, 20'000u}) {
        const device_vector<unsigned char> memory(2 * 2 * 4 * bytes);
        check(several_windows, shape(2), memory.get(), bytes, 6);
    }
}

} // namespace
