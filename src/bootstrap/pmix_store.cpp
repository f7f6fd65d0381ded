// SPDX-License-Identifier: BSD-3-Clause
// PMIx: the interface of Open MPI's mpirun and of srun --mpi=pmix to what they start.
#include "bootstrap/rendezvous.hpp"
#include "support/check.hpp"
#include "support/env.hpp"

#if defined(DCUDA_HAVE_PMIX)

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <future>
#include <pmix.h>

namespace dcuda::bootstrap {

namespace {

using support::fail;
using support::require;

// The library is loaded when it is needed, so that programs do not depend on it. All its versions since 2 have this
// interface; its headers' macros are avoided, since newer ones call functions that older libraries lack.
struct pmix_library {
    decltype(&PMIx_Init) init;
    decltype(&PMIx_Finalize) finalize;
    decltype(&PMIx_Put) put;
    decltype(&PMIx_Commit) commit;
    decltype(&PMIx_Fence_nb) fence;
    decltype(&PMIx_Get_nb) get;
    decltype(&PMIx_Error_string) error_string;
    pmix_proc_t self;
};

template <typename Function>
void load(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    require(function != nullptr, error_code::bootstrap_failure, "libpmix.so.2 lacks {}", name);
}

void expect(const pmix_library& pmix, pmix_status_t status, const char* subject) {
    require(status == PMIX_SUCCESS, error_code::bootstrap_failure, "PMIx: {}: {}", subject, pmix.error_string(status));
}

pmix_library open_library() {
    void* library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
        const char* reason = dlerror();
        fail(error_code::bootstrap_failure,
             "the launcher of this job exports PMIx, but its library cannot be loaded ({}); install it (Debian: "
             "libpmix2), or set DCUDA_RENDEZVOUS=host:port and DCUDA_JOB for all processes",
             reason ? reason : "?");
    }
    pmix_library result{};
    load(library, "PMIx_Init", result.init);
    load(library, "PMIx_Finalize", result.finalize);
    load(library, "PMIx_Put", result.put);
    load(library, "PMIx_Commit", result.commit);
    load(library, "PMIx_Fence_nb", result.fence);
    load(library, "PMIx_Get_nb", result.get);
    load(library, "PMIx_Error_string", result.error_string);
    expect(result, result.init(&result.self, nullptr, 0), "PMIx_Init");
    return result;
}

// Initialised once and finalised at the end of the program: mpirun takes a process that ends in between for a failure.
// PMIx counts both, so that MPI may do the same besides.
const pmix_library& library() {
    static const pmix_library loaded = open_library();
    static const int registered = std::atexit([] { loaded.finalize(nullptr, 0); });
    static_cast<void>(registered);
    return loaded;
}

// A call that answers in a thread of the library, perhaps after nobody waits any more: it owns all that it uses.
struct request {
    pmix_proc_t processes{};
    std::string key{};
    pmix_info_t collect{};
    std::promise<std::pair<pmix_status_t, std::string>> promise{};
};

class pmix_store final : public launcher_store {
public:
    pmix_store(const job& own_job, double timeout_seconds) : timeout_(timeout_seconds) {
        require(library().self.rank == static_cast<pmix_rank_t>(own_job.index), error_code::bootstrap_failure,
                "PMIx calls this process {}, the launcher's variables {}", library().self.rank, own_job.index);
    }

    void put(const std::string& key, const std::string& value) override {
        pmix_value_t data{};
        data.type = PMIX_STRING;
        data.data.string = const_cast<char*>(value.c_str()); // it is copied
        expect(library(), library().put(PMIX_GLOBAL, key.c_str(), &data), "PMIx_Put");
        expect(library(), library().commit(), "PMIx_Commit");
    }

    void fence() override {
        auto own_request = std::make_unique<request>(request{process(PMIX_RANK_WILDCARD)});
        std::strcpy(own_request->collect.key, PMIX_COLLECT_DATA);
        own_request->collect.value.type = PMIX_BOOL;
        own_request->collect.value.data.flag = true;
        wait("PMIx_Fence_nb", std::move(own_request), [](request& one) {
            return library().fence(
                &one.processes, 1, &one.collect, 1,
                [](pmix_status_t status, void* target) { reply(target, status, {}); }, &one);
        });
    }

    std::string get(int process_index, const std::string& key) override {
        auto own_request = std::make_unique<request>(request{process(static_cast<pmix_rank_t>(process_index)), key});
        return wait("PMIx_Get_nb", std::move(own_request), [](request& one) {
            return library().get(
                &one.processes, one.key.c_str(), nullptr, 0,
                [](pmix_status_t status, pmix_value_t* value, void* target) {
                    const bool is_text = status == PMIX_SUCCESS && value && value->type == PMIX_STRING;
                    reply(target, status == PMIX_SUCCESS && !is_text ? PMIX_ERR_TYPE_MISMATCH : status,
                          is_text ? value->data.string : "");
                },
                &one);
        });
    }

private:
    static pmix_proc_t process(pmix_rank_t rank) {
        pmix_proc_t result = library().self;
        result.rank = rank;
        return result;
    }

    static void reply(void* target, pmix_status_t status, std::string value) {
        const std::unique_ptr<request> owned(static_cast<request*>(target));
        owned->promise.set_value({status, std::move(value)});
    }

    template <typename Call>
    std::string wait(const char* subject, std::unique_ptr<request> own_request, Call&& call) {
        auto result = own_request->promise.get_future();
        const pmix_status_t status = call(*own_request);
        if (status != PMIX_OPERATION_SUCCEEDED) expect(library(), status, subject);
        if (status == PMIX_OPERATION_SUCCEEDED) return {}; // done at once: it will not reply
        own_request.release();
        require(result.wait_for(std::chrono::duration<double>(std::min(timeout_, 1e6))) == std::future_status::ready,
                error_code::bootstrap_failure,
                "PMIx: {} took longer than {} s (DCUDA_CONNECT_TIMEOUT): did all processes of the job get this far?",
                subject, timeout_);
        auto [reply_status, value] = result.get();
        expect(library(), reply_status, subject);
        return value;
    }

    const double timeout_;
};

} // namespace

std::unique_ptr<launcher_store> open_pmix_store(const job& own_job, double timeout_seconds) {
    if (!support::env_string("PMIX_NAMESPACE") || !support::env_string("PMIX_RANK")) return nullptr;
    return std::make_unique<pmix_store>(own_job, timeout_seconds);
}

} // namespace dcuda::bootstrap

#else

namespace dcuda::bootstrap {

std::unique_ptr<launcher_store> open_pmix_store(const job&, double) { return nullptr; }

} // namespace dcuda::bootstrap

#endif
