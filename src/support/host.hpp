// Which host this is.
#pragma once

#include <string>

namespace dcuda::support {

// Equal for two processes if they are on one host and may share memory: the host's name and what tells its kernel's
// boots apart. Containers and namespaces with a name of their own count as hosts.
std::string host_identity();

} // namespace dcuda::support
