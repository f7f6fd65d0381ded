// SPDX-License-Identifier: BSD-3-Clause
// What the device tests share: device memory that the host fills and reads, checks inside kernels, and a fixture that
// runs a kernel on a runtime of its own. Every process of the job runs the same tests in the same order, so a test
// never leaves early (ASSERT) before a collective call of the host.
#pragma once

#include <dcuda/dcuda.hpp>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

namespace dcuda::test {

// ThreadSanitizer sees order, not addresses, and is slow: with it, tests of all addresses try some of them.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool few_addresses = true;
#else
inline constexpr bool few_addresses = false;
#endif

// AddressSanitizer makes a kernel of many threads slow, and sees no more in it than in one of some.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool few_threads = true;
#else
inline constexpr bool few_threads = few_addresses;
#endif

// Whether one of compute-sanitizer's tools watches, which slow a kernel down by up to a thousand times.
inline const bool under_tool = std::getenv("DCUDA_TEST_ROUNDS") != nullptr;

// Whether tests of many ranks try the largest number of ranks alone, and one way of several: racecheck takes minutes
// for each (scripts/gpu_check.sh).
inline const bool tries_one_way = std::getenv("DCUDA_TEST_ONE_WAY") != nullptr;

// How often a test repeats something: what DCUDA_TEST_ROUNDS says, or so often on a GPU, and on CPUs.
inline int rounds_of(int gpu, int cpu, int with_few_addresses = 2) {
    if (const char* text = std::getenv("DCUDA_TEST_ROUNDS")) return std::atoi(text);
    return DCUDA_BACKEND_CUDA ? gpu : few_addresses ? with_few_addresses : cpu;
}

inline void require_cuda(cudaError_t result) {
    if (result != cudaSuccess) throw std::runtime_error(cudaGetErrorString(result));
}

// An array in device memory. At least one element is allocated, so that get() is never null.
template <class Element>
class device_vector {
public:
    explicit device_vector(std::size_t count) : count_(count) {
        void* memory = nullptr;
        require_cuda(cudaMalloc(&memory, (count + 1) * sizeof(Element)));
        memory_.reset(static_cast<Element*>(memory));
        require_cuda(cudaMemset(memory, 0, (count + 1) * sizeof(Element)));
        require_cuda(cudaDeviceSynchronize());
    }
    explicit device_vector(const std::vector<Element>& content) : device_vector(content.size()) { write(content); }

    Element* get() const { return memory_.get(); }
    std::size_t size() const { return count_; }
    std::size_t size_bytes() const { return count_ * sizeof(Element); }
    void write(const std::vector<Element>& content) {
        require_cuda(cudaMemcpy(get(), content.data(), content.size() * sizeof(Element), cudaMemcpyHostToDevice));
    }
    std::vector<Element> read() const {
        std::vector<Element> content(count_);
        require_cuda(cudaMemcpy(content.data(), get(), size_bytes(), cudaMemcpyDeviceToHost));
        return content;
    }

private:
    struct deleter {
        void operator()(Element* memory) const { cudaFree(memory); }
    };
    std::size_t count_;
    std::unique_ptr<Element[], deleter> memory_;
};

// What kernels found wrong: how often, and the first case in full.
struct findings {
    unsigned failures;
    int line;
    int rank;
    unsigned thread;
    unsigned long long seen;
    unsigned long long expected;
};

DCUDA_DEVICE void expect_equal(findings* found, int line, int rank, unsigned long long seen,
                               unsigned long long expected) {
    if (seen == expected || atomicAdd(&found->failures, 1u) != 0) return;
    found->line = line;
    found->rank = rank;
    found->thread = detail::exec::thread_index();
    found->seen = seen;
    found->expected = expected;
}

// In a kernel with `findings* found` and `dcuda::rank self`. Any thread.
#define EXPECT_SAME(seen, expected)                                                                                    \
    dcuda::test::expect_equal(found, __LINE__, self.id(), static_cast<unsigned long long>(seen),                       \
                              static_cast<unsigned long long>(expected))

// A byte that depends on its place and on a seed.
DCUDA_HOST_DEVICE unsigned char pattern(std::uint64_t place, std::uint64_t seed) {
    std::uint64_t x = place + 0x9e3779b97f4a7c15u * (seed + 1);
    x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
    return static_cast<unsigned char>(x >> 56);
}

// The threads of the block share a loop over [0, count).
template <class F>
DCUDA_DEVICE void for_each_thread(std::size_t count, const F& f) {
    for (std::size_t i = detail::exec::thread_index(); i < count; i += detail::exec::block_threads()) f(i);
}

// One thread of the block, without a barrier.
template <class F>
DCUDA_DEVICE void by_one_thread(const F& f) {
    if (detail::exec::thread_index() == 0) f();
}

// Until done() says yes, or for ten seconds; then false. One thread.
template <class Done>
DCUDA_DEVICE bool spin(const Done& done) {
    const std::uint64_t begin = dcuda::detail::clock_ns();
    while (!done()) {
        if (dcuda::detail::clock_ns() - begin > 10'000'000'000u) return false;
        dcuda::detail::pause_ns(1000);
    }
    return true;
}

// A rank's own piece of a device array.
template <class Element>
DCUDA_DEVICE Element* piece_of(Element* array, std::size_t count, const dcuda::rank& self) {
    return array + count * static_cast<std::size_t>(self.id(dcuda::device));
}

// A runtime per test.
class device_test : public testing::Test {
protected:
    // A runtime chooses the process's device, and tests allocate memory before they make their own runtime.
    static void SetUpTestSuite() { const runtime chooses_the_device; }

    static launch_config shape(int ranks_per_device, dim3 threads = dim3(32), std::size_t shared_bytes = 0) {
        launch_config config;
        config.threads = threads;
        config.shared_bytes = shared_bytes;
        config.ranks_per_device = ranks_per_device;
        return config;
    }

    runtime& job() {
        if (!runtime_) runtime_ = std::make_unique<runtime>(requested);
        return *runtime_;
    }
    void end_job() { runtime_.reset(); }

    // So many ranks, which fill a GPU, or one less: where some processes are reached over a network the delivery kernel
    // takes the place of one.
    int all_of(int ranks_per_device) { return ranks_per_device - (job().network().empty() ? 0 : 1); }

    // Runs kernel(context, findings*, arguments...) and expects it to find nothing wrong.
    template <class... Params, class... Args>
    void check(void (*kernel)(context, findings*, Params...), const launch_config& config, Args... arguments) {
        const device_vector<findings> found(1);
        EXPECT_NO_THROW(job().run(kernel, config, found.get(), arguments...));
        const findings first = found.read()[0];
        EXPECT_EQ(first.failures, 0u) << "first: line " << first.line << ", rank " << first.rank << ", thread "
                                      << first.thread << ": saw " << first.seen << ", expected " << first.expected;
    }

    options requested;

private:
    std::unique_ptr<runtime> runtime_;
};

} // namespace dcuda::test
