// SPDX-License-Identifier: BSD-3-Clause
// The network path between processes of one host, through memory that both map. Part of the library: it needs nothing
// but the kernel.
#pragma once

#include "dcuda/detail/protocol/memory.hpp"
#include "transport/network.hpp"

namespace dcuda::transport {

// The numbers of the writes from one process to one other. A slot holds a number and one, or 0 while it is free; each
// side has an object of its own over the slots that both map.
//
// ORDER write_publish, write_observe: what the writer wrote to the target's memory, or saw copied there by a device's
// copy engine, before push() is there for the reader that pop()s its number. A slot needs no order of its own: the
// writer only learns from it that it may be overwritten. That the *memory* may be written again is for the user of the
// network to find out, by a write in the other direction.
class write_queue {
public:
    static constexpr std::size_t capacity = 1024;

    explicit write_queue(std::uint32_t* slots) : slots_(slots) {} // `capacity` of them, 0 at first

    bool is_full() const { return detail::load_relaxed(slots_ + next_ % capacity) != 0; }

    // There must be room.
    void push(std::uint32_t number) {
        using namespace detail;
        atomic(slots_ + next_ % capacity).store(number + 1, order<order_tag::write_publish>(std::memory_order_release));
        ++next_;
    }

    // False: empty.
    bool pop(std::uint32_t& number) {
        using namespace detail;
        std::uint32_t* const slot = slots_ + next_ % capacity;
        const std::uint32_t found = load_acquire<order_tag::write_observe>(scope::system, slot);
        if (found == 0) return false;
        store_relaxed(slot, 0);
        ++next_;
        number = found - 1;
        return true;
    }

private:
    std::uint32_t* slots_;
    std::uint64_t next_ = 0;
};

// Memory of a process is known by its descriptor there, and opened as /proc/PID/fd/N: nothing is left behind when a
// process dies, and nothing has a name that another job could take.
std::unique_ptr<network> open_shm(const network_request& request);

} // namespace dcuda::transport
