// SPDX-License-Identifier: BSD-3-Clause
// cudaIpc*: an arena is opened through /proc/PID/fd, once per peer process, however many allocations are opened.
#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "arena.hpp"
#include "stream.hpp"
#include "support/host.hpp"

using namespace dcuda::detail::cpu;
using dcuda::support::find_process;

namespace {

struct handle_content {
    std::uint64_t magic;
    std::int32_t pid, file;
    std::uint64_t process_start, arena_bytes, offset, bytes;
};
static_assert(sizeof(handle_content) <= sizeof(cudaIpcMemHandle_t));
constexpr std::uint64_t handle_magic = 0x6463756461697063; // "dcudaipc"

struct opened {
    std::size_t bytes;
    unsigned long long id;
    unsigned uses;
};

struct peer_arena {
    char* base = nullptr;
    std::size_t bytes = 0;
    std::map<std::size_t, opened> allocations; // by offset
};

using process_key = std::pair<std::int32_t, std::uint64_t>; // pid and start time: pids are reused

struct peer_table {
    std::mutex mutex;
    std::map<process_key, peer_arena> peers;
};

peer_table& table() {
    static auto& t = *new peer_table;
    return t;
}

char* map_arena(const handle_content& h) {
    const std::string path = "/proc/" + std::to_string(h.pid) + "/fd/" + std::to_string(h.file);
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) return nullptr;
    void* p = MAP_FAILED;
    const off_t size = lseek(file, 0, SEEK_END);
    // Checked with the file open: from here on the pid cannot turn into another process's.
    if (find_process(h.pid).start == h.process_start && size >= 0 && static_cast<std::uint64_t>(size) >= h.arena_bytes)
        p = mmap(nullptr, h.arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    close(file);
    return p == MAP_FAILED ? nullptr : static_cast<char*>(p);
}

} // namespace

namespace dcuda::detail::cpu {

std::optional<allocation> find_peer_memory(const void* pointer) {
    const std::lock_guard lock(table().mutex);
    for (const auto& [key, peer] : table().peers) {
        const auto offset = static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(pointer) -
                                                     reinterpret_cast<std::uintptr_t>(peer.base));
        if (offset >= peer.bytes) continue;
        auto it = peer.allocations.upper_bound(offset);
        if (it == peer.allocations.begin()) return std::nullopt;
        --it;
        if (offset - it->first >= it->second.bytes) return std::nullopt;
        return allocation{peer.base + it->first, it->second.bytes, it->second.id, false};
    }
    return std::nullopt;
}

} // namespace dcuda::detail::cpu

extern "C" {

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
    if (!handle) return report(cudaErrorInvalidValue);
    arena& own = arena::own();
    const auto found = own.find(pointer);
    if (!found || found->managed) return report(cudaErrorInvalidValue);
    const handle_content h{handle_magic, getpid(),
                           own.file(),   find_process(getpid()).start,
                           own.bytes(),  static_cast<std::uint64_t>(found->base - own.base()),
                           found->bytes};
    *handle = {};
    std::memcpy(handle, &h, sizeof h);
    return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t handle, unsigned int flags) {
    handle_content h;
    std::memcpy(&h, &handle, sizeof h);
    if (!pointer || flags != cudaIpcMemLazyEnablePeerAccess) return report(cudaErrorInvalidValue);
    if (h.magic != handle_magic || h.offset > h.arena_bytes || h.bytes > h.arena_bytes - h.offset)
        return report(cudaErrorInvalidResourceHandle);
    if (h.pid == getpid()) return report(cudaErrorDeviceUninitialized); // CUDA: not in the process that made it
    if (find_process(h.pid).start != h.process_start)
        return report(cudaErrorInvalidResourceHandle); // that process has ended

    const std::lock_guard lock(table().mutex);
    peer_arena& peer = table().peers[{h.pid, h.process_start}];
    if (!peer.base) {
        peer.base = map_arena(h);
        peer.bytes = h.arena_bytes;
        if (!peer.base) {
            table().peers.erase({h.pid, h.process_start});
            return report(cudaErrorMapBufferObjectFailed);
        }
    }
    const auto [it, is_new] = peer.allocations.try_emplace(h.offset, opened{h.bytes, 0, 0});
    if (is_new) it->second.id = next_allocation_id();
    it->second.bytes = h.bytes;
    ++it->second.uses;
    *pointer = peer.base + h.offset;
    return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void* pointer) {
    const std::lock_guard lock(table().mutex);
    for (auto peer = table().peers.begin(); peer != table().peers.end(); ++peer) {
        peer_arena& p = peer->second;
        const auto offset = static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(pointer) -
                                                     reinterpret_cast<std::uintptr_t>(p.base));
        if (offset >= p.bytes) continue;
        const auto found = p.allocations.find(offset);
        if (found == p.allocations.end()) break;
        if (--found->second.uses == 0) p.allocations.erase(found);
        if (p.allocations.empty()) {
            munmap(p.base, p.bytes);
            table().peers.erase(peer);
        }
        return cudaSuccess;
    }
    return report(cudaErrorInvalidValue);
}

} // extern "C"
