// SPDX-License-Identifier: BSD-3-Clause
// Short kernels that communicate: kernels of two streams, in which nothing but the tags orders what they share.
#include <dcuda/stream.hpp>
#include <dcuda/trigger.hpp>

#include "device/streams.hpp"
#include "stream/put_queue_reader.hpp"

#include <cstring>
#include <thread>

using namespace dcuda::test;

namespace litmus {

namespace {

constexpr std::size_t count = 32;

// To the other kernel and back, round after round. `begins`: this one sends first.
__global__ void play(bool begins, dcuda::put_trigger put, dcuda::wait_trigger wait, unsigned* source,
                     const unsigned* received, unsigned* wrong, int rounds) {
    for (int round = 0; round < rounds; ++round) {
        const auto value = static_cast<unsigned>(round);
        if (begins) {
            for_each_thread(count, [=](std::size_t i) { source[i] = value + static_cast<unsigned>(i); });
            dcuda::trigger(put);
        }
        dcuda::await(wait);
        for_each_thread(count, [=](std::size_t i) {
            if (received[i] != value + i) atomicAdd(wrong, 1u);
        });
        __syncwarp();
        if (threadIdx.x == 0) dcuda::consume(wait);
        __syncwarp();
        if (!begins) {
            for_each_thread(count, [=](std::size_t i) { source[i] = value + static_cast<unsigned>(i); });
            dcuda::trigger(put);
        }
    }
}

// All blocks store; the last one that is done reads what all have stored.
__global__ void store_and_read(dcuda::role_words* words, unsigned* stored, unsigned value, unsigned* wrong) {
    const unsigned blocks[1] = {gridDim.x};
    dcuda::roles<1> part(words, blocks);
    if (threadIdx.x == 0) stored[part.index()] = value;
    if (!part.finish() || threadIdx.x != 0) return;
    for (unsigned i = 0; i < gridDim.x; ++i)
        if (stored[i] != value) atomicAdd(wrong, 1u);
}

} // namespace

// notify_publish, notify_observe.
int triggers(int rounds) {
    dcuda::runtime job;
    const device_vector<unsigned> sources(2 * count), received(2 * count), wrong(1);
    const dcuda::window win = job.create_window(received.get(), received.size_bytes());
    {
        dcuda::stream_port port(job, 2);
        const own_stream first, second;
        const auto put = [&](std::size_t from) {
            return port.prepare_put_notify(win, 0, (1 - from) * count * sizeof(unsigned), sources.get() + from * count,
                                           count * sizeof(unsigned), static_cast<int>(1 - from));
        };
        launch(1, 32, first, play, true, put(0), port.prepare_wait(0, 1), sources.get(), received.get(), wrong.get(),
               rounds);
        launch(1, 32, second, play, false, put(1), port.prepare_wait(1, 1), sources.get() + count,
               received.get() + count, wrong.get(), rounds);
        first.finish();
        second.finish();
    }
    job.free_window(win);
    return wrong.read()[0] == 0 ? 0 : 1;
}

// notify_publish, notify_observe, queue_free, queue_reuse: one send of so many pieces that each slot of the queue is
// used again and again.
int sends(int rounds) {
    dcuda::runtime job;
    const std::size_t length = 64 * 1024 * (1 + static_cast<std::size_t>(rounds) / 100);
    std::vector<unsigned> content(length);
    for (std::size_t i = 0; i < length; ++i) content[i] = static_cast<unsigned>(i);
    const device_vector<unsigned> source(content), received(length);
    dcuda::stream_port port(job, 1);
    const dcuda::request receive = port.irecv(received.get(), received.size_bytes(), 0),
                         send = port.isend(source.get(), source.size_bytes(), 0);
    port.wait(send);
    port.wait(receive);
    return received.read() == content ? 0 : 1;
}

namespace {

// More puts than the queue has slots, copied there and left for the host to read in turn, and a get, round after round.
__global__ void give_to_host(dcuda::host_path by, unsigned* source, const unsigned* got, unsigned* wrong, int rounds) {
    using namespace dcuda::detail;
    constexpr unsigned puts = put_queue::slots + 2;
    dcuda::put_trigger put;
    put.source = reinterpret_cast<const std::byte*>(source);
    put.bytes = count * sizeof(unsigned);
    put.by_host = by;
    for (unsigned value = 0; value < static_cast<unsigned>(rounds) * puts; ++value) {
        for_each_thread(count, [=](std::size_t i) { source[i] = value + static_cast<unsigned>(i); });
        __syncwarp();
        if (value % 2 == 0) put_by_host(calling_warp{}, put);
        if (value % 2 == 1 && threadIdx.x == 0) put_read_by_host(by, put.source, put.bytes);
        __syncwarp();
        if (value % puts != puts - 1) continue;
        if (threadIdx.x == 0) get_by_host(by, sizeof(unsigned), got);
        __syncwarp();
        if (*got != value) atomicAdd(wrong, 1u);
        __syncwarp();
    }
}

// What the host and kernels use.
struct shared_words {
    dcuda::detail::put_queue queue;
    unsigned source[count], got;
};

// The host's part: what was put last is what the get brings.
int take_from_queue(dcuda::put_queue_reader reader, unsigned* got, unsigned pieces) {
    using namespace dcuda::detail;
    int wrong = 0;
    unsigned expected = 0;
    for (unsigned piece = 0; piece < pieces;) {
        if (!reader.has_piece()) {
            std::this_thread::yield();
            continue;
        }
        if (reader.command().type == put_command::kind::get) {
            *got = expected - 1;
            reader.end_gets(reader.number());
        } else {
            unsigned values[count];
            const std::byte* const left = reader.command().source;
            std::memcpy(values, left != nullptr ? left : reader.slot_data(), sizeof values);
            for (unsigned i = 0; i < count; ++i) wrong += values[i] != expected + i ? 1 : 0;
            ++expected;
        }
        reader.free_slot();
        ++piece;
    }
    return wrong;
}

} // namespace

// command_publish, command_observe, slot_free, slot_reuse, reply_publish, reply_observe: kernels give puts and gets to
// the host.
int proxied(int rounds) {
    using namespace dcuda::detail;
    shared_words* words = nullptr;
    require_cuda(cudaMallocHost(reinterpret_cast<void**>(&words), sizeof *words));
    std::memset(static_cast<void*>(words), 0, sizeof *words);
    const device_vector<queue_turns> turns(1);
    const device_vector<unsigned> ended(1), wrong(1);
    const own_stream stream;
    dcuda::host_path by;
    by.queue = &words->queue;
    by.turns = turns.get();
    by.ended = ended.get();
    launch(1, 32, stream, give_to_host, by, words->source, &words->got, wrong.get(), rounds);
    const int wrong_here = take_from_queue(dcuda::put_queue_reader(words->queue), &words->got,
                                           static_cast<unsigned>(rounds) * (put_queue::slots + 3));
    stream.finish();
    cudaFreeHost(words);
    return wrong_here == 0 && wrong.read()[0] == 0 ? 0 : 1;
}

// collective_arrive.
int roles(int rounds) {
    dcuda::runtime job;
    constexpr unsigned blocks = 4;
    const device_vector<dcuda::role_words> words(1);
    const device_vector<unsigned> stored(blocks), wrong(1);
    const own_stream stream;
    for (int round = 0; round < rounds; ++round)
        launch(blocks, 4, stream, store_and_read, words.get(), stored.get(), static_cast<unsigned>(round + 1),
               wrong.get());
    stream.finish();
    return wrong.read()[0] == 0 ? 0 : 1;
}

} // namespace litmus
