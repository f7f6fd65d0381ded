// SPDX-License-Identifier: BSD-3-Clause
#include "dcuda/host.hpp"

#include "bootstrap/control.hpp"
#include "bootstrap/job.hpp"
#include "checker/checker.hpp"
#include "device/occupancy.hpp"
#include "device/settings.hpp"
#include "energy/job_energy.hpp"
#include "runtime/agreement.hpp"
#include "runtime/device_paths.hpp"
#include "runtime/host_windows.hpp"
#include "runtime/progress.hpp"
#include "runtime/report.hpp"
#include "support/env.hpp"
#include "support/host.hpp"
#include "support/losses.hpp"
#include "support/wire.hpp"
#include "transport/network.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

namespace dcuda {
namespace {

using clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds rare_interval{500}; // at what seldom happens, while messages come over a network
constexpr std::chrono::seconds delivery_start_limit{30};
constexpr unsigned spins = DCUDA_BACKEND_CUDA ? 1000 : 0; // unsuccessful polls before others may have the core

#if DCUDA_BACKEND_CUDA
constexpr const char* backend = "cuda";
#else
constexpr const char* backend = "cpu";
#endif

// Chooses this process's device. Returns how many devices it sees.
int choose_device(const bootstrap::job& job) {
    // Too late if the program has used CUDA before. Streams share hardware queues, 8 if nothing is said. What the host
    // copies while the kernel runs must not stand in the kernel's queue: it would wait for the kernel's end.
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    // A kernel that is loaded when it is first launched may wait for those that run, and hold up all other calls of
    // CUDA meanwhile: also those that the kernels which run are waiting for.
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    int devices = 0;
    const cudaError_t result = cudaGetDeviceCount(&devices);
    support::require(result == cudaSuccess && devices > 0, error_code::cuda_failure,
                     "no GPU: {}. Programs of the CPU backend need none (cmake --preset cpu)",
                     result == cudaSuccess ? "the driver lists none" : cudaGetErrorString(result));
    cuda::check(cudaSetDevice(job.local_index % devices), "choosing the device");
    return devices;
}

// The PCI bus id of the device in use; empty on the CPU backend.
std::string find_bus_id() {
    char bus_id[32] = {};
#if DCUDA_BACKEND_CUDA
    cuda::check(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, cuda::device_in_use()), "asking for the device's bus id");
#endif
    return bus_id;
}

// The device in use, for people: "NVIDIA H200 0000:3B:00.0".
std::string name_device() {
#if DCUDA_BACKEND_CUDA
    // PERF: cudaGetDeviceProperties would take milliseconds.
    using get_name = int (*)(char* name, int bytes, int device);
    char name[128] = {};
    cuda::driver_function<get_name>("cuDeviceGetName")(name, sizeof name - 1, cuda::device_in_use());
    return fmt::format("{} {}", name, find_bus_id());
#else
    return "CPU";
#endif
}

// Once, by one process of the job: what is misspelled has no effect, and nothing else would say so.
void warn_of_unknown_variables(const bootstrap::job& who) {
    static std::once_flag done;
    if (who.index != 0) return;
    std::call_once(done, [] {
        for (const std::string& sentence : support::unknown_variables()) support::tell(sentence);
    });
}

// What programs catch is dcuda::error.
template <class Action>
auto with_memory_errors(const Action& action) {
    try {
        return action();
    } catch (const std::bad_alloc&) {
        throw error(error_code::out_of_resources,
                    "the host's memory, or what this process may have of it (ulimit -v), is used up");
    }
}

template <class Function>
std::thread start_thread(Function&& function) {
    try {
        return std::thread(std::forward<Function>(function));
    } catch (const std::system_error& problem) {
        throw error(
            error_code::out_of_resources,
            fmt::format("run_async needs a thread to serve the run, and the system gives none (ulimit -u, -v): {}",
                        problem.what()));
    }
}

} // namespace

class runtime::implementation {
public:
    explicit implementation(const settings& chosen)
        : settings_(chosen), job_(bootstrap::detect_job()), devices_(choose_device(job_)),
          control_(job_, fmt::format("{} {}", backend, DCUDA_VERSION_STRING), describe_who_waits_for),
          energy_(settings_, find_bus_id()) {
        warn_of_unknown_variables(job_);
        link_ = std::make_unique<device_access>();
        paths_ = find_device_paths(control_, job_, settings_, devices_);
        open_network();
        profiler_ = std::make_unique<profiler>(control_, settings_, paths_.node_count > 1);
#if DCUDA_BACKEND_CPU
        if (settings_.check != check_mode::off)
            checker_ = std::make_unique<checker>(control_, settings_, network_ == nullptr);
#endif
        if (settings_.live_view) live_ = std::make_unique<live_view>(job_, name_device());
    }

    ~implementation() {
        if (server_.joinable()) server_.join();
    }

    rank_info info() const {
        const int ranks = ranks_;
        return {
            ranks * job_.count, ranks,      ranks * job_.index, job_.local_count, job_.local_index, paths_.node_count,
            paths_.node_index,  job_.count, job_.index};
    }

    std::string network() const { return network_ ? network_->describe() : std::string(); }

    rank_info plan(const detail::kernel_entry& kernel, const launch_config& config) {
        require_idle();
        ranks_ = agree(kernel, config);
        return info();
    }

    double run(const detail::kernel_entry& kernel, const launch_config& config, const std::vector<void*>& arguments) {
        begin(kernel, config, arguments, nullptr);
        return finish();
    }

    std::future<double> run_async(cudaStream_t stream, const detail::kernel_entry& kernel, const launch_config& config,
                                  const std::vector<void*>& arguments) {
        const int current = cuda::device_in_use();
        std::promise<double> result;
        std::promise<void> served; // first: who has the result may start the next run
        std::promise<bool> begun;
        std::future<double> future = result.get_future();
        std::future<void> end = served.get_future();
        // Before the kernel: one that nobody serves would never end.
        std::thread server = start_thread([this, current, begun = begun.get_future(), result = std::move(result),
                                           served = std::move(served)]() mutable {
            if (!begun.get()) return;
            try {
                cuda::check(cudaSetDevice(current), "choosing the device");
                const double elapsed_ms = finish();
                served.set_value();
                result.set_value(elapsed_ms);
            } catch (...) {
                served.set_value();
                result.set_exception(std::current_exception());
            }
        });
        try {
            begin(kernel, config, arguments, &stream);
        } catch (...) {
            begun.set_value(false);
            server.join();
            throw;
        }
        served_ = std::move(end);
        server_ = std::move(server);
        begun.set_value(true);
        return future;
    }

    struct statistics statistics() const {
        return profiler_->statistics();
    }

    const run_energy& energy() const { return energy_.last(); }

    void barrier() {
        require_ready();
        control_.barrier("runtime::barrier");
    }

    // The sizes are part of the name: where they differ, the control server names both.
    void broadcast(std::span<std::byte> bytes, int root) {
        require_ready();
        const std::string subject = fmt::format("runtime::broadcast of {} B from process {}", bytes.size(), root);
        support::require(root >= 0 && root < job_.count, error_code::invalid_argument,
                         "{}: there are processes 0 to {}", subject, job_.count - 1);
        const bool sends = root == job_.index;
        const auto parts = control_.allgather(sends ? as_text(bytes) : std::string_view(), subject);
        if (!sends && !bytes.empty())
            std::memcpy(bytes.data(), parts.at(static_cast<std::size_t>(root)).data(), bytes.size());
    }

    window create_window(void* memory, std::size_t bytes, window_kind kind) {
        require_ready();
        return windows_.create(memory, bytes, kind);
    }

    void free_window(window win) {
        require_ready();
        windows_.free(win);
    }

    std::vector<std::string> gather(std::span<const std::byte> bytes, int root, std::size_t element_bytes) {
        require_ready();
        return control_.gather(as_text(bytes), root,
                               fmt::format("runtime::gather of values of {} B to process {}", element_bytes, root));
    }

    port_access access_of_ports() const { return {settings_, job_, paths_, windows_, device_}; }

    void* user_data = nullptr;
    std::vector<double> timings;

private:
    static std::string_view as_text(std::span<const std::byte> bytes) {
        return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }

    // For another run, or for what processes do between runs.
    void require_ready() const {
        support::require(!failed_, error_code::invalid_argument,
                         "this runtime's last run failed; construct a new one in a new job");
        require_idle();
    }

    // Of all processes or of none: those of one host may have peer access, but not to the other hosts.
    void open_network() {
        if (!paths_.needs_network) return warn_of_unknown_transport();
        network_ = std::make_unique<network_path>(control_, *link_, settings_, paths_.is_remote, paths_.is_near,
                                                  control_.local_address());
        control_.barrier("opening the network");
    }

    // A job that needs it would have ended with an error.
    void warn_of_unknown_transport() const {
        const std::string name = settings_.transport.substr(0, settings_.transport.find(':'));
        if (job_.index != 0 || name == "auto" || transport::has_network(name)) return;
        support::tell(fmt::format("DCUDA_TRANSPORT={}: there is no such transport here; this job needs none",
                                  settings_.transport));
    }

    // A run that has not ended keeps the control plane, the device's state and the network to itself.
    void require_idle() const {
        support::require(!served_.valid() || served_.wait_for(std::chrono::seconds(0)) == std::future_status::ready,
                         error_code::invalid_argument,
                         "a run of this runtime has not ended: wait for the future of run_async first");
    }

    // Runs an action of a run; what it throws ends the run and, for all processes, this runtime's use.
    template <class Action>
    auto as_part_of_run(const Action& action) {
        try {
            return with_memory_errors(action);
        } catch (const error& problem) {
            active_.reset();
            failed_ = true;
            if (network_) network_->abandon();
            control_.abort(static_cast<int>(problem.code()), problem.what());
            if (state_) profiler_->end_run(*state_, *link_, 0, problem.what()); // else nothing has begun
            throw;
        }
    }

    int agree(const detail::kernel_entry& kernel, const launch_config& config) {
        return agree_on_ranks(control_, settings_, network_ != nullptr, kernel.address, config);
    }

    // Puts the kernel into the stream, or into one of its own.
    void begin(const detail::kernel_entry& kernel, const launch_config& config, const std::vector<void*>& arguments,
               const cudaStream_t* stream) {
        require_ready();
        support::require(kernel.parameters < 0 || arguments.size() == static_cast<std::size_t>(kernel.parameters),
                         error_code::invalid_argument,
                         "the kernel takes {} arguments behind its context, and {} were given", kernel.parameters,
                         arguments.size());
        if (server_.joinable()) server_.join(); // of the run before, which has ended
        ranks_ = agree(kernel, config);         // an error here is the same on all processes, which may try again
        as_part_of_run([&] { begin_agreed(kernel, config, arguments, stream); });
    }

    double finish() {
        return as_part_of_run([&] {
            const double elapsed_ms = finish_agreed();
            active_.reset();
            return elapsed_ms;
        });
    }

    // A kernel that runs, and what serves it. Members go in the reverse order.
    struct active_run {
        active_run(implementation& owner, const detail::kernel_entry& kernel, const launch_config& config,
                   const cudaStream_t* given_stream)
            : shared(kernel.address, owner.network_ != nullptr, config, owner.ranks_),
              threads(config.threads.x * config.threads.y * config.threads.z),
              stream_of_its_own(given_stream == nullptr ? std::make_unique<cuda::stream>() : nullptr),
              stream(given_stream == nullptr ? stream_of_its_own->get() : *given_stream) {}

        signal_requests::during_run handled;
        shared_memory shared;
        unsigned threads; // of a block
        std::unique_ptr<cuda::stream> stream_of_its_own;
        cudaStream_t stream;
        cuda::event start, stop;
        std::optional<bootstrap::control::attention> serving;
        std::optional<device_delivery> arrivals;
        std::optional<progress> running;
    };

    static cudaError_t start_kernel(const detail::kernel_entry& kernel, const std::vector<void*>& arguments,
                                    const detail::exec::launch_shape& shape, cudaStream_t stream, context from_host) {
#if DCUDA_BACKEND_CUDA
        std::vector<void*> pointers{&from_host};
        pointers.insert(pointers.end(), arguments.begin(), arguments.end());
        return cudaLaunchCooperativeKernel(kernel.address, dim3(shape.blocks), shape.threads, pointers.data(),
                                           shape.shared_bytes, stream);
#else
        detail::exec::launch(shape, stream,
                             [call = kernel.bind(kernel.address, arguments.data()), from_host] { call(from_host); });
        return cudaSuccess;
#endif
    }

    void begin_agreed(const detail::kernel_entry& kernel, const launch_config& config,
                      const std::vector<void*>& arguments, const cudaStream_t* stream) {
        if (!state_ || state_->ranks() != ranks_) {
            state_.reset();
            control_.barrier("changing the number of ranks"); // nobody maps what is freed
            state_ = std::make_unique<device_state>(control_, settings_, paths_.is_remote, paths_.is_near,
                                                    network_ != nullptr, ranks_);
        }
        timings.clear();
        active_run& run = *(active_ = std::make_unique<active_run>(*this, kernel, config, stream));
        const std::vector<host_window> windows = windows_.all();
#if DCUDA_BACKEND_CPU
        state_->check_by(checker_ ? checker_->begin_run(ranks_, state_->fields().tags, windows) : nullptr);
#endif
        state_->reset(user_data, windows, config.ranks_per_block, run.shared.staging(),
                      profiler_->prepare(ranks_, config.profiled && kernel.is_profilable));
        if (config.profiled && !kernel.is_profilable) report_unprofiled_ranks();
        energy_.begin_run();
        run.serving.emplace(control_);
        control_.barrier("starting the kernel"); // nobody notifies before everybody is reset

        if (network_) network_->begin(*state_, run.arrivals.emplace(*state_), profiler_->host(), windows);
        if (live_) live_->begin_run(ranks_, config.ranks_per_block);
        run.running.emplace(control_, *state_, *link_, network_.get(), live_.get(), *profiler_, signals_, settings_);
        if (state_->fields().profiler.counters != nullptr) profiler_->begin_run();
        run.start.record(run.stream);
        cuda::check(start_kernel(kernel, arguments,
                                 {config.threads, static_cast<unsigned>(ranks_ / config.ranks_per_block),
                                  run.shared.bytes(), state_->first_rank(), config.ranks_per_block},
                                 run.stream, state_->context()),
                    "starting the kernel");
        run.stop.record(run.stream);
        if (run.arrivals) run.arrivals->start(run.threads);
    }

    // Serves the run until its kernel, and those of the other processes, have ended.
    double finish_agreed() {
        active_run& run = *active_;
        progress& running = *run.running;
        wait_for_kernel(run);
        if (!running.failure()) running.end_network();
        energy_.end_run();
        profiler_->note_energy(energy_.last(), energy_.power_samples());
        if (network_) network_->end();
        running.finish();
        judge_unconsumed(running);
#if DCUDA_BACKEND_CPU
        if (checker_) checker_->end_run();
#endif
        if (running.failure()) throw error(*running.failure());
        timings = running.timings();
        const double elapsed_ms = milliseconds(run.start, run.stop);
        energy_.add_up(control_, paths_.node_index,
                       paths_.node_count); // our memory may be freed now: nobody's kernel runs
        run.serving->end();                // what was profiled may take long to write
        profiler_->end_run(*state_, *link_, elapsed_ms);
        return elapsed_ms;
    }

    // Notifications that no rank has waited for are most often a wait that was forgotten.
    void judge_unconsumed(progress& running) {
        const std::string found = running.describe_unconsumed();
        if (found.empty() || running.failure() || settings_.unconsumed == unconsumed_mode::ignore) return;
        if (settings_.unconsumed == unconsumed_mode::error)
            return running.fail(error(error_code::device_fault, found + " (DCUDA_UNCONSUMED=error)"));
        if (!std::exchange(unconsumed_told_, true))
            support::tell(
                fmt::format("process {}: {} (DCUDA_UNCONSUMED=error makes this an error, ignore leaves this line out)",
                            job_.index, found));
    }

    void report_unprofiled_ranks() {
        if (job_.index != 0 || (settings_.trace.empty() && !settings_.count) || std::exchange(unprofiled_told_, true))
            return;
        support::tell("DCUDA_TRACE and DCUDA_STATS show nothing of the ranks: compile the program with "
                      "-DDCUDA_PROFILING=1");
    }

    void wait_for_kernel(active_run& run) {
        progress& running = *run.running;
        const device_delivery* const arrivals = run.arrivals ? &*run.arrivals : nullptr;
        const auto begin = clock::now();
        unsigned idle = 0;
        auto next_poll = clock::now();
        for (;;) {
            bool busy = running.poll();
            // PERF: asking the stream and the socket costs some 10 us, which messages over the network would wait.
            if (arrivals != nullptr && DCUDA_BACKEND_CUDA) {
                const auto now = clock::now();
                if (now < next_poll) {
                    idle = busy ? 0 : idle + 1;
                    if (idle > spins) detail::pause_ns(0);
                    continue;
                }
                next_poll = now + rare_interval;
            }
            busy = running.poll_rest() || busy;
            energy_.poll();
            const cudaError_t state = run.stop.query(); // there may be other work behind the kernel in its stream
            if (state == cudaSuccess) return;
            if (state != cudaErrorNotReady) {
                running.fail(error(error_code::kernel_failure, fmt::format("process {}: the kernel failed: {}",
                                                                           job_.index, kernel_problem(state))));
                return;
            }
            if (arrivals != nullptr && !arrivals->has_started() && clock::now() - begin > delivery_start_limit)
                running.fail(error(
                    error_code::out_of_resources,
                    fmt::format("process {}: the delivery kernel, which delivers what comes over the network, found no "
                                "room on the device for {} s; run with fewer ranks per device",
                                job_.index, delivery_start_limit.count())));
            if (const std::string problem = early_kernel_problem(); !problem.empty())
                running.fail(error(error_code::kernel_failure, fmt::format("process {}: {}", job_.index, problem)));
            if (running.failure() && clock::now() - running.failed_at() > settings_.abort_grace) give_up(running);
            idle = busy ? 0 : idle + 1;
            if (idle > spins) rest(idle - spins, arrivals != nullptr);
        }
    }

    static std::string early_kernel_problem() {
#if DCUDA_BACKEND_CUDA
        return {};
#else
        return detail::exec::kernel_failure();
#endif
    }

    static std::string kernel_problem(cudaError_t state) {
        if (const std::string known = early_kernel_problem(); !known.empty()) return known;
        int current = 0;
        std::string problem = cudaGetErrorString(state);
        if (cudaGetDevice(&current) == cudaSuccess && current != 0)
            problem +=
                fmt::format(" (memory that was allocated before the runtime chose device {} is of device 0)", current);
        return problem;
    }

    // A GPU's ranks need prompt service: this thread sleeps when they have asked for nothing for some 0.1 s, 10'000
    // polls, and never where messages may come over the network. On the CPU backend the ranks need the cores.
    static void rest(unsigned idle, bool is_networked) {
        constexpr unsigned quick = DCUDA_BACKEND_CUDA ? 10'000 : 20, slow = 200;
        if (idle < quick || (DCUDA_BACKEND_CUDA && is_networked))
            detail::pause_ns(0);
        else
            std::this_thread::sleep_for(std::chrono::microseconds(DCUDA_BACKEND_CUDA ? 50 : idle < slow ? 100 : 1000));
    }

    // Ranks that never call the library do not see that the run has ended. Nothing ends a GPU kernel but its process.
    [[noreturn]] void give_up(const progress& running) {
        std::fprintf(
            stderr,
            "dcuda: process %d: %s\ndcuda: process %d: the kernel did not end within %.3g s after that (a rank "
            "is in a loop without dCUDA calls, or only some of its threads have made a call?); ending the process\n",
            job_.index, running.failure()->what(), job_.index,
            static_cast<double>(settings_.abort_grace.count()) * 1e-9);
        profiler_->save_alone(*state_, *link_, running.failure()->what());
        std::fflush(nullptr);
        std::_Exit(EXIT_FAILURE);
    }

    settings settings_;
    bootstrap::job job_;
    int devices_;
    int device_ = cuda::device_in_use(); // that choose_device has chosen
    bootstrap::control control_;
    job_energy energy_;
    std::unique_ptr<device_access> link_;
    device_paths paths_;
    std::unique_ptr<network_path> network_; // null: all processes map each other's memory
    host_windows windows_{control_, settings_.max_windows, paths_.is_remote};
    std::unique_ptr<live_view> live_; // null: DCUDA_TOP=0
    signal_requests signals_;
    std::unique_ptr<device_state> state_;
    std::unique_ptr<profiler> profiler_;
#if DCUDA_BACKEND_CPU
    std::unique_ptr<checker> checker_; // null: runs are not checked
#endif
    std::unique_ptr<active_run> active_; // null: no kernel runs
    std::thread server_;                 // of a run of run_async, or of none
    std::future<void> served_;           // ready when that run has ended
    int ranks_ = 0;
    bool failed_ = false;
    bool unprofiled_told_ = false; // that ranks are not profiled
    bool unconsumed_told_ = false; // that ranks have not waited for notifications
};

runtime::runtime(int& argc, char** argv, options requested)
    : implementation_(with_memory_errors(
          [&] { return std::make_unique<implementation>(resolve_settings(requested, &argc, argv)); })) {}

runtime::runtime(options requested)
    : implementation_(with_memory_errors(
          [&] { return std::make_unique<implementation>(resolve_settings(requested, nullptr, nullptr)); })) {}

// What the program has printed so far, too: a result that is lost must not look like success.
runtime::~runtime() {
    const int problem = support::write_to_output({});
    if (problem != 0)
        support::report_loss(
            fmt::format("what this program prints cannot be written to standard output: {}", std::strerror(problem)));
}

double runtime::run(const kernel_handle& kernel, const launch_config& config, const std::vector<void*>& arguments) {
    return implementation_->run(kernel.entry_, config, arguments);
}

std::future<double> runtime::run_async(cudaStream_t stream, const kernel_handle& kernel, const launch_config& config,
                                       const std::vector<void*>& arguments) {
    return implementation_->run_async(stream, kernel.entry_, config, arguments);
}

window runtime::create_window(void* memory, std::size_t bytes, window_kind kind) {
    return with_memory_errors([&] { return implementation_->create_window(memory, bytes, kind); });
}

void runtime::free_window(window win) { implementation_->free_window(win); }

void runtime::barrier() { implementation_->barrier(); }

void runtime::broadcast_bytes(std::span<std::byte> bytes, int root) {
    with_memory_errors([&] { implementation_->broadcast(bytes, root); });
}

std::vector<std::string> runtime::gather_bytes(std::span<const std::byte> bytes, int root, std::size_t element_bytes) {
    return with_memory_errors([&] { return implementation_->gather(bytes, root, element_bytes); });
}

std::string runtime::network() const { return implementation_->network(); }

run_energy runtime::energy() const { return implementation_->energy(); }

rank_info runtime::plan(const kernel_handle& kernel, const launch_config& config) {
    return with_memory_errors([&] { return implementation_->plan(kernel.entry_, config); });
}

port_access runtime::access_of_ports() const { return implementation_->access_of_ports(); }

rank_info runtime::info() const { return implementation_->info(); }

void runtime::set_user_data(void* device_memory) { implementation_->user_data = device_memory; }

std::vector<double> runtime::timings() const { return implementation_->timings; }

struct statistics runtime::statistics() const {
    return implementation_->statistics();
}

} // namespace dcuda
