// SPDX-License-Identifier: BSD-3-Clause
#include "stream/port_watch.hpp"

#include "support/check.hpp"
#include "support/losses.hpp"

#include <system_error>

namespace dcuda {

namespace {

constexpr std::chrono::milliseconds interval{10};       // between two looks
constexpr std::chrono::milliseconds spinning{1};        // after the relay has moved something
constexpr std::chrono::microseconds short_interval{50}; // between two looks of the relay, after that
constexpr std::uint64_t relay_gather = 0;
constexpr std::chrono::seconds reported_after{10};

} // namespace

port_watch::port_watch(bootstrap::control& control, port_memory& memory, port_relay* relay, value_waits& waits,
                       const settings& chosen)
    : control_(control), memory_(memory), relay_(relay), value_waits_(waits), timeout_(chosen.wait_timeout) {
    try {
        thread_ = std::thread([this] { watch(); });
    } catch (const std::system_error& problem) {
        support::fail(error_code::out_of_resources,
                      "a stream port needs a thread, and the system gives none (ulimit -u, -v): {}", problem.what());
    }
}

void port_watch::begin() {
    {
        const std::lock_guard lock(mutex_);
        begins_ = true;
    }
    changed_.notify_all();
}

void port_watch::stop() {
    {
        const std::lock_guard lock(mutex_);
        stops_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
}

bool port_watch::has_failed() const {
    const std::lock_guard lock(mutex_);
    return failure_.has_value();
}

void port_watch::require_success() const {
    const std::lock_guard lock(mutex_);
    if (failure_) throw error(*failure_);
}

void port_watch::fail(const error& cause) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = cause;
}

// Of this process, whose other ends hear of it by the control plane; or what came from there.
void port_watch::end(const error& cause) {
    if (has_failed()) return;
    support::tell(fmt::format("process {}: {}", control_.index(), cause.what()));
    fail(cause);
}

// For the calling thread. A graph that another one captures is none of its business.
void port_watch::use_device() const {
    cuda::check(cudaSetDevice(memory_.device()), "choosing the device");
#if DCUDA_BACKEND_CUDA
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cuda::check(cudaThreadExchangeStreamCaptureMode(&mode), "leaving graphs alone");
#endif
}

bool port_watch::stops() {
    const std::lock_guard lock(mutex_);
    return stops_;
}

void port_watch::watch() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return begins_ || stops_; });
    if (!begins_) return;
    lock.unlock();
    bootstrap::control::attention serving(control_);
    try {
        use_device();
    } catch (const error& problem) {
        end(problem);
    }
    while (!stops()) look();
    if (relay_ != nullptr) end_relay();
    lock.lock();
    tell_of_failure();
}

// Does what there is to do, and rests a while.
void port_watch::look() {
    bool has_moved = false;
    const auto now = clock::now();
    try {
        has_moved = serve_relay(now);
        if (relay_ == nullptr || now - served_ >= spinning) {
            while (auto happened = control_.poll()) serve(*happened);
            served_ = now;
        }
        if (now - looked_ >= interval) {
            look_at_waits();
            looked_ = now;
        }
        // The other processes may need this one until all that they have sent is delivered.
        if (ends_relay_ && !is_end_told_ && relay_->is_drained()) {
            control_.start_gather(relay_gather, {});
            is_end_told_ = true;
        }
    } catch (const error& problem) {
        end(problem);
    } catch (const std::exception& problem) {
        end(error(error_code::out_of_resources, fmt::format("stream_port: {}", problem.what())));
    }
    rest(has_moved);
}

// True if there was something.
bool port_watch::serve_relay(clock::time_point now) {
    if (relay_ == nullptr || has_failed()) return false;
    if (unreachable_) {
        if (now >= unreachable_until_) end(*unreachable_);
        return false;
    }
    try {
        return relay_->progress();
    } catch (const foreign_arrival&) {
        throw;
    } catch (const error& problem) {
        if (problem.code() != error_code::process_lost) throw;
        // The control plane knows who it was, and how he was lost, but often later.
        unreachable_ = problem;
        unreachable_until_ = now + control_.time_to_notice_loss();
        return true;
    }
}

// PERF: who waits for a network waits for this thread.
void port_watch::rest(bool has_moved) {
    std::unique_lock lock(mutex_);
    tell_of_failure();
    if (relay_ == nullptr || failure_) {
        changed_.wait_for(lock, interval, [this] { return stops_; });
        return;
    }
    lock.unlock();
    const auto now = clock::now();
    if (has_moved) moved_ = now;
    if (now - moved_ < spinning)
        std::this_thread::yield();
    else
        std::this_thread::sleep_for(short_interval);
}

void port_watch::end_relay() {
    ends_relay_ = true;
    while (!is_relay_ended_ && !has_failed()) look();
    if (has_failed()) relay_->abandon();
}

// To the kernels here and to the other processes. The mutex is held.
void port_watch::tell_of_failure() {
    if (!failure_ || is_told_) return;
    is_told_ = true;
    try {
        memory_.end_waits();
        value_waits_.end();
    } catch (const error&) {
        // The device is gone, and all waits with it.
    }
    control_.abort(static_cast<int>(failure_->code()), failure_->what());
}

void port_watch::serve(const bootstrap::event& happened) {
    if (happened.type == bootstrap::event::kind::aborted) {
        end(error(static_cast<error_code>(happened.code), happened.message));
    } else if (happened.type == bootstrap::event::kind::lost) {
        end(error(error_code::process_lost, happened.message));
    } else if (happened.type == bootstrap::event::kind::asked) {
        control_.answer(happened.process, "");
    } else if (happened.type == bootstrap::event::kind::message && relay_ != nullptr && !has_failed()) {
        relay_->receive(happened.process, happened.message);
    } else if (happened.type == bootstrap::event::kind::gathered) {
        is_relay_ended_ = true;
    }
}

void port_watch::look_at_waits() {
    if (has_failed()) return;
    if (const auto refused = memory_.find_refused())
        return end(error(error_code::invalid_argument,
                         fmt::format("stream_port: a send of {} B from process {} for a receive of {} B",
                                     refused->bytes, refused->process, refused->receive_bytes)));
    const auto now = clock::now();
    std::map<port_memory::lasting_wait, sighting> seen;
    for (const port_memory::lasting_wait& wait : memory_.lasting_waits()) {
        const auto known = waits_.find(wait);
        sighting& last = seen[wait] = known != waits_.end() ? known->second : sighting{now};
        const bool is_over = timeout_.count() != 0 && now - last.first >= timeout_;
        if (is_over)
            return end(
                error(error_code::wait_timeout, fmt::format("{} after {:.3g} s (DCUDA_WAIT_TIMEOUT)", describe(wait),
                                                            static_cast<double>(timeout_.count()) * 1e-9)));
        if (last.is_reported || now - last.first < reported_after) continue;
        last.is_reported = true;
        support::tell(fmt::format("process {}: {}", control_.index(), describe(wait)));
    }
    waits_ = std::move(seen);
}

// "stream wait for tag 3, 1 of 2 arrived, nothing from process 0"
std::string port_watch::describe(const port_memory::lasting_wait& wait) {
    using kind = port_memory::lasting_wait::kind;
    if (wait.waits_for == kind::send)
        return fmt::format("stream send to process {}: it has not received what was sent before", wait.process);
    if (wait.waits_for == kind::receive)
        return fmt::format("stream receive from process {}: nothing has come", wait.process);
    const std::vector<std::uint32_t> counts = memory_.read_arrived(wait.tag);
    std::uint32_t arrived = 0;
    std::string silent;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        if (wait.process >= 0 && i != static_cast<std::size_t>(wait.process)) continue;
        arrived += counts[i];
        if (counts[i] == 0) silent += fmt::format("{}{}", silent.empty() ? "" : ", ", i);
    }
    const auto come = static_cast<std::int32_t>(arrived - (wait.expected - wait.count));
    return fmt::format("stream wait for tag {}{}, {} of {} arrived{}", wait.tag,
                       wait.process < 0 ? "" : fmt::format(" from process {}", wait.process), come < 0 ? 0 : come,
                       wait.count, silent.empty() ? "" : ", nothing ever from process " + silent);
}

} // namespace dcuda
