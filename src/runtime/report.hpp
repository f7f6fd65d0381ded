// SPDX-License-Identifier: BSD-3-Clause
// Sentences about what ranks did wrong and what they wait for.
#pragma once

#include "dcuda/detail/protocol/protocol.hpp"
#include "dcuda/error.hpp"
#include "device/device_state.hpp"
#include "runtime/hang_report.hpp"

#include <string>
#include <vector>

namespace dcuda {

// As they are in this run.
inline rank_counts counts_of(const device_state& state) {
    return {static_cast<std::uint32_t>(state.ranks()), static_cast<std::uint32_t>(state.ranks_per_block())};
}

// What a fault command says.
error describe_fault(const detail::command& fault, std::uint32_t first_rank, rank_counts ranks,
                     const detail::tag_numbers& tags);

// What these ranks of the system wait for, from `first_rank` on, and what that comes down to: lines, each after a line
// break (hang_report.hpp).
std::string describe_waits(const std::vector<detail::wait_record>& by_rank, rank_counts ranks, std::uint32_t first_rank,
                           std::uint32_t world_size);

// Who waits for the ranks of a process that does not answer, after what the other processes say of theirs (as written
// by support::wire_writer): sentences, each after a blank. Empty, if that is nobody.
std::string describe_who_waits_for(int process, const std::vector<std::string>& waits_by_process);

} // namespace dcuda
