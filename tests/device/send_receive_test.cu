// SPDX-License-Identifier: BSD-3-Clause
// Sends and receives of stream ports: what arrives, in which order, and what is refused.
#include "device/patterns.hpp"
#include "device/streams.hpp"

#include <dcuda/stream.hpp>

#include <algorithm>
#include <array>
#include <random>

using namespace dcuda::test;

namespace {

class SendReceive : public port_test {
protected:
    std::uint64_t seed_of(int process, int round) { return static_cast<std::uint64_t>(1000 * process + round); }
};

constexpr std::size_t slot = DCUDA_BACKEND_CUDA ? 32 * 1024 : 4 * 1024, queue = slot * (DCUDA_BACKEND_CUDA ? 32 : 8);

TEST_F(SendReceive, SendsOfAllSizesArrive) {
    constexpr std::size_t largest = DCUDA_BACKEND_CUDA ? 64 << 20 : few_addresses ? 100'000 : 1 << 20;
    const std::vector<std::size_t> sizes{0,    1,        3,        15,        16,         17,          1000,
                                         slot, slot + 1, 2 * slot, queue - 1, queue + 17, largest - 3, largest};
    const device_vector<unsigned char> source(largest), target(largest);
    const device_vector<unsigned> wrong(1);
    dcuda::stream_port port(job());
    const own_stream stream;
    int round = 0;
    for (const std::size_t bytes : sizes)
        for (const std::size_t shift : {0, 1, 4}) {
            if (bytes + shift > largest) continue;
            launch(1, 64, stream, fill, source.get() + shift, bytes, seed_of(own(), round));
            const dcuda::request receive = port.irecv(target.get() + shift, bytes, previous(), stream);
            const dcuda::request send = port.isend(source.get() + shift, bytes, next(), stream);
            port.wait(receive, stream);
            launch(1, 64, stream, compare, target.get() + shift, bytes, seed_of(previous(), round), wrong.get());
            port.wait(send, stream);
            ++round;
        }
    stream.finish();
    EXPECT_EQ(wrong.read()[0], 0u);
}

// Sends come before their receives, as long as there is room; each meets its own, also if that is longer.
TEST_F(SendReceive, AreMatchedInOrder) {
    constexpr int messages = DCUDA_BACKEND_CUDA ? 30 : 8;
    constexpr std::size_t longest = 600;
    std::vector<unsigned char> content(longest * messages);
    for (std::size_t i = 0; i < content.size(); ++i) content[i] = pattern(i, static_cast<std::uint64_t>(own()));
    const device_vector<unsigned char> source(content), target(content.size());
    dcuda::stream_port port(job());
    const auto length_of = [](std::size_t message) { return message * 17; };
    std::vector<dcuda::request> open;
    for (std::size_t i = 0; i < messages; ++i)
        open.push_back(port.isend(source.get() + i * longest, length_of(i), next()));
    port.wait_all(open); // nobody needs to receive them for that
    job().barrier();
    open.clear();
    for (std::size_t i = 0; i < messages; ++i)
        open.push_back(port.irecv(target.get() + i * longest, longest, previous()));
    port.wait_all(open);
    for (const dcuda::request& each : open) EXPECT_TRUE(port.test(each));
    std::vector<unsigned char> expected(content.size());
    for (std::size_t i = 0; i < messages; ++i)
        for (std::size_t byte = 0; byte < length_of(i); ++byte)
            expected[i * longest + byte] = pattern(i * longest + byte, static_cast<std::uint64_t>(previous()));
    EXPECT_EQ(target.read(), expected);
}

// All processes send much to all, before anybody receives in its stream: the streams go on, and all arrives.
TEST_F(SendReceive, StreamsGoOnWhileSendsWait) {
    constexpr std::size_t bytes = 2 * queue + 100;
    const auto processes = static_cast<std::size_t>(count());
    const device_vector<unsigned char> source(bytes), target(bytes * processes);
    const device_vector<unsigned> wrong(1);
    dcuda::stream_port port(job());
    const own_stream stream;
    std::vector<dcuda::request> exchange;
    for (int process = 0; process < count(); ++process)
        exchange.push_back(port.prepare_send(source.get(), bytes, process));
    for (int process = 0; process < count(); ++process)
        exchange.push_back(
            port.prepare_receive(target.get() + static_cast<std::size_t>(process) * bytes, bytes, process));
    const std::span<const dcuda::request> all(exchange), sends = all.first(processes), receives = all.last(processes);
    for (int round = 0; round < 3; ++round) {
        launch(1, 64, stream, fill, source.get(), bytes, seed_of(own(), round));
        port.post(sends, stream);
        port.post(receives, stream);
        port.wait_all(receives, stream);
        for (int process = 0; process < count(); ++process)
            launch(1, 64, stream, compare, target.get() + static_cast<std::size_t>(process) * bytes, bytes,
                   seed_of(process, round), wrong.get());
        port.wait_all(sends, stream);
    }
    stream.finish();
    EXPECT_EQ(wrong.read()[0], 0u);
}

// Random sends between random processes, of which every byte is known.
TEST_F(SendReceive, RandomTraffic) {
    constexpr std::size_t longest = 3 * queue;
    const device_vector<unsigned char> source(longest), target(longest);
    const device_vector<unsigned> wrong(1);
    dcuda::stream_port port(job());
    const own_stream stream;
    std::mt19937_64 plan(5); // the same in all processes
    dcuda::request sent;
    const int rounds = rounds_of(1000, 100, 20);
    for (int round = 0; round < rounds; ++round) {
        const int from = static_cast<int>(plan() % static_cast<std::uint64_t>(count())),
                  receiver = static_cast<int>(plan() % static_cast<std::uint64_t>(count()));
        const std::size_t bytes = plan() % 4 == 0 ? plan() % longest : plan() % 2000;
        const auto seed = static_cast<std::uint64_t>(round);
        const bool is_sent = own() == from, is_received = own() == receiver;
        if (is_sent) {
            launch(1, 64, stream, fill, source.get(), bytes, seed);
            sent = port.isend(source.get(), bytes, receiver, stream);
        }
        if (is_received) {
            const dcuda::request received = plan() % 2 == 0
                                                ? port.irecv(target.get(), longest, from, stream)
                                                : (stream.finish(), port.irecv(target.get(), longest, from));
            port.wait(received, stream);
            launch(1, 64, stream, compare, target.get(), bytes, seed, wrong.get());
        } else {
            plan();
        }
        if (is_sent) port.wait(sent, stream);
    }
    stream.finish();
    EXPECT_EQ(wrong.read()[0], 0u);
}

// What a program has posted and waited for is forgotten, also if it keeps some.
TEST_F(SendReceive, RequestsAreUsedAgain) {
    dcuda::stream_port port(job());
    const device_vector<unsigned char> memory(2);
    std::vector<dcuda::request> kept;
    for (int i = 0; i < 20; ++i) kept.push_back(port.prepare_send(memory.get(), 1, own()));
    const int rounds = rounds_of(300, 100, 20);
    for (int i = 0; i < rounds; ++i) {
        const dcuda::request receive = port.irecv(memory.get() + 1, 1, own());
        port.post(std::span(&kept[static_cast<std::size_t>(i) % kept.size()], 1));
        port.wait(receive);
        port.wait(kept[static_cast<std::size_t>(i) % kept.size()]);
    }
}

#if DCUDA_BACKEND_CUDA
// A graph that is launched again and again sends and receives anew.
TEST_F(SendReceive, GraphsAreReplayed) {
    const std::size_t bytes = 3 * slot + 5;
    const device_vector<unsigned> launches(1), wrong(1);
    const device_vector<unsigned char> source(bytes), target(bytes);
    dcuda::stream_port port(job());
    const own_stream stream;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    require_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    launch(1, 256, stream, fill_by_launch, source.get(), bytes, launches.get(), seed_of(own(), 0));
    const dcuda::request receive = port.irecv(target.get(), bytes, previous(), stream);
    const dcuda::request send = port.isend(source.get(), bytes, next(), stream);
    port.wait(receive, stream);
    launch(1, 256, stream, compare_by_launch, target.get(), bytes, launches.get(), seed_of(previous(), 0), wrong.get());
    port.wait(send, stream);
    expect_refused([&] { port.isend(source.get(), bytes, next()); }, "posted outside while a graph is captured");
    require_cuda(cudaStreamEndCapture(stream, &graph));
    expect_refused([&] { port.wait(receive); }, "a request that was posted in a graph");
    require_cuda(cudaGraphInstantiate(&ready, graph, 0));
    for (int i = 0; i < 100; ++i) require_cuda(cudaGraphLaunch(ready, stream));
    stream.finish();
    EXPECT_EQ(launches.read()[0], 100u);
    EXPECT_EQ(wrong.read()[0], 0u);
    cudaGraphExecDestroy(ready);
    cudaGraphDestroy(graph);
}
#endif

TEST_F(SendReceive, MistakesAreNamed) {
    dcuda::stream_port port(job());
    const own_stream stream;
    const device_vector<unsigned char> memory(10);
    expect_refused([&] { port.isend(memory.get(), 10, count(), stream); }, "there is no process");
    expect_refused([&] { port.irecv(memory.get(), 10, -1); }, "there is no process -1");
    expect_refused([&] { port.isend(nullptr, 10, own()); }, "a send of 10 B from a null pointer");
    expect_refused([&] { port.irecv(nullptr, 10, own(), stream); }, "a receive of 10 B to a null pointer");
    expect_refused([&] { port.wait(dcuda::request(), stream); }, "an empty request");
    expect_refused([&] { port.wait(port.prepare_send(memory.get(), 1, own())); }, "a request that was not posted");
    expect_refused([&] { port.post(std::array<dcuda::request, 1>(), stream); }, "an empty request");
    {
        dcuda::stream_port other(job());
        const dcuda::request foreign = other.prepare_send(memory.get(), 1, own());
        expect_refused([&] { port.post(std::span(&foreign, 1), stream); }, "a request of another port");
    }
#if DCUDA_BACKEND_CUDA
    std::vector<unsigned char> pageable(10);
    expect_refused([&] { port.isend(pageable.data(), 10, own(), stream); }, "memory that the device cannot use");
#endif
    const dcuda::request receive = port.irecv(memory.get(), 10, own()), send = port.isend(memory.get(), 0, own());
    expect_refused([&] { port.wait(receive, nullptr); }, "default stream");
    port.wait(send);
    port.wait(receive);
}

} // namespace
