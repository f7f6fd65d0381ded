// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The host side: a runtime connects the processes of a job and runs kernels whose blocks are ranks.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "dcuda/detail/exec/launch.hpp"
#include "dcuda/error.hpp"
#include "dcuda/statistics.hpp"
#include "dcuda/types.hpp"

namespace dcuda {

struct run_energy; // dcuda/energy.hpp
struct port_access;
class stream_port; // dcuda/stream.hpp

namespace detail {
template <class Type>
inline constexpr bool is_span = false;
template <class Element, std::size_t Extent>
inline constexpr bool is_span<std::span<Element, Extent>> = true;
} // namespace detail

/// What a runtime is constructed with. A value that is set here wins over the argument of the command line, which wins
/// over the environment variable named beside it, which wins over the default. A bool is on if it is set here or in the
/// environment. The processes of a job must agree.
struct options {
    int ranks_per_device = 0;      ///< DCUDA_RANKS_PER_DEVICE; 0: as many as are co-resident (CPU backend: 8)
    int tags = 0;                  ///< DCUDA_TAGS; 0: 256; at most 65536
    int max_windows = 0;           ///< DCUDA_MAX_WINDOWS; 0: 64; windows that exist at one time
    bool windows_may_fail = false; ///< DCUDA_WINDOWS_MAY_FAIL; beyond max_windows, create_window returns an empty
                                   ///< window; if off, the run ends
    std::chrono::milliseconds wait_timeout{0}; ///< DCUDA_WAIT_TIMEOUT, in seconds; 0: a wait may take for ever
    bool count = false;                        ///< DCUDA_STATS; count what ranks do: runtime::statistics
    bool measure_energy = false;               ///< DCUDA_ENERGY; counted and traced runs are measured, too
    int match_sources = 0; ///< DCUDA_MATCH_SOURCES; so many of the tags, the last ones, are matched by source, for
                           ///< rank::wait_notifications_from. Each takes 12 B of every rank for every rank of the job
};

/// The shape of a kernel launch. The number of blocks is the number of ranks, divided by ranks_per_block.
struct launch_config {
    dim3 threads = dim3(128);     ///< of a block
    std::size_t shared_bytes = 0; ///< dynamic shared memory of a block
    int ranks_per_device = 0;     ///< 0: as the runtime's options say; a multiple of ranks_per_block

    /// Shared memory of one rank, behind that of its block, that the library passes large puts through on GPUs that can
    /// (sm_90 and later): at most this much of what this run's ranks leave unused, so it never lowers their number. 0:
    /// none. Not set: up to 64 KiB, as long as half of the multiprocessor's shared memory remains L1 cache.
    std::optional<std::size_t> staging_bytes = {};

    /// Whether this run takes part in what DCUDA_TRACE and DCUDA_STATS ask for. Not: it is neither traced nor counted.
    bool profiled = true;

    /// Ranks that are parts of one block: 1 to 32, and at most one for each warp. The kernel says which threads are
    /// which (dcuda::part).
    int ranks_per_block = 1;
};

/// What processes may send each other as it lies in memory: trivially copyable, and neither a pointer nor a span, whose
/// memory the others do not have.
template <class Value>
concept plain_value = std::is_trivially_copyable_v<Value> && !std::is_pointer_v<Value> && !detail::is_span<Value>;

/// A kernel without its type, for callers that choose one at run time: frameworks, other languages, kernels that are
/// loaded from a file. Its first parameter is a dcuda::context. Copies are the same kernel.
class kernel_handle {
public:
    /// Of a kernel of this program. `is_profilable`: it was compiled with DCUDA_PROFILING=1.
    template <class... Params>
    explicit kernel_handle(void (*kernel)(context, Params...), bool is_profilable = DCUDA_PROFILING != 0)
        : entry_(detail::entry_of(kernel, is_profilable)) {
        static_assert((std::is_trivially_copyable_v<Params> && ...), "kernel arguments must be trivially copyable");
    }
#if DCUDA_BACKEND_CUDA
    /// Of a kernel that cudaLibraryGetKernel has found.
    explicit kernel_handle(cudaKernel_t loaded, bool is_profilable = false) {
        entry_.address = reinterpret_cast<const void*>(loaded);
        entry_.is_profilable = is_profilable;
    }
#endif

private:
    friend class runtime;
    detail::kernel_entry entry_;
};

/// A process's part in a job: the connections to the other processes, and the device. One object at a time; the thread
/// that constructs it makes all calls. Functions that are collective are called by all processes of the job, in the
/// same order.
class runtime {
public:
    /// Connects all processes of the job: those that dcuda-run, mpirun, srun or torchrun started, else this one alone.
    /// Collective over the processes. Takes the arguments that begin with --dcuda- (--dcuda-ranks=N, --dcuda-tags=N,
    /// --dcuda-windows=N, --dcuda-wait-timeout=SECONDS) out of argv and leaves the others. Throws dcuda::error.
    runtime(int& argc, char** argv, options requested = {});
    /// The same without arguments of a command line.
    explicit runtime(options requested = {});

    /// Leaves the job. Never throws. The memory of a window may be freed after all runs that used it have ended.
    ~runtime();
    runtime(const runtime&) = delete;
    runtime& operator=(const runtime&) = delete;

    /// Runs kernel(context, arguments...) once on every device, and returns the kernel's time on this device in
    /// milliseconds. Each block is a rank, or has launch_config::ranks_per_block ranks. Collective over the processes,
    /// which must pass the same kernel and configuration; arguments may differ. Returns when the kernels of all
    /// processes have ended.
    ///
    /// Throws dcuda::error if any rank or process failed; after that the runtime serves no further run, and no barrier,
    /// broadcast, gather or call for a window. What plan() would throw, run() throws before the kernel starts, on all
    /// processes: the runtime can still be used then.
    template <class... Params, class... Args>
    double run(void (*kernel)(context, Params...), const launch_config& config, Args&&... arguments) {
        static_assert(sizeof...(Params) == sizeof...(Args), "as many arguments as the kernel takes after its context");
        std::tuple<Params...> values(static_cast<Params>(std::forward<Args>(arguments))...);
        return std::apply(
            [&](Params&... params) {
                return run(kernel_handle(kernel), config, std::vector<void*>{static_cast<void*>(&params)...});
            },
            values);
    }

    /// The same for a kernel without its type: each of `arguments` points to the value of a parameter behind the
    /// context, in order. They are read before the kernel starts. Throws dcuda::error (invalid_argument) if their
    /// number is not the kernel's, where that is known.
    double run(const kernel_handle& kernel, const launch_config& config, const std::vector<void*>& arguments);

    /// Starts a run as run() does, on the runtime's device, behind the work that is in `stream` already. On return the
    /// kernel is in the stream. Collective over the processes. To prepare the run, the call waits for all work that the
    /// device has at the time. A thread of the library serves the run until the future is ready; the future holds what
    /// run() returns or throws. Until then the program may call no other function of this runtime; a run that is
    /// started nevertheless throws dcuda::error (invalid_argument). The future's destructor waits. An error that is
    /// found before the kernel is in the stream is thrown by the call itself.
    ///
    /// Until the future is ready, copy behind the run to pinned memory only: a copy to or from other host memory keeps
    /// all threads of the process from the driver until the stream has come there, the library's thread as well. Where
    /// a process is reached over a network, that thread starts a kernel of its own, and the run would never end.
    template <class... Params, class... Args>
    std::future<double> run_async(cudaStream_t stream, void (*kernel)(context, Params...), const launch_config& config,
                                  Args&&... arguments) {
        static_assert(sizeof...(Params) == sizeof...(Args), "as many arguments as the kernel takes after its context");
        std::tuple<Params...> values(static_cast<Params>(std::forward<Args>(arguments))...);
        return std::apply(
            [&](Params&... params) {
                return run_async(stream, kernel_handle(kernel), config,
                                 std::vector<void*>{static_cast<void*>(&params)...});
            },
            values);
    }
    /// The same for a kernel without its type.
    std::future<double> run_async(cudaStream_t stream, const kernel_handle& kernel, const launch_config& config,
                                  const std::vector<void*>& arguments);

    /// Returns how many ranks a run of this kernel would have, and where they are. Collective over the processes.
    /// Throws dcuda::error on all processes: out_of_resources if not even one block fits, or if more ranks were asked
    /// for than fit (the message names the limit and the largest number that fits); invalid_argument if `config` cannot
    /// work or the processes disagree. The runtime can be used after that.
    template <class... Params>
    rank_info plan(void (*kernel)(context, Params...), const launch_config& config) {
        return plan(kernel_handle(kernel), config);
    }
    /// The same for a kernel without its type.
    rank_info plan(const kernel_handle& kernel, const launch_config& config);

    /// Makes a window of all ranks that exists in every following run, whatever its number of ranks. Each rank of this
    /// process offers the same `bytes` bytes of this process's memory at `memory`. Collective over the processes,
    /// outside of run; addresses and sizes may differ, bytes may be 0. The memory is cudaMalloc memory of the runtime's
    /// device (CPU backend: from its cudaMalloc). It stays the caller's, and keeps its content from run to run. The
    /// window is the same value in all processes: pass it to kernels as an argument. Operations of ranks take it like a
    /// window of their own, except free_window. Where ranks of a device put into the same bytes, window_kind holds as
    /// for overlapping windows.
    ///
    /// Throws dcuda::error on all processes: no_path if one of them offers memory that the others cannot map, or bytes
    /// at a null pointer; out_of_resources if the host has options::max_windows windows already.
    window create_window(void* memory, std::size_t bytes, window_kind kind = window_kind::usual);

    /// Closes such a window. Collective over the processes, outside of run. On return no process maps the memory any
    /// more, which may be freed. Throws dcuda::error (invalid_argument) if there is no such window.
    void free_window(window win);

    /// Waits until all processes of the job have called it. Collective over the processes, outside of run. Orders what
    /// hosts do, such as files that one writes and another reads; a run needs no barrier before or after it. Throws
    /// dcuda::error: process_lost if a process has ended, invalid_argument if another makes a different collective
    /// call; then the runtime serves no further call. The same holds for broadcast and gather.
    void barrier();

    /// Copies the value that process `root` has to all other processes. Collective over the processes, outside of run,
    /// with the same root and a value of the same size. On return the value is process root's. It travels through the
    /// host of process 0: for settings, sizes and results, not for the data of ranks. Errors as for barrier.
    template <plain_value Value>
    void broadcast(Value& value, int root = 0) {
        broadcast_bytes(std::as_writable_bytes(std::span(&value, 1)), root);
    }
    /// The same for the values of a span, as many on all processes; for bytes, std::span<std::byte>.
    template <plain_value Element, std::size_t Extent>
    void broadcast(std::span<Element, Extent> values, int root = 0) {
        broadcast_bytes(std::as_writable_bytes(values), root);
    }

    /// Brings a value of each process to process `root`, which gets them by process; the others get nothing.
    /// Collective over the processes, outside of run, with the same root and type. Errors as for barrier.
    template <plain_value Value>
    std::vector<Value> gather(const Value& value, int root = 0) {
        std::vector<Value> values;
        for (const std::string& part : gather_bytes(std::as_bytes(std::span(&value, 1)), root, sizeof(Value))) {
            Value gathered;
            std::memcpy(&gathered, part.data(), sizeof gathered);
            values.push_back(gathered);
        }
        return values;
    }
    /// The same for the values of a span, of which processes may have different numbers; for bytes,
    /// std::span<const std::byte>.
    template <class Element, std::size_t Extent>
    requires plain_value<std::remove_const_t<Element>> std::vector<std::vector<std::remove_const_t<Element>>>
    gather(std::span<Element, Extent> values, int root = 0) {
        std::vector<std::vector<std::remove_const_t<Element>>> all;
        for (const std::string& part : gather_bytes(std::as_bytes(values), root, sizeof(Element))) {
            all.emplace_back(part.size() / sizeof(Element));
            if (!part.empty()) std::memcpy(all.back().data(), part.data(), part.size());
        }
        return all;
    }

    /// Where the ranks of this process are. Before the first plan or run the rank fields are 0.
    rank_info info() const;

    /// What carries messages between processes that cannot map each other's memory, such as "ofi (tcp;ofi_rxm)". Empty
    /// if all can.
    std::string network() const;

    /// Memory of the device that every rank of this device finds through rank::user_data() in the following runs. Owned
    /// by the caller, who keeps it until they have ended.
    void set_user_data(void* device_memory);

    /// Energy of the last run, of this process's device and host and of the job: include dcuda/energy.hpp. The sums of
    /// the job are those of the last run that ended well. Nothing is known unless options::measure_energy or
    /// DCUDA_ENERGY says that runs are measured, or runs are counted or traced.
    run_energy energy() const;

    /// Milliseconds between rank::start_timer and rank::stop_timer, one entry per stop, of the last run.
    std::vector<double> timings() const;

    /// What the ranks of this process's device have done in the runs so far. Throws dcuda::error (invalid_argument) if
    /// nothing is counted: set DCUDA_STATS, DCUDA_TRACE or options::count.
    struct statistics statistics() const;

private:
    friend class stream_port;
    port_access access_of_ports() const;
    void broadcast_bytes(std::span<std::byte> bytes, int root);
    std::vector<std::string> gather_bytes(std::span<const std::byte> bytes, int root, std::size_t element_bytes);

    class implementation;
    std::unique_ptr<implementation> implementation_;
};

} // namespace dcuda
