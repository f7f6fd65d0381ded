// SPDX-License-Identifier: BSD-3-Clause
// What dcuda-run asks of the host that it runs on.
#pragma once

#include <string>

namespace launch {

std::string host_name();

// Whether this is a name of the host itself.
bool is_this_host(const std::string& name);

// GPUs that a process would see, without a driver library.
int visible_gpus();

// The path of a program, as a shell would find it. Throws start_error with exit_not_found or exit_not_executable.
std::string find_program(const std::string& name);

} // namespace launch
