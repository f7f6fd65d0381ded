// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/silence.hpp"

#include "support/host.hpp"
#include "support/losses.hpp"

#include <algorithm>
#include <fmt/format.h>

namespace dcuda::bootstrap {

namespace {

double in_seconds(std::chrono::steady_clock::duration time) { return std::chrono::duration<double>(time).count(); }

} // namespace

silence_watch::silence_watch(int processes, double seconds)
    : after_(std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(seconds))),
      processes_(static_cast<std::size_t>(processes)) {}

bool silence_watch::any_attends() const {
    return is_on() && std::ranges::any_of(processes_, [](const state& each) { return each.attends; });
}

void silence_watch::attend(int process, bool attends) {
    // The last poll may have been long ago, when no process attended.
    if (attends && !any_attends()) last_poll_ = clock::now();
    state_of(process).attends = attends;
    state_of(process).heard = clock::now();
}

std::optional<silence_watch::clock::duration> silence_watch::hear(int process) {
    state& one = state_of(process);
    const auto before = std::exchange(one.heard, clock::now());
    if (!std::exchange(one.reported, false)) return std::nullopt;
    return one.heard - before;
}

bool silence_watch::is_missed(int process) const {
    const state& one = state_of(process);
    return one.attends && !one.reported && clock::now() >= one.heard + after_;
}

std::vector<int> silence_watch::poll() {
    std::vector<int> silent;
    const auto now = clock::now();
    if (!any_attends() || now < last_poll_ + beat() / 2) return silent;
    if (now > last_poll_ + 3 * beat())
        for (state& each : processes_) each.heard = now;
    last_poll_ = now;
    for (int process = 0; process < static_cast<int>(processes_.size()); ++process)
        if (is_missed(process)) silent.push_back(process);
    return silent;
}

bool is_due(std::chrono::steady_clock::duration time, const std::string& waiting) {
    return !waiting.empty() || time >= std::chrono::seconds(9);
}

bool is_stopped(pid_t pid) {
    const char state = support::find_process(pid).state;
    return state == 'T' || state == 't';
}

void report_silence(const std::string& process, std::chrono::steady_clock::duration time, const std::string& waiting) {
    support::tell(fmt::format("{} has not answered for {:.3g} s; is it stopped?{} The run goes on when it does.",
                              process, in_seconds(time), waiting));
}

void report_answer(const std::string& process, std::chrono::steady_clock::duration time) {
    support::tell(fmt::format("{} answers again, after {:.3g} s", process, in_seconds(time)));
}

} // namespace dcuda::bootstrap
