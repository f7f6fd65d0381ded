// SPDX-License-Identifier: BSD-3-Clause
// NCCL beside dcuda-bench: send and receive, halo exchange and collective operations, launched one by one ("eager") and
// replayed from a CUDA graph; and an exchange on one stream while a kernel works on another.
//
//     dcuda-run -n 2 bench_nccl --json nccl.json
//     dcuda-run -n 2 dcuda-bench all --rival nccl.json
#include <algorithm>
#include <cstdio>

#include <nccl.h>

#include "common/stream.hpp"
#include "rivals/rival.hpp"

namespace {

using namespace benchmark;

void check(ncclResult_t status, const char* subject) {
    if (status != ncclSuccess) throw std::runtime_error(std::string(subject) + ": " + ncclGetErrorString(status));
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

// What an exchange of so many bytes with the processes before and after brings, element by element.
inline auto borders(int below, int above, std::size_t bytes) {
    return [=](std::size_t i) {
        const std::size_t floats = bytes / sizeof(float);
        return i < floats ? value<float>(above, i) : value<float>(below, i - floats);
    };
}

// What is measured, and how.
struct exchange {
    row place; // where it stands in the table
    std::string name;
    int rounds;
    std::size_t sent, received; // bytes; those received are compared
    double factor = 1;          // of a round's time
};

// What a device does in a step of dcuda-bench overlap: `amount` is bytes to copy, or iterations; of each block.
enum class work_kind { copy, newton, multiply_add };
struct work {
    work_kind kind;
    std::size_t amount;
    int blocks, threads;
};

// Each thread leaves its result, so that none is left out.
template <work_kind Kind>
__global__ void work_of(unsigned char* memory, std::size_t amount, double* results) {
    unsigned char* const own = memory + 2 * amount * blockIdx.x;
    const double start = 2.0 + 1e-3 * static_cast<double>(threadIdx.x);
    double& result = results[blockIdx.x * blockDim.x + threadIdx.x];
    if (Kind == work_kind::copy) copy_block(own + amount, own, amount);
    if (Kind == work_kind::newton) result = newton(start, static_cast<int>(amount));
    if (Kind == work_kind::multiply_add) result = multiply_add(static_cast<float>(start), static_cast<int>(amount));
}

class player {
public:
    explicit player(const rival_job& job) : job_(job) {
        ncclUniqueId id{};
        const std::filesystem::path file = job.meeting_place("nccl");
        id = exchange_id(job, file, id, [](ncclUniqueId& made) { check(ncclGetUniqueId(&made), "cannot make an id"); });
        check(ncclCommInitRank(&comm_, job.count, id, job.index), "cannot initialise NCCL");
        if (job.first()) std::filesystem::remove(file);
        for (cudaStream_t* stream : {&stream_, &work_stream_})
            check(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "cannot create a stream");
        for (cudaEvent_t* event : {&start_, &stop_, &begun_, &worked_})
            check(cudaEventCreate(event), "cannot create an event");
        for (void** buffer : {&out_, &in_, &word_}) {
            check(cudaMalloc(buffer, most_bytes), "no device memory");
            check(cudaMemset(*buffer, 0, most_bytes), "cannot clear memory");
        }
    }
    ~player() {
        cudaFree(word_);
        cudaFree(out_);
        cudaFree(in_);
        for (cudaEvent_t event : {worked_, begun_, stop_, start_}) cudaEventDestroy(event);
        cudaStreamDestroy(work_stream_);
        cudaStreamDestroy(stream_);
        ncclCommDestroy(comm_);
    }
    player(const player&) = delete;
    player& operator=(const player&) = delete;

    // Processes 0 and 1 in turn; half of a round trip, as the others measure it. One round is both ways.
    void ping_pong(const row& place, std::size_t bytes, std::vector<row>& rows) {
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
        measure<float>({place, "send/recv", bytes <= (64 << 10) ? 50 : 10, bytes, plays ? bytes : 0, 0.5}, round,
                       expected, rows);
    }

    // Every process with the ones before and after it, both ways at once.
    void halo(const char* benchmark, const char* operation, std::vector<row>& rows) {
        const int below = (job_.index + job_.count - 1) % job_.count, above = (job_.index + 1) % job_.count;
        const auto round = [&] { exchange_with(below, above, halo_bytes); };
        measure<float>({{benchmark, "peer", operation, halo_bytes}, "send/recv", 50, halo_bytes, 2 * halo_bytes}, round,
                       borders(below, above, halo_bytes), rows);
    }

    // A device's work in a step beside an exchange of all that its ranks send, each on a stream of its own; both are
    // over before the next step begins. From a CUDA graph.
    void work_beside_exchange(const options& chosen, const std::string& name, int ranks, std::vector<row>& rows) {
        constexpr int steps = 50;
        const std::size_t bytes = chosen.overlap.halo_bytes * static_cast<std::size_t>(ranks);
        const work of = work_of_ranks(chosen, name, ranks);
        const std::size_t copied = of.kind == work_kind::copy ? 2 * of.amount * static_cast<std::size_t>(ranks) : 0;
        const auto memory = allocate<unsigned char>(copied);
        const auto results = allocate<double>(static_cast<std::size_t>(of.blocks * of.threads));
        fill_out<float>(bytes);
        const int below = (job_.index + job_.count - 1) % job_.count, above = (job_.index + 1) % job_.count;
        const auto exchange_borders = [&] { exchange_with(below, above, bytes); };
        const auto do_work = [&](cudaStream_t stream) { launch(of, memory.get(), results.get(), stream); };
        const auto do_both = [&] {
            check(cudaEventRecord(begun_, stream_), "cannot record an event");
            check(cudaStreamWaitEvent(work_stream_, begun_), "cannot wait for an event");
            do_work(work_stream_);
            exchange_borders();
            check(cudaEventRecord(worked_, work_stream_), "cannot record an event");
            check(cudaStreamWaitEvent(stream_, worked_), "cannot wait for an event");
        };
        const auto time = [&](const auto& step, std::size_t received) {
            const exchange timed{{}, name, steps, bytes, received};
            const graph ready(stream_, steps, step);
            return time_batches(
                timed, [&] { ready.launch(stream_); },
                [&] { check_received<float>(timed, borders(below, above, bytes)); });
        };
        const std::vector<double> work_time = time([&] { do_work(stream_); }, 0),
                                  exchange_time = time(exchange_borders, 2 * bytes),
                                  both_time = time(do_both, 2 * bytes);
        std::vector<double> hidden;
        for (std::size_t i = 0; i < both_time.size(); ++i)
            hidden.push_back((work_time[i] + exchange_time[i] - both_time[i]) /
                             std::min(work_time[i], exchange_time[i]));
        const auto report = [&](const char* part, const std::vector<double>& samples, const char* unit) {
            row result{"overlap", "peer", name + part, chosen.overlap.halo_bytes, chosen.overlap.threads, ranks};
            result.library = "NCCL on a stream, graph";
            result.unit = unit;
            result.value = measure::summarise(samples);
            rows.push_back(result);
        };
        report(", work only", work_time, "us");
        report(", exchange only", exchange_time, "us");
        report(", both", both_time, "us");
        report(", overlap", hidden, "ratio");
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

    void exchange_with(int below, int above, std::size_t bytes) {
        check(ncclGroupStart(), "cannot start a group");
        send(out_, bytes, below);
        send(out_, bytes, above);
        receive(in_, bytes, above);
        receive(at(in_, bytes), bytes, below);
        check(ncclGroupEnd(), "cannot end a group");
    }
    static work work_of_ranks(const options& chosen, const std::string& name, int ranks) {
        const auto part = [&](std::size_t amount) { return amount / static_cast<std::size_t>(ranks); };
        const int threads = chosen.overlap.threads;
        if (name == "newton")
            return {work_kind::newton, part(static_cast<std::size_t>(chosen.overlap.newton)), ranks, threads};
        if (name == "fma")
            return {work_kind::multiply_add, part(static_cast<std::size_t>(chosen.overlap.multiply_add)), ranks,
                    threads};
        const std::size_t bytes = name == "copy" ? chosen.overlap.copy_bytes : chosen.overlap.stream_bytes;
        return {work_kind::copy, part(bytes) / 16 * 16, ranks, threads};
    }
    static void launch(const work& of, unsigned char* memory, double* results, cudaStream_t stream) {
        const auto kernel = of.kind == work_kind::copy     ? work_of<work_kind::copy>
                            : of.kind == work_kind::newton ? work_of<work_kind::newton>
                                                           : work_of<work_kind::multiply_add>;
        kernel<<<of.blocks, of.threads, 0, stream>>>(memory, of.amount, results);
        check(cudaGetLastError(), "cannot launch a kernel");
    }

    template <class Element>
    void fill_out(std::size_t bytes) {
        std::vector<Element> content(bytes / sizeof(Element));
        for (std::size_t i = 0; i < content.size(); ++i) content[i] = value<Element>(job_.index, i);
        check(cudaMemcpy(out_, content.data(), bytes, cudaMemcpyHostToDevice), "cannot fill memory");
        check(cudaDeviceSynchronize(), "cannot fill memory");
    }

    // Eager and from a graph: the time of a round.
    template <class Element, class Round, class Expected>
    void measure(const exchange& of, const Round& round, const Expected& expected, std::vector<row>& rows) {
        if (std::max(of.sent, of.received) > most_bytes) throw std::runtime_error("too many processes");
        fill_out<Element>(of.sent);
        const auto run_rounds = [&] {
            for (int i = 0; i < of.rounds; ++i) round();
        };
        const auto check_batch = [&] { check_received<Element>(of, expected); };
        add_row(of, ", eager", run_rounds, check_batch, rows);

        const graph ready(stream_, of.rounds, round);
        add_row(
            of, ", graph", [&] { ready.launch(stream_); }, check_batch, rows);
    }

    template <class Batch, class Check>
    void add_row(const exchange& of, const char* mode, const Batch& batch, const Check& check_batch,
                 std::vector<row>& rows) {
        row result = of.place;
        result.library = "NCCL " + of.name + mode;
        result.value = measure::summarise(time_batches(of, batch, check_batch));
        rows.push_back(result);
    }

    // Microseconds of a round, of each batch.
    template <class Batch, class Check>
    std::vector<double> time_batches(const exchange& of, const Batch& batch, const Check& check_batch) {
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
        return samples;
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
    cudaStream_t stream_ = nullptr, work_stream_ = nullptr;
    cudaEvent_t start_ = nullptr, stop_ = nullptr, begun_ = nullptr, worked_ = nullptr;
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

void measure_overlap(player& nccl, const options& chosen, std::vector<row>& rows) {
    nccl.halo("overlap", "halo exchange", rows);
    int multiprocessors = 0;
    check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0), "cannot ask for the GPU");
    for (const std::string& work : chosen.overlap.work)
        for (const int ranks : chosen.overlap.ranks_per_multiprocessor)
            nccl.work_beside_exchange(chosen, work, ranks * multiprocessors, rows);
}

void measure_nccl(const rival_job& job, const options& chosen, std::vector<row>& rows) {
    // No network: all processes are on this host.
    switch_multicast_off();
    setenv("NCCL_IB_DISABLE", "1", 0);
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    player nccl(job);
    if (chosen.wants("latency"))
        for (const std::size_t bytes : {4, 64, 384, 512, 1024, 4096, 65536, 1 << 20, 16 << 20})
            nccl.ping_pong({"latency", "peer", "put_notify", bytes}, bytes, rows);
    if (chosen.wants("stream")) {
        for (const std::size_t bytes : {8, 1024, 32 << 10, 128 << 10, 512 << 10, 2 << 20})
            nccl.ping_pong({"stream", "peer", "put_notify, graph", bytes}, bytes, rows);
        nccl.halo("stream", "halo exchange, graph", rows);
    }
    if (chosen.wants("overlap")) measure_overlap(nccl, chosen, rows);
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
