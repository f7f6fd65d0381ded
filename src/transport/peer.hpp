// SPDX-License-Identifier: BSD-3-Clause
// The peer path: memory of one process mapped by another. CUDA IPC between GPUs, shared memory on the CPU backend.
#pragma once

#include "support/cuda.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace dcuda::transport {

// What one process tells others about an allocation, so that they can map it. Plain bytes.
struct exported_allocation {
    cudaIpcMemHandle_t handle;
    std::uint64_t id; // unique in the exporting process, also when an address is used again
    std::uint64_t bytes;
};

// The allocation that holds an address.
struct allocation {
    std::byte* base;
    std::size_t bytes;
    std::uint64_t id;
};

// Nothing if no allocation of this process's device holds the address.
std::optional<allocation> find_allocation(const void* address);

// What memory without an allocation is, for a message: "memory of device 0, but this process's device is 1", ...
std::string describe_foreign_memory(const void* address);

// The allocation that all of these bytes lie in, for a window. Or nothing, and `problem` says where they lie instead:
// it goes on from "create_window over N B ".
std::optional<allocation> find_window_memory(const std::byte* base, std::uint64_t bytes, std::string& problem);

// Throws error(no_path) if the memory is of a kind that other processes cannot map; the message names the kind.
exported_allocation export_allocation(const allocation& memory);

// The mappings of other processes' memory in this one; each allocation is mapped once. Closing has to wait until no
// kernel runs: cudaIpcCloseMemHandle blocks until then.
class peer_mappings {
public:
    peer_mappings() = default;
    ~peer_mappings() { close(); }
    peer_mappings(const peer_mappings&) = delete;
    peer_mappings& operator=(const peer_mappings&) = delete;

    // Address of the allocation's base here. Throws error(no_path).
    std::byte* open(int process, const exported_allocation& memory);
    void close();

private:
    std::map<std::pair<int, std::uint64_t>, std::byte*> open_;
};

// How a device reaches another of the same node.
enum class path { local, peer, none };
const char* to_string(path p);

// What the driver says of two devices that this process sees.
path path_between(int device, int other_device);

} // namespace dcuda::transport
