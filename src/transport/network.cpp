// SPDX-License-Identifier: BSD-3-Clause
#include "transport/network.hpp"

#include "support/check.hpp"
#include "transport/shm.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace dcuda::transport {

namespace {

std::vector<std::string> split(const std::string& list) {
    std::vector<std::string> parts;
    for (std::size_t begin = 0; begin < list.size();) {
        const std::size_t end = std::min(list.find(':', begin), list.size());
        if (end > begin) parts.push_back(list.substr(begin, end - begin));
        begin = end + 1;
    }
    return parts;
}

// The folders of this program's RUNPATH, in which dCUDA's modules are in one that is called so: that of the
// installation, or of the build, that it was linked with. Nothing else is known here of either.
std::vector<std::string> linked_folders() {
    Dl_info code{};
    void* object = nullptr; // a shared library, if we are a part of one
    if (dladdr(reinterpret_cast<const void*>(&split), &code) != 0)
        object = dlopen(code.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (object == nullptr) object = dlopen(nullptr, RTLD_LAZY);
    Dl_serinfo size{};
    if (object == nullptr || dlinfo(object, RTLD_DI_SERINFOSIZE, &size) != 0) return {};
    const auto storage = std::make_unique<std::max_align_t[]>(size.dls_size / sizeof(std::max_align_t) + 1);
    auto* const paths = reinterpret_cast<Dl_serinfo*>(storage.get());
    *paths = size;
    if (dlinfo(object, RTLD_DI_SERINFO, paths) != 0) return {};
    std::vector<std::string> folders;
    const Dl_serpath* const first = paths->dls_serpath;
    for (unsigned i = 0; i < paths->dls_cnt; ++i)
        if (std::string_view(first[i].dls_name).ends_with("/dcuda")) folders.emplace_back(first[i].dls_name);
    return folders;
}

// Whether other users can put a file of their own in the place of this one: a folder on the way to it is open to all.
// In those where all may make files but only the owner may remove them, such as /tmp, what is ours or root's is safe.
bool is_open_to_others(const std::string& path) {
    const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr), &std::free);
    struct stat folder {};
    if (real == nullptr || stat("/", &folder) != 0) return true;
    const std::string whole = real.get();
    for (std::size_t end = 0; end != whole.size();) {
        end = std::min(whole.find('/', end + 1), whole.size());
        struct stat part {};
        if (stat(whole.substr(0, end).c_str(), &part) != 0) return true;
        const bool is_kept = (folder.st_mode & S_ISVTX) != 0 && (part.st_uid == 0 || part.st_uid == geteuid());
        if ((folder.st_mode & S_IWOTH) != 0 && !is_kept) return true;
        folder = part;
    }
    return (folder.st_mode & S_IWOTH) != 0;
}

struct search {
    std::string file;    // of the module; empty: there is none
    std::string folders; // where it was looked for, and why it was not taken from there
};

search find_module(const std::string& transport) {
    search result;
    const auto take = [&](const std::string& folder, bool is_given) {
        result.folders += (result.folders.empty() ? "" : ", ") + folder;
        const std::string file = folder + "/libdcuda_" + transport + ".so";
        if (access(file.c_str(), R_OK) != 0) {
            if (errno != ENOENT) result.folders += fmt::format(" ({})", std::strerror(errno));
            return false;
        }
        // Where the program itself lies open, its modules may, too.
        if (!is_given && is_open_to_others(file) && !is_open_to_others("/proc/self/exe")) {
            result.folders += " (it is not taken from there, because other users may write there)";
            return false;
        }
        result.file = file;
        return true;
    };
    // Not where the user runs this program with more rights than his own.
    const char* const given = secure_getenv("DCUDA_TRANSPORT_PATH");
    for (const std::string& folder : split(given != nullptr ? given : ""))
        if (take(folder, true)) return result;
    for (const std::string& folder : linked_folders())
        if (take(folder, false)) return result;
    return result;
}

} // namespace

bool has_network(const std::string& transport) { return transport == "shm" || !find_module(transport).file.empty(); }

std::unique_ptr<network> open_network(const std::string& transport, const network_request& request) {
    if (transport == "shm") return open_shm(request);
    const search found = find_module(transport);
    support::require(!found.file.empty(), error_code::no_path,
                     "there is no transport {0} here (libdcuda_{0}.so in {1}): build dCUDA where the library that it "
                     "needs is installed, or "
                     "name the folder in DCUDA_TRANSPORT_PATH",
                     transport,
                     found.folders.empty() ? "no folder: the program was linked without a RUNPATH to one"
                                           : found.folders);
    // Libraries of PSM hardware come with libfabric, there or not, and would write a file for every signal.
    setenv("IPATH_NO_BACKTRACE", "1", 0);
    setenv("HFI_NO_BACKTRACE", "1", 0);
    // Never closed: network libraries leave threads and handlers behind.
    void* const module = dlopen(found.file.c_str(), RTLD_NOW | RTLD_LOCAL);
    support::require(module != nullptr, error_code::no_path, "cannot load the transport {}: {}", transport, dlerror());
    const auto version = reinterpret_cast<network_version_function*>(dlsym(module, "dcuda_network_version"));
    const auto open = reinterpret_cast<open_network_function*>(dlsym(module, "dcuda_open_network"));
    support::require(version != nullptr && open != nullptr, error_code::no_path, "{} is no transport of dCUDA",
                     found.file);
    support::require(std::string_view(version()) == DCUDA_VERSION_STRING, error_code::no_path,
                     "{} belongs to dCUDA {}, this program to {}", found.file, version(), DCUDA_VERSION_STRING);
    return std::unique_ptr<network>(open(request));
}

} // namespace dcuda::transport
