// SPDX-License-Identifier: BSD-3-Clause
// Kernels of the CPU backend: starting their blocks, how many fit, and what became of them.
#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <pthread.h>
#include <sstream>
#include <sys/resource.h>
#include <system_error>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>

#include "block.hpp"
#include "dcuda/detail/ops/check.hpp"
#include "dcuda/error.hpp"
#include "sanitizer.hpp"
#include "stream.hpp"

namespace dcuda::detail::cpu {

namespace {

struct failure_record {
    std::mutex mutex;
    std::string reason;
};

failure_record& failure() {
    static auto& f = *new failure_record;
    return f;
}

struct running_kernel {
    kernel shared;
    std::vector<std::unique_ptr<block>> blocks; // of a run, made before it begins
    operation_ptr op = std::make_shared<operation>();
    std::mutex mutex;
    std::condition_variable opened;
    enum class gate { closed, open, cancelled } state = gate::closed;
    unsigned running = 0;             // OS threads
    std::atomic<unsigned> started{0}; // blocks

    ~running_kernel() { sanitizer::acquire(this); }
    // Before a reference is dropped: ThreadSanitizer does not see the reference counts of a library that is not
    // instrumented.
    void let_go() { sanitizer::release(this); }

    void set(gate g) {
        const std::lock_guard lock(mutex);
        state = g;
        opened.notify_all();
    }
};

struct sigaction previous_segv {};

// Names the thread of a kernel that used an address it must not, then lets the fault take its course. It runs on a
// stack of its own, and allocates nothing.
void on_segv(int, siginfo_t* info, void*) {
    if (const block* const b = block::current()) {
        char text[256];
        int length = b->ranks() == 0   ? std::snprintf(text, sizeof text, "block %u: ", b->index())
                     : b->ranks() == 1 ? std::snprintf(text, sizeof text, "rank %d (block %u): ", b->rank(), b->index())
                                       : std::snprintf(text, sizeof text, "ranks %d to %d (block %u): ", b->rank(),
                                                       b->rank() + b->ranks() - 1, b->index());
        const auto add = [&](const char* format, auto... values) {
            const auto used = static_cast<std::size_t>(length);
            length += std::snprintf(text + used, sizeof text - used, format, values...);
        };
        if (b->stacks().overflown(info->si_addr) >= 0)
            add("stack overflow in thread (%u,%u,%u): its stack has %zu bytes, DCUDA_STACK_BYTES sets another size\n",
                threadIdx.x, threadIdx.y, threadIdx.z, b->stacks().stack_bytes());
        else
            add("no memory at address %p, used by thread (%u,%u,%u); a debugger shows where, or a program and a "
                "library with -fsanitize=address\n",
                info->si_addr, threadIdx.x, threadIdx.y, threadIdx.z);
        [[maybe_unused]] const auto written = write(STDERR_FILENO, text, static_cast<std::size_t>(length));
    }
    sigaction(SIGSEGV, &previous_segv, nullptr); // the faulting instruction runs again
}

// The calling OS thread takes signals on a stack of its own while this lives. A handler that somebody else installed, a
// sanitizer say, stays.
class overflow_watch {
public:
    overflow_watch() {
        static std::once_flag once;
        std::call_once(once, [] {
            sigaction(SIGSEGV, nullptr, &previous_segv);
            if ((previous_segv.sa_flags & SA_SIGINFO) || previous_segv.sa_handler != SIG_DFL) return;
            struct sigaction ours {};
            ours.sa_sigaction = on_segv;
            ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
            sigaction(SIGSEGV, &ours, nullptr);
        });
        const stack_t ours{stack_.data(), 0, stack_.size()};
        sigaltstack(&ours, &before_);
    }
    ~overflow_watch() { sigaltstack(&before_, nullptr); }
    overflow_watch(const overflow_watch&) = delete;
    overflow_watch& operator=(const overflow_watch&) = delete;

private:
    std::vector<char> stack_ = std::vector<char>(32 * 1024);
    stack_t before_{};
};

// Runs the OS thread's own block, then those that no other thread has started.
void run_in_turn(running_kernel& k, unsigned index) {
    while (index < k.shared.shape.blocks) {
        std::unique_ptr<block> own = index < k.blocks.size() ? std::move(k.blocks[index]) : nullptr;
        try {
            if (own == nullptr) own = std::make_unique<block>(k.shared, index);
            own->run();
        } catch (const error& problem) {
            report_failure(k.shared, problem.what());
        }
        own.reset(); // its stacks are for the next block
        index = k.started.fetch_add(1, std::memory_order_relaxed);
    }
}

// The life of an OS thread that runs blocks.
void run_blocks(std::shared_ptr<running_kernel> k, unsigned index) {
    const std::string name = k->shared.shape.ranks_per_block == 0 ? fmt::format("block {}", index)
                                                                  : fmt::format("rank {}", k->blocks[index]->rank());
    pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
    {
        std::unique_lock lock(k->mutex);
        k->opened.wait(lock, [&] { return k->state != running_kernel::gate::closed; });
        if (k->state == running_kernel::gate::cancelled) return;
    }
    if (sanitizer::address() || sanitizer::thread()) { // they watch by themselves
        run_in_turn(*k, index);
    } else {
        const overflow_watch watch;
        run_in_turn(*k, index);
    }
    detail::check::thread_ends();
    bool last = false;
    {
        const std::lock_guard lock(k->mutex);
        last = --k->running == 0;
    }
    operation_ptr op;
    if (last) {
        op = std::move(k->op);
        k->shared.body = nullptr; // whatever it holds ends before the host hears of the end
    }
    k->let_go();
    k.reset();
    if (op) complete(op);
}

// The first number in a file; `missing` if there is none ("max", say).
long long number_in(const std::string& path, long long missing) {
    std::ifstream file(path);
    long long value = missing;
    return file >> value ? value : missing;
}

long long line_count(const char* path) {
    std::ifstream file(path);
    return std::count(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>(), '\n');
}

// The value after `key` in a file of "key: value" lines.
long long field(const char* path, const std::string& key, long long missing) {
    std::ifstream file(path);
    for (std::string word; file >> word;) {
        long long value = 0;
        if (word == key && file >> value) return value;
    }
    return missing;
}

// pids.max of this process's control group, less what is used; version 2 and 1.
long long cgroup_threads_left(long long unlimited) {
    std::ifstream file("/proc/self/cgroup");
    long long left = unlimited;
    for (std::string line; std::getline(file, line);) {
        const auto first = line.find(':'), second = line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        if (!controllers.empty() && controllers != "pids") continue;
        std::string path = line.substr(second + 1);
        const std::string root = controllers.empty() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/pids";
        for (;; path.erase(path.rfind('/'))) { // a parent's limit holds too
            const std::string directory = root + path;
            const long long most = number_in(directory + "/pids.max", unlimited);
            if (most != unlimited) left = std::min(left, most - number_in(directory + "/pids.current", 0));
            if (path.rfind('/') == std::string::npos) break;
        }
    }
    return left;
}

constexpr std::size_t max_shared_bytes = 227 * 1024; // of a block, as on a GPU
constexpr long long tsan_threads = 8000;             // ThreadSanitizer ends the process at about 8100

struct demand {
    long long maps, bytes; // of a block
};

demand demand_of(long long threads, std::size_t shared_bytes) {
    // A stack in use touches two pages as a rule; then come the tables and the OS thread's own stack and thread-locals.
    const long long touched = threads * (sanitizer::thread()    ? 512 * 1024
                                         : sanitizer::address() ? 32 * 1024
                                                                : 8 * 1024);
    return {2 * threads + 4, touched + static_cast<long long>(shared_bytes) + 64 * 1024};
}

} // namespace

void report_failure(kernel& k, const std::string& reason) {
    failure_record& f = failure();
    const std::lock_guard lock(f.mutex);
    if (!k.failed.exchange(true) && f.reason.empty()) f.reason = reason;
}

cudaError_t device_state() {
    const std::lock_guard lock(failure().mutex);
    return failure().reason.empty() ? cudaSuccess : cudaErrorLaunchFailure;
}

} // namespace dcuda::detail::cpu

namespace dcuda::detail::exec {

using namespace dcuda::detail::cpu;

std::string kernel_failure() {
    const std::lock_guard lock(failure().mutex);
    return failure().reason;
}

launch_limit limit(dim3 threads, std::size_t shared_bytes) {
    const long long count = static_cast<long long>(threads.x) * threads.y * threads.z;
    if (count < 1 || count > 1024 || threads.x > 1024 || threads.y > 1024 || threads.z > 64)
        return {0, fmt::format("a block of {} x {} x {} threads: a block has 1 to 1024 threads, at most 64 along z",
                               threads.x, threads.y, threads.z)};
    if (shared_bytes > max_shared_bytes)
        return {0, fmt::format("{} bytes of dynamic shared memory: a block has at most {}", shared_bytes,
                               max_shared_bytes)};

    constexpr long long unlimited = 1 << 30;
    launch_limit result{unlimited, {}};
    const auto allow = [&](long long blocks, const std::string& reason) {
        if (blocks < result.max_blocks) result = {static_cast<int>(std::max(blocks, 0LL)), reason};
    };
    const demand d = demand_of(count, shared_bytes);

    // A thousand mappings stay free for everything else in the process.
    const long long most_maps = number_in("/proc/sys/vm/max_map_count", 65530);
    const long long maps = most_maps - line_count("/proc/self/maps") + kept_mappings() - 1000;
    allow(maps / d.maps, fmt::format("vm.max_map_count = {} allows {} threads", most_maps, maps / d.maps * count));

    const long long memory = field("/proc/meminfo", "MemAvailable:", unlimited) * 1024;
    allow(memory / d.bytes,
          fmt::format("memory: {} MiB are available and a block needs about {} KiB", memory >> 20, d.bytes >> 10));

    const long long pids = number_in("/proc/sys/kernel/pid_max", 32768);
    allow(pids / 2, fmt::format("kernel.pid_max = {}", pids));
    const long long system_threads = number_in("/proc/sys/kernel/threads-max", unlimited);
    allow(system_threads / 2, fmt::format("kernel.threads-max = {}", system_threads));
    rlimit processes{};
    if (geteuid() != 0 && getrlimit(RLIMIT_NPROC, &processes) == 0 && processes.rlim_cur != RLIM_INFINITY)
        allow(static_cast<long long>(processes.rlim_cur) - field("/proc/self/status", "Threads:", 1),
              fmt::format("RLIMIT_NPROC (ulimit -u) = {}", processes.rlim_cur));
    const long long left = cgroup_threads_left(unlimited);
    allow(left, fmt::format("the control group's pids.max leaves {} threads", left));
    rlimit space{};
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY) {
        const auto stacks = static_cast<rlim_t>(count) * (default_stack_bytes() + stack_memory::guard_bytes);
        allow(static_cast<long long>(space.rlim_cur / 2 / stacks),
              fmt::format("RLIMIT_AS (ulimit -v) = {} bytes", space.rlim_cur));
    }
    if (sanitizer::thread())
        allow(tsan_threads / (count + 1),
              fmt::format("ThreadSanitizer handles about {} threads in a process", tsan_threads));
    return result;
}

namespace {

// How many blocks an ordinary kernel has at a time: as many fibers as a process has room for beside other kernels, and
// not so many blocks that programs which need more of them at a time than a GPU has room for would work here.
unsigned resident_blocks(const launch_shape& shape) {
    constexpr unsigned most_blocks = 64, most_fibers = 4096;
    const unsigned threads = shape.threads.x * shape.threads.y * shape.threads.z;
    return std::clamp(most_fibers / threads, 1u, std::min(most_blocks, shape.blocks));
}

// Starts the threads of an ordinary kernel, whose turn in its stream it is: before that it needs nothing, and hundreds
// may be in streams.
void begin(const std::shared_ptr<running_kernel>& k) {
    auto& op = *k->op;
    const unsigned resident = resident_blocks(k->shared.shape);
    k->state = running_kernel::gate::open;
    k->running = resident;
    k->started = resident;
    op.completes_later = device_state() == cudaSuccess; // no kernel follows one that has failed
    unsigned begun = 0;
    try {
        for (; op.completes_later && begun < resident; ++begun) std::thread(run_blocks, k, begun).detach();
    } catch (const std::system_error& problem) {
        report_failure(k->shared, fmt::format("the system refused a thread for a block ({})", problem.what()));
        const std::lock_guard lock(k->mutex);
        k->running -= resident - begun;
        op.completes_later = k->running != 0;
    }
    if (!op.completes_later) k->op.reset(); // else its last thread lets go of it
    k->let_go();
}

} // namespace

void launch(const launch_shape& shape, cudaStream_t stream, std::function<void()> body) {
    if (shape.blocks == 0) throw error(error_code::invalid_argument, "a kernel of 0 blocks");
    if (!body) throw error(error_code::invalid_argument, "a launch without a kernel");
    if (check_stream(stream) != cudaSuccess)
        throw error(error_code::invalid_argument, "a launch on a stream that does not exist");
    const launch_limit most = limit(shape.threads, shape.shared_bytes);
    if (shape.blocks > static_cast<unsigned>(most.max_blocks))
        throw error(error_code::out_of_resources,
                    fmt::format("{} blocks of {} threads do not fit, {} would: {}", shape.blocks,
                                shape.threads.x * shape.threads.y * shape.threads.z, most.max_blocks, most.reason));
    {
        const std::lock_guard lock(failure().mutex);
        failure().reason.clear();
    }

    auto k = std::make_shared<running_kernel>();
    k->shared.shape = shape;
    k->shared.body = std::move(body);
    k->running = k->started = shape.blocks;
    for (unsigned i = 0; i < shape.blocks; ++i) k->blocks.push_back(std::make_unique<block>(k->shared, i));
    try {
        for (unsigned i = 0; i < shape.blocks; ++i) std::thread(run_blocks, k, i).detach();
    } catch (const std::system_error& e) {
        k->set(running_kernel::gate::cancelled);
        throw error(
            error_code::out_of_resources,
            fmt::format("the system refused a thread for a block ({}); limit found: {}", e.what(), most.reason));
    }
    const operation_ptr op = k->op;
    op->completes_later = true;
    op->start = [opens = k.get()] { opens->set(running_kernel::gate::open); }; // its blocks wait, so it is alive
    enqueue(stream, op);
    k->let_go();
}

} // namespace dcuda::detail::exec

cudaError_t dcudaCpuLaunch(const cudaLaunchConfig_t* config, std::function<void()> body) {
    using namespace dcuda::detail;
    using namespace dcuda::detail::cpu;
    const dim3 &grid = config->gridDim, &threads = config->blockDim;
    const unsigned long long count = 1ull * threads.x * threads.y * threads.z;
    if (grid.x == 0 || grid.y != 1 || grid.z != 1 || config->numAttrs != 0)
        return report(cudaErrorInvalidConfiguration);
    if (count == 0 || count > 1024 || threads.z > 64 || config->dynamicSmemBytes > max_shared_bytes)
        return report(cudaErrorInvalidConfiguration);
    if (const cudaError_t e = check_stream(config->stream)) return report(e);
    if (const cudaError_t e = device_state()) return report(e); // no kernel follows one that has failed
    auto k = std::make_shared<running_kernel>();
    k->shared.shape = {threads, grid.x, config->dynamicSmemBytes, 0, 0};
    k->shared.body = std::move(body);
    const operation_ptr op = k->op;
    op->start = [k] { exec::begin(k); };
    k->let_go();
    k.reset();
    enqueue(config->stream, op);
    return cudaSuccess;
}
