// SPDX-License-Identifier: BSD-3-Clause
// Sentences about what ranks did wrong and what they wait for.
#pragma once

#include "dcuda/detail/protocol/protocol.hpp"
#include "dcuda/error.hpp"

#include <string>
#include <vector>

namespace dcuda {

// What a fault command says.
error describe_fault(const detail::command& fault, std::uint32_t first_rank, std::uint32_t ranks_per_device);

// What these ranks of the system wait for, from `first_rank` on, and what that comes down to: lines, each after a line
// break (hang_report.hpp).
std::string describe_waits(const std::vector<detail::wait_record>& by_rank, std::uint32_t ranks_per_device,
                           std::uint32_t first_rank, std::uint32_t world_size);

// Who waits for the ranks of a process that does not answer, after what the other processes say of theirs (as written
// by support::wire_writer): sentences, each after a blank. Empty, if that is nobody.
std::string describe_who_waits_for(int process, const std::vector<std::string>& waits_by_process);

} // namespace dcuda
