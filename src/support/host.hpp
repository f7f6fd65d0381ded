// SPDX-License-Identifier: BSD-3-Clause
// This host and its processes.
#pragma once

#include <cstdint>
#include <string>
#include <sys/types.h>

namespace dcuda::support {

// Equal for two processes if they are on one host and may share memory: the host's name and what tells its kernel's
// boots apart. Containers and namespaces with a name of their own count as hosts.
std::string host_identity();

// What the system says of a process.
struct process_status {
    char state = 0;          // as ps shows it: R, S, T, Z, ...; 0: there is no such process
    pid_t parent = 0;        // 0: outside of our namespace, or there is no such process
    std::uint64_t start = 0; // clock ticks since the boot: a process number is used again, with another time
};
process_status find_process(pid_t pid);

} // namespace dcuda::support
