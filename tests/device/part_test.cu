// SPDX-License-Identifier: BSD-3-Clause
// Ranks that are parts of a block: they put, notify, wait and meet by themselves, whatever the other threads of their
// block do.
#include "device_test.hpp"

using namespace dcuda::test;

namespace {

class Parts : public device_test {
protected:
    // So many ranks of each of so many blocks, and a state for each rank.
    static dcuda::launch_config cut(int blocks, unsigned threads, int parts) {
        dcuda::launch_config config =
            shape(blocks * parts, dim3(threads), static_cast<std::size_t>(parts) * sizeof(dcuda::state));
        config.ranks_per_block = parts;
        return config;
    }
    // Blocks of 256 threads, whose ranks are what the kernel says.
    static dcuda::launch_config in_gaps(int blocks) {
        dcuda::launch_config config = shape(2 * blocks, dim3(256));
        config.ranks_per_block = 2;
        return config;
    }
};

constexpr int rounds = 4, partners = 4;

// The bytes that a rank sends a partner in a round.
DCUDA_DEVICE unsigned seed_of(int source, int partner, int round) {
    return static_cast<unsigned>((source * partners + partner) * rounds + round);
}

// Each rank sends to others of its block and of the next one, by puts of many sizes, and checks what comes. Memory is
// `bytes` for each partner and round, twice.
DCUDA_DEVICE void exchange(dcuda::rank& self, findings* found, unsigned char* memory, std::size_t bytes, int parts) {
    const std::size_t all = rounds * partners * bytes;
    unsigned char* const inbox = piece_of(memory, 2 * all, self);
    unsigned char* const outbox = inbox + all;
    const int me = self.id(), ranks = self.size(), distances[partners] = {1, ranks - 1, parts, parts + 1};
    const dcuda::window win = self.create_window(dcuda::world, inbox, all);
    for (int round = 0; round < rounds; ++round) {
        const std::size_t sent = bytes >> (2 * (rounds - 1 - round)); // the last ones are the largest
        for (int partner = 0; partner < partners; ++partner) {
            const std::size_t at = static_cast<std::size_t>(round * partners + partner) * bytes;
            for (std::size_t i = self.thread(); i < sent; i += self.threads())
                outbox[at + i] = pattern(i, seed_of(me, partner, round));
            self.put_notify(win, (me + distances[partner]) % ranks, at, sent, outbox + at, partner);
        }
        for (int partner = 0; partner < partners; ++partner) {
            self.wait_notifications(partner, 1);
            const std::size_t at = static_cast<std::size_t>(round * partners + partner) * bytes;
            const int source = (me + partners * ranks - distances[partner]) % ranks;
            for (std::size_t i = self.thread(); i < sent; i += self.threads())
                EXPECT_SAME(inbox[at + i], pattern(i, seed_of(source, partner, round)));
        }
    }
    self.free_window(win);
}

__global__ void __launch_bounds__(1024) exchange_in_equal_parts(dcuda::context context, findings* found,
                                                                unsigned char* memory, std::size_t bytes, int parts) {
    const dcuda::part own = dcuda::equal_part(static_cast<unsigned>(parts));
    dcuda::rank self(context, dcuda::dynamic_shared<dcuda::state>()[own.index], own);
    EXPECT_SAME(self.id(dcuda::device), dcuda::detail::exec::block_index() * static_cast<unsigned>(parts) + own.index);
    EXPECT_SAME(self.threads(), own.threads);
    exchange(self, found, memory, bytes, parts);
}

TEST_F(Parts, EqualPartsExchange) {
    const bool is_slow = few_addresses || under_tool;
    struct {
        unsigned threads;
        int parts;
    } const cuts[] = {{64, 2}, {192, 2}, {128, 4}, {480, 15}, {1024, 32}};
    for (const auto& each : cuts)
        for (const int blocks : {1, 3})
            for (const std::size_t bytes : {std::size_t{64}, std::size_t{4096}, std::size_t{65536}}) {
                if (is_slow && (bytes > 4096 || each.threads > 192)) continue;
                SCOPED_TRACE(testing::Message() << blocks << " blocks of " << each.threads << " threads in "
                                                << each.parts << " parts, " << bytes << " B");
                const std::size_t ranks = static_cast<std::size_t>(blocks * each.parts);
                const device_vector<unsigned char> memory(ranks * 2 * rounds * partners * bytes);
                check(exchange_in_equal_parts, cut(blocks, each.threads, each.parts), memory.get(), bytes, each.parts);
            }
}

#if DCUDA_BACKEND_CUDA
TEST_F(Parts, FillTheDevice) {
    struct {
        unsigned threads;
        int parts, blocks;
    } const cuts[] = {{128, 4, 132}, {256, 8, 264}, {64, 2, 528}, {256, 2, 528}};
    for (const auto& each : cuts) {
        SCOPED_TRACE(testing::Message() << each.blocks << " blocks of " << each.threads << " threads in "
                                        << each.parts);
        const std::size_t ranks = static_cast<std::size_t>(each.blocks * each.parts), bytes = 4096;
        const device_vector<unsigned char> memory(ranks * 2 * rounds * partners * bytes);
        check(exchange_in_equal_parts, cut(each.blocks, each.threads, each.parts), memory.get(), bytes, each.parts);
    }
}
#endif

// Two ranks of 32 and 96 threads, with gaps; warps between them and behind them are none. Warp 7 makes what the first
// rank puts: this part of the block communicates while the others compute.
constexpr unsigned tile_words = 96;

__global__ void __launch_bounds__(256)
    with_other_warps(dcuda::context context, findings* found, unsigned* memory, int tiles) {
    __shared__ dcuda::state states[2];
    __shared__ unsigned tile[2][tile_words];
    __shared__ unsigned made, sent;
    const unsigned thread = dcuda::detail::exec::thread_index(), warp = thread / 32;
    if (thread == 0) made = sent = 0;
    __syncthreads();
    if (warp == 7) {
        const unsigned block = dcuda::detail::exec::block_index();
        for (unsigned number = 0; number < static_cast<unsigned>(tiles); ++number) {
            while (atomicAdd(&sent, 0u) + 2 <= number) { // its place is in use
                if (dcuda::is_ending(context)) return;
                __nanosleep(100);
            }
            __threadfence_block();
            for (unsigned i = thread % 32; i < tile_words; i += 32) tile[number % 2][i] = block << 20 | number << 8 | i;
            __threadfence_block();
            __syncwarp();
            if (thread % 32 == 0) atomicAdd(&made, 1u);
        }
        return;
    }
    if (warp != 0 && (warp < 2 || warp > 4)) return;
    const dcuda::part own = warp == 0 ? dcuda::part{.index = 0, .first_thread = 0, .threads = 32}
                                      : dcuda::part{.index = 1, .first_thread = 64, .threads = 96, .barrier = 5};
    dcuda::rank self(context, states[own.index], own);
    unsigned* const inbox = piece_of(memory, static_cast<std::size_t>(tiles) * tile_words, self);
    const dcuda::window win =
        self.create_window(dcuda::world, inbox, static_cast<std::size_t>(tiles) * tile_words * sizeof(unsigned));
    const int me = self.id(), ranks = self.size();
    if (own.index == 0) {
        // To the second rank of the next block.
        for (int number = 0; number < tiles; ++number) {
            while (atomicAdd(&made, 0u) <= static_cast<unsigned>(number)) __nanosleep(100);
            __threadfence_block();
            self.put_notify(win, (me + 3) % ranks, static_cast<std::size_t>(number) * sizeof tile[0], sizeof tile[0],
                            tile[number % 2], 0);
            self.flush(win);
            __threadfence_block();
            if (self.thread() == 0) atomicAdd(&sent, 1u);
        }
    } else {
        const unsigned source = static_cast<unsigned>((me + ranks - 3) % ranks % self.size(dcuda::device)) / 2;
        for (int number = 0; number < tiles; ++number) {
            self.wait_notifications(0, 1);
            for (unsigned i = self.thread(); i < tile_words; i += self.threads())
                EXPECT_SAME(inbox[static_cast<unsigned>(number) * tile_words + i],
                            source << 20 | static_cast<unsigned>(number) << 8 | i);
        }
    }
    self.free_window(win);
}

TEST_F(Parts, OtherWarpsOfTheBlockCompute) {
    constexpr int tiles = few_addresses ? 10 : 50;
    for (const int blocks : {2, 5}) {
        const device_vector<unsigned> memory(static_cast<std::size_t>(blocks) * 2 * tiles * tile_words);
        check(with_other_warps, in_gaps(blocks), memory.get(), tiles);
    }
}

// A block of one rank, whose other warps compute; the rank is its last warp.
__global__ void __launch_bounds__(128)
    one_warp_communicates(dcuda::context context, findings* found, unsigned* memory) {
    __shared__ dcuda::state state;
    __shared__ unsigned made;
    const unsigned thread = dcuda::detail::exec::thread_index();
    if (thread == 0) made = 0;
    __syncthreads();
    unsigned* const words = memory + 256 * dcuda::detail::exec::block_index();
    if (thread < 96) {
        for (unsigned i = thread; i < 128; i += 96) words[i] = 1000 * dcuda::detail::exec::block_index() + i;
        __threadfence();
        atomicAdd(&made, 1u);
        return;
    }
    dcuda::rank self(context, state, dcuda::part{.index = 0, .first_thread = 96, .threads = 32});
    const dcuda::window win = self.create_window(dcuda::device, words + 128, 128 * sizeof(unsigned));
    while (atomicAdd(&made, 0u) != 96) __nanosleep(100);
    __threadfence();
    const int me = self.id(dcuda::device), ranks = self.size(dcuda::device);
    self.put_notify(win, (me + 1) % ranks, 0, 128 * sizeof(unsigned), words, 0);
    self.wait_notifications(0, 1);
    for (unsigned i = self.thread(); i < 128; i += self.threads())
        EXPECT_SAME(words[128 + i], 1000u * static_cast<unsigned>((me + ranks - 1) % ranks) + i);
    self.free_window(win);
}

TEST_F(Parts, OneWarpOfABlockCommunicates) {
    for (const int blocks : {1, 6}) {
        const device_vector<unsigned> memory(static_cast<std::size_t>(blocks) * 256);
        check(one_warp_communicates, shape(blocks, dim3(128)), memory.get());
    }
}

// The first rank of each block waits until the others have passed a token round and round: its wait holds up nobody.
__global__ void __launch_bounds__(128) one_waits(dcuda::context context, findings* found, int turns) {
    __shared__ dcuda::state states[4];
    const dcuda::part own = dcuda::equal_part(4);
    dcuda::rank self(context, states[own.index], own);
    const int me = self.id(), ranks = self.size();
    if (own.index == 0) {
        self.wait_notifications(1, 3);
        EXPECT_SAME(self.pending_notifications(1), 0);
    } else {
        const auto next = [&] {
            const int after = (me + 1) % ranks;
            return after % 4 == 0 ? (after + 1) % ranks : after;
        };
        for (int turn = 0; turn < turns; ++turn) {
            if (me != 1 || turn != 0) self.wait_notifications(0, 1);
            self.notify(next(), dcuda::world, 0);
        }
        if (me == 1) self.wait_notifications(0, 1);
        self.notify(me / 4 * 4, dcuda::world, 1);
    }
    self.barrier(dcuda::device);
    self.barrier(dcuda::world);
}

TEST_F(Parts, AWaitHoldsUpNobody) {
    for (const int blocks : {1, 4}) check(one_waits, cut(blocks, 128, 4), few_addresses ? 10 : 100);
}

// Reductions, a communicator of the ranks with the same number in their blocks, and waits of each kind.
__global__ void __launch_bounds__(256)
    reduce_in_parts(dcuda::context context, findings* found, double* memory, int parts) {
    const dcuda::part own = dcuda::equal_part(static_cast<unsigned>(parts));
    dcuda::rank self(context, dcuda::dynamic_shared<dcuda::state>()[own.index], own);
    const int me = self.id(), ranks = self.size();
    EXPECT_SAME(self.allreduce(dcuda::world, me + 1, dcuda::sum{}), ranks * (ranks + 1) / 2);
    const dcuda::communicator alike = self.split(dcuda::world, static_cast<int>(own.index), me);
    EXPECT_SAME(self.size(alike), ranks / parts);
    EXPECT_SAME(self.allreduce(alike, static_cast<int>(own.index), dcuda::sum{}),
                static_cast<int>(own.index) * (ranks / parts));
    constexpr int count = 500;
    double* const values = piece_of(memory, 2 * count, self);
    for (int i = static_cast<int>(self.thread()); i < count; i += static_cast<int>(self.threads())) values[i] = me + i;
    self.sync();
    self.allreduce(dcuda::world, values + count, values, count, dcuda::sum{});
    for (int i = static_cast<int>(self.thread()); i < count; i += static_cast<int>(self.threads()))
        EXPECT_SAME(values[count + i], ranks * (ranks - 1) / 2 + i * ranks);
    EXPECT_SAME(self.broadcast(alike, me, self.size(alike) - 1), ranks - parts + static_cast<int>(own.index));
    self.barrier(alike);
    self.free_communicator(alike);
    self.notify((me + 1) % ranks, dcuda::world, 3);
    EXPECT_SAME(self.wait_any(0, 8), 3);
    EXPECT_SAME(self.wait_notifications_for(2, 1, 1000), false);
    EXPECT_SAME(self.test_notifications(2, 1), false);
}

TEST_F(Parts, CollectiveOperations) {
    for (const int parts : {2, 8})
        for (const int blocks : {1, 4}) {
            SCOPED_TRACE(testing::Message() << blocks << " blocks in " << parts << " parts");
            const device_vector<double> memory(static_cast<std::size_t>(blocks * parts) * 1000);
            check(reduce_in_parts, cut(blocks, 256, parts), memory.get(), parts);
        }
}

// A whole block is a rank in a program with parts, too.
__global__ void __launch_bounds__(96)
    as_a_whole(dcuda::context context, findings* found, unsigned char* memory, std::size_t bytes) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    EXPECT_SAME(self.threads(), dcuda::detail::exec::block_threads());
    exchange(self, found, memory, bytes, 2);
}

TEST_F(Parts, WholeBlocks) {
    for (const unsigned threads : {1u, 20u, 32u, 64u, 96u}) {
        SCOPED_TRACE(threads);
        const device_vector<unsigned char> memory(std::size_t{7} * 2 * rounds * partners * 2048);
        check(as_a_whole, shape(7, dim3(threads)), memory.get(), std::size_t{2048});
    }
}

// --- What cannot be ------------------------------------------------------------------------------------------------

// Block 0 is cut as the case says, the others into two halves.
enum class wrong : int { overlap, same_index, index, warps, block, thread, barrier, two_barriers, taken, state, whole };

__global__ void __launch_bounds__(128) cut_wrongly(dcuda::context context, wrong how) {
    __shared__ dcuda::state states[4];
    const unsigned thread = dcuda::detail::exec::thread_index(), half = thread / 64;
    dcuda::part own{.index = half, .first_thread = half * 64, .threads = 64};
    const bool second = half == 1, wrongly = dcuda::detail::exec::block_index() == 0;
    if (wrongly) {
        if (how == wrong::overlap && second) own.first_thread = 32, own.threads = 96;
        if (how == wrong::same_index) own.index = 1;
        if (how == wrong::index && second) own.index = 2;
        if (how == wrong::warps && second) own.threads = 48;
        if (how == wrong::block && second) own.threads = 96;
        if (how == wrong::thread && second) own.first_thread = 96, own.threads = 32;
        if (how == wrong::barrier && second) own.barrier = 16;
        if (how == wrong::taken && second) own.barrier = 1;
        if (how == wrong::two_barriers && second) own.barrier = 3 + thread / 32;
        if (how == wrong::whole) {
            dcuda::rank self(context, states[0]);
            return;
        }
    }
    dcuda::rank self(context, states[wrongly && how == wrong::state ? 0 : half], own);
}

__global__ void __launch_bounds__(128) fail_in_one_part(dcuda::context context) {
    __shared__ dcuda::state states[2];
    const dcuda::part own = dcuda::equal_part(2);
    dcuda::rank self(context, states[own.index], own);
    if (self.id() == 1) self.notify(0, dcuda::world, 100'000);
    self.wait_notifications(0, 1); // nobody sends any
}

class BrokenParts : public Parts {
protected:
    // Each run has a runtime of its own.
    template <class... Params, class... Args>
    void expect_error(const std::string& expected, void (*kernel)(dcuda::context, Params...),
                      const dcuda::launch_config& config, Args... arguments) {
        try {
            job().run(kernel, config, arguments...);
            ADD_FAILURE() << "no error, expected: " << expected;
        } catch (const dcuda::error& problem) {
            EXPECT_NE(std::string(problem.what()).find(expected), std::string::npos)
                << problem.what() << "\nexpected: " << expected;
        }
        end_job();
    }
};

TEST_F(BrokenParts, AreNamed) {
    const struct {
        wrong how;
        const char* message;
    } cases[] = {
        {wrong::overlap, "a warp of them belongs to part"}, // says whichever of the two comes second
        {wrong::same_index, "part 1 of its block"},
        {wrong::index, "part 2 of its block: there are parts 0 to 1 (launch_config::ranks_per_block = 2)"},
        {wrong::warps, "with 48 threads from thread 64 on: a part is whole warps"},
        {wrong::block, "threads 64 to 159: the block has 128 threads"},
        {wrong::thread, "threads 96 to 127, called by thread"},
        {wrong::barrier, "at hardware barrier 16: there are barriers 1 to 15"},
        {wrong::taken, "at hardware barrier 1: another part of the block meets there"},
        {wrong::whole, "give the constructor a dcuda::part"},
        {wrong::two_barriers, "other threads say the same index, and another part"},
        {wrong::state, "its dcuda::state is that of part"},
    };
    for (const auto& each : cases) {
        SCOPED_TRACE(each.message);
        expect_error(each.message, cut_wrongly, cut(3, 128, 2), each.how);
    }
}

TEST_F(BrokenParts, EndTheirBlock) {
    expect_error("rank 1 (process 0, part 1 of block 0): notify with tag 100000", fail_in_one_part, cut(1, 128, 2));
}

TEST_F(BrokenParts, NeedWholeWarpsAndBlocks) {
    dcuda::launch_config config = cut(1, 64, 2);
    config.ranks_per_block = 3;
    config.ranks_per_device = 3;
    expect_error("3 ranks of a block of 64 threads", fail_in_one_part, config);
    config.ranks_per_block = 0;
    expect_error("0 ranks of a block of 64 threads", fail_in_one_part, config);
    config = cut(1, 128, 2);
    config.ranks_per_device = 5;
    expect_error("5 ranks of a device, 2 of each block", fail_in_one_part, config);
}

} // namespace
