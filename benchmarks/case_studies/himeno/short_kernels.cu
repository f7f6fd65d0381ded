// SPDX-License-Identifier: BSD-3-Clause
#include "short_kernels.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "common/models/carrier.hpp"
#include "common/models/streams.hpp"
#include "dcuda/stream.hpp"
#include "half_step.hpp"
#include "tail_launch.hpp"

namespace himeno {

using common::check;
using common::device_buffer;
using common::event;
using common::graph;
using common::stream;

namespace {

// --- Kernels ---------------------------------------------------------------------------------------------------------

template <bool IsFused>
__global__ void __launch_bounds__(block_threads) compute_half(slab work, half_step part, sums squares) {
    compute<IsFused>(work, part, squares);
}

template <bool IsFused>
__global__ void __launch_bounds__(block_threads)
    compute_half_and_send(slab work, half_step part, sums squares, triggers by, dcuda::role_words* words) {
    compute_and_send<IsFused>(work, part, squares, by, words);
}

template <class... Params, class... Args>
void launch(void (*kernel)(Params...), int blocks, int threads, const stream& on, const Args&... arguments) {
    cudaLaunchConfig_t shape{};
    shape.gridDim = dim3(static_cast<unsigned>(blocks));
    shape.blockDim = dim3(static_cast<unsigned>(threads));
    shape.stream = on.get();
    check(cudaLaunchKernelEx(&shape, kernel, static_cast<Params>(arguments)...), "launching a kernel");
}

// --- What all ways have in common -----------------------------------------------------------------------------------

class halves : public short_kernels {
public:
    halves(dcuda::runtime& runtime, const options& chosen, const slab& work)
        : runtime_(runtime), chosen_(chosen), work_(work), sums_(2) {
        const range planes = work_.computed();
        const int middle = planes.first + (planes.count() + 1) / 2;
        ranges_ = {range{planes.first, middle}, range{middle, planes.last}};
        for (const int beside : {-1, 1}) {
            const int device = work_.device + beside;
            if (device < 0 || device >= work_.planes.devices || planes.empty() || work_.computed_by(device).empty())
                continue;
            neighbours_[side(beside)] = device;
        }
    }

    double gosa() const override {
        double both[2];
        sums_.download(both, 2);
        return both[(chosen_.steps + 1) % 2];
    }

    double run(common::kernel_energy& energy) override {
        energy_ = &energy;
        sums_.clear();
        prepare();
        check(cudaDeviceSynchronize(), "the kernels failed");
        energy.begin();
        runtime_.barrier(); // everybody's pressure is there
        start_.record(compute_);
        if (chosen_.steps > 0) all_steps();
        stop_.record(compute_);
        rest_until_done();
        energy.end();
        return milliseconds(start_, stop_);
    }

protected:
    // Once before the first run.
    virtual void prepare() {}
    virtual void all_steps() = 0;

    static std::size_t side(int beside) { return beside < 0 ? 0 : 1; }
    bool has(int beside) const { return neighbours_[side(beside)] >= 0; }
    int neighbour(int beside) const { return neighbours_[side(beside)]; }
    bool has_lower_half() const { return !ranges_[1].empty(); }
    std::size_t plane_bytes() const { return work_.whole.plane() * sizeof(float); }
    // The border plane that step `step` has written beside that neighbour.
    int border_plane(int beside) const { return beside < 0 ? work_.computed().first : work_.computed().last - 1; }
    float* border(int step, int beside) const {
        return work_.pressure[(step + 1) % 2] + work_.place(work_.device, border_plane(beside), 0, 0);
    }
    std::size_t place_there(int step, int beside) const {
        return work_.place_in_window(neighbour(beside), step, border_plane(beside), 0);
    }

    half_step part_of_step(int step, int beside) const {
        half_step part{ranges_[side(beside)], 1, step % 2};
        if (part.planes.empty()) return part;
        // Enough blocks for the whole GPU, of as many planes as they can have then.
        const int wanted = DCUDA_BACKEND_CUDA ? 8 * multiprocessors_ : 1;
        const int segments = std::clamp(wanted / part.tiles(work_.whole), 1, part.planes.count());
        part.planes_of_block = (part.planes.count() + segments - 1) / segments;
        return part;
    }
    sums sums_of(int beside) const {
        // Where there is no lower half, the upper one clears.
        return {sums_.data(), beside > 0 || !has_lower_half()};
    }
    void compute(int step, int beside) const {
        const half_step part = part_of_step(step, beside);
        if (part.planes.empty()) return;
        launch(chosen_.is_fused ? compute_half<true> : compute_half<false>, part.blocks(work_.whole), block_threads,
               compute_, work_, part, sums_of(beside));
    }

    // The host looks now and then.
    void rest_until_done() const {
        for (;;) {
            energy_->poll();
            const cudaError_t state = cudaStreamQuery(compute_.get());
            if (state == cudaSuccess) return;
            if (state != cudaErrorNotReady) check(state, "the kernels failed");
            std::this_thread::sleep_for(rest_);
        }
    }

    dcuda::runtime& runtime_;
    const options& chosen_;
    slab work_;
    std::array<range, 2> ranges_; // upper and lower half
    std::array<int, 2> neighbours_{-1, -1};
    device_buffer<double> sums_;
    int multiprocessors_ = common::multiprocessors();
    stream compute_{stream::priority::high};
    event start_{cudaEventDefault}, stop_{cudaEventDefault};
    std::chrono::microseconds rest_{5000};
    common::kernel_energy* energy_ = nullptr; // of the run
};

// --- In stream order, by graphs, and by kernels ----------------------------------------------------------------------

class by_port : public halves {
public:
    by_port(dcuda::runtime& runtime, const options& chosen, const slab& work)
        : halves(runtime, chosen, work), words_(2), port_(runtime, 2) {
        words_.clear();
    }

    std::string describe() const override { return "stream port"; }

protected:
    // Tags: 0 for planes that come from above, 1 for those from below.
    static int tag_from(int beside) { return beside < 0 ? 0 : 1; }

    void wait(int beside) {
        if (has(beside)) port_.wait_from(neighbour(beside), tag_from(beside), 1, compute_.get());
    }
    void send(int step, int beside) {
        if (has(beside))
            port_.put_notify(work_.window, neighbour(beside), place_there(step, beside), border(step, beside),
                             plane_bytes(), tag_from(-beside), compute_.get());
    }

    // A step in stream order.
    void iterate(int step) {
        if (step > 0) wait(-1);
        if (step > 0 && !has_lower_half()) wait(1);
        compute(step, -1);
        send(step, -1);
        if (step > 0 && has_lower_half()) wait(1);
        compute(step, 1);
        send(step, 1);
    }
    void take_the_last_planes() {
        wait(-1);
        wait(1);
    }
    // Of a half whose kernel waits and sends by itself.
    triggers triggers_of(int step, int beside) {
        triggers by{};
        for (const int other : {-1, 1}) {
            if (!has(other) || (other != beside && has_lower_half())) continue;
            if (step > 0) by.waits[by.wait_count++] = port_.prepare_wait_from(neighbour(other), tag_from(other), 1);
            by.puts[by.put_count++] = port_.prepare_put_notify(work_.window, neighbour(other), place_there(step, other),
                                                               border(step, other), plane_bytes(), tag_from(-other));
        }
        return by;
    }

    device_buffer<dcuda::role_words> words_; // of the upper and lower half
    dcuda::stream_port port_;
};

class stream_order final : public by_port {
    using by_port::by_port;
    void all_steps() override {
        for (int step = 0; step < chosen_.steps; ++step) {
            iterate(step);
            energy_->poll();
        }
        take_the_last_planes();
    }
};

class kernel_order final : public by_port {
public:
    using by_port::by_port;
    std::string describe() const override { return "kernels that wait and put by themselves"; }

private:
    void all_steps() override {
        for (int step = 0; step < chosen_.steps; ++step) {
            for (const int beside : {-1, 1}) compute_and_send(step, beside);
            energy_->poll();
        }
        take_the_last_planes();
    }

    void compute_and_send(int step, int beside) {
        const half_step part = part_of_step(step, beside);
        if (part.planes.empty()) return;
        launch(chosen_.is_fused ? compute_half_and_send<true> : compute_half_and_send<false>, part.blocks(work_.whole),
               block_threads, compute_, work_, part, sums_of(beside), triggers_of(step, beside),
               words_.data() + side(beside));
    }
};

#if DCUDA_BACKEND_CUDA

// Steps in graphs. A graph's steps all wait, so step 0 is no part of one.
class stream_graph final : public by_port {
public:
    using by_port::by_port;
    std::string describe() const override { return "stream port, in graphs"; }

private:
    static constexpr int steps_of_graph = 100; // even, for the two arrays take turns

    void prepare() override {
        for (const int steps : {steps_of_graph, rest()})
            if (steps > 0 && steps < chosen_.steps) captured(steps);
    }
    int rest() const { return (chosen_.steps - 1) % steps_of_graph; }

    void all_steps() override {
        iterate(0);
        for (int step = 1; step + steps_of_graph <= chosen_.steps; step += steps_of_graph)
            captured(steps_of_graph).launch(compute_);
        if (rest() > 0) captured(rest()).launch(compute_);
        take_the_last_planes();
    }

    const graph& captured(int steps) {
        std::unique_ptr<graph>& made = graphs_[steps];
        if (made == nullptr)
            made = std::make_unique<graph>(compute_, [&] {
                for (int step = 1; step <= steps; ++step) iterate(step);
            });
        return *made;
    }

    std::map<int, std::unique_ptr<graph>> graphs_;
};

// The device starts the next two steps: a graph that launches itself again, or a loop in a graph.
__global__ void launch_again(int* rounds) {
    if (--*rounds > 0 && cudaGraphLaunch(cudaGetCurrentGraphExec(), cudaStreamGraphTailLaunch) != cudaSuccess) __trap();
}
__global__ void go_on(cudaGraphConditionalHandle loop, int* rounds) {
    cudaGraphSetConditional(loop, --*rounds > 0 ? 1 : 0);
}

class device_controlled : public by_port {
public:
    device_controlled(dcuda::runtime& runtime, const options& chosen, const slab& work)
        : by_port(runtime, chosen, work), rounds_(1) {}
    ~device_controlled() override {
        if (ready_ != nullptr) cudaGraphExecDestroy(ready_);
    }

protected:
    virtual cudaGraphExec_t make() = 0;

    void prepare() override {
        if (ready_ == nullptr && rounds() > 0) {
            ready_ = make();
            check(cudaGraphUpload(ready_, compute_.get()), "uploading a graph");
        }
        const int count = rounds();
        rounds_.upload(&count, 1);
    }
    void iterate_twice() {
        iterate(1);
        iterate(2);
    }
    // Of two steps each; what is left begins.
    int rounds() const { return (chosen_.steps - 1) / 2; }

    void all_steps() override {
        iterate(0);
        if (rounds() > 0) {
            check(cudaGraphLaunch(ready_, compute_.get()), "launching a graph");
            // Whether or not the stream counts the graph's launches of itself as part of the first.
            port_.wait_word(reinterpret_cast<const std::uint32_t*>(rounds_.data()), 0, dcuda::comparison::equal,
                            compute_.get());
        }
        if (chosen_.steps % 2 == 0) iterate(chosen_.steps - 1);
        take_the_last_planes();
    }

    device_buffer<int> rounds_; // left

private:
    cudaGraphExec_t ready_ = nullptr;
};

class device_graph final : public device_controlled {
public:
    using device_controlled::device_controlled;
    std::string describe() const override { return "stream port, in a graph that the device launches again"; }

private:
    cudaGraphExec_t make() override {
        check(cudaStreamBeginCapture(compute_.get(), cudaStreamCaptureModeThreadLocal), "capturing a graph");
        iterate_twice();
        launch(launch_again, 1, 1, compute_, rounds_.data());
        cudaGraph_t captured = nullptr;
        check(cudaStreamEndCapture(compute_.get(), &captured), "capturing a graph");
        cudaGraphExec_t ready = nullptr;
        const cudaError_t made = cudaGraphInstantiate(&ready, captured, cudaGraphInstantiateFlagDeviceLaunch);
        cudaGraphDestroy(captured);
        check(made, "making a graph for launches by the device");
        return ready;
    }
};

class while_graph final : public device_controlled {
public:
    using device_controlled::device_controlled;
    std::string describe() const override { return "stream port, in a graph with a loop"; }

private:
    cudaGraphExec_t make() override {
        cudaGraph_t whole = nullptr;
        check(cudaGraphCreate(&whole, 0), "making a graph");
        cudaGraphConditionalHandle loop{};
        check(cudaGraphConditionalHandleCreate(&loop, whole, 1, cudaGraphCondAssignDefault), "making a loop");
        cudaGraphNodeParams node_is{};
        node_is.type = cudaGraphNodeTypeConditional;
        node_is.conditional.handle = loop;
        node_is.conditional.type = cudaGraphCondTypeWhile;
        node_is.conditional.size = 1;
        cudaGraphNode_t node = nullptr;
        check(cudaGraphAddNode(&node, whole, nullptr, nullptr, 0, &node_is), "making a loop");
        check(cudaStreamBeginCaptureToGraph(compute_.get(), node_is.conditional.phGraph_out[0], nullptr, nullptr, 0,
                                            cudaStreamCaptureModeThreadLocal),
              "capturing a loop");
        iterate_twice();
        launch(go_on, 1, 1, compute_, loop, rounds_.data());
        cudaGraph_t body = nullptr;
        check(cudaStreamEndCapture(compute_.get(), &body), "capturing a loop");
        cudaGraphExec_t ready = nullptr;
        const cudaError_t made = cudaGraphInstantiate(&ready, whole, 0);
        cudaGraphDestroy(whole);
        check(made, "making a graph with a loop");
        return ready;
    }
};

// The device starts each step by a kernel, which starts the next one.
class device_tail final : public by_port {
public:
    device_tail(dcuda::runtime& runtime, const options& chosen, const slab& work)
        : by_port(runtime, chosen, work), launches_(1) {}
    std::string describe() const override { return "kernels that wait and put by themselves, launched by a kernel"; }

private:
    void prepare() override {
        tail_launches all{work_, chosen_.steps, {}};
        for (const int step : {2, 1}) // of either parity; none waits in step 0
            for (const int beside : {-1, 1})
                all.of_parity[step % 2][side(beside)] = {part_of_step(step, beside), sums_of(beside),
                                                         triggers_of(step, beside), words_.data() + side(beside)};
        launches_.upload(&all, 1);
    }
    void all_steps() override {
        launch_first_step(launches_.data(), chosen_.is_fused, compute_.get());
        take_the_last_planes();
    }

    device_buffer<tail_launches> launches_;
};

#endif

// --- By the host -----------------------------------------------------------------------------------------------------

// A carrier brings the planes; some carriers' calls wait for the stream, so both kernels are started before.
class by_host final : public halves {
public:
    by_host(dcuda::runtime& runtime, const options& chosen, const slab& work, bool in_graphs)
        : halves(runtime, chosen, work), in_graphs_(in_graphs) {
        std::vector<common::route> routes;
        for (const int beside : {-1, 1})
            if (has(beside)) routes.push_back({neighbour(beside), plane_bytes(), plane_bytes()});
        carrier_ =
            common::carriers::make(chosen.carrier, {processes_, work_.pressure[0],
                                                    2 * work_.array_points(work_.device) * sizeof(float), routes});
        rest_ = std::chrono::microseconds(1000);
    }
    std::string describe() const override { return carrier_->name() + (in_graphs_ ? ", in graphs" : ""); }

private:
    static constexpr int steps_of_graph = 100; // even

    void prepare() override {
        // Connections are made when they are first used, which NCCL cannot do where its calls are captured. The planes
        // that come are those that are there.
        if (!std::exchange(is_prepared_, true)) {
            carrier_->meet(border_.get());
            for (const int beside : {-1, 1})
                if (has(beside)) bring_plane(1, beside);
            border_.wait_on_host();
        }
#if DCUDA_BACKEND_CUDA
        if (in_graphs_)
            for (const int steps : {steps_of_graph, chosen_.steps % steps_of_graph})
                if (steps > 0 && steps <= chosen_.steps) captured(steps);
#endif
    }

    void all_steps() override {
#if DCUDA_BACKEND_CUDA
        if (in_graphs_) {
            for (int step = 0; step + steps_of_graph <= chosen_.steps; step += steps_of_graph)
                captured(steps_of_graph).launch(compute_);
            if (chosen_.steps % steps_of_graph > 0) captured(chosen_.steps % steps_of_graph).launch(compute_);
            return;
        }
#endif
        steps(chosen_.steps);
    }

    void steps(int count) {
        for (int step = 0; step < count; ++step) {
            iterate(step);
            energy_->poll();
        }
        for (const event& each : arrived_) each.hold_up(compute_);
    }

    void iterate(int step) {
        for (const int beside : {-1, 1}) {
            if (step > 0) {
                arrived_[side(beside)].hold_up(compute_);
                if (!has_lower_half()) arrived_[1 - side(beside)].hold_up(compute_);
            }
            compute(step, beside);
            computed_[side(beside)].record(compute_);
        }
        for (const int beside : {-1, 1}) {
            computed_[has_lower_half() ? side(beside) : 1].hold_up(border_);
            if (has(beside)) bring_plane(step, beside);
            arrived_[side(beside)].record(border_);
        }
    }

    // The border plane that step `step` has written, to the neighbour, and its plane here.
    void bring_plane(int step, int beside) {
        float* const own = border(step, beside);
        const common::message plane{neighbour(beside),
                                    own,
                                    plane_bytes(),
                                    place_there(step, beside),
                                    own + beside * static_cast<std::ptrdiff_t>(work_.whole.plane()),
                                    plane_bytes()};
        carrier_->bring({&plane, 1}, border_.get());
    }

#if DCUDA_BACKEND_CUDA
    const graph& captured(int count) {
        std::unique_ptr<graph>& made = graphs_[count];
        if (made == nullptr) made = std::make_unique<graph>(compute_, [&] { steps(count); });
        return *made;
    }
#endif

    bool in_graphs_, is_prepared_ = false;
    common::processes processes_;
    std::unique_ptr<common::carrier> carrier_;
    stream border_{stream::priority::high};
    std::array<event, 2> computed_{event(cudaEventDisableTiming), event(cudaEventDisableTiming)};
    std::array<event, 2> arrived_{event(cudaEventDisableTiming), event(cudaEventDisableTiming)};
#if DCUDA_BACKEND_CUDA
    // Behind the carrier: NCCL's end waits for the end of all graphs that have its calls.
    std::map<int, std::unique_ptr<graph>> graphs_;
#endif
};

} // namespace

std::unique_ptr<short_kernels> make_short_kernels(dcuda::runtime& runtime, const options& chosen, const slab& work) {
    if (chosen.control == "stream") return std::make_unique<stream_order>(runtime, chosen, work);
    if (chosen.control == "kernel") return std::make_unique<kernel_order>(runtime, chosen, work);
    if (chosen.control == "host") return std::make_unique<by_host>(runtime, chosen, work, false);
#if DCUDA_BACKEND_CUDA
    if (chosen.control == "host-graph") return std::make_unique<by_host>(runtime, chosen, work, true);
    if (chosen.control == "stream-graph") return std::make_unique<stream_graph>(runtime, chosen, work);
    if (chosen.control == "device-graph") return std::make_unique<device_graph>(runtime, chosen, work);
    if (chosen.control == "while-graph") return std::make_unique<while_graph>(runtime, chosen, work);
    if (chosen.control == "device-tail") return std::make_unique<device_tail>(runtime, chosen, work);
#endif
    const std::string taken = chosen.control == "device-tail" ? "kernels that launch kernels" : "CUDA graphs";
    throw std::runtime_error("--control " + chosen.control + " takes " + taken + ", which the CPU backend has not");
}

} // namespace himeno
