// SPDX-License-Identifier: BSD-3-Clause
// The network path over any MPI-3 library, two-sided: a write is a message whose tag is its number, and the target
// receives it straight into the memory of that number.
#include "support/check.hpp"
#include "transport/network.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <deque>
#include <exception>
#include <map>
#include <mpi.h>
#include <thread>
#include <vector>
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

namespace dcuda::transport {

namespace {

constexpr std::size_t max_sends = 256; // of this process, at a time
constexpr std::size_t max_receives = 256;
constexpr int probe_batch = 16;
constexpr auto patience_at_end = std::chrono::seconds(1);

// MPI that we have initialised ends with the process, for it cannot be initialised twice; but not after a failure
// (abandon(), or an exception of the program): MPI_Finalize would wait for the others.
bool all_closed_in_order = true;
void finalize() {
    int is_finalized = 0;
    MPI_Finalized(&is_finalized);
    if (is_finalized == 0 && all_closed_in_order) MPI_Finalize();
}

std::string text_of(int code) {
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(code, text.data(), &length);
    return {text.data(), static_cast<std::size_t>(length)};
}

void check(int code, const char* subject) {
    support::require(code == MPI_SUCCESS, error_code::process_lost, "MPI: {}: {}", subject, text_of(code));
}

// "Open MPI v4.1.4" of a longer text.
std::string library_version() {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    std::string version(text.data(), static_cast<std::size_t>(length));
    version.resize(std::min(version.find_first_of(",\n"), version.size()));
    for (char& letter : version)
        if (letter == '\t') letter = ' ';
    return version;
}

bool is_cuda_aware() {
#if defined(MPIX_CUDA_AWARE_SUPPORT)
    return MPIX_Query_cuda_support() == 1;
#else
    return false; // the library does not say
#endif
}

class mpi final : public network {
public:
    explicit mpi(const network_request& request) {
        support::require(
            request.provider.empty(), error_code::invalid_argument,
            "the transport mpi has no providers, but was asked for {}; MPI's own settings say what it uses",
            request.provider);
        initialize();
        check_thread();
        version_ = library_version();
        check_rank(request);
        // Nobody else's messages come here.
        check(MPI_Comm_dup(MPI_COMM_WORLD, &communicator_), "MPI_Comm_dup");
        check(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
        all_closed_in_order = true; // all have come here, whatever has failed before
    }

    // The communicator stays. What is still on the way to it, such as credit that nobody waits for, would come to the
    // next one otherwise, which Open MPI gives the number of one that was freed.
    ~mpi() override = default;

    void abandon() override { all_closed_in_order = false; }

    bool close() override {
        const auto deadline = std::chrono::steady_clock::now() + patience_at_end;
        try {
            while (!requests_.empty() && std::chrono::steady_clock::now() < deadline) test();
        } catch (const error&) {
        }
        if (!requests_.empty() || std::uncaught_exceptions() > 0) abandon();
        return requests_.empty();
    }

    std::string name() const override {
        return fmt::format("mpi ({}{})", version_, is_cuda_aware() ? ", CUDA-aware" : "");
    }

    // MPI has connected its processes, or does it with the first message.
    std::string invite(int) override { return version_; }
    void connect(int peer, std::string_view invitation) override {
        support::require(invitation == version_, error_code::no_path,
                         "process {} uses {}, this one {}: start all with one MPI library", peer, invitation, version_);
    }

    remote_memory expose(void* base, std::size_t bytes, std::uint32_t first_number) override {
        void* attribute = nullptr;
        int is_set = 0;
        check(MPI_Comm_get_attr(communicator_, MPI_TAG_UB, &attribute, &is_set), "asking for MPI_TAG_UB");
        const int highest = is_set != 0 ? *static_cast<int*>(attribute) : 32767; // what the standard promises
        const std::uint64_t last = first_number + (bytes + unit_bytes - 1) / unit_bytes - 1;
        support::require(last <= static_cast<std::uint64_t>(highest), error_code::out_of_resources,
                         "{} takes tags up to {} (MPI_TAG_UB), but memory of {} bytes needs {}: use less memory, fewer "
                         "processes, or another transport (DCUDA_TRANSPORT=ofi)",
                         name(), highest, bytes, last);
        exposed_[first_number] = {static_cast<std::byte*>(base), bytes};
        return {first_number, bytes};
    }

    void add_source(const void*, std::size_t) override {}

    bool write(int peer, const remote_memory&, std::size_t, const void* source, std::size_t bytes, std::uint32_t number,
               std::uint64_t token) override {
        if (sends_ == max_sends) return false;
        support::require(bytes <= INT_MAX, error_code::invalid_argument, "{}: one write has at most {} bytes, not {}",
                         name(), INT_MAX, bytes);
        MPI_Request request = MPI_REQUEST_NULL;
        check_message(MPI_Isend(source, static_cast<int>(bytes), MPI_BYTE, peer, static_cast<int>(number),
                                communicator_, &request),
                      peer);
        begun(request, {{network_event::kind::sent, token}, peer});
        ++sends_;
        return true;
    }

    bool poll(network_event& event) override {
        if (events_.empty()) {
            if (std::this_thread::get_id() != user_) check_thread();
            receive();
            test();
            if (events_.empty()) return false;
        }
        event = events_.front();
        events_.pop_front();
        return true;
    }

private:
    struct memory {
        std::byte* base;
        std::size_t bytes;
    };
    // Belongs to the request with the same index.
    struct operation {
        network_event event; // when it is complete
        int peer;
    };

    static void initialize() {
        int is_initialized = 0, is_finalized = 0, level = 0;
        MPI_Initialized(&is_initialized);
        MPI_Finalized(&is_finalized);
        support::require(is_finalized == 0, error_code::no_path,
                         "the program has finalized MPI: call MPI_Finalize after the end of the dCUDA runtime");
        if (is_initialized == 0) {
            check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
            std::atexit(finalize);
        }
    }

    // Whether the calling thread may use MPI: the one that makes the runtime, and the one of an asynchronous run.
    void check_thread() {
        int level = 0, is_main = 0;
        MPI_Query_thread(&level);
        MPI_Is_thread_main(&is_main);
        support::require(is_main != 0 || level >= MPI_THREAD_SERIALIZED, error_code::no_path,
                         "MPI was initialized by another thread for that one alone: make the dCUDA runtime in the same "
                         "thread and call run instead of run_async, or ask MPI_Init_thread for MPI_THREAD_SERIALIZED");
        user_ = std::this_thread::get_id();
    }

    void check_rank(const network_request& request) const {
        int rank = 0, size = 0;
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_size(MPI_COMM_WORLD, &size);
        support::require(
            size == request.process_count && rank == request.process, error_code::no_path,
            "for {} this is process {} of {}, for dCUDA process {} of {}: the transport mpi needs processes "
            "that were started with the launcher of this MPI library (mpirun -n {}); others take "
            "DCUDA_TRANSPORT=ofi",
            version_, rank, size, request.process, request.process_count, request.process_count);
    }

    void check_message(int code, int peer) const {
        support::require(code == MPI_SUCCESS, error_code::process_lost, "{}: a message to or from process {}: {}",
                         name(), peer, text_of(code));
    }

    void begun(MPI_Request request, const operation& pending) {
        requests_.push_back(request);
        operations_.push_back(pending);
    }

    // Begins to receive what has come.
    void receive() {
        for (int i = 0; i < probe_batch && requests_.size() - sends_ < max_receives; ++i) {
            int found = 0, bytes = 0;
            MPI_Message message = MPI_MESSAGE_NULL;
            MPI_Status status{};
            check(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, communicator_, &found, &message, &status), "MPI_Improbe");
            if (found == 0) return;
            check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
            const int peer = status.MPI_SOURCE;
            const auto number = static_cast<std::uint32_t>(status.MPI_TAG);
            MPI_Request request = MPI_REQUEST_NULL;
            std::byte* const target = target_of(number, static_cast<std::size_t>(bytes), peer);
            check_message(MPI_Imrecv(target, bytes, MPI_BYTE, &message, &request), peer);
            begun(request, {{network_event::kind::arrived, number}, peer});
        }
    }

    std::byte* target_of(std::uint32_t number, std::size_t bytes, int peer) const {
        const auto after = exposed_.upper_bound(number);
        if (after != exposed_.begin()) {
            const auto& [first_number, exposed] = *std::prev(after);
            const std::size_t offset = (number - first_number) * unit_bytes;
            if (offset < exposed.bytes && bytes <= exposed.bytes - offset) return exposed.base + offset;
        }
        support::fail(error_code::process_lost, "{}: process {} writes {} bytes as number {}, where no memory is",
                      name(), peer, bytes, number);
    }

    // Makes events of what is complete.
    void test() {
        if (requests_.empty()) return;
        int done = 0;
        indices_.resize(requests_.size());
        statuses_.resize(requests_.size());
        const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &done, indices_.data(),
                                      statuses_.data());
        if (code != MPI_ERR_IN_STATUS) check(code, "MPI_Testsome");
        for (std::size_t i = 0; i < static_cast<std::size_t>(done); ++i) {
            const operation& complete = operations_[static_cast<std::size_t>(indices_[i])];
            if (code == MPI_ERR_IN_STATUS) check_message(statuses_[i].MPI_ERROR, complete.peer);
            if (complete.event.type == network_event::kind::sent) --sends_;
            events_.push_back(complete.event);
        }
        if (done == 0) return;
        std::size_t left = 0;
        for (std::size_t i = 0; i < requests_.size(); ++i) {
            if (requests_[i] == MPI_REQUEST_NULL) continue; // complete
            requests_[left] = requests_[i];
            operations_[left++] = operations_[i];
        }
        requests_.resize(left);
        operations_.resize(left);
    }

    MPI_Comm communicator_ = MPI_COMM_NULL;
    std::thread::id user_; // the thread that used MPI last
    std::string version_;
    std::map<std::uint32_t, memory> exposed_; // by first number
    std::vector<MPI_Request> requests_;
    std::vector<operation> operations_;
    std::size_t sends_ = 0; // of them
    std::vector<int> indices_;
    std::vector<MPI_Status> statuses_;
    std::deque<network_event> events_;
};

} // namespace

} // namespace dcuda::transport

DCUDA_EXPORT_NETWORK(dcuda::transport::mpi)
