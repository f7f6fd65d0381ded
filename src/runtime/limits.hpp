// How many ranks of a kernel are co-resident on this process's device, and which resource says so.
#pragma once

#include "dcuda/host.hpp"

#include <string>

namespace dcuda {

struct rank_limit {
    int ranks;          // the largest number of co-resident blocks; 0: not even one fits
    std::string reason; // "16 per multiprocessor by threads (2048 / 128), 132 multiprocessors"
};

rank_limit find_rank_limit(const void* kernel, const launch_config& config);

// The number of ranks per device if the user asks for none, given the limit.
int default_ranks(const rank_limit& limit);

} // namespace dcuda
