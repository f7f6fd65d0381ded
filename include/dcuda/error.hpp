// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The one exception class of the library.
#pragma once

#include <stdexcept>
#include <string>

namespace dcuda {

/// What kind of thing went wrong.
enum class error_code {
    invalid_argument,  ///< a call, an option or an environment variable that cannot work
    out_of_resources,  ///< more ranks, memory, threads or windows than there are
    cuda_failure,      ///< a CUDA call failed
    no_path,           ///< two devices that cannot reach each other
    bootstrap_failure, ///< the processes did not find each other, or disagree about the job
    process_lost,      ///< another process of the job ended or died too early
    device_fault,      ///< a device operation broke its contract: bounds, rank, tag, window; or what DCUDA_CHECK found
    wait_timeout,      ///< a wait exceeded the bound that the user set
    deadlock,          ///< every rank waits and nothing moves
    kernel_failure,    ///< the kernel itself failed: an exception, an illegal access, a trap
    interrupted,       ///< a process of the job got SIGINT or SIGTERM while the kernel ran
};

/// Short name of a code, such as "wait_timeout". Any thread of the host may call it; the text is never freed.
const char* to_string(error_code code) noexcept;

/// What the host's functions throw. The message (`what()`) says what happened, where, and what to do.
class error : public std::runtime_error {
public:
    /// An error of this kind with this message.
    error(error_code code, const std::string& message) : std::runtime_error(message), code_(code) {}
    /// What kind it is.
    error_code code() const noexcept { return code_; }

private:
    error_code code_;
};

} // namespace dcuda
