// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/job.hpp"

#include "support/check.hpp"
#include "support/env.hpp"
#include "support/host.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <sstream>
#include <sys/types.h>
#include <unistd.h>

namespace dcuda::bootstrap {

namespace {

using support::env_integer;
using support::env_string;
using support::fail;
using support::require;

constexpr std::size_t max_key_bytes = 16 * 1024; // it travels in a hello
constexpr long max_processes = 32767;            // docs/design/scale.md: more than one control server can serve

bool has(const char* name) { return env_string(name).has_value(); }

// The first of these variables that is set; `launcher` expects one of them.
int needed(const char* launcher, std::initializer_list<const char*> names, long min) {
    for (const char* name : names)
        if (auto value = env_integer(name, min, max_processes)) return static_cast<int>(*value);
    fail(error_code::bootstrap_failure,
         "this looks like a process of {}, but {} is not set; start the program with a launcher, or set "
         "DCUDA_LAUNCHER=none if it runs alone",
         launcher, *names.begin());
}

int optional(std::initializer_list<const char*> names, long min, int otherwise) {
    for (const char* name : names)
        if (auto value = env_integer(name, min, max_processes)) return static_cast<int>(*value);
    return otherwise;
}

// "pid.start_time" of the parent: one launcher process on this host, also after its pid is used again.
std::string parent_identity() {
    const pid_t parent = getppid();
    return fmt::format("{}.{}", parent, support::find_process(parent).start);
}

// Number of tasks on node `node` in SLURM's notation: "2(x3),1" means 2, 2, 2, 1.
std::optional<int> tasks_of_node(const std::string& list, long node) {
    std::istringstream text(list);
    for (std::string part; std::getline(text, part, ',');) {
        int tasks = 0;
        long nodes = 1;
        if (std::sscanf(part.c_str(), "%d(x%ld)", &tasks, &nodes) < 1) return std::nullopt;
        if (node < nodes) return tasks;
        node -= nodes;
    }
    return std::nullopt;
}

// DCUDA_JOB; empty if it is not set.
std::string job_secret() {
    const auto secret = env_string("DCUDA_JOB");
    if (!secret) return {};
    // Never shown: all but a digit may be right.
    const bool is_hexadecimal = secret->find_first_not_of("0123456789abcdef") == std::string::npos;
    require(secret->size() == 32 && is_hexadecimal, error_code::invalid_argument,
            "DCUDA_JOB has {} characters{}: expected 32 lower-case hexadecimal digits (openssl rand -hex 16)",
            secret->size(), is_hexadecimal ? "" : ", not all of them such digits");
    return *secret;
}

// DCUDA_RENDEZVOUS. Without a host, such as ":29555", the one that torchrun names: the host of process 0.
std::string given_rendezvous() {
    const std::string result = env_string("DCUDA_RENDEZVOUS").value_or("");
    if (!result.starts_with(':')) return result;
    const auto host = env_string("MASTER_ADDR");
    require(host.has_value(), error_code::invalid_argument,
            "DCUDA_RENDEZVOUS={}: expected host:port; only where MASTER_ADDR is set may the host be left out", result);
    return *host + result;
}

job from_dcuda_run() {
    job result;
    result.index = needed("dcuda-run", {"DCUDA_PROCESS_INDEX"}, 0);
    result.count = needed("dcuda-run", {"DCUDA_PROCESS_COUNT"}, 1);
    result.local_index = needed("dcuda-run", {"DCUDA_LOCAL_INDEX"}, 0);
    result.local_count = needed("dcuda-run", {"DCUDA_LOCAL_COUNT"}, 1);
    result.key = job_secret();
    require(!result.key.empty(), error_code::bootstrap_failure,
            "this looks like a process of dcuda-run, but DCUDA_JOB is not set");
    result.listen_fd = static_cast<int>(env_integer("DCUDA_LISTEN_FD", 0, max_processes).value_or(-1));
    return result;
}

job from_openmpi() {
    job result;
    result.index = needed("Open MPI", {"OMPI_COMM_WORLD_RANK"}, 0);
    result.count = needed("Open MPI", {"OMPI_COMM_WORLD_SIZE"}, 1);
    result.local_index = needed("Open MPI", {"OMPI_COMM_WORLD_LOCAL_RANK"}, 0);
    result.local_count = needed("Open MPI", {"OMPI_COMM_WORLD_LOCAL_SIZE"}, 1);
    auto job_name = env_string("PMIX_NAMESPACE");
    result.key = job_name ? *job_name : parent_identity();
    // 128 random bits, which Open MPI up to 4 gives the processes of a job alone.
    if (auto random = env_string("OMPI_MCA_orte_precondition_transports")) result.key += ' ' + *random;
    return result;
}

job from_torchrun() {
    job result;
    result.index = needed("torchrun", {"RANK"}, 0);
    result.count = needed("torchrun", {"WORLD_SIZE"}, 1);
    result.local_index = optional({"LOCAL_RANK"}, 0, result.index);
    result.local_count = optional({"LOCAL_WORLD_SIZE"}, 1, result.count);
    // The run id is "none" unless the user gave one; the port tells such jobs apart, the restart count their attempts.
    for (const char* name : {"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"})
        result.key += env_string(name).value_or("") + ' ';
    return result;
}

job from_slurm() {
    job result;
    result.index = needed("srun", {"SLURM_PROCID"}, 0);
    result.count = needed("srun", {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, 1);
    result.local_index = needed("srun", {"SLURM_LOCALID"}, 0);
    result.local_count = result.count;
    for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
        auto list = env_string(name);
        if (!list) continue;
        auto tasks = tasks_of_node(*list, env_integer("SLURM_NODEID", 0, max_processes).value_or(0));
        require(tasks.has_value(), error_code::invalid_argument,
                "{}={}: expected a list such as 4(x2),3 with an entry for node SLURM_NODEID={}", name, *list,
                env_string("SLURM_NODEID").value_or("0"));
        result.local_count = *tasks;
        break;
    }
    auto job_id = env_string("SLURM_JOB_ID");
    auto step_id = env_string("SLURM_STEP_ID");
    require(job_id && step_id, error_code::bootstrap_failure,
            "this looks like a process of srun, but SLURM_JOB_ID or SLURM_STEP_ID is not set");
    result.key = *job_id + "." + *step_id;
    return result;
}

job from_pmi() {
    job result;
    result.index = needed("a PMI launcher", {"PMI_RANK"}, 0);
    result.count = needed("a PMI launcher", {"PMI_SIZE"}, 1);
    result.local_index = optional({"MPI_LOCALRANKID", "PMI_LOCAL_RANK"}, 0, result.index);
    result.local_count = optional({"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"}, 1, result.count);
    // PMI names no job, but its processes on one host have one parent (Hydra's proxy). PALS has one daemon for all
    // jobs.
    auto pals_job = env_string("PALS_APID");
    result.key = pals_job ? *pals_job : parent_identity();
    return result;
}

job alone() {
    job result;
    result.key = fmt::format("{}", getpid());
    return result;
}

// A program inside sbatch or salloc that srun did not start has SLURM_JOB_ID too, but no step, or one of the special
// steps (batch, interactive, extern: the highest 32-bit numbers), and is alone.
bool inside_slurm_step() {
    auto step = env_string("SLURM_STEP_ID");
    return step && has("SLURM_PROCID") && std::strtoul(step->c_str(), nullptr, 10) < 0xfffffff0UL;
}

bool inside_torchrun() {
    return has("RANK") && has("WORLD_SIZE") && (has("TORCHELASTIC_RUN_ID") || has("MASTER_PORT"));
}

std::string recognise_launcher() {
    if (has("DCUDA_PROCESS_INDEX")) return "dcuda-run";
    if (has("OMPI_COMM_WORLD_RANK")) return "openmpi";
    if (inside_torchrun()) return "torchrun";
    if (inside_slurm_step()) return "slurm";
    if (has("PMI_RANK")) return "pmi";
    return "none";
}

job read_job(const std::string& launcher) {
    if (launcher == "dcuda-run") return from_dcuda_run();
    if (launcher == "openmpi") return from_openmpi();
    if (launcher == "torchrun") return from_torchrun();
    if (launcher == "slurm") return from_slurm();
    if (launcher == "pmi") return from_pmi();
    if (launcher == "none") return alone();
    fail(error_code::invalid_argument, "DCUDA_LAUNCHER={}: expected none, dcuda-run, openmpi, torchrun, slurm or pmi",
         launcher);
}

} // namespace

job detect_job() {
    const std::string launcher = env_string("DCUDA_LAUNCHER").value_or(recognise_launcher());
    job result = read_job(launcher);
    result.launcher = launcher;
    const std::string secret = job_secret();
    // The name of the local socket of a job is made of the key: with a secret in it, nobody can take that name before.
    if (launcher != "dcuda-run" && !secret.empty()) result.key += ' ' + secret;
    result.key = fmt::format("{} {} {}", geteuid(), launcher, result.key);
    require(result.key.size() <= max_key_bytes, error_code::invalid_argument,
            "what {} says of this job is too long to name it by: {} B", launcher, result.key.size());
    require(result.index < result.count && result.local_index < result.local_count &&
                result.local_count <= result.count,
            error_code::bootstrap_failure,
            "the variables of {} contradict each other: process {} of {}, on this host process {} of {}", launcher,
            result.index, result.count, result.local_index, result.local_count);
    if (!result.is_on_one_host()) {
        result.rendezvous = given_rendezvous();
        result.secret = secret;
    }
    return result;
}

} // namespace dcuda::bootstrap
