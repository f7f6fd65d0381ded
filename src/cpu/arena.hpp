// SPDX-License-Identifier: BSD-3-Clause
// Device memory of the CPU backend: one sparse shared-memory file per process, as large as the machine's memory, and
// the files of other processes, mapped as CUDA IPC maps them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "cuda_runtime_api.h"

namespace dcuda::detail::cpu {

struct allocation {
    char* base;
    std::size_t bytes;
    unsigned long long id; // never reused in this process
    bool managed;
};

class arena {
public:
    arena(); // maps nothing yet if the system refuses: then every allocation fails
    ~arena();
    arena(const arena&) = delete;
    arena& operator=(const arena&) = delete;

    // This process's arena. A forked child gets a new one: its parent's belongs to the parent.
    static arena& own();

    // The memory holds zeros, and takes none of the machine's before it is touched.
    cudaError_t allocate(std::size_t bytes, bool managed, void** result);
    cudaError_t free(void* base);
    std::optional<allocation> find(const void* pointer);
    bool contains(const void* pointer) const;
    std::size_t used_bytes();

    char* base() const { return base_; }
    std::size_t bytes() const { return bytes_; }
    int file() const { return file_; }

private:
    struct extent {
        std::size_t bytes; // of the space, a multiple of the alignment
        std::size_t wanted_bytes;
        unsigned long long id;
        bool managed;
    };

    std::optional<std::size_t> take(std::size_t bytes);
    void give_back_oldest();
    std::pair<std::size_t, std::size_t> return_pages(std::size_t begin, std::size_t end);
    void fill_with_zeros(std::size_t begin, std::size_t end);
    bool make_accessible(std::size_t end);

    std::mutex mutex_;
    int file_ = -1;
    char* base_ = nullptr;
    std::size_t bytes_ = 0, accessible_ = 0, used_ = 0, resting_bytes_ = 0;
    std::map<std::size_t, std::size_t> free_;                 // offset, bytes
    std::map<std::size_t, extent> live_;                      // by offset
    std::deque<std::pair<std::size_t, std::size_t>> resting_; // freed, but not reused yet: late users show
};

// A number that no other allocation of this process has.
unsigned long long next_allocation_id();

// Memory of another process that is open here: the allocation around the pointer.
std::optional<allocation> find_peer_memory(const void* pointer);

} // namespace dcuda::detail::cpu
