// SPDX-License-Identifier: BSD-3-Clause
#include "common/models/mpi_link.hpp"

#include <algorithm>
#include <array>
#include <cerrno> // program_invocation_short_name
#include <cstdlib>
#include <dlfcn.h>
#include <exception>
#include <limits>
#include <stdexcept>

#include "dcuda/config.hpp"

namespace common {

namespace {

// Not after a failure: MPI_Finalize would wait for the others.
bool all_in_order = false;
void finalize() {
    int is_finalized = 0;
    MPI_Finalized(&is_finalized);
    if (is_finalized == 0 && all_in_order) MPI_Finalize();
}

} // namespace

void check_mpi(int code, const char* subject) {
    if (code == MPI_SUCCESS) return;
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(code, text.data(), &length);
    throw std::runtime_error(std::string("MPI: ") + subject + ": " + text.data());
}

mpi_link::mpi_link(const carrier_setting& given) {
    const processes& all = given.all;
    int is_initialized = 0, rank = 0, size = 0;
    MPI_Initialized(&is_initialized);
    if (is_initialized == 0) {
        int level = 0;
        check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level), "MPI_Init_thread");
        std::atexit(finalize);
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank != all.index() || size != all.count())
        throw std::runtime_error("MPI takes processes that its own launcher has started: mpirun -n " +
                                 std::to_string(all.count()) + " " + program_invocation_short_name);
    for (const route& one : given.routes)
        if (std::max(one.in_bytes, one.out_bytes) > std::size_t{std::numeric_limits<int>::max()})
            throw std::runtime_error("MPI takes messages of at most 2 GiB");
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &communicator_), "MPI_Comm_dup");
    check_mpi(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

mpi_link::~mpi_link() { all_in_order = std::uncaught_exceptions() == 0; }

std::string mpi_link::library() {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    std::string version(text.data(), static_cast<std::size_t>(length));
    version.resize(std::min(version.find_first_of(",\n"), version.size()));
    return version;
}

std::string mpi_link::why_no_device_memory() {
    if (!DCUDA_BACKEND_CUDA) return "device memory is host memory on the CPU backend";
    // An extension, which not every library has.
    const auto query = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support"));
    if (query == nullptr) return library() + " does not say whether it takes device memory (MPIX_Query_cuda_support)";
    if (query() != 1) return library() + " says that it takes no device memory (MPIX_Query_cuda_support)";
    return {};
}

MPI_Request mpi_link::receive(void* target, std::size_t bytes, int peer) const {
    MPI_Request open = MPI_REQUEST_NULL;
    check_mpi(MPI_Irecv(target, static_cast<int>(bytes), MPI_BYTE, peer, 0, communicator_, &open), "MPI_Irecv");
    return open;
}

MPI_Request mpi_link::send(const void* source, std::size_t bytes, int peer) const {
    MPI_Request open = MPI_REQUEST_NULL;
    check_mpi(MPI_Isend(source, static_cast<int>(bytes), MPI_BYTE, peer, 0, communicator_, &open), "MPI_Isend");
    return open;
}

void mpi_link::finish(std::vector<MPI_Request>& open) {
    check_mpi(MPI_Waitall(static_cast<int>(open.size()), open.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
    open.clear();
}

} // namespace common
