// SPDX-License-Identifier: BSD-3-Clause
// NVSHMEM beside dcuda-bench: the same ping-pong, puts, flushes and barriers.
//
//     dcuda-run -n 2 bench_nvshmem --json nvshmem.json
//     dcuda-run -n 2 dcuda-bench all --rival nvshmem.json
#include <cooperative_groups.h>
#include <cstdio>

#include <nvshmem.h>
#include <nvshmemx.h>

#include "common/ping_pong.hpp"
#include "common/samples.hpp"
#include "rivals/rival.hpp"

namespace {

using namespace benchmark;

// --- Latency ---------------------------------------------------------------------------------------------------------

// Signals carry a number that only grows, so none has to be reset.
struct signal_channel {
    std::uint64_t* signal;
    int peer;
    std::uint64_t sent;
    std::uint64_t received;

    __device__ void send(const void*, int) {
        ++sent;
        if (threadIdx.x == 0) nvshmemx_signal_op(signal, sent, NVSHMEM_SIGNAL_SET, peer);
    }
    __device__ void wait() {
        ++received;
        if (threadIdx.x == 0) nvshmem_signal_wait_until(signal, NVSHMEM_CMP_GE, received);
        __syncthreads();
    }
    __device__ void complete() { __syncthreads(); }
    __device__ void barrier() { nvshmemx_barrier_all_block(); }
};

struct put_channel : signal_channel {
    unsigned char* landing; // the same address on both sides: it is symmetric
    std::size_t bytes;

    // The payload is whole: wait and barrier meet after it was made.
    __device__ void send(const void* source, int number) {
        ++sent;
        nvshmemx_putmem_signal_block(landing + static_cast<std::size_t>(number) * stride_bytes(bytes), source, bytes,
                                     signal, sent, NVSHMEM_SIGNAL_SET, peer);
    }
    __device__ void complete() {
        __syncthreads();
        nvshmem_quiet();
        __syncthreads();
    }
};

__global__ void ping_pong(game of, player me, std::uint64_t* signal) {
    const int peer = me.which == side::ping ? 1 : 0;
    if (nvshmem_my_pe() > 1) {
        for (int batch = -1; batch < of.batches; ++batch) nvshmemx_barrier_all_block();
    } else if (of.words == 0) {
        signal_channel channel{signal, peer, 0, 0};
        play(channel, of, me);
    } else {
        put_channel channel{
            {signal, peer, 0, 0}, reinterpret_cast<unsigned char*>(me.landings[0]), of.words * sizeof(std::uint32_t)};
        play(channel, of, me);
    }
    nvshmemx_barrier_all_block();
}

// --- Bandwidth, flush, barriers --------------------------------------------------------------------------------------

// PE 0's blocks put into PE 1. The blocks of a PE meet by the grid's barrier, the PEs by one block of each.
__device__ void meet(const cooperative_groups::grid_group& grid) {
    grid.sync();
    if (blockIdx.x == 0) nvshmemx_barrier_all_block();
    grid.sync();
}

__global__ void puts(unsigned char* landing, unsigned char* source, std::size_t bytes, int count, int batches,
                     interval* stamps, mistake* wrong) {
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    unsigned char* const from = source + blockIdx.x * bytes;
    unsigned char* const to = landing + blockIdx.x * bytes;
    const int id = static_cast<int>(blockIdx.x), pe = nvshmem_my_pe();
    for (int batch = -1; batch < batches; ++batch) {
        fill(from, bytes, batch, id);
        meet(grid);
        const std::uint64_t start = now_ns();
        for (int i = 0; pe == 0 && i < count; ++i) nvshmemx_putmem_nbi_block(to, from, bytes, 1);
        if (pe == 0) {
            __syncthreads();
            nvshmem_quiet();
            __syncthreads();
        }
        const std::uint64_t stop = now_ns();
        if (batch >= 0 && threadIdx.x == 0) stamps[batch * static_cast<int>(gridDim.x) + id] = {start, stop};
        meet(grid);
        if (pe == 1) compare(wrong, to, bytes, batch, id);
    }
}

// Block 0 of every PE: barrier_all (which completes puts), or sync_all (which orders only what was local). With more
// blocks, all of them meet before and after: a barrier of all blocks of all GPUs.
__global__ void barriers(bool sync_only, int rounds, int batches, std::uint32_t* word, interval* stamps,
                         mistake* wrong) {
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    const bool many = gridDim.x > 1;
    const int pe = nvshmem_my_pe(), next = (pe + 1) % nvshmem_n_pes();
    for (int batch = -1; batch < batches; ++batch) {
        const auto number = static_cast<std::uint32_t>(batch + 2);
        if (blockIdx.x == 0 && threadIdx.x == 0) nvshmem_uint32_p(word, number, next);
        meet(grid);
        if (blockIdx.x == 0 && threadIdx.x == 0) expect(wrong, batch, no_round, 0, number, load_word(word));
        meet(grid);
        const std::uint64_t start = now_ns();
        for (int round = 0; round < rounds; ++round) {
            if (many) grid.sync();
            if (blockIdx.x == 0) {
                if (sync_only)
                    nvshmemx_sync_all_block();
                else
                    nvshmemx_barrier_all_block();
            }
            if (many) grid.sync();
        }
        const std::uint64_t stop = now_ns();
        if (batch >= 0 && blockIdx.x == 0 && threadIdx.x == 0) stamps[batch] = {start, stop};
    }
}

__global__ void flushes(unsigned char* landing, unsigned char* source, std::size_t bytes, int rounds, int batches,
                        interval* stamps, mistake* wrong) {
    const int pe = nvshmem_my_pe();
    for (int batch = -1; batch < batches; ++batch) {
        fill(source, bytes, batch, 0);
        nvshmemx_barrier_all_block();
        const std::uint64_t start = now_ns();
        for (int round = 0; pe == 0 && round < rounds; ++round) {
            nvshmemx_putmem_nbi_block(landing, source, bytes, 1);
            __syncthreads();
            nvshmem_quiet();
            __syncthreads();
        }
        const std::uint64_t stop = now_ns();
        if (batch >= 0 && threadIdx.x == 0) stamps[batch] = {start, stop};
        nvshmemx_barrier_all_block();
        if (pe == 1) compare(wrong, landing, bytes, batch, 0);
    }
}

// --- Host ------------------------------------------------------------------------------------------------------------

void check(int nvshmem_status, const char* what) {
    if (nvshmem_status != 0)
        throw std::runtime_error(std::string(what) + ": NVSHMEM status " + std::to_string(nvshmem_status));
}
using benchmark::check;

// NVSHMEM as long as it lives.
class library {
public:
    explicit library(const rival_job& job) {
        // All PEs are on this host: no network, no multicast.
        setenv("NVSHMEM_DISABLE_NVLS", "1", 1);
        setenv("NVSHMEM_REMOTE_TRANSPORT", "none", 0);
        setenv("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", "lo", 0);
        const std::filesystem::path file = job.meeting_place("nvshmem");
        nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
        id = exchange_id(job, file, id,
                         [](nvshmemx_uniqueid_t& made) { check(nvshmemx_get_uniqueid(&made), "cannot make an id"); });
        nvshmemx_init_attr_t attributes = NVSHMEMX_INIT_ATTR_INITIALIZER;
        check(nvshmemx_set_attr_uniqueid_args(job.index, job.count, &id, &attributes), "cannot use the id");
        check(nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attributes), "cannot initialise NVSHMEM");
        if (job.first()) std::filesystem::remove(file);
    }
    ~library() { nvshmem_finalize(); }
    library(const library&) = delete;
    library& operator=(const library&) = delete;
};

struct free_symmetric {
    void operator()(void* memory) const { nvshmem_free(memory); }
};
template <class Element>
using symmetric_array = std::unique_ptr<Element[], free_symmetric>;

// Cleared. Collective.
template <class Element>
symmetric_array<Element> allocate(std::size_t count) {
    const std::size_t bytes = count * sizeof(Element);
    void* const memory = nvshmem_malloc(bytes);
    if (memory == nullptr) throw std::runtime_error("no symmetric memory for " + std::to_string(bytes) + " B");
    check(cudaMemset(memory, 0, bytes), "cannot clear memory");
    check(cudaDeviceSynchronize(), "cannot clear memory");
    nvshmem_barrier_all();
    return symmetric_array<Element>(static_cast<Element*>(memory));
}

// Where kernels leave what they measured.
class results {
public:
    results(int batches, int blocks)
        : batches_(static_cast<std::size_t>(batches)), blocks_(static_cast<std::size_t>(blocks)),
          stamps_(allocate<interval>(batches_ * blocks_)), wrong_(allocate<mistake>(1)) {}

    interval* stamps() const { return stamps_.get(); }
    mistake* wrong() const { return wrong_.get(); }

    // Runs the kernel with these arguments on all PEs; microseconds of each batch.
    template <class... Params>
    std::vector<double> run(void (*kernel)(Params...), int blocks, int threads, Params... arguments) const {
        void* pointers[] = {static_cast<void*>(&arguments)...};
        check(nvshmemx_collective_launch(reinterpret_cast<const void*>(kernel), dim3(static_cast<unsigned>(blocks)),
                                         dim3(static_cast<unsigned>(threads)), pointers, 0, nullptr),
              "cannot launch");
        check(cudaDeviceSynchronize(), "the kernel failed");
        mistake mine{};
        check(cudaMemcpy(&mine, wrong(), sizeof mine, cudaMemcpyDeviceToHost), "cannot copy results");
        if (mine.count != 0)
            throw std::runtime_error(std::to_string(mine.count) + " words were wrong; the first, word " +
                                     std::to_string(mine.word) + " in round " + std::to_string(mine.round) +
                                     " of batch " + std::to_string(mine.batch) + ", was " + std::to_string(mine.seen) +
                                     " instead of " + std::to_string(mine.expected));
        std::vector<interval> all(batches_ * blocks_);
        check(cudaMemcpy(all.data(), stamps(), all.size() * sizeof all[0], cudaMemcpyDeviceToHost),
              "cannot copy results");
        return microseconds_of_batches(all, blocks_);
    }

private:
    std::size_t batches_, blocks_;
    symmetric_array<interval> stamps_;
    symmetric_array<mistake> wrong_;
};

constexpr int batches = 12;

void measure_latency(const rival_job& job, const options& chosen, std::vector<row>& rows) {
    constexpr int rounds = 1000;
    std::vector<std::size_t> payloads{0};
    payloads.insert(payloads.end(), chosen.latency.sizes.begin(), chosen.latency.sizes.end());
    const auto memory = allocate<unsigned char>(buffers_of_player * stride_bytes(1 << 20));
    for (const std::size_t bytes : payloads)
        for (const int threads : chosen.latency.threads) {
            const auto signal = allocate<std::uint64_t>(1);
            const results measured(batches, 1);
            const player me = make_player(static_cast<side>(std::min(job.index, 1)), memory.get(), bytes,
                                          measured.stamps(), measured.wrong());
            row what{"latency", "peer", bytes == 0 ? "notify" : "put_notify", bytes, threads};
            what.library = bytes == 0 ? "NVSHMEM signal_op" : "NVSHMEM putmem_signal_block";
            const game of{static_cast<std::uint32_t>(bytes / 4), rounds, batches};
            what.value =
                measure::summarise(scaled(measured.run(ping_pong, 1, threads, of, me, signal.get()), 0.5 / rounds));
            rows.push_back(what);
        }
}

void measure_bandwidth(std::vector<row>& rows) {
    struct shape {
        const char* operation; // of ours, to stand beside
        int blocks, threads;
    };
    for (const std::size_t bytes : {std::size_t{64} << 10, std::size_t{1} << 20})
        for (const shape& of :
             {shape{"put, 1 rank", 1, 256}, shape{"put, 16 ranks", 16, 1024}, shape{"put, all ranks", 132, 1024}}) {
            const std::size_t whole = bytes * static_cast<std::size_t>(of.blocks);
            const auto landing = allocate<unsigned char>(whole), source = allocate<unsigned char>(whole);
            const results measured(batches, of.blocks);
            const int count = std::clamp(static_cast<int>((64 << 20) / whole), 1, of.blocks == 1 ? 32 : 64);
            row what{"bandwidth", "peer", of.operation, bytes};
            what.unit = "GB/s";
            what.library =
                "NVSHMEM putmem_nbi_block, " + std::to_string(of.blocks) + " x " + std::to_string(of.threads);
            std::vector<double> rates;
            for (const double us : measured.run(puts, of.blocks, of.threads, landing.get(), source.get(), bytes, count,
                                                batches, measured.stamps(), measured.wrong()))
                rates.push_back(1e-3 * static_cast<double>(whole) * count / us);
            what.value = measure::summarise(rates);
            rows.push_back(what);
        }
}

void measure_barriers(std::vector<row>& rows) {
    constexpr int rounds = 500;
    struct shape {
        const char* name;
        bool sync_only;
        int blocks, ranks; // ranks of ours to stand beside; 0: any
    };
    for (const shape& of : {shape{"NVSHMEM barrier_all_block, 1 block", false, 1, 0},
                            shape{"NVSHMEM sync_all_block, 1 block", true, 1, 0},
                            shape{"NVSHMEM barrier_all_block between grid.sync", false, 132, 132},
                            shape{"NVSHMEM barrier_all_block between grid.sync", false, 1056, 1056}}) {
        const results measured(batches, 1);
        const auto word = allocate<std::uint32_t>(1);
        row what{"barrier", "all devices", "barrier", 0, 0, of.ranks};
        what.library = of.name;
        what.value = measure::summarise(scaled(measured.run(barriers, of.blocks, 32, of.sync_only, rounds, batches,
                                                            word.get(), measured.stamps(), measured.wrong()),
                                               1.0 / rounds));
        rows.push_back(what);
    }
}

void measure_flush(std::vector<row>& rows) {
    constexpr int rounds = 1000;
    constexpr std::size_t bytes = 1024;
    const auto landing = allocate<unsigned char>(bytes), source = allocate<unsigned char>(bytes);
    const results measured(batches, 1);
    row what{"flush", "peer", "put and flush", bytes};
    what.library = "NVSHMEM putmem_nbi_block and quiet";
    what.value = measure::summarise(scaled(measured.run(flushes, 1, 128, landing.get(), source.get(), bytes, rounds,
                                                        batches, measured.stamps(), measured.wrong()),
                                           1.0 / rounds));
    rows.push_back(what);
}

void measure_nvshmem(const rival_job& job, const options& chosen, std::vector<row>& rows) {
    const library nvshmem(job);
    measure_latency(job, chosen, rows);
    measure_bandwidth(rows);
    measure_barriers(rows);
    measure_flush(rows);
}

} // namespace

int main(int argc, char** argv) {
    const std::string version = std::to_string(NVSHMEM_VENDOR_MAJOR_VERSION) + "." +
                                std::to_string(NVSHMEM_VENDOR_MINOR_VERSION) + "." +
                                std::to_string(NVSHMEM_VENDOR_PATCH_VERSION);
    return run_rival(argc, argv, "bench_nvshmem",
                     "NVSHMEM's puts, signals and barriers: dcuda-run -n 2 bench_nvshmem --json nvshmem.json",
                     "NVSHMEM " + version, measure_nvshmem);
}
