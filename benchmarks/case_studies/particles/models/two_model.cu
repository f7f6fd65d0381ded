// SPDX-License-Identifier: BSD-3-Clause
// Programs with two models, one for the device and one between devices: kernels on streams, and a library that the host
// calls. What all of them share; a carrier is what differs (common/models/).
//
// What another device needs is computed first, on a stream of high priority, where the exchange follows:
//     border stream      advance two segments at each border, exchange, sort the border segment and the neighbour's  |
//     interior stream    advance and sort the others                                                                 |
// The streams meet twice a step, but neither waits for all of the other: the interior is sorted when the border has
// advanced, and the border advances when the interior is sorted. So the interior goes on to its next step while data is
// still on its way.
//
// Messages that come take turns in two places: a neighbour that is a step ahead may already send the next one. It is
// never two ahead, for it needs what this device sends after it has used the last.
#include <algorithm>
#include <compare>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/agreed_error.hpp"
#include "common/models/carrier.hpp"
#include "common/models/streams.hpp"
#include "models/model.hpp"
#include "models/places.hpp"

namespace particles {

using common::carriers;
using common::check;
using common::device_buffer;
using common::event;
using common::graph;
using common::launching;
using common::stream;

namespace {

// --- Kernels ---------------------------------------------------------------------------------------------------------

// Two ranges of segments, such as those at both borders.
struct segments_of {
    range first, second;

    DCUDA_HOST_DEVICE int count() const { return first.count() + second.count(); }
    DCUDA_HOST_DEVICE int at(int index) const {
        return index < first.count() ? first.first + index : second.first + index - first.count();
    }
};

// What is done for each particle.
template <advance How>
struct advancing {
    two_model_task work;
    int turn, step;

    DCUDA_DEVICE int count(int segment) const { return count_before(work.base, How, segment); }
    DCUDA_DEVICE void begin(int segment) const { begin_segment(work, How, segment); }
    DCUDA_DEVICE int operator()(int segment, int i) const { return advance_one(work, How, turn, step, segment, i); }
    DCUDA_DEVICE tally& result(int segment) const { return work.tally_of(segment); }
};

struct surveying {
    two_model_task work;
    int turn;
    bool is_start;

    DCUDA_DEVICE int count(int segment) const { return work.base.block(segment).count(); }
    DCUDA_DEVICE void begin(int segment) const {
        result(segment).count = static_cast<unsigned long long>(count(segment));
    }
    DCUDA_DEVICE int operator()(int segment, int i) const {
        survey_one(work, turn, is_start, segment, i);
        return 0;
    }
    DCUDA_DEVICE tally& result(int segment) const { return work.tally_of(segment); }
};

template <class Team>
DCUDA_DEVICE void sort_in(const Team& team, const two_model_task& work, std::byte* memory, int segment, int turn,
                          int step) {
    const sort_space space(memory, work.base.whole.columns, work.base.capacity);
    space.clear(team, work.base.whole.columns);
    sort_segment(team, work, space, turn, step, segment);
}

// A device has many segments, and each must be sorted by one block: they should all run at once. Four of this size do
// on a multiprocessor.
constexpr int sorting_threads = 384, sorting_blocks = 4;
// Small blocks for a number of particles that changes: few threads without one, and what they take is free again soon.
// 1024 threads of a multiprocessor: more registers than they leave to each are of no use.
constexpr int most_threads = 256, most_blocks = 4;

#if DCUDA_BACKEND_CUDA

template <class Body>
__global__ void __launch_bounds__(most_threads, most_blocks)
    for_each_particle(const segments_of segments, const int blocks_of_segment, const Body body) {
    const int segment = segments.at(static_cast<int>(blockIdx.x) / blocks_of_segment);
    const int first = static_cast<int>(blockIdx.x) % blocks_of_segment * static_cast<int>(blockDim.x);
    const int count = body.count(segment), i = first + static_cast<int>(threadIdx.x);
    if (i == 0) body.begin(segment);
    if (first >= count) return;
    int partners = i < count ? body(segment, i) : 0;
    for (int lanes = 16; lanes > 0; lanes /= 2) partners += __shfl_xor_sync(0xffffffff, partners, lanes);
    if (threadIdx.x % 32 == 0 && partners > 0)
        atomicAdd(&body.result(segment).partners, static_cast<unsigned long long>(partners));
}

template <class Body>
void launch(const two_model_task& work, const segments_of& segments, int threads, const Body& body,
            cudaStream_t stream) {
    const int blocks = (work.base.capacity + threads - 1) / threads;
    for_each_particle<<<static_cast<unsigned>(segments.count() * blocks), static_cast<unsigned>(threads), 0, stream>>>(
        segments, blocks, body);
    check(cudaGetLastError(), "launching a kernel");
}

template <bool IsShared>
__global__ void __launch_bounds__(sorting_threads, sorting_blocks)
    sort_segments(const two_model_task work, const segments_of segments, const int turn, const int step) {
    extern __shared__ long long shared[];
    const int segment = segments.at(static_cast<int>(blockIdx.x));
    std::byte* const memory = IsShared ? reinterpret_cast<std::byte*>(shared) : work.scratch_of(segment);
    sort_in(block_team{}, work, memory, segment, turn, step);
}

// Whether the sort of a segment has room in shared memory.
bool fits_in_shared_memory(std::size_t bytes) {
    int device = 0, most = 0;
    check(cudaGetDevice(&device), "asking for the device");
    check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "asking for shared memory");
    if (bytes > static_cast<std::size_t>(most)) return false;
    check(
        cudaFuncSetAttribute(sort_segments<true>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
        "asking for shared memory");
    return true;
}

void launch_sort(const two_model_task& work, const segments_of& segments, int turn, int step, cudaStream_t stream) {
    const auto blocks = static_cast<unsigned>(segments.count());
    if (work.scratch == nullptr)
        sort_segments<true><<<blocks, sorting_threads, work.sort_bytes(), stream>>>(work, segments, turn, step);
    else
        sort_segments<false><<<blocks, sorting_threads, 0, stream>>>(work, segments, turn, step);
    check(cudaGetLastError(), "launching a kernel");
}

__global__ void add_steps(int* target, int steps) { *target += steps; }

void launch_add(int* target, int steps, cudaStream_t stream) {
    add_steps<<<1, 1, 0, stream>>>(target, steps);
    check(cudaGetLastError(), "launching a kernel");
}

#else

// Loops, as work of the stream.
template <class Body>
void launch(const two_model_task&, const segments_of& segments, int, const Body& body, cudaStream_t stream) {
    const auto loop = [=] {
        for (int index = 0; index < segments.count(); ++index) {
            const int segment = segments.at(index), count = body.count(segment);
            unsigned long long partners = 0;
            body.begin(segment);
            for (int i = 0; i < count; ++i) partners += static_cast<unsigned long long>(body(segment, i));
            if (partners > 0) body.result(segment).partners += partners;
        }
    };
    common::launch_on_host(loop, stream);
}

struct lone_team {
    static int index() { return 0; }
    static int size() { return 1; }
    static void sync() {}
};

bool fits_in_shared_memory(std::size_t) { return false; }

void launch_sort(const two_model_task& work, const segments_of& segments, int turn, int step, cudaStream_t stream) {
    const auto loop = [=] {
        for (int index = 0; index < segments.count(); ++index) {
            const int segment = segments.at(index);
            sort_in(lone_team{}, work, work.scratch_of(segment), segment, turn, step);
        }
    };
    common::launch_on_host(loop, stream);
}

void launch_add(int* target, int steps, cudaStream_t stream) {
    common::launch_on_host([=] { *target += steps; }, stream);
}

#endif

// --- The model -------------------------------------------------------------------------------------------------------

class two_model final : public common::model {
public:
    two_model(const setting& given, const std::string& carrier, launching how)
        : chosen_(given.chosen), known_(given.known), how_(how), threads_(given.threads) {
        if (threads_ % 32 != 0 || threads_ > most_threads)
            throw common::agreed_error("the model " + chosen_.model +
                                       " has --threads that are a multiple of 32, up to " +
                                       std::to_string(most_threads));
        const partition& segments = given.work.segments;
        work_.base = given.work;
        work_.own = segments.of_device(given.work.device);
        work_.room = list_room(given.work.capacity, chosen_.time_step);
        if (segments.devices > 1 && work_.own.count() < 2)
            throw common::agreed_error("the model " + chosen_.model +
                                       " needs two segments of each of several devices: use a larger --height");
        work_.has_neighbour[0] = given.work.device > 0;
        work_.has_neighbour[1] = given.work.device + 1 < segments.devices;
        allocate();
        divide();
        const std::vector<common::route> routes = connect();
        carrier_ = carriers::make(carrier, {processes_, message_memory_.data(), message_memory_.bytes(), routes});

        // Once without any particles, before anything is captured or timed: kernels are loaded and connections made
        // when first used.
        const auto list_count = static_cast<std::size_t>(given.work.stored.count()) * 3;
        check(cudaMemset(given.work.lists, 0, list_count * given.work.list_bytes()), "clearing the lists");
        load();
        survey(true);
        take_steps({true, 2, true});
        border_.wait_on_host();
    }
    ~two_model() override { cudaDeviceSynchronize(); }

    double run() override {
        load();
        survey(true);
        const double time = timed(work::all);
        survey(false);
        border_.wait_on_host();
        share_tallies();
        return time;
    }

    double exchange_alone() override { return has_neighbours() ? timed(work::exchanges) : 0.0; }

    std::string describe() const override { return carrier_->name(); }

private:
    enum class work { all, exchanges };
    // Some steps of a run, in one graph.
    struct part {
        bool is_first;
        int steps;
        bool is_last;
        auto operator<=>(const part&) const = default;
    };
    static constexpr int steps_per_graph = 100; // even, for the turns

    bool has_neighbours() const { return !messages_[0].empty(); }

    // --- Set-up

    void allocate() {
        const task& base = work_.base;
        const auto stored = static_cast<std::size_t>(base.stored.count());
        message_memory_ = device_buffer<std::byte>(two_model_task::message_count * work_.message_bytes());
        tallies_ = device_buffer<tally>(static_cast<std::size_t>(work_.own.count()));
        steps_before_ = device_buffer<int>(1);
        if (!fits_in_shared_memory(work_.sort_bytes())) {
            scratch_ = device_buffer<std::byte>(stored * work_.sort_bytes());
            work_.scratch = scratch_.data();
        }
        work_.messages = message_memory_.data();
        work_.tallies = tallies_.data();
        work_.steps_before = steps_before_.data();
    }

    // Which segments each stream has. Nothing for the border stream where there is no neighbour.
    void divide() {
        const range all = work_.own;
        const int before = work_.has_neighbour[0] ? 1 : 0, after = work_.has_neighbour[1] ? 1 : 0;
        const range first{all.first, std::min(all.first + 2 * before, all.last)};
        const range last{std::max(first.last, all.last - 2 * after), all.last};
        advance_at_border_ = {first, last};
        advance_inside_ = {{first.last, last.first}, {}};
        sort_at_border_ = {{all.first - before, all.first + before}, {all.last - after, all.last + after}};
        sort_inside_ = {{all.first + before, all.last - after}, {}};
    }

    std::vector<common::route> connect() {
        std::vector<common::route> routes;
        const std::size_t bytes = work_.message_bytes();
        for (int border = 0; border < 2; ++border) {
            if (!work_.has_neighbour[border]) continue;
            const int peer = work_.base.device + (border == 0 ? -1 : 1);
            routes.push_back({peer, bytes, bytes});
            for (int turn = 0; turn < 2; ++turn) {
                const auto there = static_cast<std::size_t>(two_model_task::index_in(1 - border, turn));
                messages_[turn].push_back(
                    {peer, work_.out(border).start, bytes, there * bytes, work_.in(border, turn).start, bytes});
            }
        }
        return routes;
    }

    // --- A run

    // Particles from the lists to blocks; nothing is counted so far.
    void load() {
        check(cudaDeviceSynchronize(), "copying the particles"); // these streams do not wait for what put them there
        const auto clear = [&](void* memory, std::size_t bytes) {
            check(cudaMemsetAsync(memory, 0, bytes, border_.get()), "clearing memory");
        };
        clear(message_memory_.data(), message_memory_.bytes());
        clear(tallies_.data(), tallies_.bytes());
        clear(steps_before_.data(), steps_before_.bytes());
        meet(); // nobody sends to what is still to be cleared
        advance_all<advance::load>({work_.own, {}}, 0, border_);
        bring(0);
        sort({{sort_at_border_.first.first, sort_at_border_.second.last}, {}}, 0, border_);
    }

    void survey(bool is_start) {
        const int turn = task::turn_after(is_start ? 0 : chosen_.steps);
        launch(work_, {work_.own, {}}, threads_, surveying{work_, turn, is_start}, border_.get());
    }

    // The neighbours begin together: after an exchange.
    double timed(work kind) {
        meet(); // nobody still uses what came in the last even step
        bring(0);
        border_.wait_on_host();
        std::vector<part> parts;
        const int at_once = how_ == launching::in_graphs ? steps_per_graph : std::max(1, chosen_.steps);
        for (int from = 0; from < chosen_.steps; from += at_once)
            parts.push_back({from == 0, std::min(at_once, chosen_.steps - from), from + at_once >= chosen_.steps});
        if (how_ == launching::in_graphs)
            for (const part& some : parts) captured(kind, some);
        border_.wait_on_host();
        start_.record(border_);
        for (const part& some : parts) {
            if (how_ == launching::in_graphs)
                captured(kind, some).launch(border_);
            else
                enqueue(kind, some);
        }
        stop_.record(border_);
        border_.wait_on_host();
        return processes_.largest(milliseconds(start_, stop_));
    }

    const graph& captured(work kind, const part& some) {
        std::unique_ptr<graph>& made = graphs_[{kind, some}];
        if (made == nullptr) made = std::make_unique<graph>(border_, [&] { enqueue(kind, some); });
        return *made;
    }

    void enqueue(work kind, const part& some) {
        if (kind == work::all)
            take_steps(some);
        else
            for (int step = 1; step <= some.steps; ++step) bring(step % 2);
    }

    void take_steps(const part& some) {
        begun_.record(border_);
        begun_.hold_up(interior_);
        advance_next(some, 1, advance_inside_, interior_);
        advance_next(some, 1, advance_at_border_, border_);
        for (int step = 1; step <= some.steps; ++step) {
            if (has_neighbours()) {
                advanced_.record(border_);
                advanced_.hold_up(interior_);
            }
            sort(sort_inside_, step, interior_);
            if (has_neighbours()) sorted_.record(interior_);
            // Now, for the host may wait for the exchange.
            advance_next(some, step + 1, advance_inside_, interior_);
            if (!has_neighbours()) continue;
            bring(step % 2);
            sort(sort_at_border_, step, border_);
            sorted_.hold_up(border_);
            advance_next(some, step + 1, advance_at_border_, border_);
        }
        done_.record(interior_);
        done_.hold_up(border_);
        launch_add(work_.steps_before, some.steps, border_.get());
    }

    // The advance that a step begins with, or the one after the last step, or none.
    void advance_next(const part& some, int step, const segments_of& segments, const stream& on) {
        if (step <= some.steps)
            some.is_first&& step == 1 ? advance_all<advance::first>(segments, step, on)
                                      : advance_all<advance::middle>(segments, step, on);
        else if (some.is_last)
            advance_all<advance::end>(segments, step, on);
    }

    template <advance How>
    void advance_all(const segments_of& segments, int step, const stream& on) {
        if (segments.count() > 0) launch(work_, segments, threads_, advancing<How>{work_, step % 2, step}, on.get());
    }
    void sort(const segments_of& segments, int step, const stream& on) {
        if (segments.count() > 0) launch_sort(work_, segments, step % 2, step, on.get());
    }
    void bring(int turn) { carrier_->bring(messages_[turn], border_.get()); }

    void meet() {
        border_.wait_on_host();
        if (processes_.count() > 1) processes_.gather(0, "meeting");
    }

    // One tally of each device.
    void share_tallies() {
        std::vector<tally> of_segments(tallies_.count());
        tallies_.download(of_segments.data(), of_segments.size());
        tally own;
        for (const tally& one : of_segments) own += one;
        known_ = processes_.gather(own, "tallies");
    }

    const options& chosen_;
    std::vector<tally>& known_;
    launching how_;
    int threads_;
    two_model_task work_;
    segments_of advance_at_border_, advance_inside_, sort_at_border_, sort_inside_;
    device_buffer<std::byte> message_memory_, scratch_;
    device_buffer<tally> tallies_;
    device_buffer<int> steps_before_;
    std::vector<common::message> messages_[2]; // of even and of odd steps
    common::processes processes_;
    std::unique_ptr<common::carrier> carrier_;
    stream border_{stream::priority::high}, interior_{stream::priority::low};
    event begun_{cudaEventDisableTiming}, advanced_{cudaEventDisableTiming}, sorted_{cudaEventDisableTiming},
        done_{cudaEventDisableTiming}, start_{cudaEventDefault}, stop_{cudaEventDefault};
    std::map<std::pair<work, part>, std::unique_ptr<graph>> graphs_;
};

const common::two_models<two_model, setting> made({"plain", "host", "mpi", "nccl"});

} // namespace

std::size_t message_bytes(int capacity, double time_step) {
    return message_view::bytes_of(capacity, list_room(capacity, time_step));
}

} // namespace particles
