// SPDX-License-Identifier: BSD-3-Clause
// Jobs over several hosts: a launcher that is made for them runs the job, and dcuda-run only finds it and calls it.
#pragma once

#include "options.hpp"

#include <string>
#include <vector>

namespace launch {

enum class launcher_kind { openmpi, hydra, slurm };

// The command with which a launcher of this kind runs the job. `variables`: names of those that all processes shall
// get.
std::vector<std::string> command_line(launcher_kind kind, const std::string& program, const options& job,
                                      const std::vector<std::string>& variables);

// Becomes the launcher, or only prints its command (options::dry_run). Throws start_error if there is none.
int call_launcher(const options& job);

} // namespace launch
