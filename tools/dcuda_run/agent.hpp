// SPDX-License-Identifier: BSD-3-Clause
// What dcuda-run runs on the other hosts.
#pragma once

namespace launch {

// Takes a share of a job from its standard input and runs it; reports to its standard output. Ends when that is done,
// or with all its processes when the other side is gone.
int run_agent();

} // namespace launch
