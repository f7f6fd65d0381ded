// SPDX-License-Identifier: BSD-3-Clause
// Fibers, and how they meet at a barrier. Warp operations are in warp.cpp.
#include "block.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <exception>
#include <sched.h>
#include <time.h>
#include <unistd.h>
#include <utility>

#include <boost/context/detail/fcontext.hpp>
#include <fmt/format.h>

#include "dcuda/detail/exec/launch.hpp"
#include "dcuda/detail/ops/check.hpp"
#include "dcuda/error.hpp"
#include "sanitizer.hpp"

constinit thread_local uint3 threadIdx{};
constinit thread_local uint3 blockIdx{};
constinit thread_local dim3 blockDim{};
constinit thread_local dim3 gridDim{};

namespace dcuda::detail::cpu {

namespace {

constinit thread_local block* this_block = nullptr;

void enter_fiber(boost::context::detail::transfer_t from) {
    block::current()->first_run(*static_cast<fiber*>(from.data), from.fctx);
}

std::string place(const uint3& index) { return fmt::format("thread ({},{},{})", index.x, index.y, index.z); }

} // namespace

block::block(kernel& k, unsigned index)
    : kernel_(k), index_(index), threads_(k.shape.threads.x * k.shape.threads.y * k.shape.threads.z),
      stacks_(threads_, default_stack_bytes()), fibers_(threads_), warps_((threads_ + warpSize - 1) / warpSize),
      order_(index, static_cast<unsigned>(warps_.size())), alive_(threads_),
      meetings_(detail::hardware_barriers + warps_.size()) {
    if (k.shape.shared_bytes != 0 && posix_memalign(&shared_, 128, k.shape.shared_bytes) != 0)
        throw error(error_code::out_of_resources,
                    fmt::format("no memory for {} bytes of shared memory", k.shape.shared_bytes));
    for (unsigned i = 0; i < threads_; ++i) {
        fiber& f = fibers_[i];
        const dim3& d = k.shape.threads;
        f.linear = i;
        f.index = {i % d.x, i / d.x % d.y, i / d.x / d.y};
        f.stack_bottom = stacks_.bottom(i);
        f.stack_bytes = stacks_.stack_bytes();
        warps_[i / warpSize].alive |= 1u << i % warpSize;
    }
}

block::~block() { std::free(shared_); }

block* block::current() { return this_block; }

std::string block::name() const {
    if (ranks() == 0) return fmt::format("block {}", index_);
    if (ranks() == 1) return fmt::format("rank {} (block {})", rank(), index_);
    return fmt::format("ranks {} to {} (block {})", rank(), rank() + ranks() - 1, index_);
}

DCUDA_UNINSTRUMENTED void block::run() {
    this_block = this;
    blockIdx = {index_, 0, 0};
    gridDim = {kernel_.shape.blocks, 1, 1};
    blockDim = kernel_.shape.threads;
    exceptions_ = reinterpret_cast<exception_state*>(abi::__cxa_get_globals());
    if (sanitizer::thread()) main_.tsan_fiber = __tsan_get_current_fiber();
    for (fiber& f : fibers_) {
        char* top = const_cast<char*>(f.stack_bottom) + f.stack_bytes;
        // Each starts at another offset in its page: else all of them meet in a few sets of the first-level cache.
        char* start = top - f.linear * 320 % 4096 / 64 * 64;
        const auto usable = static_cast<std::size_t>(start - f.stack_bottom);
        f.context = boost::context::detail::make_fcontext(start, usable, enter_fiber);
        f.valgrind_stack = VALGRIND_STACK_REGISTER(f.stack_bottom, top);
        if (sanitizer::thread()) {
            f.tsan_fiber = __tsan_create_fiber(0);
            __tsan_set_fiber_name(f.tsan_fiber, (name() + " " + place(f.index)).c_str());
        }
        ready_.push(f);
    }
    current_ = &main_;
    switch_to(*next_ready());

    sanitizer::acquire(&end_);
    for (fiber& f : fibers_) {
        VALGRIND_STACK_DEREGISTER(f.valgrind_stack);
        if (sanitizer::thread()) __tsan_destroy_fiber(f.tsan_fiber);
    }
    this_block = nullptr;
}

// No system call, no lock: about the cost of a function call.
DCUDA_UNINSTRUMENTED void block::switch_to(fiber& next) {
    fiber& self = *current_;
    self.exceptions = *exceptions_;
    *exceptions_ = next.exceptions;
    current_ = &next;
    threadIdx = next.index;
    if (sanitizer::address()) {
        const bool returns = self.state != fiber_state::ended;
        __sanitizer_start_switch_fiber(returns ? &self.asan_fake_stack : nullptr, next.stack_bottom, next.stack_bytes);
    }
    if (sanitizer::thread()) __tsan_switch_to_fiber(next.tsan_fiber, sanitizer::tsan_no_sync);
    const auto from = boost::context::detail::jump_fcontext(next.context, &self);
    static_cast<fiber*>(from.data)->context = from.fctx;
    if (sanitizer::address()) __sanitizer_finish_switch_fiber(self.asan_fake_stack, nullptr, nullptr);
}

DCUDA_UNINSTRUMENTED void block::first_run(fiber& previous, void* context) {
    previous.context = context;
    if (sanitizer::address()) {
        const void* bottom = nullptr;
        std::size_t bytes = 0;
        __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
        if (&previous == &main_) {
            main_.stack_bottom = static_cast<const char*>(bottom);
            main_.stack_bytes = bytes;
        }
    }
    run_body();
    end_fiber();
}

void block::run_body() {
    std::string problem;
    try {
        kernel_.body();
        return;
    } catch (const thread_exit&) {
        return;
    } catch (const std::exception& e) {
        problem = e.what();
    } catch (...) {
        problem = "an exception that is not a std::exception";
    }
    report_failure(kernel_,
                   fmt::format("{}: {} left the kernel with an exception: {}", name(), place(threadIdx), problem));
}

void block::end_fiber() {
    sanitizer::look_away();
    fiber& self = *current_;
    self.state = fiber_state::ended;
    --alive_;
    warp& w = warps_[self.linear / warpSize];
    w.alive &= ~(1u << self.linear % warpSize);
    // Those that wait for this thread alone need not wait any longer.
    try {
        meeting& of_all = meetings_.front();
        if (of_all.arrived != 0 && of_all.arrived == alive_) {
            if (of_all.parted)
                fail_parted(&of_all);
            else
                complete(of_all, of_all.pending);
        }
        for (unsigned lane = 0; w.arrived != 0 && lane < warpSize; ++lane)
            if (w.arrived >> lane & 1) complete_warp(w, w.mask[lane]);
    } catch (const thread_exit&) {
    } catch (const std::exception& e) {
        report_failure(kernel_, fmt::format("{}: {}", name(), e.what()));
    }
    sanitizer::release(&end_);
    fiber& next = next_to_run();
    sanitizer::look_again();
    switch_to(next);
    std::abort(); // an ended fiber never runs again
}

// Null if there is none.
fiber* block::next_ready() {
    order_.arrange(ready_);
    return ready_.pop();
}

fiber& block::next_to_run() {
    if (fiber* f = next_ready()) return *f;
    if (alive_ == 0) return main_;
    if (!stopping()) {
        const auto in_warp = static_cast<unsigned>(std::count_if(
            fibers_.begin(), fibers_.end(), [](const fiber& f) { return f.state == fiber_state::in_warp_operation; }));
        report_failure(kernel_, fmt::format("{}: deadlock inside the block: {} threads wait in __syncthreads or a call "
                                            "of the whole block, {} in a warp operation, {} have ended{}",
                                            name(), alive_ - in_warp, in_warp, threads_ - alive_, describe_places()));
    }
    stop();
    return *next_ready();
}

// Or in none.
bool block::are_in_same_operation(const fiber& a, const fiber& b) {
    if (a.operation == b.operation) return true;
    return a.operation != nullptr && b.operation != nullptr && std::strcmp(a.operation, b.operation) == 0;
}

namespace {

// Threads in the same place.
struct place_group {
    std::string where;
    std::vector<const fiber*> threads;
    bool is_operation;
};

// Of those that wait at a meeting; null: of all.
std::vector<place_group> group_by_place(const std::vector<fiber>& fibers, const void* place) {
    std::vector<place_group> groups;
    for (const fiber& f : fibers) {
        if (f.state == fiber_state::ended || (place != nullptr && f.place != place)) continue;
        const char* where = f.operation;
        if (where == nullptr)
            where = f.state == fiber_state::in_warp_operation ? "a warp operation"
                    : f.place != nullptr                      ? "__syncthreads"
                                                              : "the kernel";
        const auto known =
            std::find_if(groups.begin(), groups.end(), [&](const place_group& each) { return each.where == where; });
        place_group& same =
            known != groups.end() ? *known : groups.emplace_back(place_group{where, {}, f.operation != nullptr});
        same.threads.push_back(&f);
    }
    return groups;
}

std::string describe_threads(const std::vector<const fiber*>& threads) {
    const fiber &first = *threads.front(), &last = *threads.back();
    if (threads.size() == 1) return place(first.index) + " is";
    const bool has_gaps = last.linear - first.linear + 1 != threads.size();
    return fmt::format("{} threads ({},{},{}) to ({},{},{}){} are", threads.size(), first.index.x, first.index.y,
                       first.index.z, last.index.x, last.index.y, last.index.z, has_gaps ? ", with gaps," : "");
}

std::string describe(const std::vector<place_group>& groups) {
    std::string text;
    for (const place_group& each : groups)
        text += fmt::format("{}{} in {}", text.empty() ? "" : ", ", describe_threads(each.threads), each.where);
    return text;
}

} // namespace

// Which threads are where, if some are in an operation.
std::string block::describe_places() const {
    const auto groups = group_by_place(fibers_, nullptr);
    if (std::none_of(groups.begin(), groups.end(), [](const place_group& each) { return each.is_operation; }))
        return "";
    return "; " + describe(groups);
}

// All threads have come to a barrier, but not to the same: an operation that only some of them call.
std::string block::describe_parted(const meeting* at) const {
    const auto groups = group_by_place(fibers_, at);
    const bool is_block = at == nullptr || at == &meetings_.front();
    const char* const whole = is_block ? "the block" : "the rank";
    if (groups.size() == 1)
        return fmt::format("{}: the threads of {} have called {} with different arguments, or not equally often; "
                           "all must make the same calls, like __syncthreads()",
                           name(), whole, groups.front().where);
    const auto is_fewer = [](const place_group& a, const place_group& b) {
        return a.is_operation != b.is_operation ? a.is_operation : a.threads.size() < b.threads.size();
    };
    const std::string fewest = std::min_element(groups.begin(), groups.end(), is_fewer)->where;
    return fmt::format("{}: only some threads of {} have called {}: {}. All threads of {} must call every "
                       "operation: take it out of the branch around it, such as if (threadIdx.x == 0)",
                       name(), whole, fewest, describe(groups), is_block ? "a block" : "a rank");
}

void block::fail_parted(const meeting* at) {
    report_failure(kernel_, describe_parted(at));
    stop();
}

bool block::stopping() const { return stopped_ || kernel_.failed.load(std::memory_order_relaxed); }

// A thread that an exception or exit_thread ends no longer meets the others: its destructors find nobody.
bool block::unwinding() const { return exceptions_->uncaught != 0; }

// Wakes all that wait, to leave.
void block::stop() {
    stopped_ = true;
    for (meeting& each : meetings_) {
        each.arrived = 0;
        each.parted = false;
        ready_.append(each.waiting);
    }
    for (fiber& f : fibers_) {
        if (f.state != fiber_state::in_warp_operation) continue;
        f.state = fiber_state::ready;
        ready_.push(f);
    }
    for (warp& w : warps_) w.arrived = 0;
}

// Ends the calling thread of a kernel that has failed, as a GPU would: at once. Unwinding its stack could meet a
// destructor that may not throw, and end the process without a word.
void block::leave() {
    sanitizer::look_again(); // for the guard that never ends
    end_fiber();
}

void block::wait(fiber_state state) {
    fiber& self = *current_;
    self.state = state;
    fiber& next = next_to_run();
    if (&next != &self) switch_to(next);
    self.state = fiber_state::ready;
}

bool block::yield() {
    sanitizer::unobserved guard;
    if (unwinding()) return false;
    if (stopping()) leave();
    fiber* next = next_ready();
    if (!next) return false;
    ready_.push(*current_);
    switch_to(*next);
    return true;
}

bool block::yield_from_wait() {
    {
        sanitizer::unobserved guard; // yield() has its own, which ends with the fiber if the kernel has failed
        if (ready_.empty()) return false;
        if (ready_.size() == idle_) usleep(50);
        ++idle_;
    }
    const bool others_ran = yield();
    sanitizer::unobserved guard;
    --idle_;
    return others_ran;
}

void block::sync(exec::cpu::meeting_place place, exec::cpu::action first, exec::cpu::action second, void* data) {
    sanitizer::unobserved guard;
    if (unwinding()) return;
    if (stopping()) leave();
    meeting& at = meetings_.at(place.number);
    current_->place = &at;
    sanitizer::release(&at.in);
    const pending_sync m{first, second, data};
    const bool differs = at.arrived != 0 && (at.pending.first != first || at.pending.second != second);
    if (differs) check::threads_part(first != nullptr || second != nullptr);
    if (at.arrived != 0 && !check::watches_threads() &&
        (differs || !are_in_same_operation(*current_, *at.last_arrived)))
        at.parted = true;
    if (++at.arrived == (place.number == 0 ? alive_ : place.threads)) {
        if (!at.parted) {
            current_->place = nullptr;
            return complete(at, m);
        }
        fail_parted(&at);
        leave();
    }
    at.pending = m;
    at.last_arrived = current_;
    at.waiting.push(*current_);
    wait(fiber_state::at_barrier);
    if (stopping()) leave();
    current_->place = nullptr;
    sanitizer::acquire(&at.out);
}

int block::sync_and_count(exec::cpu::meeting_place place, bool vote, unsigned& participants) {
    sanitizer::unobserved guard;
    meeting& at = meetings_.at(place.number);
    at.votes += vote;
    sync(place, nullptr, nullptr, nullptr);
    participants = at.vote_threads;
    return static_cast<int>(at.vote_result);
}

void block::complete(meeting& at, const pending_sync& m) {
    struct opener { // also when an action throws
        block& b;
        meeting& at;
        bool ordered = false;
        void order() {
            if (!std::exchange(ordered, true)) sanitizer::release(&at.out);
        }
        ~opener() {
            order();
            at.arrived = 0;
            at.parted = false;
            b.ready_.append(at.waiting);
        }
    };
    sanitizer::acquire(&at.in);
    at.vote_result = at.votes;
    at.vote_threads = at.arrived;
    at.votes = 0;
    opener open{*this, at};
    const auto run = [&](exec::cpu::action act) {
        if (act == nullptr || stopping()) return;
        struct observed {
            observed() { sanitizer::look_again(); }
            ~observed() { sanitizer::look_away(); }
        } in_user_code;
        act(m.data);
    };
    run(m.first);
    open.order();
    run(m.second);
}

DCUDA_UNINSTRUMENTED void spin_hint() {
    static constinit thread_local unsigned count = 0;
    if (++count % 32 != 0) return;
    if (this_block) this_block->yield();
    check::yield();
    if (count % 1024 == 0) sched_yield();
}

void sleep_ns(unsigned nanoseconds) {
    if (this_block) this_block->yield();
    check::yield();
    const timespec time{nanoseconds / 1'000'000'000, static_cast<long>(nanoseconds % 1'000'000'000)};
    if (nanoseconds >= 50'000)
        nanosleep(&time, nullptr); // below, a system call takes as long
    else
        sched_yield();
}

void trap() { throw error(error_code::kernel_failure, "__trap()"); }

unsigned lane() {
    const unsigned linear = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    return linear % warpSize;
}

namespace {

block& the_block(const char* function) {
    if (!this_block) throw error(error_code::invalid_argument, fmt::format("{} called outside a kernel", function));
    return *this_block;
}

} // namespace

std::uint64_t warp_exchange(warp_operation operation, unsigned mask, std::uint64_t value, unsigned argument,
                            int width) {
    return the_block("a warp operation").warp_exchange(operation, mask, value, argument, width);
}

} // namespace dcuda::detail::cpu

namespace dcuda::detail::exec {

void cpu::sync(meeting_place place, action first, action second, void* data) {
    detail::cpu::the_block("a collective operation").sync(place, first, second, data);
}
unsigned cpu::sync_and_count(meeting_place place, bool yes) {
    unsigned threads = 0;
    return static_cast<unsigned>(detail::cpu::the_block("a collective operation").sync_and_count(place, yes, threads));
}
const char* cpu::enter_operation(const char* name) {
    detail::cpu::block* const own = detail::cpu::block::current();
    return own != nullptr ? own->enter_operation(name) : nullptr;
}
bool cpu::is_on_own_stack(const void* address) {
    const detail::cpu::block* const own = detail::cpu::block::current();
    return own != nullptr && own->is_on_current_stack(address);
}
void* cpu::dynamic_shared() { return detail::cpu::the_block("dynamic_shared").dynamic_shared(); }
void exit_thread() { throw detail::cpu::thread_exit{}; }
bool cpu::is_unwinding() { return std::uncaught_exceptions() != 0; }
void cpu::yield_core() {
    if (detail::cpu::this_block) detail::cpu::this_block->yield();
    sched_yield();
}

} // namespace dcuda::detail::exec

bool dcuda::detail::run_others_of_block() {
    // In a checked run a rank that waits may not have the turn, and then its threads have not either.
    return cpu::this_block != nullptr && !check::watches_threads() && cpu::this_block->yield_from_wait();
}

void __syncthreads() {
    using namespace dcuda::detail;
    cpu::the_block("__syncthreads").sync({}, nullptr, nullptr, nullptr);
}
int __syncthreads_count(int predicate) {
    unsigned threads = 0;
    return dcuda::detail::cpu::the_block("__syncthreads_count").sync_and_count({}, predicate != 0, threads);
}
int __syncthreads_and(int predicate) {
    unsigned threads = 0;
    const int yes = dcuda::detail::cpu::the_block("__syncthreads_and").sync_and_count({}, predicate != 0, threads);
    return static_cast<unsigned>(yes) == threads;
}
int __syncthreads_or(int predicate) {
    unsigned threads = 0;
    return dcuda::detail::cpu::the_block("__syncthreads_or").sync_and_count({}, predicate != 0, threads) != 0;
}
