// Those who knock at a job's sockets and do not belong to it.
#include "bootstrap/meeting.hpp"
#include "runtime/live_view.hpp"

#include <algorithm>
#include <cerrno>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdexcept>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace dcuda::bootstrap;
using namespace std::chrono_literals;

namespace {

std::string name_of_this_test() {
    return fmt::format("dcuda-test-{}-{}", getpid(), testing::UnitTest::GetInstance()->current_test_info()->name());
}

// Whether the other side has closed it.
bool is_closed(const descriptor& socket) {
    pollfd one{socket.get(), POLLIN, 0};
    return poll(&one, 1, 0) == 1 && (one.revents & (POLLHUP | POLLERR)) != 0;
}

TEST(AcceptSome, AFewAtATime) {
    const descriptor listener = listen_at(name_of_this_test());
    std::vector<descriptor> callers;
    for (int i = 0; i < 3 * most_accepted + 2; ++i) callers.push_back(try_connect(name_of_this_test()));
    std::vector<int> counts;
    for (int call = 0; call < 5; ++call) {
        int count = 0;
        EXPECT_EQ(accept_some(listener, [&](descriptor) { return ++count > 0; }), 0);
        counts.push_back(count);
    }
    EXPECT_EQ(counts, std::vector<int>({most_accepted, most_accepted, most_accepted, 2, 0}));
}

TEST(AcceptSome, NoMoreThanAreWanted) {
    const descriptor listener = listen_at(name_of_this_test());
    std::vector<descriptor> callers, accepted;
    for (int i = 0; i < 5; ++i) callers.push_back(try_connect(name_of_this_test()));
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
        here_ = descriptor(ends[0]);
        const descriptor there(ends[1]);
        pid_ = fork();
        if (pid_ != 0) return;
        here_ = descriptor(); // so that the end of the test is the end of this
        if (setuid(65534) != 0) _exit(1);
        std::vector<descriptor> sockets;
        for (int i = 0; i < connections; ++i) sockets.push_back(try_connect(address));
        for (int closed = 0; write(there.get(), &closed, sizeof closed) > 0;) {
            char question = 0;
            if (read(there.get(), &question, 1) != 1) break;
            closed = static_cast<int>(std::ranges::count_if(sockets, is_closed));
        }
        _exit(0);
    }
    ~another_user() {
        here_ = descriptor();
        waitpid(pid_, nullptr, 0);
    }
    int wait_for_connections() { return answer(); }
    int ask_for_closed() {
        if (write(here_.get(), "?", 1) != 1) return -1;
        return answer();
    }

private:
    int answer() {
        int number = -1;
        return read(here_.get(), &number, sizeof number) == sizeof number ? number : -1;
    }
    descriptor here_{};
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
        std::this_thread::sleep_for(1ms); // it looks every 20 ms only
    }
}

} // namespace
