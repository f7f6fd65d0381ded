// SPDX-License-Identifier: BSD-3-Clause
// NCCL beside dcuda-bench: send and receive, halo exchange and all-reduce, launched one by one ("eager") and replayed
// from a CUDA graph.
//
//     dcuda-run -n 2 bench_nccl --json nccl.json
//     dcuda-run -n 2 dcuda-bench all --rival nccl.json
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
        for (float** buffer : {&out_, &in_}) {
            void* memory = nullptr;
            check(cudaMalloc(&memory, 2 * most_bytes), "no device memory");
            *buffer = static_cast<float*>(memory);
        }
    }
    ~player() {
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
                    check(ncclSend(out_, bytes, ncclInt8, 1 - sender, comm_, stream_), "cannot send");
                else if (job_.index == 1 - sender)
                    check(ncclRecv(in_, bytes, ncclInt8, sender, comm_, stream_), "cannot receive");
            }
        };
        const auto expected = [&](std::size_t i) { return value(1 - job_.index, i); };
        const bool plays = job_.index < 2;
        row what{"latency", "peer", "put_notify", bytes};
        measure(what, "send/recv", bytes <= (64 << 10) ? 50 : 10, 0.5, plays ? bytes : 0, round, expected, rows);
    }

    // Every process with the ones before and after it, both ways at once.
    void halo(std::vector<row>& rows) {
        const int below = (job_.index + job_.count - 1) % job_.count, above = (job_.index + 1) % job_.count;
        const auto round = [&] {
            check(ncclGroupStart(), "cannot start a group");
            check(ncclSend(out_, halo_bytes, ncclInt8, below, comm_, stream_), "cannot send");
            check(ncclSend(out_, halo_bytes, ncclInt8, above, comm_, stream_), "cannot send");
            check(ncclRecv(in_, halo_bytes, ncclInt8, above, comm_, stream_), "cannot receive");
            check(ncclRecv(in_ + halo_bytes / sizeof(float), halo_bytes, ncclInt8, below, comm_, stream_),
                  "cannot receive");
            check(ncclGroupEnd(), "cannot end a group");
        };
        const std::size_t floats = halo_bytes / sizeof(float);
        const auto expected = [&](std::size_t i) { return i < floats ? value(above, i) : value(below, i - floats); };
        row what{"overlap", "peer", "halo exchange", halo_bytes};
        measure(what, "send/recv", 50, 1.0, 2 * halo_bytes, round, expected, rows);
    }

    void all_reduce(std::size_t bytes, std::vector<row>& rows) {
        const auto round = [&] {
            check(ncclAllReduce(out_, in_, bytes / sizeof(float), ncclFloat, ncclSum, comm_, stream_), "cannot reduce");
        };
        const auto expected = [&](std::size_t i) {
            float sum = 0;
            for (int process = 0; process < job_.count; ++process) sum += value(process, i);
            return sum;
        };
        row what{"all-reduce", "all devices", "sum of float", bytes};
        measure(what, "all-reduce", 50, 1.0, bytes, round, expected, rows);
    }

private:
    static constexpr std::size_t most_bytes = 16 << 20;

    // Small whole numbers: sums of them are exact.
    static float value(int process, std::size_t index) {
        return static_cast<float>((index * 7 + 13) % 97) + 100.f * static_cast<float>(process);
    }

    // Eager and from a graph: the time of a round, times `factor`. `received` bytes are compared afterwards.
    template <class Round, class Expected>
    void measure(row what, const std::string& name, int rounds, double factor, std::size_t received, const Round& round,
                 const Expected& expected, std::vector<row>& rows) {
        std::vector<float> content(2 * most_bytes / sizeof(float));
        for (std::size_t i = 0; i < content.size(); ++i) content[i] = value(job_.index, i);
        check(cudaMemcpy(out_, content.data(), 2 * most_bytes, cudaMemcpyHostToDevice), "cannot fill memory");

        for (const bool in_graph : {false, true}) {
            check(cudaMemset(in_, 0, 2 * most_bytes), "cannot clear memory");
            check(cudaDeviceSynchronize(), "cannot clear memory");
            cudaGraph_t graph = nullptr;
            cudaGraphExec_t ready = nullptr;
            if (in_graph) {
                check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "cannot capture");
                for (int i = 0; i < rounds; ++i) round();
                check(cudaStreamEndCapture(stream_, &graph), "cannot capture");
                check(cudaGraphInstantiate(&ready, graph, 0), "cannot make a graph");
            }
            std::vector<double> samples;
            for (int batch = -1; batch < batches; ++batch) {
                check(cudaEventRecord(start_, stream_), "cannot record an event");
                if (in_graph)
                    check(cudaGraphLaunch(ready, stream_), "cannot launch a graph");
                else
                    for (int i = 0; i < rounds; ++i) round();
                check(cudaEventRecord(stop_, stream_), "cannot record an event");
                check(cudaStreamSynchronize(stream_), "NCCL failed");
                float ms = 0;
                check(cudaEventElapsedTime(&ms, start_, stop_), "cannot take the time");
                if (batch >= 0) samples.push_back(1e3 * static_cast<double>(ms) / rounds * factor);
            }
            if (in_graph) {
                cudaGraphExecDestroy(ready);
                cudaGraphDestroy(graph);
            }
            check_received(received, expected, what);
            what.library = "NCCL " + name + (in_graph ? ", graph" : ", eager");
            what.value = measure::summarise(samples);
            rows.push_back(what);
        }
    }

    template <class Expected>
    void check_received(std::size_t bytes, const Expected& expected, const row& what) {
        std::vector<float> seen(bytes / sizeof(float));
        check(cudaMemcpy(seen.data(), in_, bytes, cudaMemcpyDeviceToHost), "cannot read memory");
        for (std::size_t i = 0; i < seen.size(); ++i)
            if (seen[i] != expected(i))
                throw std::runtime_error(what.operation + ": element " + std::to_string(i) + " is " +
                                         std::to_string(seen[i]) + " instead of " + std::to_string(expected(i)));
    }

    rival_job job_;
    ncclComm_t comm_ = nullptr;
    cudaStream_t stream_ = nullptr;
    cudaEvent_t start_ = nullptr, stop_ = nullptr;
    float *out_ = nullptr, *in_ = nullptr;
};

void measure_nccl(const rival_job& job, const options&, std::vector<row>& rows) {
    // No multicast, no network: all processes are on this host.
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    setenv("NCCL_IB_DISABLE", "1", 0);
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    player nccl(job);
    for (const std::size_t bytes : {4, 64, 384, 512, 1024, 4096, 65536, 1 << 20, 16 << 20}) nccl.ping_pong(bytes, rows);
    nccl.halo(rows);
    for (const std::size_t bytes : {8, 128 << 10, 16 << 20}) nccl.all_reduce(bytes, rows);
}

} // namespace

int main(int argc, char** argv) {
    const std::string version =
        std::to_string(NCCL_MAJOR) + "." + std::to_string(NCCL_MINOR) + "." + std::to_string(NCCL_PATCH);
    return run_rival(
        argc, argv, "bench_nccl",
        "NCCL's send and receive, halo exchange and all-reduce: dcuda-run -n 2 bench_nccl --json nccl.json",
        "NCCL " + version, measure_nccl);
}
