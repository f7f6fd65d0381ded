// SPDX-License-Identifier: BSD-3-Clause
#include "device/occupancy.hpp"

#include "device/delivery_kernel.hpp"

#include "support/cuda.hpp"

#include <algorithm>
#include <array>

namespace dcuda {

#if DCUDA_BACKEND_CUDA

namespace {

constexpr std::size_t reserved_shared_bytes = 1024; // of each block, by the driver
constexpr std::size_t delivery_shared_bytes = 4096; // more than it needs

struct resource {
    int blocks;
    std::string name;
};

// What a block takes of a multiprocessor.
struct footprint {
    int threads = 0, registers = 0;
    std::size_t shared_bytes = 0;
};
footprint footprint_of(const cudaFuncAttributes& kernel, int threads, std::size_t shared_bytes) {
    constexpr int warp = 32, register_unit = 256;
    const int warps = (threads + warp - 1) / warp;
    return {warps * warp, warps * ((kernel.numRegs * warp + register_unit - 1) / register_unit * register_unit),
            kernel.sharedSizeBytes + shared_bytes + reserved_shared_bytes};
}

// Blocks that have to be left out so that the delivery kernel finds room: it starts after them, and what they leave may
// lie on different multiprocessors.
int blocks_for_delivery_kernel(const footprint& block, int threads, const cudaDeviceProp& gpu) {
    cudaFuncAttributes attributes{};
    cuda::check(cudaFuncGetAttributes(&attributes, delivery_kernel_address()),
                "asking for the delivery kernel's resources");
    const footprint other =
        footprint_of(attributes, static_cast<int>(delivery_threads(static_cast<unsigned>(threads))), 0);
    const auto blocks = [](std::size_t needed, std::size_t of_block) {
        return static_cast<int>((needed + of_block - 1) / std::max<std::size_t>(1, of_block));
    };
    const int neighbours =
        std::max({blocks(static_cast<std::size_t>(other.threads), static_cast<std::size_t>(block.threads)),
                  blocks(static_cast<std::size_t>(other.registers), static_cast<std::size_t>(block.registers)),
                  blocks(other.shared_bytes, block.shared_bytes)});
    return (neighbours - 1) * gpu.multiProcessorCount + 1;
}

// Blocks per multiprocessor that each resource allows on its own, to name the one that limits.
resource tightest_resource(const cudaFuncAttributes& kernel, int threads, std::size_t shared_bytes,
                           const cudaDeviceProp& gpu) {
    const footprint block = footprint_of(kernel, threads, shared_bytes);
    const std::array resources{
        resource{gpu.maxThreadsPerMultiProcessor / block.threads,
                 fmt::format("threads ({} / {})", gpu.maxThreadsPerMultiProcessor, block.threads)},
        resource{gpu.regsPerMultiprocessor / std::max(1, block.registers),
                 fmt::format("registers ({} / {} per block, {} per thread)", gpu.regsPerMultiprocessor, block.registers,
                             kernel.numRegs)},
        resource{
            static_cast<int>(gpu.sharedMemPerMultiprocessor / block.shared_bytes),
            fmt::format("shared memory ({} B / {} B per block)", gpu.sharedMemPerMultiprocessor, block.shared_bytes)},
        resource{gpu.maxBlocksPerMultiProcessor, fmt::format("blocks ({})", gpu.maxBlocksPerMultiProcessor)},
    };
    return *std::min_element(resources.begin(), resources.end(),
                             [](const resource& a, const resource& b) { return a.blocks < b.blocks; });
}

} // namespace

rank_limit find_rank_limit(const void* kernel, bool with_network, const launch_config& config) {
    cudaDeviceProp properties{};
    cuda::check(cudaGetDeviceProperties(&properties, cuda::device_in_use()), "asking for the device's properties");
    const std::size_t threads = std::size_t(config.threads.x) * config.threads.y * config.threads.z;
    if (threads > static_cast<std::size_t>(properties.maxThreadsPerBlock))
        return {0, fmt::format("threads: {} per block, at most {}", threads, properties.maxThreadsPerBlock)};

    cudaFuncAttributes attributes{};
    cuda::check(cudaFuncGetAttributes(&attributes, kernel),
                "asking for the kernel's resources (is it built for this device?)");
    if (threads > static_cast<std::size_t>(attributes.maxThreadsPerBlock))
        return {0,
                fmt::format("registers: {} per thread allow at most {} threads per block; __launch_bounds__({}) on the "
                            "kernel makes the compiler use fewer",
                            attributes.numRegs, attributes.maxThreadsPerBlock, threads)};
    if (attributes.sharedSizeBytes + config.shared_bytes > properties.sharedMemPerBlockOptin)
        return {0, fmt::format("shared memory: {} B static and {} B dynamic per block, at most {} B",
                               attributes.sharedSizeBytes, config.shared_bytes, properties.sharedMemPerBlockOptin)};
    cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(config.shared_bytes)),
                "raising the kernel's dynamic shared memory");

    int blocks = 0;
    cuda::check(
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, static_cast<int>(threads), config.shared_bytes),
        "asking for the kernel's occupancy");
    resource limit = tightest_resource(attributes, static_cast<int>(threads), config.shared_bytes, properties);
    constexpr int most_with_all_barriers = 4; // kernels that are compiled with DCUDA_PARTS take 16 of 64
    if (blocks == most_with_all_barriers && blocks < limit.blocks)
        limit = {blocks, "hardware barriers (64 / 16, as with DCUDA_PARTS)"};
    const footprint block = footprint_of(attributes, static_cast<int>(threads), config.shared_bytes);
    const int places = with_network ? blocks_for_delivery_kernel(block, static_cast<int>(threads), properties) : 0;
    return {std::max(0, blocks * properties.multiProcessorCount - places) * config.ranks_per_block,
            fmt::format("{}{} per multiprocessor by {}, {} multiprocessors of {}{}", blocks,
                        config.ranks_per_block == 1 ? "" : fmt::format(" blocks of {} ranks", config.ranks_per_block),
                        limit.name, properties.multiProcessorCount, properties.name,
                        places == 0 ? "" : fmt::format(", less {} for the network's delivery kernel", places))};
}

int default_ranks(const rank_limit& limit, int) { return limit.ranks; }

namespace {

constexpr int first_with_engine = 90; // compute capability

// PERF: six stages of 8 KiB and more give one rank 45 GB/s to a peer, four 33, four of 4 KiB 20. Below 3 KiB, 128
// threads do better with registers (H200, 2026-11-21: docs/design/copies.md).
constexpr std::size_t stages = 4, most_stage_bytes = 16384, least_stage_bytes = 3072;
using detail::stage_alignment;
constexpr std::size_t barrier_bytes = detail::stage_barrier_bytes;

// Of a rank, of so many bytes; as many stages of the largest size as there is room for, but at least four.
detail::staging_shape shape_staging(std::size_t offset, std::size_t available) {
    if (available < stages * (least_stage_bytes + barrier_bytes)) return {};
    const std::size_t stage_bytes = std::min(most_stage_bytes, available / stages - barrier_bytes);
    return {static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(stages),
            static_cast<std::uint32_t>(stage_bytes / stage_alignment * stage_alignment)};
}

} // namespace

shared_memory::shared_memory(const void* kernel, bool with_network, const launch_config& config, int ranks)
    : bytes_(config.shared_bytes) {
    cudaDeviceProp gpu{};
    cuda::check(cudaGetDeviceProperties(&gpu, cuda::device_in_use()), "asking for the device's properties");
    cudaFuncAttributes attributes{};
    cuda::check(cudaFuncGetAttributes(&attributes, kernel), "asking for the kernel's resources");
    const int blocks = ranks / config.ranks_per_block;
    const int neighbours = (blocks + gpu.multiProcessorCount - 1) / gpu.multiProcessorCount; // on a multiprocessor
    const bool has_engine =
        gpu.major * 10 + gpu.minor >= first_with_engine && attributes.ptxVersion >= first_with_engine;
    if (has_engine) add_staging(kernel, attributes, with_network, config, neighbours, gpu);

    // Left alone, the driver makes room for as many blocks as would fit, at the cost of the L1 cache. And the delivery
    // kernel, which is there first, leaves a multiprocessor its split of shared memory and L1 cache as long as it is
    // there: blocks that want another never start (H200, driver 580). So both kernels say the same.
    if (attributes.preferredShmemCarveout == cudaSharedmemCarveoutDefault &&
        (staging_.stage_count != 0 || with_network)) {
        const std::size_t needed =
            static_cast<std::size_t>(neighbours) * (attributes.sharedSizeBytes + bytes_ + reserved_shared_bytes) +
            (with_network ? delivery_shared_bytes : 0);
        const std::size_t all = gpu.sharedMemPerMultiprocessor;
        attributes.preferredShmemCarveout =
            static_cast<int>(std::min<std::size_t>(100, (needed * 100 + all - 1) / all));
        cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                         attributes.preferredShmemCarveout),
                    "asking for L1 cache");
        preferring_kernel_ = kernel;
    }
    if (with_network)
        cuda::check(cudaFuncSetAttribute(delivery_kernel_address(), cudaFuncAttributePreferredSharedMemoryCarveout,
                                         attributes.preferredShmemCarveout),
                    "preparing the delivery kernel");
}

void shared_memory::add_staging(const void* kernel, const cudaFuncAttributes& attributes, bool with_network,
                                const launch_config& config, int neighbours, const cudaDeviceProp& gpu) {
    // All sizes are those of a block, but for the shape.
    const auto parts = static_cast<std::size_t>(config.ranks_per_block);
    const std::size_t all = gpu.sharedMemPerMultiprocessor - (with_network ? delivery_shared_bytes : 0);
    const std::size_t usable = config.staging_bytes ? all : all / 2;
    const std::size_t share = usable / static_cast<std::size_t>(neighbours);
    const std::size_t offset = config.shared_bytes, with_alignment = offset + stage_alignment;
    const std::size_t taken = attributes.sharedSizeBytes + with_alignment + reserved_shared_bytes;
    const std::size_t limit = std::min(share, gpu.sharedMemPerBlockOptin + reserved_shared_bytes);
    const std::size_t wanted = config.staging_bytes.value_or(stages * (most_stage_bytes + barrier_bytes));
    if (limit <= taken) return;
    const std::size_t aligning = parts == 1 ? 0 : stage_alignment; // of a rank's stages behind another's
    const std::size_t available = std::min((limit - taken) / parts, wanted + aligning);
    if (available <= aligning) return;
    const detail::staging_shape shape = shape_staging(offset, available - aligning);
    if (shape.stage_count == 0) return;
    const std::size_t bytes =
        with_alignment + (parts - 1) * shape.bytes_of_rank() + shape.stage_count * (shape.stage_bytes + barrier_bytes);

    cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
                "raising the kernel's dynamic shared memory");
    const auto threads = static_cast<int>(config.threads.x * config.threads.y * config.threads.z);
    int fitting = 0;
    cuda::check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fitting, kernel, threads, bytes),
                "asking for the kernel's occupancy");
    if (fitting < neighbours) return; // not what the arithmetic says: better no staging than no run
    bytes_ = bytes;
    staging_ = shape;
}

shared_memory::~shared_memory() {
    if (preferring_kernel_ != nullptr)
        cudaFuncSetAttribute(preferring_kernel_, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutDefault);
}

#else

rank_limit find_rank_limit(const void*, bool, const launch_config& config) {
    const auto limit = detail::exec::limit(config.threads, config.shared_bytes);
    return {limit.max_blocks * config.ranks_per_block, limit.reason};
}

int default_ranks(const rank_limit& limit, int ranks_per_block) {
    return std::min(std::max(8 / ranks_per_block, 1) * ranks_per_block, limit.ranks);
}

shared_memory::shared_memory(const void*, bool, const launch_config& config, int) : bytes_(config.shared_bytes) {}

shared_memory::~shared_memory() = default;

#endif

} // namespace dcuda
