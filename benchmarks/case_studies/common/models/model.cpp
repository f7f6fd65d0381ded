// SPDX-License-Identifier: BSD-3-Clause
#include "common/models/model.hpp"

#include <filesystem>
#include <string_view>
#include <system_error>

#include <unistd.h>

#include <fmt/format.h>

#include "dcuda/config.hpp"

namespace common {

namespace {

// The library that a model or carrier is built with, if not everywhere, and how to get it.
struct origin {
    std::string library;
    std::string cure;
};
origin origin_of(const std::string& name) {
    const auto pip = [](const char* library, const char* folder) {
        return fmt::format("{0} was not found when it was configured. pip install nvidia-{1}-cu13, or set {2} to a "
                           "folder with its include/ and lib/, and configure again",
                           folder, library, folder);
    };
    if (!DCUDA_BACKEND_CUDA && name != "host" && name != "stream" && name != "fused" && !name.starts_with("mpi") &&
        name != "plain")
        return {"", "it runs on GPUs only (cmake --preset cuda)"};
    if (name.starts_with("mpi"))
        return {"mpi", "MPI was not found when it was configured. Install it (Debian: libopenmpi-dev) and configure "
                       "again"};
    if (name.starts_with("nccl")) return {"nccl", pip("nccl", "DCUDA_NCCL_DIR")};
    if (name == "nvshmem") return {"nvshmem", pip("nvshmem", "DCUDA_NVSHMEM_DIR")};
    return {"", "this program does not have it"};
}

} // namespace

std::string why_missing(const std::string& name) {
    return fmt::format("this build has no model {}: {}", name, origin_of(name).cure);
}

std::string value_of(std::string_view option, int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (word == option && i + 1 < argc) return argv[i + 1];
        if (word.starts_with(option) && word.substr(option.size()).starts_with('='))
            return std::string(word.substr(option.size() + 1));
    }
    return {};
}

void start_program_of_model(const std::string& name, int argc, char** argv, const char* option,
                            const std::string& otherwise) {
    const std::string asked = value_of(option, argc, argv);
    const std::string library = origin_of(asked.empty() ? otherwise : asked).library;
    if (library.empty()) return;
    std::error_code unknown;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", unknown);
    const std::filesystem::path other = self.parent_path() / fmt::format("{}_{}", name, library);
    if (self != other && std::filesystem::exists(other, unknown)) execv(other.c_str(), argv);
}

} // namespace common
