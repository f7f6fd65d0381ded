// SPDX-License-Identifier: BSD-3-Clause
// dcuda-top: what the ranks of running programs do.
#include "display.hpp"

#include "support/command_line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <sys/ioctl.h>
#include <thread>
#include <unistd.h>

namespace {

struct options {
    std::vector<pid_t> pids;
    std::string job;
    bool all_users = false, once = false, json = false, ranks = false;
    double interval = 1, wait = 1; // seconds
};

std::vector<top::process> poll_processes(const options& chosen) {
    auto found = top::find_processes();
    std::erase_if(found, [&](const top::process& each) {
        if (!chosen.pids.empty())
            return std::find(chosen.pids.begin(), chosen.pids.end(), each.pid) == chosen.pids.end();
        return !chosen.all_users && each.user != geteuid();
    });
    top::ask(found, std::chrono::milliseconds(static_cast<std::int64_t>(1000 * chosen.wait)));
    if (!chosen.job.empty())
        std::erase_if(found, [&](const top::process& each) { return !each.seen || each.seen->job != chosen.job; });
    return found;
}

std::string nothing_found(const options& chosen) {
    if (!chosen.job.empty()) return fmt::format("no job {} runs on this host\n", chosen.job);
    if (!chosen.pids.empty())
        return "no such process lets itself be watched: is it a dCUDA program (DCUDA_TOP not 0)?\n";
    return fmt::format("no dCUDA program{} runs on this host\n", chosen.all_users ? "" : " of yours");
}

// From the top of the terminal, as much as fits, over what was there.
void show_on_terminal(const std::string& text) {
    winsize size{};
    ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    const std::size_t width = size.ws_col != 0 ? size.ws_col : 80;
    std::size_t left = size.ws_row > 2 ? size.ws_row - 2u : 22;
    std::string screen = "\x1b[H";
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        const std::size_t height = std::max<std::size_t>(1, (line.size() + width - 1) / width);
        if (height > left) {
            screen += "... more than fits here: --once shows all\x1b[K\n";
            break;
        }
        left -= height;
        screen += line + "\x1b[K\n";
    }
    fmt::print("{}\x1b[J", screen);
    std::fflush(stdout);
}

} // namespace

int main(int argc, char** argv) try {
    CLI::App app{"Shows what the ranks of running dCUDA programs on this host do: who waits for what, and since when."};
    options chosen;
    app.add_option("pid", chosen.pids, "Show these processes (default: all of yours)");
    app.add_option("--job", chosen.job, "Show this job only, by the number that is shown with it");
    app.add_flag("--all", chosen.all_users, "Show the programs of all users (root only: others get no answer)");
    app.add_flag("--ranks", chosen.ranks, "A line for each rank, instead of one for all that wait for the same thing");
    app.add_flag("--once", chosen.once,
                 "Poll once (what it does anyway if its output is no terminal and no --interval is given)");
    app.add_flag("--json", chosen.json, "Print JSON, a line for each poll");
    auto* interval = app.add_option("--interval", chosen.interval, "Seconds between two polls (default 1)")
                         ->check(CLI::Range(0.1, 86400.0));
    app.add_option("--wait", chosen.wait, "Seconds to wait for processes that do not answer (default 1)")
        ->check(CLI::Range(0.0, 3600.0));
    app.footer("Ends with 1 if it polled once and found nothing to show.");
    parse_or_exit(app, "dcuda-top", argc, argv);
    const bool terminal = isatty(STDOUT_FILENO) == 1 && !chosen.json;
    const bool once = chosen.once || (!terminal && interval->count() == 0);
    if (terminal && !once) fmt::print("\x1b[2J");
    for (std::vector<top::process> last, found;; last = std::move(found)) {
        found = poll_processes(chosen);
        for (top::process& each : found)
            for (top::process& earlier : last)
                if (each.seen && earlier.seen && earlier.pid == each.pid && earlier.seen->run == each.seen->run)
                    each.before = std::move(earlier.seen);
        std::string text = chosen.json ? top::as_json(found)
                                       : top::as_text(found, chosen.ranks ? top::detail::ranks : top::detail::groups);
        if (found.empty() && !chosen.json) text = nothing_found(chosen);
        if (terminal && !once)
            show_on_terminal(text);
        else
            fmt::print("{}", text);
        if (std::fflush(stdout) != 0) return 1; // the reader has gone
        if (once) return found.empty() ? 1 : 0;
        std::this_thread::sleep_for(std::chrono::duration<double>(chosen.interval));
    }
} catch (const std::exception& problem) {
    std::fprintf(stderr, "dcuda-top: %s\n", problem.what());
    return 1;
}
