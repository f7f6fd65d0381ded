// SPDX-License-Identifier: BSD-3-Clause
#include "common/machine.hpp"

#include <cstdlib>
#include <ctime>
#include <fstream>
#include <thread>

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dcuda/config.hpp"

namespace benchmark {

namespace {

std::string cuda_version(cudaError_t (*query)(int*)) {
    int version = 0;
    if (query(&version) != cudaSuccess || version == 0) return "none";
    return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// The first line of the file that begins with `key`, from where its value begins.
std::string value_in(const char* path, const std::string& key) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        if (line.compare(0, key.size(), key) != 0) continue;
        const auto at = line.find_first_not_of(" \t:", key.size());
        return at == line.npos ? "" : line.substr(at);
    }
    return "unknown";
}

nlohmann::ordered_json devices() {
    nlohmann::ordered_json names = nlohmann::ordered_json::array();
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) return names;
    for (int device = 0; device < count; ++device) {
        cudaDeviceProp properties{};
        if (cudaGetDeviceProperties(&properties, device) == cudaSuccess) names.push_back(properties.name);
    }
    return names;
}

std::string now() {
    const std::time_t seconds = std::time(nullptr);
    std::tm utc{};
    gmtime_r(&seconds, &utc);
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return text;
}

std::string commit_or_environment(const std::string& commit) {
    if (!commit.empty()) return commit;
    const char* const from_environment = std::getenv("DCUDA_COMMIT");
    return from_environment != nullptr && *from_environment != '\0' ? from_environment : "unknown";
}

// NVML, which comes with the driver: nothing here depends on it.
class nvml {
public:
    nvml() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW)) {
        const auto init = find<int (*)()>("nvmlInit_v2");
        ready_ = init != nullptr && init() == 0;
    }
    ~nvml() {
        if (const auto shutdown = find<int (*)()>("nvmlShutdown"); ready_ && shutdown != nullptr) shutdown();
        if (library_ != nullptr) dlclose(library_);
    }
    nvml(const nvml&) = delete;
    nvml& operator=(const nvml&) = delete;

    int multiprocessor_clock_mhz(const char* bus_id) const {
        constexpr int multiprocessors = 1; // NVML_CLOCK_SM
        const auto find_device = find<int (*)(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
        const auto clock = find<int (*)(void*, int, unsigned*)>("nvmlDeviceGetClockInfo");
        void* device = nullptr;
        unsigned mhz = 0;
        const bool known = ready_ && find_device != nullptr && clock != nullptr && find_device(bus_id, &device) == 0 &&
                           clock(device, multiprocessors, &mhz) == 0;
        return known ? static_cast<int>(mhz) : 0;
    }

private:
    template <class Function>
    Function find(const char* name) const {
        return library_ != nullptr ? reinterpret_cast<Function>(dlsym(library_, name)) : nullptr;
    }

    void* library_;
    bool ready_ = false;
};

} // namespace

int clock_mhz() {
    if (!DCUDA_BACKEND_CUDA) return std::atoi(value_in("/proc/cpuinfo", "cpu MHz").c_str());
    int device = 0;
    char bus_id[32] = "";
    if (cudaGetDevice(&device) != cudaSuccess || cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, device) != cudaSuccess)
        return 0;
    return nvml().multiprocessor_clock_mhz(bus_id);
}

bool has_goals() {
    static const bool is_h200 = [] {
        int device = 0;
        cudaDeviceProp properties{};
        return DCUDA_BACKEND_CUDA && cudaGetDevice(&device) == cudaSuccess &&
               cudaGetDeviceProperties(&properties, device) == cudaSuccess &&
               std::string(properties.name).find("H200") != std::string::npos;
    }();
    return is_h200;
}

nlohmann::ordered_json describe_machine(const std::string& commit) {
    nlohmann::ordered_json machine = {
        {"date", now()},
        {"commit", commit_or_environment(commit)},
        {"dcuda", DCUDA_VERSION_STRING},
        {"backend", DCUDA_BACKEND_CUDA ? "cuda" : "cpu"},
        {"cpu", value_in("/proc/cpuinfo", "model name")},
        {"cores", std::thread::hardware_concurrency()},
    };
    if (DCUDA_BACKEND_CUDA) {
        machine["gpus"] = devices();
        int device = 0, multiprocessors = 0;
        if (cudaGetDevice(&device) == cudaSuccess &&
            cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device) == cudaSuccess)
            machine["multiprocessors"] = multiprocessors;
        machine["driver"] = value_in("/proc/driver/nvidia/version", "NVRM version");
        machine["cuda_driver"] = cuda_version(cudaDriverGetVersion);
        machine["cuda_runtime"] = cuda_version(cudaRuntimeGetVersion);
    }
    return machine;
}

std::string machine_in_words(const nlohmann::ordered_json& machine) {
    std::string text = fmt::format("{} backend, {} ({} cores)", machine["backend"].get<std::string>(),
                                   machine["cpu"].get<std::string>(), machine["cores"].get<unsigned>());
    if (machine.contains("gpus") && !machine["gpus"].empty())
        text = fmt::format("{} x {}, CUDA {}, {}", machine["gpus"].size(), machine["gpus"][0].get<std::string>(),
                           machine["cuda_runtime"].get<std::string>(), text);
    return fmt::format("{}, {}, commit {}", text, machine["date"].get<std::string>(),
                       machine["commit"].get<std::string>());
}

} // namespace benchmark
