// SPDX-License-Identifier: BSD-3-Clause
// Whether network cards of this machine can read and write the memory of its GPUs (GPUDirect RDMA), and what is
// missing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace dcuda::gpudirect {

// A device on the PCI bus, as /sys describes it.
struct pci_device {
    std::string name;                     // "0000:3b:00.0", with the card's name if it has one
    std::vector<std::string> way;         // from the root complex, "pci0000:3a", over bridges to the device
    std::filesystem::path folder;         // of the device itself
    std::optional<double> link_gigabytes; // a second, one way, when it works; nothing: /sys does not say
    bool has_all_lanes = true;            // of the link
    std::string iommu;                    // "identity", "DMA", ...; empty: none
};

// A port of a network card.
struct network_port {
    pci_device card;
    std::string rate; // "400 Gb/sec (4X NDR)"; empty: no port is active
    std::optional<double> gigabytes;
};

// Where the ways of two devices part.
enum class nearness { one_switch, one_root_port, one_root_complex, apart };
const char* to_string(nearness near);
nearness nearness_of(const pci_device& a, const pci_device& b);

// Access control of a bridge: whether it sends what goes from device to device up to the root complex.
enum class redirection { none, some, unreadable };
// From a bridge's configuration space, which only root reads whole.
redirection redirection_of(const std::string& configuration);

// Bytes a second that a link carries one way: "16.0 GT/s PCIe" and a width.
std::optional<double> gigabytes_of_link(const std::string& speed, const std::string& width);
// The same of "400 Gb/sec (4X NDR)".
std::optional<double> gigabytes_of_port(const std::string& rate);

std::vector<pci_device> find_gpus(const std::filesystem::path& root);
std::vector<network_port> find_ports(const std::filesystem::path& root);

// Prints what there is under `root`, "/" or where a host's /sys and /proc are mounted, and what is missing. Whether
// some card can reach some GPU.
bool report(const std::filesystem::path& root);

} // namespace dcuda::gpudirect
