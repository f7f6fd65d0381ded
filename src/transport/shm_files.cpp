// SPDX-License-Identifier: BSD-3-Clause
#include "transport/shm_files.hpp"

#include "support/host.hpp"

#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <random>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace dcuda::transport {

namespace {

constexpr const char* folder = "/dev/shm";

// Process numbers mean something in a namespace only, and containers may share the folder.
std::uint64_t pid_namespace() {
    struct stat found {};
    return stat("/proc/self/ns/pid", &found) == 0 ? found.st_ino : 0;
}

} // namespace

std::string choose_shm_name() {
    std::random_device random;
    return fmt::format("dcuda-{}-{}-{}-{:08x}{:08x}", pid_namespace(), getpid(), support::find_process(getpid()).start,
                       random(), random());
}

void remove_shm_leftovers() {
    const std::uint64_t own_namespace = pid_namespace();
    if (own_namespace == 0) return;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
        std::uint64_t space = 0, start = 0;
        pid_t pid = 0;
        int length = 0;
        const std::string name = entry.path().filename();
        const int found =
            std::sscanf(name.c_str(), "dcuda-%" SCNu64 "-%d-%" SCNu64 "-%*16[0-9a-f]%n", &space, &pid, &start, &length);
        if (found != 3 || static_cast<std::size_t>(length) != name.size() || space != own_namespace || start == 0)
            continue;
        struct stat about {};
        if (lstat(entry.path().c_str(), &about) != 0 || !S_ISREG(about.st_mode) || about.st_uid != geteuid()) continue;
        if (support::find_process(pid).start != start) unlink(entry.path().c_str());
    }
}

} // namespace dcuda::transport
