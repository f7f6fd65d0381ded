// SPDX-License-Identifier: BSD-3-Clause
// The entry point of libFuzzer: DCUDA_FUZZ_TARGET names what is fuzzed.
#include "target.hpp"

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace {

using namespace dcuda::fuzz;

constexpr std::pair<std::string_view, target*> targets[] = {
    {"matrix_market", matrix_market},
    {"labels", labels},
    {"pgm", pgm},
    {"host_list", host_list},
    {"frames", frames},
    {"parts", parts},
    {"records", records},
    {"authentication", authentication},
    {"server_clients", server_clients},
    {"snapshots", snapshots},
    {"launcher_store", launcher_store},
    {"fragments", fragments},
    {"port_arrivals", port_arrivals},
    {"environment", environment},
};

target* chosen = nullptr;

} // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
    std::signal(SIGPIPE, SIG_IGN);
    const char* const name = std::getenv("DCUDA_FUZZ_TARGET");
    for (const auto& [known, function] : targets)
        if (name != nullptr && name == known) chosen = function;
    if (chosen != nullptr) return 0;
    // Also how scripts learn what there is.
    for (const auto& each : targets) std::printf("%.*s\n", static_cast<int>(each.first.size()), each.first.data());
    std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    chosen({reinterpret_cast<const char*>(data), size});
    return 0;
}
