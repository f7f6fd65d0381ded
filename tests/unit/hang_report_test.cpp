// SPDX-License-Identifier: BSD-3-Clause
// What the table of waits says of hand-made records.
#include "runtime/hang_report.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace {

using namespace dcuda;
using detail::collective;
using detail::wait_record;
using detail::waiting;

wait_record in(waiting kind, std::uint32_t detail = 0) {
    wait_record wait{};
    wait.kind = kind;
    wait.detail = detail;
    wait.epoch = wait.heartbeat = 1;
    wait.age_ms = 2000;
    return wait;
}
wait_record in(const collective& where, waiting kind = waiting::collective) {
    wait_record wait = in(kind, static_cast<std::uint32_t>(where.comm));
    wait.where = where.kind;
    return wait;
}
wait_record for_delivery(std::uint32_t target, detail::operation by) {
    wait_record wait = in(waiting::delivery, target);
    wait.where = by;
    return wait;
}
wait_record on_tag(std::uint32_t tag, std::uint32_t source, std::uint32_t age_ms = 2000) {
    wait_record wait = in(waiting::notifications, tag);
    wait.expected = 1;
    wait.source = source;
    wait.age_ms = age_ms;
    return wait;
}
wait_record sent_by(std::uint32_t rank, std::uint32_t tag) { return on_tag(tag, rank + 1); }
const wait_record runs = {};
constexpr collective barrier_of_world{detail::operation::barrier, world};
constexpr collective barrier_of_device{detail::operation::barrier, device};
constexpr collective create_window{detail::operation::create_window, device};
constexpr collective finish{detail::operation::finish, world};

hang_report table_of(const std::vector<wait_record>& waits, std::uint32_t ranks_per_device) {
    return {static_cast<std::uint32_t>(waits.size()), ranks_per_device, {{0, waits}}};
}

const std::string guess = "\n  (taking who sent the last notification with a tag for who should send the next)";

TEST(hang_report, ranks_that_wait_for_each_other_by_different_means) {
    const auto table = table_of({sent_by(1, 3), in(barrier_of_world)}, 2);
    EXPECT_EQ(
        table.lines(),
        "\n  rank 0 (process 0, block 0) in wait_notifications(tag 3, count 1): 0 arrived, last sent by rank 1 (2.0 s)"
        "\n  rank 1 (process 0, block 1) in barrier(world), for rank 0 (2.0 s)");
    EXPECT_EQ(table.conclusion(),
              "\ncycle: rank 0 waits for notifications with tag 3, last sent by rank 1, which waits in "
              "barrier(world) for rank 0" +
                  guess);
}

TEST(hang_report, deliveries_and_barriers_are_no_guess) {
    const auto table = table_of({for_delivery(2, detail::operation::flush), in(barrier_of_device),
                                 for_delivery(1, detail::operation::put_notify)},
                                3);
    // 0 -> 2 -> 1 -> 0 or 2: the shorter one.
    EXPECT_EQ(table.conclusion(), "\ncycle: rank 1 waits in barrier(device) for rank 2, which waits in put_notify for "
                                  "rank 1 to take what it has put there");
    EXPECT_NE(table.lines().find("in flush, for what it has put to rank 2 to be taken"), std::string::npos);
}

TEST(hang_report, a_rank_that_waits_for_itself) {
    EXPECT_EQ(table_of({sent_by(0, 5), in(finish)}, 2).conclusion(),
              "\ncycle: rank 0 waits for notifications with tag 5, last sent by rank 0" + guess);
}

TEST(hang_report, who_waits_for_one_source_is_no_guess) {
    wait_record first = sent_by(1, 7), second = sent_by(0, 7);
    first.where = second.where = detail::operation::wait_notifications_from;
    const auto table = table_of({first, second}, 2);
    EXPECT_EQ(table.describe(0), "in wait_notifications_from(rank 1, tag 7, count 1): 0 arrived");
    EXPECT_EQ(table.conclusion(), "\ncycle: rank 0 waits for notifications with tag 7 from rank 1, which waits for "
                                  "notifications with tag 7 from rank 0");
}

TEST(hang_report, waits_for_any_of_several_tags) {
    wait_record any = on_tag(3, detail::unknown_source);
    any.where = detail::operation::wait_any;
    any.tags = 8;
    const auto table = table_of({any, in(finish)}, 2);
    EXPECT_NE(
        table.lines().find("rank 0 (process 0, block 0) in wait_any(tags 3 to 10): none arrived, senders not known"),
        std::string::npos);
    EXPECT_NE(table.conclusion().find("rank 0 waits for notifications with tags 3 to 10; who sends them is not known"),
              std::string::npos);
    any.tags = 1;
    any.where = detail::operation::wait_some;
    EXPECT_EQ(table_of({any, in(finish)}, 2).describe(0), "in wait_some(tag 3): none arrived, senders not known");
}

TEST(hang_report, long_cycles_are_cut) {
    std::vector<wait_record> ring;
    for (std::uint32_t rank = 0; rank < 1000; ++rank) ring.push_back(sent_by((rank + 1) % 1000, 1));
    const auto table = table_of(ring, 100);
    EXPECT_EQ(
        table.lines(),
        "\n  1000 ranks (0-999) in wait_notifications(tag 1, count 1): 0 arrived, last sent by various ranks (2.0 s)");
    const std::string cycle = table.conclusion();
    EXPECT_TRUE(
        cycle.ends_with("last sent by rank 8, and so on to rank 999, which waits for notifications with tag 1, last "
                        "sent by rank 0" +
                        guess))
        << cycle;
}

// All of device 0 are in create_window, its last rank with the host; a rank of device 1 waits for one of them.
TEST(hang_report, create_window_waits_for_other_devices) {
    const auto table = table_of({in(create_window), in(waiting::host_reply), in(create_window), sent_by(0, 4)}, 2);
    EXPECT_EQ(table.awaited_by(0), std::vector<std::uint32_t>{1});
    EXPECT_EQ(table.awaited_by(1), std::vector<std::uint32_t>{3});
    EXPECT_EQ(table.awaited_by(2), std::vector<std::uint32_t>{3});
    EXPECT_EQ(table.conclusion(),
              "\ncycle: rank 0 waits in create_window for rank 1, which waits in create_window for rank "
              "3, which waits for notifications with tag 4, last sent by rank 0" +
                  guess);
}

// For another communicator the members have met: the host waits for hosts alone.
TEST(hang_report, create_window_of_some_ranks_waits_for_no_rank) {
    const wait_record asks = in(waiting::host_reply, 3);
    const auto table = table_of({asks, runs, in(create_window), runs}, 2);
    EXPECT_TRUE(table.awaited_by(0).empty());
    EXPECT_EQ(table.awaited_by(2), std::vector<std::uint32_t>{3});
    const auto found = hang_report(4, 2, {{0, {asks, runs}}}).find_dependants(2, 2);
    EXPECT_EQ(found.possible, std::vector<std::uint32_t>{0});
}

TEST(hang_report, a_barrier_of_a_device_waits_for_none_of_another) {
    const auto table = table_of({in(barrier_of_device), runs, in(barrier_of_device), in(waiting::flush)}, 2);
    EXPECT_EQ(table.awaited_by(0), std::vector<std::uint32_t>{1});
    EXPECT_EQ(table.awaited_by(2), std::vector<std::uint32_t>{3});
}

// Who has left the barrier at the end has arrived there.
TEST(hang_report, finished_ranks_are_not_missing_at_the_end) {
    const auto table = table_of({in(waiting::done), in(finish, waiting::other_devices), runs}, 3);
    EXPECT_EQ(table.awaited_by(1), std::vector<std::uint32_t>{2});
    EXPECT_EQ(table.state_of(0), hang_report::state::done);
    EXPECT_EQ(table.state_of(2), hang_report::state::running);
}

TEST(hang_report, origins_where_no_cycle_is_certain) {
    EXPECT_EQ(
        table_of({on_tag(7, detail::no_source), in(barrier_of_world), sent_by(1, 2), in(finish)}, 4).conclusion(),
        "\ncycle: rank 1 waits in barrier(world) for rank 2, which waits for notifications with tag 2, last sent by "
        "rank 1" +
            guess +
            "\norigin: rank 0 waits for notifications with tag 7; nobody has sent one before; 3 other ranks wait for it"
            "\norigin: rank 1 waits in barrier(world) for rank 3, which has reached the end of the kernel; 2 other "
            "ranks "
            "wait for it");
    EXPECT_EQ(
        table_of({on_tag(7, detail::unknown_source), in(finish)}, 2).conclusion(),
        "\norigin: rank 0 waits for notifications with tag 7; who sends them is not known; 1 other rank waits for it");
    EXPECT_EQ(table_of({sent_by(1, 6), in(waiting::done)}, 2).conclusion(),
              "\norigin: rank 0 waits for notifications with tag 6, last sent by rank 1, which has finished");
    EXPECT_EQ(table_of({sent_by(1, 6), runs}, 2).conclusion(),
              "\norigin: rank 0 waits for notifications with tag 6, last sent by rank 1, which runs, or hangs in a "
              "call that only some of its threads have made");
    EXPECT_EQ(table_of({in(waiting::ring_space), in(waiting::flush)}, 2).conclusion(), "");
}

TEST(hang_report, only_old_waits_count_where_that_is_asked) {
    const auto table = table_of({on_tag(1, 2, 900), on_tag(1, 1, 2000)}, 2);
    EXPECT_EQ(table.conclusion(1000).find("cycle"), std::string::npos);
    EXPECT_NE(table.conclusion(900).find("cycle"), std::string::npos);
}

TEST(hang_report, ranks_of_which_nothing_is_known) {
    const hang_report table(6, 2, {{2, {in(barrier_of_world, waiting::other_devices), sent_by(5, 1)}}});
    EXPECT_EQ(table.state_of(5), hang_report::state::unknown);
    EXPECT_EQ(table.describe(2), "in barrier(world), for rank 3");
    EXPECT_EQ(table.conclusion(), "");
    const hang_report rest(4, 2, {{0, {in(barrier_of_world), in(barrier_of_world)}}});
    EXPECT_EQ(rest.describe(0), "in barrier(world), for ranks that are not seen here");
}

TEST(hang_report, the_line_that_is_not_like_the_others_comes_first) {
    std::vector<wait_record> waits(2000, in(barrier_of_world));
    waits[1234] = on_tag(7, detail::no_source, 31000);
    waits[5].age_ms = 500;
    EXPECT_EQ(table_of(waits, 2000).lines(),
              "\n  rank 1234 (process 0, block 1234) in wait_notifications(tag 7, count 1): 0 arrived, never notified "
              "with this "
              "tag before (31.0 s)"
              "\n  1999 ranks (0-1233, 1235-1999) in barrier(world), for rank 1234 (0.5 to 2.0 s)");
    for (std::uint32_t rank = 0; rank < 2000; ++rank) waits[rank] = on_tag(rank, detail::no_source);
    const std::string all_different = table_of(waits, 2000).lines();
    EXPECT_TRUE(all_different.ends_with("\n  ... and 1960 more lines"))
        << all_different.substr(all_different.size() - 200);
}

TEST(hang_report, neighbours_that_wait_for_each_other_are_alike) {
    const auto table = table_of(
        {sent_by(1, 2), sent_by(2, 2), in({detail::operation::free_window, world}), sent_by(2, 1), sent_by(3, 1)}, 5);
    EXPECT_EQ(table.lines().find("\n  rank 2 (process 0, block 2) in free_window, for 4 ranks (0-1, 3-4) (2.0 s)"), 0u)
        << table.lines();
}

// Records come from memory that a broken program may have written to, or from a socket.
TEST(hang_report, nonsense_does_no_harm) {
    const auto table = table_of({sent_by(77, 1), for_delivery(99, static_cast<detail::operation>(1000)),
                                 in(waiting::collective, 1000), in(static_cast<waiting>(1u << 30))},
                                2);
    EXPECT_FALSE(table.lines().empty());
    table.conclusion();
}

TEST(hang_report, many_ranks_in_one_chain) {
    std::vector<wait_record> waits;
    for (std::uint32_t rank = 0; rank < 20000; ++rank) waits.push_back(sent_by(rank + 1, 1));
    waits.push_back(on_tag(2, detail::no_source));
    EXPECT_EQ(table_of(waits, 20001).conclusion(), "\norigin: rank 20000 waits for notifications with tag 2; nobody "
                                                   "has sent one before; 20000 other ranks wait for "
                                                   "it");
}

TEST(list_ranks, joins_neighbours_and_stops) {
    EXPECT_EQ(list_ranks({1, 2, 3, 5, 8, 9}, 12), "1-3, 5, 8-9");
    EXPECT_EQ(list_ranks({1, 3, 5}, 2), "1, 3, ...");
    EXPECT_EQ(list_ranks({}, 2), "");
}

// Process 1 of three, with two ranks each, says nothing.
TEST(hang_report, who_waits_for_ranks_that_say_nothing) {
    const std::vector<wait_record> first{sent_by(2, 3), sent_by(0, 3)};
    const std::vector<wait_record> last{on_tag(4, detail::unknown_source), for_delivery(4, detail::operation::flush)};
    const auto found = hang_report(6, 2, {{0, first}, {4, last}}).find_dependants(2, 2);
    EXPECT_EQ(found.certain, std::vector<std::uint32_t>{0});
    EXPECT_EQ(found.possible, std::vector<std::uint32_t>{4});
    EXPECT_EQ(found.further, (std::vector<std::uint32_t>{1, 5}));
}

TEST(hang_report, a_barrier_waits_for_ranks_that_say_nothing) {
    const wait_record in_barrier = in(barrier_of_world);
    const auto all_came =
        hang_report(6, 2, {{0, {in_barrier, in_barrier}}, {4, {in_barrier, in_barrier}}}).find_dependants(2, 2);
    EXPECT_EQ(all_came.certain, (std::vector<std::uint32_t>{0, 1, 4, 5}));
    // Rank 4 is not there either, and nothing is known of why.
    const auto one_runs =
        hang_report(6, 2, {{0, {in_barrier, in_barrier}}, {4, {runs, in_barrier}}}).find_dependants(2, 2);
    EXPECT_TRUE(one_runs.certain.empty() && one_runs.possible.empty() && one_runs.further.empty());
    // Rank 4 waits for one of them, and the others for that.
    const auto chain =
        hang_report(6, 2, {{0, {in_barrier, in_barrier}}, {4, {sent_by(3, 1), in_barrier}}}).find_dependants(2, 2);
    EXPECT_EQ(chain.certain, std::vector<std::uint32_t>{4});
    EXPECT_EQ(chain.further, (std::vector<std::uint32_t>{0, 1, 5}));
}

TEST(hang_report, a_barrier_of_a_device_waits_for_nobody_elsewhere) {
    const wait_record in_barrier = in(barrier_of_device);
    const auto found = hang_report(4, 2, {{0, {in_barrier, runs}}}).find_dependants(2, 2);
    EXPECT_TRUE(found.certain.empty() && found.possible.empty() && found.further.empty());
}

} // namespace
