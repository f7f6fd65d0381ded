#include "runtime/limits.hpp"

#include "support/cuda.hpp"

#include <algorithm>
#include <array>

namespace dcuda {

#if DCUDA_BACKEND_CUDA

namespace {

struct resource {
    int blocks;
    std::string name;
};

// Blocks per multiprocessor that each resource allows on its own, to name the one that limits.
resource tightest_resource(const cudaFuncAttributes& kernel, int threads, std::size_t shared_bytes,
                           const cudaDeviceProp& gpu) {
    constexpr int warp = 32, register_unit = 256, reserved_shared_bytes = 1024;
    const int warps = (threads + warp - 1) / warp;
    const int warp_registers = (kernel.numRegs * warp + register_unit - 1) / register_unit * register_unit;
    const std::size_t block_shared_bytes = kernel.sharedSizeBytes + shared_bytes + reserved_shared_bytes;
    const std::array resources{
        resource{gpu.maxThreadsPerMultiProcessor / (warps * warp),
                 fmt::format("threads ({} / {})", gpu.maxThreadsPerMultiProcessor, warps * warp)},
        resource{gpu.regsPerMultiprocessor / std::max(1, warps * warp_registers),
                 fmt::format("registers ({} / {} per rank, {} per thread)", gpu.regsPerMultiprocessor,
                             warps * warp_registers, kernel.numRegs)},
        resource{
            static_cast<int>(gpu.sharedMemPerMultiprocessor / block_shared_bytes),
            fmt::format("shared memory ({} B / {} B per rank)", gpu.sharedMemPerMultiprocessor, block_shared_bytes)},
        resource{gpu.maxBlocksPerMultiProcessor, fmt::format("blocks ({})", gpu.maxBlocksPerMultiProcessor)},
    };
    return *std::min_element(resources.begin(), resources.end(),
                             [](const resource& a, const resource& b) { return a.blocks < b.blocks; });
}

} // namespace

rank_limit find_rank_limit(const void* kernel, const launch_config& config) {
    int current = 0;
    cuda::check(cudaGetDevice(&current), "asking for the device");
    cudaDeviceProp properties{};
    cuda::check(cudaGetDeviceProperties(&properties, current), "asking for the device's properties");
    const std::size_t threads = std::size_t(config.threads.x) * config.threads.y * config.threads.z;
    if (threads > static_cast<std::size_t>(properties.maxThreadsPerBlock))
        return {0, fmt::format("threads: {} per rank, at most {}", threads, properties.maxThreadsPerBlock)};

    cudaFuncAttributes attributes{};
    cuda::check(cudaFuncGetAttributes(&attributes, kernel),
                "asking for the kernel's resources (is it built for this device?)");
    if (threads > static_cast<std::size_t>(attributes.maxThreadsPerBlock))
        return {0, fmt::format("registers: {} per thread allow at most {} threads per rank", attributes.numRegs,
                               attributes.maxThreadsPerBlock)};
    if (attributes.sharedSizeBytes + config.shared_bytes > properties.sharedMemPerBlockOptin)
        return {0, fmt::format("shared memory: {} B static and {} B dynamic per rank, at most {} B",
                               attributes.sharedSizeBytes, config.shared_bytes, properties.sharedMemPerBlockOptin)};
    cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(config.shared_bytes)),
                "raising the kernel's dynamic shared memory");

    int blocks = 0;
    cuda::check(
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, static_cast<int>(threads), config.shared_bytes),
        "asking for the kernel's occupancy");
    const resource limit = tightest_resource(attributes, static_cast<int>(threads), config.shared_bytes, properties);
    return {blocks * properties.multiProcessorCount,
            fmt::format("{} per multiprocessor by {}, {} multiprocessors of {}", blocks, limit.name,
                        properties.multiProcessorCount, properties.name)};
}

int default_ranks(const rank_limit& limit) { return limit.ranks; }

#else

rank_limit find_rank_limit(const void*, const launch_config& config) {
    const auto limit = detail::exec::limit(config.threads, config.shared_bytes);
    return {limit.max_blocks, limit.reason};
}

int default_ranks(const rank_limit& limit) { return std::min(8, limit.ranks); }

#endif

} // namespace dcuda
