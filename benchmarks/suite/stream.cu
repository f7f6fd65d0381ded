// SPDX-License-Identifier: BSD-3-Clause
// Communication in stream order, between the streams of two processes: one-way latency of a notified put and of a send,
// exchanges both ways, and what a call costs the host.
#include <array>
#include <chrono>
#include <functional>
#include <span>

#include "common/session.hpp"
#include "common/stream.hpp"
#include "dcuda/stream.hpp"

namespace benchmark {
namespace {

constexpr std::size_t stream_halo_bytes = 26'624; // of each side, as bench_nccl exchanges
constexpr std::array<std::size_t, 6> sizes{8, 1024, 32 << 10, 128 << 10, 512 << 10, 2 << 20};

class stream_exchanges {
public:
    explicit stream_exchanges(session& suite)
        : suite_(suite), out_(allocate<unsigned char>(most_bytes)), in_(allocate<unsigned char>(most_bytes)),
          window_(suite.runtime.create_window(in_.get(), most_bytes)), port_(suite.runtime, 2) {}

    // Two processes in turn. A round is there and back.
    void latency(std::size_t bytes) {
        const int other = 1 - suite_.job.process_index;
        const auto send = [this, bytes, other] {
            port_.put_notify(window_, other, 0, out_.get(), bytes, 0, stream_.get());
        };
        const auto wait = [this, other] { port_.wait_from(other, 0, 1, stream_.get()); };
        measure({"stream", suite_.other_device(), "put_notify", bytes}, 0.5, [this, send, wait] {
            if (suite_.first()) send();
            wait();
            if (!suite_.first()) send();
        });
    }

    // The same by a send and a receive, which are prepared once.
    void send_latency(std::size_t bytes) {
        const int other = 1 - suite_.job.process_index;
        const std::array both{port_.prepare_send(out_.get(), bytes, other),
                              port_.prepare_receive(in_.get(), bytes, other)};
        const std::span<const dcuda::request> send(both.data(), 1), receive(both.data() + 1, 1);
        measure({"stream", suite_.other_device(), "send and receive", bytes}, 0.5, [&] {
            if (suite_.first()) port_.post(both, stream_.get());
            if (!suite_.first()) {
                port_.post(receive, stream_.get());
                port_.wait_all(receive, stream_.get());
                port_.post(send, stream_.get());
            }
            port_.wait_all(both, stream_.get());
        });
    }

    // Both processes at once, with both sides of the other one.
    void halo() {
        const int other = 1 - suite_.job.process_index;
        measure({"stream", suite_.other_device(), "halo exchange", stream_halo_bytes}, 1, [this, other] {
            for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
                port_.put_notify(window_, other, side * stream_halo_bytes, out_.get(), stream_halo_bytes, 0,
                                 stream_.get());
            }
            port_.wait_from(other, 0, 2, stream_.get());
        });
        dcuda::stream_batch exchange(port_);
        for (const std::size_t side : {std::size_t{0}, std::size_t{1}})
            exchange.put_notify(window_, other, side * stream_halo_bytes, out_.get(), stream_halo_bytes, 0);
        exchange.wait_from(other, 0, 2);
        measure({"stream", suite_.other_device(), "halo exchange, batch", stream_halo_bytes}, 1,
                [this, &exchange] { exchange.post(stream_.get()); });
        std::vector<dcuda::request> both_ways;
        for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
            both_ways.push_back(port_.prepare_receive(in_.get() + side * stream_halo_bytes, stream_halo_bytes, other));
            both_ways.push_back(port_.prepare_send(out_.get(), stream_halo_bytes, other));
        }
        measure({"stream", suite_.other_device(), "halo exchange, sends and receives", stream_halo_bytes}, 1, [&] {
            port_.post(both_ways, stream_.get());
            port_.wait_all(both_ways, stream_.get());
        });
    }

    // A notified put and a wait for one, as the host sees it.
    void host_time() {
        const int other = 1 - suite_.job.process_index;
        measure_host("calls of put_notify and wait", [this, other] {
            port_.put_notify(window_, other, 0, out_.get(), 8, 0, stream_.get());
            port_.wait_from(other, 0, 1, stream_.get());
        });
        dcuda::stream_batch both(port_);
        both.put_notify(window_, other, 0, out_.get(), 8, 0);
        both.wait_from(other, 0, 1);
        measure_host("a batch of put_notify and wait", [this, &both] { both.post(stream_.get()); });
        std::vector<dcuda::request> receives;
        const auto receive_later = [&] { receives.push_back(port_.irecv(in_.get(), 8, other)); };
        measure_host(
            "calls of isend and wait",
            [&] { port_.wait(port_.isend(out_.get(), 8, other, stream_.get()), stream_.get()); }, receive_later);
        port_.wait_all(receives);
    }

    // Collective, at the end.
    void close() { suite_.runtime.free_window(window_); }

private:
    static constexpr std::size_t most_bytes = sizes.back();

    void measure(row entry, double share, const std::function<void()>& round) {
        const int rounds = suite_.rounds(100, 10);
        const auto run_rounds = [&] {
            for (int i = 0; i < rounds; ++i) round();
        };
        add(entry, share / rounds, "eager", run_rounds);
#if DCUDA_BACKEND_CUDA
        const graph ready(stream_.get(), rounds, round);
        add(entry, share / rounds, "graph", [&] { ready.launch(stream_.get()); });
#endif
    }

    // So few calls that no queue is full.
    void measure_host(
        const char* operation, const std::function<void()>& call, const std::function<void()>& afterwards = [] {}) {
        constexpr int calls = 100;
        std::vector<double> samples;
        for (int batch = -1; batch < suite_.batches(10, 4); ++batch) {
            suite_.runtime.barrier();
            const auto begin = std::chrono::steady_clock::now();
            for (int i = 0; i < calls; ++i) call();
            const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
            for (int i = 0; i < calls; ++i) afterwards();
            stream_.finish();
            if (batch >= 0) samples.push_back(time.count() / calls);
        }
        row entry{"stream", "host", operation, 8};
        entry.value = measure::summarise(samples);
        suite_.rows.push_back(entry);
    }

    void add(row entry, double factor, const char* mode, const std::function<void()>& batch_of_rounds) {
        std::vector<double> samples;
        for (int batch = -1; batch < suite_.batches(20, 4); ++batch) {
            suite_.runtime.barrier();
            check(cudaEventRecord(begin_.get(), stream_.get()), "cannot record an event");
            batch_of_rounds();
            check(cudaEventRecord(end_.get(), stream_.get()), "cannot record an event");
            stream_.finish();
            if (batch >= 0) samples.push_back(microseconds(begin_, end_) * factor);
        }
        entry.operation += std::string(", ") + mode;
        entry.value = measure::summarise(samples);
        suite_.rows.push_back(entry);
    }

    class event {
    public:
        event() { check(cudaEventCreate(&event_), "cannot create an event"); }
        ~event() { cudaEventDestroy(event_); }
        event(const event&) = delete;
        event& operator=(const event&) = delete;
        cudaEvent_t get() const { return event_; }

    private:
        cudaEvent_t event_ = nullptr;
    };
    static double microseconds(const event& begin, const event& end) {
        float elapsed = 0;
        check(cudaEventElapsedTime(&elapsed, begin.get(), end.get()), "cannot take a time");
        return 1e3 * static_cast<double>(elapsed);
    }

    session& suite_;
    device_array<unsigned char> out_, in_;
    dcuda::window window_;
    dcuda::stream_port port_;
    stream stream_;
    event begin_, end_;
};

} // namespace

void measure_stream(session& suite) {
    if (suite.job.process_count != 2) {
        row none{"stream", suite.other_device(), "put_notify", 8};
        none.missing = "takes exactly two processes: dcuda-run -n 2 dcuda-bench";
        suite.rows.push_back(none);
        return;
    }
    stream_exchanges exchanges(suite);
    for (const std::size_t bytes : sizes) exchanges.latency(bytes);
    for (const std::size_t bytes : sizes) exchanges.send_latency(bytes);
    exchanges.halo();
    exchanges.host_time();
    exchanges.close();
}

} // namespace benchmark
