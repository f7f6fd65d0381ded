// SPDX-License-Identifier: BSD-3-Clause
// cudaMalloc, cudaMemcpy and their family.
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sys/mman.h>

#include "arena.hpp"
#include "stream.hpp"

using namespace dcuda::detail::cpu;

namespace {

struct host_memory {
    std::size_t bytes;
    bool ours; // from cudaHostAlloc, not cudaHostRegister
};

struct host_table {
    std::mutex mutex;
    std::map<std::uintptr_t, host_memory> ranges;
};

host_table& hosts() {
    static auto& t = *new host_table;
    return t;
}

// The pinned range around the pointer. The mutex is held.
auto find_host(const void* pointer) {
    auto& ranges = hosts().ranges;
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    auto it = ranges.upper_bound(address);
    if (it == ranges.begin()) return ranges.end();
    --it;
    return address - it->first < it->second.bytes ? it : ranges.end();
}

std::optional<allocation> find_device(const void* pointer) {
    if (auto found = arena::own().find(pointer)) return found;
    return find_peer_memory(pointer);
}

// Device memory must be live and large enough; any other memory of the process is the caller's affair.
bool in_bounds(const void* pointer, std::size_t bytes) {
    if (!pointer) return false;
    if (const auto found = find_device(pointer))
        return bytes <= found->bytes - static_cast<std::size_t>(static_cast<const char*>(pointer) - found->base);
    return !arena::own().contains(pointer);
}

cudaError_t check_copy(const void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind) {
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
    if (bytes == 0) return cudaSuccess;
    return in_bounds(target, bytes) && in_bounds(source, bytes) ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t check_copy_2d(const void* target, std::size_t target_pitch, const void* source, std::size_t source_pitch,
                          std::size_t width, std::size_t height, cudaMemcpyKind kind) {
    if (width > target_pitch || width > source_pitch) return cudaErrorInvalidPitchValue;
    if (width == 0 || height == 0) return check_copy(target, source, 0, kind);
    if (const cudaError_t e = check_copy(target, source, width, kind)) return e;
    const bool inside = in_bounds(target, (height - 1) * target_pitch + width) &&
                        in_bounds(source, (height - 1) * source_pitch + width);
    return inside ? cudaSuccess : cudaErrorInvalidValue;
}

void copy_rows(void* target, std::size_t target_pitch, const void* source, std::size_t source_pitch, std::size_t width,
               std::size_t height) {
    for (std::size_t row = 0; row < height; ++row)
        std::memmove(static_cast<char*>(target) + row * target_pitch,
                     static_cast<const char*>(source) + row * source_pitch, width);
}

// Work on the stream; the synchronous functions run on the default stream and wait there.
cudaError_t run(std::function<void()> work, cudaStream_t stream) { return report(enqueue(stream, std::move(work))); }
cudaError_t run_and_wait(std::function<void()> work) {
    const auto op = std::make_shared<operation>();
    op->start = std::move(work);
    enqueue(cudaStreamLegacy, op);
    wait(op);
    return report(device_state());
}

cudaError_t free_device(void* pointer) { return arena::own().free(pointer); }

cudaError_t allocate_device(void** pointer, std::size_t bytes, bool managed) {
    if (!pointer) return cudaErrorInvalidValue;
    *pointer = nullptr;
    if (bytes == 0) return managed ? cudaErrorInvalidValue : cudaSuccess;
    return arena::own().allocate(bytes, managed, pointer);
}

} // namespace

extern "C" {

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) { return report(allocate_device(pointer, bytes, false)); }

cudaError_t cudaFree(void* pointer) {
    if (!pointer) return cudaSuccess;
    wait_for_device();
    return report(free_device(pointer));
}

cudaError_t cudaMallocManaged(void** pointer, std::size_t bytes, unsigned int flags) {
    if (flags != cudaMemAttachGlobal && flags != cudaMemAttachHost) return report(cudaErrorInvalidValue);
    return report(allocate_device(pointer, bytes, true));
}

cudaError_t cudaMallocAsync(void** pointer, std::size_t bytes, cudaStream_t stream) {
    if (const cudaError_t e = check_stream(stream)) return report(e);
    return report(allocate_device(pointer, bytes, false));
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
    if (const cudaError_t e = check_stream(stream)) return report(e);
    if (!pointer) return cudaSuccess;
    const auto found = arena::own().find(pointer);
    if (!found || found->base != pointer) return report(cudaErrorInvalidValue);
    return run([pointer] { free_device(pointer); }, stream);
}

cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned int flags) {
    if (!pointer || flags > (cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined))
        return report(cudaErrorInvalidValue);
    *pointer = nullptr;
    if (bytes == 0) return cudaSuccess;
    // Large blocks come from the system page by page, so only what is touched costs memory.
    if (posix_memalign(pointer, 4096, bytes) != 0) {
        *pointer = nullptr;
        return report(cudaErrorMemoryAllocation);
    }
    const std::lock_guard lock(hosts().mutex);
    hosts().ranges[reinterpret_cast<std::uintptr_t>(*pointer)] = {bytes, true};
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) {
    return cudaHostAlloc(pointer, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void* pointer) {
    if (!pointer) return cudaSuccess;
    wait_for_device();
    {
        const std::lock_guard lock(hosts().mutex);
        const auto found = hosts().ranges.find(reinterpret_cast<std::uintptr_t>(pointer));
        if (found == hosts().ranges.end() || !found->second.ours) return report(cudaErrorInvalidValue);
        hosts().ranges.erase(found);
    }
    std::free(pointer);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void* pointer, std::size_t bytes, unsigned int) {
    if (!pointer || bytes == 0) return report(cudaErrorInvalidValue);
    const std::lock_guard lock(hosts().mutex);
    if (find_host(pointer) != hosts().ranges.end()) return report(cudaErrorHostMemoryAlreadyRegistered);
    hosts().ranges[reinterpret_cast<std::uintptr_t>(pointer)] = {bytes, false};
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* pointer) {
    const std::lock_guard lock(hosts().mutex);
    const auto found = hosts().ranges.find(reinterpret_cast<std::uintptr_t>(pointer));
    if (found == hosts().ranges.end() || found->second.ours) return report(cudaErrorHostMemoryNotRegistered);
    hosts().ranges.erase(found);
    return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned int flags) {
    if (!device || flags != 0) return report(cudaErrorInvalidValue);
    *device = nullptr;
    const std::lock_guard lock(hosts().mutex);
    if (find_host(host) == hosts().ranges.end()) return report(cudaErrorInvalidValue);
    *device = host;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
    if (!free_bytes || !total_bytes) return report(cudaErrorInvalidValue);
    *total_bytes = arena::own().bytes();
    *free_bytes = *total_bytes - arena::own().used_bytes();
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind) {
    if (const cudaError_t e = check_copy(target, source, bytes, kind)) return report(e);
    return run_and_wait([=] {
        if (bytes != 0) std::memmove(target, source, bytes);
    });
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    if (const cudaError_t e = check_copy(target, source, bytes, kind)) return report(e);
    return run(
        [=] {
            if (bytes != 0) std::memmove(target, source, bytes);
        },
        stream);
}

cudaError_t cudaMemcpyPeer(void* target, int target_device, const void* source, int source_device, std::size_t bytes) {
    if (target_device != 0 || source_device != 0) return report(cudaErrorInvalidDevice);
    return cudaMemcpy(target, source, bytes, cudaMemcpyDeviceToDevice);
}

cudaError_t cudaMemcpy2D(void* target, std::size_t target_pitch, const void* source, std::size_t source_pitch,
                         std::size_t width, std::size_t height, cudaMemcpyKind kind) {
    if (const cudaError_t e = check_copy_2d(target, target_pitch, source, source_pitch, width, height, kind))
        return report(e);
    return run_and_wait([=] { copy_rows(target, target_pitch, source, source_pitch, width, height); });
}

cudaError_t cudaMemcpy2DAsync(void* target, std::size_t target_pitch, const void* source, std::size_t source_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
    if (const cudaError_t e = check_copy_2d(target, target_pitch, source, source_pitch, width, height, kind))
        return report(e);
    return run([=] { copy_rows(target, target_pitch, source, source_pitch, width, height); }, stream);
}

cudaError_t cudaMemset(void* target, int value, std::size_t bytes) {
    if (bytes != 0 && !in_bounds(target, bytes)) return report(cudaErrorInvalidValue);
    return run_and_wait([=] {
        if (bytes != 0) std::memset(target, value, bytes);
    });
}

cudaError_t cudaMemsetAsync(void* target, int value, std::size_t bytes, cudaStream_t stream) {
    if (bytes != 0 && !in_bounds(target, bytes)) return report(cudaErrorInvalidValue);
    return run(
        [=] {
            if (bytes != 0) std::memset(target, value, bytes);
        },
        stream);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
    if (!attributes) return report(cudaErrorInvalidValue);
    void* p = const_cast<void*>(pointer);
    *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, p};
    if (const auto found = find_device(pointer)) {
        if (found->managed)
            *attributes = {cudaMemoryTypeManaged, 0, p, p};
        else
            *attributes = {cudaMemoryTypeDevice, 0, p, nullptr};
        return cudaSuccess;
    }
    const std::lock_guard lock(hosts().mutex);
    if (find_host(pointer) != hosts().ranges.end()) *attributes = {cudaMemoryTypeHost, 0, p, p};
    return cudaSuccess;
}

cudaError_t dcudaCpuGetAddressRange(void** base, std::size_t* bytes, const void* pointer, unsigned long long* id) {
    const auto found = find_device(pointer);
    if (!found) return report(cudaErrorInvalidValue);
    if (base) *base = found->base;
    if (bytes) *bytes = found->bytes;
    if (id) *id = found->id;
    return cudaSuccess;
}

} // extern "C"
