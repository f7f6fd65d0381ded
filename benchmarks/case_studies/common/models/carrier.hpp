// SPDX-License-Identifier: BSD-3-Clause
// What brings data from device to device in programs with two models: one for the device, kernels on streams, and one
// between devices, a library that the host calls. The carrier is what differs between them.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "common/models/model.hpp"
#include "common/models/processes.hpp"
#include "dcuda/host.hpp"

namespace common {

// What goes to a peer, another process, and what comes from it. Of 0 bytes: nothing.
struct message {
    int peer = -1;
    const void* out = nullptr; // device memory
    std::size_t out_bytes = 0;
    std::size_t there = 0; // where it goes, in bytes from the start of the peer's area
    void* in = nullptr;    // device memory
    std::size_t in_bytes = 0;
};

// What goes to a peer, and comes from it, in one list of messages: so many bytes in all, or less. Peers say the same.
struct route {
    int peer = -1;
    std::size_t out_bytes = 0;
    std::size_t in_bytes = 0;
};

// What a carrier is made for. All processes make theirs together.
struct carrier_setting {
    processes& all;
    void* area = nullptr; // one piece of device memory, with everything that goes and comes
    std::size_t area_bytes = 0;
    std::vector<route> routes;           // a peer once
    dcuda::runtime* runtime = nullptr;   // of carriers that use it: stream
    std::size_t piece_bytes = 512 << 10; // of carriers that send messages in pieces
};

class carrier {
public:
    virtual ~carrier() = default;
    virtual std::string name() const = 0;

    // Brings the messages. It begins when the stream's work is done, and what follows in the stream sees what has come.
    // The host may wait in it, or not. The stream is always the same. What goes to a peer has the order in which it
    // comes there, and must come there in as many bytes.
    //
    // Some carriers write to the peer's memory before it calls this, and into the same places of their own again at the
    // fourth list after. So who sends must know, from what has come since, that the peer has used what was there, and
    // has the list before the last three. Neighbours that answer each other know it.
    virtual void bring(std::span<const message> messages, cudaStream_t stream) = 0;

    // A barrier: what follows in the stream begins when all processes have called this and their streams' work before
    // it is done.
    virtual void meet(cudaStream_t stream) = 0;
};

// By the names of models, less "-graph": plain (nobody, for a device alone), host, stream, mpi, nccl. Further ones of
// MPI, by where messages lie: mpi-host, mpi-staged, mpi-pipeline, mpi-device.
using carriers = registry<carrier, carrier_setting>;

} // namespace common
