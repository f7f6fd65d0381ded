// This host and its processes.
#pragma once

#include <cstdint>
#include <string>
#include <sys/types.h>

namespace dcuda::support {

// Equal for two processes if they are on one host and may share memory: the host's name and what tells its kernel's
// boots apart. Containers and namespaces with a name of their own count as hosts.
std::string host_identity();

// When the process was started, in clock ticks since the boot: a process number is used again, with another time. 0:
// there is no such process.
std::uint64_t process_start(pid_t pid);

} // namespace dcuda::support
