#include "models/model.hpp"

#include <filesystem>
#include <map>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include <unistd.h>

#include <fmt/format.h>

namespace stencil {

namespace {

std::map<std::string, model_maker>& models_here() {
    static std::map<std::string, model_maker> models; // made by the first who registers
    return models;
}

// What a model is built with, if not everywhere: the program that has it, and how to get it.
struct origin {
    std::string program;
    std::string cure;
};
origin origin_of(const std::string& name) {
    const auto pip = [](const char* library, const char* folder) {
        return fmt::format("{0} was not found when it was configured. pip install nvidia-{1}-cu13, or set {2} to a "
                           "folder with its include/ and lib/, and configure again",
                           folder, library, folder);
    };
    if (!DCUDA_BACKEND_CUDA && name != "host" && name != "mpi" && name != "plain")
        return {"", "it runs on GPUs only (cmake --preset cuda)"};
    if (name == "mpi")
        return {"stencil_mpi", "MPI was not found when it was configured. Install it (Debian: libopenmpi-dev) and "
                               "configure again"};
    if (name.starts_with("nccl")) return {"stencil_nccl", pip("nccl", "DCUDA_NCCL_DIR")};
    if (name == "nvshmem") return {"stencil_nvshmem", pip("nvshmem", "DCUDA_NVSHMEM_DIR")};
    return {};
}

// The value of the option, if it is there.
std::string value_of(std::string_view option, int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (word == option && i + 1 < argc) return argv[i + 1];
        if (word.starts_with(option) && word.substr(option.size()).starts_with('='))
            return std::string(word.substr(option.size() + 1));
    }
    return {};
}

} // namespace

registered_model::registered_model(const char* name, model_maker make) { models_here()[name] = make; }

std::unique_ptr<model> make_model(const std::string& name, const setting& with) {
    const auto found = models_here().find(name);
    if (found == models_here().end())
        throw std::runtime_error(fmt::format("this build has no model {}: {}", name, origin_of(name).cure));
    return found->second(with);
}

void start_program_of_model(int argc, char** argv) {
    const std::string name = value_of("--model", argc, argv);
    const std::string program = origin_of(name).program;
    if (program.empty() || models_here().contains(name)) return;
    std::error_code unknown;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", unknown);
    const std::filesystem::path other = self.parent_path() / program;
    if (std::filesystem::exists(other, unknown)) execv(other.c_str(), argv);
}

} // namespace stencil
