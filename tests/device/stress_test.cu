// SPDX-License-Identifier: BSD-3-Clause
// Random traffic: puts of random size, alignment, source, target and tag, with and without notifications. The host
// plans it, so every byte and every count is known. A failure names the seed; DCUDA_TEST_SEED runs that one alone.
#include "device_test.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>

using namespace dcuda::test;

namespace {

enum class kind : int { put, put_notify, notify, flush };

struct step {
    kind action;
    int target;
    int tag;
    std::uint64_t offset; // in the target's window
    std::uint64_t bytes;
    std::uint64_t source; // in the source's pool
};

// Notifications that a rank waits for in a round.
struct expected_count {
    int tag;
    int count;
};

constexpr int rounds = 3, tags = 256, done_tag = tags - 1;
constexpr std::uint64_t pool_bytes = 160 * 1024;

// What one rank does and gets in each round, and where its data lies in its process's arrays.
struct rank_plan {
    std::uint64_t window_start, window_bytes; // in the device's memory for windows; any alignment
    std::uint64_t pool_start;
    std::uint64_t images_start; // rounds * window_bytes of what the window must hold after each round
    std::uint64_t steps_start[rounds + 1];
    std::uint64_t counts_start[rounds + 1];
};

// The whole world's traffic; the same on all processes.
class traffic {
public:
    traffic(std::uint64_t seed, int ranks, int ranks_per_device, int steps_per_round)
        : random_(seed), ranks_(ranks), steps_(ranks), counts_(ranks), images_(ranks), plans_(ranks) {
        for (int rank = 0; rank < ranks; ++rank) place(rank, rank % ranks_per_device == 0);
        for (int round = 0; round < rounds; ++round) plan_round(round, steps_per_round);
    }

    // The bytes that the devices' arrays need.
    std::uint64_t window_memory() const { return largest_window_end_; }
    std::uint64_t pool_memory(int ranks_per_device) const { return ranks_per_device * (pool_bytes + 64); }

    // Concatenates what the ranks of one device need.
    struct device_part {
        std::vector<rank_plan> plans;
        std::vector<step> steps;
        std::vector<expected_count> counts;
        std::vector<unsigned char> images;
        std::uint64_t notifications = 0;
    };
    device_part part(int first, int ranks_per_device) const {
        device_part result;
        for (int rank = first; rank < first + ranks_per_device; ++rank) {
            rank_plan plan = plans_[rank];
            plan.images_start = result.images.size();
            result.images.insert(result.images.end(), images_[rank].begin(), images_[rank].end());
            for (int round = 0; round < rounds; ++round) {
                plan.steps_start[round] = result.steps.size();
                plan.counts_start[round] = result.counts.size();
                const auto& steps = steps_[rank].at(round);
                result.steps.insert(result.steps.end(), steps.begin(), steps.end());
                for (const auto& [tag, count] : counts_[rank].at(round)) {
                    result.counts.push_back({tag, count});
                    result.notifications += static_cast<std::uint64_t>(count);
                }
            }
            plan.steps_start[rounds] = result.steps.size();
            plan.counts_start[rounds] = result.counts.size();
            result.plans.push_back(plan);
        }
        return result;
    }

private:
    std::uint64_t below(std::uint64_t limit) { return random_() % limit; } // the same on every platform

    void place(int rank, bool is_first_of_device) {
        if (is_first_of_device) next_window_ = 0;
        rank_plan& plan = plans_[rank];
        plan.window_start = next_window_ + below(32);
        plan.window_bytes = below(8) == 0 ? 0 : 1 + below(96 * 1024);
        next_window_ = plan.window_start + plan.window_bytes;
        largest_window_end_ = std::max(largest_window_end_, next_window_);
        plan.pool_start = rank % 64; // the alignment, in the rank's own pool
        images_[rank].assign(rounds * plan.window_bytes, 0);
        steps_[rank].resize(rounds);
        counts_[rank].resize(rounds);
    }

    std::uint64_t random_size() {
        switch (below(10)) {
        case 0:
            return 0;
        case 1:
            return below(8 * 1024);
        case 2:
            return below(16) == 0 ? below(64 * 1024) : below(1024);
        default:
            return below(130);
        }
    }

    // Ranges of one round do not overlap in a window, but where one source overwrites its own last put, in order.
    void plan_round(int round, int steps) {
        std::vector<std::uint64_t> used(ranks_, 0);
        std::map<std::pair<int, int>, std::pair<std::uint64_t, std::uint64_t>> last; // (source, target) -> range
        std::vector<std::vector<bool>> reached(ranks_, std::vector<bool>(ranks_, false));
        if (round > 0)
            for (int rank = 0; rank < ranks_; ++rank) {
                auto& image = images_[rank];
                const auto bytes = static_cast<std::ptrdiff_t>(plans_[rank].window_bytes);
                std::copy_n(image.begin() + (round - 1) * bytes, bytes, image.begin() + round * bytes);
            }
        for (int i = 0; i < steps; ++i) {
            const int source = static_cast<int>(below(ranks_)), target = static_cast<int>(below(ranks_));
            const std::uint64_t window = plans_[target].window_bytes;
            step now{static_cast<kind>(below(4)), target, static_cast<int>(below(done_tag)), 0, 0, 0};
            if (now.action == kind::flush && below(4) != 0) now.action = kind::put_notify;
            if (now.action == kind::put || now.action == kind::put_notify) {
                now.bytes = random_size();
                const auto own_last = last.find({source, target});
                if (own_last != last.end() && below(8) == 0) {
                    now.offset = own_last->second.first;
                    now.bytes = std::min(now.bytes, own_last->second.second);
                } else {
                    now.offset = std::min(used[target] + below(40), window);
                    now.bytes = std::min(now.bytes, window - now.offset);
                    used[target] = now.offset + now.bytes;
                    last[{source, target}] = {now.offset, now.bytes};
                }
                now.source = below(pool_bytes - now.bytes);
                for (std::uint64_t byte = 0; byte < now.bytes; ++byte)
                    images_[target][round * window + now.offset + byte] = pattern(now.source + byte, source);
                reached[source][target] = true;
            }
            if (now.action == kind::put_notify || now.action == kind::notify) ++counts_[target][round][now.tag];
            steps_[source][round].push_back(now);
        }
        // Plain puts are covered by a last notification to every target.
        for (int source = 0; source < ranks_; ++source)
            for (int target = 0; target < ranks_; ++target)
                if (reached[source][target]) {
                    steps_[source][round].push_back({kind::notify, target, done_tag, 0, 0, 0});
                    ++counts_[target][round][done_tag];
                }
    }

    std::mt19937_64 random_;
    int ranks_;
    std::uint64_t next_window_ = 0, largest_window_end_ = 0;
    std::vector<std::vector<std::vector<step>>> steps_;   // [rank][round]
    std::vector<std::vector<std::map<int, int>>> counts_; // [rank][round]: tag -> count
    std::vector<std::vector<unsigned char>> images_;      // [rank]: rounds windows
    std::vector<rank_plan> plans_;
};

__global__ void run_traffic(dcuda::context context, findings* found, unsigned char* windows, unsigned char* pools,
                            const rank_plan* plans, const step* steps, const expected_count* counts,
                            const unsigned char* images) {
    __shared__ dcuda::state state;
    dcuda::rank self(context, state);
    const int here = self.id(dcuda::device);
    const rank_plan& plan = plans[here];
    unsigned char* const inbox = windows + plan.window_start;
    unsigned char* const pool = pools + here * (pool_bytes + 64) + plan.pool_start;
    for_each_thread(pool_bytes, [&](std::size_t i) { pool[i] = pattern(i, self.id()); });
    const dcuda::window win = self.create_window(dcuda::world, inbox, plan.window_bytes);
    for (int round = 0; round < rounds; ++round) {
        for (std::uint64_t i = plan.steps_start[round]; i < plan.steps_start[round + 1]; ++i) {
            const step now = steps[i];
            switch (now.action) {
            case kind::put:
                self.put(win, now.target, now.offset, now.bytes, pool + now.source);
                break;
            case kind::put_notify:
                self.put_notify(win, now.target, now.offset, now.bytes, pool + now.source, now.tag);
                break;
            case kind::notify:
                self.notify(now.target, dcuda::world, now.tag);
                break;
            case kind::flush:
                self.flush(win);
                break;
            }
        }
        for (std::uint64_t i = plan.counts_start[round]; i < plan.counts_start[round + 1]; ++i) {
            const int first = counts[i].count / 3;
            self.wait_notifications(counts[i].tag, first);
            self.wait_notifications(counts[i].tag, counts[i].count - first);
        }
        const unsigned char* const image = images + plan.images_start + round * plan.window_bytes;
        for_each_thread(plan.window_bytes, [&](std::size_t i) { EXPECT_SAME(inbox[i], image[i]); });
        self.barrier(dcuda::world);
        for (int tag = round; tag < tags; tag += 16) EXPECT_SAME(self.test_notifications(tag, 1), false);
        self.barrier(dcuda::world);
    }
    self.free_window(win);
}

class Stress : public device_test {
protected:
    void run_seed(std::uint64_t seed, int ranks_per_device, unsigned threads, int steps_per_rank) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        const dcuda::rank_info info = job().plan(run_traffic, shape(ranks_per_device, dim3(threads)));
        const traffic all(seed, info.rank_count, ranks_per_device, steps_per_rank * info.rank_count);
        const traffic::device_part part = all.part(info.rank_start, ranks_per_device);
        if (info.process_index == 0)
            std::printf("seed %llu: %d ranks of %u threads; on the first device %zu steps, %llu notifications\n",
                        static_cast<unsigned long long>(seed), info.rank_count, threads, part.steps.size(),
                        static_cast<unsigned long long>(part.notifications));
        const device_vector<unsigned char> windows(all.window_memory() + 64), pools(all.pool_memory(ranks_per_device));
        const device_vector<unsigned char> images(part.images);
        const device_vector<rank_plan> plans(part.plans);
        const device_vector<step> steps(part.steps);
        const device_vector<expected_count> counts(part.counts);
        check(run_traffic, shape(ranks_per_device, dim3(threads)), windows.get(), pools.get(),
              static_cast<const rank_plan*>(plans.get()), static_cast<const step*>(steps.get()),
              static_cast<const expected_count*>(counts.get()), static_cast<const unsigned char*>(images.get()));
        // Every byte once more, from the host's side.
        const std::vector<unsigned char> seen = windows.read();
        for (const rank_plan& plan : part.plans) {
            const auto* expected = part.images.data() + plan.images_start + (rounds - 1) * plan.window_bytes;
            EXPECT_TRUE(std::equal(expected, expected + plan.window_bytes, seen.data() + plan.window_start));
        }
    }
};

std::vector<std::uint64_t> seeds(std::uint64_t first) {
    if (const char* chosen = std::getenv("DCUDA_TEST_SEED")) return {std::strtoull(chosen, nullptr, 10)};
    return {first, first + 1};
}

TEST_F(Stress, FewRanks) {
    for (const std::uint64_t seed : seeds(1)) run_seed(seed, 2, 32, 800);
}

TEST_F(Stress, SomeRanks) {
    for (const std::uint64_t seed : seeds(11)) run_seed(seed, 5, 33, 300);
}

TEST_F(Stress, OneThreadPerRank) {
    for (const std::uint64_t seed : seeds(21)) run_seed(seed, 3, 1, 500);
}

TEST_F(Stress, ManyThreads) {
    for (const std::uint64_t seed : seeds(31)) run_seed(seed, 2, 256, 200);
}

TEST_F(Stress, OneRank) {
    for (const std::uint64_t seed : seeds(41)) run_seed(seed, 1, 64, 500);
}

} // namespace
