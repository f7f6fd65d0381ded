// SPDX-License-Identifier: BSD-3-Clause
// Random traffic over the public interface, every byte, count and order of which is checked:
//
//     random_traffic [--seed N] [--operations N | --seconds S] [--threads N] [--largest BYTES] [--damage KIND]
//
// What happens follows from the seed alone, for any number of ranks, without a plan in memory: a rank computes what it
// sends and, from the same numbers, what it must receive. There are two kinds of rounds. In one, ranks issue `lanes`
// messages each, wait in any order, and meet in barriers; in the other they send streams to each other without a
// barrier, held back by credits only. In the first kind some puts are boxes, some are read back by a get at once, and
// atomic operations add to sums of the target. Windows are freed and created again from time to time. An error names
// seed and round; the same arguments repeat it, as far as timing lets them.
//
// --damage: one rank does one thing wrong, and the program must find it: put (left out), source (a byte further), order
// (of two puts to one place), notification (left out: a deadlock), extra (a notification too much), stream (an old
// message again), sum (an addition left out), get (of other bytes).
#include "traffic_plan.hpp"

#include <dcuda/dcuda.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace {

using namespace random_traffic;

// --- A rank ----------------------------------------------------------------------------------------------------------

class traffic {
public:
    __device__ traffic(const setup& about, dcuda::rank& self)
        : about_(about), self_(self), rank_(self.id()), ranks_(self.size()), device_rank_(self.id(dcuda::device)),
          device_ranks_(self.size(dcuda::device)) {
        inbox_ = about.memory + about.rank_bytes() * std::size_t(device_rank_);
        image_ = inbox_ + about.inbox_bytes();
        pool_ = image_ + about.inbox_bytes();
        sums_ = reinterpret_cast<std::uint32_t*>(inbox_ + about.sums_begin());
    }

    __device__ void run() {
        for_each(about_.inbox_bytes(),
                 [&](std::uint32_t i) { inbox_[i] = image_[i] = static_cast<unsigned char>(i * 7); });
        for_each(about_.pool_bytes(), [&](std::uint32_t i) { pool_[i] = content(salt_of(rank_), i); });
        create_windows();
        for (int i = 0; i < rounds_per_run; ++i) {
            round_ = about_.first_round + std::uint64_t(i);
            if (i != 0 && round_ % rounds_per_window == 0) {
                free_windows();
                create_windows();
            }
            const bool is_stream = round_ != damaged_round && dice(about_.seed, round_, 5, 0).below(4) == 0;
            if (is_stream)
                run_streams();
            else
                run_lanes();
            barrier();
            if (!is_stream) {
                check_lanes(true);
                check_sums();
            }
            for (int tag = int(round_ % 2); tag < tag_count; tag += 2)
                expect(test(tag, 1) ? 1 : 0, 0, __LINE__, tag, 0);
            if (round_ % rounds_per_look == 0 || round_ == damaged_round)
                check(0, about_.inbox_bytes(), __LINE__, -1, -1);
            barrier();
        }
        free_windows();
        tell_end();
        if (threadIdx.x == 0) about_.counted[device_rank_] = counted_;
    }

private:
    // ---- rounds with barriers ----

    __device__ void run_lanes() {
        const bool reversed = about_.wrong == damage::order && is_wrong(); // lane 1 before lane 0
        for (int i = 0; i < lanes; ++i) send(reversed && i < 2 ? 1 - i : i);
        receive_lanes();
        check_lanes(false);
    }

    __device__ bool is_wrong() const { return round_ == damaged_round && rank_ == ranks_ - 1; }

    DCUDA_COLD void send(int lane) {
        const lane_plan plan = plan_lane(about_, round_, lane);
        const bool of_device = plan.map == mapping::device_shift;
        const int index = of_device ? device_rank_ : rank_, count = of_device ? device_ranks_ : ranks_;
        message one = plan_message(about_, round_, lane, plan, rank_, std::uint32_t(index), std::uint32_t(count));
        const int number = int(plan.number % std::uint32_t(count));
        const int target = plan.map == mapping::to_one ? number : (index + number) % count;
        if (is_wrong() && lane == 1) {
            if (about_.wrong == damage::put) one.action = kind::notify;
            if (about_.wrong == damage::notification) one.action = kind::put;
            if (about_.wrong == damage::source) ++one.source;
            if (about_.wrong == damage::extra) self_.notify(target, dcuda::world, plan.tag);
        }
        issue(one.action, plan.window, target, of_device, one.place, one.bytes, pool_ + one.source, plan.tag, one.rows);
        if (one.reads != reading::none) read_back(one, plan, target, of_device);
        const bool is_left_out = is_wrong() && about_.wrong == damage::sum;
        if (one.adds != adding::none && !is_left_out) add(one, lane, world_rank(target, of_device), plan.tag);
        if (one.flushes) flush(plan.window);
    }

    // What this rank has put there before is what it gets.
    DCUDA_COLD void read_back(const message& one, const lane_plan& plan, int target, bool of_device) {
        std::size_t offset = one.place - window_begin(plan.window, world_rank(target, of_device));
        if (is_wrong() && about_.wrong == damage::get) ++offset;
        unsigned char* const copy = pool_ + about_.pool_bytes();
        const dcuda::window window = windows_[plan.window];
        const bool notifies = one.reads == reading::get_notify;
        if (one.rows == 0) {
            if (notifies)
                self_.get_notify(window, target, offset, one.bytes, copy, plan.tag);
            else
                self_.get(window, target, offset, one.bytes, copy);
        } else {
            const auto [shape, distance] = interleaved(one.bytes, one.rows);
            if (notifies)
                self_.get_notify(window, target, offset, distance, shape, copy, distance, plan.tag);
            else
                self_.get(window, target, offset, distance, shape, copy, distance);
        }
        ++counted_.operations;
        counted_.messages += notifies ? 1 : 0;
        flush(plan.window);
        const std::uint32_t salt = salt_of(rank_);
        for_each(one.bytes, [&](std::uint32_t i) {
            expect(copy[i], content(salt, one.source + i), __LINE__, int(round_), target, one.place + i);
        });
    }

    // Single operations add to the first sum of the lane, accumulates to all.
    DCUDA_COLD void add(const message& one, int lane, int target, int tag) {
        const std::size_t first = std::size_t(lane) * sums_of_lane;
        // At the end of the second pool, each lane has its own: others may still be reading it.
        auto* const source =
            reinterpret_cast<std::uint32_t*>(pool_ + 2 * about_.pool_bytes() - about_.sum_bytes()) + first;
        if (one.accumulates()) for_each(sums_of_lane, [&](std::uint32_t i) { source[i] = one.addend; });
        if (one.adds == adding::fetch_add) self_.fetch_add(sum_window_, target, first, one.addend);
        if (one.adds == adding::add) self_.add(sum_window_, target, first, one.addend);
        if (one.adds == adding::accumulate)
            self_.accumulate(sum_window_, target, first, sums_of_lane, source, dcuda::sum{});
        if (one.adds == adding::accumulate_notify)
            self_.accumulate_notify(sum_window_, target, first, sums_of_lane, source, dcuda::sum{}, tag);
        ++counted_.operations;
        counted_.messages += one.adds == adding::accumulate_notify ? 1 : 0;
    }

    // After the barrier all that was added is there. A thread for each sum.
    DCUDA_COLD void check_sums() {
        std::uint32_t* const expected = sums_ + lanes * sums_of_lane;
        for_each(lanes * sums_of_lane, [&](std::uint32_t i) {
            const int lane = int(i) / sums_of_lane;
            const lane_plan plan = plan_lane(about_, round_, lane);
            const senders from = senders_of(plan);
            for (int k = 0; k < from.number; ++k) {
                const message one = message_from(lane, plan, from, k);
                if (one.adds != adding::none && (one.accumulates() || i % sums_of_lane == 0)) expected[i] += one.addend;
            }
            expect(sums_[i], expected[i], __LINE__, lane, -1, i);
        });
    }

    // The ranks that send to this one in a lane: from `first`, `number` of them, with the world's number of the first.
    struct senders {
        int first, number, offset;
        std::uint32_t count; // in the communicator
    };
    __device__ senders senders_of(const lane_plan& plan) const {
        if (plan.map == mapping::to_one)
            return {0, int(plan.number % std::uint32_t(ranks_)) == rank_ ? ranks_ : 0, 0, std::uint32_t(ranks_)};
        const bool of_device = plan.map == mapping::device_shift;
        const int index = of_device ? device_rank_ : rank_, count = of_device ? device_ranks_ : ranks_;
        return {(index + count - int(plan.number % std::uint32_t(count))) % count, 1,
                of_device ? rank_ - device_rank_ : 0, std::uint32_t(count)};
    }

    // How many notifications come in a lane.
    DCUDA_COLD int expected_in(int lane) const {
        const lane_plan plan = plan_lane(about_, round_, lane);
        const senders from = senders_of(plan);
        int sum = 0;
        for (int i = 0; i < from.number; ++i) {
            sum += message_from(lane, plan, from, i).notifications();
        }
        return sum;
    }
    __device__ message message_from(int lane, const lane_plan& plan, const senders& from, int i) const {
        return plan_message(about_, round_, lane, plan, from.offset + from.first + i, std::uint32_t(from.first + i),
                            from.count);
    }

    __device__ void receive_lanes() {
        dice chance(about_.seed, round_, 6, rank_);
        const int start = int(chance.below(lanes));
        if (has_own_tags(about_, round_)) {
            for (int i = 0; i < lanes; ++i) await((start + i) % lanes, expected_in((start + i) % lanes), chance);
            return;
        }
        int expected[3] = {};
        for (int lane = 0; lane < lanes; ++lane) expected[plan_lane(about_, round_, lane).tag] += expected_in(lane);
        for (int i = 0; i < 3; ++i) await((start + i) % 3, expected[(start + i) % 3], chance);
    }

    // Some at a time, by waits and tests.
    __device__ void await(int tag, int count, dice& chance) {
        while (count > 0) {
            const int part = chance.below(4) == 0 ? 1 + int(chance.below(std::uint32_t(count))) : count;
            for (std::uint32_t looks = chance.below(8) == 0 ? 1 + chance.below(4) : 0; looks > 0; --looks)
                if (test(tag, part)) {
                    count -= part;
                    break;
                } else if (looks == 1) {
                    wait(tag, part);
                    count -= part;
                }
            if (chance.below(2) == 0 && count > 0) {
                wait(tag, count);
                count = 0;
            }
        }
    }

    // All messages of a leader and those that follow it. Before the barrier (`rest` false) only what notifications
    // prove to be there: a sender's puts behind its last notification are not.
    DCUDA_COLD void check_lanes(bool rest) {
        for (int leader = 0, next; leader < lanes; leader = next) {
            for (next = leader + 1; next < lanes && follows(about_, round_, next);) ++next;
            const lane_plan plan = plan_lane(about_, round_, leader);
            const senders from = senders_of(plan);
            if (from.number == 0) continue;
            bool proven = true;
            for (int i = 0; i < from.number; ++i) {
                bool open = false;
                for (int lane = leader; lane < next; ++lane) {
                    const message one = message_from(lane, plan_lane(about_, round_, lane), from, i);
                    if (one.action != kind::nothing && one.action != kind::notify_relaxed)
                        open = one.action == kind::put;
                }
                proven = proven && !open;
            }
            if (proven == rest) continue;
            std::uint32_t begin = UINT32_MAX, end = 0;
            for (int lane = leader; lane < next; ++lane)
                for (int i = 0; i < from.number; ++i) {
                    const message one = message_from(lane, plan_lane(about_, round_, lane), from, i);
                    if (one.bytes == 0) continue;
                    const std::uint32_t salt = salt_of(from.offset + from.first + i);
                    for_each(one.bytes,
                             [&](std::uint32_t at) { image_[one.place + at] = content(salt, one.source + at); });
                    __syncthreads(); // the next may overwrite it
                    begin = one.place < begin ? one.place : begin;
                    end = one.place + one.bytes > end ? one.place + one.bytes : end;
                }
            // And around it, where nobody writes in this round.
            if (end != 0) check(begin - 16, end + 16, __LINE__, leader, from.offset + from.first);
        }
    }

    // ---- rounds without barriers ----

    __device__ std::uint32_t salt_of_message(int stream, int source, int number) const {
        return std::uint32_t(mix(about_.seed ^ mix(round_ << 8 | std::uint64_t(stream))) ^
                             mix(std::uint64_t(source) << 32 | std::uint32_t(number)));
    }

    __device__ void run_streams() {
        dice common(about_.seed, round_, 7, 0);
        const int depth = 1 + int(common.below(6)), lead = int(common.below(std::uint32_t(depth)));
        const int number = depth + int(common.below(24)); // messages of each stream
        int shifts[streams];
        for (int& shift : shifts) shift = int(common.below(std::uint32_t(ranks_)));
        // Some streams share a tag, and so do their credits: then each has a source of its own, and waits name it.
        const bool by_source = about_.wrong == damage::none && ranks_ >= streams && common.below(2) == 0;
        if (by_source)
            for (int stream = 1; stream < streams; ++stream)
                shifts[stream] = (shifts[0] + stream * (ranks_ / streams)) % ranks_;
        dice own(about_.seed, round_, 8, rank_);
        // A message is received `lead` steps after one is sent, and a place is used again `depth` messages later, so
        // that nobody waits for somebody who waits for him.
        for (int step = 0; step < number + lead; ++step)
            for (int stream = 0; stream < streams; ++stream) {
                const int target = (rank_ + shifts[stream]) % ranks_,
                          source = (rank_ + ranks_ - shifts[stream]) % ranks_;
                const int tag = by_source ? matched_tags : stream_tags + stream,
                          credit_tag = by_source ? matched_tags + 1 : credit_tags + stream;
                if (step < number) {
                    if (step >= depth) wait_from(by_source, target, credit_tag, 1);
                    send_on(stream, target, step, depth, tag);
                }
                if (step < lead) continue;
                if (by_source || own.below(4) != 0 || !test(tag, 1)) wait_from(by_source, source, tag, 1);
                check_message(stream, source, step - lead, depth);
                notify(source, credit_tag);
            }
        for (int stream = 0; stream < streams; ++stream)
            wait_from(by_source, (rank_ + shifts[stream]) % ranks_, by_source ? matched_tags + 1 : credit_tags + stream,
                      number < depth ? number : depth);
    }

    struct stream_message {
        int parts; // puts; the last has the notification, or one follows alone
        bool alone, flushes;
        std::uint32_t bytes, place, first_bytes;
    };
    __device__ stream_message plan_stream(int stream, int source, int number, int depth) const {
        dice chance(about_.seed, round_, 64 + stream * 64 + number, source);
        const std::uint32_t room = lanes / streams * about_.slot_bytes() / std::uint32_t(depth);
        const std::uint32_t scratch =
            about_.pool_bytes() / std::uint32_t(streams * depth); // of a message, in the second pool
        stream_message one{};
        one.bytes = random_size(chance, about_.largest);
        if (one.bytes > room - 32) one.bytes = room - 32;
        if (one.bytes > scratch) one.bytes = scratch;
        one.place = margin + std::uint32_t(lanes / streams * stream) * about_.slot_bytes() +
                    room * std::uint32_t(number % depth) + chance.below(16);
        one.parts = 1 + int(chance.below(2));
        one.first_bytes = one.parts == 2 ? chance.below(one.bytes + 1) : 0;
        one.alone = chance.below(3) == 0;
        one.flushes = chance.below(8) == 0;
        return one;
    }

    DCUDA_COLD void send_on(int stream, int target, int number, int depth, int tag) {
        const stream_message one = plan_stream(stream, rank_, number, depth);
        const std::uint32_t scratch = about_.pool_bytes() / std::uint32_t(streams * depth);
        unsigned char* const source =
            pool_ + about_.pool_bytes() + scratch * std::uint32_t(stream * depth + number % depth);
        // Once the credit for the message before it in this place is there, nobody reads that any more.
        const bool is_old = about_.wrong == damage::stream && number == 1 && rank_ == ranks_ - 1;
        const std::uint32_t salt = salt_of_message(stream, rank_, is_old ? 0 : number);
        for_each(one.bytes, [&](std::uint32_t i) { source[i] = content(salt, i); });
        if (one.parts == 2) issue(kind::put, stream % 2, target, false, one.place, one.first_bytes, source, 0);
        issue(one.alone ? kind::put : kind::put_notify, stream % 2, target, false, one.place + one.first_bytes,
              one.bytes - one.first_bytes, source + one.first_bytes, tag);
        if (one.alone) notify(target, tag);
        if (!one.flushes) return;
        flush(stream % 2);
        for_each(one.bytes, [&](std::uint32_t i) { source[i] = 0xee; }); // it may change at once
    }

    __device__ void check_message(int stream, int source, int number, int depth) {
        const stream_message one = plan_stream(stream, source, number, depth);
        const std::uint32_t salt = salt_of_message(stream, source, number);
        for_each(one.bytes, [&](std::uint32_t i) { image_[one.place + i] = content(salt, i); });
        __syncthreads();
        check(one.place, one.place + one.bytes, __LINE__, number, source);
    }

    // ---- operations, counted ----

    __device__ std::uint32_t window_begin(int window, int rank) const {
        return dice(about_.seed, generation_, 9 + window, rank).below(margin);
    }

    DCUDA_COLD void create_windows() {
        generation_ = round_ / rounds_per_window;
        for (int each = 0; each < window_count; ++each) {
            const std::uint32_t begin = window_begin(each, rank_);
            windows_[each] = self_.create_window(each == 2 ? dcuda::device : dcuda::world, inbox_ + begin,
                                                 about_.inbox_bytes() - begin - window_begin(each, ~rank_));
            if (!windows_[each]) expect(0, 1, __LINE__, each, 0);
        }
        for_each(2 * lanes * sums_of_lane, [&](std::uint32_t i) { sums_[i] = 0; });
        sum_window_ = self_.create_typed_window(dcuda::world, sums_, lanes * sums_of_lane);
    }
    DCUDA_COLD void free_windows() {
        for (int each = 0; each < window_count; ++each) self_.free_window(windows_[(each + round_) % window_count]);
        self_.free_window(sum_window_);
    }
    __device__ int world_rank(int target, bool of_device) const {
        return of_device ? target + rank_ - device_rank_ : target;
    }

    DCUDA_COLD void issue(kind action, int window, int target, bool of_device, std::uint32_t place, std::uint32_t bytes,
                          const unsigned char* source, int tag, std::uint32_t rows = 0) {
        if (action == kind::nothing) return;
        const std::size_t offset = place - window_begin(window, world_rank(target, of_device));
        if (rows != 0) {
            const auto [shape, distance] = interleaved(bytes, rows);
            if (action == kind::put)
                self_.put(windows_[window], target, offset, distance, shape, source, distance);
            else if (action == kind::put_notify)
                self_.put_notify(windows_[window], target, offset, distance, shape, source, distance, tag);
        } else if (action == kind::put) {
            self_.put(windows_[window], target, offset, bytes, source);
        } else if (action == kind::put_notify) {
            self_.put_notify(windows_[window], target, offset, bytes, source, tag);
        }
        if (action == kind::notify) self_.notify(target, of_device ? dcuda::device : dcuda::world, tag);
        if (action == kind::notify_relaxed) self_.notify_relaxed(target, of_device ? dcuda::device : dcuda::world, tag);
        ++counted_.messages;
        ++counted_.operations;
        counted_.bytes += action == kind::put || action == kind::put_notify ? bytes : 0;
    }
    __device__ void notify(int target, int tag) { issue(kind::notify, 0, target, false, margin, 0, nullptr, tag); }
    // By all kinds of waits in turn; where something is damaged, by the one that its report is expected to name. Each
    // ends in a wait that the watchdog sees: a notification that is lost is a deadlock with a report.
    DCUDA_COLD void wait(int tag, int count) {
        constexpr std::uint64_t a_while_ns = 20'000;
        __shared__ int arrived[1];
        const std::uint64_t kind = about_.wrong == damage::none ? counted_.operations % 16 : 0;
        ++counted_.operations;
        if (kind == 12 && self_.wait_notifications_for(tag, count, a_while_ns)) return;
        for (; kind == 13 && count > 0; --count) expect(self_.wait_any(tag, 1), tag, __LINE__, tag, 0);
        for (; kind == 14 && count > 0; --count) expect(self_.wait_some(tag, 1, arrived), 1, __LINE__, tag, 0);
        if (kind == 15 && self_.pending_notifications(tag) >= count)
            expect(self_.test_notifications(tag, count) ? 1 : 0, 1, __LINE__, tag, 0);
        else
            self_.wait_notifications(tag, count);
    }
    __device__ void wait_from(bool by_source, int source, int tag, int count) {
        if (!by_source) return wait(tag, count);
        ++counted_.operations;
        self_.wait_notifications_from(source, dcuda::world, tag, count);
    }
    DCUDA_COLD bool test(int tag, int count) {
        ++counted_.operations;
        return self_.test_notifications(tag, count);
    }
    DCUDA_COLD void flush(int window) {
        self_.flush(windows_[window]);
        ++counted_.operations;
    }
    DCUDA_COLD void barrier() {
        self_.barrier(dcuda::world);
        ++counted_.operations;
    }

    // Process 0 knows when it is enough, and one failure is.
    __device__ void tell_end() {
        if ((rank_ == 0 && about_.stops != 0) || (device_rank_ == 0 && about_.found->failures != 0))
            for (int target = 0; target < ranks_; target += device_ranks_) self_.notify(target, dcuda::world, stop_tag);
        barrier();
        const bool stops = device_rank_ == 0 && self_.test_notifications(stop_tag, 1);
        if (stops && threadIdx.x == 0) *about_.stopped = 1;
    }

    // ---- memory ----

    __device__ std::uint32_t salt_of(int rank) const {
        return std::uint32_t(mix(about_.seed ^ mix(std::uint64_t(rank) + 17)));
    }

    template <class Action>
    __device__ void for_each(std::uint32_t count, const Action& action) const {
        for (std::uint32_t i = threadIdx.x; i < count; i += blockDim.x) action(i);
    }

    DCUDA_COLD void check(std::uint32_t begin, std::uint32_t end, int line, int lane, int source) {
        __syncthreads(); // the image is complete
        const std::uint32_t first = (begin + 7) / 8,
                            words = end / 8 > first ? end / 8 - first : 0; // both start at multiples of 8
        const auto* const seen = reinterpret_cast<const std::uint64_t*>(inbox_) + first;
        const auto* const expected = reinterpret_cast<const std::uint64_t*>(image_) + first;
        for_each(words, [&](std::uint32_t i) { expect(seen[i], expected[i], line, lane, source, (first + i) * 8); });
        const std::uint32_t front = first * 8 < end ? first * 8 : end,
                            back = (first + words) * 8 > front ? (first + words) * 8 : front;
        for_each(front - begin,
                 [&](std::uint32_t i) { expect(inbox_[begin + i], image_[begin + i], line, lane, source, begin + i); });
        for_each(back < end ? end - back : 0,
                 [&](std::uint32_t i) { expect(inbox_[back + i], image_[back + i], line, lane, source, back + i); });
        __syncthreads(); // before the image changes
    }

    __device__ void expect(std::uint64_t seen, std::uint64_t expected, int line, int lane, int source,
                           std::uint64_t place = 0) {
        if (seen == expected || atomicAdd(&about_.found->failures, 1u) != 0) return;
        findings& first = *about_.found;
        first.line = line, first.rank = rank_, first.round = int(round_), first.lane = lane, first.source = source;
        first.place = place, first.seen = seen, first.expected = expected;
    }

    const setup& about_;
    dcuda::rank& self_;
    int rank_, ranks_, device_rank_, device_ranks_;
    unsigned char *inbox_, *image_, *pool_;
    std::uint32_t* sums_;
    dcuda::window windows_[window_count];
    dcuda::typed_window<std::uint32_t> sum_window_;
    std::uint64_t round_ = about_.first_round, generation_ = 0;
    counts counted_{};
};

__global__ void __launch_bounds__(1024) move(dcuda::context context, setup about) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    traffic(about, self).run();
}

// --- The host --------------------------------------------------------------------------------------------------------

void check(cudaError_t result, const char* purpose) {
    if (result == cudaSuccess) return;
    throw dcuda::error(dcuda::error_code::out_of_resources, std::string(purpose) + ": " + cudaGetErrorString(result));
}

template <class Element>
struct device_array {
    Element* data = nullptr;
    explicit device_array(std::size_t count) {
        check(cudaMalloc(&data, count * sizeof(Element)), "device memory");
        check(cudaMemset(data, 0, count * sizeof(Element)), "clearing device memory");
    }
    ~device_array() { cudaFree(data); }
    device_array(const device_array&) = delete;
    std::vector<Element> read(std::size_t count) const {
        std::vector<Element> content(count);
        check(cudaMemcpy(content.data(), data, count * sizeof(Element), cudaMemcpyDeviceToHost), "copying results");
        return content;
    }
};

struct wishes {
    std::uint64_t seed = 1, operations = 0;
    double seconds = 1;
    unsigned threads = DCUDA_BACKEND_CUDA ? 64 : 4;
    std::uint32_t largest = 65536;
    damage wrong = damage::none;
};

[[noreturn]] void refuse(const std::string& argument) {
    throw dcuda::error(
        dcuda::error_code::invalid_argument,
        argument + ": expected --seed N, --operations N, --seconds S, --threads N (1 to 1024), --largest BYTES (8 to "
                   "1048576) or --damage put|source|order|notification|extra|stream|sum|get");
}

wishes read_arguments(int argc, char** argv) {
    wishes result;
    for (int i = 1; i < argc; i += 2) {
        const std::string name = argv[i], text = i + 1 < argc ? argv[i + 1] : "";
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        const bool is_number = !text.empty() && *end == '\0' && value >= 0 && value < 1e18;
        const auto* const* found = std::find_if(std::begin(damage_names), std::end(damage_names),
                                                [&](const char* each) { return text == each; });
        if (name == "--seed" && is_number)
            result.seed = static_cast<std::uint64_t>(value);
        else if (name == "--operations" && is_number)
            result.operations = static_cast<std::uint64_t>(value);
        else if (name == "--seconds" && is_number)
            result.seconds = value;
        else if (name == "--threads" && value >= 1 && value <= 1024)
            result.threads = static_cast<unsigned>(value);
        else if (name == "--largest" && value >= 8 && value <= 1048576)
            result.largest = static_cast<std::uint32_t>(value) / 8 * 8;
        else if (name == "--damage" && found != std::end(damage_names))
            result.wrong = damage(found - std::begin(damage_names));
        else
            refuse(name + " " + text);
    }
    return result;
}

int run_program(int argc, char** argv) {
    using clock = std::chrono::steady_clock;
    dcuda::runtime runtime(argc, argv, {.tags = matched_tags + 2, .match_sources = 2});
    const wishes asked = read_arguments(argc, argv);
    const dcuda::launch_config config{.threads = dim3(asked.threads)};
    const dcuda::rank_info job = runtime.plan(move, config);
    const auto ranks = static_cast<std::size_t>(job.rank_responsible);

    setup about{asked.seed, 0, asked.largest, 0, asked.wrong, nullptr, nullptr, nullptr, nullptr};
    const device_array<unsigned char> memory(about.rank_bytes() * ranks);
    const device_array<findings> found(1);
    const device_array<counts> counted(ranks);
    const device_array<int> stopped(1);
    about.memory = memory.data, about.found = found.data, about.counted = counted.data, about.stopped = stopped.data;

    const auto begin = clock::now();
    const auto seconds = [&] { return std::chrono::duration<double>(clock::now() - begin).count(); };
    counts sum{};
    double last_seconds = 0, last_operations = 0;
    findings first{};
    int runs = 0;
    for (bool is_last = false; !is_last; ++runs) {
        // This is the last run if it will be enough, after what the one before took. Process 0 decides.
        const double operations = static_cast<double>(sum.operations) * job.process_count, start = seconds();
        about.stops = asked.operations != 0
                          ? operations + 0.9 * last_operations >= static_cast<double>(asked.operations)
                          : start + last_seconds >= asked.seconds;
        runtime.run(move, config, about);
        const std::uint64_t before = sum.operations;
        for (const counts& each : counted.read(ranks)) {
            sum.messages += each.messages;
            sum.operations += each.operations;
            sum.bytes += each.bytes;
        }
        last_seconds = seconds() - start;
        last_operations = static_cast<double>(sum.operations - before) * job.process_count;
        about.first_round += rounds_per_run;
        first = found.read(1)[0];
        is_last = stopped.read(1)[0] != 0;
    }
    std::printf("process %d: %zu of %d ranks, %u threads, seed %llu, %d runs: %llu messages, %llu operations, %llu "
                "bytes, %.3f s: %s\n",
                job.process_index, ranks, job.rank_count, asked.threads, static_cast<unsigned long long>(asked.seed),
                runs, static_cast<unsigned long long>(sum.messages), static_cast<unsigned long long>(sum.operations),
                static_cast<unsigned long long>(sum.bytes), seconds(), first.failures == 0 ? "correct" : "WRONG");
    if (first.failures == 0) return 0;
    std::printf("process %d: %u failures; first: line %d, rank %d, round %d, lane, tag or number %d, source %d, place "
                "%llu: saw %llx, "
                "expected %llx\n",
                job.process_index, first.failures, first.line, first.rank, first.round, first.lane, first.source,
                static_cast<unsigned long long>(first.place), static_cast<unsigned long long>(first.seen),
                static_cast<unsigned long long>(first.expected));
    return 1;
}

} // namespace

int main(int argc, char** argv) try { return run_program(argc, argv); } catch (const dcuda::error& problem) {
    std::fprintf(stderr, "random_traffic: %s\n", problem.what());
    return problem.code() == dcuda::error_code::invalid_argument ? 2 : 1;
}
