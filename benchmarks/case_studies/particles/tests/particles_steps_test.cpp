// SPDX-License-Identifier: BSD-3-Clause
// The steps of programs with two models, without streams: in the orders that streams allow, with segments that are
// sorted by several threads. Equal to the serial reference to the last bit.
#include <algorithm>
#include <barrier>
#include <cstring>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "models/places.hpp"
#include "reference.hpp"
#include "start.hpp"

namespace particles {
namespace {

struct thread_team {
    std::barrier<>& all;
    int place, count;

    int index() const { return place; }
    int size() const { return count; }
    void sync() const { all.arrive_and_wait(); }
};

// Which of a step's parts comes first, where streams leave it open.
enum class order { interior_first, border_first };

// A device's memory, as a model has it.
class device {
public:
    device(const domain& whole, int devices, int index, int capacity, double time_step) {
        task& base = work.base;
        base.whole = whole;
        base.segments = {whole.segments, devices, 1};
        base.device = index;
        base.stored = with_halo(base.segments.of_device(index));
        base.capacity = capacity;
        base.time_step = time_step;
        work.own = base.segments.of_device(index);
        work.room = list_room(capacity, time_step);
        work.has_neighbour[0] = index > 0;
        work.has_neighbour[1] = index + 1 < devices;
        const auto stored = static_cast<std::size_t>(base.stored.count());
        const std::size_t slots = stored * static_cast<std::size_t>(capacity);
        base.blocks = bytes(stored * base.block_bytes());
        base.lists = bytes(stored * 3 * base.list_bytes());
        base.forces = array<vector>(slots);
        base.moved = array<vector>(slots);
        for (int turn = 0; turn < 2; ++turn) {
            base.velocities[turn] = array<vector>(slots);
            base.numbers[turn] = array<long long>(slots);
        }
        work.messages = bytes(two_model_task::message_count * work.message_bytes());
        work.scratch = bytes(stored * work.sort_bytes());
        work.tallies = array<tally>(static_cast<std::size_t>(work.own.count()));
        work.steps_before = array<int>(1);
    }

    void start(const std::vector<particle>& all) const {
        for (const particle& p : all) {
            const int segment = work.base.whole.segment_of(p.at.y);
            if (segment < work.own.first || segment >= work.own.last) continue;
            const list_view list = work.base.list(segment, leaving::not_at_all);
            list.items()[list.count()++] = p;
        }
    }

    template <advance How>
    void advance_all(range segments, int step) const {
        for (int segment = segments.first; segment < segments.last; ++segment) {
            const int count = count_before(work.base, How, segment);
            begin_segment(work, How, segment);
            for (int i = 0; i < count; ++i) advance_one(work, How, step % 2, step, segment, i);
        }
    }

    // Until nothing more is left to do before the messages have come.
    void sort(range segments, int step, int threads) const {
        for (int segment = segments.first; segment < segments.last; ++segment) {
            std::barrier all(threads);
            std::vector<std::jthread> team;
            for (int i = 0; i < threads; ++i)
                team.emplace_back([&, i] {
                    const sort_space space(work.scratch_of(segment), work.base.whole.columns, work.base.capacity);
                    sort_segment(thread_team{all, i, threads}, work, space, step % 2, step, segment);
                });
        }
    }

    void keep_forces() const {
        for (int segment = work.own.first; segment < work.own.last; ++segment)
            for (int i = 0; i < work.base.block(segment).count(); ++i)
                work.base.forces[work.base.first_slot(segment) + static_cast<std::size_t>(i)] =
                    influence_on(work.base, segment, i).force;
    }

    void collect(int turn, std::vector<particle>& all) const {
        for (int segment = work.own.first; segment < work.own.last; ++segment)
            for (int i = 0; i < work.base.block(segment).count(); ++i) {
                const std::size_t slot = work.base.first_slot(segment) + static_cast<std::size_t>(i);
                const long long number = work.base.numbers[turn][slot];
                all.at(static_cast<std::size_t>(number)) = {work.base.block(segment).at()[i],
                                                            work.base.velocities[turn][slot], number};
            }
    }

    failure failed() const {
        tally sum;
        for (int i = 0; i < work.own.count(); ++i) sum += work.tallies[i];
        return sum.failed;
    }

    range border(int which) const { // the segments that are advanced for that neighbour; none without one
        if (!work.has_neighbour[which]) return {};
        const int middle =
            which == 0 ? std::min(work.own.first + 2, work.own.last) : std::max(border(0).last, work.own.last - 2);
        return which == 0 ? range{work.own.first, middle} : range{middle, work.own.last};
    }
    range advanced_inside() const {
        return {work.has_neighbour[0] ? border(0).last : work.own.first,
                work.has_neighbour[1] ? std::max(border(1).first, border(0).last) : work.own.last};
    }
    range sorted_inside() const {
        return {work.own.first + (work.has_neighbour[0] ? 1 : 0), work.own.last - (work.has_neighbour[1] ? 1 : 0)};
    }
    void sort_border(int step, int threads) const {
        if (work.has_neighbour[0]) sort({work.own.first - 1, work.own.first + 1}, step, threads);
        if (work.has_neighbour[1]) sort({work.own.last - 1, work.own.last + 1}, step, threads);
    }

    two_model_task work;

private:
    template <class Element>
    Element* array(std::size_t count) {
        auto* const made = reinterpret_cast<Element*>(bytes(count * sizeof(Element)));
        for (std::size_t i = 0; i < count; ++i) new (made + i) Element{};
        return made;
    }
    std::byte* bytes(std::size_t count) {
        memory_.emplace_back(count / sizeof(vector) + 1);
        return reinterpret_cast<std::byte*>(memory_.back().data());
    }

    std::vector<std::vector<vector>> memory_;
};

void bring(const std::vector<device>& devices, int step) {
    for (std::size_t i = 0; i + 1 < devices.size(); ++i) {
        const two_model_task& before = devices[i].work;
        const two_model_task& after = devices[i + 1].work;
        std::memcpy(after.in(0, step % 2).start, before.out(1).start, before.message_bytes());
        std::memcpy(before.in(1, step % 2).start, after.out(0).start, after.message_bytes());
    }
}

// The first failure, if any.
failure move(std::vector<particle>& all, const domain& whole, int count, int capacity, int steps, double time_step,
             order how, int threads) {
    std::vector<device> devices;
    devices.reserve(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) devices.emplace_back(whole, count, i, capacity, time_step);
    for (const device& d : devices) {
        d.start(all);
        d.advance_all<advance::load>(d.work.own, 0);
    }
    bring(devices, 0);
    for (const device& d : devices) {
        d.sort(d.sorted_inside(), 0, threads);
        d.sort_border(0, threads);
        d.keep_forces();
    }
    const auto go_on = [&](const device& d, range segments, int step) {
        if (step == 1)
            d.advance_all<advance::first>(segments, step);
        else if (step <= steps)
            d.advance_all<advance::middle>(segments, step);
        else
            d.advance_all<advance::end>(segments, step);
    };
    for (int step = 1; step <= steps + 1; ++step) {
        for (const device& d : devices) {
            if (step == 1 && how == order::interior_first) go_on(d, d.advanced_inside(), step);
            go_on(d, d.border(0), step);
            go_on(d, d.border(1), step);
        }
        if (step > steps) break;
        if (how == order::interior_first)
            for (const device& d : devices) {
                d.sort(d.sorted_inside(), step, threads);
                go_on(d, d.advanced_inside(), step + 1);
            }
        bring(devices, step);
        for (const device& d : devices) d.sort_border(step, threads);
        if (how == order::border_first)
            for (const device& d : devices) {
                go_on(d, d.advanced_inside(), step);
                d.sort(d.sorted_inside(), step, threads);
            }
    }
    if (how == order::border_first)
        for (const device& d : devices) go_on(d, d.advanced_inside(), steps + 1);
    tally sum;
    for (const device& d : devices) {
        d.collect((steps + 1) % 2, all);
        tally one;
        one.failed = d.failed();
        sum += one;
    }
    return sum.failed;
}

TEST(steps, equal_the_reference_in_every_order) {
    for (const int devices : {1, 2, 3})
        for (const int height : {2, 3, 4, 6})
            for (const order how : {order::interior_first, order::border_first})
                for (const int threads : {1, 3}) {
                    const domain whole{5, height * devices, 70 * devices};
                    const int steps = threads == 1 ? 30 : 3;
                    std::vector<particle> expected = start_of(whole, {0, whole.segments}, 3), seen = expected;
                    move_serially(expected, whole, steps, 0.05);
                    EXPECT_EQ(move(seen, whole, devices, 150, steps, 0.05, how, threads).cause, failure::none);
                    EXPECT_TRUE(compare(expected, seen).equal()) << devices << " devices of " << height;
                }
}

TEST(steps, cells_with_more_particles_than_a_mask_has_bits) {
    const domain whole{1, 4, 400};
    std::vector<particle> expected = start_of(whole, {0, 4}, 1), seen = expected;
    move_serially(expected, whole, 4, 0.002);
    EXPECT_EQ(move(seen, whole, 2, 300, 4, 0.002, order::interior_first, 2).cause, failure::none);
    EXPECT_TRUE(compare(expected, seen).equal());
}

// A start in which all of a device's particles fly to the other device.
failure fly(int capacity, double time_step) {
    const domain whole{400, 4, 400};
    std::vector<particle> all;
    for (int i = 0; i < 400; ++i) all.push_back({{i + 0.5, 1.9}, {0.0, 0.3 / time_step}, i});
    return move(all, whole, 2, capacity, 2, time_step, order::interior_first, 2);
}

TEST(steps, too_many_for_a_message_is_an_error) {
    const failure seen = fly(400, 0.1);
    EXPECT_EQ(seen.cause, failure::crowded);
    EXPECT_EQ(seen.step, 1);
    EXPECT_EQ(seen.segment, 1);
    EXPECT_EQ(seen.count, list_room(400, 0.1));
    EXPECT_EQ(fly(4000, 0.1).cause, failure::none);
}

TEST(steps, a_segment_without_room_is_an_error) {
    const domain whole{3, 6, 60};
    std::vector<particle> all = start_of(whole, {0, 6}, 1);
    for (particle& p : all) p.velocity = {0.0, p.at.y < 2.0 ? 9.0 : 0.0};
    const failure seen = move(all, whole, 2, 12, 12, 0.1, order::border_first, 2);
    EXPECT_EQ(seen.cause, failure::overfull);
    EXPECT_GT(seen.count, 12);
}

} // namespace
} // namespace particles
