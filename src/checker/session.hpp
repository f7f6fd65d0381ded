// SPDX-License-Identifier: BSD-3-Clause
// The protocol checker as the runtime of a process has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checker/findings.hpp"
#include "device/host_window.hpp"

namespace dcuda::detail::check {

class session {
public:
    // `stop`: the first finding ends the run. `seed` chooses the schedule of the ranks and when puts arrive.
    session(bool stop, std::uint64_t seed, std::uint32_t process, std::uint32_t processes)
        : stop_(stop), seed_(seed), process_(process), processes_(processes) {}

    // How many bytes of memory all processes must map for a run.
    static std::size_t bytes(std::uint32_t ranks, const tag_numbers& tags) { return memory::bytes(ranks, tags); }

    // `shared` is mapped by all processes. Process 0 sets it to its state before a run; the others may use it only
    // after.
    // `windows` exist already.
    void begin_run(std::byte* shared, std::uint32_t ranks, std::uint32_t ranks_per_process, const tag_numbers& tags,
                   const std::vector<host_window>& windows);
    // Of process 0, when all ranks have ended: what was found and not said yet, line by line.
    std::string end_run();
    // What has ended the run.
    std::string cause() const { return state_->found.cause(); }
    // Of process 0: how much was checked.
    std::string summary() const;

    // --- For the ranks of this process, when they have the turn.

    struct run_state {
        explicit run_state(const memory& m) : shared(m), where(m), found(m, where), happened(m, found) {}
        memory shared;
        places where;
        findings found;
        model happened;
        std::map<std::uint32_t, std::uint32_t> windows; // by the program's id: their places in the table
        std::vector<window_entry> of_host;              // this process's part of the table's first windows
        std::uint64_t private_pages = 0;                // tracked, outside of device memory
        std::unordered_map<const void*, std::vector<std::uint32_t>>
            atomics; // clocks of words that kernels use atomically
    };
    run_state& run() { return *state_; }
    std::uint32_t process() const { return process_; }

private:
    bool stop_;
    std::uint64_t seed_;
    std::uint32_t process_, processes_, runs_ = 0, most_ranks_ = 0, findings_ = 0;
    std::uint64_t puts_ = 0, notifications_ = 0, loads_and_stores_ = 0;
    std::unique_ptr<run_state> state_;
};

// Set where user code is built for the checker: its loads and stores are visible.
extern bool sees_loads_and_stores;

} // namespace dcuda::detail::check
