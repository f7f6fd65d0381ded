// SPDX-License-Identifier: BSD-3-Clause
// How many ranks of a kernel are co-resident on this process's device, and which resource says so.
#pragma once

#include "dcuda/detail/exec/launch.hpp"
#include "dcuda/host.hpp"

#include <string>

namespace dcuda {

struct rank_limit {
    int ranks;          // the largest number of co-resident ones; 0: not even one fits
    std::string reason; // "16 per multiprocessor by threads (2048 / 128), 132 multiprocessors"
};

// `with_network`: the delivery kernel, of one block, runs at the same time.
rank_limit find_rank_limit(const void* kernel, bool with_network, const launch_config& config);

// The number of ranks per device if the user asks for none, given the limit, of so many ranks of a block.
int default_ranks(const rank_limit& limit, int ranks_per_block);

// The dynamic shared memory of a block in a run: the user's, then the stages that large puts pass through, of what that
// many ranks on this device leave unused. While it lives, the kernel prefers to leave the rest to the L1 cache, and the
// delivery kernel, if there is one, prefers the same.
class shared_memory {
public:
    shared_memory(const void* kernel, bool with_network, const launch_config& config, int ranks);
    ~shared_memory();
    shared_memory(const shared_memory&) = delete;
    shared_memory& operator=(const shared_memory&) = delete;

    std::size_t bytes() const { return bytes_; } // in all
    const detail::staging_shape& staging() const { return staging_; }

private:
#if DCUDA_BACKEND_CUDA
    void add_staging(const void* kernel, const cudaFuncAttributes& attributes, bool with_network,
                     const launch_config& config, int neighbours, const cudaDeviceProp& gpu);
#endif

    std::size_t bytes_;
    detail::staging_shape staging_{};
    const void* preferring_kernel_ = nullptr;
};

} // namespace dcuda
