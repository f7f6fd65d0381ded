// SPDX-License-Identifier: BSD-3-Clause
// The index of this process among the processes of its job, read from what the launcher left in the environment.
#pragma once

#include <string>

namespace dcuda::bootstrap {

struct job {
    int index = 0;       // of this process, 0 to count - 1
    int count = 1;       // processes of the job
    int local_index = 0; // the same, among the processes on this host
    int local_count = 1;
    std::string key;      // equal for all processes of one job; differs between concurrent jobs of one host
    std::string launcher; // "dcuda-run", "openmpi", "torchrun", "slurm", "pmi", or "none" for a process on its own

    // For jobs over several hosts: where process 0 listens, as "host:port", and what only this job's processes know.
    // Both are empty if the launcher has neither; see rendezvous.hpp.
    std::string rendezvous{};
    std::string secret{};
    int listen_fd = -1; // of process 0: a socket that listens there already; the first control plane takes it

    bool is_on_one_host() const noexcept { return local_count == count; }
};

// Recognises dcuda-run, Open MPI, torchrun, srun, MPICH and other PMI launchers, in this order, or else a process that
// is alone. DCUDA_LAUNCHER=none|dcuda-run|openmpi|torchrun|slurm|pmi forces one. Throws error(invalid_argument) for a
// malformed variable and error(bootstrap_failure) for variables that are missing or contradict each other.
// DCUDA_RENDEZVOUS and DCUDA_JOB are read under every launcher, DCUDA_LISTEN_FD under dcuda-run.
job detect_job();

} // namespace dcuda::bootstrap
