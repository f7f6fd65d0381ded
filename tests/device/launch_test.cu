// SPDX-License-Identifier: BSD-3-Clause
// Runs: shapes of blocks, several runs and runtimes, arguments, user data, timings, plan, and the log.
#include "device_test.hpp"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <sstream>
#include <unistd.h>

#include "dcuda/energy.hpp"

using namespace dcuda::test;

namespace {

class Launch : public device_test {};

// Every thread of every rank counts itself, in its rank's piece of dynamic shared memory too.
// With as many threads as a block can have, for which registers must be few.
__global__ void __launch_bounds__(1024)
    count_threads(dcuda::context context, findings* found, unsigned* counts, int ranks_here, unsigned threads) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    EXPECT_SAME(self.size(dcuda::device), ranks_here);
    EXPECT_SAME(dcuda::detail::exec::block_threads(), threads);
    EXPECT_SAME(self.id() % ranks_here, self.id(dcuda::device));
    auto* const shared = dcuda::dynamic_shared<unsigned>();
    const unsigned thread = dcuda::detail::exec::thread_index();
    shared[thread] = thread + 1000 * self.id(dcuda::device);
    __syncthreads();
    atomicAdd(counts + self.id(dcuda::device), shared[(thread + 1) % threads] - 1000 * self.id(dcuda::device));
    self.notify((self.id() + 1) % self.size(), dcuda::world, 0);
    self.wait_notifications(0, 1);
}

void expect_thread_counts(const device_vector<unsigned>& counts, unsigned threads) {
    for (const unsigned count : counts.read()) EXPECT_EQ(count, threads * (threads - 1) / 2);
}

TEST_F(Launch, ThreadsPerRank) {
    for (const unsigned threads : {1u, 2u, 31u, 32u, 33u, 100u, 128u, 1024u}) {
        SCOPED_TRACE(threads);
        const device_vector<unsigned> counts(2);
        check(count_threads, shape(2, dim3(threads), threads * sizeof(unsigned)), counts.get(), 2, threads);
        expect_thread_counts(counts, threads);
    }
}

TEST_F(Launch, RanksPerDevice) {
    for (const int ranks : {1, 2, 3, 17, 64, 1}) {
        SCOPED_TRACE(ranks);
        const device_vector<unsigned> counts(static_cast<std::size_t>(ranks));
        check(count_threads, shape(ranks, dim3(16), 64 * sizeof(unsigned)), counts.get(), ranks, 16u);
        expect_thread_counts(counts, 16);
    }
}

// From counters of the processors that are ours and stand still; on GPUs the device has its own.
TEST_F(Launch, EnergyOfARun) {
    const auto folder = std::filesystem::temp_directory_path() / ("dcuda_counters_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder / "intel-rapl:0");
    for (const auto& [file, content] :
         {std::pair("name", "package-0"), {"max_energy_range_uj", "1000"}, {"energy_uj", "7"}})
        std::ofstream(folder / "intel-rapl:0" / file) << content << '\n';
    setenv("DCUDA_POWERCAP", folder.c_str(), 1);
    const device_vector<unsigned> counts(2);
    for (const bool measure : {true, false}) {
        requested.measure_energy = measure;
        check(count_threads, shape(2, dim3(8), 64), counts.get(), 2, 8u);
        const dcuda::run_energy seen = job().energy();
        EXPECT_EQ(seen.cpu, measure ? std::optional(0.0) : std::nullopt);
        EXPECT_EQ(seen.all_cpus, seen.cpu);
        EXPECT_EQ(seen.cpu_problem, measure ? "" : "not measured: set DCUDA_ENERGY=1 or options::measure_energy");
        EXPECT_EQ(seen.device.has_value(), seen.device_problem.empty());
        EXPECT_TRUE((DCUDA_BACKEND_CUDA && measure) || !seen.device);
        end_job();
    }
    unsetenv("DCUDA_POWERCAP");
    std::filesystem::remove_all(folder);
}

TEST_F(Launch, SeveralRuntimesOneAfterAnother) {
    for (int i = 0; i < 4; ++i) {
        const device_vector<unsigned> counts(2);
        check(count_threads, shape(2, dim3(8), 64), counts.get(), 2, 8u);
        end_job();
    }
}

// --- what reaches the kernel ---

struct big_argument {
    double numbers[20];
    int process;
};

__global__ void arguments(dcuda::context context, findings* found, big_argument big, const char* text, short number) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    for (int i = 0; i < 20; ++i) EXPECT_SAME(big.numbers[i], i + big.process);
    EXPECT_SAME(big.process, self.id() / self.size(dcuda::device)); // arguments may differ between processes
    EXPECT_SAME(text[1], 'b');
    EXPECT_SAME(number, -3);
    EXPECT_SAME(self.user_data() == static_cast<const void*>(text), true);
}

TEST_F(Launch, ArgumentsAndUserData) {
    big_argument big{};
    big.process = job().info().process_index;
    for (int i = 0; i < 20; ++i) big.numbers[i] = i + big.process;
    const device_vector<char> text({'a', 'b', 'c'});
    job().set_user_data(text.get());
    check(arguments, shape(2), big, static_cast<const char*>(text.get()), short(-3));
}

TEST_F(Launch, PlanTellsWhatARunHas) {
    EXPECT_EQ(job().info().rank_count, 0);
    const dcuda::rank_info plan = job().plan(count_threads, shape(3));
    const dcuda::rank_info info = job().info();
    EXPECT_EQ(std::memcmp(&plan, &info, sizeof plan), 0);
    EXPECT_EQ(plan.rank_responsible, 3);
    EXPECT_EQ(plan.rank_count, 3 * plan.process_count);
    EXPECT_EQ(plan.rank_start, 3 * plan.process_index);
    EXPECT_EQ(plan.device_count, plan.process_count); // on one node
    EXPECT_EQ(plan.device_index, plan.process_index);
    EXPECT_EQ(plan.node_count, 1);
    EXPECT_EQ(plan.node_index, 0);
    const char* processes = std::getenv("DCUDA_PROCESS_COUNT");
    EXPECT_EQ(plan.process_count, processes ? std::atoi(processes) : 1);
}

TEST_F(Launch, RanksPerDeviceAsAskedOfTheRuntime) {
    requested.ranks_per_device = 5;
    EXPECT_EQ(job().plan(count_threads, shape(0)).rank_responsible, 5);
    EXPECT_EQ(job().plan(count_threads, shape(2)).rank_responsible, 2);
}

TEST_F(Launch, TooManyRanksAreRefusedAndFewerRun) {
    try {
        job().plan(count_threads, shape(1 << 20));
        ADD_FAILURE() << "a million ranks fit";
    } catch (const dcuda::error& problem) {
        EXPECT_EQ(problem.code(), dcuda::error_code::out_of_resources);
        const std::string message = problem.what();
        EXPECT_NE(message.find("1048576 ranks of 32 threads were asked for, but at most "), std::string::npos)
            << message;
        EXPECT_NE(message.find(" are co-resident on process 0's device: "), std::string::npos) << message;
    }
    const device_vector<unsigned> counts(2);
    check(count_threads, shape(2, dim3(8), 64), counts.get(), 2, 8u);
}

TEST_F(Launch, ImpossibleShapesAreRefused) {
    EXPECT_THROW(job().plan(count_threads, shape(1, dim3(1025))), dcuda::error);
    EXPECT_THROW(job().plan(count_threads, shape(1, dim3(0))), dcuda::error);
    EXPECT_THROW(job().plan(count_threads, shape(-1)), dcuda::error);
    EXPECT_THROW(job().plan(count_threads, shape(1, dim3(32), std::size_t(1) << 20)), dcuda::error);
    EXPECT_EQ(job().plan(count_threads, shape(1)).rank_responsible, 1);
}

// --- timer and log ---

__global__ void timed(dcuda::context context, findings*, int stops) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    self.start_timer();
    for (int i = 0; i < stops; ++i) self.stop_timer();
}

TEST_F(Launch, TimingsHaveAnEntryPerStop) {
    for (const int stops : {0, 1, 5}) {
        check(timed, shape(3), stops);
        const std::vector<double> timings = job().timings();
        ASSERT_EQ(timings.size(), static_cast<std::size_t>(stops));
        for (std::size_t i = 0; i < timings.size(); ++i) EXPECT_GE(timings[i], i == 0 ? 0 : timings[i - 1]);
    }
}

TEST_F(Launch, RunReturnsTheKernelsTime) {
    const device_vector<findings> found(1);
    EXPECT_GT(job().run(timed, shape(2), found.get(), 1), 0);
}

__global__ void logged(dcuda::context context, findings*, int lines) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    for (int i = 0; i < lines; ++i)
        self.log() << "rank " << self.id() << " line " << i << " " << 2.5 * i << ' ' << (1ull << 63) << " " << -7L
                   << " and a text that is longer than one of the commands that carry it, by far";
}

TEST_F(Launch, LogLinesAreWholeAndInOrder) {
    constexpr int ranks_here = 4, lines = 300; // together more commands than the ring holds
    testing::internal::CaptureStdout();
    check(logged, shape(ranks_here), lines);
    std::istringstream printed(testing::internal::GetCapturedStdout());
    const int first = job().info().rank_start;
    std::vector<int> next(ranks_here, 0);
    for (std::string line; std::getline(printed, line);) {
        int rank = -1;
        ASSERT_EQ(std::sscanf(line.c_str(), "rank %d ", &rank), 1) << line;
        ASSERT_TRUE(rank >= first && rank < first + ranks_here) << line;
        const int i = next[rank - first]++;
        std::ostringstream expected;
        expected << "rank " << rank << " line " << i << " " << 2.5 * i
                 << " 9223372036854775808 -7 and a text that is longer than one of the commands that carry it, by far";
        EXPECT_EQ(line, expected.str());
    }
    for (const int count : next) EXPECT_EQ(count, lines);
}

// Of a block's two warps one leads, in some blocks the first and in others the second: lines are the first thread's.
__global__ void logs_its_thread(dcuda::context context, findings*) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    self.log() << "thread " << threadIdx.x;
    if (threadIdx.x == 0) self.log() << "alone";
}

TEST_F(Launch, LogLinesAreOfTheFirstThread) {
    constexpr int ranks_here = 8;
    testing::internal::CaptureStdout();
    check(logs_its_thread, shape(ranks_here, dim3(64)));
    std::istringstream printed(testing::internal::GetCapturedStdout());
    int lines = 0, alone = 0;
    for (std::string line; std::getline(printed, line); ++lines)
        if (line == "alone")
            ++alone;
        else
            EXPECT_EQ(line, "thread 0");
    EXPECT_EQ(lines, 2 * ranks_here);
    EXPECT_EQ(alone, ranks_here);
}

// The destructor's barrier is one for all threads, wherever they leave the kernel.
__global__ void leaves_early(dcuda::context context, findings*, unsigned* marks) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    if (threadIdx.x % 3 == 1) return;
    if (threadIdx.x == 0) {
        for (unsigned i = 0; i < 1000; ++i) marks[self.id(dcuda::device)] += i;
        self.log() << "thread 0 of " << self.id();
        return;
    }
    if (threadIdx.x + 1 == blockDim.x) marks[4 + self.id(dcuda::device)] = 1;
}

TEST_F(Launch, ThreadsMayLeaveInDifferentPlaces) {
    const device_vector<unsigned> marks(8);
    testing::internal::CaptureStdout();
    check(leaves_early, shape(4, dim3(96)), marks.get());
    testing::internal::GetCapturedStdout();
    const std::vector<unsigned> seen = marks.read();
    for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(seen[i], 499'500u);
        EXPECT_EQ(seen[4 + i], 1u);
    }
}

// --- Kernels without their type, and runs that the caller does not wait for ------------------------------------------

__global__ void add_in_ring(dcuda::context context, unsigned* sums, unsigned first, unsigned second) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    self.notify((self.id() + 1) % self.size(), dcuda::world, 0);
    self.wait_notifications(0, 1);
    if (dcuda::detail::exec::thread_index() == 0) sums[self.id(dcuda::device)] += first + second;
}

class KernelHandle : public Launch {
protected:
    void run(const dcuda::kernel_handle& kernel, std::vector<void*> arguments) {
        job().run(kernel, shape(4, dim3(32)), arguments);
    }
    device_vector<unsigned> sums{4};
    unsigned* memory = sums.get();
    unsigned first = 3, second = 4;
};

TEST_F(KernelHandle, ArgumentsByAddress) {
    const dcuda::kernel_handle kernel(add_in_ring);
    EXPECT_EQ(job().plan(kernel, shape(4, dim3(32))).rank_responsible, 4);
    run(kernel, {&memory, &first, &second});
    EXPECT_EQ(sums.read(), std::vector<unsigned>(4, 7));
}

TEST_F(KernelHandle, WrongNumberOfArguments) {
    try {
        run(dcuda::kernel_handle(add_in_ring), {&memory, &first});
        ADD_FAILURE() << "no error";
    } catch (const dcuda::error& problem) {
        EXPECT_EQ(problem.code(), dcuda::error_code::invalid_argument);
        EXPECT_STREQ(problem.what(), "the kernel takes 3 arguments behind its context, and 2 were given");
    }
    run(dcuda::kernel_handle(add_in_ring), {&memory, &first, &second}); // nothing is broken
    EXPECT_EQ(sums.read(), std::vector<unsigned>(4, 7));
}

#if DCUDA_BACKEND_CUDA
TEST_F(KernelHandle, OfALoadedKernel) {
    cudaKernel_t loaded = nullptr;
    require_cuda(cudaGetKernel(&loaded, reinterpret_cast<const void*>(&add_in_ring)));
    run(dcuda::kernel_handle(loaded), {&memory, &first, &second});
    EXPECT_EQ(sums.read(), std::vector<unsigned>(4, 7));
}
#endif

class AsynchronousRun : public KernelHandle {
protected:
    AsynchronousRun() { require_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); }
    ~AsynchronousRun() override { cudaStreamDestroy(stream); }
    std::future<double> start() {
        return job().run_async(stream, add_in_ring, shape(4, dim3(32)), memory, first, second);
    }
    cudaStream_t stream = nullptr;
};

TEST_F(AsynchronousRun, InTheOrderOfItsStream) {
    const std::vector<unsigned> tens(4, 10);
    unsigned* seen = nullptr; // pinned: a copy to other memory keeps all threads from the driver until it is done
    require_cuda(cudaMallocHost(reinterpret_cast<void**>(&seen), sums.size_bytes()));
    require_cuda(cudaMemcpyAsync(memory, tens.data(), sums.size_bytes(), cudaMemcpyHostToDevice, stream));
    std::future<double> run = start();
    require_cuda(cudaMemcpyAsync(seen, memory, sums.size_bytes(), cudaMemcpyDeviceToHost, stream));
    EXPECT_GE(run.get(), 0);
    require_cuda(cudaStreamSynchronize(stream));
    EXPECT_EQ(std::vector<unsigned>(seen, seen + 4), std::vector<unsigned>(4, 17));
    require_cuda(cudaFreeHost(seen));
    start().get(); // the runtime is free again
    job().run(add_in_ring, shape(4, dim3(32)), memory, first, second);
    EXPECT_EQ(sums.read(), std::vector<unsigned>(4, 31));
}

__global__ void wait_for_word(dcuda::context context, const unsigned* word) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    while (dcuda::detail::load_relaxed(word) == 0) {
    }
    __syncthreads();
}

TEST_F(AsynchronousRun, OneAtATime) {
    unsigned* word = nullptr;
    require_cuda(cudaMallocHost(reinterpret_cast<void**>(&word), sizeof *word));
    *word = 0;
    std::future<double> run = job().run_async(stream, wait_for_word, shape(2, dim3(32)), word);
    EXPECT_EQ(run.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
    for (const bool asynchronous : {false, true}) {
        try {
            if (asynchronous)
                start();
            else
                job().run(add_in_ring, shape(4, dim3(32)), memory, first, second);
            ADD_FAILURE() << "no error";
        } catch (const dcuda::error& problem) {
            EXPECT_EQ(problem.code(), dcuda::error_code::invalid_argument);
        }
    }
    std::atomic_ref(*word).store(1);
    run.get();
    require_cuda(cudaFreeHost(word));
}

TEST_F(AsynchronousRun, RuntimeThatGoesWaits) {
    std::future<double> run = start();
    end_job();
    EXPECT_EQ(run.wait_for(std::chrono::seconds(0)), std::future_status::ready);
    run.get();
    EXPECT_EQ(sums.read(), std::vector<unsigned>(4, 7));
}

__global__ void send_too_far(dcuda::context context) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    self.notify(self.size(), dcuda::world, 0);
}

TEST_F(AsynchronousRun, ErrorsComeWithTheFuture) {
    std::future<double> run = job().run_async(stream, send_too_far, shape(2, dim3(32)));
    try {
        run.get();
        ADD_FAILURE() << "no error";
    } catch (const dcuda::error& problem) {
        EXPECT_EQ(problem.code(), dcuda::error_code::device_fault);
    }
    end_job();
}

} // namespace
