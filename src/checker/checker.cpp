// SPDX-License-Identifier: BSD-3-Clause
#include "checker/checker.hpp"

#if DCUDA_BACKEND_CPU

#include "checker/session.hpp"
#include "support/wire.hpp"

#include <cstdio>

namespace dcuda {

using namespace detail;

checker::checker(bootstrap::control& control, const settings& chosen, bool maps_all)
    : control_(control), settings_(chosen) {
    support::require(maps_all, error_code::invalid_argument,
                     "DCUDA_CHECK: the protocol checker follows processes that can map each other's memory: all on one "
                     "host, and without DCUDA_DISABLE_PEER");
    session_ = std::make_unique<check::session>(
        chosen.check == check_mode::stop, static_cast<std::uint64_t>(chosen.check_seed),
        static_cast<std::uint32_t>(control.index()), static_cast<std::uint32_t>(control.count()));
}

checker::~checker() {
    const std::string text = session_->summary();
    std::fwrite(text.data(), 1, text.size(), stderr);
}

check::session* checker::begin_run(int ranks_per_device, const detail::tag_numbers& tags,
                                   const std::vector<host_window>& windows) {
    const int ranks = ranks_per_device * control_.count();
    support::require(ranks <= static_cast<int>(check::most_ranks), error_code::out_of_resources,
                     "DCUDA_CHECK: {} ranks; the protocol checker follows at most {}: run with fewer ranks per device "
                     "(DCUDA_RANKS_PER_DEVICE)",
                     ranks, check::most_ranks);
    if (ranks_ != ranks) {
        transport::exported_allocation own{};
        others_.close();
        control_.barrier("unmapping the checker's memory");
        own_.reset();
        if (control_.index() == 0) {
            own_ = cuda::allocate<std::byte>(check::session::bytes(static_cast<std::uint32_t>(ranks), tags),
                                             "memory for the protocol checker");
            own = transport::export_allocation(transport::find_allocation(own_.get()).value());
            memory_ = own_.get();
        }
        support::wire_writer message;
        message.put(own);
        const auto exports = control_.allgather(message.bytes(), "sharing the checker's memory");
        if (control_.index() != 0)
            memory_ = others_.open(0, support::wire_reader(exports.front()).get<transport::exported_allocation>());
        ranks_ = ranks;
    }
    session_->begin_run(memory_, static_cast<std::uint32_t>(ranks), static_cast<std::uint32_t>(ranks_per_device), tags,
                        windows);
    return session_.get();
}

void checker::end_run() {
    const std::string text = session_->end_run();
    std::fwrite(text.data(), 1, text.size(), stderr);
}

} // namespace dcuda

#endif
