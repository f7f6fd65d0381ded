// SPDX-License-Identifier: BSD-3-Clause
#include "transport/peer.hpp"

#include "dcuda/config.hpp"

#include <sys/resource.h>

namespace dcuda::transport {

#if DCUDA_BACKEND_CUDA

namespace {

constexpr int attribute_buffer_id = 7; // CU_POINTER_ATTRIBUTE_BUFFER_ID

} // namespace

std::optional<allocation> find_allocation(const void* address) {
    using get_range = int (*)(unsigned long long*, std::size_t*, unsigned long long);
    using get_attribute = int (*)(void*, int, unsigned long long);
    static const auto range = cuda::driver_function<get_range>("cuMemGetAddressRange");
    static const auto attribute = cuda::driver_function<get_attribute>("cuPointerGetAttribute");
    const auto pointer = static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(address));
    unsigned long long base = 0, id = 0;
    std::size_t bytes = 0;
    if (range(&base, &bytes, pointer) != 0 || attribute(&id, attribute_buffer_id, pointer) != 0) return std::nullopt;
    return allocation{reinterpret_cast<std::byte*>(base), bytes, id};
}

#else

std::optional<allocation> find_allocation(const void* address) {
    void* base = nullptr;
    std::size_t bytes = 0;
    unsigned long long id = 0;
    if (dcudaCpuGetAddressRange(&base, &bytes, address, &id) != cudaSuccess) return std::nullopt;
    return allocation{static_cast<std::byte*>(base), bytes, id};
}

#endif

std::string describe_foreign_memory(const void* address) {
    int own_device = 0;
    cudaPointerAttributes attributes{};
    const bool known =
        cudaGetDevice(&own_device) == cudaSuccess && cudaPointerGetAttributes(&attributes, address) == cudaSuccess;
    cudaGetLastError(); // not an error of the kernel
    if (known && attributes.type == cudaMemoryTypeDevice && attributes.device != own_device)
        return fmt::format("memory of device {}, but this process's device is {}: allocate after the runtime is made, "
                           "which chooses the device",
                           attributes.device, own_device);
    return "no memory from cudaMalloc; other processes can map nothing else";
}

std::optional<allocation> find_window_memory(const std::byte* base, std::uint64_t bytes, std::string& problem) {
    const auto memory = find_allocation(base);
    const auto offset = memory ? static_cast<std::uint64_t>(base - memory->base) : 0;
    if (memory && bytes <= memory->bytes - offset) return memory;
    problem = memory ? fmt::format("at offset {} of an allocation of {} B", offset, memory->bytes)
                     : fmt::format("at {}, which is {}", static_cast<const void*>(base), describe_foreign_memory(base));
    return std::nullopt;
}

exported_allocation export_allocation(const allocation& memory) {
    exported_allocation exported{};
    exported.id = memory.id;
    exported.bytes = memory.bytes;
    const cudaError_t result = cudaIpcGetMemHandle(&exported.handle, memory.base);
    if (result != cudaSuccess) {
        cudaGetLastError(); // not an error of the kernel
        cudaPointerAttributes attributes{};
        const bool known = cudaPointerGetAttributes(&attributes, memory.base) == cudaSuccess;
        const char* kind =
            "memory that is not from cudaMalloc (cudaMallocAsync, a virtual memory mapping or a __device__ variable)";
        if (known && attributes.type == cudaMemoryTypeManaged) kind = "managed memory";
        if (known && attributes.type == cudaMemoryTypeHost) kind = "pinned host memory";
        support::fail(error_code::no_path, "{} cannot be mapped by other processes ({}); use cudaMalloc", kind,
                      cudaGetErrorString(result));
    }
    return exported;
}

std::byte* peer_mappings::open(int process, const exported_allocation& memory) {
    const auto key = std::pair(process, memory.id);
    if (const auto known = open_.find(key); known != open_.end()) return known->second;
    void* base = nullptr;
    const cudaError_t result = cudaIpcOpenMemHandle(&base, memory.handle, cudaIpcMemLazyEnablePeerAccess);
    if (result != cudaSuccess) {
        cudaGetLastError();
        rlimit space{};
        getrlimit(RLIMIT_AS, &space);
        support::fail(
            error_code::no_path, "cannot map {} B of process {}'s device memory: {}{}", memory.bytes, process,
            cudaGetErrorString(result),
            space.rlim_cur == RLIM_INFINITY
                ? ""
                : fmt::format("; address space is limited to {} KiB (ulimit -v), and each process needs room for the "
                              "device memory of all: raise the limit, or use DCUDA_DISABLE_PEER=1",
                              space.rlim_cur / 1024));
    }
    open_.emplace(key, static_cast<std::byte*>(base));
    return static_cast<std::byte*>(base);
}

void peer_mappings::close() {
    for (const auto& [key, base] : open_) cudaIpcCloseMemHandle(base);
    open_.clear();
}

const char* to_string(path p) {
    switch (p) {
    case path::local:
        return "local";
    case path::peer:
        return "peer";
    case path::none:
        break;
    }
    return "none";
}

path path_between(int device, int other_device) {
    if (device == other_device) return path::local;
    int can = 0;
    cuda::check(cudaDeviceCanAccessPeer(&can, device, other_device), "asking for peer access");
    if (can == 0) return path::none;
    // Counters of notifications and elements of windows are added to by both devices.
    int has_atomics = 0;
    cuda::check(cudaDeviceGetP2PAttribute(&has_atomics, cudaDevP2PAttrNativeAtomicSupported, device, other_device),
                "asking for atomic operations on a peer's memory");
    return has_atomics != 0 ? path::peer : path::none;
}

} // namespace dcuda::transport
