// SPDX-License-Identifier: BSD-3-Clause
// A process of a job over several hosts, for hosts_test.py: meets the others, does what its arguments say, prints what
// it learns.
//
//   meet_hosts meet          gathers the host names and posts a message to every process
//   meet_hosts watch         waits for an event of the end
//   meet_hosts send          the same, with a large gather and messages on the way all the time
//   meet_hosts compute S     half of them look at nothing for S seconds, while the others send them large messages
#include "bootstrap/control.hpp"
#include "bootstrap/tcp.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fmt/format.h>
#include <thread>

using namespace dcuda::bootstrap;
using namespace std::chrono_literals;
using clock_type = std::chrono::steady_clock;

namespace {

std::string me;

void say(const std::string& text) {
    std::printf("%s: %s\n", me.c_str(), text.c_str());
    std::fflush(stdout);
}

event next(control& plane) {
    for (;;) {
        if (auto found = plane.poll()) return *found;
        std::this_thread::sleep_for(1ms);
    }
}

void meet(control& plane) {
    std::string hosts;
    for (const auto& each : plane.allgather(host_name(), "host names")) hosts += ' ' + each;
    for (int target = 0; target < plane.count(); ++target) plane.post(target, me);
    std::string messages;
    for (int i = 0; i < plane.count(); ++i) messages = std::max(messages, next(plane).message);
    plane.barrier("the end");
    say("met" + hosts + ", last message of " + messages);
}

// Until the job has failed. With `data` something is unsent when it does.
void watch(control& plane, bool data) {
    say("watching");
    for (auto last = clock_type::now();;) {
        while (auto found = plane.poll()) { // all of them: what comes behind a message, post would throw
            if (found->type != event::kind::lost) continue;
            say(found->message);
            return;
        }
        if (data && clock_type::now() - last > 100ms) {
            for (int target = 0; target < plane.count(); ++target) plane.post(target, std::string(200'000, 'x'));
            last = clock_type::now();
        }
        std::this_thread::sleep_for(1ms);
    }
}

// Those with odd indices compute; the others send them more than the sockets take.
void compute(control& plane, double seconds) {
    constexpr int messages = 32;
    const auto computes = [](int process) { return process % 2 == 1; };
    int expected = 0;
    for (int other = 0; other < plane.count(); ++other) {
        if (computes(plane.index()) && !computes(other)) expected += messages;
        for (int i = 0; i < messages && !computes(plane.index()) && computes(other); ++i)
            plane.post(other, std::string(1 << 20, 'x'));
    }
    if (computes(plane.index())) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    for (int i = 0; i < expected; ++i)
        if (auto found = next(plane); found.type != event::kind::message) return say(found.message);
    plane.barrier("the end");
    say("computed");
}

} // namespace

int main(int argc, char** argv) {
    const std::string mode = argc > 1 ? argv[1] : "meet";
    try {
        const job who = detect_job();
        me = std::to_string(who.index);
        control plane(who, "meet_hosts");
        if (mode == "meet") meet(plane);
        if (mode == "watch") watch(plane, false);
        if (mode == "send") watch(plane, true);
        if (mode == "compute") compute(plane, std::atof(argv[2]));
        return 0;
    } catch (const std::exception& problem) {
        say(problem.what());
        return 1;
    }
}
