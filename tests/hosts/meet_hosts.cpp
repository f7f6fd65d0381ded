// A process of a job over several hosts, for hosts_test.py: meets the others, does what its arguments say, prints what
// it learns.
//
//   meet_hosts meet          gathers the host names and posts a message to every process
//   meet_hosts watch         waits for an event of the end
//   meet_hosts send          the same, with a large gather and messages on the way all the time
//   meet_hosts compute S     does nothing of the control plane for S seconds, with large data on the way, then gathers
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
    for (int to = 0; to < plane.count(); ++to) plane.post(to, me);
    std::string messages;
    for (int i = 0; i < plane.count(); ++i) messages = std::max(messages, next(plane).message);
    plane.barrier("the end");
    say("met" + hosts + ", last message of " + messages);
}

// Until the job has failed. With `data` something is unsent when it does.
void watch(control& plane, bool data) {
    say("watching");
    for (auto last = clock_type::now();;) {
        if (auto found = plane.poll(); found && found->what == event::kind::lost) {
            say(found->message);
            return;
        }
        if (data && clock_type::now() - last > 100ms) {
            for (int to = 0; to < plane.count(); ++to) plane.post(to, std::string(200'000, 'x'));
            last = clock_type::now();
        }
        std::this_thread::sleep_for(1ms);
    }
}

void compute(control& plane, double seconds) {
    // More than the sockets take.
    for (std::uint64_t i = 0; i < 4; ++i) plane.start_gather(i, std::string(4 << 20, 'x'));
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    for (int i = 0; i < 4; ++i)
        if (auto found = next(plane); found.what != event::kind::gathered) return say(found.message);
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
        // Process 0 and the last one look at once; the others are busy.
        if (mode == "compute") compute(plane, who.index % 2 == 0 ? 0 : std::atof(argv[2]));
        return 0;
    } catch (const std::exception& problem) {
        say(problem.what());
        return 1;
    }
}
