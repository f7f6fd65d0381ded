// SPDX-License-Identifier: BSD-3-Clause
// Communication in stream order, and by short kernels: what arrives, in which order, how often, and what is refused.
#include "device/patterns.hpp"
#include "device/streams.hpp"

#include <dcuda/stream.hpp>
#include <dcuda/trigger.hpp>

#include <algorithm>
#include <random>

using namespace dcuda::test;

namespace {

class StreamPort : public port_test {};

TEST_F(StreamPort, PutsOfAllSizesArriveBeforeTheirNotification) {
    constexpr std::size_t largest = few_addresses ? 200'000 : 4 << 20;
    const std::vector<std::size_t> sizes{0, 1, 3, 4, 15, 16, 17, 1000, 4096, 65536, 131'071, 131'072, 131'073, largest};
    const device_vector<unsigned char> source(largest), target(2 * largest);
    const device_vector<unsigned> wrong(1);
    const dcuda::window win = job().create_window(target.get(), target.size_bytes());
    {
        dcuda::stream_port port(job());
        const own_stream stream;
        int round = 0;
        for (const std::size_t bytes : sizes) {
            for (const std::size_t shift : {0, 1, 4}) {
                if (bytes + shift > largest) continue;
                const auto turn = static_cast<std::size_t>(round % 2) * largest;
                const auto seed_of = [&](int process) { return static_cast<std::uint64_t>(1000 * process + round); };
                launch(1, 64, stream, fill, source.get() + shift, bytes, seed_of(own()));
                port.put_notify(win, next(), turn + shift, source.get() + shift, bytes, 5, stream);
                port.wait_from(previous(), 5, 1, stream);
                launch(1, 64, stream, compare, target.get() + turn + shift, bytes, seed_of(previous()), wrong.get());
                // So that nobody is two rounds ahead.
                port.notify(previous(), 6, stream);
                port.wait(6, 1, stream);
                ++round;
            }
        }
        stream.finish();
        EXPECT_EQ(wrong.read()[0], 0u);
    }
    job().free_window(win);
}

TEST_F(StreamPort, GetsBringWhatWasThereBeforeTheNotification) {
    constexpr std::size_t largest = few_addresses ? 200'000 : 1 << 20;
    const device_vector<unsigned char> offered(largest), got(largest);
    const device_vector<unsigned> wrong(1);
    const dcuda::window win = job().create_window(offered.get(), offered.size_bytes());
    {
        dcuda::stream_port port(job());
        const own_stream stream;
        int round = 0;
        for (const std::size_t bytes : {std::size_t{1}, std::size_t{17}, std::size_t{4096}, largest}) {
            const auto seed_of = [&](int process) { return static_cast<std::uint64_t>(1000 * process + round); };
            launch(1, 64, stream, fill, offered.get(), bytes, seed_of(own()));
            port.notify(previous(), 1, stream); // it may read
            port.wait_from(next(), 1, 1, stream);
            port.get(win, next(), 0, bytes, got.get(), stream);
            port.notify(next(), 2, stream); // it may write again
            launch(1, 64, stream, compare, got.get(), bytes, seed_of(next()), wrong.get());
            port.wait_from(previous(), 2, 1, stream);
            ++round;
        }
        stream.finish();
        EXPECT_EQ(wrong.read()[0], 0u);
        expect_refused([&] { port.get(win, next(), 1, largest, got.get(), stream); }, "at offset 1 of process");
        expect_refused([&] { port.get(win, next(), 0, 1, nullptr, stream); }, "null pointer");
    }
    job().free_window(win);
}

// More steps than a kernel has, among them a put that the copy engine makes; posted several times.
TEST_F(StreamPort, BatchesActInOrder) {
    constexpr std::size_t small = 1000, large = few_addresses ? 140'000 : 1 << 20;
    constexpr int puts = 20, times = 3, arrival = 3, permission = 4, last = 5;
    const device_vector<unsigned char> source(puts * small + large), target(source.size());
    const device_vector<unsigned> wrong(1);
    const dcuda::window win = job().create_window(target.get(), target.size_bytes());
    {
        dcuda::stream_port port(job());
        const own_stream stream;
        dcuda::stream_batch exchange(port);
        for (std::size_t i = 0; i < puts; ++i) {
            exchange.put(win, next(), i * small, source.get() + i * small, small);
            if (i == puts / 2) exchange.put(win, next(), puts * small, source.get() + puts * small, large);
        }
        exchange.notify(next(), arrival);
        exchange.wait(arrival, 1);
        dcuda::stream_batch next_round(port);
        next_round.notify(previous(), permission);
        next_round.wait_from(next(), permission, 1);
        for (int time = 0; time < times; ++time) {
            const auto seed_of = [&](int process) { return static_cast<std::uint64_t>(100 * process + time); };
            launch(1, 64, stream, fill, source.get(), source.size(), seed_of(own()));
            exchange.post(stream);
            launch(1, 64, stream, compare, target.get(), target.size(), seed_of(previous()), wrong.get());
            next_round.post(stream); // it may write again
        }
        stream.finish();
        EXPECT_EQ(wrong.read()[0], 0u);
        EXPECT_FALSE(port.test(arrival, 1));

        exchange.clear();
        exchange.post(stream); // nothing
        exchange.put_notify(win, next(), 7, source.get(), small, last);
        exchange.post(stream);
        port.wait_on_host(last, 1);
        stream.finish();
        expect_refused([&] { exchange.put(win, next(), 1, source.get(), source.size()); }, "at offset 1 of process");
        expect_refused([&] { exchange.put_notify(win, next(), 0, source.get(), 1, 64); }, "tags 0 to 63");
        expect_refused([&] { exchange.notify(count(), 0); }, "there is no process");
        expect_refused([&] { exchange.wait_from(-1, 0, 1); }, "there is no process -1");
        expect_refused([&] { exchange.wait(0, -1); }, "-1 notifications");
        expect_refused([&] { next_round.post(nullptr); }, "default stream");
    }
    job().free_window(win);
}

struct box_case {
    std::size_t columns, rows, slices, pitch_here, pitch_there; // a slice has one row more than the box
    std::size_t slice_here() const { return pitch_here * (rows + 1); }
    std::size_t slice_there() const { return pitch_there * (rows + 1); }
};

// Usual ones; many narrow rows; a column; slices of a row each; rows that are longer than a queue's slot.
class StreamBox : public port_test, public testing::WithParamInterface<box_case> {};

TEST_P(StreamBox, Arrives) {
    const box_case& chosen = GetParam();
    const auto seed_of = [](int process) { return static_cast<std::uint64_t>(process); };
    std::vector<unsigned char> content(chosen.slices * chosen.slice_here());
    for (std::size_t i = 0; i < content.size(); ++i) content[i] = pattern(i, seed_of(own()));
    const device_vector<unsigned char> source(content), target(chosen.slices * chosen.slice_there() + 1);
    const dcuda::window win = job().create_window(target.get(), target.size_bytes());
    {
        dcuda::stream_port port(job());
        const own_stream stream;
        port.put_notify(win, next(), 1, {chosen.pitch_there, chosen.slice_there()},
                        {chosen.columns, chosen.rows, chosen.slices}, source.get(),
                        {chosen.pitch_here, chosen.slice_here()}, 0, stream);
        port.wait(0, 1, stream);
        stream.finish();
        std::vector<unsigned char> expected(target.size());
        for (std::size_t slice = 0; slice < chosen.slices; ++slice)
            for (std::size_t row = 0; row < chosen.rows; ++row)
                for (std::size_t column = 0; column < chosen.columns; ++column)
                    expected[1 + slice * chosen.slice_there() + row * chosen.pitch_there + column] =
                        pattern(slice * chosen.slice_here() + row * chosen.pitch_here + column, seed_of(previous()));
        EXPECT_TRUE(target.read() == expected);
    }
    job().free_window(win);
}

INSTANTIATE_TEST_SUITE_P(Boxes, StreamBox,
                         testing::Values(box_case{9, 7, 3, 16, 20}, box_case{3, 3000, 2, 5, 3},
                                         box_case{8, 500, 1, 64, 72}, box_case{8, 1, 1000, 16, 24},
                                         box_case{70'001, 2, 2, 70'016, 70'002}));

// Slices between the rows at one end, and rows between the slices at the other; as many bytes as if it were in one
// piece.
TEST_F(StreamPort, BoxesAreTransposed) {
    constexpr std::size_t width = 10, rows = 2, slices = 2, all = width * rows * slices;
    std::vector<unsigned char> content(all), expected(all);
    for (std::size_t i = 0; i < all; ++i) content[i] = static_cast<unsigned char>(i);
    for (std::size_t slice = 0; slice < slices; ++slice)
        for (std::size_t row = 0; row < rows; ++row)
            for (std::size_t i = 0; i < width; ++i)
                expected[row * 20 + slice * 10 + i] = content[row * 10 + slice * 20 + i];
    const device_vector<unsigned char> source(content), target(all);
    const dcuda::window win = job().create_window(target.get(), target.size_bytes());
    {
        dcuda::stream_port port(job());
        const own_stream stream;
        port.put_notify(win, next(), 0, {20, 10}, {width, rows, slices}, source.get(), {10, 20}, 0, stream);
        port.wait(0, 1, stream);
        stream.finish();
        EXPECT_EQ(target.read(), expected);
    }
    job().free_window(win);
}

TEST_F(StreamPort, CountsAreExact) {
    dcuda::stream_port port(job(), 3), other(job(), 1);
    const own_stream stream;
    const int senders = count();
    for (int process = 0; process < senders; ++process)
        for (int i = 0; i <= process; ++i) port.notify(process, 2, stream);
    // Each process sends number + 1 notifications to the process with that number.
    const int expected = senders * (own() + 1);
    port.wait(2, expected - 1, stream);
    stream.finish();
    job().barrier(); // all streams have notified: what comes has come
    for (int process = 0; process < senders; ++process) other.notify(process, 0, stream);
    other.wait(0, senders, stream);
    stream.finish();
    EXPECT_FALSE(port.test(2, 2));
    EXPECT_TRUE(port.test(2, 1));
    EXPECT_FALSE(port.test(2, 1));
    EXPECT_TRUE(port.test(2, 0));
    EXPECT_FALSE(other.test(0, 1));
    EXPECT_FALSE(port.test(1, 1));
}

// What one stream waits for, another one sends; waits that begin first take what comes first.
TEST_F(StreamPort, StreamsOfAProcessNotifyEachOther) {
    dcuda::stream_port port(job());
    const own_stream one, another;
    const int rounds = rounds_of(200, 50);
    for (int i = 0; i < rounds; ++i) {
        port.notify(own(), 1, one);
        port.wait(2, 1, one);
        port.wait_from(own(), 1, 1, another);
        port.notify(own(), 2, another);
    }
    one.finish();
    another.finish();
    port.notify(next(), 7, one);
    port.wait_on_host(7, 1);
    EXPECT_FALSE(port.test(7, 1));
}

TEST_F(StreamPort, WaitsForWords) {
    if (few_addresses)
        GTEST_SKIP() << "a put stores a word that another kernel looks at, which ThreadSanitizer dislikes";
    dcuda::stream_port port(job());
    const device_vector<std::uint32_t> words(1);
    const dcuda::window win = job().create_window(words.get(), words.size_bytes());
    const device_vector<std::uint32_t> values(std::vector<std::uint32_t>{4, 6, 0});
    {
        const own_stream waits, puts;
        const auto pass = [&](int value, std::uint32_t compared, dcuda::comparison how) {
            port.wait_word(words.get(), compared, how, waits);
            EXPECT_EQ(cudaStreamQuery(waits), cudaErrorNotReady);
            port.put(win, own(), 0, values.get() + value, 4, puts);
            waits.finish();
        };
        pass(0, 3, dcuda::comparison::at_least); // 0, then 4
        pass(1, 2, dcuda::comparison::any_bit);  // 6
        pass(2, 0, dcuda::comparison::equal);    // 0
    }
    job().free_window(win);
}

// Rounds that a test appends before it waits for them. CUDA holds a thousand launches, and over a network the next one
// may hold up the port's thread, which ends the waits before (docs/guide/streams.md). A GPU that other programs share
// falls so far behind.
constexpr int rounds_ahead = 50;

// Random operations, of which every byte and every count is known.
TEST_F(StreamPort, RandomTraffic) {
    constexpr std::size_t slot = 300'000, slots = 4;
    const device_vector<unsigned char> source(slot), target(slot * slots * static_cast<std::size_t>(count()));
    const device_vector<unsigned> wrong(1);
    const dcuda::window win = job().create_window(target.get(), target.size_bytes());
    {
        dcuda::stream_port port(job(), 2 * count());
        const own_stream stream;
        std::mt19937_64 plan(17); // the same in all processes
        const int rounds = rounds_of(400, 60, 10);
        std::vector<std::size_t> sent(static_cast<std::size_t>(count()));
        for (int round = 0; round < rounds; ++round) {
            const int from = static_cast<int>(plan() % static_cast<std::uint64_t>(count()));
            const int receiver = static_cast<int>(plan() % static_cast<std::uint64_t>(count()));
            const std::size_t bytes = plan() % 3 == 0 ? plan() % slot : plan() % 2000, shift = plan() % 16;
            if (bytes + shift > slot) continue;
            const std::size_t place = (sent[static_cast<std::size_t>(from)]++ % slots) * slot + shift +
                                      static_cast<std::size_t>(from) * slots * slot;
            const auto seed = static_cast<std::uint64_t>(round);
            const int data_tag = from, free_tag = count() + from;
            if (own() == from) {
                launch(1, 64, stream, fill, source.get(), bytes, seed);
                if (plan() % 2 == 0) {
                    port.put_notify(win, receiver, place, source.get(), bytes, data_tag, stream);
                } else {
                    port.put(win, receiver, place, source.get(), bytes, stream);
                    port.notify(receiver, data_tag, stream);
                }
            } else {
                plan();
            }
            if (own() == receiver) {
                port.wait(data_tag, 1, stream);
                launch(1, 64, stream, compare, target.get() + place, bytes, seed, wrong.get());
                port.notify(from, free_tag, stream);
            }
            if (own() == from) port.wait_from(receiver, free_tag, 1, stream);
            if (round % rounds_ahead == rounds_ahead - 1) stream.finish();
        }
        stream.finish();
        EXPECT_EQ(wrong.read()[0], 0u);
        for (int tag = 0; tag < count(); ++tag) EXPECT_FALSE(port.test(tag, 1));
    }
    job().free_window(win);
}

// ---- short kernels -------------------------------------------------------------------------------------------------

// Blocks that start first make the data, the last of them puts it; a waiting block tells the rest, which compare.
__global__ void exchange(dcuda::role_words* words, unsigned makers, unsigned readers, unsigned char* source,
                         const unsigned char* target, std::size_t bytes, std::uint64_t seed, std::uint64_t expected,
                         dcuda::put_trigger put, dcuda::wait_trigger wait, unsigned* wrong) {
    const unsigned blocks[2] = {makers, readers};
    dcuda::roles<2> part(words, blocks);
    const std::size_t own_bytes = bytes / (part.role() == 0 ? makers : readers),
                      first = own_bytes * part.index(); // sizes are multiples of both
    if (part.role() == 0) {
        for_each_thread(own_bytes, [=](std::size_t i) { source[first + i] = pattern(first + i, seed); });
        if (part.finish()) dcuda::trigger_by_block(put);
        return;
    }
    if (threadIdx.x < 32) dcuda::await(wait);
    __syncthreads();
    for_each_thread(own_bytes, [=](std::size_t i) {
        if (target[first + i] != pattern(first + i, expected)) atomicAdd(wrong, 1u);
    });
    if (part.finish() && threadIdx.x == 0) dcuda::consume(wait);
}

TEST_F(StreamPort, ShortKernelsExchange) {
    constexpr unsigned most_bytes = 48 * 1024;
    const device_vector<unsigned char> source(most_bytes), target(2 * most_bytes);
    const device_vector<unsigned> wrong(1);
    const device_vector<dcuda::role_words> words(1);
    const dcuda::window win = job().create_window(target.get(), target.size_bytes());
    {
        dcuda::stream_port port(job());
        const own_stream stream;
        const int rounds = rounds_of(300, 20, 3);
        // More blocks than a GPU has room for.
        const unsigned makers = DCUDA_BACKEND_CUDA ? 3000 : 80, readers = DCUDA_BACKEND_CUDA ? 1500 : 40;
        for (int round = 0; round < rounds; ++round) {
            const std::size_t bytes = std::size_t{makers} * (round % 3 == 0 ? 16 : 2);
            const std::size_t place = static_cast<std::size_t>(round % 2) * most_bytes;
            const auto seed_of = [&](int process) { return static_cast<std::uint64_t>(1000 * process + round); };
            launch(makers + readers, 64, stream, exchange, words.get(), makers, readers, source.get(),
                   target.get() + place, bytes, seed_of(own()), seed_of(previous()),
                   port.prepare_put_notify(win, next(), place, source.get(), bytes, 1), port.prepare_wait(1, 1),
                   wrong.get());
            // Before the next but one put: its target has read this one.
            port.notify(previous(), 2, stream);
            port.wait_from(next(), 2, 1, stream);
            if (round % rounds_ahead == rounds_ahead - 1) stream.finish();
        }
        stream.finish();
        EXPECT_EQ(wrong.read()[0], 0u);
        EXPECT_FALSE(port.test(1, 1));
        const dcuda::role_words left = words.read()[0];
        EXPECT_EQ(left.started + left.finished + left.finished_of[0] + left.finished_of[1], 0u);
    }
    job().free_window(win);
}

// Puts by warps, and notifications of kernels whose threads store by themselves, where the target's memory is mapped.
__global__ void put_by_warps(dcuda::put_trigger first, dcuda::put_trigger second, dcuda::put_trigger stored,
                             unsigned* kept, dcuda::wait_trigger wait, unsigned value, unsigned* seen) {
    const unsigned warp = threadIdx.x / 32;
    const bool is_mapped = stored.target != nullptr;
    if (warp == 0) dcuda::trigger(first);
    if (warp == 1) dcuda::trigger(second);
    (is_mapped ? reinterpret_cast<unsigned*>(stored.target) : kept)[threadIdx.x] = value + threadIdx.x;
    __syncthreads();
    if (is_mapped && threadIdx.x == 0) dcuda::notify(stored);
    if (!is_mapped) dcuda::trigger_by_block(stored);
    if (warp == 0) {
        dcuda::await(wait);
        if (threadIdx.x == 0) dcuda::consume(wait);
    }
    __syncthreads();
    if (threadIdx.x < 64) atomicAdd(seen, 1u);
}

TEST_F(StreamPort, WarpsPutAndThreadsStore) {
    std::vector<unsigned> content(64);
    for (unsigned i = 0; i < 64; ++i) content[i] = 100u * static_cast<unsigned>(own()) + i;
    const device_vector<unsigned> source(content), kept(64), target(128), seen(1);
    const dcuda::window win = job().create_window(target.get(), target.size_bytes());
    {
        dcuda::stream_port port(job());
        const own_stream stream;
        const auto half = [&](unsigned from) {
            return port.prepare_put_notify(win, next(), from * 4, source.get() + from, 32 * 4, 3);
        };
        launch(1, 64, stream, put_by_warps, half(0), half(32),
               port.prepare_put_notify(win, next(), 256, kept.get(), kept.size_bytes(), 3), kept.get(),
               port.prepare_wait_from(previous(), 3, 3), 1000u * static_cast<unsigned>(own()), seen.get());
        stream.finish();
        std::vector<unsigned> expected(128);
        for (unsigned i = 0; i < 64; ++i) {
            expected[i] = 100u * static_cast<unsigned>(previous()) + i;
            expected[64 + i] = 1000u * static_cast<unsigned>(previous()) + i;
        }
        EXPECT_EQ(target.read(), expected);
    }
    job().free_window(win);
}

// ---- ranks, streams and graphs together ----------------------------------------------------------------------------

__global__ void ranks_put(dcuda::context context, dcuda::window win, unsigned* source, unsigned value) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    by_one_thread([&] { source[self.id(dcuda::device)] = value; });
    const int ranks = self.size(dcuda::device);
    self.put(win, self.id(), static_cast<std::size_t>(self.id(dcuda::device)) * 4, 4, source + self.id(dcuda::device));
    self.flush(win);
    self.barrier(dcuda::device);
    static_cast<void>(ranks);
}

TEST_F(StreamPort, SharesWindowsWithRanks) {
    const device_vector<unsigned> memory(4), target(4);
    const dcuda::window win = job().create_window(memory.get(), memory.size_bytes());
    const dcuda::window back = job().create_window(target.get(), target.size_bytes());
    {
        dcuda::stream_port port(job());
        const own_stream stream;
        const device_vector<unsigned> source(4);
        for (unsigned round = 1; round < 4; ++round) {
            const unsigned value = 10 * round + static_cast<unsigned>(own());
            job().run(ranks_put, shape(4), win, source.get(), value);
            port.put_notify(back, next(), 0, memory.get(), 16, 0, stream);
            port.wait(0, 1, stream);
            stream.finish();
            EXPECT_EQ(target.read(), std::vector<unsigned>(4, 10 * round + static_cast<unsigned>(previous())));
            job().barrier();
        }
    }
    job().free_window(back);
    job().free_window(win);
}

#if DCUDA_BACKEND_CUDA
// A graph that is launched again and again: each launch puts, notifies and waits anew.
TEST_F(StreamPort, GraphsAreReplayed) {
    const device_vector<unsigned> launches(1), wrong(1);
    const device_vector<unsigned char> source(300'000), target(300'000);
    const dcuda::window win = job().create_window(target.get(), target.size_bytes());
    {
        dcuda::stream_port port(job());
        const own_stream stream;
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t ready = nullptr;
        const auto seed_of = [](int process) { return 1000u * static_cast<std::uint64_t>(process); };
        require_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        // One that a kernel puts, and one for the copy engine.
        for (const std::size_t bytes : {std::size_t{1000}, source.size()}) {
            launch(1, 256, stream, fill_by_launch, source.get(), bytes, launches.get(), seed_of(own()));
            port.put_notify(win, next(), 0, source.get(), bytes, 1, stream);
            port.wait_from(previous(), 1, 1, stream);
            launch(1, 256, stream, compare_by_launch, target.get(), bytes, launches.get(), seed_of(previous()),
                   wrong.get());
            port.notify(previous(), 2, stream);
            port.wait(2, 1, stream);
        }
        require_cuda(cudaStreamEndCapture(stream, &graph));
        require_cuda(cudaGraphInstantiate(&ready, graph, 0));
        for (int i = 0; i < 200; ++i) require_cuda(cudaGraphLaunch(ready, stream));
        stream.finish();
        EXPECT_EQ(launches.read()[0], 400u);
        EXPECT_EQ(wrong.read()[0], 0u);
        EXPECT_FALSE(port.test(2, 1));
        cudaGraphExecDestroy(ready);
        cudaGraphDestroy(graph);
    }
    job().free_window(win);
}
#endif

// ---- misuse --------------------------------------------------------------------------------------------------------

TEST_F(StreamPort, MistakesAreNamed) {
    const device_vector<unsigned char> memory(100);
    const dcuda::window win = job().create_window(memory.get(), 100);
    {
        dcuda::stream_port port(job(), 4);
        const own_stream stream;
        const auto* source = memory.get();
        expect_refused([&] { port.put(win, own(), 90, source, 11, stream); }, "11 B at offset 90 of process");
        expect_refused([&] { port.put(win, own(), SIZE_MAX, source, 2, stream); }, "which has 100 B");
        expect_refused([&] { port.put({}, own(), 0, source, 1, stream); }, "runtime::create_window has not made");
        expect_refused([&] { port.put(win, count(), 0, source, 1, stream); }, "there is no process");
        expect_refused([&] { port.put(win, -1, 0, source, 1, stream); }, "there is no process -1");
        expect_refused([&] { port.put(win, own(), 0, nullptr, 1, stream); }, "null pointer");
        expect_refused([&] { port.put(win, own(), 0, {50}, {10, 3}, source, {10}, stream); }, "110 B at offset 0");
        expect_refused([&] { port.put(win, own(), 0, {SIZE_MAX}, {10, 3}, source, {10}, stream); }, "which has 100 B");
        expect_refused(
            [&] {
                port.put(win, own(), 0, {10}, {10, 3}, source, {SIZE_MAX}, stream);
            },
            "cannot be counted");
        expect_refused([&] { port.put(win, own(), 90, {0}, {10, 3}, source, {10}, stream); }, "rows overlap");
        expect_refused([&] { port.put(win, own(), 0, {10}, {10, 3}, source, {9}, stream); }, "rows overlap");
        expect_refused([&] { port.put_notify(win, own(), 0, source, 1, 4, stream); }, "tags 0 to 3");
        expect_refused([&] { port.notify(own(), -1, stream); }, "tag -1");
        expect_refused([&] { port.wait(0, -1, stream); }, "a wait for -1");
        expect_refused([&] { port.wait(0, 1, nullptr); }, "default stream");
        expect_refused([&] { port.wait_from(count(), 0, 1, stream); }, "there is no process");
        expect_refused([&] { port.wait_from(-1, 0, 1, stream); }, "there is no process -1");
        expect_refused([&] { port.wait_word(nullptr, 0, dcuda::comparison::equal, stream); }, "null pointer");
        expect_refused([&] { static_cast<void>(port.prepare_put_notify(win, own(), 99, source, 2, 0)); },
                       "2 B at offset 99");
        expect_refused([&] { static_cast<void>(port.prepare_wait(7, 1)); }, "tag 7");
        expect_refused([&] { dcuda::stream_port none(job(), 0); }, "0 tags: 1 to 65536");
        stream.finish();
    }
    job().free_window(win);
}

} // namespace
