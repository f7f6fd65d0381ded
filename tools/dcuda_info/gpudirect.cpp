// SPDX-License-Identifier: BSD-3-Clause
#include "gpudirect.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>

namespace dcuda::gpudirect {

namespace {

namespace fs = std::filesystem;

// The whole file; empty if it cannot be opened or read, as some of /sys when a device sleeps.
std::string contents(const fs::path& file) {
    std::ostringstream all;
    all << std::ifstream(file, std::ios::binary).rdbuf();
    return all.str();
}
std::string first_line(const fs::path& file) {
    const std::string all = contents(file);
    return all.substr(0, all.find('\n'));
}

// What is in a folder, in order of names; nothing if there is no such folder.
std::vector<fs::path> entries(const fs::path& folder) {
    std::vector<fs::path> found;
    std::error_code unknown;
    for (fs::directory_iterator each(folder, unknown), none; !unknown && each != none; each.increment(unknown))
        found.push_back(each->path());
    std::sort(found.begin(), found.end());
    return found;
}

bool is_in(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Whether a part of a path is a root complex, "pci0000:3a".
bool is_root_complex(const std::string& part) {
    return part.starts_with("pci") && part.size() > 3 && is_in(part, ":") &&
           part.find_first_not_of("0123456789abcdef:", 3) == std::string::npos;
}

// A device that an entry of /sys leads to. Its way is empty if that is no PCI device, or has just gone.
pci_device describe(const fs::path& entry) {
    pci_device device;
    std::error_code unknown;
    device.folder = fs::canonical(entry, unknown);
    if (unknown) return device;
    device.name = device.folder.filename();
    for (const fs::path& part : device.folder)
        if (!device.way.empty() || is_root_complex(part)) device.way.push_back(part);
    const auto link = [&](const std::string& when) {
        return gigabytes_of_link(first_line(device.folder / (when + "_link_speed")),
                                 first_line(device.folder / (when + "_link_width")));
    };
    // A device that has nothing to do may have slowed its link down.
    device.link_gigabytes = link("max");
    if (!device.link_gigabytes) device.link_gigabytes = link("current");
    device.has_all_lanes =
        first_line(device.folder / "current_link_width") == first_line(device.folder / "max_link_width");
    device.iommu = first_line(device.folder / "iommu_group" / "type");
    return device;
}

std::string in_words(const std::optional<double>& gigabytes) {
    return gigabytes ? fmt::format("{:.1f} GB/s", *gigabytes) : "unknown bandwidth";
}

// What is known and what is missing; one line each.
class findings {
public:
    template <class... Args>
    void good(fmt::format_string<Args...> text, Args&&... args) {
        fmt::print("  ok       {}\n", fmt::format(text, std::forward<Args>(args)...));
    }
    template <class... Args>
    void missing(fmt::format_string<Args...> text, Args&&... args) {
        fmt::print("  missing  {}\n", fmt::format(text, std::forward<Args>(args)...));
        is_complete_ = false;
    }
    template <class... Args>
    void slow(fmt::format_string<Args...> text, Args&&... args) {
        fmt::print("  slow     {}\n", fmt::format(text, std::forward<Args>(args)...));
    }
    template <class... Args>
    void unknown(fmt::format_string<Args...> text, Args&&... args) {
        fmt::print("  unknown  {}\n", fmt::format(text, std::forward<Args>(args)...));
    }
    bool is_complete() const { return is_complete_; }

private:
    bool is_complete_ = true;
};

// How a driver of network cards gets at the memory of a GPU: a module, or the kernel's own way.
void report_drivers(const fs::path& root, findings& found) {
    const std::string driver = contents(root / "proc/driver/nvidia/version");
    const bool has_dma_buf = is_in(driver, "Open Kernel Module");
    if (driver.empty())
        found.missing(
            "NVIDIA's driver: there is no /proc/driver/nvidia/version. Install it, or mount the host's /proc");
    else
        found.good("NVIDIA's driver, {}", has_dma_buf ? "open kernel modules" : "closed kernel modules");
    const std::string modules = contents(root / "proc/modules");
    const bool has_module = is_in(modules, "nvidia_peermem ") || is_in(modules, "nv_peer_mem ");
    if (has_module) found.good("the module nvidia-peermem is loaded");
    if (has_dma_buf)
        found.good("the open kernel modules export memory by dma-buf (Linux 5.12 and rdma-core 34 or later use it)");
    if (!has_module && !has_dma_buf && !driver.empty())
        found.missing("a way for network cards to GPU memory: 'modprobe nvidia-peermem', or the driver's open kernel "
                      "modules for dma-buf");
}

// How many parts the ways of two devices have in common, from the root complex on.
std::size_t common_parts(const pci_device& a, const pci_device& b) {
    const auto end = std::mismatch(a.way.begin(), a.way.end(), b.way.begin(), b.way.end()).first;
    return static_cast<std::size_t>(end - a.way.begin());
}

// The bridges of each way below what both have: those that traffic between the two passes first.
std::vector<fs::path> bridges_between(const pci_device& gpu, const pci_device& card) {
    std::vector<fs::path> bridges;
    const std::size_t common = common_parts(gpu, card);
    for (const pci_device* const end : {&gpu, &card}) {
        fs::path folder = end->folder.parent_path();
        for (std::size_t left = end->way.size(); left > common + 1; --left, folder = folder.parent_path())
            if (left > 2) bridges.push_back(folder); // and no root complex
    }
    return bridges;
}

void report_pair(const pci_device& gpu, const network_port& port, findings& found) {
    const nearness near = nearness_of(gpu, port.card);
    std::optional<double> most = gpu.link_gigabytes;
    for (const auto& each : {port.card.link_gigabytes, port.gigabytes})
        if (each && (!most || *each < *most)) most = each;
    const std::string pair = fmt::format("GPU {} and {}", gpu.name, port.card.name);
    if (near != nearness::one_switch)
        return found.slow("{}: {}, at most {}, and less as the root complex forwards it", pair, to_string(near),
                          in_words(most));
    found.good("{}: {}, at most {}", pair, to_string(near), in_words(most));
    for (const fs::path& bridge : bridges_between(gpu, port.card)) {
        const redirection way = redirection_of(contents(bridge / "config"));
        if (way == redirection::some)
            found.slow("bridge {} sends what passes between them up to the root complex: switch off access control "
                       "(ACS) in the firmware, or by 'setpci -s {} ECAP_ACS+6.w=0'",
                       bridge.filename().string(), bridge.filename().string());
        if (way == redirection::unreadable)
            found.unknown("whether bridge {} sends traffic up to the root complex (ACS): only root reads that",
                          bridge.filename().string());
    }
}

} // namespace

const char* to_string(nearness near) {
    switch (near) {
    case nearness::one_switch:
        return "under one switch";
    case nearness::one_root_port:
        return "behind one root port";
    case nearness::one_root_complex:
        return "at one root complex";
    default:
        return "at different root complexes";
    }
}

nearness nearness_of(const pci_device& a, const pci_device& b) {
    switch (common_parts(a, b)) {
    case 0:
        return nearness::apart;
    case 1: // the root complex
        return nearness::one_root_complex;
    case 2: // and a port of it
        return nearness::one_root_port;
    default:
        return nearness::one_switch;
    }
}

// PCI Express Base Specification, 7.7.11: the extended capability 0x000D, with the control word six bytes behind its
// beginning, of which bits 2 and 3 redirect requests and completions. Who is not root reads 64 bytes; a bridge without
// extended capabilities has 256; one that sleeps answers with ones.
redirection redirection_of(const std::string& configuration) {
    const auto word = [&](std::size_t at) {
        return static_cast<std::uint32_t>(static_cast<unsigned char>(configuration[at])) |
               static_cast<std::uint32_t>(static_cast<unsigned char>(configuration[at + 1])) << 8;
    };
    constexpr std::size_t for_all = 0x40, extended = 0x100, whole = 0x1000;
    if (configuration.size() <= for_all || word(0) == 0xffff) return redirection::unreadable;
    std::size_t at = extended;
    for (int capabilities = 0; at >= extended && at + 8 <= std::min(configuration.size(), whole) && capabilities < 64;
         ++capabilities) {
        if (word(at) == 0x000d) return (word(at + 6) & 0x0c) != 0 ? redirection::some : redirection::none;
        at = word(at + 2) >> 4;
    }
    return redirection::none;
}

std::optional<double> gigabytes_of_link(const std::string& speed, const std::string& width) {
    double transfers = 0;
    int lanes = 0;
    if (std::sscanf(speed.c_str(), "%lf GT/s", &transfers) != 1 || std::sscanf(width.c_str(), "%d", &lanes) != 1 ||
        lanes < 1)
        return {};
    const double coding = transfers < 8 ? 0.8 : 128.0 / 130.0; // 8b/10b, then 128b/130b
    return transfers * coding * lanes / 8;
}

std::optional<double> gigabytes_of_port(const std::string& rate) {
    double gigabits = 0;
    if (std::sscanf(rate.c_str(), "%lf Gb/sec", &gigabits) != 1) return {};
    return gigabits / 8;
}

std::vector<pci_device> find_gpus(const fs::path& root) {
    std::vector<pci_device> gpus;
    for (const fs::path& entry : entries(root / "sys/bus/pci/devices")) {
        const std::string kind = first_line(entry / "class");
        if (first_line(entry / "vendor") == "0x10de" && kind.starts_with("0x03")) gpus.push_back(describe(entry));
    }
    std::erase_if(gpus, [](const pci_device& gpu) { return gpu.way.empty(); });
    return gpus;
}

std::vector<network_port> find_ports(const fs::path& root) {
    std::vector<network_port> found;
    for (const fs::path& entry : entries(root / "sys/class/infiniband")) {
        network_port port;
        port.card = describe(entry / "device");
        port.card.name = fmt::format("{} ({})", entry.filename().string(), port.card.name);
        for (const fs::path& each : entries(entry / "ports"))
            if (port.rate.empty() && is_in(first_line(each / "state"), "ACTIVE")) port.rate = first_line(each / "rate");
        port.gigabytes = gigabytes_of_port(port.rate);
        found.push_back(port);
    }
    return found;
}

bool report(const fs::path& root) {
    fmt::print("GPUDirect RDMA: network cards that read and write the memory of GPUs\n");
    findings found;
    report_drivers(root, found);
    const std::vector<pci_device> gpus = find_gpus(root);
    const std::vector<network_port> ports = find_ports(root);
    if (gpus.empty()) found.missing("a GPU: /sys/bus/pci/devices has none of NVIDIA's");
    for (const pci_device& gpu : gpus) {
        found.good("GPU {}, {} a direction over PCIe", gpu.name, in_words(gpu.link_gigabytes));
        if (!gpu.has_all_lanes) found.slow("GPU {} has not all lanes of its link: is it well in its slot?", gpu.name);
        if (!gpu.iommu.empty() && gpu.iommu != "identity")
            found.slow("the IOMMU translates what GPU {} reads and writes ({}): boot with iommu=pt", gpu.name,
                       gpu.iommu);
    }
    if (ports.empty()) found.missing("a network card for RDMA: /sys/class/infiniband has none (is its driver loaded?)");
    bool has_reach = false;
    for (const network_port& port : ports) {
        if (port.card.way.empty()) {
            found.unknown("card {} is no PCI device: it works in software", port.card.name);
            continue;
        }
        if (port.rate.empty()) {
            found.unknown("card {}: no port of it is active", port.card.name);
            continue;
        }
        has_reach = true;
        found.good("card {}, {}, {} a direction over PCIe", port.card.name, port.rate,
                   in_words(port.card.link_gigabytes));
        for (const pci_device& gpu : gpus) report_pair(gpu, port, found);
    }
    if (!has_reach && !ports.empty())
        found.missing("a PCI card with a port that is active: look at 'ibstat', the cable and the subnet manager");
    fmt::print("{}\n", found.is_complete()
                           ? "Nothing is missing. dCUDA's own transports send through the host's memory; MPI, NCCL and "
                             "NVSHMEM can use it."
                           : "GPUDirect RDMA does not work here.");
    return found.is_complete();
}

} // namespace dcuda::gpudirect
