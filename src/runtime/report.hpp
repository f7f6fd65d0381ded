// Sentences about what ranks did wrong and what they wait for.
#pragma once

#include "dcuda/detail/protocol.hpp"
#include "dcuda/error.hpp"

#include <string>
#include <vector>

namespace dcuda {

// "rank 17 (process 2, block 1)"
std::string name_rank(std::uint32_t world_rank, std::uint32_t ranks_per_device);

// What a fault command says.
error describe_fault(const detail::command& fault, std::uint32_t first_rank, std::uint32_t ranks_per_device);

// The waits of all ranks of the system, or of those from `first_rank` on, a line per kind of wait: what a deadlock
// looks like.
std::string describe_waits(const std::vector<detail::wait_record>& by_rank, std::uint32_t ranks_per_device,
                           std::uint32_t first_rank = 0);

} // namespace dcuda
