// SPDX-License-Identifier: BSD-3-Clause
#include "transport/shm.hpp"

#include <thread>
#include <vector>

namespace litmus {

// write_publish, write_observe: two threads of the host, as two processes: one writes to the other's memory, with an
// answer by the same tags before it writes there again.
int writes(int rounds) {
    using dcuda::transport::write_queue;
    std::vector<std::uint32_t> slots(2 * write_queue::capacity);
    unsigned memory = 0, wrong = 0;
    const auto await = [](write_queue& queue) {
        std::uint32_t number = 0;
        while (!queue.pop(number)) dcuda::detail::pause_ns(0);
        return number;
    };
    std::uint32_t* const there = slots.data();
    std::uint32_t* const back = there + write_queue::capacity;
    std::thread reader([&] {
        write_queue in(there), out(back);
        for (int round = 0; round < rounds; ++round) {
            const std::uint32_t number = await(in);
            wrong += memory != number;
            out.push(number);
        }
    });
    write_queue out(there), in(back);
    for (int round = 0; round < rounds; ++round) {
        memory = static_cast<unsigned>(round);
        out.push(static_cast<std::uint32_t>(round));
        await(in);
    }
    reader.join();
    return wrong == 0 ? 0 : 1;
}

} // namespace litmus
