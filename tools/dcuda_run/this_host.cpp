// SPDX-License-Identifier: BSD-3-Clause
#include "this_host.hpp"

#include "io.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <sstream>
#include <strings.h>
#include <system_error>
#include <unistd.h>
#include <vector>

namespace launch {

std::string host_name() {
    char name[256] = "?";
    gethostname(name, sizeof name - 1);
    return name;
}

bool is_this_host(const std::string& name) {
    const std::string own = host_name();
    for (const std::string& each :
         {std::string("localhost"), std::string("127.0.0.1"), own, own.substr(0, own.find('.'))})
        if (strcasecmp(name.c_str(), each.c_str()) == 0) return true;
    return false;
}

int visible_gpus() {
    if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
        const std::string list = visible;
        if (list.empty() || list[0] == '-') return 0;
        return 1 + static_cast<int>(std::count(list.begin(), list.end(), ','));
    }
    int count = 0;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/dev", ignored)) {
        const std::string name = entry.path().filename();
        if (name.rfind("nvidia", 0) == 0 && name.size() > 6 && name.find_first_not_of("0123456789", 6) == name.npos)
            ++count;
    }
    return count;
}

std::string find_program(const std::string& name) {
    std::vector<std::string> candidates;
    if (name.find('/') != name.npos) {
        candidates.push_back(name);
    } else {
        const char* path = std::getenv("PATH");
        std::istringstream folders(path ? path : "/usr/local/bin:/usr/bin:/bin");
        for (std::string folder; std::getline(folders, folder, ':');)
            candidates.push_back((folder.empty() ? "." : folder) + "/" + name);
    }
    bool found = false;
    for (const auto& candidate : candidates) {
        std::error_code ignored;
        if (!std::filesystem::exists(candidate, ignored)) continue;
        found = true;
        if (!std::filesystem::is_directory(candidate, ignored) && access(candidate.c_str(), X_OK) == 0)
            return candidate;
    }
    if (found) throw start_error(exit_not_executable, fmt::format("{} is not an executable file", name));
    const bool is_path = name.find('/') != name.npos;
    throw start_error(exit_not_found,
                      is_path ? fmt::format("{} does not exist", name)
                              : fmt::format("no program {} in PATH; for one in this folder write ./{}", name, name));
}

} // namespace launch
