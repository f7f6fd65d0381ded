// SPDX-License-Identifier: BSD-3-Clause
#include "stacks.hpp"

#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

#include "dcuda/error.hpp"
#include "own_of_process.hpp"
#include "sanitizer.hpp"

namespace dcuda::detail::cpu {

namespace {

// Stacks of blocks that have ended, all of one shape: those of the last kernel.
// PERF: to map, protect, touch and unmap the stacks took a third of the time of short kernels.
class kept_stacks {
public:
    // Null if there are none of this shape. Those of another are unmapped: they would be in the way of limits.
    char* take(unsigned count, std::size_t stack_bytes) {
        const std::lock_guard lock(mutex_);
        if (count != count_ || stack_bytes != stack_bytes_) {
            for (char* each : free_) munmap(each, bytes());
            free_.clear();
            count_ = count;
            stack_bytes_ = stack_bytes;
            most_ = most_now();
            free_.reserve(most_);
        }
        if (free_.empty()) return nullptr;
        char* const last = free_.back();
        free_.pop_back();
        return last;
    }

    // False: it is not kept.
    bool give(char* stacks, unsigned count, std::size_t stack_bytes) noexcept {
        const std::lock_guard lock(mutex_);
        if (count != count_ || stack_bytes != stack_bytes_ || free_.size() >= most_) return false;
        free_.push_back(stacks); // there is room
        return true;
    }

    long long mappings() {
        const std::lock_guard lock(mutex_);
        return 2LL * count_ * static_cast<long long>(free_.size()); // a stack and its guard each
    }

private:
    static constexpr std::size_t most_bytes = std::size_t{512} << 20; // of stacks, of which a tenth has been touched

    std::size_t bytes() const { return count_ * (stack_memory::guard_bytes + stack_bytes_); }
    // None where address space is limited, which others need.
    std::size_t most_now() const {
        rlimit space{};
        const bool is_limited = getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY;
        return is_limited ? 0 : most_bytes / (count_ * stack_bytes_);
    }

    std::mutex mutex_;
    std::vector<char*> free_;
    std::size_t most_ = 0;
    unsigned count_ = 0;
    std::size_t stack_bytes_ = 0;
};

kept_stacks& kept() { return own_of_process<kept_stacks>(); }

} // namespace

long long kept_mappings() { return kept().mappings(); }

std::size_t default_stack_bytes() {
    static const std::size_t bytes = [] {
        const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        std::size_t value = sanitizer::address() || sanitizer::thread() ? 256 * 1024 : 64 * 1024;
        if (const char* text = std::getenv("DCUDA_STACK_BYTES")) {
            char* end = nullptr;
            value = std::strtoull(text, &end, 10);
            if (end == text || *end != '\0' || value < 16384 || value > (std::size_t{1} << 30))
                throw error(error_code::invalid_argument,
                            fmt::format("DCUDA_STACK_BYTES = '{}': expected a number from 16384 to 1073741824", text));
        }
        return (value + page - 1) / page * page;
    }();
    return bytes;
}

stack_memory::stack_memory(unsigned count, std::size_t stack_bytes)
    : count_(count), stack_bytes_(stack_bytes), bytes_(count * (guard_bytes + stack_bytes)) {
    base_ = kept().take(count_, stack_bytes_);
    if (base_ == nullptr) map();
}

void stack_memory::map() {
    void* p = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        throw error(error_code::out_of_resources,
                    fmt::format("no address space for {} stacks of {} bytes", count_, stack_bytes_));
    base_ = static_cast<char*>(p);
    for (unsigned i = 0; i < count_; ++i) {
        if (mprotect(bottom(i), stack_bytes_, PROT_READ | PROT_WRITE) != 0) {
            munmap(base_, bytes_);
            throw error(error_code::out_of_resources,
                        "no memory mapping left for another stack: use fewer threads or raise vm.max_map_count");
        }
    }
}

stack_memory::~stack_memory() {
    for (unsigned i = 0; i < count_; ++i) sanitizer::unpoison(bottom(i), stack_bytes_);
    if (!kept().give(base_, count_, stack_bytes_)) munmap(base_, bytes_);
}

int stack_memory::overflown(const void* address) const {
    const auto offset = reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(base_);
    if (offset >= bytes_ || offset % (guard_bytes + stack_bytes_) >= guard_bytes) return -1;
    return static_cast<int>(offset / (guard_bytes + stack_bytes_));
}

} // namespace dcuda::detail::cpu
