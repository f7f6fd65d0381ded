// SPDX-License-Identifier: BSD-3-Clause
// NVSHMEM beside dcuda-bench: the same ping-pong, puts, flushes, gets, atomic operations, barriers and collective
// operations.
//
//     dcuda-run -n 2 bench_nvshmem --json nvshmem.json
//     dcuda-run -n 2 dcuda-bench all --rival nvshmem.json
#include <cooperative_groups.h>
#include <cstdio>

#include <nvshmem.h>
#include <nvshmemx.h>

#include "common/ping_pong.hpp"
#include "common/samples.hpp"
#include "common/turns.hpp"
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
    unsigned char* const receiver = landing + blockIdx.x * bytes;
    const int id = static_cast<int>(blockIdx.x), pe = nvshmem_my_pe();
    for (int batch = -1; batch < batches; ++batch) {
        fill(from, bytes, batch, id);
        meet(grid);
        const std::uint64_t start = now_ns();
        for (int i = 0; pe == 0 && i < count; ++i) nvshmemx_putmem_nbi_block(receiver, from, bytes, 1);
        if (pe == 0) {
            __syncthreads();
            nvshmem_quiet();
            __syncthreads();
        }
        const std::uint64_t stop = now_ns();
        if (batch >= 0 && threadIdx.x == 0) stamps[batch * static_cast<int>(gridDim.x) + id] = {start, stop};
        meet(grid);
        if (pe == 1) compare(wrong, receiver, bytes, batch, id);
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

// --- Gets, atomic operations, strided puts ---------------------------------------------------------------------------

enum class access : int { get, fetch_add, compare_swap, add };

// PE 0, or each block of all PEs, works on the memory of PE `target`: a word, and bytes to get. What a word held is
// told to all threads of the block, as dCUDA's operations do.
__global__ void accesses(access operation, bool by_all, std::uint32_t* word, unsigned char* data, unsigned char* copy,
                         std::size_t bytes, int rounds, int batches, interval* stamps, mistake* wrong) {
    __shared__ std::uint32_t before;
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    const int pe = nvshmem_my_pe(), target = by_all ? 0 : 1;
    const bool is_leader = threadIdx.x == 0, is_source = by_all || pe == 0;
    if (blockIdx.x == 0) fill(data, bytes, 0, 0);
    if (blockIdx.x == 0 && is_leader) *word = 0;
    std::uint32_t sum = 0;
    for (int batch = -1; batch < batches; ++batch) {
        meet(grid);
        const std::uint64_t start = now_ns();
        for (int round = 0; is_source && round < rounds; ++round) {
            if (operation == access::get) {
                nvshmemx_getmem_block(copy, data, bytes, target);
                continue;
            }
            if (operation == access::add) {
                if (is_leader) nvshmem_uint32_atomic_add(word, 1, target);
                continue;
            }
            if (is_leader)
                before = operation == access::fetch_add
                             ? nvshmem_uint32_atomic_fetch_add(word, 1, target)
                             : nvshmem_uint32_atomic_compare_swap(word, sum, sum + 1, target);
            __syncthreads();
            sum += before;
            __syncthreads();
        }
        if (operation == access::add && is_leader) nvshmem_quiet();
        __syncthreads();
        const std::uint64_t stop = now_ns();
        if (batch >= 0 && is_leader)
            stamps[batch * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x)] = {start, stop};
        meet(grid);
        if (operation == access::get && is_source) compare(wrong, copy, bytes, 0, 0);
    }
    const bool counts = operation == access::fetch_add || operation == access::add;
    const int sources = by_all ? static_cast<int>(gridDim.x) * nvshmem_n_pes() : 1;
    if (counts && pe == target && blockIdx.x == 0 && is_leader)
        expect(wrong, batches, no_round, 0, static_cast<std::uint32_t>(sources * rounds * (batches + 1)),
               load_word(word));
    meet(grid);
}

// Sums arrive beside, and the target's threads add them; rows are put by strides, or one by one where they are long.
struct message_channel : signal_channel {
    layout of;
    std::uint32_t* landing;
    std::uint32_t* beside;
    const std::uint32_t* source;

    __device__ void send() {
        ++sent;
        if (of.is_sum) {
            nvshmemx_putmem_signal_block(beside, source, of.bytes(), signal, sent, NVSHMEM_SIGNAL_SET, peer);
            return;
        }
        if (of.width == 2)
            nvshmemx_double_iput_block(reinterpret_cast<double*>(landing), reinterpret_cast<const double*>(source),
                                       of.pitch / 2, of.pitch / 2, of.rows, peer);
        else
            for (std::uint32_t row = threadIdx.x / 32; row < of.rows; row += blockDim.x / 32)
                nvshmemx_putmem_nbi_warp(landing + row * of.pitch, source + row * of.pitch,
                                         of.width * sizeof(std::uint32_t), peer);
        nvshmem_fence();
        __syncthreads();
        if (threadIdx.x == 0) nvshmemx_signal_op(signal, sent, NVSHMEM_SIGNAL_SET, peer);
    }
    __device__ void wait() {
        signal_channel::wait();
        if (!of.is_sum) return;
        auto* const sums = reinterpret_cast<float*>(landing);
        const auto* const more = reinterpret_cast<const float*>(beside);
        for (std::uint32_t i = threadIdx.x; i < of.width; i += blockDim.x) sums[i] += more[i];
        __syncthreads(); // the next one may come
    }
};

__global__ void take_turns_of_pes(turns own, std::uint64_t* signal, std::uint32_t* beside) {
    message_channel channel{{signal, own.which == side::ping ? 1 : 0, 0, 0}, own.of, own.landing, beside, own.source};
    if (nvshmem_my_pe() > 1)
        watch_turns(channel, own.batches);
    else
        take_turns(channel, own);
    nvshmemx_barrier_all_block();
}

// --- Collective operations -------------------------------------------------------------------------------------------

enum class action : int {
    reduce,
    gather_and_add,
    broadcast_bytes,
    broadcast_words,
    all_gather_bytes,
    all_gather_doubles,
    all_to_all,
    barrier,
    sync
};
template <action act>
constexpr bool is_barrier = act == action::barrier || act == action::sync;
template <action act>
constexpr bool is_reduction = act == action::reduce || act == action::gather_and_add;
template <action act>
constexpr bool is_all_gather = act == action::all_gather_bytes || act == action::all_gather_doubles;

// Of a block: what it sends, what it receives, and room for what it gathers.
struct block_memory {
    double *in, *out, *gathered;
};

// Doubles of each of them, for `count` doubles for each PE: cache lines of their own.
DCUDA_HOST_DEVICE std::size_t room(std::size_t count, int pes) {
    constexpr std::size_t line = 128 / sizeof(double);
    return (count * static_cast<std::size_t>(pes) + line - 1) / line * line;
}

// What NVSHMEM itself does to reduce few doubles, with the memory of the block's team.
__device__ void gather_and_add(nvshmem_team_t team, const block_memory& memory, std::size_t count) {
    nvshmemx_double_fcollect_block(team, memory.gathered, memory.in, count);
    for (std::size_t i = threadIdx.x; i < count; i += blockDim.x) {
        double sum = 0;
        for (int pe = 0; pe < nvshmem_n_pes(); ++pe) sum += memory.gathered[static_cast<std::size_t>(pe) * count + i];
        memory.out[i] = sum;
    }
    __syncthreads();
}

template <action act>
__device__ void act_once(nvshmem_team_t team, const block_memory& memory, std::size_t count) {
    const std::size_t bytes = count * sizeof(double);
    if constexpr (act == action::reduce)
        nvshmemx_double_sum_reduce_block(team, memory.out, memory.in, count);
    else if constexpr (act == action::gather_and_add)
        gather_and_add(team, memory, count);
    else if constexpr (act == action::broadcast_bytes)
        // The same as broadcastmem, which NVSHMEM's headers declare without its root.
        nvshmemx_char_broadcast_block(team, reinterpret_cast<char*>(memory.out),
                                      reinterpret_cast<const char*>(memory.in), bytes, 0);
    else if constexpr (act == action::broadcast_words)
        nvshmemx_uint32_broadcast_block(team, reinterpret_cast<std::uint32_t*>(memory.out),
                                        reinterpret_cast<const std::uint32_t*>(memory.in),
                                        bytes / sizeof(std::uint32_t), 0);
    else if constexpr (act == action::all_gather_bytes)
        nvshmemx_fcollectmem_block(team, memory.out, memory.in, bytes);
    else if constexpr (act == action::all_gather_doubles)
        nvshmemx_double_fcollect_block(team, memory.out, memory.in, count);
    else if constexpr (act == action::all_to_all)
        nvshmemx_alltoallmem_block(team, memory.out, memory.in, bytes);
    else if constexpr (act == action::barrier)
        nvshmemx_barrier_block(team);
    else
        nvshmemx_team_sync_block(team);
}

// Whole numbers, whose sums are exact. Each batch and block has its own.
__device__ double value(int batch, int pe, std::size_t index) {
    return static_cast<double>(index + 31u * static_cast<unsigned>(batch + 2) + 7u * blockIdx.x +
                               100'000u * static_cast<unsigned>(pe));
}

// What element `index` of the results must be.
template <action act>
__device__ double expected_value(int batch, std::size_t index, std::size_t count) {
    const int sender = static_cast<int>(index / count);
    if constexpr (is_reduction<act>) {
        double sum = 0;
        for (int pe = 0; pe < nvshmem_n_pes(); ++pe) sum += value(batch, pe, index);
        return sum;
    } else if constexpr (is_all_gather<act>) {
        return value(batch, sender, index % count);
    } else if constexpr (act == action::all_to_all) {
        return value(batch, sender, static_cast<std::size_t>(nvshmem_my_pe()) * count + index % count);
    } else {
        return value(batch, 0, index);
    }
}

__device__ void expect_value(mistake* wrong, int batch, std::size_t index, double expected, double seen) {
    expect(wrong, batch, no_round, static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(expected),
           static_cast<std::uint32_t>(seen));
}

// Each PE puts a number to the next one, which finds it after the barrier.
template <action act>
__device__ void check_barrier(nvshmem_team_t team, const block_memory& memory, int batch, mistake* wrong) {
    const int pe = nvshmem_my_pe(), count = nvshmem_n_pes();
    if (threadIdx.x == 0) {
        nvshmem_double_p(memory.out, value(batch, pe, 0), (pe + 1) % count);
        nvshmem_quiet();
    }
    __syncthreads();
    act_once<act>(team, memory, 1);
    const double seen = *const_cast<const volatile double*>(memory.out);
    if (threadIdx.x == 0) expect_value(wrong, batch, 0, value(batch, (pe + count - 1) % count, 0), seen);
}

template <action act>
__device__ void check_batch(nvshmem_team_t team, const block_memory& memory, std::size_t count, int batch,
                            mistake* wrong) {
    if constexpr (is_barrier<act>) {
        check_barrier<act>(team, memory, batch, wrong);
    } else {
        const bool from_all = is_all_gather<act> || act == action::all_to_all;
        const std::size_t received = from_all ? count * static_cast<std::size_t>(nvshmem_n_pes()) : count;
        for (std::size_t i = threadIdx.x; i < received; i += blockDim.x)
            expect_value(wrong, batch, i, expected_value<act>(batch, i, count), memory.out[i]);
    }
}

// Every block acts with the same block of all PEs, on a team of its own. The time is that of PE 0's first block, as
// that of our collective operations.
template <action act>
__global__ void collectives(const nvshmem_team_t* teams, std::size_t count, int rounds, int batches, double* all,
                            interval* stamps, mistake* wrong) {
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    const nvshmem_team_t team = teams[blockIdx.x];
    const std::size_t doubles = room(count, nvshmem_n_pes());
    double* const first = all + 3 * doubles * blockIdx.x;
    const block_memory memory{first, first + doubles, first + 2 * doubles};
    for (int batch = -1; batch < batches; ++batch) {
        for (std::size_t i = threadIdx.x; i < doubles; i += blockDim.x) memory.in[i] = value(batch, nvshmem_my_pe(), i);
        meet(grid);
        const std::uint64_t start = now_ns();
        for (int round = 0; round < rounds; ++round) act_once<act>(team, memory, count);
        const std::uint64_t stop = now_ns();
        if (batch >= 0 && blockIdx.x == 0 && threadIdx.x == 0) stamps[batch] = {start, stop};
        meet(grid);
        check_batch<act>(team, memory, count, batch, wrong);
    }
}

// --- Host ------------------------------------------------------------------------------------------------------------

void check(int nvshmem_status, const char* subject) {
    if (nvshmem_status != 0)
        throw std::runtime_error(std::string(subject) + ": NVSHMEM status " + std::to_string(nvshmem_status));
}
using benchmark::check;

// NVSHMEM as long as it lives.
class library {
public:
    explicit library(const rival_job& job) {
        // All PEs are on this host: no network.
        switch_multicast_off();
        setenv("NVSHMEM_REMOTE_TRANSPORT", "none", 0);
        // A team for each block of the columns, and NVSHMEM's own. Without NCCL, which only calls of the host would
        // use: each team would get a communicator.
        setenv("NVSHMEM_MAX_TEAMS", "256", 0);
        setenv("NVSHMEM_DISABLE_NCCL", "1", 0);
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
        mistake ours{};
        check(cudaMemcpy(&ours, wrong(), sizeof ours, cudaMemcpyDeviceToHost), "cannot copy results");
        if (ours.count != 0)
            throw std::runtime_error(std::to_string(ours.count) + " words were wrong; the first, word " +
                                     std::to_string(ours.word) + " in round " + std::to_string(ours.round) +
                                     " of batch " + std::to_string(ours.batch) + ", was " + std::to_string(ours.seen) +
                                     " instead of " + std::to_string(ours.expected));
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
            row entry{"latency", "peer", bytes == 0 ? "notify" : "put_notify", bytes, threads};
            entry.library = bytes == 0 ? "NVSHMEM signal_op" : "NVSHMEM putmem_signal_block";
            const game of{static_cast<std::uint32_t>(bytes / 4), rounds, batches};
            entry.value =
                measure::summarise(scaled(measured.run(ping_pong, 1, threads, of, me, signal.get()), 0.5 / rounds));
            rows.push_back(entry);
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
            row entry{"bandwidth", "peer", of.operation, bytes};
            entry.unit = "GB/s";
            entry.library =
                "NVSHMEM putmem_nbi_block, " + std::to_string(of.blocks) + " x " + std::to_string(of.threads);
            std::vector<double> rates;
            for (const double us : measured.run(puts, of.blocks, of.threads, landing.get(), source.get(), bytes, count,
                                                batches, measured.stamps(), measured.wrong()))
                rates.push_back(1e-3 * static_cast<double>(whole) * count / us);
            entry.value = measure::summarise(rates);
            rows.push_back(entry);
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
        row entry{"barrier", "all devices", "barrier", 0, 0, of.ranks};
        entry.library = of.name;
        entry.value = measure::summarise(scaled(measured.run(barriers, of.blocks, 32, of.sync_only, rounds, batches,
                                                             word.get(), measured.stamps(), measured.wrong()),
                                                1.0 / rounds));
        rows.push_back(entry);
    }
}

void measure_flush(std::vector<row>& rows) {
    constexpr int rounds = 1000;
    constexpr std::size_t bytes = 1024;
    const auto landing = allocate<unsigned char>(bytes), source = allocate<unsigned char>(bytes);
    const results measured(batches, 1);
    row entry{"flush", "peer", "put and flush", bytes};
    entry.library = "NVSHMEM putmem_nbi_block and quiet";
    entry.value = measure::summarise(scaled(measured.run(flushes, 1, 128, landing.get(), source.get(), bytes, rounds,
                                                         batches, measured.stamps(), measured.wrong()),
                                            1.0 / rounds));
    rows.push_back(entry);
}

void measure_accesses(std::vector<row>& rows) {
    struct kind {
        const char *operation, *library;
        access how;
        std::size_t bytes;
        int rounds;
    };
    constexpr std::size_t most = 1 << 20;
    const auto word = allocate<std::uint32_t>(1);
    const auto data = allocate<unsigned char>(most), copy = allocate<unsigned char>(most);
    for (const kind& one : {kind{"fetch_add", "uint32_atomic_fetch_add", access::fetch_add, 4, 500},
                            kind{"compare_swap", "uint32_atomic_compare_swap", access::compare_swap, 4, 500},
                            kind{"add", "uint32_atomic_add", access::add, 4, 500},
                            kind{"get and flush", "getmem_block", access::get, 8, 500},
                            kind{"get and flush", "getmem_block", access::get, 1024, 500},
                            kind{"get and flush", "getmem_block", access::get, 65536, 500},
                            kind{"get and flush", "getmem_block", access::get, most, 50}}) {
        const results measured(batches, 1);
        row entry{"one_sided", "peer", one.operation, one.bytes};
        entry.library = std::string("NVSHMEM ") + one.library;
        entry.value = measure::summarise(scaled(measured.run(accesses, 1, 128, one.how, false, word.get(), data.get(),
                                                             copy.get(), one.how == access::get ? one.bytes : 0,
                                                             one.rounds, batches, measured.stamps(), measured.wrong()),
                                                1.0 / one.rounds));
        rows.push_back(entry);
    }
    constexpr int blocks = 132, rounds = 200;
    for (const kind& one :
         {kind{"fetch_add by all on one word", "uint32_atomic_fetch_add", access::fetch_add, 4, rounds},
          kind{"add by all to one word", "uint32_atomic_add", access::add, 4, rounds}}) {
        const results measured(batches, blocks);
        row entry{"one_sided", "peer", one.operation, one.bytes};
        entry.unit = "M/s";
        entry.library = std::string("NVSHMEM ") + one.library;
        const std::vector<double> times =
            measured.run(accesses, blocks, 32, one.how, true, word.get(), data.get(), copy.get(), std::size_t{0},
                         one.rounds, batches, measured.stamps(), measured.wrong());
        entry.value = measure::summarise(rate(static_cast<double>(rounds) * blocks * nvshmem_n_pes(), times));
        rows.push_back(entry);
    }
}

void measure_turns(const rival_job& job, std::vector<row>& rows) {
    struct kind {
        const char *operation, *library;
        layout of;
    };
    constexpr int rounds = 500;
    for (const kind& one : {kind{"accumulate_notify", "putmem_signal_block, and sums by the target", floats_to_add},
                            kind{"put_notify of a column", "double_iput_block, fence, signal_op", column_of_doubles},
                            kind{"put_notify of rows", "putmem_nbi_warp, fence, signal_op", rows_of_a_face}}) {
        const auto landing = allocate<std::uint32_t>(one.of.span() / 4),
                   source = allocate<std::uint32_t>(one.of.span() / 4);
        const auto beside = allocate<std::uint32_t>(one.of.bytes() / 4);
        const auto signal = allocate<std::uint64_t>(1);
        const results measured(batches, 1);
        const turns own{static_cast<side>(std::min(job.index, 1)),
                        one.of,
                        rounds,
                        batches,
                        landing.get(),
                        source.get(),
                        measured.stamps(),
                        measured.wrong()};
        row entry{"one_sided", "peer", one.operation, one.of.bytes()};
        entry.library = std::string("NVSHMEM ") + one.library;
        entry.value = measure::summarise(
            scaled(measured.run(take_turns_of_pes, 1, 128, own, signal.get(), beside.get()), 0.5 / rounds));
        rows.push_back(entry);
    }
}

// So many teams of all PEs, for kernels that use one in each block. Collective.
class block_teams {
public:
    explicit block_teams(int count) : teams_(static_cast<std::size_t>(count), NVSHMEM_TEAM_INVALID) {
        for (nvshmem_team_t& team : teams_)
            check(nvshmem_team_split_strided(NVSHMEM_TEAM_WORLD, 0, 1, nvshmem_n_pes(), nullptr, 0, &team),
                  "cannot make a team (NVSHMEM_MAX_TEAMS says how many there may be)");
    }
    ~block_teams() {
        for (const nvshmem_team_t team : teams_) nvshmem_team_destroy(team);
    }
    block_teams(const block_teams&) = delete;
    block_teams& operator=(const block_teams&) = delete;

    const std::vector<nvshmem_team_t>& all() const { return teams_; }

private:
    std::vector<nvshmem_team_t> teams_;
};

using collective_kernel = void (*)(const nvshmem_team_t*, std::size_t, int, int, double*, interval*, mistake*);

// One measurement of blocks that act at the same time.
struct collective {
    const char* name;      // NVSHMEM's
    const char* operation; // ours, to stand beside
    std::size_t bytes;     // of that
    collective_kernel kernel;
    std::size_t count; // of doubles, for each PE
    int rounds;
    int threads = 128;
};

std::string name_of(const collective& one, std::size_t blocks) {
    return std::string("NVSHMEM ") + one.name + ", " + std::to_string(blocks) + " x " + std::to_string(one.threads);
}

void measure_collective(const collective& one, const char* path, const std::vector<nvshmem_team_t>& teams,
                        std::vector<row>& rows) {
    const int blocks = static_cast<int>(teams.size());
    const auto device_teams = allocate<nvshmem_team_t>(teams.size());
    check(cudaMemcpy(device_teams.get(), teams.data(), teams.size() * sizeof teams[0], cudaMemcpyHostToDevice),
          "cannot copy teams");
    const auto memory = allocate<double>(3 * room(one.count, nvshmem_n_pes()) * teams.size());
    const results measured(batches, 1);
    row result{"collectives", path, one.operation, one.bytes, 0, blocks};
    result.library = name_of(one, teams.size());
    const nvshmem_team_t* const first_team = device_teams.get();
    const std::vector<double> times = measured.run(one.kernel, blocks, one.threads, first_team, one.count, one.rounds,
                                                   batches, memory.get(), measured.stamps(), measured.wrong());
    result.value = measure::summarise(scaled(times, 1.0 / one.rounds));
    rows.push_back(result);
}

// One block of each PE; of more threads than 256, which might send large arrays faster, reductions have too many
// registers to start. Words and doubles besides bytes: only of those NVSHMEM sends few in one store with a flag.
void measure_world(std::vector<row>& rows) {
    constexpr std::size_t array = 16'384, pair = 128; // doubles, as dcuda-bench collectives has them
    constexpr std::size_t word = sizeof(double);
    const auto reduce = collectives<action::reduce>;
    for (const collective& one :
         {collective{"double_sum_reduce_block", "allreduce", word, reduce, 1, 500},
          collective{"double_sum_reduce_block", "allreduce", array * word, reduce, array, 100},
          collective{"double_sum_reduce_block", "allreduce", array * word, reduce, array, 100, 256},
          collective{"char_broadcast_block", "broadcast", word, collectives<action::broadcast_bytes>, 1, 500},
          collective{"uint32_broadcast_block", "broadcast", word, collectives<action::broadcast_words>, 1, 500},
          collective{"fcollectmem_block", "all_gather", pair * word, collectives<action::all_gather_bytes>, pair, 500},
          collective{"double_fcollect_block", "all_gather", pair * word, collectives<action::all_gather_doubles>, pair,
                     500},
          collective{"alltoallmem_block", "all_to_all", pair * word, collectives<action::all_to_all>, pair, 500}})
        measure_collective(one, "all devices", {NVSHMEM_TEAM_WORLD}, rows);
}

// As many blocks as our columns have, each with a team of its own. An even number of doubles up to 2 KiB would be
// reduced in memory that all teams of all PEs share (NVSHMEM 3.4.5 to 3.8.0), where blocks would destroy each other's
// data: with one double more they are reduced in that of the team.
void measure_columns(std::vector<row>& rows) {
    constexpr int columns = 132;
    constexpr std::size_t few = 128, many = 63'550; // doubles, as dcuda-bench collectives has them
    constexpr std::size_t word = sizeof(double);
    const block_teams teams(columns);
    const auto reduce = collectives<action::reduce>;
    for (const collective& one :
         {collective{"double_sum_reduce_block", "allreduce", word, reduce, 1, 500},
          collective{"double_sum_reduce_block of 129 doubles", "allreduce", few * word, reduce, few + 1, 500},
          collective{"double_fcollect_block and sums", "allreduce", few * word, collectives<action::gather_and_add>,
                     few, 500},
          collective{"double_sum_reduce_block", "allreduce", many * word, reduce, many, 20},
          collective{"barrier_block", "barrier", 0, collectives<action::barrier>, 1, 500},
          collective{"team_sync_block", "barrier", 0, collectives<action::sync>, 1, 500}})
        measure_collective(one, "columns", teams.all(), rows);
}

void measure_nvshmem(const rival_job& job, const options& chosen, std::vector<row>& rows) {
    const library nvshmem(job);
    if (chosen.wants("latency")) measure_latency(job, chosen, rows);
    if (chosen.wants("bandwidth")) measure_bandwidth(rows);
    if (chosen.wants("barrier")) measure_barriers(rows);
    if (chosen.wants("flush")) measure_flush(rows);
    if (chosen.wants("one_sided")) {
        measure_accesses(rows);
        measure_turns(job, rows);
    }
    if (!chosen.wants("collectives")) return;
    measure_world(rows);
    measure_columns(rows);
}

} // namespace

int main(int argc, char** argv) {
    const std::string version = std::to_string(NVSHMEM_VENDOR_MAJOR_VERSION) + "." +
                                std::to_string(NVSHMEM_VENDOR_MINOR_VERSION) + "." +
                                std::to_string(NVSHMEM_VENDOR_PATCH_VERSION);
    return run_rival(
        argc, argv, "bench_nvshmem",
        "NVSHMEM's puts, signals, barriers and collective operations: dcuda-run -n 2 bench_nvshmem --json nvshmem.json",
        "NVSHMEM " + version, measure_nvshmem);
}
