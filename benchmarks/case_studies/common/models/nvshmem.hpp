// SPDX-License-Identifier: BSD-3-Clause
// What programs with NVSHMEM share: the library and its memory, on the host; and on the device, what all blocks do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

#include <cooperative_groups.h>
#include <nvshmem.h>
#include <nvshmemx.h>

#include "common/device_buffer.hpp"
#include "common/models/processes.hpp"

namespace common {

inline __device__ std::uint64_t now_ns() {
    std::uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

// All blocks of all devices.
inline __device__ void meet() {
    cooperative_groups::this_grid().sync();
    if (blockIdx.x == 0) nvshmemx_barrier_all_block();
    cooperative_groups::this_grid().sync();
}

inline void check_nvshmem(int nvshmem_status, const char* subject) {
    if (nvshmem_status != 0)
        throw std::runtime_error(std::string("NVSHMEM: ") + subject + ": status " + std::to_string(nvshmem_status));
}

// NVSHMEM as long as it lives.
class nvshmem_library {
public:
    explicit nvshmem_library(processes& all) {
        setenv("NVSHMEM_DISABLE_NVLS", "1", 0); // only neighbours talk: no multicast
        if (all.local_address().empty()) {      // all devices are on this host: no network
            setenv("NVSHMEM_REMOTE_TRANSPORT", "none", 0);
            setenv("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", "lo", 0);
        }
        nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
        if (all.index() == 0) check_nvshmem(nvshmemx_get_uniqueid(&id), "cannot make an id");
        // As raw bytes: nvcc 13.0 fails in a std::vector of this struct, which has no name.
        const std::string bytes(reinterpret_cast<const char*>(&id), sizeof id);
        std::memcpy(&id, all.gather_text(bytes, "NVSHMEM's id").front().data(), sizeof id);
        nvshmemx_init_attr_t attributes = NVSHMEMX_INIT_ATTR_INITIALIZER;
        check_nvshmem(nvshmemx_set_attr_uniqueid_args(all.index(), all.count(), &id, &attributes), "cannot use the id");
        check_nvshmem(nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attributes), "cannot initialise");
    }
    ~nvshmem_library() { nvshmem_finalize(); }
    nvshmem_library(const nvshmem_library&) = delete;
    nvshmem_library& operator=(const nvshmem_library&) = delete;

    static std::string name() {
        return "NVSHMEM " + std::to_string(NVSHMEM_VENDOR_MAJOR_VERSION) + "." +
               std::to_string(NVSHMEM_VENDOR_MINOR_VERSION) + "." + std::to_string(NVSHMEM_VENDOR_PATCH_VERSION);
    }
};

struct free_symmetric {
    void operator()(void* memory) const { nvshmem_free(memory); }
};
template <class Element>
using symmetric_array = std::unique_ptr<Element[], free_symmetric>;

// Cleared. Collective.
template <class Element>
symmetric_array<Element> allocate_symmetric(std::size_t count) {
    const std::size_t bytes = count * sizeof(Element);
    void* const memory = nvshmem_malloc(bytes);
    if (memory == nullptr)
        throw std::runtime_error("NVSHMEM: no symmetric memory for " + std::to_string(bytes) +
                                 " B; NVSHMEM_SYMMETRIC_SIZE says how much there is");
    check(cudaMemset(memory, 0, bytes), "clearing memory");
    return symmetric_array<Element>(static_cast<Element*>(memory));
}

} // namespace common
