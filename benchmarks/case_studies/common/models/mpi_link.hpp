// SPDX-License-Identifier: BSD-3-Clause
// MPI, as carriers use it: messages of bytes between processes that MPI's launcher has started.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <mpi.h>

#include "common/models/carrier.hpp"

namespace common {

void check_mpi(int code, const char* subject);

// MPI begins with the first of them, and ends with the process, for dCUDA may use it too.
class mpi_link {
public:
    // Collective. Throws if the processes are no job of MPI, or if lists of messages are too large for it.
    explicit mpi_link(const carrier_setting& given);
    ~mpi_link();
    mpi_link(const mpi_link&) = delete;
    mpi_link& operator=(const mpi_link&) = delete;

    // Name and version of the library.
    static std::string library();
    // Why messages cannot lie in device memory; empty if they can.
    static std::string why_no_device_memory();

    MPI_Request receive(void* target, std::size_t bytes, int peer) const;
    MPI_Request send(const void* source, std::size_t bytes, int peer) const;
    // Waits for all of them, and forgets them.
    static void finish(std::vector<MPI_Request>& open);
    void meet() const { check_mpi(MPI_Barrier(communicator_), "MPI_Barrier"); }

private:
    MPI_Comm communicator_ = MPI_COMM_NULL;
};

} // namespace common
