// SPDX-License-Identifier: BSD-3-Clause
// A block of the CPU backend: one OS thread, and a fiber for each of its CUDA threads. A fiber that waits switches
// directly to the next that can run; there is no scheduler, so a debugger finds the waiting kernel on the OS thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dcuda/detail/exec/exec_cpu.hpp"
#include "stacks.hpp"

namespace dcuda::detail::cpu {

// What exit_thread throws; not a std::exception, so that a kernel's handlers do not take it for an error.
struct thread_exit {};

// The two words of the C++ runtime that say which exceptions are in flight; each fiber has its own.
struct exception_state {
    void* caught = nullptr;
    unsigned uncaught = 0;
};

enum class fiber_state : std::uint8_t { ready, at_barrier, in_warp_operation, ended };

struct fiber {
    void* context = nullptr; // where to continue, while it does not run
    fiber* next = nullptr;   // in the list it waits in
    uint3 index{};           // its threadIdx
    unsigned linear = 0;
    fiber_state state = fiber_state::ready;
    const void* place = nullptr;     // the meeting that it waits at
    const char* operation = nullptr; // of the library, that it is in
    exception_state exceptions;
    const char* stack_bottom = nullptr; // lowest address
    std::size_t stack_bytes = 0;
    void* asan_fake_stack = nullptr;
    void* tsan_fiber = nullptr;
    unsigned valgrind_stack = 0;
};

// First in, first out.
class fiber_list {
public:
    bool empty() const { return first_ == nullptr; }
    void push(fiber& f);
    fiber* pop();               // null if empty
    void append(fiber_list& l); // takes all of l
    void rotate();              // the first becomes the last
    const fiber* first() const { return first_; }
    unsigned size() const { return size_; }

private:
    fiber* first_ = nullptr;
    fiber* last_ = nullptr;
    unsigned size_ = 0;
};

// Which of the threads that can run is next: each in turn, or, with DCUDA_FIBER_SEED, in an order that is drawn by that
// seed. Then all threads of a warp run before those of the others for a while, as the warps of a GPU come in any order.
class fiber_order {
public:
    fiber_order(unsigned block, unsigned warps);
    void arrange(fiber_list& ready); // the next one comes first

private:
    std::uint64_t drawn_; // 0: each in turn
    unsigned warps_;
    unsigned early_warp_ = 0, early_switches_ = 0; // the warp that runs before others, and for how many switches
};

struct warp {
    std::uint32_t alive = 0;
    std::uint32_t arrived = 0; // lanes that wait in an operation
    std::array<std::uint32_t, warpSize> mask{};
    std::array<std::uint32_t, warpSize> source{}; // of a shuffle
    std::array<std::uint64_t, warpSize> value{}, result{};
    std::array<warp_operation, warpSize> operation{};
    std::array<char, warpSize> in{}, out{}; // ThreadSanitizer's clocks of the operation whose first lane this is
};

// What all blocks of one kernel share.
struct kernel {
    exec::launch_shape shape;
    std::function<void()> body;
    std::atomic<bool> failed{false};
};

// Records why the kernel failed; the first reason stays. Every block then ends at its next barrier or warp operation.
void report_failure(kernel& k, const std::string& reason);

class block {
public:
    block(kernel& k, unsigned index);
    ~block();
    block(const block&) = delete;
    block& operator=(const block&) = delete;

    // Runs all threads to their end, on the calling OS thread.
    void run();

    // The operations of the running fiber.
    void sync(exec::cpu::meeting_place place, exec::cpu::action first, exec::cpu::action second, void* data);
    int sync_and_count(exec::cpu::meeting_place place, bool vote, unsigned& participants);
    std::uint64_t warp_exchange(warp_operation operation, unsigned mask, std::uint64_t value, unsigned argument,
                                int width);
    bool yield();           // false if no other fiber can run
    bool yield_from_wait(); // the same for a fiber that waits for another rank: sleeps a little if all that can run do
    const char* enter_operation(const char* name) { return std::exchange(current_->operation, name); }
    void* dynamic_shared() const { return shared_; }
    const stack_memory& stacks() const { return stacks_; }
    bool is_on_current_stack(const void* address) const {
        return reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(current_->stack_bottom) <
               current_->stack_bytes;
    }
    // Its first rank, and how many it has: none in a kernel that runtime::run did not start.
    int rank() const { return kernel_.shape.first_rank + static_cast<int>(index_) * ranks(); }
    int ranks() const { return kernel_.shape.ranks_per_block; }
    unsigned index() const { return index_; }
    std::string name() const; // "rank 5 (block 5)", or "block 5"
    static block* current();  // null outside a kernel

    // Where the running fiber's stack begins; `previous` is the fiber that it was switched to from.
    [[noreturn]] void first_run(fiber& previous, void* context);

private:
    struct pending_sync {
        exec::cpu::action first = nullptr, second = nullptr;
        void* data = nullptr;
    };
    // Where threads meet.
    struct meeting {
        unsigned arrived = 0;
        pending_sync pending;                // of those that wait here,
        const fiber* last_arrived = nullptr; // the last of whom this is,
        bool parted = false;                 // and not all of whom are in the same operation
        fiber_list waiting;
        unsigned votes = 0, vote_result = 0, vote_threads = 0;
        char in = 0, out = 0; // ThreadSanitizer's clocks
    };

    void run_body();
    [[noreturn]] void end_fiber();
    void wait(fiber_state state);
    void complete(meeting& at, const pending_sync& m);
    bool complete_warp(warp& w, unsigned mask);
    static bool are_in_same_operation(const fiber& a, const fiber& b);
    std::string describe_places() const;
    std::string describe_parted(const meeting* at) const; // that wait there; null: all
    void fail_parted(const meeting* at);
    void switch_to(fiber& next);
    fiber* next_ready();
    fiber& next_to_run();
    bool stopping() const;
    bool unwinding() const;
    [[noreturn]] void leave();
    void stop();

    kernel& kernel_;
    unsigned index_;
    unsigned threads_;
    stack_memory stacks_;
    void* shared_ = nullptr;
    std::vector<fiber> fibers_;
    std::vector<warp> warps_;
    fiber main_; // the OS thread's own stack
    fiber* current_ = nullptr;
    exception_state* exceptions_ = nullptr;
    fiber_list ready_;
    fiber_order order_;
    unsigned alive_;
    unsigned idle_ = 0;             // fibers in yield_from_wait
    std::vector<meeting> meetings_; // by meeting_place::number; the first: of all threads
    bool stopped_ = false;
    char end_ = 0; // ThreadSanitizer's clock
};

} // namespace dcuda::detail::cpu
