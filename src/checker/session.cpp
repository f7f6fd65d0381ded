// SPDX-License-Identifier: BSD-3-Clause
#include "checker/session.hpp"

#include <cstdio>

#include <fmt/format.h>

namespace dcuda::detail::check {

bool sees_loads_and_stores = false;

void session::begin_run(std::byte* shared, std::uint32_t ranks, std::uint32_t ranks_per_process,
                        const tag_numbers& tags, const std::vector<host_window>& windows) {
    const memory m(shared, ranks, tags);
    state_ = std::make_unique<run_state>(m);
    for (const host_window& each : windows) {
        state_->windows[each.id] = static_cast<std::uint32_t>(state_->of_host.size());
        state_->of_host.push_back(each.entries.at(process_));
    }
    ++runs_;
    if (process_ != 0) return;
    if (runs_ == 1 && !sees_loads_and_stores)
        std::fprintf(
            stderr,
            "dcuda: check: the program is not built for the checker, which sees no loads and stores of kernels, only "
            "operations (cmake --preset cpu-check; docs/guide/checker.md)\n");
    memory(m).clear();
    header& head = m.head();
    head.random = seed_ * 0x9e3779b97f4a7c15u + runs_;
    head.ranks = ranks;
    head.processes = processes_;
    head.ranks_per_process = ranks_per_process;
    head.free_notice = head.free_access = none;
    head.stop = stop_ ? 1 : 0;
    for (const host_window& each : windows) m.window(head.windows++) = {each.slot(), none, none, {}};
    for (std::uint32_t r = 0; r < ranks; ++r) {
        rank_record& rank = m.rank(r);
        rank.process = r / ranks_per_process;
        rank.unseen = rank.unseen_last = rank.site = none;
        rank.weight = rank.delivery_weight = 1;
        for (std::uint32_t k = 0; k < ranks; ++k) m.channel(r, k).first = m.channel(r, k).last = none;
    }
}

std::string session::end_run() {
    if (process_ != 0 || !state_) return {};
    const header& head = state_->shared.head();
    most_ranks_ = std::max(most_ranks_, head.ranks);
    puts_ += head.puts;
    notifications_ += head.notifications;
    loads_and_stores_ += head.loads_and_stores;
    findings_ += head.findings + head.findings_left_out;
    return stop_ ? std::string() : state_->found.list();
}

std::string session::summary() const {
    if (process_ != 0 || runs_ == 0) return {};
    return fmt::format(
        "dcuda: check: seed {}: {} run{} of {} ranks, {} puts, {} notifications, {} loads and stores of windows: {}\n",
        seed_, runs_, runs_ == 1 ? "" : "s", most_ranks_, puts_, notifications_, loads_and_stores_,
        findings_ == 0   ? std::string("nothing found")
        : findings_ == 1 ? std::string("1 finding")
                         : fmt::format("{} findings", findings_));
}

} // namespace dcuda::detail::check
