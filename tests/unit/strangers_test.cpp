// SPDX-License-Identifier: BSD-3-Clause
// Those who knock at a job's sockets and do not belong to it.
#include "bootstrap/control.hpp"
#include "bootstrap/local_socket.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/tcp.hpp"
#include "child.hpp"
#include "runtime/live_view.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdexcept>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace dcuda::bootstrap;
using namespace dcuda::tests;
using std::chrono::steady_clock;
using namespace std::chrono_literals;

namespace {

const std::string secret = "00112233445566778899aabbccddeeff";

std::string name_of_this_test() {
    return fmt::format("dcuda-test-{}-{}", getpid(), testing::UnitTest::GetInstance()->current_test_info()->name());
}

// Whether the other side has closed it.
bool is_closed(const descriptor& socket) {
    pollfd one{socket.get(), POLLIN, 0};
    return poll(&one, 1, 0) == 1 && (one.revents & (POLLHUP | POLLERR)) != 0;
}

TEST(AcceptSome, AFewAtATime) {
    const descriptor listener = listen_local(name_of_this_test());
    std::vector<descriptor> callers;
    for (int i = 0; i < 3 * most_accepted + 2; ++i) callers.push_back(try_connect_local(name_of_this_test()));
    std::vector<int> counts;
    for (int call = 0; call < 5; ++call) {
        int count = 0;
        EXPECT_EQ(accept_some(listener, [&](descriptor) { return ++count > 0; }), 0);
        counts.push_back(count);
    }
    EXPECT_EQ(counts, std::vector<int>({most_accepted, most_accepted, most_accepted, 2, 0}));
}

TEST(AcceptSome, NoMoreThanAreWanted) {
    const descriptor listener = listen_local(name_of_this_test());
    std::vector<descriptor> callers, accepted;
    for (int i = 0; i < 5; ++i) callers.push_back(try_connect_local(name_of_this_test()));
    const auto take = [&](descriptor socket) {
        accepted.push_back(std::move(socket));
        return accepted.size() < 3;
    };
    EXPECT_EQ(accept_some(listener, take), 0);
    EXPECT_EQ(accepted.size(), 3u);
    EXPECT_EQ(accept_some(descriptor(dup(0)), take), ENOTSOCK);
}

// Another user, who connects as often as he is told to, and then says how many of these connections were closed.
class another_user {
public:
    another_user(const std::string& address, int connections) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error("socketpair");
        own_ = descriptor(ends[0]);
        const descriptor there(ends[1]);
        pid_ = fork();
        if (pid_ != 0) return;
        own_ = descriptor(); // so that the end of the test is the end of this
        if (setuid(65534) != 0) _exit(1);
        std::vector<descriptor> sockets;
        for (int i = 0; i < connections; ++i) sockets.push_back(try_connect_local(address));
        for (int closed = 0; write(there.get(), &closed, sizeof closed) > 0;) {
            char question = 0;
            if (read(there.get(), &question, 1) != 1) break;
            closed = static_cast<int>(std::ranges::count_if(sockets, is_closed));
        }
        _exit(0);
    }
    ~another_user() {
        own_ = descriptor();
        waitpid(pid_, nullptr, 0);
    }
    int wait_for_connections() { return answer(); }
    int ask_for_closed() {
        if (write(own_.get(), "?", 1) != 1) return -1;
        return answer();
    }

private:
    int answer() {
        int number = -1;
        return read(own_.get(), &number, sizeof number) == sizeof number ? number : -1;
    }
    descriptor own_{};
    pid_t pid_ = 0;
};

TEST(LiveView, OneCallDropsAFewStrangers) {
    if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
    dcuda::live_view view({}, "CPU");
    constexpr int connections = 5 * most_accepted;
    another_user stranger(dcuda::live_address(0, getpid()), connections);
    ASSERT_EQ(stranger.wait_for_connections(), 0);
    int closed = 0;
    for (int call = 0; closed < connections; ++call) {
        ASSERT_LT(call, 1000);
        EXPECT_FALSE(view.poll());
        const int now = stranger.ask_for_closed();
        EXPECT_LE(now - closed, most_accepted);
        closed = now;
        std::this_thread::sleep_for(1ms); // it polls every 20 ms only
    }
}

// ---- frames ---------------------------------------------------------------------------------------------------------

// As channel.cpp has it.
struct frame_header {
    std::uint32_t magic = 0xdc0da001, type = 0;
    std::int32_t process = 0;
    std::uint32_t label_bytes = 0;
    std::uint64_t id = 0, number = 0, payload_bytes = 0;
};
constexpr auto hello = static_cast<std::uint32_t>(frame_type::hello),
               keep_alive = static_cast<std::uint32_t>(frame_type::keep_alive);

void send_header(int socket, const frame_header& header) {
    check(send(socket, &header, sizeof header, MSG_NOSIGNAL) == sizeof header, "sent");
}

long virtual_kilobytes() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with("VmSize:")) return std::stol(line.substr(7));
    return 0;
}

// What a channel makes of a header that is followed by nothing.
struct outcome {
    bool is_closed;
    long more_kilobytes;
};
outcome receive(const frame_header& header, std::uint64_t most_payload) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error("socketpair");
    const descriptor other(ends[0]);
    channel from{descriptor(ends[1])};
    from.expect_payload(most_payload);
    const long before = virtual_kilobytes();
    send_header(other.get(), header);
    from.read_available();
    EXPECT_FALSE(from.next().has_value());
    return {from.closed(), virtual_kilobytes() - before};
}

TEST(Frames, WhatAHeaderSaysIsBounded) {
    constexpr std::uint64_t gibibyte = std::uint64_t{1} << 30;
    EXPECT_FALSE(receive({.type = hello, .payload_bytes = 1000}, 1000).is_closed);
    EXPECT_TRUE(receive({.type = hello, .payload_bytes = 1001}, 1000).is_closed);
    EXPECT_TRUE(receive({.type = hello, .label_bytes = 5000}, channel::largest_payload).is_closed);
    EXPECT_TRUE(receive({.type = hello, .payload_bytes = 128 * gibibyte}, channel::largest_payload).is_closed);
    const outcome large = receive({.type = hello, .payload_bytes = 32 * gibibyte}, channel::largest_payload);
    EXPECT_FALSE(large.is_closed);
    EXPECT_LT(large.more_kilobytes, 200 * 1024); // not before it comes
}

// ---- the control server ---------------------------------------------------------------------------------------------

// The processes of a job, one of them a stranger, are forked: the test has no threads and no job of its own.
const pid_t test_pid = getpid();
job make_job(int index, int count) {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    return {index, count, index, count, fmt::format("{} {}", test_pid, name), "test"};
}

void meet(int index, int count) {
    control plane(make_job(index, count), "test");
    check(plane.allgather(std::to_string(index), "here").size() == static_cast<std::size_t>(count), "all are here");
}

// A connection to the control server, by a process of the same user that is none of the job.
descriptor connect_as_stranger() {
    const auto deadline = steady_clock::now() + 20s;
    for (;;) {
        descriptor socket = try_connect_local(local_socket_name(make_job(1, 2).key, 0));
        if (socket.get() >= 0) return socket;
        check(steady_clock::now() < deadline, "the control server is there");
        std::this_thread::sleep_for(1ms);
    }
}

bool closes(const descriptor& socket) {
    pollfd one{socket.get(), POLLIN, 0};
    return poll(&one, 1, 10'000) == 1 && (one.revents & POLLHUP) != 0;
}

TEST(ControlServer, NoFrameOfAStrangerEndsTheJob) {
    int told[2];
    ASSERT_EQ(pipe(told), 0);
    const std::vector<child> children = [&] {
        std::vector<child> processes;
        processes.emplace_back([] { meet(0, 2); });
        processes.emplace_back([&] {
            char byte = 0;
            check(read(told[0], &byte, 1) == 1, "the stranger was there");
            meet(1, 2);
        });
        processes.emplace_back([&] {
            const auto attack = [](const frame_header& header, const std::string& more = "") {
                const descriptor socket = connect_as_stranger();
                send_header(socket.get(), header);
                send(socket.get(), more.data(), more.size(), MSG_NOSIGNAL);
                check(closes(socket), fmt::format("frame of type {} is refused", header.type));
            };
            attack({.type = hello, .process = 1, .payload_bytes = std::uint64_t{1} << 35});
            attack({.type = hello, .process = 1, .label_bytes = UINT32_MAX});
            attack({.type = hello, .process = 1, .payload_bytes = 16}, std::string(16, '\xff'));
            attack({.type = keep_alive, .process = 1});
            attack({.magic = 0x12345678});
            // Of another version, and without the job's key: it hears of the version, and the job goes on.
            channel other(connect_as_stranger());
            other.send(frame{frame_type::hello, 1, 1, 2, "0.0.0", encode_parts({"test", "not the key"})});
            std::optional<frame> answer;
            while (!(answer = other.next()) && !other.closed()) other.read_available();
            check(answer.has_value(), "it is answered");
            check_contains(answer->payload, "uses dCUDA 0.0.0, process 0 uses dCUDA");
            check(write(told[1], "x", 1) == 1, "told");
        });
        return processes;
    }();
    expect_all(children, ok);
}

// Another user has guessed where a job will meet, and is there before.
TEST(ControlServer, SaysWhoHoldsTheLocalSocket) {
    if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
    int told[2];
    ASSERT_EQ(pipe(told), 0);
    const std::string address = local_socket_name(make_job(0, 2).key, 0);
    const child stranger([&] {
        check(setuid(65534) == 0, "another user");
        const descriptor listener = listen_local(address);
        check(write(told[1], "x", 1) == 1, "told");
        pause();
    });
    char byte = 0;
    ASSERT_EQ(read(told[0], &byte, 1), 1);
    std::vector<child> children;
    for (int index = 0; index < 2; ++index)
        children.emplace_back([&, index] {
            const std::string message = error_of([&] { meet(index, 2); }, dcuda::error_code::bootstrap_failure);
            check_contains(message, fmt::format("is held by pid {} of user 65534", stranger.pid()));
            check_contains(message, "give all processes the same DCUDA_JOB");
        });
    expect_all(children, ok);
    stranger.kill();
    EXPECT_EQ(stranger.wait(), killed);
}

rlimit descriptor_limit(rlim_t count) { return {count, count}; }

TEST(ControlServer, TellsThatItHasNoDescriptors) {
    // The sanitizer's check of dynamic types opens a pipe, and takes an object for broken where it cannot.
    const char* const sanitizer = std::getenv("DCUDA_TEST_SANITIZER");
    if (sanitizer != nullptr && std::string(sanitizer) == "address")
        GTEST_SKIP() << "a sanitizer needs descriptors itself";
    constexpr int count = 24;
    std::vector<child> children;
    for (int index = 0; index < count; ++index)
        children.emplace_back([index] {
            const rlimit few = descriptor_limit(20);
            check(setrlimit(RLIMIT_NOFILE, &few) == 0, "limit");
            const std::string message = error_of([&] { meet(index, count); }, dcuda::error_code::bootstrap_failure);
            check_contains(message, "process 0 cannot accept process");
            check_contains(message, "Too many open files; it may have 20 descriptors: raise `ulimit -n` there");
        });
    expect_all(children, ok);
}

TEST(ControlServer, TakesTheDescriptorsThatItNeeds) {
    constexpr int count = 24;
    std::vector<child> children;
    for (int index = 0; index < count; ++index)
        children.emplace_back([index] {
            const rlimit few{20, 4096};
            check(setrlimit(RLIMIT_NOFILE, &few) == 0, "limit");
            meet(index, count);
        });
    expect_all(children, ok);
}

// Connections that are held open at the TCP port of a process 0 that may have few descriptors: the job meets all the
// same.
TEST(ControlServer, StrangersDoNotTakeAllDescriptors) {
    constexpr int count = 3;
    descriptor listener = listen_tcp("127.0.0.1:0");
    const std::string address = address_of(listener);
    int told[2];
    ASSERT_EQ(pipe(told), 0);
    std::vector<child> children;
    for (int index = 0; index < count; ++index)
        children.emplace_back([&, index] {
            job who = make_job(index, count);
            who.local_index = 0;
            who.local_count = 1;
            who.rendezvous = address;
            who.secret = secret;
            if (index == 0) {
                const rlimit few = descriptor_limit(40);
                check(setrlimit(RLIMIT_NOFILE, &few) == 0, "limit");
                who.listen_fd = listener.release();
            } else {
                listener = descriptor();
                char byte = 0;
                check(read(told[0], &byte, 1) == 1, "the strangers are there");
            }
            control plane(who, "test");
            plane.barrier("all are here");
        });
    const child stranger([&] {
        listener = descriptor();
        std::vector<descriptor> held;
        for (bool is_reported = false;; is_reported = true) { // until it is killed
            std::string why;
            for (int i = 0; i < 100; ++i) held.push_back(try_connect_tcp(address, steady_clock::now() + 1s, why));
            if (!is_reported) check(write(told[1], "xx", 2) == 2, "told");
            if (held.size() > 500) held.erase(held.begin(), held.begin() + 100);
        }
    });
    listener = descriptor();
    expect_all(children, ok);
    stranger.kill();
    EXPECT_EQ(stranger.wait(), killed);
}

// ---- secrets --------------------------------------------------------------------------------------------------------

// A launcher that speaks PMI-1 and stores nothing: it answers to `put` and `get` with these lines.
void serve_pmi(const descriptor& socket, const std::string& to_put, const std::string& to_get) {
    std::string line;
    for (char byte = 0; read(socket.get(), &byte, 1) == 1;) {
        line += byte;
        if (byte != '\n') continue;
        const auto is = [&](const char* command) { return line.starts_with(std::string("cmd=") + command); };
        const std::string answer = is("init")             ? "cmd=response_to_init rc=0"
                                   : is("get_my_kvsname") ? "cmd=my_kvsname kvsname=space"
                                   : is("put")            ? to_put
                                   : is("barrier_in")     ? "cmd=barrier_out"
                                                          : to_get;
        if (write(socket.get(), (answer + '\n').data(), answer.size() + 1) < 0) return;
        line.clear();
    }
}

// What is said of these answers in a process that looks for its job.
std::string error_over_pmi(const std::string& to_put, const std::string& to_get,
                           const std::function<void(const job&)>& call) {
    int ends[2], told[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0 || pipe(told) != 0) throw std::runtime_error("socketpair");
    const child process([&] {
        close(ends[0]);
        setenv("PMI_FD", std::to_string(ends[1]).c_str(), 1);
        job who = make_job(1, 2);
        who.local_count = 1;
        const std::string text = error_of([&] { call(who); }, dcuda::error_code::bootstrap_failure);
        check(write(told[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()), "told");
    });
    close(ends[1]);
    close(told[1]);
    serve_pmi(descriptor(ends[0]), to_put, to_get);
    EXPECT_EQ(process.wait(), ok);
    std::string text(4096, '\0');
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, read(told[0], text.data(), text.size()))));
    close(told[0]);
    return text;
}

TEST(Secrets, AreNotShownInErrors) {
    const auto expect = [](const std::string& text, const std::string& part) {
        EXPECT_NE(text.find(part), std::string::npos) << text;
        EXPECT_EQ(text.find(secret), std::string::npos) << text;
    };
    expect(error_over_pmi("cmd=what", "",
                          [](const job& who) { open_pmi_store(who, 5)->put("place", "10.0.0.1:5 " + secret); }),
           "PMI: the launcher answers \"cmd=what\" to \"cmd=put kvsname=space key=place-0\"");
    expect(error_over_pmi("", "cmd=what rc=0 value=10.0.0.1:5|" + secret,
                          [](const job& who) { open_pmi_store(who, 5)->get(0, "place"); }),
           "PMI: the launcher answers \"cmd=what rc=0\" to");
    expect(error_over_pmi("cmd=put_result rc=0", "cmd=get_result rc=0 value=10.0.0.1:5|" + secret + "|more",
                          [](const job& who) { find_rendezvous(who, 0, 5); }),
           "no address of process 0, but 3 words in 48 characters");
}

} // namespace
