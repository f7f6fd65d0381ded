// SPDX-License-Identifier: BSD-3-Clause
// Messages between ranks of two devices: notified puts, and waits for them. Each rank has a part of every message.
#include "common/session.hpp"
#include "dcuda/dcuda.hpp"
#include "mpi/ways.hpp"

namespace benchmark {
namespace {

constexpr int message_tag = 0, answer_tag = 1;

struct messages_of_rank {
    dcuda::rank& self;
    dcuda::window window;
    const traffic& load;
    int partner;
    std::size_t first, bytes; // the rank's part of a message

    DCUDA_DEVICE void send(int message) {
        const std::size_t place = static_cast<std::size_t>(message) * load.bytes + first;
        self.put_notify(window, partner, place, bytes, load.source + place, message_tag);
    }
    DCUDA_DEVICE void wait(int count) { self.wait_notifications(message_tag, count); }

    DCUDA_DEVICE void take_turns(bool begins) {
        if (begins) send(0);
        for (int round = 0; round < load.rounds; ++round) {
            wait(1);
            if (!begins || round + 1 < load.rounds) send(0);
        }
    }
    DCUDA_DEVICE void send_windows() {
        for (int round = 0; round < load.rounds; ++round) {
            for (int message = 0; message < load.window; ++message) send(message);
            self.wait_notifications(answer_tag, 1);
        }
    }
    DCUDA_DEVICE void receive_windows() {
        for (int round = 0; round < load.rounds; ++round) {
            wait(load.window);
            self.notify(partner, dcuda::world, answer_tag);
        }
    }
};

__global__ void move_messages(dcuda::context context, traffic load, interval* stamps) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int number = self.id(dcuda::device), ranks = self.size(dcuda::device);
    const bool is_first_device = self.id() < ranks;
    constexpr std::size_t unit = 16;
    const std::size_t units = (load.bytes + unit - 1) / unit, all = static_cast<std::size_t>(ranks);
    const std::size_t share = (units + all - 1) / all * unit;
    const std::size_t begin = min(load.bytes, share * static_cast<std::size_t>(number)),
                      end = min(load.bytes, begin + share);
    const std::size_t window_bytes = load.bytes * static_cast<std::size_t>(max(1, load.window));
    const dcuda::window window = self.create_window(dcuda::world, load.landing, window_bytes);
    messages_of_rank own{self, window, load, is_first_device ? number + ranks : number, begin, end - begin};
    for (int batch = -1; batch < load.batches; ++batch) {
        self.barrier(dcuda::world);
        const std::uint64_t start = now_ns();
        if (own.bytes > 0) {
            if (load.window == 0)
                own.take_turns(is_first_device);
            else if (is_first_device)
                own.send_windows();
            else
                own.receive_windows();
        }
        const std::uint64_t stop = now_ns();
        if (batch >= 0 && threadIdx.x == 0) stamps[batch * ranks + number] = {start, stop};
    }
    self.free_window(window);
}

} // namespace

std::vector<double> time_messages_of_ranks(comparison& of, const traffic& load, int ranks) {
    const results measured(load.batches, ranks);
    of.runtime.run(move_messages, shape(by_backend(256, 32), ranks), load, measured.stamps());
    return measured.microseconds();
}

} // namespace benchmark
