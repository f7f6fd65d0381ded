// SPDX-License-Identifier: BSD-3-Clause
// One-way latency between one rank and many others in turn: what it costs that a rank has many sources and targets.
#include "common/ping_pong.hpp"
#include "common/session.hpp"
#include "dcuda/dcuda.hpp"

namespace benchmark {
namespace {

struct party {
    int partners, laps, batches;
    int first_partner; // world rank
    std::size_t bytes; // of a message
};

// World rank 0 sends to each partner in turn, and waits for its answer before it sends to the next; all others watch.
// Each partner has a place of its own in the window of rank 0.
__global__ void in_turn(dcuda::context context, party of, unsigned char* memory, interval* stamps, mistake* wrong) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int id = self.id(), partner = id - of.first_partner;
    const bool plays = partner >= 0 && partner < of.partners;
    const std::size_t stride = stride_bytes(of.bytes);
    unsigned char* const source = memory + self.id(dcuda::device) * 2 * stride;
    unsigned char* const landing = id == 0 ? memory + self.size(dcuda::device) * 2 * stride : source + stride;
    const dcuda::window window = self.create_window(dcuda::world, landing,
                                                    id == 0 ? of.partners * stride
                                                    : plays ? stride
                                                            : 0);
    for (int batch = -1; batch < of.batches; ++batch) {
        if (id == 0 || plays) fill(source, of.bytes, batch, plays ? 1 + partner : 0);
        self.barrier(dcuda::world);
        if (id == 0) {
            const std::uint64_t start = now_ns();
            for (int lap = 0; lap < of.laps; ++lap)
                for (int i = 0; i < of.partners; ++i) {
                    self.put_notify(window, of.first_partner + i, 0, of.bytes, source, 0);
                    self.wait_notifications(0, 1);
                }
            const std::uint64_t stop = now_ns();
            if (batch >= 0 && threadIdx.x == 0) stamps[batch] = {start, stop};
        } else if (plays) {
            for (int lap = 0; lap < of.laps; ++lap) {
                self.wait_notifications(0, 1);
                self.put_notify(window, 0, partner * stride, of.bytes, source, 0);
            }
        }
        self.barrier(dcuda::world);
        if (plays) compare(wrong, landing, of.bytes, batch, 0);
        for (int i = 0; id == 0 && i < of.partners; ++i) compare(wrong, landing + i * stride, of.bytes, batch, 1 + i);
    }
    self.free_window(window);
}

row measure_partners_of(session& with, bool peer, int partners) {
    const auto& chosen = with.chosen.partners;
    row what{"partners",
             peer ? with.other_device() : "same device",
             "put_notify, " + std::to_string(partners) + (partners == 1 ? " partner" : " partners"),
             chosen.bytes,
             chosen.threads,
             peer ? partners : 1 + partners};
    const int laps = std::max(1, with.rounds(2000, 60) / partners), batches = with.batches(12, 6);
    const party of{partners, laps, batches, peer ? what.ranks : 1, chosen.bytes};
    const std::size_t stride = stride_bytes(chosen.bytes);
    const auto memory = allocate<unsigned char>(static_cast<std::size_t>(2 * what.ranks + partners) * stride);
    const results measured(batches, 1);
    with.run(what, in_turn, shape(what.threads, what.ranks), of, memory.get(), measured.stamps(), measured.wrong());
    measured.require_right(what);
    what.value = measure::summarise(scaled(measured.microseconds(), 0.5 / laps / partners));
    return what;
}

} // namespace

void measure_partners(session& with) {
    for (const bool peer : {false, true}) {
        if (peer && with.job.process_count < 2) {
            row none{"partners", with.other_device(), "put_notify"};
            none.missing = needs_two_processes;
            with.rows.push_back(none);
            continue;
        }
        for (const int partners : with.chosen.partners.partners)
            with.rows.push_back(measure_partners_of(with, peer, partners));
    }
}

} // namespace benchmark
