// SPDX-License-Identifier: BSD-3-Clause
// What every transport must do, over the one that DCUDA_TRANSPORT names ("shm", "mpi", "ofi:tcp"), by two or more
// processes. Every case is a list of writes, which all processes know: each does its own of them, and checks those that
// come in.
#include "bootstrap/control.hpp"
#include "support/check.hpp"
#include "support/env.hpp"
#include "support/wire.hpp"
#include "transport/network.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <map>
#include <numeric>
#include <random>
#include <sched.h>
#include <thread>
#include <vector>

using namespace dcuda;
using bootstrap::control;
using support::fail;
using support::require;
using transport::network;
using transport::network_event;
using transport::remote_memory;

namespace {

constexpr std::size_t unit = network::unit_bytes;
constexpr std::size_t kib = 1024, mib = 1024 * kib;
constexpr std::size_t source_bytes = 16 * mib;
constexpr std::size_t most_sources = 8192;
constexpr std::byte untouched{0x5a}, changed{0xee};
constexpr auto patience = std::chrono::seconds(30); // without any event

// Memory that each process exposes, with the first number of each. The numbers of the last one are the highest there
// are, or the highest that this transport takes.
constexpr std::size_t memory_count = 3;
constexpr std::array<std::size_t, memory_count> memory_bytes{256 * kib, 9 * mib, mib};
constexpr std::array<std::uint32_t, memory_count> first_numbers{0, 1'000'000, (1u << 31) - mib / unit};
constexpr std::uint32_t first_number_if_refused = 7'000'000;

struct planned {
    int from, receiver;
    std::size_t memory, bytes;
    std::size_t skew;       // of the source, from a multiple of unit
    std::size_t offset = 0; // in the target's memory
};

struct aligned_delete {
    void operator()(std::byte* memory) const { operator delete[](memory, std::align_val_t{4096}); }
};
using aligned_memory = std::unique_ptr<std::byte[], aligned_delete>;
aligned_memory allocate(std::size_t bytes) { return aligned_memory(new (std::align_val_t{4096}) std::byte[bytes]); }

void fill(std::byte* place, std::size_t bytes, std::uint64_t seed) {
    for (std::size_t i = 0; i < bytes; i += sizeof seed) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const std::uint64_t value = seed ^ (seed >> 33);
        std::memcpy(place + i, &value, std::min(sizeof value, bytes - i));
    }
}

// How a process works through its list.
struct behaviour {
    std::size_t outstanding = most_sources;  // at most so many writes, from as many places
    int slow_process = -1;                   // it does not poll for half a second
    std::size_t most_before_poll = SIZE_MAX; // writes, unless write() says "not now" before
    bool is_made_in_place = false;           // where the target's memory can be reached
};

class job {
public:
    job(std::string transport, std::string provider)
        : who_(bootstrap::detect_job()), control_(who_, "network test"),
          network_(transport::open_network(transport, {who_.index, who_.count, std::move(provider), ""})) {
        introduce();
        std::vector<remote_memory> own;
        for (std::size_t i = 0; i < memory_count; ++i) {
            memory_.push_back(network_->share(memory_bytes[i]));
            if (memory_.back() == nullptr) memory_.back() = {allocate(memory_bytes[i]).release(), aligned_delete()};
            own.push_back(expose(i));
        }
        network_->add_source(source_.get(), source_bytes);
        support::wire_writer writer;
        writer.put(own);
        for (const auto& part : control_.allgather(writer.bytes(), "memory"))
            remote_.push_back(support::wire_reader(part).get_vector<remote_memory>());
        if (index() == 0) fmt::print("{} processes over {}\n", count(), network_->name());
    }

    int index() const { return who_.index; }
    int count() const { return who_.count; }

    // Does the writes of the list, which is the same everywhere.
    void run(const std::vector<planned>& list, const behaviour& how) {
        try {
            prepare(list);
            meet(list);
            work(list, how);
            meet(list);
            for (int i = 0; i < 100; ++i) require(!poll(list), error_code::kernel_failure, "an event too many");
            check_memory(list);
            meet(list);
        } catch (const std::exception& problem) {
            control_.abort(1, problem.what()); // the others need not wait
            throw;
        }
    }

private:
    // Returns when all processes have called it. Polls: what others still wait for may need us, and their first writes
    // may be here early.
    void meet(const std::vector<planned>& list) {
        control_.start_gather(++gather_, "");
        const auto deadline = std::chrono::steady_clock::now() + patience;
        while (!has_gathered()) {
            while (poll(list)) {
            }
            require(std::chrono::steady_clock::now() < deadline, error_code::wait_timeout, "the others do not come");
            sched_yield();
        }
    }
    bool has_gathered() {
        const auto news = control_.poll();
        if (!news) return false;
        require(news->type == bootstrap::event::kind::gathered && news->id == gather_, error_code::process_lost,
                "another process failed: {}", news->message);
        return true;
    }

    void introduce() {
        support::wire_writer invitations;
        for (int peer = 0; peer < count(); ++peer)
            invitations.put(std::string_view(peer == index() ? "" : network_->invite(peer)));
        const auto all = control_.allgather(invitations.bytes(), "invitations");
        for (int peer = 0; peer < count(); ++peer) {
            support::wire_reader reader(all[static_cast<std::size_t>(peer)]);
            std::string for_us;
            for (int i = 0; i <= index(); ++i) for_us = reader.get_text();
            if (peer != index()) network_->connect(peer, for_us);
        }
        control_.barrier("connected");
    }

    remote_memory expose(std::size_t memory) {
        first_number_[memory] = first_numbers[memory];
        try {
            return network_->expose(memory_[memory].get(), memory_bytes[memory], first_number_[memory]);
        } catch (const error& problem) { // MPI's tags may end earlier
            EXPECT_EQ(memory, memory_count - 1) << problem.what();
            EXPECT_NE(std::string(problem.what()).find("MPI_TAG_UB"), std::string::npos) << problem.what();
        }
        first_number_[memory] = first_number_if_refused;
        return network_->expose(memory_[memory].get(), memory_bytes[memory], first_number_[memory]);
    }

    std::uint32_t number_of(const planned& one) const {
        return first_number_[one.memory] + static_cast<std::uint32_t>(one.offset / unit);
    }
    static std::string describe(const planned& one) {
        return fmt::format("the write of {} bytes by process {} to process {}, memory {} at {}, source at {}",
                           one.bytes, one.from, one.receiver, one.memory, one.offset, one.skew);
    }
    std::uint64_t seed_of(std::size_t write) const { return run_count_ * 1'000'003 + write; }

    void prepare(const std::vector<planned>& list) {
        ++run_count_;
        for (std::size_t i = 0; i < memory_count; ++i)
            std::memset(memory_[i].get(), static_cast<int>(untouched), memory_bytes[i]);
        to_write_.clear();
        expected_.clear();
        in_flight_.clear();
        free_.clear();
        for (std::size_t i = 0; i < list.size(); ++i) {
            if (list[i].from == index()) to_write_.push_back(i);
            if (list[i].receiver == index()) expected_[number_of(list[i])] = i;
        }
    }

    void work(const std::vector<planned>& list, const behaviour& how) {
        std::size_t largest = 0;
        for (const planned& one : list) largest = std::max(largest, one.bytes);
        const std::size_t stride = (largest + unit - 1) / unit * unit + unit; // room for the skew
        const std::size_t places = std::min(how.outstanding, source_bytes / stride);
        for (std::size_t i = 0; i < places; ++i) free_.push_back(source_.get() + i * stride);
        if (how.slow_process == index()) std::this_thread::sleep_for(std::chrono::milliseconds(500));

        auto next = to_write_.begin();
        auto deadline = std::chrono::steady_clock::now() + patience;
        while (next != to_write_.end() || !in_flight_.empty() || !expected_.empty()) {
            std::size_t begun = 0;
            while (next != to_write_.end() && !free_.empty() && begun < how.most_before_poll) {
                if (!write(list[*next], *next, how.is_made_in_place)) break;
                ++next, ++begun;
            }
            bool moved = begun > 0;
            while (poll(list)) moved = true;
            const auto now = std::chrono::steady_clock::now();
            if (moved) deadline = now + patience;
            require(now < deadline, error_code::wait_timeout,
                    "nothing moves: {} writes to begin, {} not sent, {} not arrived", to_write_.end() - next,
                    in_flight_.size(), expected_.size());
            if (moved) continue;
            has_gathered(); // throws if another process has failed
            sched_yield();
        }
    }

    bool write(const planned& one, std::size_t id, bool in_place) {
        const remote_memory& memory = remote_[static_cast<std::size_t>(one.receiver)][one.memory];
        std::byte* source = free_.back() + one.skew;
        if (in_place)
            if (const auto target = network_->reach(one.receiver, memory)) source = target.get() + one.offset;
        fill(source, one.bytes, seed_of(id));
        if (!network_->write(one.receiver, memory, one.offset, source, one.bytes, number_of(one), token_base + id))
            return false;
        in_flight_[token_base + id] = free_.back();
        free_.pop_back();
        return true;
    }

    bool poll(const std::vector<planned>& list) {
        network_event event{};
        if (!network_->poll(event)) return false;
        if (event.type == network_event::kind::sent) {
            const auto found = in_flight_.find(event.number);
            require(found != in_flight_.end(), error_code::kernel_failure, "token {} came back, but is not out",
                    event.number);
            const planned& one = list[event.number - token_base];
            std::memset(found->second + one.skew, static_cast<int>(changed), one.bytes);
            free_.push_back(found->second);
            in_flight_.erase(found);
        } else {
            const auto found = expected_.find(event.number);
            require(found != expected_.end(), error_code::kernel_failure, "number {} arrived, but is not expected",
                    event.number);
            check(list[found->second], found->second);
            expected_.erase(found);
        }
        return true;
    }

    void check(const planned& one, std::size_t id) {
        content_.resize(one.bytes);
        fill(content_.data(), one.bytes, seed_of(id));
        const std::byte* const place = memory_[one.memory].get() + one.offset;
        const auto wrong = std::mismatch(content_.begin(), content_.end(), place);
        require(wrong.first == content_.end(), error_code::kernel_failure,
                "{}: byte {} is {:#04x}, not {:#04x}, when it has arrived", describe(one),
                wrong.first - content_.begin(), wrong.first == content_.end() ? 0 : static_cast<int>(*wrong.second),
                wrong.first == content_.end() ? 0 : static_cast<int>(*wrong.first));
    }

    // At the end: what was written is still there, and nothing else.
    void check_memory(const std::vector<planned>& list) {
        std::array<std::vector<std::byte>, memory_count> right;
        for (std::size_t i = 0; i < memory_count; ++i) right[i].resize(memory_bytes[i], untouched);
        for (std::size_t i = 0; i < list.size(); ++i)
            if (list[i].receiver == index())
                fill(right[list[i].memory].data() + list[i].offset, list[i].bytes, seed_of(i));
        for (std::size_t i = 0; i < memory_count; ++i)
            for (std::size_t at = 0; at < memory_bytes[i]; at += unit)
                require(std::memcmp(right[i].data() + at, memory_[i].get() + at, unit) == 0, error_code::kernel_failure,
                        "memory {} is wrong at {} after all writes", i, at);
    }

    static constexpr std::uint64_t token_base = 0xdc00'0000'0000'0000; // tokens have 64 bits

    bootstrap::job who_;
    control control_;
    // Outlive the network.
    std::vector<transport::shared_memory> memory_;
    aligned_memory source_ = allocate(source_bytes);
    std::unique_ptr<network> network_;
    std::array<std::uint32_t, memory_count> first_number_{};
    std::vector<std::vector<remote_memory>> remote_; // [process][memory]
    std::uint64_t gather_ = 0, run_count_ = 0;
    // Of the list at work:
    std::vector<std::size_t> to_write_;
    std::map<std::uint64_t, std::size_t> expected_; // number, write
    std::map<std::uint64_t, std::byte*> in_flight_; // token, source
    std::vector<std::byte*> free_;                  // sources
    std::vector<std::byte> content_;
};

// Makes lists: finds places for writes.
class plan {
public:
    explicit plan(int processes) : used_(static_cast<std::size_t>(processes)) {}

    // False if the memory is full.
    bool add(planned one) {
        std::size_t& used = used_[static_cast<std::size_t>(one.receiver)][one.memory];
        one.offset = used;
        if (used + one.bytes > memory_bytes[one.memory]) return false;
        used += (one.bytes + unit - 1) / unit * unit;
        list.push_back(one);
        return true;
    }
    void shuffle(std::mt19937_64& random) { std::shuffle(list.begin(), list.end(), random); }

    std::vector<planned> list;

private:
    std::vector<std::array<std::size_t, memory_count>> used_;
};

class network_test : public testing::Test {
protected:
    static void SetUpTestSuite() {
        const std::string wanted = support::env_string("DCUDA_TRANSPORT").value_or("ofi");
        const std::size_t colon = std::min(wanted.find(':'), wanted.size());
        const std::string transport = wanted.substr(0, colon);
        if (!transport::has_network(transport)) {
            reason_ = "the transport " + transport + " is not built here";
        } else if (bootstrap::detect_job().count < 2) {
            reason_ = "it takes several processes";
        } else {
            const std::string provider = wanted.substr(std::min(colon + 1, wanted.size()));
            try {
                job_ = std::make_unique<job>(transport, provider);
            } catch (const error& problem) {
                const bool has_verbs = transport == "verbs" || provider.starts_with("verbs");
                if (problem.code() != error_code::no_path || !has_verbs) throw;
                reason_ = problem.what(); // no such hardware
            }
        }
    }
    static void TearDownTestSuite() { job_.reset(); }
    void SetUp() override {
        if (!reason_.empty()) GTEST_SKIP() << reason_;
        // One failure is the end, for all processes.
        if (job_ == nullptr || over_) GTEST_SKIP() << "an earlier test failed";
    }
    void TearDown() override { over_ = over_ || HasFailure(); }

    static int count() { return job_->count(); }
    static plan empty_plan() { return plan(count()); }
    static void run(const plan& made, const behaviour& how = {}) { job_->run(made.list, how); }
    // Calls act(from, to) for all pairs of different processes.
    template <class Action>
    static void for_pairs(Action act) {
        for (int from = 0; from < count(); ++from)
            for (int receiver = 0; receiver < count(); ++receiver)
                if (from != receiver) act(from, receiver);
    }

private:
    static inline std::unique_ptr<job> job_;
    static inline std::string reason_;
    static inline bool over_ = false;
};

// The limits of network libraries, below which they inject or copy, are near powers of two.
TEST_F(network_test, sizes_from_1_byte_to_4_mib) {
    for (std::size_t power = 1; power <= 4 * mib; power *= 2) {
        plan sizes = empty_plan();
        for (const std::size_t bytes : {power - 1, power, power + 1, power + power / 2}) {
            if (bytes == 0 || bytes > 4 * mib) continue;
            for (int from = 0; from < count(); ++from) sizes.add({from, (from + 1) % count(), 1, bytes, 0});
        }
        run(sizes);
    }
}

// Libraries and adapters have a largest message, such as 8 MiB.
TEST_F(network_test, a_write_as_large_as_the_memory) {
    plan large = empty_plan();
    for (int from = 0; from < count(); ++from) large.add({from, (from + 1) % count(), 1, memory_bytes[1], 0});
    run(large);
}

TEST_F(network_test, sources_of_every_alignment) {
    plan skews = empty_plan();
    for (const std::size_t bytes : {1u, 8u, 63u, 64u, 200u, 5'000u, 20'000u})
        for (std::size_t skew = 0; skew < unit; ++skew)
            for_pairs([&](int from, int receiver) {
                if (receiver == (from + 1) % count()) skews.add({from, receiver, 1, bytes, skew});
            });
    run(skews);
}

TEST_F(network_test, sources_in_the_targets_memory) {
    plan sizes = empty_plan();
    for (const std::size_t bytes : {1u, 64u, 300u, 4'096u, 70'000u, 1'000'000u})
        for_pairs([&](int from, int receiver) { sizes.add({from, receiver, 1, bytes, 0}); });
    run(sizes, {.is_made_in_place = true});
}

TEST_F(network_test, every_number_arrives) {
    for (std::size_t memory = 0; memory < memory_count; ++memory) {
        plan units = empty_plan();
        const std::size_t whole_units = memory == 1 ? 6 : 0; // there are many
        for (std::size_t i = 0; i < memory_bytes[memory] / unit; ++i)
            for (int receiver = 0; receiver < count(); ++receiver) {
                const int from = (receiver + 1 + static_cast<int>(i) % (count() - 1)) % count();
                units.add({from, receiver, memory, whole_units * unit + 1 + i % unit, 0});
            }
        run(units);
    }
}

TEST_F(network_test, a_source_is_free_once_sent) {
    for (const std::size_t outstanding : {1u, 2u, 7u}) {
        plan same = empty_plan();
        for (const std::size_t bytes : {1u, 64u, 300u, 4'096u, 70'000u})
            for (int i = 0; i < 20; ++i)
                for_pairs([&](int from, int receiver) { same.add({from, receiver, 1, bytes, 0}); });
        run(same, {.outstanding = outstanding});
    }
}

TEST_F(network_test, random_writes_of_several_sources_into_one_target) {
    const auto seed =
        static_cast<std::uint64_t>(support::env_integer("DCUDA_TEST_SEED", 0, INT64_MAX).value_or(20260101));
    fmt::print("DCUDA_TEST_SEED={}\n", seed);
    std::mt19937_64 random(seed);
    for (int round = 0; round < 8; ++round) {
        plan storm = empty_plan();
        for (int i = 0; i < 3000 * (count() - 1); ++i) {
            const int from = 1 + i % (count() - 1);
            const std::size_t most = std::size_t{1} << random() % (i % 100 == 0 ? 18 : 10);
            storm.add({from, 0, random() % memory_count, 1 + random() % most, random() % unit});
        }
        storm.shuffle(random);
        run(storm, {.most_before_poll = 1 + random() % 100});
    }
}

TEST_F(network_test, random_writes_of_all_to_all) {
    std::mt19937_64 random(7);
    for (int round = 0; round < 4; ++round) {
        plan storm = empty_plan();
        for (int i = 0; i < 1000; ++i)
            for_pairs([&](int from, int receiver) {
                const std::size_t most = std::size_t{1} << random() % (i % 100 == 0 ? 18 : 10);
                storm.add({from, receiver, random() % memory_count, 1 + random() % most, random() % unit});
            });
        storm.shuffle(random);
        run(storm, {.most_before_poll = 1 + random() % 100});
    }
}

TEST_F(network_test, both_directions_at_once) {
    for (const std::size_t bytes : {2 * mib, 100 * kib, 8 * kib, kib}) {
        plan both = empty_plan();
        for (int i = 0; i < 400; ++i)
            for_pairs([&](int from, int receiver) {
                if (from / 2 == receiver / 2) both.add({from, receiver, 1, bytes, 0});
            });
        run(both);
    }
}

// The target sleeps while the others write all they can.
TEST_F(network_test, a_slow_target_loses_nothing) {
    for (const std::size_t bytes : {std::size_t{8}, 2 * kib, 200 * kib}) {
        plan flood = empty_plan();
        for (int i = 0; i < 6000; ++i) flood.add({1 + i % (count() - 1), 0, 1, bytes, 0});
        run(flood, {.slow_process = 0});
    }
}

} // namespace
