// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/signals.hpp"

#include "dcuda/detail/protocol/memory.hpp"

#include <cstdint>

namespace dcuda {

namespace {

constexpr int ending[] = {SIGINT, SIGTERM};

// Written by handlers. Nothing is ordered by them: each is a word that somebody polls.
std::uint32_t end_requested, report_requested;

bool is_handled_by(int signal, void (*handler)(int)) {
    struct sigaction now {};
    sigaction(signal, nullptr, &now);
    return (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == handler;
}

// Where the program has no handler of its own.
void handle(int signal, void (*handler)(int), int flags) {
    if (!is_handled_by(signal, SIG_DFL)) return;
    struct sigaction wanted {};
    wanted.sa_handler = handler;
    wanted.sa_flags = flags | SA_RESTART | SA_ONSTACK;
    sigemptyset(&wanted.sa_mask);
    sigaction(signal, &wanted, nullptr);
}

void stop_handling(int signal, void (*handler)(int)) {
    if (is_handled_by(signal, handler)) std::signal(signal, SIG_DFL);
}

void note_end(int signal) { detail::store_relaxed(&end_requested, static_cast<std::uint32_t>(signal)); }
void note_report(int) { detail::store_relaxed(&report_requested, 1); }

} // namespace

signal_requests::signal_requests() { handle(SIGQUIT, note_report, 0); }

signal_requests::~signal_requests() { stop_handling(SIGQUIT, note_report); }

signal_requests::during_run::during_run() {
    detail::store_relaxed(&end_requested, 0);
    for (int signal : ending) handle(signal, note_end, static_cast<int>(SA_RESETHAND));
}

signal_requests::during_run::~during_run() {
    for (int signal : ending) stop_handling(signal, note_end);
}

int signal_requests::take_end() { return static_cast<int>(detail::load_relaxed(&end_requested)); }

bool signal_requests::take_report() {
    if (detail::load_relaxed(&report_requested) == 0) return false;
    detail::store_relaxed(&report_requested, 0);
    return true;
}

} // namespace dcuda
