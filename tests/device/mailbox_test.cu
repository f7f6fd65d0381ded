// SPDX-License-Identifier: BSD-3-Clause
// Small puts and notifications by message, and beside them all that goes other ways: what arrives, in which order, and
// that nobody waits for ever. Everything runs with mailboxes of several sizes and without any: the results are the
// same.
#include "notification_lists.hpp"

using namespace dcuda::test;

namespace {

struct mailbox_settings {
    const char* name;
    const char* packets;          // DCUDA_MAILBOX_PACKETS
    const char* small_put_bytes;  // DCUDA_SMALL_PUT_BYTES
    const char* counter_start;    // DCUDA_COUNTER_START
    const char* queues = nullptr; // DCUDA_MAILBOX_QUEUES
};

void PrintTo(const mailbox_settings& settings, std::ostream* out) { *out << settings.name; }

// A null setting is not made.
constexpr mailbox_settings all_settings[] = {
    {"LongRing", "1024", nullptr, nullptr},     {"NoMail", "0", nullptr, nullptr},
    {"RingOf8", "8", nullptr, nullptr},         {"RingOf16", "16", nullptr, nullptr},
    {"OnlyNotifications", "64", "0", nullptr},  {"AcrossTheEnd", "8", nullptr, "4294967280"},
    {"FewQueues", "16", nullptr, nullptr, "5"},
};

class Mailbox : public device_test, public testing::WithParamInterface<mailbox_settings> {
protected:
    void SetUp() override {
        set("DCUDA_MAILBOX_PACKETS", GetParam().packets);
        set("DCUDA_SMALL_PUT_BYTES", GetParam().small_put_bytes);
        set("DCUDA_COUNTER_START", GetParam().counter_start);
        set("DCUDA_MAILBOX_QUEUES", GetParam().queues);
    }
    void TearDown() override {
        for (const char* variable :
             {"DCUDA_MAILBOX_PACKETS", "DCUDA_SMALL_PUT_BYTES", "DCUDA_COUNTER_START", "DCUDA_MAILBOX_QUEUES"})
            unsetenv(variable);
    }

    // Ranks of a device, so that all devices together have at least that many.
    int share_of(int all) { return (all + processes() - 1) / processes(); }
    int processes() { return job().info().process_count; }

private:
    static void set(const char* variable, const char* value) {
        if (value != nullptr) setenv(variable, value, 1);
    }
};

INSTANTIATE_TEST_SUITE_P(, Mailbox, testing::ValuesIn(all_settings),
                         [](const auto& instance) { return std::string(instance.param.name); });

// --- sizes and alignments ---

constexpr std::size_t largest_size = 1200, slot_bytes = 1224, slab_bytes = (largest_size + 1) * slot_bytes;
constexpr unsigned char background = 0xee;

// Rank 0 sends every size from and to every place within a word; the bytes around must stay.
__global__ void every_size(dcuda::context context, findings* found, unsigned char* memory) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int target = self.size() - 1;
    const bool is_target = self.id() == target;
    unsigned char *const slab = memory, *const source = memory + slab_bytes;
    const dcuda::window win = self.create_window(dcuda::world, is_target ? slab : nullptr, is_target ? slab_bytes : 0);
    for (std::size_t turn = 0; turn < 8; turn += few_addresses ? 3 : 1) {
        const std::size_t destination = turn % 4, from = (3 * turn + turn / 4) % 4;
        if (is_target) {
            for_each_thread(slab_bytes, [&](std::size_t i) { slab[i] = background; });
            self.notify(0, dcuda::world, 0);
        }
        if (self.id() == 0) {
            self.wait_notifications(0, 1);
            for_each_thread(slot_bytes, [&](std::size_t i) { source[i] = pattern(i, turn); });
            for (std::size_t size = 0; size <= largest_size; ++size)
                self.put_notify(win, target, size * slot_bytes + destination, size, source + from, 1);
        }
        if (!is_target) continue;
        self.wait_notifications(1, largest_size + 1);
        for_each_thread(slab_bytes, [&](std::size_t i) {
            const std::size_t size = i / slot_bytes, place = i % slot_bytes;
            const bool inside = place >= destination && place < destination + size;
            EXPECT_SAME(slab[i], inside ? pattern(place - destination + from, turn) : background);
        });
    }
    self.free_window(win);
}

TEST_P(Mailbox, EverySize) {
    const device_vector<unsigned char> memory(slab_bytes + slot_bytes);
    check(every_size, shape(2, dim3(64)), memory.get());
}

// Larger ones, up to what goes straight, by all threads.
constexpr int large_sizes = 81;
constexpr std::size_t large_step = 37, large_slot = 1200 + large_sizes * large_step + 8;

__global__ void large_puts(dcuda::context context, findings* found, unsigned char* memory) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int target = self.size() - 1;
    const bool is_target = self.id() == target;
    unsigned char *const slab = memory, *const source = memory + large_sizes * large_slot;
    const dcuda::window win =
        self.create_window(dcuda::world, is_target ? slab : nullptr, is_target ? large_sizes * large_slot : 0);
    for (std::size_t turn = 0; turn < 3; ++turn) { // words, words that lie otherwise, bytes
        const std::size_t destination = turn, from = turn == 0 ? 4 : 1, step = turn == 0 ? 36 : large_step;
        if (is_target) {
            for_each_thread(large_sizes * large_slot, [&](std::size_t i) { slab[i] = background; });
            self.notify(0, dcuda::world, 0);
        }
        if (self.id() == 0) {
            self.wait_notifications(0, 1);
            for_each_thread(large_slot, [&](std::size_t i) { source[i] = pattern(i, turn); });
            for (int number = 0; number < large_sizes; ++number)
                self.put_notify(win, target, number * large_slot + destination, 1200 + number * step, source + from, 1);
        }
        if (!is_target) continue;
        self.wait_notifications(1, large_sizes);
        for_each_thread(large_sizes * large_slot, [&](std::size_t i) {
            const std::size_t size = 1200 + i / large_slot * step, place = i % large_slot;
            const bool inside = place >= destination && place < destination + size;
            EXPECT_SAME(slab[i], inside ? pattern(place - destination + from, turn) : background);
        });
    }
    self.free_window(win);
}

TEST_P(Mailbox, LargerSizes) {
    const device_vector<unsigned char> memory((large_sizes + 1) * large_slot);
    check(large_puts, shape(2, dim3(128)), memory.get());
}

// --- many sources, many targets ---

// More sources than a mailbox has queues. Every notification releases its own word.
__global__ void many_sources(dcuda::context context, findings* found, unsigned* inbox, unsigned* outboxes, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id();
    unsigned* const outbox = piece_of(outboxes, rounds, self);
    const std::size_t bytes = sizeof(unsigned) * static_cast<std::size_t>(ranks * rounds);
    const dcuda::window win = self.create_window(dcuda::world, rank == 0 ? inbox : nullptr, rank == 0 ? bytes : 0);
    for_each_thread(rounds, [&](std::size_t i) { outbox[i] = 1000 * rank + static_cast<unsigned>(i) + 1; });
    for (int round = 0; round < rounds; ++round)
        self.put_notify(win, 0, (rank * rounds + round) * sizeof(unsigned), sizeof(unsigned), outbox + round, 1 + rank);
    for (int round = 0; round < rounds && rank == 0; ++round)
        for (int source = ranks; source-- > 0;) {
            self.wait_notifications(1 + source, 1);
            EXPECT_SAME(inbox[source * rounds + round], 1000 * source + round + 1);
        }
    self.barrier(dcuda::world);
    for (int source = 0; source < ranks; ++source) EXPECT_SAME(self.test_notifications(1 + source, 1), false);
    self.free_window(win);
}

TEST_P(Mailbox, MoreSourcesThanQueues) {
    const int ranks = share_of(20), rounds = 40;
    const device_vector<unsigned> inbox(ranks * rounds * processes()), outboxes(ranks * rounds);
    check(many_sources, shape(ranks), inbox.get(), outboxes.get(), rounds);
}

// More targets than a rank has links, three kinds of messages; all answer.
__global__ void many_targets(dcuda::context context, findings* found, unsigned* memory, unsigned* outbox, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    constexpr unsigned words = 8;
    const int ranks = self.size(), rank = self.id();
    unsigned* const inbox = piece_of(memory, words, self);
    const dcuda::window win = self.create_window(dcuda::world, inbox, words * sizeof(unsigned));
    for (int round = 0; round < rounds; ++round) {
        if (rank == 0)
            for_each_thread(words * ranks, [&](std::size_t i) { outbox[i] = 1000 * round + static_cast<unsigned>(i); });
        for (int i = 0; i < ranks && rank == 0; ++i) {
            const int target = (37 * i + round) % ranks;
            const unsigned* const source = outbox + words * target;
            if ((target + round) % 3 == 0) {
                self.put(win, target, 0, words * sizeof(unsigned), source);
                self.notify(target, dcuda::world, 0);
            } else {
                self.put_notify(win, target, 0, ((target + round) % 3 == 1 ? 1 : words) * sizeof(unsigned), source, 0);
            }
        }
        self.wait_notifications(0, 1);
        for_each_thread((rank + round) % 3 == 1 ? 1 : words,
                        [&](std::size_t i) { EXPECT_SAME(inbox[i], 1000 * round + words * rank + i); });
        self.notify(0, dcuda::world, 1);
        if (rank == 0) self.wait_notifications(1, ranks);
    }
    self.free_window(win);
}

TEST_P(Mailbox, MoreTargetsThanLinks) {
    const int ranks = share_of(70);
    const device_vector<unsigned> memory(8 * ranks), outbox(8 * ranks * processes());
    check(many_targets, shape(ranks), memory.get(), outbox.get(), 4);
}

// Everybody sends to everybody, to more targets than are kept near, so what was sent to one is forgotten and looked up
// again. Each kind of round leaves something behind that must not be forgotten.
__global__ void all_to_all(dcuda::context context, findings* found, unsigned* memory, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id();
    unsigned* const inbox = piece_of(memory, ranks + 2, self);
    unsigned* const outbox = inbox + ranks;
    const dcuda::window win = self.create_window(dcuda::world, inbox, ranks * sizeof(unsigned));
    for (int round = 0; round < rounds; ++round) {
        by_one_thread([&] {
            outbox[0] = 1000 * round + rank;
            outbox[1] = 999'999;
        });
        // 0: by message. 1: all puts are direct before the first notification leaves. 2: a direct put over one by
        // message. 3: the other way round.
        const int kind = round % 4;
        for (int i = 0; i < ranks; ++i) {
            const int target = (rank + i) % ranks;
            const std::size_t place = rank * sizeof(unsigned), bytes = sizeof(unsigned);
            if (kind == 0) {
                self.put_notify(win, target, place, bytes, outbox + 1, 2);
                self.notify((target + ranks / 2) % ranks, dcuda::world, 2); // may take the place of the target
                self.put_notify(win, target, place, bytes, outbox, 2);
            }
            if (kind == 1) self.put(win, target, place, bytes, outbox);
            if (kind == 2) self.put_notify(win, target, place, bytes, outbox + 1, 2);
            if (kind == 3) self.put(win, target, place, bytes, outbox + 1);
        }
        for (int i = 0; i < ranks && kind != 0; ++i) {
            const int target = (rank + i) % ranks;
            const std::size_t place = rank * sizeof(unsigned), bytes = sizeof(unsigned);
            if (kind == 1) self.notify(target, dcuda::world, 2);
            if (kind == 2) self.put(win, target, place, bytes, outbox);
            if (kind == 2) self.notify(target, dcuda::world, 2);
            if (kind == 3) self.put_notify(win, target, place, bytes, outbox, 2);
        }
        self.wait_notifications(2, kind == 0 ? 3 * ranks : kind == 2 ? 2 * ranks : ranks);
        for_each_thread(ranks, [&](std::size_t i) { EXPECT_SAME(inbox[i], 1000 * round + i); });
        for (int target = 0; target < ranks; ++target) self.notify(target, dcuda::world, 3);
        self.wait_notifications(3, ranks);
    }
    self.free_window(win);
}

TEST_P(Mailbox, AllToAll) {
    const int ranks = share_of(30);
    const device_vector<unsigned> memory(ranks * (ranks * processes() + 2));
    check(all_to_all, shape(ranks), memory.get(), DCUDA_BACKEND_CUDA ? 8 : 5);
}

// --- bursts ---

enum class receiver : int { waits, in_barrier, in_device_barrier, in_create_window, computes, tests, sends_too };

constexpr std::size_t burst_places = 16, burst_bytes = 80, burst_side = burst_places * burst_bytes;
constexpr std::size_t burst_pool = 256, burst_memory = 2 * burst_side + burst_pool;

DCUDA_DEVICE std::size_t burst_size(int message) { return static_cast<std::size_t>(message) * 13 % 73; }

// Neighbours get many more messages than a lane holds, from both sides, whatever they do meanwhile.
__global__ void bursts(dcuda::context context, findings* found, unsigned char* memory, int count, receiver how) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id();
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    unsigned char* const inbox = piece_of(memory, burst_memory, self);
    unsigned char* const pool = inbox + 2 * burst_side;
    const dcuda::window win = self.create_window(dcuda::world, inbox, 2 * burst_side);
    for_each_thread(burst_pool, [&](std::size_t i) { pool[i] = pattern(i, rank); });
    const bool sends = how == receiver::sends_too || rank % 2 == 0, receives = how == receiver::sends_too || !sends;
    for (int i = 0; i < count && sends; ++i) {
        const std::size_t place = i % burst_places * burst_bytes + i % 5;
        self.put_notify(win, next, place, burst_size(i), pool + i % 128, 0);
        self.put_notify(win, previous, burst_side + place, burst_size(i), pool + i % 128, 0);
    }
    if (how == receiver::in_barrier) self.barrier(dcuda::world);
    if (how == receiver::in_device_barrier) self.barrier(dcuda::device);
    if (how == receiver::in_create_window) self.free_window(self.create_window(dcuda::world, inbox, 1));
    if (how == receiver::computes && receives) {
        unsigned sum = 1;
        for (unsigned i = 0; i < 100'000; ++i) sum += pattern(i, sum);
        EXPECT_SAME(sum != 0, true);
    }
    if (how == receiver::tests && receives)
        while (!self.test_notifications(0, count)) {
        }
    if (receives) self.wait_notifications(0, how == receiver::tests ? count : 2 * count);
    for_each_thread(receives ? 2 * burst_side : 0, [&](std::size_t i) {
        const int source = i < burst_side ? previous : next;
        const std::size_t place = i % burst_side / burst_bytes, byte = i % burst_bytes;
        unsigned char expected = 0;
        for (int message = count; message-- > 0;) { // the last one that wrote it
            const std::size_t start = message % 5;
            if (message % burst_places != place || byte < start || byte >= start + burst_size(message)) continue;
            expected = pattern(message % 128 + byte - start, source);
            break;
        }
        EXPECT_SAME(inbox[i], expected);
    });
    EXPECT_SAME(self.test_notifications(0, 1), false);
    self.free_window(win);
}

TEST_P(Mailbox, Bursts) {
    const device_vector<unsigned char> memory(4 * burst_memory);
    for (const receiver how : {receiver::waits, receiver::in_barrier, receiver::in_device_barrier,
                               receiver::in_create_window, receiver::computes, receiver::tests, receiver::sends_too}) {
        SCOPED_TRACE(static_cast<int>(how));
        require_cuda(cudaMemset(memory.get(), 0, memory.size()));
        // On the CPU backend a rank in other operations sleeps between two polls of its mailbox.
        const bool looks = how == receiver::waits || how == receiver::computes || how == receiver::tests;
        check(bursts, shape(4), memory.get(), looks ? 150 : 10, how);
    }
}

// --- the last one wins ---

constexpr std::size_t overlay_bytes = 4096, overlay_memory = 6 * overlay_bytes + 64;
constexpr int overlay_puts = 4;

enum class way : unsigned { small, small_words, large, plain, count };

struct overlay {
    way kind;
    std::size_t offset;
    std::size_t bytes;
};

// The same on both sides.
DCUDA_DEVICE overlay overlay_of(int source, int round, int number) {
    const auto random = [&](unsigned salt) {
        return (pattern(salt, source * 77 + round * 5 + number) << 8 | pattern(salt + 1, round * 31 + number)) + 0u;
    };
    const auto kind = static_cast<way>(random(0) % static_cast<unsigned>(way::count));
    std::size_t offset = random(2) % 900, bytes = random(4) % 1141;
    if (kind == way::small_words) offset = offset / 4 * 4, bytes = bytes / 4 * 4;
    if (kind == way::small) bytes = bytes % 80;
    if (kind == way::large) bytes += 1141;
    return {kind, offset, bytes};
}

// Puts of all kinds over one another; when the notification of the last is seen, the later content stays. One more put
// needs no copy on one device, where the source writes the window itself.
__global__ void overlays(dcuda::context context, findings* found, unsigned char* memory, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id(), here = self.size(dcuda::device);
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    unsigned char* const inbox = piece_of(memory, overlay_memory, self);
    unsigned char* const outbox = inbox + overlay_bytes + 64;
    const dcuda::window win = self.create_window(dcuda::world, inbox, overlay_bytes + 64);
    unsigned char* const border = next / here == rank / here
                                      ? memory + overlay_memory * static_cast<std::size_t>(next % here) + overlay_bytes
                                      : outbox + overlay_puts * overlay_bytes;
    for_each_thread(overlay_bytes, [&](std::size_t i) { inbox[i] = 0; });
    self.barrier(dcuda::world);
    for (int round = 0; round < rounds; ++round) {
        for_each_thread(overlay_puts * overlay_bytes,
                        [&](std::size_t i) { outbox[i] = pattern(i, 1000 * rank + round); });
        for_each_thread(64, [&](std::size_t i) { border[i] = pattern(i, 1000 * rank + round); });
        for (int number = 0; number < overlay_puts; ++number) {
            const overlay it = overlay_of(rank, round, number);
            const unsigned char* const source = outbox + number * overlay_bytes + it.offset;
            if (it.kind == way::plain) {
                self.put(win, next, it.offset, it.bytes, source);
                self.notify(next, dcuda::world, number);
            } else {
                self.put_notify(win, next, it.offset, it.bytes, source, number);
            }
        }
        self.put_notify(win, next, overlay_bytes, 64, border, overlay_puts);
        self.wait_notifications(overlay_puts - 1, 1);
        for_each_thread(overlay_bytes, [&](std::size_t i) {
            unsigned char expected = 0;
            for (int number = 0; number < overlay_puts; ++number) {
                const overlay it = overlay_of(previous, round, number);
                if (i >= it.offset && i - it.offset < it.bytes)
                    expected = pattern(number * overlay_bytes + i, 1000 * previous + round);
            }
            EXPECT_SAME(inbox[i], expected);
        });
        self.wait_notifications(overlay_puts, 1);
        for_each_thread(
            64, [&](std::size_t i) { EXPECT_SAME(inbox[overlay_bytes + i], pattern(i, 1000 * previous + round)); });
        for (int number = 0; number < overlay_puts - 1; ++number) self.wait_notifications(number, 1);
        __syncthreads();
        for_each_thread(overlay_bytes, [&](std::size_t i) { inbox[i] = 0; });
        self.notify(previous, dcuda::world, overlay_puts + 1);
        self.wait_notifications(overlay_puts + 1, 1);
    }
    self.free_window(win);
}

TEST_P(Mailbox, TheLastOneWins) {
    const device_vector<unsigned char> memory(3 * overlay_memory);
    check(overlays, shape(3, dim3(64)), memory.get(), 40);
}

TEST_P(Mailbox, BlocksOfAllSizes) {
    const device_vector<unsigned char> memory(2 * overlay_memory);
    for (const unsigned threads : {1, 4, 31, 32, 33, 128}) {
        SCOPED_TRACE(threads);
        check(overlays, shape(2, dim3(threads)), memory.get(), 6);
    }
}

// --- sizes that differ ---

// Everybody sends both neighbours pieces of many sizes with one tag: small ones between large ones, in another order in
// each round. None waits for what the ones before do.
constexpr int piece_count = 11;
constexpr std::size_t pieces_bytes = 64 + 2048 + 512 + 16 + 1152 + 8192 + 4 + 1156 + 20480 + 380 + 12;

__global__ void pieces_of_many_sizes(dcuda::context context, findings* found, unsigned char* memory, int rounds,
                                     bool by_put) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id();
    unsigned char* const inbox = piece_of(memory, 3 * pieces_bytes, self);
    unsigned char* const outbox = inbox + 2 * pieces_bytes;
    const dcuda::window win = self.create_window(dcuda::world, inbox, 2 * pieces_bytes);
    const int neighbours[] = {(rank + 1) % ranks, (rank + ranks - 1) % ranks};
    constexpr std::size_t piece_sizes[] = {64, 2048, 512, 16, 1152, 8192, 4, 1156, 20480, 380, 12};
    for (int round = 0; round < rounds; ++round) {
        for_each_thread(pieces_bytes, [&](std::size_t i) { outbox[i] = pattern(i, 100 * rank + round); });
        for (int k = 0; k < piece_count; ++k) {
            const int number = (k * (round % 2 != 0 ? 3 : 7) + round) % piece_count;
            std::size_t offset = 0;
            for (int before = 0; before < number; ++before) offset += piece_sizes[before];
            for (int side = 0; side < 2; ++side) {
                const std::size_t there = side * pieces_bytes + offset;
                if (by_put && piece_sizes[number] > 1000) {
                    self.put(win, neighbours[side], there, piece_sizes[number], outbox + offset);
                    self.notify(neighbours[side], dcuda::world, 3);
                } else {
                    self.put_notify(win, neighbours[side], there, piece_sizes[number], outbox + offset, 3);
                }
            }
        }
        self.wait_notifications(3, 2 * piece_count);
        for (int side = 0; side < 2; ++side)
            for_each_thread(pieces_bytes, [&](std::size_t i) {
                EXPECT_SAME(inbox[side * pieces_bytes + i], pattern(i, 100 * neighbours[1 - side] + round));
            });
        if (round % 3 == 2) self.flush(win);
        for (const int neighbour : neighbours) self.notify(neighbour, dcuda::world, 4); // my inbox may be overwritten
        self.wait_notifications(4, 2);
    }
    self.free_window(win);
}

TEST_P(Mailbox, PiecesOfManySizes) {
    const device_vector<unsigned char> memory(4 * 3 * pieces_bytes);
    for (const unsigned threads : {64, 20})
        for (const bool by_put : {false, true})
            check(pieces_of_many_sizes, shape(4, dim3(threads)), memory.get(), rounds_of(20, 4, 1), by_put);
}

// --- tags ---

// Three notifications of every tag, consumed in an order of its own, one and then two.
__global__ void many_tags(dcuda::context context, findings* found, unsigned* memory, int tags) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id(), next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    unsigned* const inbox = piece_of(memory, 6 * tags, self);
    unsigned* const outbox = inbox + 3 * tags;
    const dcuda::window win = self.create_window(dcuda::world, inbox, 3 * tags * sizeof(unsigned));
    for_each_thread(3 * tags, [&](std::size_t i) { outbox[i] = 1000 * rank + static_cast<unsigned>(i); });
    for (int i = 0; i < 3 * tags; ++i)
        self.put_notify(win, next, i * sizeof(unsigned), sizeof(unsigned), outbox + i, i % tags);
    for (int i = 0; i < tags; ++i) {
        const int tag = (i * 17 + 5) % tags;
        EXPECT_SAME(self.test_notifications(tag, 4), false);
        self.wait_notifications(tag, 1);
        EXPECT_SAME(inbox[tag], 1000 * previous + tag);
        if (i % 2 == 0)
            self.wait_notifications(tag, 2);
        else
            while (!self.test_notifications(tag, 2)) {
            }
        EXPECT_SAME(inbox[2 * tags + tag], 1000 * previous + 2 * tags + tag);
        EXPECT_SAME(self.test_notifications(tag, 1), false);
    }
    self.free_window(win);
}

TEST_P(Mailbox, TagsInAnotherOrder) {
    constexpr int tags = 40;
    const device_vector<unsigned> memory(3 * 6 * tags);
    check(many_tags, shape(3), memory.get(), tags);
}

// --- waits that foresee what comes next ---

constexpr int turn_sources = 6, turn_messages = 3, turn_rounds = 48;
constexpr int turn_common_tag = 0, turn_go_tag = 1, turn_first_own_tag = 2;
constexpr std::size_t turn_slot = 1200;

DCUDA_DEVICE int messages_of_turn(int source, int round) { return 1 + (source + round) % turn_messages; }
DCUDA_DEVICE std::size_t size_of_turn(int source, int round, int number) {
    const std::size_t sizes[] = {8, 0, 36, 384, 388, 1020, 7};
    return sizes[(round / 3 + 2 * source + number) % 7];
}

// Several sources send messages of changing sizes: one with a tag of all, the others with a tag of their own, the
// common one first or last. The target waits in changing orders, so that the next message it waits for lies in another
// queue than before, behind others, or has come long ago.
__global__ void take_turns(dcuda::context context, findings* found, unsigned char* memory) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    constexpr std::size_t slots = turn_sources * turn_messages, bytes = slots * turn_slot;
    const int target = self.size() - 1, source = self.id();
    const bool is_target = source == target;
    const dcuda::window win = self.create_window(dcuda::world, is_target ? memory : nullptr, is_target ? bytes : 0);
    unsigned char* const outbox = memory + bytes * (1 + self.id(dcuda::device));
    for (int round = 0; round < turn_rounds; ++round) {
        if (!is_target && source < turn_sources) {
            const int count = messages_of_turn(source, round);
            for (int number = 0; number < count; ++number)
                for_each_thread(turn_slot, [&](std::size_t i) {
                    outbox[number * turn_slot + i] =
                        pattern(i, (round * turn_sources + source) * turn_messages + number);
                });
            for (int i = 0; i < count; ++i) {
                const int number = round % 2 == 0 ? i : count - 1 - i;
                self.put_notify(win, target, (source * turn_messages + number) * turn_slot,
                                size_of_turn(source, round, number), outbox + number * turn_slot,
                                number == 0 ? turn_common_tag : turn_first_own_tag + source);
            }
            self.wait_notifications(turn_go_tag, 1);
        }
        if (!is_target) continue;
        const auto wait_own = [&](int from) {
            const int count = messages_of_turn(from, round) - 1;
            for (int i = 0; i < count; ++i) self.wait_notifications(turn_first_own_tag + from, 1);
        };
        if (round % 4 == 0) self.wait_notifications(turn_common_tag, turn_sources);
        for (int i = 0; i < turn_sources; ++i) {
            if (round % 4 == 1) self.wait_notifications(turn_common_tag, 1);
            wait_own(round % 3 == 0 ? turn_sources - 1 - i : i);
            if (round % 4 == 2 && i % 2 == 1) self.wait_notifications(turn_common_tag, 2);
        }
        if (round % 4 == 3) self.wait_notifications(turn_common_tag, turn_sources);
        for (int from = 0; from < turn_sources; ++from)
            for (int number = 0; number < messages_of_turn(from, round); ++number)
                for_each_thread(size_of_turn(from, round, number), [&](std::size_t i) {
                    EXPECT_SAME(memory[(from * turn_messages + number) * turn_slot + i],
                                pattern(i, (round * turn_sources + from) * turn_messages + number));
                });
        EXPECT_SAME(self.test_notifications(turn_common_tag, 1), false);
        for (int from = 0; from < turn_sources; ++from) self.notify(from, dcuda::world, turn_go_tag);
    }
    self.free_window(win);
}

TEST_P(Mailbox, SourcesTakeTurns) {
    for (const unsigned threads : {32u, 96u}) {
        SCOPED_TRACE(threads);
        const int ranks = share_of(turn_sources + 1);
        const device_vector<unsigned char> memory((1 + static_cast<std::size_t>(ranks)) * turn_sources * turn_messages *
                                                  turn_slot);
        check(take_turns, shape(ranks, dim3(threads)), memory.get());
    }
}

// --- what nobody waits for ---

// Puts are there after a barrier, and at the end of the kernel.
__global__ void unwaited(dcuda::context context, findings* found, unsigned* memory, int rounds, bool meets_device) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id();
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks, far = (rank + ranks / 2) % ranks;
    unsigned* const inbox = piece_of(memory, 4, self);
    unsigned* const outbox = inbox + 2;
    const dcuda::window win = self.create_window(dcuda::world, inbox, 2 * sizeof(unsigned));
    for (int round = 0; round <= rounds; ++round) {
        by_one_thread([&] { outbox[0] = 1000 * round + rank; });
        self.put_notify(win, next, 0, sizeof(unsigned), outbox, 0);
        self.put_notify(win, far, sizeof(unsigned), sizeof(unsigned), outbox, 0);
        if (meets_device) self.barrier(dcuda::device);
        if (round == rounds) break;
        self.barrier(dcuda::world);
        EXPECT_SAME(inbox[0], 1000 * round + previous);
        EXPECT_SAME(inbox[1], 1000 * round + (rank + ranks - ranks / 2) % ranks);
        self.barrier(dcuda::world);
    }
}

TEST_P(Mailbox, BarriersDeliver) {
    constexpr int ranks = 3, rounds = 50;
    for (const bool meets_device : {false, true}) {
        SCOPED_TRACE(meets_device);
        const device_vector<unsigned> memory(4 * ranks);
        check(unwaited, shape(ranks), memory.get(), rounds, meets_device);
        const dcuda::rank_info info = job().info();
        const std::vector<unsigned> content = memory.read();
        const int all = info.rank_count;
        for (int i = 0; i < ranks; ++i) {
            const int rank = info.rank_start + i;
            EXPECT_EQ(content[4 * i], 1000u * rounds + (rank + all - 1) % all);
            EXPECT_EQ(content[4 * i + 1], 1000u * rounds + (rank + all - all / 2) % all);
        }
    }
}

// The target comes last to every barrier, so it never waits there; nobody else sends.
__global__ void late_target(dcuda::context context, findings* found, unsigned* memory, int rounds, bool meets_device) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int target = self.size() - 1;
    unsigned* const inbox = piece_of(memory, 2, self);
    unsigned* const outbox = inbox + 1;
    const dcuda::window win = self.create_window(dcuda::world, inbox, sizeof(unsigned));
    for (int round = 1; round <= rounds; ++round) {
        by_one_thread([&] { outbox[0] = static_cast<unsigned>(round); });
        if (self.id() == 0) self.put_notify(win, target, 0, sizeof(unsigned), outbox, 0);
        if (self.id() == target)
            by_one_thread([] {
                const std::uint64_t start_ns = dcuda::detail::clock_ns();
                while (dcuda::detail::clock_ns() - start_ns < 3'000'000) {
                }
            });
        if (meets_device) self.barrier(dcuda::device);
        if (round == rounds) break; // then the end of the kernel delivers
        self.barrier(dcuda::world);
        if (self.id() == target) EXPECT_SAME(inbox[0], round);
        self.barrier(dcuda::world);
    }
}

TEST_P(Mailbox, BarriersDeliverToTheLast) {
    constexpr int rounds = 5;
    for (const int ranks : {1, 2})
        for (const bool meets_device : {false, true}) {
            SCOPED_TRACE(testing::Message() << ranks << " ranks, meets_device " << meets_device);
            const device_vector<unsigned> memory(2 * ranks);
            check(late_target, shape(ranks), memory.get(), rounds, meets_device);
            const dcuda::rank_info info = job().info();
            const unsigned delivered = memory.read()[2 * (ranks - 1)];
            if (info.process_index + 1 == info.process_count) {
                EXPECT_EQ(delivered, 1u * rounds);
            }
        }
}

// After a barrier everybody sees what was put into anybody's window on the device.
__global__ void others_look(dcuda::context context, findings* found, unsigned* memory, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int ranks = self.size(), rank = self.id(), here = self.size(dcuda::device);
    unsigned* const inbox = piece_of(memory, 2, self);
    const dcuda::window win = self.create_window(dcuda::world, inbox, sizeof(unsigned));
    for (int round = 0; round < rounds; ++round) {
        by_one_thread([&] { inbox[1] = 1000 * round + rank; });
        self.put_notify(win, (rank + 1) % ranks, 0, sizeof(unsigned), inbox + 1, 0);
        self.barrier(dcuda::world);
        for_each_thread(here, [&](std::size_t i) {
            const int owner = rank / here * here + static_cast<int>(i);
            EXPECT_SAME(memory[2 * i], 1000 * round + (owner + ranks - 1) % ranks);
        });
        self.barrier(dcuda::world);
    }
    self.wait_notifications(0, rounds);
    self.free_window(win);
}

TEST_P(Mailbox, BarriersDeliverToEverybody) {
    const device_vector<unsigned> memory(2 * 6);
    check(others_look, shape(6), memory.get(), 30);
}

// Rank 0 puts to a rank of another device over bytes of small notified puts, without a notification; that rank is busy.
// After a barrier of rank 0's device another rank there gets what was put last.
__global__ void third_rank_gets(dcuda::context context, findings* found, unsigned char* memory, int rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    constexpr std::size_t bytes = 64;
    constexpr int earlier = 4;
    const int rank = self.id(), target = self.size(dcuda::device);
    unsigned char* const inbox = piece_of(memory, 2 * bytes, self);
    const dcuda::window win = self.create_window(dcuda::world, inbox, bytes);
    for (int round = 1; round <= rounds; ++round) {
        const auto seed = static_cast<unsigned>(round);
        if (rank == 0) {
            for (int i = 0; i < earlier; ++i) self.put_notify(win, target, 0, bytes, inbox + bytes, 3);
            self.sync();
            for_each_thread(bytes, [&](std::size_t i) { inbox[bytes + i] = pattern(i, seed); });
            self.put(win, target, 0, bytes, inbox + bytes);
        }
        if (rank == target) {
            const std::uint64_t begin = dcuda::detail::clock_ns();
            by_one_thread([&] { spin([&] { return dcuda::detail::clock_ns() - begin > 20'000'000; }); });
            self.sync();
        }
        self.barrier(dcuda::device);
        if (rank == 1) {
            self.get(win, target, 0, bytes, inbox + bytes);
            self.flush(win);
            for_each_thread(bytes, [&](std::size_t i) { EXPECT_SAME(inbox[bytes + i], pattern(i, seed)); });
        }
        if (rank == target) self.wait_notifications(3, earlier);
        self.barrier(dcuda::world);
    }
}

TEST_P(Mailbox, BarriersOfADeviceShowPutsToOthers) {
    if (job().info().process_count == 1) return;
    const device_vector<unsigned char> memory(128 * 2);
    check(third_rank_gets, shape(2), memory.get(), 3);
}

// --- what fast paths must not forget ---

// Rank 2 flushes a message that rank 0 has not taken. All that rank 0 does then is one wait, for a message that is
// there already: it answers rank 2 all the same.
__global__ void satisfied_wait(dcuda::context context, findings* found, unsigned* memory, unsigned* flags) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    unsigned* const inbox = piece_of(memory, 4, self);
    const dcuda::window win = self.create_window(dcuda::device, inbox, 4 * sizeof(unsigned));
    const int rank = self.id(dcuda::device);
    constexpr int rounds = 4; // the last of them counts; those before show how messages with the tag come
    if (rank == 1) {
        for (int round = 0; round < rounds; ++round) {
            self.wait_notifications(2, 1);
            self.put_notify(win, 0, 0, sizeof(unsigned), inbox + 3, 0);
        }
        __syncthreads();
        by_one_thread([&] { atomicExch(flags, 1u); });
    } else if (rank == 2) {
        self.wait_notifications(3, 1);
        self.put_notify(win, 0, sizeof(unsigned), sizeof(unsigned), inbox + 3, 1);
        self.flush(win);
        by_one_thread([&] { atomicExch(flags + 1, 1u); });
    } else if (rank == 0) {
        const std::uint32_t before = dcuda::detail::load_requests(state);
        for (int round = 1; round < rounds; ++round) {
            self.notify(1, dcuda::device, 2);
            self.wait_notifications(0, 1);
        }
        self.notify(1, dcuda::device, 2);
        self.notify(2, dcuda::device, 3);
        by_one_thread([&] {
            EXPECT_SAME(spin([&] { return atomicAdd(flags, 0u) != 0; }), true);
            EXPECT_SAME(spin([&] { return dcuda::detail::load_requests(state) != before; }), true);
        });
        __syncthreads();
        self.wait_notifications(0, 1);
        by_one_thread([&] { EXPECT_SAME(spin([&] { return atomicAdd(flags + 1, 0u) != 0; }), true); });
        __syncthreads();
        self.wait_notifications(1, 1);
    }
    self.free_window(win);
}

// Rank 2 claims a queue at rank 1, and is held up before it tells where that is. Rank 0 claims the next one and sends a
// message there. A barrier of ranks 0 and 1 waits for what rank 2 has to tell, and delivers the message.
__global__ void held_up_source(dcuda::context context, findings* found, unsigned* memory, unsigned* flags) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    unsigned* const inbox = piece_of(memory, 2, self);
    const dcuda::window win = self.create_window(dcuda::device, inbox, sizeof(unsigned));
    const int rank = self.id(dcuda::device);
    const dcuda::communicator pair = self.split(dcuda::device, rank < 2 ? 0 : -1, 0);
    by_one_thread([&] { inbox[0] = inbox[1] = static_cast<unsigned>(rank) + 1; });
    self.barrier(dcuda::device);
    if (rank == 2) {
        by_one_thread([&] {
            const dcuda::detail::peer_view& peer = state.inbox;
            const std::uint32_t place = dcuda::detail::fetch_add_relaxed_system(peer.claimed, 1);
            const std::uint32_t number = dcuda::detail::fetch_add_relaxed_system(&peer.status[1].queues_claimed, 1);
            atomicExch(flags, 1u);
            EXPECT_SAME(spin([&] { return atomicAdd(flags + 1, 0u) != 0; }), true);
            const std::uint64_t begin = dcuda::detail::clock_ns();
            spin([&] { return dcuda::detail::clock_ns() - begin > 20'000'000; });
            dcuda::detail::store_relaxed(peer.places + state.device.partner_limit + number, place + 1);
        });
    } else if (rank == 0) {
        by_one_thread([&] { EXPECT_SAME(spin([&] { return atomicAdd(flags, 0u) != 0; }), true); });
        self.sync();
        self.put_notify(win, 1, 0, sizeof(unsigned), inbox + 1, 3);
        by_one_thread([&] { atomicExch(flags + 1, 1u); });
    }
    if (rank < 2) self.barrier(pair);
    if (rank == 1) {
        EXPECT_SAME(inbox[0], 1);
        EXPECT_SAME(self.pending_notifications(3), 1);
        self.wait_notifications(3, 1);
    }
}

TEST_P(Mailbox, ASourceThatIsHeldUpHidesNoOther) {
    if (std::string(GetParam().packets) == "0") return; // there are no queues
    const device_vector<unsigned> memory(2 * 3), flags(2);
    check(held_up_source, shape(3), memory.get(), flags.get());
}

TEST_P(Mailbox, AWaitThatNeedNotWaitAnswers) {
    // Else nothing is deferred, and a flush asks nobody.
    const bool defers = std::string(GetParam().packets) != "0" && GetParam().small_put_bytes == nullptr;
    if (defers) setenv("DCUDA_SMALL_PUT_BYTES", "96", 1); // with ThreadSanitizer, too
    for (const int threads : {32, 128}) {
        const device_vector<unsigned> memory(3 * 4), flags(2);
        if (defers) check(satisfied_wait, shape(3, dim3(threads)), memory.get(), flags.get());
    }
}

// Every target that is near is found by its hint, whatever windows and ranks there are.
__global__ void hints(dcuda::context context, findings* found, unsigned* memory, unsigned rounds) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    constexpr int windows = 5;
    dcuda::window win[windows];
    const auto rank = static_cast<unsigned>(self.id(dcuda::device)),
               ranks = static_cast<unsigned>(self.size(dcuda::device));
    unsigned* const inboxes = piece_of(memory, windows * ranks + 1, self); // for each window and source a word
    for (unsigned i = 0; i < windows; ++i)
        win[i] = self.create_window(dcuda::device, inboxes + i * ranks, ranks * sizeof(unsigned));
    for (unsigned round = 0; round < rounds; ++round) {
        const unsigned number = round * 7 + rank;
        self.put_notify(win[number % windows], static_cast<int>(number / 3 % ranks), rank * sizeof(unsigned),
                        sizeof(unsigned), inboxes + windows * ranks, 0);
        self.notify(static_cast<int>(number / 2 % ranks), dcuda::device, 0);
        __syncthreads();
        if (state.group().leads()) {
            const auto& own = state.own.of(dcuda::detail::exec::lead_access::alone());
            for (unsigned place = 0; place < dcuda::detail::cached_targets; ++place) {
                const dcuda::detail::target_entry& target = own.targets[place];
                if (target.key == dcuda::detail::no_target) continue;
                const unsigned hint = own.target_hints.at[own.target_hints.slot(dcuda::detail::hash_of(target.key))];
                EXPECT_SAME(hint, dcuda::detail::target_hint(place, target.connection));
            }
        }
        __syncthreads();
    }
    self.barrier(dcuda::device);
    while (self.test_notifications(0, 1)) {
    }
    for (const dcuda::window each : win) self.free_window(each);
}

TEST_P(Mailbox, HintsTellTargetsApart) {
    const device_vector<unsigned> memory(9 * (5 * 9 + 1));
    check(hints, shape(9), memory.get(), few_addresses ? 40u : 200u);
}

// Lists of more targets than are kept near, whose queues are full now and then, or which have none.
TEST_P(Mailbox, ListsOfTargets) {
    const auto here = static_cast<std::size_t>(listed_ranks), all = here * static_cast<std::size_t>(processes());
    const device_vector<int> stored(here), inboxes(here * all);
    check(notifies_lists, shape(listed_ranks), stored.get(), inboxes.get(), 40, rounds_of_lists(82, 20), list_of::world,
          false);
}

} // namespace
