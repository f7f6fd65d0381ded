// SPDX-License-Identifier: BSD-3-Clause
// MPI between kernels: messages straight from device memory where the MPI library takes that, else through pinned
// memory.
#include <algorithm>
#include <array>
#include <cerrno> // program_invocation_short_name
#include <cstdlib>
#include <exception>
#include <limits>
#include <stdexcept>

#include <mpi.h>
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

#include "common/device_buffer.hpp"
#include "common/models/carrier.hpp"
#include "support/cuda.hpp"

namespace common {

namespace {

void check(int code, const char* subject) {
    if (code == MPI_SUCCESS) return;
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(code, text.data(), &length);
    throw std::runtime_error(std::string("MPI: ") + subject + ": " + text.data());
}

bool takes_device_memory() {
#if defined(MPIX_CUDA_AWARE_SUPPORT)
    return MPIX_Query_cuda_support() == 1;
#else
    return false; // the library does not tell
#endif
}

// MPI ends with the process, for dCUDA may use it too; but not after a failure: MPI_Finalize would wait for the others.
bool all_in_order = false;
void finalize() {
    int is_finalized = 0;
    MPI_Finalized(&is_finalized);
    if (is_finalized == 0 && all_in_order) MPI_Finalize();
}

class mpi_carrier final : public carrier {
public:
    explicit mpi_carrier(const carrier_setting& given) {
        const processes& all = given.all;
        int is_initialized = 0, rank = 0, size = 0;
        MPI_Initialized(&is_initialized);
        if (is_initialized == 0) {
            int level = 0;
            check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level), "MPI_Init_thread");
            std::atexit(finalize);
        }
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_size(MPI_COMM_WORLD, &size);
        if (rank != all.index() || size != all.count())
            throw std::runtime_error("the model mpi needs processes that MPI's launcher has started: mpirun -n " +
                                     std::to_string(all.count()) + " " + program_invocation_short_name +
                                     " --model mpi");
        check(MPI_Comm_dup(MPI_COMM_WORLD, &communicator_), "MPI_Comm_dup");
        check(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
        is_direct_ = takes_device_memory();
        for (const route& one : given.routes) {
            if (std::max(one.in_bytes, one.out_bytes) > std::size_t{std::numeric_limits<int>::max()})
                throw std::runtime_error("the model mpi has messages of at most 2 GiB");
            if (is_direct_) continue;
            staged& place = staged_.emplace_back();
            place.peer = one.peer;
            place.in_bytes = one.in_bytes;
            place.memory =
                dcuda::cuda::allocate_pinned<std::byte>(2 * one.in_bytes + one.out_bytes + 1, "pinning memory");
        }
    }
    ~mpi_carrier() override { all_in_order = std::uncaught_exceptions() == 0; }

    std::string name() const override {
        std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
        int length = 0;
        MPI_Get_library_version(text.data(), &length);
        std::string version(text.data(), static_cast<std::size_t>(length));
        version.resize(std::min(version.find_first_of(",\n"), version.size()));
        return version + (is_direct_ ? ", from device memory" : ", through pinned memory");
    }

    void bring(std::span<const message> messages, cudaStream_t stream) override {
        if (messages.empty()) return;
        if (is_direct_)
            bring_directly(messages, stream);
        else
            bring_through_host(messages, stream);
    }

    void meet(cudaStream_t stream) override {
        common::check(cudaStreamSynchronize(stream), "the kernels failed");
        check(MPI_Barrier(communicator_), "MPI_Barrier");
    }

private:
    // Pinned memory for a peer: all messages of a list are one.
    struct staged {
        int peer = -1;
        std::size_t in_bytes = 0; // of a place; two for what comes are followed by one for what goes
        dcuda::cuda::pinned_array<std::byte> memory;
        std::size_t coming = 0, going = 0; // bytes in this list

        std::byte* in(std::size_t turn) const { return memory.get() + turn * in_bytes; }
        std::byte* out() const { return in(2); }
    };

    void bring_directly(std::span<const message> messages, cudaStream_t stream) {
        common::check(cudaStreamSynchronize(stream), "the kernels failed");
        // Not before: kernels may have been reading what was there.
        for (const message& one : messages)
            if (one.in_bytes > 0) receive(one.in, one.in_bytes, one.peer);
        for (const message& one : messages)
            if (one.out_bytes > 0) send(one.out, one.out_bytes, one.peer);
        wait();
    }

    void bring_through_host(std::span<const message> messages, cudaStream_t stream) {
        // Places for what comes take turns: the last list's are still being copied to the device.
        turn_ = 1 - turn_;
        for (staged& place : staged_) place.coming = place.going = 0;
        for (const message& one : messages) {
            staged& place = of(one.peer);
            if (one.out_bytes > 0) copy(place.out() + place.going, one.out, one.out_bytes, stream);
            place.going += one.out_bytes;
            place.coming += one.in_bytes;
        }
        for (const staged& place : staged_)
            if (place.coming > 0) receive(place.in(turn_), place.coming, place.peer);
        common::check(cudaStreamSynchronize(stream), "the kernels failed");
        for (const staged& place : staged_)
            if (place.going > 0) send(place.out(), place.going, place.peer);
        wait();
        for (staged& place : staged_) place.coming = 0;
        for (const message& one : messages) {
            staged& place = of(one.peer);
            if (one.in_bytes > 0) copy(one.in, place.in(turn_) + place.coming, one.in_bytes, stream);
            place.coming += one.in_bytes;
        }
    }

    staged& of(int peer) {
        return *std::find_if(staged_.begin(), staged_.end(), [&](const staged& one) { return one.peer == peer; });
    }

    void receive(void* target, std::size_t bytes, int peer) {
        check(MPI_Irecv(target, static_cast<int>(bytes), MPI_BYTE, peer, 0, communicator_, &open_.emplace_back()),
              "MPI_Irecv");
    }
    void send(const void* source, std::size_t bytes, int peer) {
        check(MPI_Isend(source, static_cast<int>(bytes), MPI_BYTE, peer, 0, communicator_, &open_.emplace_back()),
              "MPI_Isend");
    }
    void wait() {
        check(MPI_Waitall(static_cast<int>(open_.size()), open_.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
        open_.clear();
    }

    void copy(void* target, const void* source, std::size_t bytes, cudaStream_t stream) const {
        common::check(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDefault, stream), "copying messages");
    }

    MPI_Comm communicator_ = MPI_COMM_NULL;
    bool is_direct_ = false;
    std::vector<staged> staged_; // unless it is direct
    std::size_t turn_ = 0;
    std::vector<MPI_Request> open_;
};

std::unique_ptr<carrier> make_mpi(const carrier_setting& given) { return std::make_unique<mpi_carrier>(given); }

const carriers::entry mpi("mpi", make_mpi);

} // namespace

} // namespace common
