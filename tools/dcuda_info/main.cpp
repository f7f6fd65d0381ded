// SPDX-License-Identifier: BSD-3-Clause
// dcuda-info: what this build of dCUDA contains and what it finds on this machine.
#include "support/command_line.hpp"

#include "bootstrap/job.hpp"
#include "dcuda/detail/protocol/protocol.hpp"
#include "dcuda/host.hpp"
#include "device/settings.hpp"
#include "gpudirect.hpp"
#include "support/cuda.hpp"
#include "transport/network.hpp"
#include "transport/peer.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <vector>

namespace {

using namespace dcuda;

void print_build() {
    fmt::print("dCUDA {}, {} backend\n", DCUDA_VERSION_STRING, DCUDA_BACKEND_CUDA ? "CUDA" : "CPU");
    fmt::print("  checks of bounds, ranks, tags and windows: {}\n", DCUDA_CHECKS ? "on" : "off");
    fmt::print("  paths built in: local, peer ({})\n",
               DCUDA_BACKEND_CUDA ? "CUDA IPC over NVLink or PCIe" : "shared memory");
    std::string transports;
    for (const char* name : {"ofi", "mpi", "verbs"})
        if (transport::has_network(name)) transports += (transports.empty() ? "" : ", ") + std::string(name);
    fmt::print("  network transports found: {}\n", transports.empty() ? "none" : transports);
#if DCUDA_BACKEND_CUDA
    int driver = 0, run_time = 0;
    cuda::check(cudaDriverGetVersion(&driver), "asking for the driver's version");
    cuda::check(cudaRuntimeGetVersion(&run_time), "asking for the runtime's version");
    fmt::print("  CUDA runtime {}.{}, driver for CUDA {}.{}\n", run_time / 1000, run_time % 1000 / 10, driver / 1000,
               driver % 1000 / 10);
#endif
}

void print_job() {
    const bootstrap::job job = bootstrap::detect_job();
    fmt::print("Job: process {} of {}, {} on this host, started by {}\n", job.index, job.count, job.local_count,
               job.launcher == "none" ? "no launcher" : job.launcher);
    const settings now = resolve_settings({}, nullptr, nullptr);
    fmt::print("Settings: ranks per device {}, tags {}, windows {}, wait timeout {}, peer access {}\n",
               now.ranks_per_device == 0 ? std::string(DCUDA_BACKEND_CUDA ? "as many as fit" : "8")
                                         : fmt::format("{}", now.ranks_per_device),
               now.tags, now.max_windows,
               now.wait_timeout.count() == 0
                   ? std::string("none")
                   : fmt::format("{} s", static_cast<double>(now.wait_timeout.count()) * 1e-9),
               now.peer_allowed ? "allowed" : "forbidden by DCUDA_DISABLE_PEER");
}

#if DCUDA_BACKEND_CUDA

void print_device(int index) {
    cudaDeviceProp device{};
    cuda::check(cudaGetDeviceProperties(&device, index), "asking for a device's properties");
    fmt::print("Device {}: {}, compute capability {}.{}, {} multiprocessors, {:.1f} GiB\n", index, device.name,
               device.major, device.minor, device.multiProcessorCount,
               static_cast<double>(device.totalGlobalMem) / (1 << 30));
    int cooperative = 0;
    cuda::check(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, index), "asking for an attribute");
    if (cooperative == 0) fmt::print("  cannot run dCUDA: it has no cooperative launch\n");
    fmt::print("  most co-resident ranks (fewer if the kernel needs many registers or much shared memory):");
    for (int threads : {32, 64, 128, 256, 512, 1024})
        fmt::print(" {} of {} threads{}",
                   device.multiProcessorCount *
                       std::min(device.maxBlocksPerMultiProcessor, device.maxThreadsPerMultiProcessor / threads),
                   threads, threads == 1024 ? "\n" : ",");
}

// Path and link of each pair.
void print_paths(int devices) {
    if (devices < 2) return;
    fmt::print("Paths between devices:\n");
    for (int source = 0; source < devices; ++source)
        for (int target = 0; target < devices; ++target) {
            if (source == target) continue;
            const transport::path path = transport::path_between(source, target);
            int rank = 0, atomics = 0;
            cuda::check(cudaDeviceGetP2PAttribute(&rank, cudaDevP2PAttrPerformanceRank, source, target),
                        "asking for a link");
            cuda::check(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, source, target),
                        "asking for a link");
            fmt::print("  {} -> {}: {}", source, target, to_string(path));
            if (path == transport::path::peer)
                fmt::print(", {}", atomics != 0 ? "NVLink (native atomics)" : "PCIe (no native atomics)");
            else
                fmt::print(", no peer access: needs a network transport, which this build has not");
            fmt::print(", link class {}\n", rank);
        }
}

int print_devices() {
    int devices = 0;
    const cudaError_t result = cudaGetDeviceCount(&devices);
    if (result != cudaSuccess || devices == 0) {
        fmt::print("No GPU: {}. Programs built for the CPU backend run here.\n",
                   result == cudaSuccess ? "the driver lists none" : cudaGetErrorString(result));
        return 1;
    }
    for (int device = 0; device < devices; ++device) print_device(device);
    print_paths(devices);
    return 0;
}

#else

int print_devices() {
    fmt::print("Device: each process is one. Paths: local within a process, peer (shared memory) between processes\n");
    for (unsigned threads : {32u, 128u, 1024u}) {
        const auto limit = detail::exec::limit(dim3(threads), 0);
        fmt::print("  at most {} ranks of {} threads per process ({})\n", limit.max_blocks, threads, limit.reason);
    }
    return 0;
}

#endif

} // namespace

int main(int argc, char** argv) try {
    CLI::App app{"Prints what this build of dCUDA contains and what it finds on this machine."};
    bool asks_for_gpudirect = false;
    std::string root = "/";
    CLI::Option* const asked =
        app.add_flag("--gpudirect", asks_for_gpudirect,
                     "say whether network cards reach the memory of GPUs, and what is missing (then 1)");
    app.add_option("--root", root, "folder with the host's sys and proc, in a container that mounts them there")
        ->needs(asked)
        ->check(CLI::ExistingDirectory);
    parse_or_exit(app, "dcuda-info", argc, argv);
    if (asks_for_gpudirect) return gpudirect::report(root) ? 0 : 1;
    print_build();
#if DCUDA_BACKEND_CUDA
    int devices = 0;
    if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0)
#endif
        print_job();
    return print_devices();
} catch (const std::exception& problem) {
    std::fprintf(stderr, "dcuda-info: %s\n", problem.what());
    return 1;
}
