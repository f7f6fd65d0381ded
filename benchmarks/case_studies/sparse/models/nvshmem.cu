// SPDX-License-Identifier: BSD-3-Clause
// NVSHMEM: one persistent kernel whose blocks do what dCUDA's ranks do, in the same steps (power_kernel.hpp), with puts
// with signals into symmetric memory. A block counts what it has received under each tag in a signal.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include <cuda/atomic>

#include "common/models/nvshmem.hpp"
#include "models/model.hpp"
#include "power_kernel.hpp"

namespace sparse {

namespace {

constexpr int tags = product_tags + 32;

struct job {
    task work;
    goal wanted{};
    std::uint64_t* signals = nullptr;  // symmetric: of each tag, of each block
    std::uint64_t* received = nullptr; // how many of these this device had waited for before the run
    std::uint64_t* stamps = nullptr;   // nanoseconds: start, stop

    __host__ __device__ int blocks() const { return work.whole.ranks_per_device; }
    __device__ std::size_t number(int tag, int block) const {
        return static_cast<std::size_t>(tag) * static_cast<std::size_t>(blocks()) + static_cast<std::size_t>(block);
    }
};

// A block with the calls of dcuda::rank.
class block {
public:
    struct memory {};

    // `received` has room for a number of each tag, shared by the block.
    __device__ block(const job& of, std::uint64_t* received) : of_(of), received_(received) {
        for (int tag = thread(); tag < tags; tag += threads()) received_[tag] = of_.received[own(tag)];
        __syncthreads();
    }
    __device__ void close() const {
        for (int tag = thread(); tag < tags; tag += threads()) of_.received[own(tag)] = received_[tag];
    }

    // Of this device, which is what is asked for.
    __device__ int id(dcuda::communicator) const { return static_cast<int>(blockIdx.x); }

    __device__ void barrier(dcuda::communicator of) const {
        if (of == dcuda::world)
            common::meet();
        else
            cooperative_groups::this_grid().sync();
    }

    __device__ memory create_window(dcuda::communicator, void*, std::size_t) const { return {}; }
    __device__ void free_window(memory) const {}

    // To another device: ranks put nothing within theirs.
    __device__ void put_notify(memory, int target, std::size_t offset, std::size_t bytes, const void* source,
                               int tag) const {
        const int pe = target / of_.blocks();
        std::uint64_t* const signal = &of_.signals[of_.number(tag, target % of_.blocks())];
        std::byte* const there = of_.work.memory + offset;
        __syncthreads();
        if (bytes > 0)
            nvshmemx_putmem_signal_nbi_block(there, source, bytes, signal, 1, NVSHMEM_SIGNAL_ADD, pe);
        else if (thread() == 0)
            nvshmemx_signal_op(signal, 1, NVSHMEM_SIGNAL_ADD, pe);
    }

    __device__ void wait_notifications(int tag, int count) const {
        if (thread() == 0 && count > 0) {
            received_[tag] += static_cast<std::uint64_t>(count);
            nvshmem_signal_wait_until(&of_.signals[own(tag)], NVSHMEM_CMP_GE, received_[tag]);
            cuda::atomic_thread_fence(cuda::memory_order_acquire);
        }
        __syncthreads();
    }

    __device__ void start_timer() const { stamp(0); }
    __device__ void stop_timer() const { stamp(1); }

private:
    __device__ std::size_t own(int tag) const { return of_.number(tag, static_cast<int>(blockIdx.x)); }
    __device__ void stamp(int which) const {
        if (blockIdx.x == 0 && thread() == 0) of_.stamps[which] = common::now_ns();
    }

    const job& of_;
    std::uint64_t* received_;
};

__global__ void __launch_bounds__(most_threads) iterate_with_nvshmem(const __grid_constant__ job of) {
    __shared__ std::uint64_t received[tags];
    block self(of, received);
    iterate_as(self, of.work, of.wanted, [](int) {});
    self.close();
}

class nvshmem_model final : public common::model {
public:
    explicit nvshmem_model(const setting& given)
        : given_(given), library_(processes_), bytes_(given.work.places().bytes()),
          memory_(common::allocate_symmetric<std::byte>(bytes_)),
          signals_(common::allocate_symmetric<std::uint64_t>(words())), received_(words()), stamps_(2) {
        common::check(cudaMemset(received_.data(), 0, received_.bytes()), "clearing memory");
        common::check(cudaDeviceSynchronize(), "clearing memory");
        job_.work = given.work;
        job_.work.memory = memory_.get();
        job_.wanted = given.wanted;
        job_.signals = signals_.get();
        job_.received = received_.data();
        job_.stamps = stamps_.data();
        nvshmem_barrier_all();
    }

    double run() override {
        copy(memory_.get(), given_.work.memory);
        void* arguments[] = {&job_};
        common::check_nvshmem(nvshmemx_collective_launch(reinterpret_cast<const void*>(&iterate_with_nvshmem),
                                                         dim3(static_cast<unsigned>(job_.blocks())),
                                                         dim3(static_cast<unsigned>(given_.threads)), arguments,
                                                         given_.work.on_chip_bytes, nullptr),
                              "cannot launch; with fewer --ranks or --threads it may fit");
        common::check(cudaDeviceSynchronize(), "the kernel failed");
        copy(given_.work.memory, memory_.get());
        std::uint64_t stamps[2] = {};
        stamps_.download(stamps, 2);
        return processes_.largest(1e-6 * static_cast<double>(stamps[1] - stamps[0]));
    }

    double exchange_alone() override { return 0.0; } // exchanges are in the kernel

    std::string describe() const override { return common::nvshmem_library::name() + ", puts with signals"; }

private:
    std::size_t words() const {
        return static_cast<std::size_t>(tags) * static_cast<std::size_t>(given_.work.whole.ranks_per_device);
    }
    void copy(std::byte* target, const std::byte* source) const {
        common::check(cudaMemcpy(target, source, bytes_, cudaMemcpyDeviceToDevice), "copying the vectors");
        common::check(cudaDeviceSynchronize(), "copying the vectors");
    }

    setting given_;
    common::processes processes_;
    common::nvshmem_library library_;
    std::size_t bytes_; // of the device's memory
    common::symmetric_array<std::byte> memory_;
    common::symmetric_array<std::uint64_t> signals_;
    common::device_buffer<std::uint64_t> received_, stamps_;
    job job_;
};

const models::entry nvshmem("nvshmem", [](const setting& given) -> std::unique_ptr<common::model> {
    return std::make_unique<nvshmem_model>(given);
});

} // namespace

} // namespace sparse
