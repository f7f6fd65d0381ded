// SPDX-License-Identifier: BSD-3-Clause
// How many small messages ranks exchange in a time, on one device and with another one; and how halos in many pieces
// do. Over a network also what that costs the host.
#include "common/session.hpp"
#include "dcuda/dcuda.hpp"

namespace benchmark {
namespace {

constexpr int data_tag = 0, answer_tag = 1;

// The first `senders` ranks of device 0 put `pieces` notified messages to a partner of their own, which answers once
// all have come.
struct stream_of_messages {
    dcuda::communicator comm; // device: the partners are on the same one, and other devices have no senders
    int senders;              // 0 on other devices
    int distance;             // from a sender to its partner, as ranks of the communicator
    int pieces;
    std::size_t bytes; // of a message
    int batches;
    unsigned char* memory; // for each rank of a device room for all pieces, twice
    interval* stamps;
    mistake* wrong;
};

__global__ void __launch_bounds__(most_threads) stream(dcuda::context context, stream_of_messages of) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int id = self.id(of.comm), sender = id - of.distance;
    const bool sends = id < of.senders, receives = sender >= 0 && sender < of.senders;
    const std::size_t room = static_cast<std::size_t>(of.pieces) * of.bytes;
    unsigned char* const landing = of.memory + 2 * room * blockIdx.x;
    unsigned char* const source = landing + room;
    const dcuda::window window = self.create_window(of.comm, landing, 2 * room);
    for (int batch = -1; batch < of.batches; ++batch) {
        if (sends) fill(source, room, batch, id);
        self.barrier(of.comm);
        const std::uint64_t start = now_ns();
        if (sends) {
            for (int i = 0; i < of.pieces; ++i) {
                const std::size_t offset = static_cast<std::size_t>(i) * of.bytes;
                self.put_notify(window, id + of.distance, offset, of.bytes, source + offset, data_tag);
            }
            self.wait_notifications(answer_tag, 1);
        } else if (receives) {
            self.wait_notifications(data_tag, of.pieces);
            self.notify(sender, of.comm, answer_tag);
        }
        const std::uint64_t stop = now_ns();
        if (sends && batch >= 0 && threadIdx.x == 0) of.stamps[batch * of.senders + id] = {start, stop};
        self.barrier(of.comm);
        if (receives) compare(of.wrong, landing, room, batch, sender);
    }
    self.free_window(window);
}

// What the path carries: each sender stores the packets of such messages, 12 B of payload in 16 B and one more for the
// header, as one warp; nobody takes them, and nobody waits for room. `targets`: 16 KiB for each sender.
constexpr std::uint32_t packets_of_ring = 1024;
__global__ void __launch_bounds__(most_threads)
    raw_stream(dcuda::context context, stream_of_messages of, packet* targets) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int id = self.id(of.comm);
    const auto packets = static_cast<std::uint32_t>((of.bytes + 11) / 12 + 1);
    packet* const ring = targets + static_cast<std::size_t>(blockIdx.x) * packets_of_ring;
    for (int batch = -1; batch < of.batches; ++batch) {
        self.barrier(of.comm);
        const std::uint64_t start = now_ns();
        if (id < of.senders) {
            std::uint32_t first = 0;
            for (int i = 0; i < of.pieces; ++i, first += packets)
                for (std::uint32_t k = threadIdx.x; k < packets; k += blockDim.x)
                    store_packet(ring + (first + k) % packets_of_ring, {{k, k, k}, first});
            complete_stores();
        }
        __syncthreads();
        const std::uint64_t stop = now_ns();
        if (id < of.senders && batch >= 0 && threadIdx.x == 0) of.stamps[batch * of.senders + id] = {start, stop};
    }
}

struct shape_of_traffic {
    const char* operation;
    int senders, pieces;
    std::size_t bytes;
};

class bench {
public:
    bench(session& suite, bool peer)
        : suite_(suite), peer_(peer), is_remote_(peer && !suite.runtime.network().empty()),
          batches_(suite.batches(12, 6)) {}

    void run() {
        // On one device as many ranks take messages as send them.
        const int most = suite_.runtime.plan(stream, shape(threads, 0)).rank_responsible / (peer_ ? 1 : 2);
        const int all = suite_.multiprocessors;
        std::vector<int> counts{1};
        for (const int count :
             is_remote_ ? std::vector<int>{by_backend(64, 4)} : std::vector<int>{all, 4 * all, 8 * all, 16 * all})
            if (count > counts.back() && count <= by_backend(most, 4)) counts.push_back(count);
        for (const int senders : counts) measure({"messages", senders, 1000, suite_.chosen.messages.bytes});
        if (!peer_) return;
        measure({"26 pieces", 1, 26, 1024});
        measure({"208 pieces", 1, 208, 416});
    }

private:
    static constexpr int threads = 32;

    void measure(const shape_of_traffic& traffic) {
        const auto& [operation, senders, pieces, bytes] = traffic;
        row ours{"messages", peer_ ? suite_.other_device() : "same device", operation, bytes, threads, senders};
        const bool is_rate = operation == std::string("messages");
        const int ranks = peer_ ? senders : 2 * senders, count = is_rate ? suite_.rounds(pieces, pieces) : pieces;
        const auto memory =
            allocate<unsigned char>(2 * static_cast<std::size_t>(count) * bytes * static_cast<std::size_t>(ranks));
        const results measured(batches_, senders);
        const stream_of_messages of{peer_ ? dcuda::world : dcuda::device,
                                    peer_ || suite_.first() ? senders : 0,
                                    senders,
                                    count,
                                    bytes,
                                    batches_,
                                    memory.get(),
                                    measured.stamps(),
                                    measured.wrong()};
        suite_.run(ours, stream, shape(threads, ranks), of);
        measured.require_right(ours);
        const auto value = [&, in_all = static_cast<double>(count) * senders] {
            return measure::summarise(is_rate ? rate(in_all, measured.microseconds()) : measured.microseconds());
        };
        ours.unit = is_rate ? "M/s" : "us";
        ours.value = value();
        if (is_rate && !is_remote_) {
            const std::size_t packets = static_cast<std::size_t>(ranks) * packets_of_ring;
            if (peer_) {
                neighbour_memory other(suite_.runtime, packets * sizeof(packet));
                suite_.runtime.run(raw_stream, shape(threads, ranks), of, reinterpret_cast<packet*>(other.theirs()));
            } else {
                const auto own = allocate<packet>(packets);
                suite_.runtime.run(raw_stream, shape(threads, ranks), of, own.get());
            }
            ours.rivals.push_back({"raw packets", value().median});
        }
        suite_.rows.push_back(ours);
    }

    session& suite_;
    bool peer_, is_remote_; // the partners are on another device; and are reached over a network only
    int batches_;
};

} // namespace

void measure_messages(session& suite) {
    bench(suite, false).run();
    if (suite.job.process_count >= 2) {
        bench(suite, true).run();
        return;
    }
    row none{"messages", suite.other_device(), "messages"};
    none.unit = "M/s";
    suite.add_missing(none);
}

} // namespace benchmark
