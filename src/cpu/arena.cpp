// SPDX-License-Identifier: BSD-3-Clause
#include "arena.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "own_of_process.hpp"
#include "sanitizer.hpp"
#include "support/losses.hpp"

namespace dcuda::detail::cpu {

namespace {

constexpr std::size_t alignment = 256;
constexpr std::size_t red_zone = 16;                // at least, behind each allocation
constexpr std::size_t step = std::size_t{64} << 20; // how the accessible part grows
constexpr std::size_t most_resting_extents = 1024;  // freed extents that rest, and
constexpr std::size_t resting_share = 4;            // the part of the arena that they may hold
constexpr std::size_t address_space_share = 4;      // the part of a limited address space that an arena takes

std::size_t page_bytes() {
    static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return bytes;
}

constexpr std::size_t round_up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }

} // namespace

unsigned long long next_allocation_id() {
    static std::atomic<unsigned long long> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

arena& arena::own() { return own_of_process<arena>(); }

arena::arena() {
    std::size_t most = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * page_bytes();
    // A limit on address space (ulimit -v) holds for the arenas of other processes as well, which are mapped here.
    rlimit space{};
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY)
        most = std::min(most, static_cast<std::size_t>(space.rlim_cur) / address_space_share);
    file_ = memfd_create("dcuda-device-memory", MFD_CLOEXEC);
    if (file_ < 0) return;
    // PROT_NONE: what was never allocated is out of reach. A smaller arena is better than none under a limit (ulimit
    // -f, -v).
    const support::file_limit_as_error instead_of_signal;
    for (std::size_t bytes = round_up(most, step); bytes >= step; bytes = round_up(bytes / 2, step)) {
        if (ftruncate(file_, static_cast<off_t>(bytes)) == 0) {
            void* p = mmap(nullptr, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file_, 0);
            if (p != MAP_FAILED) {
                base_ = static_cast<char*>(p);
                bytes_ = bytes;
                free_[0] = bytes;
                return;
            }
        }
        if (bytes == step) break;
    }
    rlimit files{};
    getrlimit(RLIMIT_FSIZE, &files);
    std::fprintf(stderr, "dcuda: the CPU backend gets no device memory: %s%s\n", std::strerror(errno),
                 files.rlim_cur == RLIM_INFINITY && space.rlim_cur == RLIM_INFINITY
                     ? ""
                     : "; it is one file and one mapping: raise ulimit -f and ulimit -v");
}

arena::~arena() {
    if (base_) munmap(base_, bytes_);
    if (file_ >= 0) close(file_);
}

bool arena::contains(const void* pointer) const {
    return base_ && static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(pointer) -
                                             reinterpret_cast<std::uintptr_t>(base_)) < bytes_;
}

bool arena::make_accessible(std::size_t end) {
    if (end <= accessible_) return true;
    end = std::min(round_up(end, step), bytes_);
    if (mprotect(base_ + accessible_, end - accessible_, PROT_READ | PROT_WRITE) != 0) return false;
    accessible_ = end;
    return true;
}

// First fit.
std::optional<std::size_t> arena::take(std::size_t bytes) {
    for (auto [offset, size] : free_) {
        if (size < bytes) continue;
        free_.erase(offset);
        if (size > bytes) free_[offset + bytes] = size - bytes;
        return offset;
    }
    return std::nullopt;
}

void arena::give_back_oldest() {
    auto [offset, size] = resting_.front();
    resting_.pop_front();
    resting_bytes_ -= size;
    auto after = free_.lower_bound(offset);
    if (after != free_.end() && offset + size == after->first) {
        size += after->second;
        after = free_.erase(after);
    }
    if (after != free_.begin()) {
        const auto before = std::prev(after);
        if (before->first + before->second == offset) {
            before->second += size;
            return;
        }
    }
    free_[offset] = size;
}

cudaError_t arena::allocate(std::size_t bytes, bool managed, void** result) {
    const std::lock_guard lock(mutex_);
    if (bytes > bytes_) return cudaErrorMemoryAllocation;
    const std::size_t space = round_up(bytes + red_zone, alignment);
    auto offset = take(space);
    while (!offset && !resting_.empty()) {
        give_back_oldest();
        offset = take(space);
    }
    if (!offset) return cudaErrorMemoryAllocation;
    const std::size_t known = accessible_;
    if (!make_accessible(*offset + space)) {
        resting_.emplace_back(*offset, space);
        resting_bytes_ += space;
        return cudaErrorMemoryAllocation;
    }
    // Poison what became accessible, save the allocation itself: shadow memory costs an eighth of what is poisoned.
    if (accessible_ > known) {
        const std::size_t end = *offset + space;
        if (*offset > known) sanitizer::poison(base_ + known, *offset - known);
        if (accessible_ > end) sanitizer::poison(base_ + end, accessible_ - end);
    }
    sanitizer::unpoison(base_ + *offset, bytes);
    sanitizer::poison(base_ + *offset + bytes, space - bytes);
    fill_with_zeros(*offset, *offset + bytes);
    live_[*offset] = {space, bytes, next_allocation_id(), managed};
    used_ += space;
    *result = base_ + *offset;
    return cudaSuccess;
}

// Whole pages go back to the system, and are zeros when they are touched again; their neighbours may still be in use.
// Returns the range of these pages; an empty one at `end` if there are none, or the system refuses.
std::pair<std::size_t, std::size_t> arena::return_pages(std::size_t begin, std::size_t end) {
    const std::size_t first = round_up(begin, page_bytes()), last = end / page_bytes() * page_bytes();
    if (last <= first || fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(first),
                                   static_cast<off_t>(last - first)) != 0)
        return {end, end};
    return {first, last};
}

// Also what somebody has written there since it was freed: a process of a run that failed, say.
void arena::fill_with_zeros(std::size_t begin, std::size_t end) {
    const auto [first, last] = return_pages(begin, end);
    std::memset(base_ + begin, 0, first - begin);
    std::memset(base_ + last, 0, end - last);
}

cudaError_t arena::free(void* base) {
    const std::lock_guard lock(mutex_);
    if (!contains(base)) return cudaErrorInvalidValue;
    const auto found = live_.find(static_cast<std::size_t>(static_cast<char*>(base) - base_));
    if (found == live_.end()) return cudaErrorInvalidValue;
    const std::size_t offset = found->first, space = found->second.bytes;
    live_.erase(found);
    used_ -= space;
    sanitizer::poison(base_ + offset, space);
    return_pages(offset, offset + space);
    resting_.emplace_back(offset, space);
    resting_bytes_ += space;
    while (resting_.size() > most_resting_extents || (resting_bytes_ > bytes_ / resting_share && resting_.size() > 1))
        give_back_oldest();
    return cudaSuccess;
}

std::optional<allocation> arena::find(const void* pointer) {
    if (!contains(pointer)) return std::nullopt;
    const std::lock_guard lock(mutex_);
    const auto offset = static_cast<std::size_t>(static_cast<const char*>(pointer) - base_);
    auto it = live_.upper_bound(offset);
    if (it == live_.begin()) return std::nullopt;
    --it;
    if (offset - it->first >= it->second.wanted_bytes) return std::nullopt;
    return allocation{base_ + it->first, it->second.wanted_bytes, it->second.id, it->second.managed};
}

std::size_t arena::used_bytes() {
    const std::lock_guard lock(mutex_);
    return used_;
}

} // namespace dcuda::detail::cpu
