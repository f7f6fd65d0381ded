// SPDX-License-Identifier: BSD-3-Clause
// What the system says of this host and its processes.
#include "support/host.hpp"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace {

using dcuda::support::find_process;

TEST(Processes, ThisOneIsFound) {
    const auto found = find_process(getpid());
    EXPECT_EQ(found.state, 'R');
    EXPECT_EQ(found.parent, getppid());
    EXPECT_NE(found.start, 0u);
}

TEST(Processes, OneThatHasEndedIsNotFound) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    waitpid(child, nullptr, 0);
    EXPECT_EQ(find_process(child).state, 0);
}

// The system opens the file of a process that is there, and then cannot read it. The threads race for that moment.
TEST(Processes, OneThatEndsWhileItIsLookedForIsNotFound) {
    for (int i = 0; i < 200; ++i) {
        const pid_t child = fork();
        if (child == 0) _exit(0);
        const std::jthread reaper([&] { waitpid(child, nullptr, 0); });
        while (find_process(child).state != 0) {
        }
    }
}

} // namespace
