// SPDX-License-Identifier: BSD-3-Clause
// Hands out process 0's data: what it read from a file that may be on no other host.
#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <vector>

#include "common/device_buffer.hpp"
#include "common/program.hpp"

namespace common {

// A piece of process 0's data for one device.
struct piece {
    std::size_t offset = 0; // in bytes
    std::size_t bytes = 0;
};

// One rank per device. Process 0 holds `data` and puts to every device d its piece pieces[d], to the start of `data`
// there; `pieces` and `bytes` count on process 0, and `bytes` elsewhere is the room for the piece.
__global__ void __launch_bounds__(1024)
    deal(dcuda::context context, std::byte* data, std::size_t bytes, const piece* pieces) {
    constexpr int deal_tag = 0;
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);

    const dcuda::window win = self.create_window(dcuda::world, data, bytes);
    if (self.id() == 0) {
        for (int device = 1; device < self.size(); ++device)
            self.put_notify(win, device, 0, pieces[device].bytes, data + pieces[device].offset, deal_tag);
    } else {
        self.wait_notifications(deal_tag, 1);
    }
    self.free_window(win);
}

// `data` of every process but the first becomes its piece, and has the room for it. Collective over the processes.
template <class Element>
void deal_out(dcuda::runtime& runtime, std::vector<Element>& data, const std::vector<piece>& pieces) {
    device_buffer<Element> buffer(data.size());
    device_buffer<piece> device_pieces(pieces.size());
    buffer.upload(data.data(), data.size());
    device_pieces.upload(pieces.data(), pieces.size());
    const dcuda::launch_config config{dim3(32), 0, 1};
    runtime.run(deal, config, reinterpret_cast<std::byte*>(buffer.data()), buffer.bytes(), device_pieces.data());
    buffer.download(data.data(), data.size());
}

// Process 0 does what may fail, such as reading a file. If it throws, all processes throw agreed_error.
template <class Action>
void do_on_first(session& here, const Action& action) {
    std::vector<long long> failed(2); // 16 bytes
    std::string reason;
    if (here.first()) {
        try {
            action();
        } catch (const std::exception& caught) {
            failed[0] = 1;
            reason = caught.what();
        }
    }
    const auto processes = static_cast<std::size_t>(here.job.process_count);
    if (processes > 1) deal_out(here.runtime, failed, std::vector<piece>(processes, {0, 16}));
    if (failed[0] != 0) throw agreed_error(reason);
}

} // namespace common
