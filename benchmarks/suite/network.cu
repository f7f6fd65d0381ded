// SPDX-License-Identifier: BSD-3-Clause
// The network path: how many small messages two processes exchange, how halos in many pieces do, and what that costs
// the host.
#include "common/session.hpp"
#include "dcuda/dcuda.hpp"

namespace benchmark {
namespace {

constexpr int data_tag = 0, answer_tag = 1;

// Each of the ranks of device 0 puts `pieces` notified messages to its partner, the rank of device 1 with the same
// number, which answers once all have come.
__global__ void stream(dcuda::context context, int senders, int pieces, std::size_t bytes, int batches,
                       unsigned char* memory, interval* stamps, mistake* wrong) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int id = self.id(), ranks = self.size(dcuda::device);
    const bool sends = id < senders, receives = id >= ranks && id < ranks + senders;
    const std::size_t room = static_cast<std::size_t>(pieces) * bytes;
    unsigned char* const landing = memory + 2 * room * blockIdx.x;
    unsigned char* const source = landing + room;
    const dcuda::window window = self.create_window(dcuda::world, landing, 2 * room);
    for (int batch = -1; batch < batches; ++batch) {
        if (sends) fill(source, room, batch, id);
        self.barrier(dcuda::world);
        const std::uint64_t start = now_ns();
        if (sends) {
            for (int i = 0; i < pieces; ++i) {
                const std::size_t offset = static_cast<std::size_t>(i) * bytes;
                self.put_notify(window, id + ranks, offset, bytes, source + offset, data_tag);
            }
            self.wait_notifications(answer_tag, 1);
        } else if (receives) {
            self.wait_notifications(data_tag, pieces);
            self.notify(id - ranks, dcuda::world, answer_tag);
        }
        const std::uint64_t stop = now_ns();
        if (sends && batch >= 0 && threadIdx.x == 0) stamps[batch * senders + id] = {start, stop};
        self.barrier(dcuda::world);
        if (receives) compare(wrong, landing, room, batch, id - ranks);
    }
    self.free_window(window);
}

struct shape_of_traffic {
    const char* operation;
    int senders, pieces;
    std::size_t bytes;
};

} // namespace

void measure_network(session& with) {
    const int many = by_backend(64, 4);
    const shape_of_traffic kinds[] = {{"messages", 1, 1000, 64},
                                      {"messages", many, 1000, 64},
                                      {"26 pieces", 1, 26, 1024},
                                      {"208 pieces", 1, 208, 416}};
    const int threads = 32, batches = with.batches(12, 6);
    for (const auto& [operation, senders, pieces, bytes] : kinds) {
        row what{"network", with.other_device(), operation, bytes, threads, senders};
        if (with.job.process_count < 2) {
            with.add_missing(what);
            continue;
        }
        const std::size_t room = static_cast<std::size_t>(pieces) * bytes;
        const auto memory = allocate<unsigned char>(2 * room * static_cast<std::size_t>(senders));
        const results measured(batches, senders);
        with.run(what, stream, shape(threads, senders), senders, pieces, bytes, batches, memory.get(),
                 measured.stamps(), measured.wrong());
        measured.require_right(what);
        const bool is_rate = operation == std::string("messages");
        what.unit = is_rate ? "M/s" : "us";
        what.value = measure::summarise(is_rate ? rate(static_cast<double>(pieces) * senders, measured.microseconds())
                                                : measured.microseconds());
        with.rows.push_back(what);
    }
}

} // namespace benchmark
