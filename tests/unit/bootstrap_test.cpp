// SPDX-License-Identifier: BSD-3-Clause
// The bootstrap between real processes: each test forks the processes of a job, gives each its part, and checks what
// each of them found.
#include "bootstrap/control_server.hpp"
#include "bootstrap/local_socket.hpp"
#include "bootstrap/tcp.hpp"
#include "child.hpp"
#include "dcuda/error.hpp"
#include "support/check.hpp"
#include "support/env.hpp"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <functional>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace dcuda::bootstrap;
using namespace dcuda::tests;
using dcuda::error;
using dcuda::error_code;
using std::chrono::steady_clock;
using namespace std::chrono_literals;

namespace {

const std::string secret = "00112233445566778899aabbccddeeff";

// Where the processes of a test over TCP meet. The socket listens from the start, as with dcuda-run.
struct tcp_place {
    descriptor listener = listen_tcp("127.0.0.1:0");
    const std::string address = address_of(listener);
};
std::optional<tcp_place> place; // none: the test is one over local sockets

// In a forked process.
job make_job(int index, int count, const std::string& suffix = "") {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    const pid_t parent = getppid(); // the test
    job result{index, count, index, count, fmt::format("{} {} {}{}", getuid(), parent, test->name(), suffix), "test"};
    if (!place) return result;
    result.local_index = 0;
    result.local_count = 1;
    result.rendezvous = place->address;
    result.secret = secret;
    if (index == 0)
        result.listen_fd = place->listener.release();
    else
        place->listener = descriptor();
    return result;
}

// A connection to the control server of this job that has said nothing yet, but has proved to have the secret.
channel connect_to_server(const job& who) {
    descriptor socket;
    std::string why;
    const auto deadline = steady_clock::now() + 20s;
    while (socket.get() < 0) {
        socket =
            place ? try_connect_tcp(who.rendezvous, deadline, why) : try_connect_local(local_socket_name(who.key, 0));
        std::this_thread::sleep_for(1ms);
    }
    if (place) {
        handshake authentication(handshake::side::process, auth_key(secret, 0));
        while (authentication.advance(socket.get()) == handshake::state::going_on) std::this_thread::sleep_for(1ms);
    }
    return channel(std::move(socket));
}

std::vector<child> start(int count, const std::function<void(int)>& body) {
    std::vector<child> children;
    for (int i = 0; i < count; ++i) children.emplace_back([&body, i] { body(i); });
    if (place) place->listener = descriptor(); // it is theirs
    return children;
}

event next_event(control& plane) {
    for (;;) {
        if (auto found = plane.poll()) return *found;
        std::this_thread::sleep_for(1ms);
    }
}

blob pattern(int process, std::size_t bytes) { return blob(bytes, static_cast<char>('a' + process % 26)); }

// Sets DCUDA_CONNECT_TIMEOUT for one test.
struct connect_timeout {
    explicit connect_timeout(const char* seconds) { setenv("DCUDA_CONNECT_TIMEOUT", seconds, 1); }
    ~connect_timeout() { unsetenv("DCUDA_CONNECT_TIMEOUT"); }
};

enum class network { local, tcp };

std::string name_of(network by) { return by == network::tcp ? "Tcp" : "Local"; }

template <typename Param>
class bootstrap_test : public ::testing::TestWithParam<Param> {
protected:
    explicit bootstrap_test(network by) {
        if (by == network::tcp) place.emplace();
    }
    ~bootstrap_test() override { place.reset(); }
};

class bootstrap_of : public bootstrap_test<std::tuple<int, network>> {
protected:
    bootstrap_of() : bootstrap_test(std::get<1>(GetParam())) {}
    static int processes() { return std::get<0>(GetParam()); }
};

class bootstrap_between : public bootstrap_test<network> {
protected:
    bootstrap_between() : bootstrap_test(GetParam()) {}
};

TEST(bootstrap_on_one_host, alone) {
    control plane({}, "test");
    EXPECT_EQ(plane.allgather("x", "here"), std::vector<blob>{"x"});
    plane.barrier("here");
    plane.start_gather(7, "seven");
    auto found = plane.poll();
    ASSERT_TRUE(found);
    EXPECT_EQ(found->id, 7u);
    EXPECT_EQ(found->parts, std::vector<blob>{"seven"});
    plane.post(0, "to myself");
    found = plane.poll();
    ASSERT_TRUE(found);
    EXPECT_EQ(found->type, event::kind::message);
    EXPECT_EQ(found->process, 0);
    EXPECT_EQ(found->message, "to myself");
    plane.report_quiet(1);
    plane.report_quiet(1);
    EXPECT_FALSE(plane.poll());
    plane.report_quiet(1);
    EXPECT_EQ(plane.poll().value().type, event::kind::stalled);
    plane.abort(static_cast<int>(error_code::device_fault), "broken");
    EXPECT_EQ(plane.poll().value().type, event::kind::aborted);
    EXPECT_EQ(error_of([&] { plane.barrier("here"); }, error_code::device_fault), "broken");
}

TEST_P(bootstrap_of, gathers_of_many_sizes) {
    const int count = processes();
    expect_all(start(count,
                     [&](int me) {
                         control plane(make_job(me, count), "test");
                         for (std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{70'000}}) {
                             auto parts = plane.allgather(pattern(me, bytes + me), "sizes");
                             check(parts.size() == static_cast<std::size_t>(count), "one part each");
                             for (int i = 0; i < count; ++i)
                                 check(parts[i] == pattern(i, bytes + i), "the part of each");
                         }
                         for (int i = 0; i < 100; ++i) plane.barrier("again");
                     }),
               ok);
}

TEST_P(bootstrap_between, large_gather) {
#if defined(__SANITIZE_THREAD__)
    constexpr std::size_t bytes = 1 << 20; // 5 MiB would take 24 s
#else
    constexpr std::size_t bytes = 5 << 20;
#endif
    expect_all(start(4,
                     [&](int me) {
                         control plane(make_job(me, 4), "test");
                         plane.start_gather(1, pattern(me, bytes));
                         auto parts = plane.allgather(pattern(me + 4, bytes), "large");
                         for (int i = 0; i < 4; ++i) check(parts[i] == pattern(i + 4, bytes), "blocking part");
                         auto found = next_event(plane);
                         for (int i = 0; i < 4; ++i) check(found.parts[i] == pattern(i, bytes), "non-blocking part");
                     }),
               ok);
}

TEST_P(bootstrap_of, gathers_out_of_order) {
    const int count = processes();
    expect_all(start(count,
                     [&](int me) {
                         control plane(make_job(me, count), "test");
                         // Each process starts at another id; ids use all 63 bits.
                         constexpr std::uint64_t stride = 0x0123456789abcdefu;
                         for (int i = 0; i < 10; ++i) {
                             const int n = (i + me) % 10;
                             plane.start_gather(n * stride % control::first_reserved_id, fmt::format("{} {}", me, n));
                         }
                         for (int i = 0; i < 10; ++i) {
                             auto found = next_event(plane);
                             check(found.type == event::kind::gathered, "gathered");
                             const std::string n = found.parts[0].substr(found.parts[0].find(' '));
                             check(found.id == std::stoull(n) * stride % control::first_reserved_id, "its id");
                             for (int j = 0; j < count; ++j)
                                 check(found.parts[j] == std::to_string(j) + n, "its parts");
                         }
                         plane.start_gather(0, "an id is free again");
                         check(next_event(plane).id == 0, "used again");
                     }),
               ok);
}

TEST_P(bootstrap_of, messages_arrive_in_order) {
    const int count = processes();
    constexpr int rounds = 200;
    expect_all(start(count,
                     [&](int me) {
                         control plane(make_job(me, count), "test");
                         // To all, oneself too; a gather in between must not take them.
                         for (int i = 0; i < rounds; ++i) {
                             for (int target = 0; target < count; ++target)
                                 plane.post(target, fmt::format("{} {} {}", me, target, i));
                             if (i % 50 == 0) plane.barrier("in between");
                         }
                         std::vector<int> next(static_cast<std::size_t>(count));
                         for (int i = 0; i < rounds * count; ++i) {
                             const auto found = next_event(plane);
                             check(found.type == event::kind::message, "a message");
                             const int n = next[static_cast<std::size_t>(found.process)]++;
                             check(found.message == fmt::format("{} {} {}", found.process, me, n), "its turn");
                         }
                         check(!plane.poll(), "no more");
                         plane.barrier("end");
                     }),
               ok);
}

TEST_P(bootstrap_between, large_messages) {
    expect_all(start(3,
                     [&](int me) {
                         control plane(make_job(me, 3), "test");
                         for (int target = 0; target < 3; ++target) plane.post(target, pattern(me, 1 << 20));
                         for (int i = 0; i < 3; ++i) {
                             const auto found = next_event(plane);
                             check(found.message == pattern(found.process, 1 << 20), "all of it");
                         }
                         check_contains(error_of([&] { plane.post(3, ""); }, error_code::invalid_argument),
                                        "process 3 of a job of 3 processes");
                         plane.barrier("end");
                     }),
               ok);
}

TEST_P(bootstrap_of, killed_process_is_lost) {
    const int count = processes();
    const int victim = count - 1;
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    auto children = start(count, [&](int me) {
        control plane(make_job(me, count), "test");
        plane.barrier("start");
        if (me == victim) {
            check(write(pipe_ends[1], "x", 1) == 1, "write");
            pause();
        }
        const auto message = error_of([&] { plane.barrier("end"); }, error_code::process_lost);
        check_contains(message, fmt::format("process {} (pid ", victim));
        check_contains(message, "ended unexpectedly");
        auto found = plane.poll();
        check(found && found->type == event::kind::lost && found->process == victim && found->pid > 0, "lost event");
        check(error_of([&] { plane.barrier("later"); }, error_code::process_lost) == message, "the same error");
    });
    char byte;
    ASSERT_EQ(read(pipe_ends[0], &byte, 1), 1);
    const auto before = steady_clock::now();
    children[victim].kill();
    EXPECT_EQ(children[victim].wait(), killed);
    children.pop_back();
    expect_all(children, ok);
    EXPECT_LT(steady_clock::now() - before, 3s);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

TEST_P(bootstrap_between, killed_process_0_is_lost) {
    auto children = start(4, [&](int me) {
        control plane(make_job(me, 4), "test");
        plane.barrier("start");
        if (me == 0) {
            std::this_thread::sleep_for(200ms); // the others are past the barrier, too
            raise(SIGKILL);
        }
        const auto message = error_of([&] { plane.barrier("end"); }, error_code::process_lost);
        check_contains(message, "process 0 (pid ");
        check_contains(message, "ended unexpectedly");
        check(plane.poll().value().pid > 0, "pid");
    });
    EXPECT_EQ(children[0].wait(), killed);
    children.erase(children.begin());
    expect_all(children, ok);
}

TEST_P(bootstrap_between, finished_process_is_missed) {
    expect_all(start(3,
                     [&](int me) {
                         control plane(make_job(me, 3), "test");
                         plane.barrier("start");
                         if (me == 2) return;
                         check_contains(error_of([&] { plane.barrier("the end"); }, error_code::process_lost),
                                        "finished while the others wait for it in the end");
                     }),
               ok);
}

TEST_P(bootstrap_between, finished_process_0_is_missed) {
    expect_all(start(3,
                     [&](int me) {
                         control plane(make_job(me, 3), "test");
                         if (me == 0) return;
                         std::this_thread::sleep_for(me *
                                                     1s); // process 1 learns it from the server, process 2 does not
                         check_contains(error_of([&] { plane.barrier("the end"); }, error_code::process_lost),
                                        "process 0 (pid ");
                     }),
               ok);
}

TEST_P(bootstrap_between, abort_reaches_all_and_the_first_wins) {
    expect_all(start(4,
                     [&](int me) {
                         control plane(make_job(me, 4), "test");
                         plane.barrier("start");
                         if (me != 1) plane.abort(static_cast<int>(error_code::device_fault), fmt::format("of {}", me));
                         auto found = next_event(plane);
                         check(found.type == event::kind::aborted && found.process != 1, "aborted");
                         check(found.code == static_cast<int>(error_code::device_fault), "its code");
                         check(found.message == fmt::format("of {}", found.process), "its message");
                         check_contains(error_of([&] { plane.barrier("x"); }, error_code::device_fault), found.message);
                         std::this_thread::sleep_for(100ms);
                         check(!plane.poll(), "only one event");
                     }),
               ok);
}

TEST_P(bootstrap_between, collective_calls_must_agree) {
    expect_all(start(2,
                     [&](int me) {
                         control plane(make_job(me, 2), "test");
                         const auto message = error_of([&] { plane.barrier(me == 0 ? "window" : "launch"); },
                                                       error_code::invalid_argument);
                         check_contains(message, "window");
                         check_contains(message, "launch");
                     }),
               ok);
}

TEST(bootstrap_on_one_host, concurrent_jobs_do_not_meet) {
    auto part = [&](const std::string& name) {
        return [name](int me) {
            control plane(make_job(me, 4, name), "test");
            for (int i = 0; i < 50; ++i)
                for (const auto& each : plane.allgather(name, "name")) check(each == name, "only my job");
        };
    };
    const auto one_part = part("one"), other_part = part("other");
    auto one = start(4, one_part);
    auto other = start(4, other_part);
    expect_all(one, ok);
    expect_all(other, ok);
}

TEST_P(bootstrap_between, one_after_another) {
    expect_all(start(3,
                     [&](int me) {
                         for (int i = 0; i < 20; ++i) {
                             control plane(make_job(me, 3), "test");
                             check(plane.allgather(std::to_string(i), "turn").back() == std::to_string(i), "turn");
                         }
                     }),
               ok);
}

TEST_P(bootstrap_between, missing_process) {
    const connect_timeout bound("0.5");
    const auto before = steady_clock::now();
    expect_all(start(2,
                     [&](int me) {
                         const auto message =
                             error_of([&] { control(make_job(me, 3), "test"); }, error_code::bootstrap_failure);
                         check_contains(message, "process 2 of 3 did not appear within 0.5 s");
                         check_contains(message, "check that every process was started and got as far as this");
                     }),
               ok);
    EXPECT_LT(steady_clock::now() - before, 4s);
}

TEST_P(bootstrap_between, missing_process_0) {
    const connect_timeout bound("0.5");
    child lonely([&] {
        const auto message = error_of([&] { control(make_job(1, 2), "test"); }, error_code::bootstrap_failure);
        check_contains(message, "process 0 of the job did not appear");
        check_contains(message, "within 0.5 s");
    });
    EXPECT_EQ(lonely.wait(), ok);
}

TEST_P(bootstrap_between, process_dies_at_the_start) {
    const connect_timeout bound("20");
    auto children = start(4, [&](int me) {
        if (me == 3) std::this_thread::sleep_for(500ms);
        check_contains(error_of([&] { control(make_job(me, 4), "test"); }, error_code::bootstrap_failure),
                       "ended unexpectedly while the job was starting");
    });
    std::this_thread::sleep_for(250ms);
    children[1].kill();
    EXPECT_EQ(children[1].wait(), killed);
    children.erase(children.begin() + 1);
    expect_all(children, ok);
}

TEST_P(bootstrap_between, different_identity) {
    expect_all(start(3,
                     [&](int me) {
                         const auto message = error_of([&] { control(make_job(me, 3), me == 1 ? "cuda 1" : "cpu 1"); },
                                                       error_code::bootstrap_failure);
                         check_contains(message, "is \"cuda 1\", process 0 is \"cpu 1\"");
                     }),
               ok);
}

TEST_P(bootstrap_between, different_count) {
    expect_all(start(2,
                     [&](int me) {
                         check_contains(error_of([&] { control(make_job(me, me == 0 ? 2 : 4), "test"); },
                                                 error_code::bootstrap_failure),
                                        "one of 4 processes, process 0 as one of 2");
                     }),
               ok);
}

TEST_P(bootstrap_between, different_version) {
    expect_all(start(2,
                     [&](int me) {
                         const job who = make_job(me, 2);
                         std::string message;
                         if (me == 0) {
                             message = error_of([&] { control(who, "test"); }, error_code::bootstrap_failure);
                         } else {
                             auto link = connect_to_server(who);
                             link.send(frame{frame_type::hello, 1, 0, 2, "99.1", encode_parts({"test", who.key})});
                             std::optional<frame> answer;
                             while (!(answer = link.next()) && !link.closed()) link.read_available();
                             check(answer && answer->type == frame_type::rejected, "rejected");
                             message = answer->payload;
                         }
                         check_contains(message, "uses dCUDA 99.1, process 0 uses dCUDA ");
                     }),
               ok);
}

TEST_P(bootstrap_between, two_processes_claim_one_index) {
    expect_all(start(3,
                     [&](int me) {
                         const int claimed = me == 2 ? 1 : me;
                         check_contains(
                             error_of([&] { control(make_job(claimed, 3), "test"); }, error_code::bootstrap_failure),
                             "claim index 1");
                     }),
               ok);
}

TEST(bootstrap_on_one_host, complete_job_refuses_a_second_claim) {
    auto children = start(3, [&](int me) {
        if (me == 2) {
            std::this_thread::sleep_for(300ms);
            check_contains(error_of([&] { control(make_job(1, 2), "test"); }, error_code::bootstrap_failure),
                           "claim index 1");
            return;
        }
        control plane(make_job(me, 2), "test");
        std::this_thread::sleep_for(600ms);
        plane.barrier("undisturbed");
    });
    expect_all(children, ok);
}

TEST(bootstrap_on_one_host, two_processes_claim_index_0) {
    auto children = start(3, [&](int me) {
        if (me == 2) {
            std::this_thread::sleep_for(300ms);
            check_contains(error_of([&] { control(make_job(0, 2), "test"); }, error_code::bootstrap_failure),
                           "two processes claim index 0");
            return;
        }
        control plane(make_job(me, 2), "test");
        std::this_thread::sleep_for(600ms);
        plane.barrier("undisturbed");
    });
    expect_all(children, ok);
}

// ---- over several hosts ---------------------------------------------------------------------------------------------

class bootstrap_over_tcp : public bootstrap_test<int> {
protected:
    bootstrap_over_tcp() : bootstrap_test(network::tcp) {}
};

// A connection to the control server's port that is no process's.
descriptor connect_as_stranger() {
    std::string why;
    descriptor socket = try_connect_tcp(place->address, steady_clock::now() + 5s, why);
    check(socket.get() >= 0, "connected: " + why);
    return socket;
}

// Reads until the other side closes; returns the number of bytes.
std::size_t read_until_closed(const descriptor& socket, std::chrono::seconds limit) {
    const timeval time{limit.count(), 0};
    setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    fcntl(socket.get(), F_SETFL, 0);
    char bytes[1000];
    std::size_t total = 0;
    for (;;) {
        const ssize_t got = read(socket.get(), bytes, sizeof bytes);
        check(got >= 0 || errno == ECONNRESET, "it is closed");
        if (got <= 0) return total;
        total += static_cast<std::size_t>(got);
    }
}

void send_text(const descriptor& socket, const std::string& text) {
    check(send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size()), "sent");
}

TEST_F(bootstrap_over_tcp, strangers_do_not_disturb) {
    constexpr std::size_t greeting_bytes = 40; // that, and no answer
    auto children = start(4, [&](int me) {
        if (me == 3) { // the stranger, while process 2 is awaited
            place->listener = descriptor();
            std::vector<descriptor> silent;
            for (int i = 0; i < 300; ++i) silent.push_back(connect_as_stranger());
            const descriptor half = connect_as_stranger();
            send_text(half, std::string(20, 'x'));
            const descriptor garbage = connect_as_stranger();
            const auto before = steady_clock::now();
            send_text(garbage, std::string(10'000, 'x'));
            check(read_until_closed(garbage, 10s) <= greeting_bytes, "garbage is not answered");
            check(steady_clock::now() - before < 3s, "garbage is refused at once");

            const descriptor wrong = connect_as_stranger();
            handshake authentication(handshake::side::process, auth_key("another secret", 0));
            while (authentication.advance(wrong.get()) == handshake::state::going_on) std::this_thread::sleep_for(1ms);
            check(authentication.advance(wrong.get()) == handshake::state::refused, "refused");

            check(read_until_closed(half, 10s) <= greeting_bytes, "half a hello is not answered");
            check(read_until_closed(silent.back(), 10s) <= greeting_bytes, "silence is not answered");
            check(steady_clock::now() - before < 7s, "the silent are dropped");
            return;
        }
        if (me == 2) std::this_thread::sleep_for(8s);
        control plane(make_job(me, 3), "test");
        check(plane.allgather(std::to_string(me), "here").size() == 3, "all are here");
    });
    expect_all(children, ok);
}

TEST_F(bootstrap_over_tcp, nobody_listens_once_all_are_here) {
    auto children = start(2, [&](int me) {
        control plane(make_job(me, 2), "test");
        std::string why;
        check(try_connect_tcp(place->address, steady_clock::now() + 1s, why).get() < 0, "no connection");
        check_contains(why, "refused");
        plane.barrier("looked");
    });
    expect_all(children, ok);
}

TEST_F(bootstrap_over_tcp, wrong_secret) {
    const connect_timeout bound("4");
    expect_all(start(2,
                     [&](int me) {
                         job who = make_job(me, 2);
                         if (me == 1) who.secret = "ffeeddccbbaa99887766554433221100";
                         const auto message = error_of([&] { control(who, "test"); }, error_code::bootstrap_failure);
                         check_contains(message, "did not appear");
                         check_contains(message, me == 0 ? "did not prove to belong to this job" : "DCUDA_JOB");
                     }),
               ok);
}

TEST_F(bootstrap_over_tcp, process_0_listens_by_itself) {
    place->listener = descriptor();
    expect_all(start(3,
                     [&](int me) {
                         if (me == 0) std::this_thread::sleep_for(200ms);
                         job who = make_job(me, 3);
                         who.listen_fd = -1;
                         control plane(who, "test");
                         plane.barrier("here");
                     }),
               ok);
}

TEST_F(bootstrap_over_tcp, wrong_places) {
    const auto expect_failure = [](const job& who, error_code code, const std::string& part) {
        const auto message = error_of([&] { control(who, "test"); }, code);
        EXPECT_NE(message.find(part), std::string::npos) << message;
    };
    const auto job_at = [](const std::string& where, int listen_fd = -1) {
        return job{0, 2, 0, 1, "wrong places", "test", where, secret, listen_fd};
    };
    expect_failure(job_at(place->address), error_code::bootstrap_failure,
                   "Address already in use: two processes claim");
    for (const char* any : {"0.0.0.0:0", "[::]:0"})
        expect_failure(job_at(any), error_code::invalid_argument, "which is every interface");
    expect_failure(job_at("192.0.2.1:0"), error_code::bootstrap_failure, "it is no address of host");
    expect_failure(job_at("localhost:0"), error_code::bootstrap_failure, "is the loopback address");
    for (const char* wrong : {"127.0.0.1", "127.0.0.1:x", "127.0.0.1:99999", ":1"})
        expect_failure(job_at(wrong), error_code::invalid_argument, "expected host:port");
    EXPECT_NE(error_of([] { take_listener(0); }, error_code::bootstrap_failure).find("DCUDA_LISTEN_FD=0"),
              std::string::npos);
    job untold{0, 4, 0, 2, "untold", "test"};
    expect_failure(untold, error_code::bootstrap_failure, "2 of the job's 4 processes");
    untold.rendezvous = "127.0.0.1:0";
    expect_failure(untold, error_code::bootstrap_failure, "DCUDA_JOB is not set");
}

TEST_F(bootstrap_over_tcp, handshake_needs_one_key) {
    const auto meet = [](const auth_key& one, const auth_key& other) {
        int ends[2];
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
        const descriptor server_end(ends[0]), process_end(ends[1]);
        handshake server_side(handshake::side::server, one), process_side(handshake::side::process, other);
        server_side.advance(server_end.get());
        process_side.advance(process_end.get());
        const auto known = server_side.advance(server_end.get());
        if (known == handshake::state::refused) return false;
        EXPECT_EQ(known, handshake::state::done);
        EXPECT_EQ(process_side.advance(process_end.get()), handshake::state::done);
        return true;
    };
    EXPECT_TRUE(meet(auth_key(secret, 0), auth_key(secret, 0)));
    EXPECT_FALSE(meet(auth_key(secret, 0), auth_key(secret, 1)));
    EXPECT_FALSE(meet(auth_key(secret, 0), auth_key(make_secret(), 0)));
    EXPECT_EQ(make_secret().size(), 32u);
    EXPECT_NE(make_secret(), make_secret());
}

TEST_F(bootstrap_over_tcp, server_without_the_secret_is_refused) {
    const descriptor process_end = connect_as_stranger();
    const descriptor server_end(accept(place->listener.get(), nullptr, nullptr));
    handshake authentication(handshake::side::process, auth_key(secret, 0));
    // Its greeting, then what the process itself answers is sent back to it.
    send_text(server_end, "dcuda 1\n" + std::string(32, 'c'));
    char answer[64];
    while (authentication.advance(process_end.get()) == handshake::state::going_on &&
           recv(server_end.get(), answer, sizeof answer, MSG_DONTWAIT) != sizeof answer)
        std::this_thread::sleep_for(1ms);
    send_text(server_end, std::string(answer + 32, 32));
    while (authentication.advance(process_end.get()) == handshake::state::going_on) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(authentication.advance(process_end.get()), handshake::state::refused);
    EXPECT_EQ(authentication.reason(), "does not have the job's secret");
}

TEST_P(bootstrap_between, stopped_process_is_not_lost) {
    auto children = start(3, [&](int me) {
        control plane(make_job(me, 3), "test");
        plane.barrier("start");
        if (me == 2) raise(SIGSTOP);
        plane.barrier("end");
    });
    int status = 0;
    ASSERT_EQ(waitpid(children[2].pid(), &status, WUNTRACED), children[2].pid());
    ASSERT_TRUE(WIFSTOPPED(status));
    std::this_thread::sleep_for(1500ms);
    kill(children[2].pid(), SIGCONT);
    expect_all(children, ok);
}

TEST_P(bootstrap_between, slow_process_does_not_hold_up_the_others) {
    int told[2];
    ASSERT_EQ(pipe(told), 0);
    const descriptor reader(told[0]), writer(told[1]);
    expect_all(start(3,
                     [&](int me) {
                         control plane(make_job(me, 3), "test");
                         // 12 MB wait for process 2, which does not read until the others have theirs.
                         const auto part = [](int process) { return pattern(process, process == 2 ? 9 : 2 << 20); };
                         for (std::uint64_t i = 0; i < 3; ++i) plane.start_gather(i, part(me));
                         for (int others = 0; me == 2 && others < 2; ++others) {
                             pollfd one{reader.get(), POLLIN, 0};
                             char byte;
                             check(::poll(&one, 1, 60'000) == 1 && read(reader.get(), &byte, 1) == 1, "others went on");
                         }
                         for (int i = 0; i < 3; ++i) {
                             const auto parts = next_event(plane).parts;
                             for (int process = 0; process < 3; ++process)
                                 check(parts[process] == part(process), "the part of each");
                         }
                         if (me != 2) check(write(writer.get(), "x", 1) == 1, "telling process 2");
                         plane.barrier("end");
                     }),
               ok);
}

TEST_P(bootstrap_between, stalled_is_told_to_all) {
    expect_all(start(4,
                     [&](int me) {
                         control plane(make_job(me, 4), "test");
                         plane.report_busy();
                         plane.report_quiet(1);
                         plane.report_quiet(1);
                         plane.barrier("two samples each");
                         std::optional<event> found;
                         while (!found) {
                             plane.report_quiet(1);
                             std::this_thread::sleep_for(5ms);
                             found = plane.poll();
                         }
                         check(found->type == event::kind::stalled, "stalled");
                         plane.barrier("all saw it");
                     }),
               ok);
}

TEST_P(bootstrap_between, not_stalled_while_one_is_busy_or_moves) {
    expect_all(start(3,
                     [&](int me) {
                         control plane(make_job(me, 3), "test");
                         for (int i = 0; i < 50; ++i) {
                             if (me == 1 && i % 2 == 0)
                                 plane.report_busy();
                             else
                                 plane.report_quiet(me == 2 ? static_cast<std::uint64_t>(i) : 5);
                             plane.barrier("step");
                             check(!plane.poll(), "nothing is stalled");
                         }
                     }),
               ok);
}

TEST(stall_detector, announces_a_round_and_needs_two_samples_of_it) {
    using verdict = stall_detector::verdict;
    stall_detector detector(2);
    const auto expect_moving = [&](int process, std::uint64_t digest, std::uint64_t round) {
        EXPECT_EQ(detector.quiet(process, digest, round), verdict::moving);
    };
    for (int i = 0; i < 10; ++i) expect_moving(0, 1, 0); // process 1 has said nothing
    expect_moving(1, 7, 0);
    expect_moving(0, 1, 0);
    EXPECT_EQ(detector.quiet(1, 7, 0), verdict::announce);
    EXPECT_EQ(detector.round(), 1u);
    for (int i = 0; i < 10; ++i) { // samples from before the announcement prove nothing
        expect_moving(0, 1, 0);
        expect_moving(1, 7, 0);
    }
    expect_moving(0, 1, 1);
    expect_moving(0, 1, 1);
    expect_moving(1, 7, 1);
    expect_moving(1, 8, 1); // it moved: all over again
    expect_moving(0, 1, 1);
    EXPECT_EQ(detector.quiet(1, 8, 1), verdict::announce);
    detector.busy(0);
    expect_moving(0, 1, 2);
    expect_moving(1, 8, 2);
    EXPECT_EQ(detector.quiet(0, 1, 2), verdict::announce);
    expect_moving(0, 1, 3);
    expect_moving(1, 8, 3);
    expect_moving(1, 8, 3);
    EXPECT_EQ(detector.quiet(0, 1, 3), verdict::stalled);
    expect_moving(0, 1, 3); // it starts anew
    detector.finished(1);
    EXPECT_EQ(detector.quiet(0, 1, 3), verdict::announce); // a finished process moves nothing
    expect_moving(0, 1, 4);
    EXPECT_EQ(detector.quiet(0, 1, 4), verdict::stalled);
}

TEST(stall_detector, a_process_alone_needs_two_further_samples) {
    stall_detector detector(1);
    EXPECT_EQ(detector.quiet(0, 1, 0), stall_detector::verdict::moving);
    EXPECT_EQ(detector.quiet(0, 1, 0), stall_detector::verdict::moving);
    EXPECT_EQ(detector.quiet(0, 1, 0), stall_detector::verdict::stalled);
}

INSTANTIATE_TEST_SUITE_P(networks, bootstrap_of,
                         ::testing::Combine(::testing::Values(2, 4, 16),
                                            ::testing::Values(network::local, network::tcp)),
                         [](const auto& each) {
                             return name_of(std::get<1>(each.param)) + std::to_string(std::get<0>(each.param));
                         });
INSTANTIATE_TEST_SUITE_P(networks, bootstrap_between, ::testing::Values(network::local, network::tcp),
                         [](const auto& each) { return name_of(each.param); });

// ---- who am I -------------------------------------------------------------------------------------------------------

class detect : public ::testing::Test {
protected:
    detect() { clearenv(); }
    void set(std::initializer_list<std::pair<const char*, const char*>> variables) {
        for (auto [name, value] : variables) setenv(name, value, 1);
    }
    void expect(const char* launcher, int index, int count, int local_index, int local_count) {
        const job found = detect_job();
        EXPECT_EQ(found.launcher, launcher);
        EXPECT_EQ(std::tie(found.index, found.count), std::tie(index, count));
        EXPECT_EQ(std::tie(found.local_index, found.local_count), std::tie(local_index, local_count));
        EXPECT_FALSE(found.key.empty());
    }
    void expect_error(error_code code, const std::string& part) {
        const auto message = error_of([] { detect_job(); }, code);
        EXPECT_NE(message.find(part), std::string::npos) << message;
    }
};

TEST_F(detect, alone) { expect("none", 0, 1, 0, 1); }

TEST_F(detect, dcuda_run) {
    set({{"DCUDA_PROCESS_INDEX", "2"}, {"DCUDA_PROCESS_COUNT", "4"}, {"DCUDA_LOCAL_INDEX", "2"}});
    expect_error(error_code::bootstrap_failure, "DCUDA_LOCAL_COUNT is not set");
    set({{"DCUDA_LOCAL_COUNT", "4"}, {"DCUDA_JOB", "12"}});
    expect_error(error_code::invalid_argument, "DCUDA_JOB has 2 characters: expected 32 lower-case hexadecimal digits");
    // It is a secret, also with a digit too many.
    set({{"DCUDA_JOB", "0123456789abcdef0123456789abcdef0"}});
    const std::string told = error_of([] { detect_job(); }, error_code::invalid_argument);
    EXPECT_EQ(told.find("0123456789"), std::string::npos) << told;
    set({{"DCUDA_JOB", "0123456789abcdef0123456789abcdef"}, {"RANK", "7"}, {"WORLD_SIZE", "8"}, {"MASTER_PORT", "1"}});
    expect("dcuda-run", 2, 4, 2, 4);
    set({{"DCUDA_PROCESS_INDEX", "4"}});
    expect_error(error_code::bootstrap_failure, "contradict each other: process 4 of 4");
    set({{"DCUDA_PROCESS_INDEX", "abc"}});
    expect_error(error_code::invalid_argument, "DCUDA_PROCESS_INDEX=abc: expected an integer from 0 to");
}

TEST_F(detect, several_hosts) {
    set({{"DCUDA_PROCESS_INDEX", "0"}, {"DCUDA_PROCESS_COUNT", "4"}, {"DCUDA_LOCAL_INDEX", "0"}});
    set({{"DCUDA_LOCAL_COUNT", "2"}, {"DCUDA_JOB", secret.c_str()}, {"DCUDA_RENDEZVOUS", "10.0.0.1:29555"}});
    set({{"DCUDA_LISTEN_FD", "7"}});
    job found = detect_job();
    EXPECT_EQ(std::tie(found.rendezvous, found.secret), std::make_tuple("10.0.0.1:29555", secret));
    EXPECT_EQ(found.listen_fd, 7);
    set({{"DCUDA_LOCAL_COUNT", "4"}});
    EXPECT_EQ(detect_job().rendezvous, ""); // one host needs none
    clearenv();
    set({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}, {"MASTER_PORT", "29500"}});
    EXPECT_EQ(detect_job().rendezvous, "");
    set({{"DCUDA_RENDEZVOUS", ":29555"}, {"DCUDA_JOB", secret.c_str()}});
    expect_error(error_code::invalid_argument, "DCUDA_RENDEZVOUS=:29555: expected host:port");
    set({{"MASTER_ADDR", "node7"}});
    found = detect_job();
    EXPECT_EQ(std::tie(found.rendezvous, found.secret), std::make_tuple("node7:29555", secret));
    EXPECT_EQ(found.listen_fd, -1);
    set({{"DCUDA_JOB", "short"}});
    expect_error(error_code::invalid_argument, "DCUDA_JOB has 5 characters, not all of them such digits: expected 32");
}

TEST_F(detect, openmpi) {
    set({{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}});
    set({{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"PMIX_NAMESPACE", "prterun-1@1"}, {"SLURM_JOB_ID", "5"}});
    expect("openmpi", 3, 8, 1, 2);
    const std::string key = detect_job().key;
    set({{"PMIX_NAMESPACE", "prterun-2@1"}});
    EXPECT_NE(detect_job().key, key);
    set({{"OMPI_MCA_orte_precondition_transports", "e22145be01af4a61-562ab0253e19f868"}});
    EXPECT_NE(detect_job().key.find("e22145be01af4a61-562ab0253e19f868"), std::string::npos);
}

TEST_F(detect, torchrun) {
    set({{"RANK", "1"}, {"WORLD_SIZE", "2"}});
    expect("none", 0, 1, 0, 1);
    set({{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}, {"TORCHELASTIC_RUN_ID", "none"}, {"MASTER_PORT", "29500"}});
    expect("torchrun", 1, 2, 1, 2);
    const std::string key = detect_job().key;
    set({{"MASTER_PORT", "29501"}});
    EXPECT_NE(detect_job().key, key);
    // All of that can be guessed; a secret cannot.
    set({{"DCUDA_JOB", secret.c_str()}});
    EXPECT_NE(detect_job().key.find(secret), std::string::npos);
    set({{"DCUDA_JOB", ""}, {"TORCHELASTIC_RUN_ID", std::string(20'000, 'x').c_str()}});
    expect_error(error_code::invalid_argument, "too long to name it by");
}

TEST(local_socket_names, one_tells_nothing_of_another) {
    EXPECT_EQ(local_socket_name("a key", 0), local_socket_name("a key", 0));
    const std::string names[] = {local_socket_name("a key", 0), local_socket_name("a key", 1),
                                 local_socket_name("a kez", 0)};
    for (const std::string& name : names) {
        EXPECT_EQ(name.size(), fmt::format("dcuda-{}-", geteuid()).size() + 32);
        EXPECT_EQ(name.find("key"), std::string::npos);
        for (const std::string& other : names) { // not even where they differ
            int same = 0;
            for (std::size_t i = name.size() - 32; i < name.size(); ++i) same += name[i] == other[i] ? 1 : 0;
            EXPECT_TRUE(&name == &other || same < 16) << name << ' ' << other;
        }
    }
}

TEST_F(detect, slurm) {
    // sbatch or salloc without srun: alone.
    set({{"SLURM_JOB_ID", "77"}, {"SLURM_NTASKS", "7"}, {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}});
    expect("none", 0, 1, 0, 1);
    set({{"SLURM_STEP_ID", "4294967290"}});
    expect("none", 0, 1, 0, 1);
    set({{"SLURM_STEP_ID", "3"}, {"SLURM_PROCID", "5"}, {"SLURM_LOCALID", "1"}, {"SLURM_NODEID", "2"}});
    set({{"SLURM_STEP_NUM_TASKS", "7"}, {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"}});
    expect("slurm", 5, 7, 1, 2);
    set({{"SLURM_PROCID", "6"}, {"SLURM_LOCALID", "0"}, {"SLURM_NODEID", "3"}});
    expect("slurm", 6, 7, 0, 1);
    set({{"SLURM_STEP_TASKS_PER_NODE", "nonsense"}});
    expect_error(error_code::invalid_argument, "SLURM_STEP_TASKS_PER_NODE=nonsense");
    set({{"DCUDA_LAUNCHER", "none"}});
    expect("none", 0, 1, 0, 1);
}

TEST_F(detect, pmi) {
    set({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "1"}});
    expect("pmi", 1, 2, 0, 1);
    EXPECT_NE(detect_job().key.find(std::to_string(getppid()) + "."), std::string::npos);
}

TEST_F(detect, forced) {
    set({{"DCUDA_LAUNCHER", "openmpi"}});
    expect_error(error_code::bootstrap_failure, "OMPI_COMM_WORLD_RANK is not set");
    set({{"DCUDA_LAUNCHER", "ssh"}});
    expect_error(error_code::invalid_argument, "DCUDA_LAUNCHER=ssh: expected none, dcuda-run");
}

TEST(env, values) {
    using namespace dcuda::support;
    const char* name = "DCUDA_TEST_VALUE";
    auto malformed = [&](const char* value, const std::function<void()>& read) {
        setenv(name, value, 1);
        return error_of(read, error_code::invalid_argument);
    };
    unsetenv(name);
    EXPECT_FALSE(env_integer(name, 1, 5) || env_string(name) || env_flag(name) || env_seconds(name));
    for (const char* bad : {"abc", "0", "6", "3x", " 3", "99999999999999999999"})
        EXPECT_EQ(malformed(bad, [&] { env_integer(name, 1, 5); }),
                  fmt::format("DCUDA_TEST_VALUE={}: expected an integer from 1 to 5", bad));
    for (const char* bad : {"-1", "inf", "nan", "1s"}) EXPECT_NE(malformed(bad, [&] { env_seconds(name); }), "");
    EXPECT_NE(malformed("maybe", [&] { env_flag(name); }), "");
    setenv(name, "5", 1);
    EXPECT_EQ(env_integer(name, 1, 5), 5);
    setenv(name, "0.5", 1);
    EXPECT_EQ(env_seconds(name), 0.5);
    setenv(name, "Off", 1);
    EXPECT_EQ(env_flag(name), false);
}

TEST(check, errno_is_explained) {
    const auto message =
        error_of([] { dcuda::support::check_errno(open("/nonexistent/file", O_RDONLY), "cannot open the file"); },
                 error_code::out_of_resources);
    EXPECT_EQ(message.find("cannot open the file: No such file or directory (errno 2, bootstrap_test.cpp:"), 0u);
}

} // namespace
