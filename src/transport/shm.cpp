// SPDX-License-Identifier: BSD-3-Clause
#include "transport/shm.hpp"

#include "support/check.hpp"
#include "support/descriptor.hpp"
#include "support/losses.hpp"

#include <cerrno>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <map>
#include <optional>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace dcuda::transport {

using support::descriptor;

namespace {

// What says where memory is, in a remote_memory: the address is the file's inode, which no other such file of this host
// has; the key is the process and its descriptor.
remote_memory name_of(int file) {
    struct stat found {};
    fstat(file, &found);
    return {found.st_ino, static_cast<std::uint64_t>(getpid()) << 32 | static_cast<std::uint32_t>(file)};
}

shared_memory map(int file, std::size_t bytes) {
    void* const base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    support::require(base != MAP_FAILED, error_code::out_of_resources, "shm: cannot map {} B: {}", bytes,
                     std::strerror(errno));
    return {static_cast<std::byte*>(base), [bytes](std::byte* memory) { munmap(memory, bytes); }};
}

const char* advice(int problem) { return problem == EMFILE ? ": raise `ulimit -n`" : ""; }

class shm final : public network {
public:
    explicit shm(const network_request& request) : peers_(static_cast<std::size_t>(request.process_count)) {
        support::require(request.provider.empty(), error_code::invalid_argument,
                         "DCUDA_TRANSPORT=shm:{}: shm has no providers; libfabric's is ofi:shm", request.provider);
    }

    std::string name() const override { return "shm"; }

    shared_memory share(std::size_t bytes) override {
        const support::file_limit_as_error instead_of_signal;
        descriptor file(memfd_create("dcuda-network", MFD_CLOEXEC));
        support::require(file.get() >= 0 && ftruncate(file.get(), static_cast<off_t>(bytes)) == 0,
                         error_code::out_of_resources, "shm: cannot make {} B of shared memory: {}{}", bytes,
                         std::strerror(errno), advice(errno));
        shared_memory memory = map(file.get(), bytes);
        shared_.emplace(memory.get(), std::move(file));
        return memory;
    }

    // The invitation is the queue of the writes that the peer makes to us.
    std::string invite(int) override {
        const shared_memory slots = share(write_queue::capacity * sizeof(std::uint32_t));
        incoming_.push_back({slots, write_queue(reinterpret_cast<std::uint32_t*>(slots.get()))});
        const remote_memory name = name_of(shared_.at(slots.get()).get());
        return {reinterpret_cast<const char*>(&name), sizeof name};
    }

    void connect(int peer, std::string_view invitation) override {
        remote_memory queue{};
        support::require(invitation.size() == sizeof queue, error_code::no_path,
                         "shm: what process {} says of itself is no invitation", peer);
        std::memcpy(&queue, invitation.data(), sizeof queue);
        auto slots = reach(peer, queue);
        auto* const words = reinterpret_cast<std::uint32_t*>(slots.get());
        peer_at(peer).outgoing = end{std::move(slots), write_queue(words)};
    }

    remote_memory expose(void* base, std::size_t, std::uint32_t) override {
        const auto found = shared_.find(static_cast<std::byte*>(base));
        support::require(found != shared_.end(), error_code::no_path, "shm: memory that no other process can map");
        return name_of(found->second.get());
    }

    void add_source(const void*, std::size_t) override {}

    shared_memory reach(int peer, const remote_memory& region) override { return memory_of(peer, region); }

    bool write(int peer, const remote_memory& region, std::size_t offset, const void* source, std::size_t bytes,
               std::uint32_t number, std::uint64_t token) override {
        write_queue& writes = peer_at(peer).outgoing->writes;
        if (writes.is_full()) return false;
        std::byte* const target = memory_of(peer, region).get() + offset;
        if (target != source) std::memcpy(target, source, bytes);
        writes.push(number);
        sent_.push_back(token);
        return true;
    }

    bool poll(network_event& event) override {
        if (!sent_.empty()) {
            event = {network_event::kind::sent, sent_.front()};
            sent_.pop_front();
            return true;
        }
        for (std::size_t i = 0; i < incoming_.size(); ++i) {
            if (++next_ >= incoming_.size()) next_ = 0;
            std::uint32_t number = 0;
            if (!incoming_[next_].writes.pop(number)) continue;
            event = {network_event::kind::arrived, number};
            return true;
        }
        return false;
    }

private:
    struct end { // of a queue
        shared_memory slots;
        write_queue writes;
    };
    struct neighbour {
        std::optional<end> outgoing;
        std::map<std::uint64_t, shared_memory> memory; // by inode
    };

    neighbour& peer_at(int process) { return peers_.at(static_cast<std::size_t>(process)); }

    const shared_memory& memory_of(int process, const remote_memory& region) {
        shared_memory& memory = peer_at(process).memory[region.address];
        if (memory == nullptr) memory = open_memory(process, region);
        return memory;
    }

    shared_memory open_memory(int process, const remote_memory& region) {
        const auto pid = region.key >> 32, number = region.key & UINT32_MAX;
        const descriptor file(open(fmt::format("/proc/{}/fd/{}", pid, number).c_str(), O_RDWR | O_CLOEXEC));
        support::require(file.get() >= 0 || errno != EMFILE, error_code::out_of_resources,
                         "shm: cannot map memory of process {}: {}{}", process, std::strerror(errno), advice(errno));
        struct stat found {};
        const bool is_it = file.get() >= 0 && fstat(file.get(), &found) == 0 && found.st_ino == region.address;
        support::require(is_it, error_code::no_path,
                         "shm: cannot map memory of process {} (pid {}): {}; it has ended, or its container hides its "
                         "processes from ours: then set DCUDA_TRANSPORT=ofi:tcp",
                         process, pid, file.get() < 0 ? std::strerror(errno) : "that pid is another process here");
        return map(file.get(), static_cast<std::size_t>(found.st_size));
    }

    std::vector<neighbour> peers_;
    std::map<const std::byte*, descriptor> shared_; // by where we have it
    std::vector<end> incoming_;
    std::size_t next_ = 0;
    std::deque<std::uint64_t> sent_;
};

} // namespace

std::unique_ptr<network> open_shm(const network_request& request) { return std::make_unique<shm>(request); }

} // namespace dcuda::transport
