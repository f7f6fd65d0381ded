// SPDX-License-Identifier: BSD-3-Clause
// Joules from a libnvidia-ml.so.1 and a folder of the processors' counters that are ours.
#include "energy/energy_meter.hpp"
#include "trace/trace_file.hpp"

#include <gtest/gtest.h>

#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <unistd.h>

namespace {

namespace fs = std::filesystem;
using dcuda::energy_meter;

constexpr const char* fake = DCUDA_FAKE_NVML;
constexpr const char* bus_id = "0000:3B:00.0";

// The fake library stays loaded, so that what is set counts for the meter's handle of it, too.
class device_counter {
public:
    device_counter() : library_(dlopen(fake, RTLD_NOW)) {
        if (library_ == nullptr) throw std::runtime_error(dlerror());
        set(0);
    }
    ~device_counter() { dlclose(library_); }
    void set(unsigned long long mj, unsigned mw = 0, int energy_result = 0, int init_result = 0) const {
        find<void(unsigned long long, unsigned, int, int)>("fake_nvml_set")(mj, mw, energy_result, init_result);
    }
    int opened() const { return find<int()>("fake_nvml_opened")(); }

private:
    template <class Function>
    Function* find(const char* name) const {
        return reinterpret_cast<Function*>(dlsym(library_, name));
    }
    void* library_;
};

class energy : public testing::Test {
protected:
    energy() : folder_(fs::temp_directory_path() / ("dcuda_energy_" + std::to_string(getpid()))) {
        fs::create_directories(folder_);
    }
    ~energy() override { fs::remove_all(folder_); }

    void add_zone(const std::string& zone, const std::string& name, std::uint64_t range_uj) const {
        fs::create_directories(folder_ / zone);
        std::ofstream(folder_ / zone / "name") << name << '\n';
        std::ofstream(folder_ / zone / "max_energy_range_uj") << range_uj << '\n';
        set(zone, 0);
    }
    void set(const std::string& zone, std::uint64_t uj) const {
        std::ofstream(folder_ / zone / "energy_uj") << uj << '\n';
    }

    energy_meter meter(const std::string& device = bus_id, const std::string& library = fake) const {
        return energy_meter(device, {library, folder_});
    }

    fs::path folder_;
    device_counter device_;
};

TEST_F(energy, of_the_device_between_start_and_stop) {
    energy_meter it = meter();
    device_.set(5'000'000);
    it.start();
    device_.set(5'123'456, 345'600);
    const dcuda::run_energy seen = it.stop();
    ASSERT_TRUE(seen.device);
    EXPECT_DOUBLE_EQ(*seen.device, 123.456);
    EXPECT_EQ(seen.device_problem, "");
    EXPECT_TRUE(it.power_samples().empty());
    // The next run counts from anew.
    it.start();
    device_.set(5'124'456);
    EXPECT_DOUBLE_EQ(it.stop().device.value(), 1.0);
}

TEST_F(energy, power_is_sampled_where_that_is_asked) {
    energy_meter it = meter();
    device_.set(0, 100'000);
    it.start(energy_meter::power::sampled);
    device_.set(0, 345'600);
    while (it.power_samples().size() < 3) it.poll();
    it.stop();
    const auto seen = it.power_samples();
    EXPECT_EQ(seen[0].watts, 100.0);
    EXPECT_EQ(seen[2].watts, 345.6);
    EXPECT_GE(seen[2].host_ns - seen[1].host_ns, 10'000'000u);
    it.start();
    EXPECT_TRUE(it.power_samples().empty());
}

TEST_F(energy, nvml_is_closed_again) {
    {
        const energy_meter it = meter();
        EXPECT_EQ(device_.opened(), 1);
    }
    EXPECT_EQ(device_.opened(), 0);
}

TEST_F(energy, why_that_of_the_device_is_missing) {
    const auto problem = [](energy_meter it) {
        it.start(energy_meter::power::sampled);
        const dcuda::run_energy seen = it.stop();
        EXPECT_FALSE(seen.device);
        EXPECT_TRUE(it.power_samples().empty());
        return seen.device_problem;
    };
    EXPECT_EQ(problem(meter("")), "the device is this process, whose energy is part of the processors'");
    EXPECT_EQ(problem(meter(bus_id, "libnonsuch.so.1")).find("NVML cannot be loaded: libnonsuch.so.1: "), 0u);
    EXPECT_EQ(problem(meter(bus_id, "libc.so.6")), "this NVML has no nvmlInit_v2: its driver is too old");
    EXPECT_EQ(problem(meter("0000:AF:00.0")), "NVML does not know the device 0000:AF:00.0: Not Found");
    device_.set(0, 0, 0, 999);
    EXPECT_EQ(problem(meter()), "NVML does not start: Unknown Error");
}

TEST_F(energy, a_counter_that_fails_in_between) {
    energy_meter it = meter();
    device_.set(1, 0, 3);
    it.start();
    device_.set(1000);
    const dcuda::run_energy seen = it.stop();
    EXPECT_FALSE(seen.device);
    EXPECT_EQ(seen.device_problem,
              "NVML has no energy counter of this device (Volta and later have one): Not Supported");
    it.start();
    device_.set(3000);
    EXPECT_DOUBLE_EQ(it.stop().device.value(), 2.0);
}

TEST_F(energy, of_all_packages_and_nothing_twice) {
    add_zone("intel-rapl:0", "package-0", 1'000'000'000);
    add_zone("intel-rapl:1", "package-1", 1'000'000'000);
    add_zone("intel-rapl:0:0", "core", 1'000'000'000);         // part of the package
    add_zone("intel-rapl:2", "psys", 1'000'000'000);           // the whole machine
    add_zone("intel-rapl-mmio:0", "package-0", 1'000'000'000); // the first one, by another way
    energy_meter it = meter("");
    set("intel-rapl:0", 5'000'000);
    it.start();
    for (const char* zone : {"intel-rapl:0:0", "intel-rapl:2", "intel-rapl-mmio:0"}) set(zone, 77'000'000);
    set("intel-rapl:0", 7'500'000);
    set("intel-rapl:1", 1'250'000);
    const dcuda::run_energy seen = it.stop();
    EXPECT_DOUBLE_EQ(seen.cpu.value(), 3.75);
    EXPECT_EQ(seen.cpu_problem, "");
}

TEST_F(energy, counters_that_wrap_around) {
    add_zone("intel-rapl:0", "package-0", 262'143'328'850);
    energy_meter it = meter("");
    set("intel-rapl:0", 262'143'000'000);
    it.start();
    set("intel-rapl:0", 1'000'000);
    EXPECT_NEAR(it.stop().cpu.value(), 1.32885, 1e-9);
}

TEST_F(energy, why_that_of_the_processors_is_missing) {
    const auto problem = [&] {
        energy_meter it = meter("");
        it.start();
        const dcuda::run_energy seen = it.stop();
        EXPECT_FALSE(seen.cpu);
        return seen.cpu_problem;
    };
    const std::string none = folder_.string() +
                             " has no processor packages (RAPL): the processor, or a virtual machine, does "
                             "not show them, or the kernel module intel_rapl_msr is not loaded";
    EXPECT_EQ(problem(), none);
    add_zone("intel-rapl:0", "package-0", 1000);
    std::ofstream(folder_ / "intel-rapl:0" / "energy_uj") << "nonsense";
    EXPECT_EQ(problem(), (folder_ / "intel-rapl:0/energy_uj: no number is in it").string());
    fs::remove(folder_ / "intel-rapl:0" / "energy_uj");
    EXPECT_EQ(problem(), (folder_ / "intel-rapl:0/energy_uj: No such file or directory").string());
    add_zone("intel-rapl:0", "package-0", 1000);
    fs::permissions(folder_ / "intel-rapl:0" / "energy_uj", fs::perms::none);
    if (geteuid() == 0 && seteuid(65534) != 0) return; // root may read everything
    EXPECT_EQ(problem(), (folder_ / "intel-rapl:0/energy_uj").string() +
                             ": Permission denied; root may read it, or everybody after chmod a+r (as root)");
    if (getuid() == 0) {
        ASSERT_EQ(seteuid(0), 0);
    }
    fs::remove_all(folder_);
    EXPECT_EQ(problem(), none);
}

TEST_F(energy, on_the_timeline) {
    dcuda::process_profile part{};
    part.energy.device = 3.5;
    part.energy.cpu_problem = "no counter";
    part.power = {{2'000'000, 345.6}, {22'000'500, 70}};
    const auto arrived = dcuda::process_profile::decode(part.encode());
    EXPECT_EQ(arrived.energy.device, 3.5);
    EXPECT_EQ(arrived.energy.cpu, std::nullopt);
    EXPECT_EQ(arrived.energy.cpu_problem, "no counter");
    const std::string path = folder_ / "trace.json";
    dcuda::trace_file(path, 1'000'000, {0}).append({arrived});
    std::ifstream file(path);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    for (const char* sample : {R"("ts":1000.000,"args":{"watts":345.6})", R"("ts":21000.500,"args":{"watts":70.0})"})
        EXPECT_NE(text.find(std::string(R"({"name":"power of the device","ph":"C","pid":0,"tid":0,)") + sample),
                  std::string::npos)
            << text;
}

} // namespace
