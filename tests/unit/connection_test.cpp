// SPDX-License-Identifier: BSD-3-Clause
// A connection over a network that delivers writes in any order and a device that delivers and copies whenever it
// likes: what arrives is what was sent, in order, and a flush speaks the truth. By seed.
#include "network/connection.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <random>

using namespace dcuda;

namespace {

using generator = std::mt19937_64;
using dcuda::transport::network_event;

constexpr std::size_t ring_bytes = 128 << 10, region = 64 << 10;
constexpr int ranks = 4;

// Two of them are each other's peer. A write is under way until the test lets it arrive.
class fake_network final : public transport::network {
public:
    explicit fake_network(generator& random) : random_(random) {}
    fake_network* peer = nullptr;

    std::string name() const override { return "fake"; }
    std::string invite(int) override { return {}; }
    void connect(int, std::string_view) override {}
    transport::remote_memory expose(void* base, std::size_t, std::uint32_t) override {
        return {reinterpret_cast<std::uintptr_t>(base), 0};
    }
    void add_source(const void*, std::size_t) override {}
    bool write(int, const transport::remote_memory& where, std::size_t offset, const void* source, std::size_t bytes,
               std::uint32_t number, std::uint64_t token) override {
        if (under_way_.size() > 6 || random_() % 5 == 0) return false;
        under_way_.push_back({reinterpret_cast<std::byte*>(where.address) + offset,
                              static_cast<const std::byte*>(source), bytes, number, token});
        return true;
    }
    bool poll(network_event& event) override {
        if (events_.empty()) return false;
        event = events_.front();
        events_.pop_front();
        return true;
    }

    // Any write arrives, and its bytes are read only now.
    void let_one_arrive() {
        if (under_way_.empty()) return;
        const auto chosen = under_way_.begin() + static_cast<std::ptrdiff_t>(random_() % under_way_.size());
        std::memcpy(chosen->target, chosen->source, chosen->bytes);
        peer->events_.push_back({network_event::kind::arrived, chosen->number});
        events_.push_back({network_event::kind::sent, chosen->token});
        under_way_.erase(chosen);
    }
    bool is_idle() const { return under_way_.empty() && events_.empty(); }

private:
    struct pending {
        std::byte* target;
        const std::byte* source;
        std::size_t bytes;
        std::uint32_t number;
        std::uint64_t token;
    };
    generator& random_;
    std::vector<pending> under_way_;
    std::deque<network_event> events_;
};

// Deliveries in order, copies in order, but nothing between the two; payload is read when the test lets it happen.
class fake_delivery final : public delivery {
public:
    fake_delivery(generator& random, std::function<void(std::uint32_t rank, std::uint32_t tag)> notify)
        : random_(random), notify_(std::move(notify)) {}

    bool put(std::uint64_t place, const std::byte* payload, std::size_t bytes, std::uint32_t rank,
             std::uint32_t tag) override {
        if (puts_.size() > 8 || random_() % 7 == 0) return false;
        puts_.push_back({place, payload, bytes, rank, tag});
        ++issued_;
        return true;
    }
    bool put_rows(std::uint64_t place, const std::byte* payload, std::size_t bytes, std::uint32_t width,
                  std::uint64_t distance) override {
        if (!put(place, payload, bytes, 0, detail::no_tag)) return false;
        puts_.back().width = width;
        puts_.back().distance = distance;
        return true;
    }
    bool combine(std::uint64_t place, const std::byte* payload, std::size_t bytes, std::uint32_t code) override {
        if (!put(place, payload, bytes, 0, detail::no_tag)) return false;
        puts_.back().update = code;
        return true;
    }
    bool put_packets(std::uint64_t place, const std::byte* values, std::uint32_t rank, std::uint32_t) override {
        return put(place, values, detail::unit_bytes, rank, detail::no_tag);
    }
    bool update(std::uint64_t, const detail::atomic_update&, std::uint32_t) override { return true; }
    std::uint64_t result(std::uint32_t) const override { return 0; }
    bool reply(std::uint32_t*, std::uint32_t) override { return true; }
    std::uint64_t start_copy(std::uint64_t place, const std::byte* payload, std::size_t bytes) override {
        if (copies_.size() > 3) return 0;
        copies_.push_back({place, payload, bytes, 0, detail::no_tag});
        return ++started_;
    }
    bool is_copied(std::uint64_t copy) override { return started_ - copies_.size() >= copy; }
    std::size_t least_copy_bytes() const override { return 2000; }
    std::uint64_t issued() const override { return issued_; }
    std::uint64_t done() override { return issued_ - puts_.size(); }

    void let_one_happen() {
        auto& kind = random_() % 2 == 0 ? puts_ : copies_;
        if (kind.empty()) return;
        const task now = kind.front();
        kind.pop_front();
        auto* const first = reinterpret_cast<std::byte*>(now.place);
        if (now.update != detail::no_update)
            for (std::size_t at = 0; at < now.bytes; at += sizeof(std::uint64_t)) {
                std::uint64_t operand;
                std::memcpy(&operand, now.payload + at, sizeof operand);
                detail::update_element(first + at, detail::update_of(now.update, operand, 0));
            }
        else if (now.width != 0)
            for (std::size_t row = 0; row < now.bytes / now.width; ++row)
                std::memcpy(first + row * now.distance, now.payload + row * now.width, now.width);
        else if (now.bytes != 0)
            std::memcpy(first, now.payload, now.bytes);
        if (now.tag != detail::no_tag) notify_(now.rank, now.tag);
    }

private:
    struct task {
        std::uint64_t place;
        const std::byte* payload;
        std::size_t bytes;
        std::uint32_t rank, tag;
        std::uint32_t width = 0; // of rows
        std::uint64_t distance = 0;
        std::uint32_t update = detail::no_update; // of elements of 8 bytes
    };
    generator& random_;
    std::function<void(std::uint32_t, std::uint32_t)> notify_;
    std::deque<task> puts_, copies_;
    std::uint64_t issued_ = 0, started_ = 0;
};

// One side: its ranks send to the ranks with the same numbers of the other side, each into a region of its own.
struct side : message_handler {
    using images = std::vector<std::vector<std::byte>>;

    side(generator& rng)
        : random(rng), over(rng),
          deliveries(rng, [this](std::uint32_t rank, std::uint32_t tag) { notified(rank, tag); }), into(&deliveries),
          wire(0, over, into, link, *this, ring_bytes, 0), memory(ranks * region),
          expected(ranks, std::vector<std::byte>(region)), after_message(ranks), seen(ranks, 0), kept(64 << 10) {
        for (std::size_t i = 0; i < kept.size(); ++i) kept[i] = static_cast<std::byte>(rng());
        inbound.begin_run(ranks, 256, 3, slots, entries);
        std::vector<detail::window_entry> windows;
        for (std::size_t rank = 0; rank < ranks; ++rank)
            windows.push_back({memory.data() + rank * region, region, nullptr});
        inbound.open_window(2, std::move(windows));
    }

    bool take(int, const message_header& head, const std::byte* payload) override {
        if (head.kind == message_kind::packets)
            return deliveries.put_packets(head.place, payload, head.target, head.tag);
        if (head.kind == message_kind::rows)
            return deliveries.put_rows(head.place, payload, head.bytes, head.tag, head.distance);
        if (head.kind == message_kind::sums) return deliveries.combine(head.place, payload, head.bytes, head.tag);
        return deliveries.put(head.place, payload, head.bytes, head.target, head.tag);
    }
    std::string find_fault(int from, const message_header& head, const std::byte* payload) const override {
        return inbound.find_fault(from, head, payload);
    }
    // What the flush speaks of has arrived: the other side has seen as many notifications as were sent before.
    void flushed(std::uint64_t flush) override {
        const auto [rank, count] = flushes.at(flush - 1);
        EXPECT_GE(other->seen[rank], count);
        ++flushes_done;
    }
    // The n-th notification of a source comes when memory is as it was after the message that carried it.
    void notified(std::uint32_t rank, std::uint32_t tag) {
        EXPECT_EQ(tag, seen[rank] % 256);
        const std::byte* const now = memory.data() + rank * region;
        const std::vector<std::byte>& then = other->after_message[rank].at(seen[rank]++);
        // Later puts may be there already, in parts; the last bytes of a region only notified puts write.
        EXPECT_EQ(std::memcmp(now + region - 4096, then.data() + region - 4096, 4096), 0);
    }

    // Rows, or elements to add, into a part of a region that puts go to as well.
    void send_rows_or_sums() {
        const std::uint32_t rank = static_cast<std::uint32_t>(random() % ranks);
        std::byte* const there = other->memory.data() + rank * region;
        std::uint32_t width = 1 + static_cast<std::uint32_t>(random() % 40);
        const std::uint32_t rows = 1 + static_cast<std::uint32_t>(random() % 60);
        const std::uint64_t distance = width + random() % 200;
        std::size_t place = random() % (region - 4096 - rows * distance);
        message_header head{0, width * rows, message_kind::rows, rank, width, distance};
        const std::byte* const payload = kept.data() + random() % 1000 * 8;
        if (random() % 2 == 0) {
            place = place / 8 * 8;
            head = {0, 8 * rows, message_kind::sums, rank,
                    detail::update_code({detail::atomic_action::add, detail::element_type::uint64, 0, 0})};
            for (std::uint32_t i = 0; i < rows; ++i) {
                std::uint64_t sum, more;
                std::memcpy(&sum, expected[rank].data() + place + 8 * i, 8);
                std::memcpy(&more, payload + 8 * i, 8);
                sum += more;
                std::memcpy(expected[rank].data() + place + 8 * i, &sum, 8);
            }
        } else {
            for (std::uint32_t i = 0; i < rows; ++i)
                std::memcpy(expected[rank].data() + place + i * distance, payload + i * width, width);
        }
        head.place = reinterpret_cast<std::uintptr_t>(there + place);
        wire.send(head, payload, rank);
    }
    void send_something() {
        if (random() % 4 == 0) return send_rows_or_sums();
        const std::uint32_t rank = static_cast<std::uint32_t>(random() % ranks);
        const bool notifies = random() % 2 == 0;
        const std::size_t limits[] = {0, 8, 400, 1999, 4096};
        std::size_t bytes = std::min<std::size_t>(4096, random() % (limits[random() % 5] + 1));
        const bool from_device = !notifies && random() % 4 == 0;
        if (from_device) bytes = 1 + random() % 50'000;
        if (!notifies && bytes == 0) bytes = 1;
        const std::size_t room = notifies ? 4096 : region - 4096, base = notifies ? region - 4096 : 0;
        const std::size_t place = base + random() % (room - bytes + 1), source = random() % (kept.size() - bytes + 1);
        std::memcpy(expected[rank].data() + place, kept.data() + source, bytes);
        message_header head{reinterpret_cast<std::uintptr_t>(other->memory.data()) + rank * region + place,
                            static_cast<std::uint32_t>(bytes), message_kind::put, rank, detail::no_tag};
        if (notifies) {
            head.tag = after_message[rank].size() % 256;
            after_message[rank].push_back(expected[rank]);
        }
        if (from_device)
            wire.send_from_device(head, bytes, kept.data() + source, rank);
        else
            wire.send(head, kept.data() + source, rank);
    }
    void ask_for_flush() {
        const std::uint32_t rank = static_cast<std::uint32_t>(random() % ranks);
        flushes.push_back({rank, static_cast<std::uint32_t>(after_message[rank].size())});
        if (!wire.flush(flushes.size(), rank)) flushed(flushes.size());
    }
    void work(std::uint64_t now_ns) {
        network_event event{};
        while (over.poll(event))
            event.type == network_event::kind::sent ? wire.sent(static_cast<std::uint32_t>(event.number))
                                                    : wire.arrived(static_cast<std::uint32_t>(event.number));
        wire.progress(now_ns);
    }

    generator& random;
    side* other = nullptr;
    fake_network over;
    fake_delivery deliveries;
    placement* into;
    device_access link;
    inbound_check inbound;
    connection wire;
    std::vector<std::byte> memory;
    std::vector<detail::packet> slots = std::vector<detail::packet>(8);
    std::vector<detail::split_entry> entries = std::vector<detail::split_entry>(2 * ranks);
    images expected;                   // of each of the other side's regions, when all has arrived
    std::vector<images> after_message; // by rank: the same after each message with a notification
    std::vector<std::uint32_t> seen;   // notifications, by rank
    std::vector<std::byte> kept;       // what is sent
    struct asked {
        std::uint32_t rank, notifications;
    };
    std::vector<asked> flushes;
    std::size_t flushes_done = 0;
};

class ConnectionTest : public testing::TestWithParam<unsigned> {};

TEST_P(ConnectionTest, AllArrivesInOrder) {
    generator random(GetParam());
    side a(random), b(random);
    a.other = &b, b.other = &a;
    a.over.peer = &b.over, b.over.peer = &a.over;
    a.wire.use(b.wire.offer());
    b.wire.use(a.wire.offer());
    a.wire.is_open = true;
    constexpr int messages = 800, most_steps = 4'000'000;
    int sent = 0, step = 0;
    const auto is_over = [](const side& one) {
        return one.wire.is_quiet() && one.wire.is_sent() && one.over.is_idle() &&
               one.flushes_done == one.flushes.size();
    };
    for (; step < most_steps && (sent < messages || !is_over(a) || !is_over(b)); ++step) {
        if (step == 500) b.wire.is_open = true; // what was sent before has waited
        side& one = random() % 2 == 0 ? a : b;
        switch (random() % 5) {
        case 0:
            if (sent < messages && random() % 3 == 0) ++sent, one.send_something();
            break;
        case 1:
            one.over.let_one_arrive();
            break;
        case 2:
            one.deliveries.let_one_happen();
            break;
        case 3:
            if (sent < messages && random() % 40 == 0) one.ask_for_flush();
            break;
        default:
            one.work(static_cast<std::uint64_t>(step) * 10'000);
        }
    }
    ASSERT_LT(step, most_steps) << "something never arrived";
    for (const side* one : {&a, &b})
        for (std::uint32_t rank = 0; rank < ranks; ++rank) {
            EXPECT_EQ(one->other->seen[rank], one->after_message[rank].size());
            EXPECT_EQ(std::memcmp(one->other->memory.data() + rank * region, one->expected[rank].data(), region), 0);
        }
}

INSTANTIATE_TEST_SUITE_P(Seeds, ConnectionTest, testing::Range(1u, 13u));

// Rank 1 sends more than is taken, without end: a large message of rank 0 arrives all the same.
TEST(Connection, PartsOfLargeMessagesTakeTurns) {
    generator random(5);
    side a(random), b(random);
    a.other = &b, b.other = &a;
    a.over.peer = &b.over, b.over.peer = &a.over;
    a.wire.use(b.wire.offer());
    b.wire.use(a.wire.offer());
    a.wire.is_open = b.wire.is_open = true;
    const auto window_of = [&](std::uint32_t rank) {
        return reinterpret_cast<std::uintptr_t>(b.memory.data()) + rank * region;
    };
    const auto send_small = [&] {
        a.wire.send({window_of(1), 400, message_kind::put, 1, detail::no_tag}, a.kept.data(), 1);
    };
    const auto work = [&](std::uint64_t step) {
        for (side* one : {&a, &b}) {
            one->over.let_one_arrive();
            one->deliveries.let_one_happen();
            one->work(step * 10'000);
        }
    };
    std::uint64_t step = 0;
    for (; step < 2000; ++step) {
        for (int i = 0; i < 4; ++i) send_small();
        work(step);
    }
    a.after_message[0].push_back(a.expected[0]);
    a.wire.send_from_device({window_of(0), 0, message_kind::put, 0, 0}, 50'000, a.kept.data(), 0);
    constexpr int many = 400'000; // to a ring that has room for 300
    int sent = 0;
    for (; sent < many && b.seen[0] == 0; ++step) {
        for (int i = 0; i < 4; ++i, ++sent) send_small();
        work(step);
    }
    EXPECT_LT(sent, many);
}

// One side of a connection, and a peer that is none: somebody has got the key of the ring and writes what he likes.
struct victim {
    victim() {
        ours.other = &theirs, theirs.other = &ours;
        ours.over.peer = &theirs.over, theirs.over.peer = &ours.over;
        ours.wire.use(theirs.wire.offer());
        ours.wire.is_open = true;
    }

    std::uint64_t window_of(std::size_t rank) const {
        return reinterpret_cast<std::uintptr_t>(ours.memory.data()) + rank * region;
    }
    std::uint64_t slot(std::size_t number) const {
        return reinterpret_cast<std::uintptr_t>(ours.slots.data() + number);
    }
    std::uint64_t entry(std::size_t number) const {
        return reinterpret_cast<std::uintptr_t>(ours.entries.data() + number);
    }

    // A fragment with these messages, at a place of the ring.
    void write(std::size_t place, const fragment_header& head, const std::vector<message_header>& messages) {
        auto* next = reinterpret_cast<std::byte*>(ours.wire.offer().memory.address) + place * 64;
        std::memcpy(next, &head, sizeof head);
        next += sizeof head;
        for (const message_header& each : messages) { // none but the last has a size that may be wrong
            std::memcpy(next, &each, sizeof each);
            next += sizeof each + (std::size_t{each.bytes} + 15) / 16 * 16;
        }
    }

    // What the connection says of a fragment that has arrived with this number, after a while.
    std::string finding(std::uint32_t number) {
        try {
            ours.wire.arrived(number);
            for (std::uint64_t step = 0; step < 100; ++step) {
                ours.wire.progress(step * 10'000);
                ours.deliveries.let_one_happen();
            }
        } catch (const foreign_arrival& refused) {
            EXPECT_EQ(refused.code(), error_code::process_lost);
            return refused.what();
        }
        return "taken";
    }

    generator random{7};
    side ours{random}, theirs{random};
};

void expect_finding(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find("what has come over fake is of no process of this job: in the name of process 0, " + part),
              text.npos)
        << text;
}

constexpr message_header nothing{0, 0, message_kind::put, 0, detail::no_tag};

TEST(ForeignArrivals, WhatAPeerSendsIsTaken) {
    victim one;
    constexpr auto put = message_kind::put, packets = message_kind::packets;
    constexpr std::uint32_t sum_of_floats =
        detail::update_code({detail::atomic_action::add, detail::element_type::float32, 0, 0});
    one.write(0, {0, 0, 32 + 48 + 32 + 4096 + 5 * 64 + 32, 8},
              {{one.window_of(1) + 8, 16, put, 1, detail::no_tag},
               {one.window_of(2), 4096, put, 2, detail::no_tag},
               {one.window_of(2) - 8 - 3 * 512, 32, message_kind::rows, 1, 8, 512},
               {one.window_of(3) + 4, 24, message_kind::sums, 3, sum_of_floats},
               {one.slot(0), 24, packets, 1, 17},
               {one.slot(6), 24, packets, ranks - 1, UINT32_MAX},
               {one.entry(2 * ranks - 1), 32, put, 0, detail::no_tag},
               {0, 0, message_kind::answer, 0, 0}});
    EXPECT_EQ(one.finding(0), "taken");
}

TEST(ForeignArrivals, NumbersWithoutAPlace) {
    victim one;
    expect_finding(one.finding(ring_bytes / 64), "a fragment with number 2048, of 2048 from 0 on");
    expect_finding(victim().finding(UINT32_MAX), "a fragment with number 4294967295");
    EXPECT_EQ(one.finding(5), "taken"); // it may come before the one that it follows
    expect_finding(one.finding(5), "a fragment with number 5");
}

TEST(ForeignArrivals, Fragments) {
    const std::tuple<std::size_t, fragment_header, const char*> cases[] = {
        {0, {0, 0, 0, 0}, "a fragment of 0 B at 0 B of a ring of 131072 B"},
        {0, {0, 0, 31, 0}, "a fragment of 31 B"},
        {0, {0, 0, ring_bytes + 1, 0}, "a fragment of 131073 B"},
        {0, {0, 0, UINT32_MAX, 0}, "a fragment of 4294967295 B"},
        {0, {0, 1, 32, 0}, "credit for 1 units of 0 that were sent"},
        {0, {0, UINT64_MAX, 32, 0}, "credit for 18446744073709551615 units of 0 that were sent"},
        {0, {0, 0, 32, 1}, "more messages than there are in a fragment of 32 B"},
        {0, {0, 0, 64 + 31, UINT32_MAX}, "more messages than there are in a fragment of 95 B"},
    };
    for (const auto& [place, head, part] : cases) {
        SCOPED_TRACE(part);
        victim one;
        one.write(place, head, {nothing});
        expect_finding(one.finding(static_cast<std::uint32_t>(place)), part);
    }
    victim one;
    one.write(0, {0, 0, 64, 1}, {nothing});
    EXPECT_EQ(one.finding(0), "taken");
    one.write(1, {17, 0, 64, 1}, {nothing});
    expect_finding(one.finding(1), "a fragment in the place of another");
}

// Deliveries take nine of them, and the others come again; meanwhile somebody writes over what has been looked at.
TEST(ForeignArrivals, WhatChangesWhileItWaits) {
    victim one;
    const message_header put{one.window_of(1), 16, message_kind::put, 1, detail::no_tag};
    const std::vector<message_header> messages(12, put);
    const auto bytes = static_cast<std::uint32_t>(sizeof(fragment_header) + messages.size() * 48);
    one.write(0, {0, 0, bytes, 12}, messages);
    one.ours.wire.arrived(0);
    for (std::uint64_t step = 0; step < 200; ++step) one.ours.wire.progress(step);
    ASSERT_EQ(one.ours.deliveries.issued(), 9u);
    std::vector<message_header> longer = messages;
    longer.back().bytes = 60'000;
    one.write(0, {0, 0, sizeof(fragment_header), 12}, longer);
    const auto take_all = [&] {
        for (std::uint64_t step = 0; step < 1000; ++step) {
            one.ours.deliveries.let_one_happen();
            one.ours.wire.progress(step);
        }
    };
    EXPECT_THROW(take_all(), foreign_arrival);
    EXPECT_EQ(one.ours.deliveries.issued(), 11u);
}

TEST(ForeignArrivals, Messages) {
    constexpr auto put = message_kind::put;
    const auto check = [](const auto& make, const char* part) {
        SCOPED_TRACE(part);
        victim one;
        const message_header bad = make(one);
        one.write(0, {0, 0, 128, 2}, {nothing, bad});
        expect_finding(one.finding(0), part);
        EXPECT_EQ(one.ours.deliveries.issued(), 1u); // what came before
    };
    using header = message_header;
    check(
        [&](const victim&) {
            return header{0x414141410000, 8, put, 1, 0};
        },
        "a put of 8 B to address 0x414141410000, where rank 1 of the device has no window");
    check([&](const victim& of) { return header{of.window_of(2) - 7, 8, put, 1, 0}; }, "a put of 8 B to address");
    check([&](const victim& of) { return header{of.window_of(1) - 1, 8, put, 1, 0}; }, "a put of 8 B to address");
    check([&](const victim& of) { return header{of.window_of(2), 8, put, 1, 0}; }, "a put of 8 B to address");
    check([&](const victim&) { return header{UINT64_MAX - 3, 8, put, 1, 0}; }, "a put of 8 B to address");
    check(
        [&](const victim& of) {
            return header{of.window_of(1), 8, put, ranks, 0};
        },
        "a put to rank 4 of a device with 4 ranks");
    check([&](const victim&) { return header{0, 0, put, UINT32_MAX, 0}; }, "a put to rank 4294967295 of a device");
    check(
        [&](const victim& of) {
            return header{of.window_of(1), 8, put, 1, 256};
        },
        "a notification with tag 256 of 256 tags");
    check(
        [&](const victim& of) {
            return header{of.window_of(1), 2000, put, 1, 0};
        },
        "a message of 2000 B in a fragment of 128 B");
    check(
        [&](const victim& of) {
            return header{of.window_of(1), UINT32_MAX, put, 1, 0};
        },
        "a message of 4294967295 B in a fragment of 128 B");
    // Into the table of a split: whole entries alone.
    using of = const victim&;
    check([](of one) { return header{one.entry(0), 16, put, 1, detail::no_tag}; }, "a put of 16 B to address");
    check([](of one) { return header{one.entry(0), 24, put, 1, detail::no_tag}; }, "a put of 24 B to address");
    check([](of one) { return header{one.entry(0), 32, put, 1, 0}; }, "a put of 32 B to address");
    check([](of one) { return header{one.entry(0) + 16, 32, put, 1, detail::no_tag}; }, "a put of 32 B to address");
    check([](of one) { return header{one.entry(2 * ranks), 32, put, 1, detail::no_tag}; }, "a put of 32 B to address");
    check([](of one) { return header{one.entry(0) - 32, 32, put, 1, detail::no_tag}; }, "a put of 32 B to address");
    check([](of one) { return header{one.slot(0), 32, put, 1, detail::no_tag}; }, "a put of 32 B to address");
    // Into the slots of exchanges: whole units alone.
    constexpr auto packets = message_kind::packets;
    check(
        [](of one) {
            return header{one.slot(0), 24, packets, ranks, 0};
        },
        "packets for rank 4 of a device with 4 ranks");
    check([](of one) { return header{one.slot(0), 12, packets, 1, 0}; }, "packets of 12 B for address");
    check([](of one) { return header{one.slot(0), 32, packets, 1, 0}; }, "packets of 32 B for address");
    check([](of one) { return header{one.slot(0) + 8, 24, packets, 1, 0}; }, "packets of 24 B for address");
    check([](of one) { return header{one.slot(7), 24, packets, 1, 0}; }, "packets of 24 B for address");
    check([](of one) { return header{one.slot(8), 24, packets, 1, 0}; }, "packets of 24 B for address");
    check([](of one) { return header{one.slot(0) - 16, 24, packets, 1, 0}; }, "packets of 24 B for address");
    check([](of one) { return header{one.window_of(1), 24, packets, 1, 0}; }, "packets of 24 B for address");
    check(
        [](of) {
            return header{UINT64_MAX - 15, 24, packets, 1, 0};
        },
        "packets of 24 B for address 0xfffffffffffffff0, where no exchange has a place for them");
    // Rows: four of 8 B in 32 B.
    constexpr auto rows = message_kind::rows;
    check([](of one) { return header{one.window_of(1), 32, rows, ranks, 8, 16}; },
          "rows of 8 B for rank 4 of a device");
    check([](of one) { return header{one.window_of(1), 32, rows, 1, 0, 16}; }, "rows of 0 B for rank 1 of a device");
    check([](of one) { return header{one.window_of(1), 0, rows, 1, 8, 16}; }, "rows of 8 B for rank 1 of a device");
    check([](of one) { return header{one.window_of(1), 32, rows, 1, 7, 16}; }, "rows of 7 B for rank 1 of a device");
    check([](of one) { return header{one.window_of(1), 32, rows, 1, 33, 16}; }, "rows of 33 B for rank 1 of a device");
    check([](of one) { return header{one.window_of(1) - 8, 32, rows, 1, 8, 16}; },
          "4 rows of 8 B, 16 B apart, from address");
    check([](of one) { return header{one.window_of(2) - 7 - 3 * 512, 32, rows, 1, 8, 512}; },
          "4 rows of 8 B, 512 B apart");
    check([](of one) { return header{one.window_of(1), 32, rows, 1, 8, region}; }, "4 rows of 8 B, 65536 B apart");
    check([](of one) { return header{one.window_of(1), 32, rows, 1, 8, std::uint64_t{1} << 63}; }, "4 rows of 8 B");
    check([](of one) { return header{one.window_of(1), 32, rows, 1, 8, UINT64_MAX / 3}; }, "4 rows of 8 B");
    // Elements.
    constexpr auto sums = message_kind::sums;
    constexpr auto code_of = [](detail::atomic_action action, detail::element_type type) {
        return detail::update_code({action, type, 0, 0});
    };
    constexpr std::uint32_t add = code_of(detail::atomic_action::add, detail::element_type::float64);
    check([](of one) { return header{one.window_of(1), 16, sums, ranks, add}; }, "elements with code 0x500 for rank 4");
    check([](of one) { return header{one.window_of(1), 16, sums, 1, UINT32_MAX}; }, "elements with code 0xffffffff");
    check(
        [=](of one) {
            return header{one.window_of(1), 16, sums, 1,
                          code_of(detail::atomic_action::bit_or, detail::element_type::float64)};
        },
        "elements with code");
    check([](of one) { return header{one.window_of(1), 0, sums, 1, add}; }, "elements of 8 B, 0 B in all");
    check([](of one) { return header{one.window_of(1), 12, sums, 1, add}; }, "elements of 8 B, 12 B in all");
    check([](of one) { return header{one.window_of(1) + 4, 16, sums, 1, add}; }, "elements of 8 B, 16 B in all");
    check([](of one) { return header{one.window_of(2) - 8, 16, sums, 1, add}; }, "elements of 8 B, 16 B in all");
    constexpr auto barrier = message_kind::barrier, answer = message_kind::answer;
    check(
        [&](const victim&) {
            return header{1, 0, barrier, detail::collective::barriers, 0};
        },
        "round 0 of barrier 6 with 0 B");
    check([&](const victim&) { return header{1, 0, barrier, 0, 3}; }, "round 3 of barrier 0 with 0 B");
    check([&](const victim&) { return header{1, 16, barrier, 0, 0}; }, "round 0 of barrier 0 with 16 B");
    check([&](const victim&) { return header{0, 16, answer, 0, 0}; }, "a question for credit with 16 B");
    check([&](const victim&) { return header{0, 0, static_cast<message_kind>(17), 0, 0}; }, "a message of kind 17");
}

} // namespace
