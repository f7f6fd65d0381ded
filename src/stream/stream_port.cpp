// SPDX-License-Identifier: BSD-3-Clause
#include "dcuda/stream.hpp"

#include "dcuda/detail/protocol/box.hpp"
#include "runtime/host_windows.hpp"
#include "stream/port_memory.hpp"
#include "stream/port_relay.hpp"
#include "stream/port_sends.hpp"
#include "stream/port_watch.hpp"
#include "stream/stream_kernels.hpp"
#include "stream/value_waits.hpp"
#include "support/cuda.hpp"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace dcuda {

namespace {

int require_tags(int tags) {
    support::require(tags >= 1 && tags <= 65536, error_code::invalid_argument, "stream_port: {} tags: 1 to 65536",
                     tags);
    return tags;
}

// Whether the rows lie one behind the other, in order.
bool is_in_one_piece(const box& shape, const pitch& layout) {
    return (shape.height <= 1 || layout.row_bytes == shape.width_bytes) &&
           (shape.depth <= 1 || layout.slice_bytes == shape.width_bytes * shape.height);
}

} // namespace

class stream_port::implementation {
public:
    // What can fail comes before the barrier, at which the others then learn that this process is not there.
    implementation(const port_access& owner, int tags)
        : owner_(owner), tags_(require_tags(tags)), device_(owner.device), control_(owner.job, "stream port"),
          memory_(control_, owner.paths.is_remote, tags_),
          relay_(owner.paths.needs_network ? std::make_unique<port_relay>(control_, owner, memory_, tags_) : nullptr),
          value_waits_(owner.chosen.streams_wait_for_values), sends_(control_.count()),
          watch_(control_, memory_, relay_.get(), value_waits_, owner.chosen) {
        cuda::check(load_stream_kernels(), "loading the kernels of streams");
        cuda::check(load_send_kernels(), "loading the kernels that send");
        control_.barrier("making a stream port");
        watch_.begin();
        device_.reset();
    }

    ~implementation() {
        // The streams' work uses the port's memory. If the program throws, the others hear of it instead of waiting,
        // and waits that are in streams here end.
        if (std::uncaught_exceptions() > exceptions_)
            watch_.fail(error(error_code::process_lost,
                              fmt::format("process {} has left its stream port by an exception", control_.index())));
        int current = memory_.device();
        cudaGetDevice(&current);
        cudaSetDevice(memory_.device());
        if (!watch_.has_failed()) sends_.tell_of_open(control_.index());
        cudaDeviceSynchronize();
        watch_.stop();
        memory_.close(watch_.has_failed());
        cudaSetDevice(current);
    }

    void put(window win, int process, std::size_t offset, pitch there, box shape, const void* source, pitch here,
             const put_trigger& notification, cudaStream_t stream) {
        require_device("a put");
        support::require(
            detail::is_apart(shape, there) && detail::is_apart(shape, here), error_code::invalid_argument,
            "stream_port: a put of a box whose rows overlap: {} slices of {} rows of {} B, which lie {} B apart at the "
            "source and {} at the target",
            shape.depth, shape.height, shape.width_bytes, here.row_bytes, there.row_bytes);
        const std::size_t here_bytes = detail::span_of(shape, here), bytes = detail::payload_of(shape);
        support::require(here_bytes != detail::most_bytes, error_code::invalid_argument,
                         "stream_port: a put of a box of {} x {} x {} B, whose bytes cannot be counted", shape.depth,
                         shape.height, shape.width_bytes);
        put_trigger whole = way_to(notification, win, process, offset, detail::span_of(shape, there));
        support::require(source != nullptr || bytes == 0, error_code::invalid_argument,
                         "stream_port: a put of {} B from a null pointer", here_bytes);
        whole.source = static_cast<const std::byte*>(source);
        const bool is_contiguous = bytes == 0 || (is_in_one_piece(shape, there) && is_in_one_piece(shape, here));
        if (is_contiguous) {
            whole.bytes = bytes;
            return copy(whole, stream, "a put in the stream");
        }
        if (whole.by_host.queue != nullptr) return put_rows(whole, shape, there, here, stream);
        // The distance of rows means nothing where a slice has one, but CUDA wants one that is not below the width.
        const std::size_t row_there = shape.height > 1 ? there.row_bytes : shape.width_bytes,
                          row_here = shape.height > 1 ? here.row_bytes : shape.width_bytes;
        for (std::size_t slice = 0; slice < shape.depth; ++slice)
            cuda::check(cudaMemcpy2DAsync(whole.target + slice * there.slice_bytes, row_there,
                                          whole.source + slice * here.slice_bytes, row_here, shape.width_bytes,
                                          shape.height, cudaMemcpyDefault, stream),
                        "a put of a box in the stream");
        notify_behind(notification, stream);
    }

    void get(window win, int process, std::size_t offset, std::size_t bytes, void* destination, cudaStream_t stream) {
        require_device("a get");
        put_trigger whole = way_to({}, win, process, offset, bytes);
        support::require(destination != nullptr || bytes == 0, error_code::invalid_argument,
                         "stream_port: a get of {} B to a null pointer", bytes);
        whole.source = std::exchange(whole.target, static_cast<std::byte*>(destination));
        whole.bytes = bytes;
        if (whole.by_host.queue == nullptr) return copy(whole, stream, "a get in the stream");
        if (bytes != 0) cuda::check(append_get(whole, stream), "a get in the stream");
    }

    void notify(int process, int tag, cudaStream_t stream) {
        require_device("a notification");
        cuda::check(append_notify(notification_of(process, tag), stream), "a notification in the stream");
    }

    void wait(const wait_trigger& wait, cudaStream_t stream) {
        require_device("a wait");
        require_no_default(stream);
        if (wait.count == 0) return;
        if (value_waits_.knows(wait, stream)) return value_waits_.append(wait, stream);
        cuda::check(append_wait(wait, stream), "a wait in the stream");
    }

    void wait_word(const std::uint32_t* word, std::uint32_t value, comparison how, cudaStream_t stream) {
        require_device("a wait for a word");
        require_no_default(stream);
        support::require(word != nullptr, error_code::invalid_argument,
                         "stream_port: a wait for a word at a null pointer");
        cuda::check(append_wait_word(word, value, how, memory_.ended(), stream), "a wait for a word in the stream");
    }

    bool test(int tag, int count) { return test(wait_of(any_process, tag, count)); }

    // The thread that looks after the port sees it like a wait in a stream.
    void wait_on_host(int tag, int count) {
        const wait_trigger wait = wait_of(any_process, tag, count);
        std::uint64_t told = 0;
        while (!test(wait)) {
            if (told == 0) told = memory_.tell_of_wait(wait);
            std::this_thread::yield();
        }
        memory_.end_wait(wait, told);
    }

    put_trigger notification_of(int process, int tag) const {
        watch_.require_success();
        require_process(process);
        require_tag(tag);
        return memory_.notification(process, tag);
    }

    put_trigger prepare(window win, int process, std::size_t offset, const void* source, std::size_t bytes,
                        put_trigger made) const {
        made = way_to(made, win, process, offset, bytes);
        support::require(source != nullptr || bytes == 0, error_code::invalid_argument,
                         "stream_port: a put of {} B from a null pointer", bytes);
        made.source = static_cast<const std::byte*>(source);
        made.bytes = bytes;
        return made;
    }

    // Small steps in a row as one kernel, others one by one.
    void post(const std::vector<stream_step>& steps, cudaStream_t stream) {
        require_device("a batch");
        stream_steps together;
        const auto append_together = [&] {
            if (together.count > 0) cuda::check(append_steps(together, stream), "a batch in the stream");
            together.count = 0;
        };
        for (const stream_step& step : steps) {
            if (step.wait.count != 0) require_no_default(stream);
            if (step.wait.count != 0 && value_waits_.knows(step.wait, stream)) {
                append_together();
                value_waits_.append(step.wait, stream);
                continue;
            }
            if (step.put.bytes > std::min(stream_steps::most_bytes, owner_.chosen.stream_put_bytes)) {
                append_together();
                copy(step.put, stream, "a put in the stream");
                continue;
            }
            together.at[together.count++] = step;
            if (together.count == stream_steps::most) append_together();
        }
        append_together();
    }

    request prepare_transfer(transfer::kind direction, void* memory, std::size_t bytes, int process) {
        const bool is_sent = direction == transfer::kind::send;
        require_transfer(is_sent ? "a send" : "a receive", is_sent ? "from" : "to", memory, bytes, process);
        return sends_.prepare(process,
                              memory_.transfer_with(process, direction, static_cast<std::byte*>(memory), bytes));
    }
    void post(std::span<const request> requests, std::optional<cudaStream_t> stream) {
        require_device("a send or a receive");
        sends_.post(requests, stream);
    }
    request start(const request& made, std::optional<cudaStream_t> stream) {
        post({&made, 1}, stream);
        return made;
    }
    void wait(const request& awaited, cudaStream_t stream) {
        require_device("a wait for a request");
        require_no_default(stream);
        cuda::check(cudaStreamWaitEvent(stream, sends_.awaited_by_stream(awaited).get(), 0),
                    "a wait for a request in the stream");
    }
    bool test(const request& asked) {
        const cudaError_t state = sends_.awaited_by_host(asked).query();
        watch_.require_success();
        if (state != cudaErrorNotReady) cuda::check(state, "asking for a request");
        return state == cudaSuccess;
    }
    void wait(const request& awaited) {
        while (!test(awaited)) std::this_thread::yield();
    }

    // For kernels of the program.
    wait_trigger prepare_wait(const wait_trigger& made) {
        value_waits_.forget(made);
        return made;
    }

    static constexpr int any_process = -1;
    wait_trigger wait_of(int process, int tag, int count) const {
        watch_.require_success();
        if (process != any_process) require_process(process);
        require_tag(tag);
        support::require(count >= 0, error_code::invalid_argument, "stream_port: a wait for {} notifications", count);
        return memory_.wait_of(process, tag, static_cast<std::uint32_t>(count));
    }
    wait_trigger wait_of_process(int process, int tag, int count) const {
        support::require(process != any_process, error_code::invalid_argument, "stream_port: there is no process -1");
        return wait_of(process, tag, count);
    }

private:
    // While it lives, calls are for this device.
    class chosen_device {
    public:
        explicit chosen_device(int number) : before_(cuda::device_in_use()) {
            cuda::check(cudaSetDevice(number), "choosing the device");
        }
        ~chosen_device() { cudaSetDevice(before_); }
        chosen_device(const chosen_device&) = delete;
        chosen_device& operator=(const chosen_device&) = delete;

    private:
        int before_;
    };

    // A box, over a network. Slices of a row each are rows.
    void put_rows(const put_trigger& whole, box shape, pitch there, pitch here, cudaStream_t stream) {
        if (shape.height == 1) {
            std::swap(shape.height, shape.depth);
            there.row_bytes = there.slice_bytes;
            here.row_bytes = here.slice_bytes;
        }
        support::require(detail::payload_of(shape) / detail::put_queue::slot_bytes + shape.height * shape.depth <
                             INT32_MAX,
                         error_code::invalid_argument,
                         "stream_port: a put over a network of a box of {} x {} rows of {} B: it has too many",
                         shape.depth, shape.height, shape.width_bytes);
        cuda::check(append_put_rows(whole, shape, there, here, stream), "a put of a box in the stream");
    }

    // Bytes in one piece. Few by a block of threads, which then notifies; more by the copy engine, and another kernel
    // notifies.
    void copy(const put_trigger& whole, cudaStream_t stream, const char* subject) {
        if (whole.bytes <= owner_.chosen.stream_put_bytes || whole.by_host.queue != nullptr)
            return cuda::check(append_put(whole, stream), subject);
        cuda::check(cudaMemcpyAsync(whole.target, whole.source, whole.bytes, cudaMemcpyDefault, stream), subject);
        notify_behind(whole, stream);
    }
    void notify_behind(const put_trigger& put, cudaStream_t stream) {
        if (put.counter != nullptr) cuda::check(append_notify(put, stream), "a notification in the stream");
    }

    bool test(const wait_trigger& wait) {
        const chosen_device chosen(memory_.device());
        value_waits_.forget(wait);
        cuda::check(append_test(wait, memory_.result(), own_stream_.get()), "a test of notifications");
        const cudaError_t result = cudaStreamSynchronize(own_stream_.get());
        watch_.require_success();
        cuda::check(result, "testing for notifications");
        return memory_.result()[0] != 0;
    }

    void require_process(int process) const {
        support::require(process >= 0 && process < control_.count(), error_code::invalid_argument,
                         "stream_port: there is no process {}: there are processes 0 to {}", process,
                         control_.count() - 1);
    }
    void require_tag(int tag) const {
        support::require(tag >= 0 && tag < tags_, error_code::invalid_argument,
                         "stream_port: tag {}: this port has tags 0 to {}", tag, tags_ - 1);
    }

    // CUDA's own error for work in a stream of another device does not say so.
    void require_device(const char* subject) const {
        watch_.require_success();
        support::require(cuda::device_in_use() == memory_.device(), error_code::invalid_argument,
                         "stream_port: {} while device {} is chosen: the port's device is {} (cudaSetDevice)", subject,
                         cuda::device_in_use(), memory_.device());
    }
    static void require_no_default(cudaStream_t stream) {
        support::require(stream != nullptr && stream != cudaStreamLegacy, error_code::invalid_argument,
                         "stream_port: a wait in the default stream, which other streams wait for: use a stream of "
                         "cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)");
    }

    void require_transfer(const char* subject, const char* direction, const void* memory, std::size_t bytes,
                          int process) const {
        require_device(subject);
        require_process(process);
        support::require(memory != nullptr || bytes == 0, error_code::invalid_argument,
                         "stream_port: {} of {} B {} a null pointer", subject, bytes, direction);
        cudaPointerAttributes found{};
        support::require(
            bytes == 0 || uses_pageable_memory_ ||
                (cudaPointerGetAttributes(&found, memory) == cudaSuccess && found.type != cudaMemoryTypeUnregistered),
            error_code::invalid_argument,
            "stream_port: {} {} memory that the device cannot use: it must be from cudaMalloc, "
            "cudaMallocHost or cudaMallocManaged",
            subject, direction);
    }
    static bool finds_pageable_memory(int number) {
        int value = 0;
        return cudaDeviceGetAttribute(&value, cudaDevAttrPageableMemoryAccess, number) == cudaSuccess && value != 0;
    }

    // With where `bytes` bytes of the process's part of a window are, for this device or for the host.
    put_trigger way_to(put_trigger notification, window win, int process, std::size_t offset, std::size_t bytes) const {
        require_process(process);
        const host_window* const known = owner_.windows.find(win);
        support::require(known != nullptr, error_code::invalid_argument,
                         "stream_port: a window that runtime::create_window has not made, or that was freed");
        const detail::window_entry& entry = known->entries[static_cast<std::size_t>(process)];
        support::require(offset <= entry.bytes() && bytes <= entry.bytes() - offset, error_code::invalid_argument,
                         "stream_port: {} B at offset {} of process {}'s part of the window, which has {} B", bytes,
                         offset, process, entry.bytes());
        if (memory_.relay(process) == nullptr) {
            notification.target = entry.base + offset;
            return notification;
        }
        if (notification.by_host.queue == nullptr) notification.by_host = memory_.path_by_host(process);
        notification.by_host.place = reinterpret_cast<std::uintptr_t>(entry.home + offset);
        return notification;
    }

    port_access owner_;
    int tags_;
    int exceptions_ = std::uncaught_exceptions();
    std::optional<chosen_device> device_; // while the port is made
    bootstrap::control control_;
    cuda::stream own_stream_;
    port_memory memory_;
    std::unique_ptr<port_relay> relay_; // null: all processes map each other's memory
    value_waits value_waits_;
    port_sends sends_;
    bool uses_pageable_memory_ = finds_pageable_memory(memory_.device()); // any memory of the host
    port_watch watch_;
};

stream_port::stream_port(runtime& owner, int tags)
    : implementation_(std::make_unique<implementation>(owner.access_of_ports(), tags)) {}
stream_port::~stream_port() = default;

void stream_port::put(window win, int process, std::size_t offset, const void* source, std::size_t bytes,
                      cudaStream_t stream) {
    implementation_->put(win, process, offset, {}, {bytes}, source, {}, {}, stream);
}
void stream_port::put(window win, int process, std::size_t offset, pitch there, box shape, const void* source,
                      pitch here, cudaStream_t stream) {
    implementation_->put(win, process, offset, there, shape, source, here, {}, stream);
}
void stream_port::get(window win, int process, std::size_t offset, std::size_t bytes, void* destination,
                      cudaStream_t stream) {
    implementation_->get(win, process, offset, bytes, destination, stream);
}
void stream_port::put_notify(window win, int process, std::size_t offset, const void* source, std::size_t bytes,
                             int tag, cudaStream_t stream) {
    implementation_->put(win, process, offset, {}, {bytes}, source, {}, implementation_->notification_of(process, tag),
                         stream);
}
void stream_port::put_notify(window win, int process, std::size_t offset, pitch there, box shape, const void* source,
                             pitch here, int tag, cudaStream_t stream) {
    implementation_->put(win, process, offset, there, shape, source, here,
                         implementation_->notification_of(process, tag), stream);
}
void stream_port::notify(int process, int tag, cudaStream_t stream) { implementation_->notify(process, tag, stream); }
void stream_port::wait(int tag, int count, cudaStream_t stream) {
    implementation_->wait(implementation_->wait_of(implementation::any_process, tag, count), stream);
}
void stream_port::wait_from(int process, int tag, int count, cudaStream_t stream) {
    implementation_->wait(implementation_->wait_of_process(process, tag, count), stream);
}
void stream_port::wait_word(const std::uint32_t* word, std::uint32_t value, comparison how, cudaStream_t stream) {
    implementation_->wait_word(word, value, how, stream);
}
bool stream_port::test(int tag, int count) { return implementation_->test(tag, count); }
void stream_port::wait_on_host(int tag, int count) { implementation_->wait_on_host(tag, count); }
request stream_port::isend(const void* source, std::size_t bytes, int process, cudaStream_t stream) {
    return implementation_->start(prepare_send(source, bytes, process), stream);
}
request stream_port::isend(const void* source, std::size_t bytes, int process) {
    return implementation_->start(prepare_send(source, bytes, process), std::nullopt);
}
request stream_port::irecv(void* destination, std::size_t bytes, int process, cudaStream_t stream) {
    return implementation_->start(prepare_receive(destination, bytes, process), stream);
}
request stream_port::irecv(void* destination, std::size_t bytes, int process) {
    return implementation_->start(prepare_receive(destination, bytes, process), std::nullopt);
}
request stream_port::prepare_send(const void* source, std::size_t bytes, int process) {
    return implementation_->prepare_transfer(transfer::kind::send, const_cast<void*>(source), bytes, process);
}
request stream_port::prepare_receive(void* destination, std::size_t bytes, int process) {
    return implementation_->prepare_transfer(transfer::kind::receive, destination, bytes, process);
}
void stream_port::post(std::span<const request> requests, cudaStream_t stream) {
    implementation_->post(requests, stream);
}
void stream_port::post(std::span<const request> requests) { implementation_->post(requests, std::nullopt); }
void stream_port::wait(const request& awaited, cudaStream_t stream) { implementation_->wait(awaited, stream); }
void stream_port::wait_all(std::span<const request> awaited, cudaStream_t stream) {
    for (const request& each : awaited) implementation_->wait(each, stream);
}
void stream_port::wait(const request& awaited) { implementation_->wait(awaited); }
void stream_port::wait_all(std::span<const request> awaited) {
    for (const request& each : awaited) implementation_->wait(each);
}
bool stream_port::test(const request& asked) { return implementation_->test(asked); }
put_trigger stream_port::prepare_put_notify(window win, int process, std::size_t offset, const void* source,
                                            std::size_t bytes, int tag) {
    return implementation_->prepare(win, process, offset, source, bytes,
                                    implementation_->notification_of(process, tag));
}
wait_trigger stream_port::prepare_wait(int tag, int count) {
    return implementation_->prepare_wait(implementation_->wait_of(implementation::any_process, tag, count));
}
wait_trigger stream_port::prepare_wait_from(int process, int tag, int count) {
    return implementation_->prepare_wait(implementation_->wait_of_process(process, tag, count));
}

class stream_batch::implementation {
public:
    explicit implementation(stream_port::implementation& made_of) : port(made_of) {}
    void add(const put_trigger& put) { steps.push_back({put, {}}); }
    void add(const wait_trigger& wait) {
        if (wait.count != 0) steps.push_back({{}, wait});
    }

    stream_port::implementation& port;
    std::vector<stream_step> steps;
};

stream_batch::stream_batch(stream_port& port)
    : implementation_(std::make_unique<implementation>(*port.implementation_)) {}
stream_batch::~stream_batch() = default;

void stream_batch::put(window win, int process, std::size_t offset, const void* source, std::size_t bytes) {
    implementation_->add(implementation_->port.prepare(win, process, offset, source, bytes, {}));
}
void stream_batch::put_notify(window win, int process, std::size_t offset, const void* source, std::size_t bytes,
                              int tag) {
    stream_port::implementation& port = implementation_->port;
    implementation_->add(port.prepare(win, process, offset, source, bytes, port.notification_of(process, tag)));
}
void stream_batch::notify(int process, int tag) {
    implementation_->add(implementation_->port.notification_of(process, tag));
}
void stream_batch::wait(int tag, int count) {
    stream_port::implementation& port = implementation_->port;
    implementation_->add(port.wait_of(stream_port::implementation::any_process, tag, count));
}
void stream_batch::wait_from(int process, int tag, int count) {
    implementation_->add(implementation_->port.wait_of_process(process, tag, count));
}
void stream_batch::post(cudaStream_t stream) const { implementation_->port.post(implementation_->steps, stream); }
void stream_batch::clear() { implementation_->steps.clear(); }

} // namespace dcuda
