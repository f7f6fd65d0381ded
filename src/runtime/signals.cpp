// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/signals.hpp"

#include "dcuda/detail/protocol/memory.hpp"

#include <cstdint>

namespace dcuda {

namespace {

constexpr int ending[] = {SIGINT, SIGTERM};

// Written by handlers. Nothing is ordered by them: each is a word that somebody polls.
std::uint32_t end_requested, report_requested;

bool is_default(int signal) {
    struct sigaction now {};
    sigaction(signal, nullptr, &now);
    return (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_DFL;
}

void handle(int signal, void (*handler)(int), int flags) {
    struct sigaction wanted {};
    wanted.sa_handler = handler;
    wanted.sa_flags = flags | SA_RESTART | SA_ONSTACK;
    sigemptyset(&wanted.sa_mask);
    sigaction(signal, &wanted, nullptr);
}

void note_end(int signal) { detail::store_relaxed(&end_requested, static_cast<std::uint32_t>(signal)); }
void note_report(int) { detail::store_relaxed(&report_requested, 1); }

bool is_ours(int signal, void (*handler)(int)) {
    struct sigaction now {};
    sigaction(signal, nullptr, &now);
    return (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == handler;
}

} // namespace

signal_requests::signal_requests() : handles_quit_(is_default(SIGQUIT)) {
    if (handles_quit_) handle(SIGQUIT, note_report, 0);
}

signal_requests::~signal_requests() {
    if (handles_quit_ && is_ours(SIGQUIT, note_report)) std::signal(SIGQUIT, SIG_DFL);
}

signal_requests::during_run::during_run(signal_requests&) {
    detail::store_relaxed(&end_requested, 0);
    for (int signal : ending)
        if (is_default(signal)) handle(signal, note_end, static_cast<int>(SA_RESETHAND));
}

signal_requests::during_run::~during_run() {
    for (int signal : ending)
        if (is_ours(signal, note_end)) std::signal(signal, SIG_DFL);
}

int signal_requests::take_end() { return static_cast<int>(detail::load_relaxed(&end_requested)); }

bool signal_requests::take_report() {
    if (detail::load_relaxed(&report_requested) == 0) return false;
    detail::store_relaxed(&report_requested, 0);
    return true;
}

} // namespace dcuda
