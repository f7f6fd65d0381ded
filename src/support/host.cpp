// SPDX-License-Identifier: BSD-3-Clause
#include "support/host.hpp"

#include "support/check.hpp"

#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <unistd.h>

namespace dcuda::support {

std::string host_identity() {
    char name[HOST_NAME_MAX + 1] = {};
    gethostname(name, sizeof name - 1);
    std::string boot;
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    // Where there is no such file the name must do. Processes that cannot read one that there is would take each other
    // for processes of other hosts.
    if (!file && (errno == EMFILE || errno == ENFILE))
        fail(error_code::out_of_resources, "cannot find out which host this is: {}: raise `ulimit -n`",
             std::strerror(errno));
    file >> boot;
    return std::string(name) + " " + boot;
}

process_status find_process(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    // Of a process that ends after its file was opened the system says ESRCH. A stream's own functions take that for
    // the end of the file; an iterator over its buffer would throw.
    std::getline(file, text, '\0');
    // The second field, the name in parentheses, may hold anything; state and parent follow it, and the time is field
    // 22, the 20th after it.
    const auto end_of_name = text.rfind(')');
    if (end_of_name == std::string::npos) return {};
    std::istringstream fields(text.substr(end_of_name + 1));
    process_status found;
    fields >> found.state >> found.parent;
    std::string field;
    for (int i = 2; i < 19; ++i) fields >> field;
    fields >> found.start;
    return fields ? found : process_status{};
}

} // namespace dcuda::support
