// What ties a process to the launcher that started it.
#pragma once

#include "bootstrap/job.hpp"

namespace dcuda::bootstrap {

// Tells dcuda-run which process caused the end of the job, as this process knows it, before this one ends because of
// it. dcuda-run sees ends in any order, and names that process. Never throws; does nothing under other launchers.
void tell_cause(const job& who, int process);

} // namespace dcuda::bootstrap
