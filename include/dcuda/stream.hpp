// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Communication in stream order: programs whose kernels are short, with a host between them, put, notify and wait as
/// ranks do, as work of their CUDA streams.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "dcuda/host.hpp"
#include "dcuda/types.hpp"

namespace dcuda {

/// How stream_port::wait_word compares the word in memory with the value.
enum class comparison : int {
    at_least, ///< word - value, as a signed number, is not negative: numbers may wrap around
    equal,    ///< word == value
    any_bit,  ///< word & value is not 0
};

/// A send or a receive of a stream_port, to be posted and waited for. A handle: copies are the same request.
class request {
public:
    /// None.
    request() = default;

private:
    friend class stream_port;
    friend class port_sends;
    class implementation;
    std::shared_ptr<implementation> implementation_;
};

/// What streams and short kernels of a process send and count. Windows are those of runtime::create_window: ranks,
/// streams and kernels put into the same ones. A port has tags of its own, and counts notifications by process and tag;
/// a program may have several ports.
///
/// Functions with a stream append work to it and return at once. That work begins when the stream's earlier work is
/// done, and the stream's later work begins when it is done. They can be captured into CUDA graphs, which may be
/// launched many times: each launch puts, notifies and waits anew. A graph must not be launched after its port has
/// ended.
///
/// CUDA does not see what one stream's wait needs of another stream. So a wait must not come, in its stream, before
/// work that the other side waits for; and it must not be in the default stream, which others wait for.
///
/// A wait that cannot end, since a process is lost or since it takes longer than options::wait_timeout, ends the kernel
/// that waits with an error, for its stream and the whole device: nothing runs with data that has not come. The reason
/// is said on standard error, and thrown by all later calls. A wait that lasts ten seconds is reported there, too. Puts
/// and gets over a network are not bounded in time, but by the other process being there.
///
/// A process that is reached over a network only is served by the port's thread, which takes up to a core while there
/// is something to do. A put there is complete when the target has waited for a later notification of the same
/// stream to the same process: the window must not be freed before.
///
/// Declare a port behind the memory that its streams use, so that it ends first. Memory that is freed waits for the
/// device's work, and that may wait for others; the port's destructor tells the others if an exception has ended this
/// process's part, so that all waits end.
///
/// One thread at a time makes calls; it need not be the runtime's, and a run may be under way, but no window of the
/// host is made or freed meanwhile. All functions throw dcuda::error: invalid_argument for what is not there (window,
/// process, tag, place), before anything is in the stream.
class stream_port {
public:
    /// Collective over the processes, with the same `tags` (1 to 65536). The runtime must outlive it, and its device is
    /// the port's. Waits for all work of the device. Throws dcuda::error on all processes: no_path if the job's network
    /// is MPI.
    explicit stream_port(runtime& owner, int tags = 64);

    /// Collective over the processes. Waits for all work of the device, and until what it has put over a network is
    /// there. Never throws.
    ~stream_port();
    stream_port(const stream_port&) = delete;
    stream_port& operator=(const stream_port&) = delete;

    /// Copies `bytes` bytes from `source`, memory of this device, to `offset` in the process's part of the window. The
    /// target sees them when it has seen a notification that this process has sent later in the same stream.
    void put(window win, int process, std::size_t offset, const void* source, std::size_t bytes, cudaStream_t stream);
    /// The same of a box, whose rows lie `here` apart at the source and `there` apart at the target.
    void put(window win, int process, std::size_t offset, pitch there, box shape, const void* source, pitch here,
             cudaStream_t stream);

    /// Copies `bytes` bytes at `offset` of the process's part of the window to `destination`, memory of this device.
    /// What follows in the stream sees them. Which bytes come if they are written meanwhile is not certain: what the
    /// process has put or stored before a notification that this stream has waited for comes.
    void get(window win, int process, std::size_t offset, std::size_t bytes, void* destination, cudaStream_t stream);

    /// Puts, and notifies the process with the tag when the data is there.
    void put_notify(window win, int process, std::size_t offset, const void* source, std::size_t bytes, int tag,
                    cudaStream_t stream);
    /// The same of a box.
    void put_notify(window win, int process, std::size_t offset, pitch there, box shape, const void* source, pitch here,
                    int tag, cudaStream_t stream);

    /// Notifies a process with the tag. What this stream has done before is seen by who has waited for it; of what it
    /// has put over a network, what it has put to that process.
    void notify(int process, int tag, cudaStream_t stream);

    /// Waits in the stream until `count` more notifications with the tag have come, from whichever process. A tag is
    /// waited for by this function or by wait_from, never by both.
    void wait(int tag, int count, cudaStream_t stream);
    /// The same for notifications of one process.
    void wait_from(int process, int tag, int count, cudaStream_t stream);

    /// Waits in the stream until a word of this device's memory compares as asked with the value. Consumes nothing.
    /// wait_timeout does not bound it.
    void wait_word(const std::uint32_t* word, std::uint32_t value, comparison how, cudaStream_t stream);

    /// Whether `count` more notifications with the tag have come; then they are taken, as by wait. Returns after a
    /// short kernel on a stream of the port's own.
    bool test(int tag, int count);
    /// Waits for them on the host.
    void wait_on_host(int tag, int count);

    /// Two-sided messages: what a process sends to another one arrives where that one receives it, without a window.
    /// The sends to a process and its receives from this one are matched in the order in which they are posted. A
    /// receive may be longer than its send; one that is shorter ends the port with an error. Memory may be any that
    /// kernels of this device can use.
    ///
    /// Each send begins behind those that were posted to the same process before, each receive likewise; also one that
    /// is posted without a stream. A graph's are matched when the graph is launched, in the order in which they begin:
    /// others with the same process must be complete then, and must not be posted before the graph is done.
    ///
    /// Sends `bytes` bytes from `source`, which must not change before the request is waited for. With a stream the
    /// send begins when the stream's earlier work is done, and the stream goes on meanwhile; without one it begins at
    /// once. A send needs a receive before it is complete, unless it finds room in the receiver's memory for all of it.
    request isend(const void* source, std::size_t bytes, int process, cudaStream_t stream);
    /// The same, at once.
    request isend(const void* source, std::size_t bytes, int process);
    /// Receives at most `bytes` bytes into `destination`, which nobody must use before the request is waited for.
    request irecv(void* destination, std::size_t bytes, int process, cudaStream_t stream);
    /// The same, at once.
    request irecv(void* destination, std::size_t bytes, int process);

    /// A send that does not begin yet, and that may be posted again and again. A wait is for the last time.
    request prepare_send(const void* source, std::size_t bytes, int process);
    /// The same of a receive.
    request prepare_receive(void* destination, std::size_t bytes, int process);
    /// Begins them, in this order, when the stream's earlier work is done.
    void post(std::span<const request> requests, cudaStream_t stream);
    /// The same, at once.
    void post(std::span<const request> requests);

    /// The stream's later work begins when the request is complete as it was posted last: the source may change, the
    /// destination holds what was sent.
    void wait(const request& awaited, cudaStream_t stream);
    /// The same for all of them.
    void wait_all(std::span<const request> awaited, cudaStream_t stream);
    /// Waits on the host.
    void wait(const request& awaited);
    /// The same for all of them.
    void wait_all(std::span<const request> awaited);
    /// Whether the request is complete.
    bool test(const request& asked);

    /// For kernels that put when they have what is sent: dcuda::trigger. 0 bytes: the notification alone.
    put_trigger prepare_put_notify(window win, int process, std::size_t offset, const void* source, std::size_t bytes,
                                   int tag);
    /// For kernels that wait: dcuda::await and dcuda::consume.
    wait_trigger prepare_wait(int tag, int count);
    /// The same for notifications of one process.
    wait_trigger prepare_wait_from(int process, int tag, int count);

private:
    friend class stream_batch;
    class implementation;
    std::unique_ptr<implementation> implementation_;
};

/// Puts, notifications and waits of a port that are launched together: small ones, up to sixteen in a row, are made by
/// one kernel, so that a stream pays for one launch and not for each. It has put, put_notify, notify, wait and
/// wait_from of stream_port, without the stream. They say at once what is wrong; nothing happens before post.
///
/// One thread at a time makes calls. All functions throw dcuda::error as those of stream_port do.
class stream_batch {
public:
    /// An empty one. The port must outlive it.
    explicit stream_batch(stream_port& port);
    ~stream_batch();
    stream_batch(const stream_batch&) = delete;
    stream_batch& operator=(const stream_batch&) = delete;

    /// See stream_port.
    void put(window win, int process, std::size_t offset, const void* source, std::size_t bytes);
    /// See stream_port.
    void put_notify(window win, int process, std::size_t offset, const void* source, std::size_t bytes, int tag);
    /// See stream_port.
    void notify(int process, int tag);
    /// See stream_port. What was added behind it waits, too.
    void wait(int tag, int count);
    /// The same for notifications of one process.
    void wait_from(int process, int tag, int count);

    /// Appends all of them to the stream, in the order in which they were added. The batch stays as it is: it may be
    /// posted again and again, and each time is a new put and a new wait. Puts of more than 128 KiB are made one by
    /// one, between the kernels of the others.
    void post(cudaStream_t stream) const;
    /// Forgets them.
    void clear();

private:
    class implementation;
    std::unique_ptr<implementation> implementation_;
};

} // namespace dcuda
