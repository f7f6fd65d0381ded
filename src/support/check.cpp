// SPDX-License-Identifier: BSD-3-Clause
#include "support/check.hpp"

#include <system_error>

namespace dcuda {

const char* to_string(error_code code) noexcept {
    switch (code) {
    case error_code::invalid_argument:
        return "invalid_argument";
    case error_code::out_of_resources:
        return "out_of_resources";
    case error_code::cuda_failure:
        return "cuda_failure";
    case error_code::no_path:
        return "no_path";
    case error_code::bootstrap_failure:
        return "bootstrap_failure";
    case error_code::process_lost:
        return "process_lost";
    case error_code::device_fault:
        return "device_fault";
    case error_code::wait_timeout:
        return "wait_timeout";
    case error_code::deadlock:
        return "deadlock";
    case error_code::kernel_failure:
        return "kernel_failure";
    case error_code::interrupted:
        return "interrupted";
    }
    return "unknown_error";
}

} // namespace dcuda

namespace dcuda::support {

std::string short_location(const source_location& location) {
    std::string_view file = location.file_name();
    if (auto slash = file.rfind('/'); slash != file.npos) file.remove_prefix(slash + 1);
    return fmt::format("{}:{}", file, location.line());
}

void fail_errno(int number, std::string_view subject, error_code code, source_location location) {
    fail(code, "{}: {} (errno {}, {})", subject, std::generic_category().message(number), number,
         short_location(location));
}

} // namespace dcuda::support
