// The ping-pong of notify_latency, played by NVSHMEM on two GPUs: putmem_signal by the whole block, or signal_op by one
// thread; one thread waits for the signal, then the block goes on.
//
//     dcuda-run -n 2 nvshmem_latency --json nvshmem.json
//     dcuda-run -n 2 notify_latency --rival nvshmem.json
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>
#include <nvshmem.h>
#include <nvshmemx.h>

#include "common/latency.hpp"
#include "common/machine.hpp"
#include "common/ping_pong.hpp"

namespace {

constexpr int skipped = 77; // exit status

// Signals carry a number that only grows, so none has to be reset.
struct signal_channel {
    std::uint64_t* signal;
    int peer;
    std::uint64_t sent;
    std::uint64_t received;

    __device__ void send(const void*) {
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
    void* landing; // the same address on both sides: it is symmetric
    std::size_t bytes;

    // The payload is whole: wait and barrier meet after it was made.
    __device__ void send(const void* source) {
        ++sent;
        nvshmemx_putmem_signal_block(landing, source, bytes, signal, sent, NVSHMEM_SIGNAL_SET, peer);
    }
    __device__ void complete() {
        __syncthreads();
        nvshmem_quiet();
        __syncthreads();
    }
};

__global__ void ping_pong(benchmark::shape of, benchmark::player me, std::uint64_t* signal) {
    const int peer = me.which == benchmark::side::ping ? 1 : 0;
    if (of.words == 0) {
        signal_channel channel{signal, peer, 0, 0};
        benchmark::play(channel, of, me);
    } else {
        put_channel channel{{signal, peer, 0, 0}, me.landing, of.words * sizeof(std::uint32_t)};
        benchmark::play(channel, of, me);
    }
    nvshmemx_barrier_all_block();
}

// --- Host ------------------------------------------------------------------------------------------------------------

void check(cudaError_t status, const char* what) {
    if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

void check(int nvshmem_status, const char* what) {
    if (nvshmem_status != 0)
        throw std::runtime_error(std::string(what) + ": NVSHMEM status " + std::to_string(nvshmem_status));
}

std::string variable(const char* name) {
    const char* const value = std::getenv(name);
    return value != nullptr ? value : "";
}

// PE 0 makes the id under which the two meet and hands it over in a file of this job's own.
nvshmemx_uniqueid_t exchange_id(int pe, const std::filesystem::path& file) {
    nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
    if (pe == 0) {
        check(nvshmemx_get_uniqueid(&id), "cannot make a unique id");
        const std::filesystem::path unfinished = file.string() + ".part";
        std::ofstream out(unfinished, std::ios::binary);
        out.write(reinterpret_cast<const char*>(&id), sizeof id);
        out.close();
        if (!out) throw std::runtime_error("cannot write " + unfinished.string());
        std::filesystem::rename(unfinished, file);
        return id;
    }
    for (int tenths = 0; !std::filesystem::exists(file); ++tenths) {
        if (tenths == 300) throw std::runtime_error("PE 0 left no " + file.string() + " within 30 s");
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    std::ifstream in(file, std::ios::binary);
    in.read(reinterpret_cast<char*>(&id), sizeof id);
    if (!in) throw std::runtime_error("cannot read " + file.string());
    return id;
}

// NVSHMEM as long as it lives.
class library {
public:
    explicit library(int pe) {
        // Both PEs are on this host: no network, no multicast.
        setenv("NVSHMEM_DISABLE_NVLS", "1", 1);
        setenv("NVSHMEM_REMOTE_TRANSPORT", "none", 0);
        setenv("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", "lo", 0);
        const std::size_t name = std::hash<std::string>{}(variable("DCUDA_JOB"));
        const std::filesystem::path file =
            std::filesystem::temp_directory_path() / ("nvshmem_latency." + std::to_string(name));
        nvshmemx_uniqueid_t id = exchange_id(pe, file);
        nvshmemx_init_attr_t attributes = NVSHMEMX_INIT_ATTR_INITIALIZER;
        check(nvshmemx_set_attr_uniqueid_args(pe, 2, &id, &attributes), "cannot use the unique id");
        check(nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attributes), "cannot initialise NVSHMEM");
        if (pe == 0) std::filesystem::remove(file);
    }
    ~library() { nvshmem_finalize(); }
    library(const library&) = delete;
    library& operator=(const library&) = delete;
};

// Symmetric memory, cleared. Collective.
void* allocate(std::size_t bytes) {
    void* const memory = nvshmem_malloc(bytes);
    if (memory == nullptr) throw std::runtime_error("no symmetric memory for " + std::to_string(bytes) + " B");
    check(cudaMemset(memory, 0, bytes), "cannot clear memory");
    check(cudaDeviceSynchronize(), "cannot clear memory");
    nvshmem_barrier_all();
    return memory;
}

// Fills the row with what was measured. Collective; the result is that of PE 0.
void measure(int pe, const benchmark::options& chosen, benchmark::row& what) {
    const auto batches = static_cast<std::size_t>(chosen.batches);
    void* const memory = allocate(3 * benchmark::stride_bytes(what.bytes));
    auto* const signal = static_cast<std::uint64_t*>(allocate(sizeof(std::uint64_t)));
    auto* const batch_ns = static_cast<std::uint64_t*>(allocate(batches * sizeof(std::uint64_t)));
    auto* const wrong = static_cast<benchmark::mistake*>(allocate(sizeof(benchmark::mistake)));

    benchmark::shape of{static_cast<std::uint32_t>(what.bytes / 4), chosen.rounds, chosen.batches};
    benchmark::player me =
        benchmark::make_player(static_cast<benchmark::side>(pe), memory, what.bytes, batch_ns, wrong);
    std::uint64_t* signal_argument = signal;
    void* arguments[] = {&of, &me, &signal_argument};
    check(nvshmemx_collective_launch(reinterpret_cast<const void*>(ping_pong), dim3(1),
                                     dim3(static_cast<unsigned>(what.threads)), arguments, 0, nullptr),
          "cannot launch");
    check(cudaDeviceSynchronize(), "the kernel failed");

    benchmark::mistake mine;
    std::vector<std::uint64_t> ns(batches);
    check(cudaMemcpy(&mine, wrong, sizeof mine, cudaMemcpyDeviceToHost), "cannot copy results");
    check(cudaMemcpy(ns.data(), batch_ns, batches * sizeof ns[0], cudaMemcpyDeviceToHost), "cannot copy results");
    benchmark::require_right(mine, what);
    what.us = benchmark::one_way_us(ns, chosen.rounds);
    for (void* part : {memory, static_cast<void*>(signal), static_cast<void*>(batch_ns), static_cast<void*>(wrong)})
        nvshmem_free(part);
}

int run_program(int argc, char** argv) {
    const benchmark::command_line command =
        benchmark::parse_command_line(argc, argv, "nvshmem_latency",
                                      "One-way latency of NVSHMEM's signal_op and putmem_signal between two GPUs:\n"
                                      "dcuda-run -n 2 nvshmem_latency --json nvshmem.json");
    const std::string index = variable("DCUDA_PROCESS_INDEX");
    const bool first = index != "1";
    if (!command.chosen) {
        if (first) std::fputs(command.text.c_str(), command.status == 0 ? stdout : stderr);
        return command.status;
    }
    const benchmark::options& chosen = *command.chosen;
    if (variable("DCUDA_PROCESS_COUNT") != "2")
        throw std::runtime_error("this takes two processes: dcuda-run -n 2 nvshmem_latency");
    int gpus = 0;
    if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus < 2) {
        if (first) std::printf("skipped: NVSHMEM's latency takes 2 GPUs, and here are %d\n", gpus);
        return skipped;
    }

    const int pe = first ? 0 : 1;
    check(cudaSetDevice(pe), "cannot use the GPU");
    const library nvshmem(pe);
    std::vector<benchmark::row> rows;
    std::vector<std::size_t> payloads{0};
    payloads.insert(payloads.end(), chosen.sizes.begin(), chosen.sizes.end());
    for (const std::size_t bytes : payloads)
        for (const int threads : chosen.threads) {
            rows.push_back({"peer", bytes == 0 ? "notify" : "put_notify", bytes, threads, {}});
            measure(pe, chosen, rows.back());
        }
    if (!first) return 0;

    for (const benchmark::row& one : rows)
        std::printf("%-10s %6zu B %4d threads %8.3f us\n", one.bytes == 0 ? "signal_op" : "putmem", one.bytes,
                    one.threads, one.us.median);
    if (chosen.json.empty()) return 0;
    const std::string version = std::to_string(NVSHMEM_VENDOR_MAJOR_VERSION) + "." +
                                std::to_string(NVSHMEM_VENDOR_MINOR_VERSION) + "." +
                                std::to_string(NVSHMEM_VENDOR_PATCH_VERSION);
    benchmark::write_json(chosen.json, {{"program", "nvshmem_latency"},
                                        {"nvshmem", version},
                                        {"machine", benchmark::describe_machine(chosen.commit)},
                                        {"parameters", benchmark::to_json(chosen)},
                                        {"rows", benchmark::to_json(rows)}});
    return 0;
}

} // namespace

int main(int argc, char** argv) {
    try {
        return run_program(argc, argv);
    } catch (const std::exception& reason) {
        std::fprintf(stderr, "nvshmem_latency: %s\n", reason.what());
        return 1;
    }
}
