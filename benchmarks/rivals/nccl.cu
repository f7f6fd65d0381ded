// SPDX-License-Identifier: BSD-3-Clause
// NCCL beside dcuda-bench: send and receive, halo exchange and collective operations, launched one by one ("eager") and
// replayed from a CUDA graph.
//
//     dcuda-run -n 2 bench_nccl --json nccl.json
//     dcuda-run -n 2 dcuda-bench all --rival nccl.json
#include <algorithm>
#include <cstdio>

#include <nccl.h>

#include "rivals/rival.hpp"

namespace {

using namespace benchmark;

void check(ncclResult_t status, const char* what) {
    if (status != ncclSuccess) throw std::runtime_error(std::string(what) + ": " + ncclGetErrorString(status));
}
using benchmark::check;

constexpr int batches = 12;
// As dcuda-bench collectives has them: its columns are the ranks with one number on every device.
constexpr std::size_t columns = 132, doubles_of_column = 128, many_of_column = 63'550, doubles_of_array = 16'384,
                      doubles_of_pair = 128;

// Small whole numbers: sums of them are exact.
template <class Element>
Element value(int process, std::size_t index) {
    return static_cast<Element>((index * 7 + 13) % 97) + static_cast<Element>(100 * process);
}

// What is measured, and how.
struct exchange {
    row place; // where it stands in the table
    std::string name;
    int rounds;
    std::size_t sent, received; // bytes; those received are compared
    double factor = 1;          // of a round's time
};

class player {
public:
    explicit player(const rival_job& job) : job_(job) {
        ncclUniqueId id{};
        const std::filesystem::path file = job.meeting_place("nccl");
        id = exchange_id(job, file, id, [](ncclUniqueId& made) { check(ncclGetUniqueId(&made), "cannot make an id"); });
        check(ncclCommInitRank(&comm_, job.count, id, job.index), "cannot initialise NCCL");
        if (job.first()) std::filesystem::remove(file);
        check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cannot create a stream");
        check(cudaEventCreate(&start_), "cannot create an event");
        check(cudaEventCreate(&stop_), "cannot create an event");
        for (void** buffer : {&out_, &in_, &word_}) {
            check(cudaMalloc(buffer, most_bytes), "no device memory");
            check(cudaMemset(*buffer, 0, most_bytes), "cannot clear memory");
        }
    }
    ~player() {
        cudaFree(word_);
        cudaFree(out_);
        cudaFree(in_);
        cudaEventDestroy(stop_);
        cudaEventDestroy(start_);
        cudaStreamDestroy(stream_);
        ncclCommDestroy(comm_);
    }
    player(const player&) = delete;
    player& operator=(const player&) = delete;

    // Processes 0 and 1 in turn; half of a round trip, as the others measure it. One round is both ways.
    void ping_pong(std::size_t bytes, std::vector<row>& rows) {
        const auto round = [&] {
            for (const int sender : {0, 1}) {
                if (job_.index == sender)
                    send(out_, bytes, 1 - sender);
                else if (job_.index == 1 - sender)
                    receive(in_, bytes, sender);
            }
        };
        const auto expected = [&](std::size_t i) { return value<float>(1 - job_.index, i); };
        const bool plays = job_.index < 2;
        measure<float>({{"latency", "peer", "put_notify", bytes},
                        "send/recv",
                        bytes <= (64 << 10) ? 50 : 10,
                        bytes,
                        plays ? bytes : 0,
                        0.5},
                       round, expected, rows);
    }

    // Every process with the ones before and after it, both ways at once.
    void halo(std::vector<row>& rows) {
        const int below = (job_.index + job_.count - 1) % job_.count, above = (job_.index + 1) % job_.count;
        const auto round = [&] {
            check(ncclGroupStart(), "cannot start a group");
            send(out_, halo_bytes, below);
            send(out_, halo_bytes, above);
            receive(in_, halo_bytes, above);
            receive(at(in_, halo_bytes), halo_bytes, below);
            check(ncclGroupEnd(), "cannot end a group");
        };
        const std::size_t floats = halo_bytes / sizeof(float);
        const auto expected = [&](std::size_t i) {
            return i < floats ? value<float>(above, i) : value<float>(below, i - floats);
        };
        measure<float>({{"overlap", "peer", "halo exchange", halo_bytes}, "send/recv", 50, halo_bytes, 2 * halo_bytes},
                       round, expected, rows);
    }

    // Of the one rank of each device, or of all columns by one call: their elements lie one after the other.
    void all_reduce(const row& place, const std::string& name, std::size_t count, std::vector<row>& rows) {
        const auto round = [&] {
            check(ncclAllReduce(out_, in_, count, ncclDouble, ncclSum, comm_, stream_), "cannot reduce");
        };
        const auto expected = [&](std::size_t i) {
            double sum = 0;
            for (int process = 0; process < job_.count; ++process) sum += value<double>(process, i);
            return sum;
        };
        const std::size_t bytes = count * sizeof(double);
        measure<double>({place, name, bytes <= (1 << 20) ? 50 : 20, bytes, bytes}, round, expected, rows);
    }

    void broadcast(std::vector<row>& rows) {
        const auto round = [&] {
            check(ncclBroadcast(out_, in_, 1, ncclDouble, 0, comm_, stream_), "cannot broadcast");
        };
        const auto expected = [](std::size_t i) { return value<double>(0, i); };
        measure<double>({one_rank("broadcast", 1), "broadcast", 50, sizeof(double), sizeof(double)}, round, expected,
                        rows);
    }

    void all_gather(std::size_t count, std::vector<row>& rows) {
        const auto round = [&] { check(ncclAllGather(out_, in_, count, ncclDouble, comm_, stream_), "cannot gather"); };
        const auto expected = [&](std::size_t i) { return value<double>(static_cast<int>(i / count), i % count); };
        const std::size_t bytes = count * sizeof(double);
        measure<double>({one_rank("all_gather", count), "all-gather", 50, bytes, bytes * processes()}, round, expected,
                        rows);
    }

    // A group of sends and receives, as NCCL's guide has it.
    void all_to_all(std::size_t count, std::vector<row>& rows) {
        const std::size_t bytes = count * sizeof(double);
        const auto round = [&] {
            check(ncclGroupStart(), "cannot start a group");
            for (int other = 0; other < job_.count; ++other) {
                const std::size_t place = static_cast<std::size_t>(other) * bytes;
                send(at(out_, place), bytes, other);
                receive(at(in_, place), bytes, other);
            }
            check(ncclGroupEnd(), "cannot end a group");
        };
        const auto expected = [&](std::size_t i) {
            return value<double>(static_cast<int>(i / count), static_cast<std::size_t>(job_.index) * count + i % count);
        };
        measure<double>(
            {one_rank("all_to_all", count), "grouped send/recv", 50, bytes * processes(), bytes * processes()}, round,
            expected, rows);
    }

    // Beside our collective operation of one rank of each device.
    static row one_rank(const char* operation, std::size_t count) {
        return {"collectives", "all devices", operation, count * sizeof(double), 0, 1};
    }

private:
    static constexpr std::size_t most_bytes = columns * many_of_column * sizeof(double);

    std::size_t processes() const { return static_cast<std::size_t>(job_.count); }
    static void* at(void* buffer, std::size_t place) { return static_cast<unsigned char*>(buffer) + place; }
    void send(const void* source, std::size_t bytes, int target) {
        check(ncclSend(source, bytes, ncclInt8, target, comm_, stream_), "cannot send");
    }
    void receive(void* target, std::size_t bytes, int source) {
        check(ncclRecv(target, bytes, ncclInt8, source, comm_, stream_), "cannot receive");
    }

    // Eager and from a graph: the time of a round.
    template <class Element, class Round, class Expected>
    void measure(const exchange& of, const Round& round, const Expected& expected, std::vector<row>& rows) {
        if (std::max(of.sent, of.received) > most_bytes) throw std::runtime_error("too many processes");
        std::vector<Element> content(of.sent / sizeof(Element));
        for (std::size_t i = 0; i < content.size(); ++i) content[i] = value<Element>(job_.index, i);
        check(cudaMemcpy(out_, content.data(), of.sent, cudaMemcpyHostToDevice), "cannot fill memory");
        check(cudaDeviceSynchronize(), "cannot fill memory");
        const auto run_rounds = [&] {
            for (int i = 0; i < of.rounds; ++i) round();
        };
        const auto check_batch = [&] { check_received<Element>(of, expected); };
        add_row(of, ", eager", run_rounds, check_batch, rows);

        cudaGraph_t graph = nullptr;
        cudaGraphExec_t ready = nullptr;
        check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cannot capture");
        run_rounds();
        check(cudaStreamEndCapture(stream_, &graph), "cannot capture");
        check(cudaGraphInstantiate(&ready, graph, 0), "cannot make a graph");
        const auto launch = [&] { check(cudaGraphLaunch(ready, stream_), "cannot launch a graph"); };
        add_row(of, ", graph", launch, check_batch, rows);
        cudaGraphExecDestroy(ready);
        cudaGraphDestroy(graph);
    }

    template <class Batch, class Check>
    void add_row(const exchange& of, const char* mode, const Batch& batch, const Check& check_batch,
                 std::vector<row>& rows) {
        std::vector<double> samples;
        for (int number = -1; number < batches; ++number) {
            check(cudaMemsetAsync(in_, 0, of.received, stream_), "cannot clear memory");
            meet();
            check(cudaEventRecord(start_, stream_), "cannot record an event");
            batch();
            check(cudaEventRecord(stop_, stream_), "cannot record an event");
            check(cudaStreamSynchronize(stream_), "NCCL failed");
            float ms = 0;
            check(cudaEventElapsedTime(&ms, start_, stop_), "cannot take the time");
            if (number >= 0) samples.push_back(1e3 * static_cast<double>(ms) / of.rounds * of.factor);
            check_batch();
        }
        row result = of.place;
        result.library = "NCCL " + of.name + mode;
        result.value = measure::summarise(samples);
        rows.push_back(result);
    }

    // Else the first round of a batch would wait for a process that still compares what it got.
    void meet() {
        check(ncclAllReduce(word_, word_, 1, ncclFloat, ncclSum, comm_, stream_), "cannot meet");
        check(cudaStreamSynchronize(stream_), "NCCL failed");
    }

    template <class Element, class Expected>
    void check_received(const exchange& of, const Expected& expected) {
        std::vector<Element> seen(of.received / sizeof(Element));
        check(cudaMemcpy(seen.data(), in_, of.received, cudaMemcpyDeviceToHost), "cannot read memory");
        for (std::size_t i = 0; i < seen.size(); ++i)
            if (seen[i] != expected(i))
                throw std::runtime_error(of.place.operation + ": element " + std::to_string(i) + " is " +
                                         std::to_string(seen[i]) + " instead of " + std::to_string(expected(i)));
    }

    rival_job job_;
    ncclComm_t comm_ = nullptr;
    cudaStream_t stream_ = nullptr;
    cudaEvent_t start_ = nullptr, stop_ = nullptr;
    void *out_ = nullptr, *in_ = nullptr, *word_ = nullptr; // the last for meet()
};

void measure_collectives(player& nccl, std::vector<row>& rows) {
    for (const std::size_t count : {std::size_t{1}, doubles_of_array})
        nccl.all_reduce(player::one_rank("allreduce", count), "all-reduce", count, rows);
    for (const std::size_t count : {std::size_t{1}, doubles_of_column, many_of_column}) {
        const row place{"collectives", "columns", "allreduce", count * sizeof(double), 0, static_cast<int>(columns)};
        nccl.all_reduce(place, "all-reduce of all columns at once", columns * count, rows);
    }
    nccl.broadcast(rows);
    nccl.all_gather(doubles_of_pair, rows);
    nccl.all_to_all(doubles_of_pair, rows);
}

void measure_nccl(const rival_job& job, const options& chosen, std::vector<row>& rows) {
    // No network: all processes are on this host.
    switch_multicast_off();
    setenv("NCCL_IB_DISABLE", "1", 0);
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    player nccl(job);
    if (chosen.wants("latency"))
        for (const std::size_t bytes : {4, 64, 384, 512, 1024, 4096, 65536, 1 << 20, 16 << 20})
            nccl.ping_pong(bytes, rows);
    if (chosen.wants("overlap")) nccl.halo(rows);
    if (chosen.wants("collectives")) measure_collectives(nccl, rows);
}

} // namespace

int main(int argc, char** argv) {
    const std::string version =
        std::to_string(NCCL_MAJOR) + "." + std::to_string(NCCL_MINOR) + "." + std::to_string(NCCL_PATCH);
    return run_rival(
        argc, argv, "bench_nccl",
        "NCCL's send and receive, halo exchange and collective operations: dcuda-run -n 2 bench_nccl --json nccl.json",
        "NCCL " + version, measure_nccl);
}
