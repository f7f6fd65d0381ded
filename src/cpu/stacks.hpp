// SPDX-License-Identifier: BSD-3-Clause
// The stacks of CUDA threads on the CPU.
#pragma once

#include <cstddef>

namespace dcuda::detail::cpu {

// Memory of a block's stacks: [guard][stack] for each thread. Throws dcuda::error if the system refuses. Some of it is
// kept for the next block of the same shape.
class stack_memory {
public:
    stack_memory(unsigned count, std::size_t stack_bytes);
    ~stack_memory();
    stack_memory(const stack_memory&) = delete;
    stack_memory& operator=(const stack_memory&) = delete;

    char* bottom(unsigned i) const { return base_ + i * (guard_bytes + stack_bytes_) + guard_bytes; }
    std::size_t stack_bytes() const { return stack_bytes_; }
    // The stack above the guard that contains the address, or -1.
    int overflown(const void* address) const;

    static constexpr std::size_t guard_bytes = 64 * 1024; // costs no memory; a page would be jumped over too easily

private:
    void map();

    char* base_ = nullptr;
    unsigned count_;
    std::size_t stack_bytes_, bytes_;
};

// How many of the process's mappings are stacks that are kept for the next kernel, or unmapped before it has its own.
long long kept_mappings();

// Stack of each CUDA thread: DCUDA_STACK_BYTES, 64 KiB unless set (more under a sanitizer).
std::size_t default_stack_bytes();

} // namespace dcuda::detail::cpu
