// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/ways.hpp"

#include <algorithm>
#include <stdexcept>

namespace benchmark {

namespace {

std::byte* allocate_messages(message_memory where, std::size_t bytes) {
    void* memory = nullptr;
    if (where == message_memory::host) {
        common::check(cudaHostAlloc(&memory, bytes, cudaHostAllocMapped), "no pinned memory for messages");
        std::fill_n(static_cast<std::byte*>(memory), bytes, std::byte{0});
    } else {
        common::check(cudaMalloc(&memory, bytes), "no device memory for messages");
        common::check(cudaMemset(memory, 0, bytes), "cannot clear memory");
        common::check(cudaDeviceSynchronize(), "cannot clear memory");
    }
    return static_cast<std::byte*>(memory);
}

} // namespace

std::vector<way> comparison::ways() const {
    std::vector<way> wanted;
    for (const way& one : all_ways)
        if (std::find(chosen.ways.begin(), chosen.ways.end(), one.name) != chosen.ways.end()) wanted.push_back(one);
    return wanted;
}

void line::release::operator()(std::byte* area) const {
    if (memory == message_memory::host)
        cudaFreeHost(area);
    else
        cudaFree(area);
}

line::line(comparison& of, const way& chosen, std::size_t bytes, const std::vector<common::route>& routes)
    : way_(chosen), memory_(allocate_messages(chosen.memory, bytes), release{chosen.memory}) {
    const common::carrier_setting setting{of.all, memory(), bytes, routes, &of.runtime, of.chosen.piece_bytes};
    std::string reason;
    try {
        carrier_ = common::carriers::make(chosen.carrier, setting);
    } catch (const std::runtime_error& missing) {
        reason = missing.what();
    }
    for (const std::string& each : of.all.gather_text(reason, "reasons"))
        if (!each.empty()) throw no_way(each);
}

std::string line::library() const {
    return std::string(way_.name).starts_with("dcuda") ? std::string() : carrier_->name();
}

} // namespace benchmark
