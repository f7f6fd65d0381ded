// SPDX-License-Identifier: BSD-3-Clause
// Variables of the environment, dCUDA's own and those of launchers.
#include "bootstrap/job.hpp"
#include "device/settings.hpp"
#include "support/env.hpp"
#include "target.hpp"

#include "dcuda/error.hpp"

#include <cstdlib>
#include <string>

namespace dcuda::fuzz {

// The input: lines, of which the first character chooses the variable.
void environment(std::string_view input) {
    constexpr const char* names[] = {"DCUDA_LAUNCHER",
                                     "DCUDA_PROCESS_INDEX",
                                     "DCUDA_PROCESS_COUNT",
                                     "DCUDA_LOCAL_INDEX",
                                     "DCUDA_LOCAL_COUNT",
                                     "DCUDA_JOB",
                                     "DCUDA_RENDEZVOUS",
                                     "DCUDA_LISTEN_FD",
                                     "OMPI_COMM_WORLD_RANK",
                                     "OMPI_COMM_WORLD_SIZE",
                                     "OMPI_COMM_WORLD_LOCAL_RANK",
                                     "OMPI_COMM_WORLD_LOCAL_SIZE",
                                     "PMIX_NAMESPACE",
                                     "RANK",
                                     "WORLD_SIZE",
                                     "LOCAL_RANK",
                                     "LOCAL_WORLD_SIZE",
                                     "MASTER_ADDR",
                                     "MASTER_PORT",
                                     "TORCHELASTIC_RUN_ID",
                                     "SLURM_PROCID",
                                     "SLURM_STEP_NUM_TASKS",
                                     "SLURM_LOCALID",
                                     "SLURM_NODEID",
                                     "SLURM_STEP_TASKS_PER_NODE",
                                     "SLURM_JOB_ID",
                                     "SLURM_STEP_ID",
                                     "PMI_RANK",
                                     "PMI_SIZE",
                                     "MPI_LOCALRANKID",
                                     "MPI_LOCALNRANKS",
                                     "DCUDA_RANKS_PER_DEVICE",
                                     "DCUDA_TAGS",
                                     "DCUDA_MATCH_SOURCES",
                                     "DCUDA_MAX_WINDOWS",
                                     "DCUDA_WINDOWS_MAY_FAIL",
                                     "DCUDA_WAIT_TIMEOUT",
                                     "DCUDA_WATCHDOG_INTERVAL",
                                     "DCUDA_ABORT_GRACE",
                                     "DCUDA_TOP",
                                     "DCUDA_DISABLE_PEER",
                                     "DCUDA_TRANSPORT",
                                     "DCUDA_NETWORK_RING_BYTES",
                                     "DCUDA_NETWORK_INLINE_BYTES",
                                     "DCUDA_MAILBOX_PACKETS",
                                     "DCUDA_MAILBOX_QUEUES",
                                     "DCUDA_SMALL_PUT_BYTES",
                                     "DCUDA_LEADER_MEMBERS",
                                     "DCUDA_BARRIER_ROW",
                                     "DCUDA_TRACE",
                                     "DCUDA_TRACE_EVENTS",
                                     "DCUDA_STATS",
                                     "DCUDA_CHECK",
                                     "DCUDA_CHECK_SEED",
                                     "DCUDA_ENERGY",
                                     "DCUDA_COUNTER_START",
                                     "DCUDA_CONNECT_TIMEOUT"};
    constexpr std::size_t count = std::size(names);
    for (const char* name : names) unsetenv(name);
    while (!input.empty()) {
        const std::string line(input.substr(0, input.find('\n')));
        input.remove_prefix(std::min(line.size() + 1, input.size()));
        if (!line.empty()) setenv(names[static_cast<unsigned char>(line[0] - '0') % count], line.c_str() + 1, 1);
    }
    try {
        const bootstrap::job found = bootstrap::detect_job();
        const bool is_one = found.index >= 0 && found.index < found.count && found.local_index >= 0 &&
                            found.local_index < found.local_count && found.local_count <= found.count;
        if (!is_one || found.key.empty()) std::abort();
    } catch (const error&) {
    }
    try {
        resolve_settings({}, nullptr, nullptr);
        support::env_seconds("DCUDA_CONNECT_TIMEOUT");
    } catch (const error&) {
    }
}

} // namespace dcuda::fuzz
