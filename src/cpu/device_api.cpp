// SPDX-License-Identifier: BSD-3-Clause
// Errors, the device's properties and limits, functions.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <thread>
#include <unistd.h>

#include "arena.hpp"
#include "dcuda/detail/exec/exec_cpu.hpp"
#include "stream.hpp"

using namespace dcuda::detail::cpu;

namespace {

thread_local cudaError_t last_error = cudaSuccess;

struct error_text {
    cudaError_t code;
    const char* name;
    const char* text;
};

constexpr error_text error_texts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidPitchValue, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
    {cudaErrorInvalidSymbol, "cudaErrorInvalidSymbol", "invalid device symbol"},
    {cudaErrorInvalidHostPointer, "cudaErrorInvalidHostPointer", "invalid host pointer"},
    {cudaErrorInvalidDevicePointer, "cudaErrorInvalidDevicePointer", "invalid device pointer"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorDeviceUninitialized, "cudaErrorDeviceUninitialized", "invalid device context"},
    {cudaErrorMapBufferObjectFailed, "cudaErrorMapBufferObjectFailed", "mapping of buffer object failed"},
    {cudaErrorPeerAccessUnsupported, "cudaErrorPeerAccessUnsupported", "peer access is not supported"},
    {cudaErrorOperatingSystem, "cudaErrorOperatingSystem", "OS call failed or operation not supported on this OS"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState", "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources", "too many resources requested for launch"},
    {cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
    {cudaErrorPeerAccessNotEnabled, "cudaErrorPeerAccessNotEnabled", "peer access has not been enabled"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorCooperativeLaunchTooLarge, "cudaErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const error_text* find_text(cudaError_t code) {
    const auto* found =
        std::find_if(std::begin(error_texts), std::end(error_texts), [=](const auto& e) { return e.code == code; });
    return found == std::end(error_texts) ? nullptr : found;
}

constexpr int max_threads = 1024;
constexpr int shared_bytes = 48 * 1024, shared_optin_bytes = 227 * 1024, shared_total_bytes = 228 * 1024;
constexpr int clock_khz = 1'000'000; // clock64() counts nanoseconds

int processors() { return static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); }

// One "multiprocessor" for the whole CPU: occupancy times multiprocessors is then the number of co-resident blocks.
constexpr int multiprocessors = 1;

cudaError_t check_device(int device) { return device == 0 ? cudaSuccess : cudaErrorInvalidDevice; }

} // namespace

cudaError_t dcuda::detail::cpu::report(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
    const error_text* e = find_text(error);
    return e ? e->name : "unrecognized error code";
}
const char* cudaGetErrorString(cudaError_t error) {
    const error_text* e = find_text(error);
    return e ? e->text : "unrecognized error code";
}
cudaError_t cudaGetLastError() {
    const cudaError_t e = last_error;
    last_error = cudaSuccess;
    return e;
}
cudaError_t cudaPeekAtLastError() { return last_error; }

cudaError_t cudaSetDevice(int device) { return report(check_device(device)); }
cudaError_t cudaSetDeviceFlags(unsigned int flags) { return flags < 16 ? cudaSuccess : report(cudaErrorInvalidValue); }
cudaError_t cudaGetDevice(int* device) {
    if (!device) return report(cudaErrorInvalidValue);
    *device = 0;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
    if (!count) return report(cudaErrorInvalidValue);
    *count = 1;
    return cudaSuccess;
}
cudaError_t cudaDeviceReset() { return cudaDeviceSynchronize(); }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    if (!properties) return report(cudaErrorInvalidValue);
    if (const cudaError_t e = check_device(device)) return report(e);
    cudaDeviceProp& p = *properties;
    p = {};
    std::snprintf(p.name, sizeof p.name, "CPU backend (%d processors)", processors());
    std::memcpy(p.uuid.bytes, "dcuda-cpu", 9);
    p.totalGlobalMem = arena::own().bytes();
    p.sharedMemPerBlock = shared_bytes;
    p.sharedMemPerBlockOptin = shared_optin_bytes;
    p.sharedMemPerMultiprocessor = shared_total_bytes;
    p.totalConstMem = 64 * 1024;
    p.regsPerBlock = p.regsPerMultiprocessor = 64 * 1024;
    p.warpSize = warpSize;
    p.maxThreadsPerBlock = p.maxThreadsDim[0] = p.maxThreadsDim[1] = max_threads;
    p.maxThreadsDim[2] = 64;
    p.maxGridSize[0] = 0x7fffffff;
    p.maxGridSize[1] = p.maxGridSize[2] = 65535;
    p.major = 9;
    p.multiProcessorCount = multiprocessors;
    p.maxThreadsPerMultiProcessor = 2048;
    p.maxBlocksPerMultiProcessor = dcuda::detail::exec::limit(dim3(1), 0).max_blocks;
    p.l2CacheSize = static_cast<int>(std::max(0L, sysconf(_SC_LEVEL2_CACHE_SIZE)));
    p.clockRate = p.memoryClockRate = clock_khz;
    p.memoryBusWidth = 64;
    p.integrated = p.canMapHostMemory = p.concurrentKernels = p.unifiedAddressing = p.managedMemory = 1;
    p.concurrentManagedAccess = p.pageableMemoryAccess = p.cooperativeLaunch = p.asyncEngineCount = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    if (!value) return report(cudaErrorInvalidValue);
    if (const cudaError_t e = check_device(device)) return report(e);
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
        *value = max_threads;
        break;
    case cudaDevAttrMaxBlockDimZ:
        *value = 64;
        break;
    case cudaDevAttrMaxGridDimX:
        *value = 0x7fffffff;
        break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
        *value = 65535;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = shared_bytes;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = shared_optin_bytes;
        break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = shared_total_bytes;
        break;
    case cudaDevAttrTotalConstantMemory:
    case cudaDevAttrMaxRegistersPerBlock:
        *value = 64 * 1024;
        break;
    case cudaDevAttrWarpSize:
        *value = warpSize;
        break;
    case cudaDevAttrClockRate:
        *value = clock_khz;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = multiprocessors;
        break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        *value = 2048;
        break;
    case cudaDevAttrComputeCapabilityMajor:
        *value = 9;
        break;
    case cudaDevAttrComputeCapabilityMinor:
    case cudaDevAttrPciBusId:
    case cudaDevAttrPciDeviceId:
    case cudaDevAttrPciDomainId:
        *value = 0;
        break;
    case cudaDevAttrIntegrated:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrPageableMemoryAccess:
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrCooperativeLaunch:
        *value = 1;
        break;
    default:
        return report(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can_access, int device, int peer) {
    if (!can_access) return report(cudaErrorInvalidValue);
    if (device != 0 || peer != 0) return report(cudaErrorInvalidDevice);
    *can_access = 0; // a device is not its own peer; other processes are reached through cudaIpc
    return cudaSuccess;
}
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr, int device, int peer) {
    (void)device, (void)peer; // one and the same, of which CUDA says this, too
    return report(value != nullptr ? cudaErrorInvalidDevice : cudaErrorInvalidValue);
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned int) { return report(cudaErrorInvalidDevice); }
cudaError_t cudaDeviceDisablePeerAccess(int) { return report(cudaErrorInvalidDevice); }

cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int device) {
    if (!id || bytes < 13) return report(cudaErrorInvalidValue);
    if (const cudaError_t e = check_device(device)) return report(e);
    std::snprintf(id, static_cast<std::size_t>(bytes), "0000:00:00.0");
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
    if (!version) return report(cudaErrorInvalidValue);
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
    if (!function) return report(cudaErrorInvalidDeviceFunction);
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize)
        return value >= 0 && value <= shared_optin_bytes ? cudaSuccess : report(cudaErrorInvalidValue);
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout)
        return value >= -1 && value <= 100 ? cudaSuccess : report(cudaErrorInvalidValue);
    return report(cudaErrorInvalidValue);
}
cudaError_t cudaFuncSetCacheConfig(const void* function, cudaFuncCache) {
    return function ? cudaSuccess : report(cudaErrorInvalidDeviceFunction);
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
    if (!attributes) return report(cudaErrorInvalidValue);
    if (!function) return report(cudaErrorInvalidDeviceFunction);
    *attributes = {};
    attributes->maxThreadsPerBlock = max_threads;
    attributes->numRegs = 32;
    attributes->ptxVersion = attributes->binaryVersion = 90;
    attributes->maxDynamicSharedSizeBytes = shared_optin_bytes;
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int threads,
                                                          std::size_t dynamic_bytes) {
    if (!blocks || threads < 1) return report(cudaErrorInvalidValue);
    if (!function) return report(cudaErrorInvalidDeviceFunction);
    *blocks = threads > max_threads
                  ? 0
                  : dcuda::detail::exec::limit(dim3(static_cast<unsigned>(threads)), dynamic_bytes).max_blocks;
    return cudaSuccess;
}

} // extern "C"
