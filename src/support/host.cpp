#include "support/host.hpp"

#include <climits>
#include <fstream>
#include <unistd.h>

namespace dcuda::support {

std::string host_identity() {
    char name[HOST_NAME_MAX + 1] = {};
    gethostname(name, sizeof name - 1);
    std::string boot;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
    return std::string(name) + " " + boot;
}

} // namespace dcuda::support
