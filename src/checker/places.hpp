// SPDX-License-Identifier: BSD-3-Clause
// Places in the program: taken from the stack when something happens, named by the debug information when they are
// reported.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "checker/memory.hpp"

namespace dcuda::detail::check {

// Of one process. Whoever has the turn uses it.
class places {
public:
    explicit places(const memory& shared) : m_(shared) {}

    // Where the calling thread is, with its callers.
    std::uint32_t here();
    // The instruction before this return address.
    std::uint32_t of(const void* return_address);

    // "stencil.cu:41": the innermost place that is not the library's. Where there is no debug information, or no
    // addr2line: "stencil+0x1234".
    std::string name(std::uint32_t site);

private:
    std::uint32_t intern(const void* const* addresses, unsigned count);
    frame resolve(const void* return_address);

    memory m_;
    std::unordered_map<const void*, std::uint32_t> single_;
    std::map<std::vector<const void*>, std::uint32_t> stacks_;
    std::unordered_map<const void*, std::uint32_t> modules_; // by where they are loaded
    std::map<std::uint32_t, std::string> names_;
};

} // namespace dcuda::detail::check
