// SPDX-License-Identifier: BSD-3-Clause
// How the processes of a job over several hosts learn the address of the control server, and the secret by which they
// authenticate each other.
#pragma once

#include "bootstrap/channel.hpp"

namespace dcuda::bootstrap {

struct rendezvous {
    std::string address; // "host:port"
    std::string secret;
    descriptor listener{}; // in process 0: the socket there
};

// From DCUDA_RENDEZVOUS and DCUDA_JOB; or process 0 chooses both, and the others learn them from the launcher: then
// this is collective. `generation` counts the control planes of this job. Throws error(bootstrap_failure).
rendezvous find_rendezvous(const job& own_job, int generation, double timeout_seconds);

// What a launcher keeps for the processes of a job: each puts some values, all pass the fence, then each gets those of
// others. Throws error(bootstrap_failure).
class launcher_store {
public:
    virtual ~launcher_store() = default;
    virtual void put(const std::string& key, const std::string& value) = 0;
    virtual void fence() = 0;
    virtual std::string get(int process, const std::string& key) = 0;
};

// Null: this process has none of that kind.
std::unique_ptr<launcher_store> open_pmix_store(const job& own_job, double timeout_seconds);
std::unique_ptr<launcher_store> open_pmi_store(const job& own_job, double timeout_seconds);

} // namespace dcuda::bootstrap
