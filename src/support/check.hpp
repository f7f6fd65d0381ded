// SPDX-License-Identifier: BSD-3-Clause
// Check functions: each throws dcuda::error with a message that names the cause.
#pragma once

#include "dcuda/error.hpp"

#include <cerrno>
#include <fmt/format.h>
#include <string_view>
#include <utility>
#include <version>

#if defined(__cpp_lib_source_location)
#include <source_location>
#else // clang 14 with libstdc++ has only this one
#include <experimental/source_location>
#endif

namespace dcuda::support {

#if defined(__cpp_lib_source_location)
using source_location = std::source_location;
#else
using source_location = std::experimental::source_location;
#endif

// Throws an error of this code; the message is formatted with fmt.
template <typename... Args>
[[noreturn]] void fail(error_code code, fmt::format_string<Args...> format, Args&&... args) {
    throw error(code, fmt::format(format, std::forward<Args>(args)...));
}

// Throws an error of this code unless the condition holds. The message is formatted only then.
template <typename... Args>
void require(bool condition, error_code code, fmt::format_string<Args...> format, Args&&... args) {
    if (!condition) fail(code, format, std::forward<Args>(args)...);
}

// "tcp.cpp:17"
std::string short_location(const source_location& location);

// "subject: No such file or directory (errno 2, tcp.cpp:17)" as an error of this code.
[[noreturn]] void fail_errno(int number, std::string_view subject, error_code code = error_code::out_of_resources,
                             source_location location = source_location::current());

// For calls that return -1 and set errno: returns the result, or throws what fail_errno throws.
template <typename Result>
Result check_errno(Result result, std::string_view subject, error_code code = error_code::out_of_resources,
                   source_location location = source_location::current()) {
    if (result == static_cast<Result>(-1)) fail_errno(errno, subject, code, location);
    return result;
}

} // namespace dcuda::support
