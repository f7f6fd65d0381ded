// SPDX-License-Identifier: BSD-3-Clause
// The network path: what the runtime asks of a network. One class per network library (ofi.cpp, mpi.cpp, verbs.cpp),
// each in a shared module of its own that is loaded when it is needed, so that programs depend on none of them; and one
// (shm.cpp) that needs no library.
#pragma once

#include "dcuda/config.hpp"
#include "dcuda/error.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace dcuda::transport {

// Memory of another process that this one may write to, as that process's network describes it. Plain bytes.
struct remote_memory {
    std::uint64_t address;
    std::uint64_t key;
};

// Memory that another process may map, too. It outlives the network if it must.
using shared_memory = std::shared_ptr<std::byte>;

// Something that has happened.
struct network_event {
    enum class kind {
        arrived, // a write into our memory is complete, and this is its number
        sent,    // a write of ours is complete: its source may change. `number` is what write() was given
    };
    kind type;
    std::uint64_t number;
};

// What a network is opened with.
struct network_request {
    int process; // of this process, 0 to process_count - 1
    int process_count;
    std::string provider;      // what the user wrote behind the name of the transport, "tcp" of "ofi:tcp"; may be empty
    std::string local_address; // of this host, as the other hosts reach it; empty: all processes are on this host
    double lost_after = 10;    // seconds after which a process that no way leads to is lost
};

// A network library. Used by one thread at a time. All functions throw dcuda::error; one that concerns a process names
// it (process_lost).
class network {
public:
    virtual ~network() = default;

    // For messages: "ofi (tcp;ofi_rxm)".
    virtual std::string name() const = 0;

    // What the network of process `peer` needs to connect to this one. The runtime carries it there, and theirs here;
    // both sides make the two calls, invite first. Writes may follow when both have been made on both sides.
    virtual std::string invite(int peer) = 0;
    virtual void connect(int peer, std::string_view invitation) = 0;

    // Opens memory to writes of connected processes. Writes into it arrive with the numbers
    // [first_number, first_number + bytes / unit_bytes), below 2^31: the write at the i-th unit with the i-th number.
    // The memory stays open as long as the network.
    virtual remote_memory expose(void* base, std::size_t bytes, std::uint32_t first_number) = 0;
    static constexpr std::size_t unit_bytes = 64;

    // Says that writes will come from this memory, as long as the network exists.
    virtual void add_source(const void* base, std::size_t bytes) = 0;

    // Where processes can map each other's memory. share(): memory to expose, beginning at a page; null if any will do,
    // and then reach() gives nothing. reach(): the memory of a connected process, in this one; a writer that
    // makes its data at their position in that memory and names that position as the source spares a copy.
    virtual shared_memory share(std::size_t) { return nullptr; }
    virtual shared_memory reach(int, const remote_memory&) { return nullptr; }

    // Writes `bytes` bytes, at least 1, to `offset` bytes (a multiple of unit_bytes) from the memory's base there,
    // where it arrives as `number`; the two belong together as expose() says. An event `sent` with `token` follows.
    // False: not now, the queues are full; try again after poll(). Writes are not ordered among each other: when one
    // has arrived, this says nothing of any other.
    virtual bool write(int peer, const remote_memory& region, std::size_t offset, const void* source, std::size_t bytes,
                       std::uint32_t number, std::uint64_t token) = 0;

    // Lets the library work. The next event, if there is one.
    virtual bool poll(network_event& event) = 0;

    // A run has failed: some processes may be gone, and none is waited for.
    virtual void abandon() {}

    // The last call before the destructor. False: the library may still access memory that was exposed or added, which
    // must stay.
    virtual bool close() { return true; }
};

// What a module exports. The version must be the library's own.
extern "C" {
using open_network_function = network*(const network_request& request);
using network_version_function = const char*();
}
#define DCUDA_EXPORT_NETWORK(type)                                                                                     \
    extern "C" __attribute__((visibility("default"))) dcuda::transport::network* dcuda_open_network(                   \
        const dcuda::transport::network_request& request) {                                                            \
        return new type(request);                                                                                      \
    }                                                                                                                  \
    extern "C" __attribute__((visibility("default"))) const char* dcuda_network_version() {                            \
        return DCUDA_VERSION_STRING;                                                                                   \
    }

// Whether that transport is here: "shm", or one that has a module.
bool has_network(const std::string& transport);

// Opens a transport: "shm", or that of a module ("ofi", "mpi", "verbs"), which is loaded. Throws error(no_path) if
// there is no such module here, with the folders where it was looked for.
std::unique_ptr<network> open_network(const std::string& transport, const network_request& request);

} // namespace dcuda::transport
