// SPDX-License-Identifier: BSD-3-Clause
// Round trips between host and device: flags of 4 bytes, and queues of 64-byte messages, each way in host or in device
// memory. And what timers and the log cost a rank.
#include <chrono>
#include <cstdio>
#include <exception>
#include <thread>
#include <unistd.h>

#include "common/session.hpp"
#include "common/stream.hpp"
#include "dcuda/dcuda.hpp"

namespace benchmark {
namespace {

constexpr int packets_of_message = 4;
constexpr int slots = 16; // of a queue
constexpr std::size_t message_bytes = packets_of_message * sizeof(packet);

DCUDA_HOST_DEVICE packet make_packet(std::uint32_t sequence, std::uint32_t part) {
    return {{sequence * 3 + part, sequence ^ part, ~sequence - part}, sequence};
}

// The device's part: gives back every message as soon as it has come. Messages are numbered from 1. Other processes
// have nothing to do.
__global__ void echo(dcuda::context, bool plays, bool queue, int messages, const packet* in, packet* out,
                     mistake* wrong) {
    const std::uint32_t lane = threadIdx.x;
    if (!plays || lane >= (queue ? packets_of_message : 1)) return;
    for (int i = 1; i <= messages; ++i) {
        const auto sequence = static_cast<std::uint32_t>(i);
        const std::size_t place = queue ? static_cast<std::size_t>(i % slots) * packets_of_message + lane : 0;
        packet seen{{0, 0, 0}, 0};
        const bool came = poll_until([&] {
            if (queue)
                seen = load_packet(in + place);
            else
                seen.sequence = load_word(&in->sequence);
            return seen.sequence == sequence;
        });
        expect(wrong, 0, i, lane, sequence, seen.sequence);
        if (!came) return;
        const packet answer = make_packet(sequence, lane);
        if (queue)
            store_packet(out + place, answer);
        else
            store_word(&out->sequence, sequence);
        for (int word = 0; queue && word < 3; ++word)
            expect(wrong, 0, i, lane, answer.payload[word], seen.payload[word]);
    }
}

// Timers: the pairs one after the other, then one around a time that the device knows.
__global__ void use_timers(dcuda::context context, int pairs, int batches, std::uint64_t spin_ns, interval* stamps,
                           interval* known) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const bool is_first = self.id() == 0 && threadIdx.x == 0;
    for (int batch = -1; batch < batches; ++batch) {
        const std::uint64_t start = now_ns();
        for (int i = 0; i < pairs; ++i) {
            self.start_timer();
            self.stop_timer();
        }
        const std::uint64_t stop = now_ns();
        self.start_timer();
        const std::uint64_t begin = now_ns();
        while (now_ns() - begin < spin_ns) rest();
        __syncthreads();
        const std::uint64_t end = now_ns();
        self.stop_timer();
        if (!is_first || batch < 0) continue;
        stamps[batch] = {start, stop};
        known[batch] = {begin, end};
    }
}

__global__ void write_log(dcuda::context context, int lines, int batches, interval* stamps) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const bool writes = self.id() == 0 && threadIdx.x == 0;
    for (int batch = -1; writes && batch < batches; ++batch) {
        std::uint64_t spent = 0;
        for (int i = 0; i < lines; ++i) {
            const std::uint64_t start = now_ns();
            self.log() << "line " << (batch + 1) * lines + i;
            spent += now_ns() - start;
            const std::uint64_t pause_start = now_ns();
            while (now_ns() - pause_start < 50'000) rest(); // the host takes its time, which is not the rank's
        }
        if (batch >= 0) stamps[batch] = {0, spent};
    }
}

// --- Host: round trips -----------------------------------------------------------------------------------------------

struct free_host {
    void operator()(void* memory) const { cudaFreeHost(memory); }
};
using host_packets = std::unique_ptr<packet[], free_host>;

host_packets allocate_host(std::size_t count) {
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, count * sizeof(packet), cudaHostAllocMapped), "no pinned host memory");
    std::fill_n(static_cast<packet*>(memory), count, packet{{0, 0, 0}, 0});
    return host_packets(static_cast<packet*>(memory));
}

// One direction: the words in host memory, which the device reaches by PCIe, or in device memory, which the host
// reaches by copies on its own stream. In the latter case the host's words are what is copied.
class channel {
public:
    explicit channel(bool in_device_memory) : in_device_memory_(in_device_memory), host_(allocate_host(count)) {
        if (in_device_memory) device_ = allocate<packet>(count);
    }

    packet* seen_by_device() const {
        if (in_device_memory_) return device_.get();
        void* mapped = nullptr;
        check(cudaHostGetDevicePointer(&mapped, host_.get(), 0), "cannot map host memory");
        return static_cast<packet*>(mapped);
    }

    void send(std::uint32_t sequence, bool queue) {
        packet* const slot = host_.get() + place(sequence, queue);
        for (std::uint32_t part = 0; queue && part < packets_of_message; ++part)
            host::store_packet(slot + part, make_packet(sequence, part));
        if (!queue) host::store_word(&slot->sequence, sequence);
        if (in_device_memory_) copy(device_.get(), host_.get(), sequence, queue, cudaMemcpyHostToDevice);
    }

    // Throws if nothing comes, or something else.
    void receive(std::uint32_t sequence, bool queue) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        const packet* const slot = host_.get() + place(sequence, queue);
        for (std::uint32_t part = 0; part < (queue ? packets_of_message : 1);) {
            if (in_device_memory_) {
                copy(host_.get(), device_.get(), sequence, queue, cudaMemcpyDeviceToHost);
                check(cudaStreamSynchronize(stream_.get()), "cannot read device memory");
            }
            while (part < (queue ? packets_of_message : 1) && host::load_word(&slot[part].sequence) == sequence) ++part;
            if (std::chrono::steady_clock::now() > end)
                throw std::runtime_error("the device did not answer message " + std::to_string(sequence) +
                                         " within 10 s");
            if (!DCUDA_BACKEND_CUDA) std::this_thread::yield();
        }
        for (std::uint32_t part = 0; queue && part < packets_of_message; ++part) {
            const packet seen = host::load_packet(slot + part), expected = make_packet(sequence, part);
            if (!std::equal(seen.payload, seen.payload + 3, expected.payload))
                throw std::runtime_error("the device's answer to message " + std::to_string(sequence) + " is wrong");
        }
    }

private:
    static constexpr std::size_t count = slots * packets_of_message;

    static std::size_t place(std::uint32_t sequence, bool queue) {
        return queue ? sequence % slots * packets_of_message : 0;
    }

    void copy(packet* target, const packet* from, std::uint32_t sequence, bool queue, cudaMemcpyKind kind) {
        const std::size_t at = place(sequence, queue) * sizeof(packet) + (queue ? 0 : offsetof(packet, sequence));
        check(cudaMemcpyAsync(reinterpret_cast<unsigned char*>(target) + at,
                              reinterpret_cast<const unsigned char*>(from) + at,
                              queue ? message_bytes : sizeof(std::uint32_t), kind, stream_.get()),
              "cannot copy between host and device");
    }

    bool in_device_memory_;
    host_packets host_;
    device_array<packet> device_;
    stream stream_;
};

void measure_round_trips(session& suite, bool queue, bool in_device, bool out_device) {
    const auto memory = [](bool device) { return std::string(device ? "device" : "host"); };
    row entry{"host",
              memory(in_device) + " / " + memory(out_device), // where the words to the device and to the host are
              queue ? "queue round trip" : "flag round trip",
              queue ? message_bytes : sizeof(std::uint32_t),
              32,
              1};
    const int rounds = suite.rounds(300, 30), batches = suite.batches(10, 6);
    channel in(in_device), out(out_device);
    const auto wrong = allocate<mistake>(1);
    int device = 0;
    check(cudaGetDevice(&device), "no device");

    std::vector<double> samples;
    std::exception_ptr failure;
    std::thread player;
    if (suite.first())
        player = std::thread([&] {
            try {
                check(cudaSetDevice(device), "cannot use the device");
                std::uint32_t sequence = 0;
                for (int batch = -1; batch < batches; ++batch) {
                    const auto start = std::chrono::steady_clock::now();
                    for (int round = 0; round < rounds; ++round) {
                        in.send(++sequence, queue);
                        out.receive(sequence, queue);
                    }
                    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
                    if (batch >= 0) samples.push_back(time.count() / rounds);
                }
            } catch (...) {
                failure = std::current_exception();
            }
        });
    std::exception_ptr failed_run;
    try {
        suite.runtime.run(echo, shape(32, 1), suite.first(), queue, rounds * (batches + 1), in.seen_by_device(),
                          out.seen_by_device(), wrong.get());
    } catch (...) {
        failed_run = std::current_exception();
    }
    if (player.joinable()) player.join();
    if (failed_run) std::rethrow_exception(failed_run);
    if (failure) std::rethrow_exception(failure);
    require_right(download(wrong.get(), 1)[0], entry);
    if (suite.first()) entry.value = measure::summarise(samples);
    suite.rows.push_back(entry);
}

// --- Host: timers and log --------------------------------------------------------------------------------------------

// What this process prints, in a file of its own as long as this lives.
class captured_output {
public:
    captured_output() : file_(std::tmpfile()) {
        if (file_ == nullptr) throw std::runtime_error("cannot create a temporary file");
        std::fflush(stdout);
        output_ = dup(STDOUT_FILENO);
        dup2(fileno(file_), STDOUT_FILENO);
    }
    ~captured_output() {
        restore();
        std::fclose(file_);
    }
    captured_output(const captured_output&) = delete;
    captured_output& operator=(const captured_output&) = delete;

    std::string end() {
        restore();
        std::string text;
        std::rewind(file_);
        for (int c = std::fgetc(file_); c != EOF; c = std::fgetc(file_)) text += static_cast<char>(c);
        return text;
    }

private:
    void restore() {
        if (output_ < 0) return;
        std::fflush(stdout);
        dup2(output_, STDOUT_FILENO);
        close(output_);
        output_ = -1;
    }

    std::FILE* file_;
    int output_ = -1;
};

void measure_timers(session& suite) {
    const int pairs = suite.rounds(100, 10), batches = suite.batches(10, 6);
    const results measured(batches, 1), known(batches, 1);
    suite.runtime.run(use_timers, shape(32, 1), pairs, batches, std::uint64_t{1'000'000}, measured.stamps(),
                      known.stamps());
    const std::vector<double> timings = suite.runtime.timings();
    row cost{"host", "device", "start_timer and stop_timer", 0, 32, 1};
    if (timings.size() != static_cast<std::size_t>((pairs + 1) * (batches + 1)))
        throw std::runtime_error("timers: " + std::to_string(timings.size()) + " times came instead of " +
                                 std::to_string((pairs + 1) * (batches + 1)));
    cost.value = measure::summarise(scaled(measured.microseconds(), 1.0 / pairs));
    suite.rows.push_back(cost);

    row error{"host", "device", "timer's error in 1 ms", 0, 32, 1};
    const std::vector<double> device_us = known.microseconds();
    std::vector<double> errors;
    for (std::size_t batch = 0; batch < device_us.size(); ++batch) {
        const double host_us = 1e3 * timings[(batch + 2) * static_cast<std::size_t>(pairs + 1) - 1];
        errors.push_back(std::abs(host_us - device_us[batch]));
    }
    error.value = measure::summarise(errors);
    suite.rows.push_back(error);
}

void measure_log(session& suite) {
    const int lines = suite.rounds(50, 5), batches = suite.batches(10, 6);
    const results measured(batches, 1);
    captured_output output;
    suite.runtime.run(write_log, shape(32, 1), lines, batches, measured.stamps());
    const std::string printed = output.end();
    row entry{"host", "device", "a line of the log", 0, 32, 1};
    std::string expected;
    for (int i = 0; suite.first() && i < lines * (batches + 1); ++i) expected += "line " + std::to_string(i) + "\n";
    if (printed != expected) throw std::runtime_error("the log's lines are wrong: " + printed.substr(0, 200));
    entry.value = measure::summarise(scaled(measured.microseconds(), 1.0 / lines));
    suite.rows.push_back(entry);
}

} // namespace

void measure_host(session& suite) {
    for (const bool queue : {false, true})
        for (const bool in_device : {false, true})
            for (const bool out_device : {false, true}) measure_round_trips(suite, queue, in_device, out_device);
    measure_timers(suite);
    measure_log(suite);
}

} // namespace benchmark
