// SPDX-License-Identifier: BSD-3-Clause
// Bandwidth of puts by 1, 16, half and all ranks of a device, from when the first begins to when the last one's flush
// has returned; and of notified puts by the Hockney model. Beside: the same stores without the library, and the copy
// engine.
#include "common/session.hpp"
#include "dcuda/dcuda.hpp"

namespace benchmark {
namespace {

constexpr int data_tag = 0, answer_tag = 1;
constexpr std::size_t most_bytes = std::size_t{4} << 30; // of the sources of a device
constexpr const char* too_much = "the sources of a device would be more than 4 GiB";

// Ranks 0 to sources - 1 of device 0 put, each into the landing buffer of one other rank. Every rank has two buffers,
// landing and source, one after the other: sources lie in the window, too.
struct traffic {
    dcuda::communicator comm; // device: both ranks on one device; other devices have no sources
    unsigned char* memory;
    std::size_t bytes; // of a buffer
    int sources;
    int distance; // rank of the target less that of the source, in the communicator, modulo its size
    int puts;     // of a batch
    int batches;
    interval* stamps;
    mistake* wrong;
};

// All ranks: fills and meets, then the sources move(), then the targets compare.
template <class Move>
DCUDA_DEVICE void transfer(dcuda::rank& self, const traffic& of, const Move& move) {
    const int id = self.id(of.comm), size = self.size(of.comm), from = (id - of.distance + size) % size;
    unsigned char* const landing = of.memory + 2 * of.bytes * blockIdx.x;
    unsigned char* const source = landing + of.bytes;
    const bool sends = id < of.sources, receives = from < of.sources;
    for (int batch = -1; batch < of.batches; ++batch) {
        if (sends) fill(source, of.bytes, batch, id);
        self.barrier(of.comm);
        const std::uint64_t start = now_ns();
        if (sends) move(source, (id + of.distance) % size);
        const std::uint64_t stop = now_ns();
        if (sends && batch >= 0 && threadIdx.x == 0) of.stamps[batch * of.sources + id] = {start, stop};
        self.barrier(of.comm);
        if (receives) compare(of.wrong, landing, of.bytes, batch, from);
    }
}

__global__ void put_traffic(dcuda::context context, traffic of) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const dcuda::window window = self.create_window(of.comm, of.memory + 2 * of.bytes * blockIdx.x, 2 * of.bytes);
    transfer(self, of, [&](const unsigned char* source, int target) {
        for (int i = 0; i < of.puts; ++i) self.put(window, target, 0, of.bytes, source);
        self.flush(window);
    });
    self.free_window(window);
}

// `others`: the buffers of the device on which the targets are, as they are seen here.
__global__ void raw_traffic(dcuda::context context, traffic of, unsigned char* others) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const auto ranks = static_cast<int>(gridDim.x);
    transfer(self, of, [&](const unsigned char* source, int target) {
        unsigned char* const landing = others + 2 * of.bytes * static_cast<std::size_t>(target % ranks);
        __syncthreads();
        for (int i = 0; i < of.puts; ++i) copy_block(landing, source, of.bytes);
        complete_stores();
        __syncthreads();
    });
}

// Each source puts with a notification and waits for its target's answer, which is a notification alone.
__global__ void notified_traffic(dcuda::context context, traffic of) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int id = self.id(of.comm), size = self.size(of.comm), from = (id - of.distance + size) % size;
    unsigned char* const landing = of.memory + 2 * of.bytes * blockIdx.x;
    unsigned char* const source = landing + of.bytes;
    const dcuda::window window = self.create_window(of.comm, landing, 2 * of.bytes);
    for (int batch = -1; batch < of.batches; ++batch) {
        if (id < of.sources) fill(source, of.bytes, batch, id);
        self.barrier(of.comm);
        const std::uint64_t start = now_ns();
        for (int i = 0; i < of.puts; ++i) {
            if (id < of.sources) {
                self.put_notify(window, (id + of.distance) % size, 0, of.bytes, source, data_tag);
                self.wait_notifications(answer_tag, 1);
            } else if (from < of.sources) {
                self.wait_notifications(data_tag, 1);
                self.notify(from, of.comm, answer_tag);
            }
        }
        const std::uint64_t stop = now_ns();
        if (id < of.sources && batch >= 0 && threadIdx.x == 0) of.stamps[batch * of.sources + id] = {start, stop};
        if (from < of.sources) compare(of.wrong, landing, of.bytes, batch, from);
        self.barrier(of.comm);
    }
    self.free_window(window);
}

// --- Host ------------------------------------------------------------------------------------------------------------

struct share {
    std::string name;
    int sources;
};

// 1, 16, half and all of the ranks that fit, without repetition.
std::vector<share> shares_of(int ranks, bool all) {
    std::vector<share> result{{"1 rank", 1}};
    if (ranks > 32) result.push_back({"16 ranks", 16});
    if (ranks > 3) result.push_back({"half of the ranks", ranks / 2});
    if (all && ranks > 1) result.push_back({"all ranks", ranks});
    return result;
}

class bench {
public:
    bench(session& suite, bool peer)
        : suite_(suite), peer_(peer), path_(peer ? suite.other_device() : "same device"),
          threads_(suite.chosen.bandwidth.threads), is_mapped_(peer && suite.runtime.network().empty()) {
        ranks_ = std::min(most_ranks(put_traffic), most_ranks(notified_traffic));
        raw_ranks_ = suite.runtime.plan(raw_traffic, shape(threads_, 0)).rank_responsible;
    }

    void run() {
        constexpr std::size_t message = 1 << 20;
        std::size_t largest = message;
        for (const std::size_t bytes : suite_.chosen.bandwidth.sizes) largest = std::max(largest, bytes);
        reserved_ = std::max(2 * largest, std::min(most_bytes, largest * static_cast<std::size_t>(ranks_)));
        if (is_mapped_)
            neighbour_ = std::make_unique<neighbour_memory>(suite_.runtime, 2 * reserved_);
        else
            own_ = allocate<unsigned char>(2 * reserved_);

        for (const std::size_t bytes : suite_.chosen.bandwidth.sizes) {
            for (const share& by : shares_of(ranks_, true)) measure_puts(by, bytes);
            if (is_mapped_) measure_copy_engine(bytes);
        }
        // On one device half of the ranks put, and the others are their targets.
        for (const share& by : shares_of(ranks_, peer_)) measure_hockney(by, message);
    }

private:
    template <class... Params>
    int most_ranks(void (*kernel)(dcuda::context, Params...)) {
        return suite_.runtime.plan(kernel, shape(threads_, 0)).rank_responsible;
    }

    bool has_room(std::size_t bytes, int ranks) const { return bytes * static_cast<std::size_t>(ranks) <= reserved_; }

    // How many ranks a device has while so many put: on one device, the targets are among them.
    int ranks_for(const share& by) const { return peer_ ? by.sources : std::max(2, by.sources); }

    traffic make_traffic(const share& by, std::size_t bytes, int puts, const results& measured, int batches) const {
        return {peer_ ? dcuda::world : dcuda::device,
                is_mapped_ ? neighbour_->own() : own_.get(),
                bytes,
                peer_ || suite_.first() ? by.sources : 0,
                peer_ ? ranks_for(by) : 1,
                puts,
                batches,
                measured.stamps(),
                measured.wrong()};
    }

    // So many that a batch takes a few milliseconds.
    int choose_puts(const share& by, std::size_t bytes) const {
        if (suite_.chosen.rounds > 0) return suite_.chosen.rounds;
        const double most = !peer_ ? 1e12 : is_mapped_ ? 350e9 : 10e9;
        const double expected_rate = by_backend(std::min(40e9 * by.sources, most), 2e9); // B/s
        const double puts = expected_rate * by_backend(2e-3, 1e-3) / (static_cast<double>(bytes) * by.sources);
        return std::clamp(static_cast<int>(puts), 1, 1000);
    }

    row make_row(const std::string& operation, const share& by, std::size_t bytes) const {
        row result{"bandwidth", path_, operation + ", " + by.name, bytes, threads_, by.sources};
        result.unit = "GB/s";
        return result;
    }

    void measure_puts(const share& by, std::size_t bytes) {
        row ours = make_row("put", by, bytes);
        if (!has_room(bytes, ranks_for(by))) {
            ours.missing = too_much;
            suite_.rows.push_back(ours);
            return;
        }
        const int batches = suite_.batches(10, 6), puts = choose_puts(by, bytes);
        const double kilobytes = 1e-3 * static_cast<double>(bytes) * by.sources * puts; // by microseconds: GB/s
        {
            const results measured(batches, by.sources);
            suite_.run(ours, put_traffic, shape(threads_, ranks_for(by)),
                       make_traffic(by, bytes, puts, measured, batches));
            measured.require_right(ours);
            ours.value = measure::summarise(rate(kilobytes, measured.microseconds()));
        }
        if ((is_mapped_ || !peer_) && ranks_for(by) <= raw_ranks_) {
            const results measured(batches, by.sources);
            const traffic of = make_traffic(by, bytes, puts, measured, batches);
            suite_.runtime.run(raw_traffic, shape(threads_, ranks_for(by)), of,
                               peer_ ? neighbour_->theirs() : of.memory);
            row raw = make_row("raw stores", by, bytes);
            measured.require_right(raw);
            raw.value = measure::summarise(rate(kilobytes, measured.microseconds()));
            ours.rivals.push_back({"raw stores", raw.value.median});
        }
        suite_.rows.push_back(ours);
    }

    // Process 0 alone copies; the others have nothing to do.
    void measure_copy_engine(std::size_t bytes) {
        if (!suite_.first()) return;
        row entry{"bandwidth", path_, "copy engine", bytes};
        entry.unit = "GB/s";
        check(cudaMemset(neighbour_->own(), 0x5a, bytes), "cannot fill device memory"); // what no pattern holds
        check(cudaDeviceSynchronize(), "cannot fill device memory");
        cudaStream_t stream = nullptr;
        cudaEvent_t start = nullptr, stop = nullptr;
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cannot create a stream");
        check(cudaEventCreate(&start), "cannot create an event");
        check(cudaEventCreate(&stop), "cannot create an event");
        const share all{"", 1};
        const int copies = choose_puts(all, bytes), batches = suite_.batches(10, 6);
        std::vector<double> samples;
        for (int batch = -1; batch < batches; ++batch) {
            check(cudaEventRecord(start, stream), "cannot record an event");
            for (int i = 0; i < copies; ++i)
                check(cudaMemcpyAsync(neighbour_->theirs(), neighbour_->own(), bytes, cudaMemcpyDefault, stream),
                      "cannot copy to the neighbour");
            check(cudaEventRecord(stop, stream), "cannot record an event");
            check(cudaStreamSynchronize(stream), "cannot copy to the neighbour");
            float ms = 0;
            check(cudaEventElapsedTime(&ms, start, stop), "cannot take the time");
            if (batch >= 0) samples.push_back(1e-6 * static_cast<double>(bytes) * copies / std::max(1e-6f, ms));
        }
        cudaEventDestroy(stop);
        cudaEventDestroy(start);
        cudaStreamDestroy(stream);
        if (download(neighbour_->own(), bytes) != download(neighbour_->theirs(), bytes))
            throw std::runtime_error("the copy engine's copy of " + std::to_string(bytes) + " B is wrong");
        entry.value = measure::summarise(samples);
        for (row& other : suite_.rows)
            if (other.benchmark == entry.benchmark && other.path == path_ && other.bytes == bytes)
                other.rivals.push_back({"copy engine", entry.value.median});
        suite_.rows.push_back(entry);
    }

    // B = s / (t(s) - L): what the time of a message grows by, beyond that of the smallest one in the same arrangement.
    void measure_hockney(const share& by, std::size_t bytes) {
        row ours = make_row("put_notify, Hockney", by, bytes);
        const int batches = suite_.batches(10, 6);
        const int ranks = peer_ ? by.sources : 2 * by.sources;
        if (!has_room(bytes, ranks)) {
            ours.missing = too_much;
            suite_.rows.push_back(ours);
            return;
        }
        const auto microseconds = [&](std::size_t size, int rounds) {
            const results measured(batches, by.sources);
            traffic of = make_traffic(by, size, rounds, measured, batches);
            of.distance = by.sources;
            suite_.run(ours, notified_traffic, shape(threads_, ranks), of);
            measured.require_right(ours);
            return scaled(measured.microseconds(), 1.0 / rounds);
        };
        const double latency = measure::summarise(microseconds(16, suite_.rounds(200, 20))).median;
        std::vector<double> samples;
        for (const double time : microseconds(bytes, choose_puts(by, bytes)))
            samples.push_back(1e-3 * static_cast<double>(bytes) * by.sources / std::max(1e-3, time - latency));
        ours.value = measure::summarise(samples);
        suite_.rows.push_back(ours);
    }

    session& suite_;
    bool peer_;
    std::string path_;
    int threads_, ranks_, raw_ranks_;
    bool is_mapped_;           // the other device's memory can be stored to
    std::size_t reserved_ = 0; // for the sources of a device, and as much for their targets
    device_array<unsigned char> own_;
    std::unique_ptr<neighbour_memory> neighbour_;
};

} // namespace

void measure_bandwidth(session& suite) {
    bench(suite, false).run();
    if (suite.job.process_count >= 2) {
        bench(suite, true).run();
        return;
    }
    row none{"bandwidth", suite.other_device(), "put"};
    none.unit = "GB/s";
    suite.add_missing(none);
}

} // namespace benchmark
