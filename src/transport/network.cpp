#include "transport/network.hpp"

#include "support/check.hpp"
#include "support/env.hpp"
#include "transport/shm.hpp"

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <vector>

namespace dcuda::transport {

namespace {

// The build sets both: where modules are in its own tree and where they are installed.
#ifndef DCUDA_MODULE_DIRS
#define DCUDA_MODULE_DIRS ""
#endif

std::vector<std::string> module_folders() {
    std::string list = DCUDA_MODULE_DIRS;
    if (const auto given = support::env_string("DCUDA_TRANSPORT_PATH")) list = *given + ":" + list;
    std::vector<std::string> folders;
    for (std::size_t begin = 0; begin < list.size();) {
        const std::size_t end = std::min(list.find(':', begin), list.size());
        if (end > begin) folders.push_back(list.substr(begin, end - begin));
        begin = end + 1;
    }
    return folders;
}

} // namespace

bool has_network(const std::string& transport) {
    if (transport == "shm") return true;
    for (const std::string& folder : module_folders())
        if (std::filesystem::exists(folder + "/libdcuda_" + transport + ".so")) return true;
    return false;
}

std::unique_ptr<network> open_network(const std::string& transport, const network_request& request) {
    if (transport == "shm") return open_shm(request);
    const std::string file = "libdcuda_" + transport + ".so";
    std::string searched;
    for (const std::string& folder : module_folders()) {
        const std::string path = folder + "/" + file;
        searched += (searched.empty() ? "" : ", ") + folder;
        if (!std::filesystem::exists(path)) continue;
        // Libraries of PSM hardware come with libfabric, there or not, and would write a file for every signal.
        setenv("IPATH_NO_BACKTRACE", "1", 0);
        setenv("HFI_NO_BACKTRACE", "1", 0);
        // Never closed: network libraries leave threads and handlers behind.
        void* const module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        support::require(module != nullptr, error_code::no_path, "cannot load the transport {}: {}", transport,
                         dlerror());
        const auto version = reinterpret_cast<network_version_function*>(dlsym(module, "dcuda_network_version"));
        const auto open = reinterpret_cast<open_network_function*>(dlsym(module, "dcuda_open_network"));
        support::require(version != nullptr && open != nullptr, error_code::no_path, "{} is no transport of dCUDA",
                         path);
        support::require(std::string_view(version()) == DCUDA_VERSION_STRING, error_code::no_path,
                         "{} belongs to dCUDA {}, this program to {}", path, version(), DCUDA_VERSION_STRING);
        return std::unique_ptr<network>(open(request));
    }
    support::fail(
        error_code::no_path,
        "there is no transport {} here ({} in {}): build dCUDA where the library that it needs is installed, or "
        "name the folder in DCUDA_TRANSPORT_PATH",
        transport, file, searched.empty() ? "no folder" : searched);
}

} // namespace dcuda::transport
