// SPDX-License-Identifier: BSD-3-Clause
#include "energy/energy_meter.hpp"

#include "dcuda/detail/protocol/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <type_traits>

namespace dcuda {

namespace {

constexpr std::chrono::seconds read_interval{10};
constexpr std::chrono::milliseconds shortest_sample_interval{20};
constexpr std::size_t most_samples = 65536;

// The number in a file of one, or why there is none.
std::optional<std::uint64_t> read_number(const std::string& path, std::string& problem) {
    errno = 0;
    std::ifstream file(path);
    std::uint64_t number = 0;
    if (file >> number) return number;
    const int why = errno;
    problem = fmt::format("{}: {}", path, why != 0 ? std::strerror(why) : "no number is in it");
    if (why == EACCES || why == EPERM) problem += "; root may read it, or everybody after chmod a+r (as root)";
    return std::nullopt;
}

} // namespace

// One device, as NVIDIA's management library has it. Its functions return 0 for success.
class nvml {
public:
    // What goes wrong is in problem(); then nothing else may be called.
    nvml(const char* library, const std::string& bus_id) {
        library_.reset(dlopen(library, RTLD_NOW | RTLD_LOCAL));
        if (library_ == nullptr) {
            problem_ = fmt::format("NVML cannot be loaded: {}", dlerror());
            return;
        }
        const bool complete = find(init_, "nvmlInit_v2") && find(shutdown_, "nvmlShutdown") &&
                              find(by_bus_id_, "nvmlDeviceGetHandleByPciBusId_v2") &&
                              find(energy_, "nvmlDeviceGetTotalEnergyConsumption") &&
                              find(power_, "nvmlDeviceGetPowerUsage") && find(error_text_, "nvmlErrorString");
        if (!complete) return;
        if (!succeeds(init_(), "NVML does not start")) return;
        is_open_ = true;
        succeeds(by_bus_id_(bus_id.c_str(), &device_), "NVML does not know the device " + bus_id);
    }
    ~nvml() {
        if (is_open_) shutdown_();
    }
    nvml(const nvml&) = delete;
    nvml& operator=(const nvml&) = delete;

    const std::string& problem() const { return problem_; }

    // Since the driver was loaded.
    std::optional<std::uint64_t> energy_mj(std::string& problem) const {
        unsigned long long value = 0;
        if (const int result = energy_(device_, &value); result != 0) {
            problem = fmt::format("NVML has no energy counter of this device (Volta and later have one): {}",
                                  error_text_(result));
            return std::nullopt;
        }
        return value;
    }

    std::optional<double> watts() const {
        unsigned milliwatts = 0;
        if (power_(device_, &milliwatts) != 0) return std::nullopt;
        return 1e-3 * milliwatts;
    }

private:
    template <class Function>
    bool find(Function& function, const char* name) {
        function = reinterpret_cast<Function>(dlsym(library_.get(), name));
        if (function == nullptr) problem_ = fmt::format("this NVML has no {}: its driver is too old", name);
        return function != nullptr;
    }

    bool succeeds(int result, const std::string& subject) {
        if (result != 0) problem_ = fmt::format("{}: {}", subject, error_text_(result));
        return result == 0;
    }

    struct closer {
        void operator()(void* library) const { dlclose(library); }
    };
    std::unique_ptr<void, closer> library_;
    int (*init_)() = nullptr;
    int (*shutdown_)() = nullptr;
    int (*by_bus_id_)(const char*, void**) = nullptr;
    int (*energy_)(void*, unsigned long long*) = nullptr;
    int (*power_)(void*, unsigned*) = nullptr;
    const char* (*error_text_)(int) = nullptr;
    void* device_ = nullptr;
    bool is_open_ = false;
    std::string problem_;
};

energy_meter::energy_meter(const std::string& bus_id, const energy_sources& from) {
    if (bus_id.empty()) {
        device_problem_ = "the device is this process, whose energy is part of the processors'";
    } else {
        nvml_ = std::make_unique<nvml>(from.nvml.c_str(), bus_id);
        device_problem_ = nvml_->problem();
        if (!device_problem_.empty()) nvml_.reset();
    }
    // Packages are intel-rapl:N, also on AMD's processors; intel-rapl:N:M are parts of them.
    std::error_code missing;
    for (const auto& entry : std::filesystem::directory_iterator(from.powercap, missing)) {
        const std::string folder = entry.path().filename();
        if (!folder.starts_with("intel-rapl:") || std::count(folder.begin(), folder.end(), ':') != 1) continue;
        std::string name;
        std::getline(std::ifstream(entry.path() / "name"), name);
        if (!name.starts_with("package")) continue; // psys is the whole machine, packages included
        std::string problem;
        const auto range = read_number(entry.path() / "max_energy_range_uj", problem);
        packages_.push_back({entry.path(), range.value_or(UINT64_MAX), 0});
    }
    if (packages_.empty())
        no_packages_ = fmt::format("{} has no processor packages (RAPL): the processor, or a virtual machine, does not "
                                   "show them, or the kernel module intel_rapl_msr is not loaded",
                                   from.powercap);
}

energy_meter::~energy_meter() = default;

void energy_meter::start(power wanted) {
    if (nvml_) {
        device_problem_.clear();
        device_start_mj_ = nvml_->energy_mj(device_problem_);
    }
    cpu_problem_ = no_packages_;
    read_packages();
    cpu_joules_ = 0;
    samples_.clear();
    sample_interval_ = shortest_sample_interval;
    next_sample_ = clock::time_point::max();
    if (wanted == power::sampled && nvml_) sample_power(clock::now());
}

void energy_meter::poll() {
    const auto now = clock::now();
    if (now >= next_read_) read_packages();
    if (now >= next_sample_) sample_power(now);
}

void energy_meter::sample_power(clock::time_point now) {
    next_sample_ = now + sample_interval_;
    if (const auto watts = nvml_->watts()) samples_.push_back({detail::clock_ns(), *watts});
    if (samples_.size() < most_samples) return;
    // Every second one stays.
    for (std::size_t i = 0; 2 * i < samples_.size(); ++i) samples_[i] = samples_[2 * i];
    samples_.resize(samples_.size() / 2);
    sample_interval_ *= 2;
}

void energy_meter::read_packages() {
    next_read_ = clock::now() + read_interval;
    for (package& each : packages_) {
        const auto now = read_number(each.folder + "/energy_uj", cpu_problem_);
        if (!now) return;
        const std::uint64_t wrapped = *now < each.last_uj ? each.range_uj : 0;
        cpu_joules_ += 1e-6 * static_cast<double>(*now + wrapped - each.last_uj);
        each.last_uj = *now;
    }
}

run_energy energy_meter::stop() {
    run_energy result;
    if (nvml_) {
        const auto end = nvml_->energy_mj(device_problem_);
        if (end && device_start_mj_) result.device = 1e-3 * static_cast<double>(*end - *device_start_mj_);
    }
    result.device_problem = device_problem_;
    read_packages();
    result.cpu_problem = cpu_problem_;
    if (cpu_problem_.empty()) result.cpu = cpu_joules_;
    return result;
}

} // namespace dcuda
