// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/progress.hpp"

#include "runtime/hang_report.hpp"
#include "runtime/report.hpp"
#if DCUDA_BACKEND_CPU
#include "checker/session.hpp"
#endif
#include "support/losses.hpp"
#include "support/wire.hpp"

#include <algorithm>
#include <cstring>
#include <new>

namespace dcuda {

using namespace detail;

namespace {

using bootstrap::event;
using clock = std::chrono::steady_clock;

// Gathers of a run: windows count from 0, the watchdog's report has an id of its own.
constexpr std::uint64_t waits_gather = std::uint64_t{1} << 62;
constexpr std::uint64_t network_gather = waits_gather + 1;

constexpr std::uint32_t report_interval = ring_capacity / 4;

// What was thrown, as the error that ends the run: whatever it is, the other processes must hear of it.
error as_error(const std::exception& thrown) {
    if (const auto* const known = dynamic_cast<const error*>(&thrown)) return *known;
    const bool is_memory = dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr;
    return error(is_memory ? error_code::out_of_resources : error_code::kernel_failure,
                 fmt::format("the host's part of the run failed: {}", thrown.what()));
}

} // namespace

progress::progress(bootstrap::control& control, device_state& state, device_access& link, network_path* network,
                   live_view* live, profiler& profiler, signal_requests& signals, const settings& chosen)
    : control_(control), state_(state), link_(link), log_(static_cast<std::size_t>(state.ranks()), control.index()),
      network_(network), live_(live), profiler_(profiler), signals_(signals),
      windows_(control, state, link, network, profiler, chosen.windows_may_fail),
      watchdog_(control, state, link, chosen.watchdog_interval), taken_(chosen.counter_start),
      reported_(chosen.counter_start) {}

bool progress::poll() {
    const bool had_commands = serve_commands();
    return serve_network() || had_commands;
}

bool progress::poll_rest() {
    const bool had_events = serve_events();
    if (!failure_ && !network_failure_) watchdog_.poll(network_ == nullptr || network_->is_quiet());
    serve_watchers();
    serve_signals();
    return had_events;
}

void progress::serve_watchers() {
    if (live_ == nullptr || failure_ || !live_->poll()) return;
    try {
        live_->answer(watchdog_.read_waits(), count_sent());
    } catch (const error&) {
        // The device is gone: the end of the kernel will tell.
    }
}

void progress::serve_signals() {
    if (signals_.take_report()) {
        const std::string waits = describe_own_waits("");
        support::tell(fmt::format("process {}: {}{}", control_.index(),
                                  waits.empty() ? "no rank waits" : "what its ranks do", waits));
    }
    const int signal = signals_.take_end();
    if (signal == 0 || failure_) return;
    const char* const known = sigabbrev_np(signal);
    fail(error(error_code::interrupted, fmt::format("process {} got SIG{}, which ends the run{}", control_.index(),
                                                    known ? known : "?", describe_own_waits("\nwhat its ranks do"))));
}

// What the ranks have counted so far, if they count.
std::optional<sent_messages> progress::count_sent() {
    const rank_counters* const from = state_.fields().profiler.counters;
    if (from == nullptr) return std::nullopt;
    std::vector<rank_counters> counters(static_cast<std::size_t>(state_.ranks()));
    link_.read_words(reinterpret_cast<std::uint32_t*>(counters.data()), reinterpret_cast<const std::uint32_t*>(from),
                     counters.size() * sizeof(rank_counters) / sizeof(std::uint32_t));
    sent_messages sum;
    const auto add = [](path_statistics& total, const path_counters& more) {
        total.puts += more.puts;
        total.notified_puts += more.notified_puts;
        total.notifications += more.notifications;
        total.bytes += more.bytes;
    };
    for (const rank_counters& rank : counters) {
        add(sum.local, rank.local);
        add(sum.peer, rank.peer);
        add(sum.network, rank.network);
    }
    return sum;
}

bool progress::serve_network() {
    if (network_ == nullptr || failure_) return false;
    if (network_failure_) {
        if (clock::now() >= network_deadline_) fail(*network_failure_);
        return false;
    }
    try {
        return network_->progress();
    } catch (const std::exception& thrown) {
        const error problem = as_error(thrown);
        const bool is_foreign = dynamic_cast<const foreign_arrival*>(&thrown) != nullptr;
        if (is_foreign || problem.code() != error_code::process_lost) {
            fail(problem);
        } else {
            // Often before the control plane hears of it, which knows who it was, on which host, and how he was lost.
            network_failure_ = problem;
            network_deadline_ = clock::now() + control_.time_to_notice_loss();
        }
        return true;
    }
}

// The words of the command with this number, if it has arrived.
// ORDER command-observe: who has seen a packet's number sees its payload, and what the command refers to.
bool progress::take_words(std::uint32_t number, std::uint32_t* words) const {
    const packet* slot = state_.fields().ring.slots + std::size_t(number % ring_capacity) * packets_per_command;
    for (std::size_t part = 0; part < packets_per_command; ++part, words += 3) {
        if (!packet_arrived(slot + part, number + 1)) return false;
        std::copy_n(slot[part].payload, 3, words);
    }
    return true;
}

bool progress::take_command(std::uint32_t number, command& taken) const {
    std::uint32_t words[command_words];
    if (!take_words(number, words)) return false;
    std::memcpy(&taken, words, sizeof taken);
    return true;
}

bool progress::serve_commands() {
    const command_ring& ring = state_.fields().ring;
    const std::uint32_t before = taken_;
    while (network_ == nullptr || network_->has_room()) {
        command cmd{};
        if (!take_command(taken_, cmd)) break;
        const auto [places, has_ring_payload] = extent_of(cmd);
        const auto* payload = reinterpret_cast<const std::byte*>(payload_.data());
        if (has_ring_payload) {
            payload = ring.payload(taken_);
        } else if (cmd.code == opcode::send) {
            // Some in the command, the rest behind it.
            std::copy_n(fields_of<send_fields>(cmd).payload, 4, payload_.begin());
            std::uint32_t behind = 1;
            while (behind < places && take_words(taken_ + behind, payload_.data() + 4 + (behind - 1) * command_words))
                ++behind;
            if (behind < places) break;
        }
        try {
            serve(cmd, payload);
        } catch (const std::exception& thrown) {
            fail(as_error(thrown));
        }
        taken_ += places;
        // ORDER slot-free: the slots have been read.
        if (taken_ - reported_ >= report_interval)
            link_.publish_free_slots(state_.fields().ring.head, reported_ = taken_);
    }
    profiler_.note_ring(taken_ - before);
    return taken_ != before;
}

error progress::found_by_checker() const {
#if DCUDA_BACKEND_CPU
    return error(error_code::device_fault, "check: " + state_.fields().checker->cause());
#else
    return error(error_code::device_fault, "check"); // never asked for
#endif
}

void progress::serve(const command& cmd, const std::byte* payload) {
    switch (cmd.code) {
    case opcode::fault:
        if (fields_of<fault_fields>(cmd).kind == fault::protocol) return fail(found_by_checker());
        fail(describe_fault(cmd, static_cast<std::uint32_t>(state_.first_rank()), counts_of(state_),
                            state_.fields().tags));
        break;
    case opcode::create_window:
        windows_.begin(fields_of<create_window_fields>(cmd).slot, cmd.rank,
                       static_cast<communicator>(fields_of<create_window_fields>(cmd).comm));
        break;
    case opcode::windows_full:
        windows_.report_full(cmd.rank, fields_of<windows_full_fields>(cmd).bytes);
        break;
    case opcode::unconsumed:
        if (ranks_with_unconsumed_ == 0 || cmd.rank < unconsumed_.rank) unconsumed_ = cmd;
        ++ranks_with_unconsumed_;
        break;
    case opcode::start_timer:
        timer_start_ns_ = fields_of<start_timer_fields>(cmd).now_ns;
        break;
    case opcode::stop_timer:
        timings_.push_back(static_cast<double>(fields_of<stop_timer_fields>(cmd).now_ns - timer_start_ns_) * 1e-6);
        break;
    case opcode::log:
        log_.take(cmd);
        break;
    case opcode::send:
    case opcode::exchange:
    case opcode::update:
    case opcode::rows:
    case opcode::get:
    case opcode::flush:
    case opcode::barrier:
        if (!failure_) network_->take(cmd, payload);
        break;
    case opcode::clock:
        profiler_.note_device_clock(fields_of<clock_fields>(cmd).now_ns);
        break;
    case opcode::none:
        break;
    }
}

bool progress::serve_events() {
    bool any = false;
    while (auto happened = control_.poll()) {
        any = true;
        try {
            serve(*happened);
        } catch (const std::exception& thrown) {
            fail(as_error(thrown));
        }
    }
    return any;
}

void progress::serve(const event& happened) {
    switch (happened.type) {
    case event::kind::gathered:
        if (happened.id == waits_gather)
            report_deadlock(happened.parts);
        else if (happened.id == network_gather)
            network_ended_ = true;
        else
            windows_.complete(happened.parts);
        break;
    case event::kind::stalled: {
        support::wire_writer waits;
        waits.put(watchdog_.read_waits());
        control_.start_gather(waits_gather, waits.bytes());
        break;
    }
    case event::kind::asked: {
        support::wire_writer waits;
        waits.put(watchdog_.read_waits());
        control_.answer(happened.process, waits.bytes());
        break;
    }
    case event::kind::message:
        if (profiler_.receive(happened.process, happened.message) || failure_) break;
        if (!windows_.receive(happened.process, happened.message) && network_ != nullptr)
            network_->receive(happened.process, happened.message);
        break;
    case event::kind::aborted: {
        failure_is_agreed_ = true;
        const auto code = static_cast<error_code>(happened.code);
        // The process that saw it tells the whole story; the others its first line.
        const std::string story = happened.process == control_.index()
                                      ? happened.message
                                      : happened.message.substr(0, happened.message.find('\n')) +
                                            fmt::format(" (reported by process {})", happened.process);
        failure_.reset();
        end_run(error(code, story));
        break;
    }
    case event::kind::lost:
        failure_is_agreed_ = true;
        profiler_.note_lost(happened.process);
        failure_.reset(); // what we have found may follow from it
        report_lost(happened.message);
        break;
    }
}

// What this process's ranks wait for, after these words; empty if none does, or the device cannot be asked any more.
std::string progress::describe_own_waits(const std::string& before) {
    const auto waits_for_others = [](const wait_record& rank) {
        return rank.kind != waiting::no && rank.kind != waiting::done;
    };
    try {
        const std::vector<wait_record> now = watchdog_.read_waits();
        if (std::none_of(now.begin(), now.end(), waits_for_others)) return "";
        return before + describe_waits(now, counts_of(state_), static_cast<std::uint32_t>(state_.first_rank()),
                                       static_cast<std::uint32_t>(state_.world_size()));
    } catch (const error&) {
        return "";
    }
}

void progress::report_lost(const std::string& who) {
    end_run(error(error_code::process_lost, who + describe_own_waits("; here wait")));
}

void progress::report_deadlock(const std::vector<bootstrap::blob>& waits_by_process) {
    std::vector<wait_record> waits;
    for (const bootstrap::blob& process : waits_by_process) {
        const auto more = support::wire_reader(process).get_vector<wait_record>();
        waits.insert(waits.end(), more.begin(), more.end());
    }
    if (control_.index() != 0) return; // process 0 tells the others
    fail(error(error_code::deadlock,
               fmt::format("deadlock: all {} ranks wait and nothing moves{}", waits.size(),
                           describe_waits(waits, counts_of(state_), 0, static_cast<std::uint32_t>(waits.size())))));
}

void progress::fail(const error& cause) {
    if (failure_) return;
    end_run(cause);
    control_.abort(static_cast<int>(cause.code()), cause.what());
}

void progress::end_run(const error& cause) {
    if (failure_) return;
    if (failed_at_ == clock::time_point{}) failed_at_ = clock::now();
    failure_ = cause;
    try {
        link_.write_word(state_.fields().aborted, 1);
    } catch (const error&) {
        // The device is gone already; the failure that we have says more.
    }
}

void progress::end_network() {
    if (network_ == nullptr) return;
    // A network may need the target's work to complete a write, so nobody leaves before all writes are done. The last
    // command of a kernel may be a fault, for which the others do not come here.
    bool told = false;
    while (!network_ended_ && !failure_) {
        const bool has_moved = poll();
        const bool busy = serve_events() || has_moved;
        if (!told && network_->is_sent()) {
            control_.start_gather(network_gather, {});
            told = true;
        }
        if (!busy) pause_ns(0);
    }
}

// A rank that leaves an aborted run may have taken a place in the ring of commands without writing there. What lies
// behind such a hole is read once the kernel has ended: lines of logs, and the reason why the run ended.
void progress::serve_last_words() {
    std::uint32_t aborted = 0;
    std::uint64_t tail = 0;
    link_.read(&aborted, state_.fields().aborted, sizeof aborted);
    if (aborted == 0) return;
    link_.read(&tail, state_.fields().ring.tail, sizeof tail);
    for (command cmd{}; taken_ != static_cast<std::uint32_t>(tail); ++taken_) {
        if (!take_command(taken_, cmd)) continue;
        if (cmd.code == opcode::fault || cmd.code == opcode::log) serve(cmd, nullptr);
        taken_ += extent_of(cmd).places - 1; // payload looks like commands
    }
    if (!failure_)
        fail(error(error_code::device_fault, fmt::format("process {}: a rank ended the run and could not tell why: the "
                                                         "command ring had no space, or its host did not serve it",
                                                         control_.index())));
}

std::string progress::describe_unconsumed() const {
    if (ranks_with_unconsumed_ == 0) return "";
    const auto left = fields_of<unconsumed_fields>(unconsumed_);
    const std::uint32_t rank = static_cast<std::uint32_t>(state_.first_rank()) + unconsumed_.rank;
    const std::uint32_t other_tags = left.tags - 1, others = ranks_with_unconsumed_ - 1;
    std::string text =
        fmt::format("{} has not waited for {} notification{} with tag {}", name_rank(rank, counts_of(state_)),
                    left.count, left.count == 1 ? "" : "s", name_of_tag(left.tag, state_.fields().tags));
    if (other_tags != 0)
        text += fmt::format(" and for those with {} other tag{}", other_tags, other_tags == 1 ? "" : "s");
    if (others != 0) text += fmt::format("; of this process {} other rank{} likewise", others, others == 1 ? "" : "s");
    return text;
}

void progress::finish() {
    serve_commands();
    try {
        serve_last_words();
    } catch (const error& problem) {
        fail(problem); // the device is gone
    }
    log_.flush();
    if (failure_) {
        // All processes should tell the same story: the one that reached the control server first.
        const auto deadline = clock::now() + std::chrono::seconds(1);
        while (!failure_is_agreed_ && clock::now() < deadline)
            if (!serve_events()) pause_ns(0);
    }
    windows_.close();
}

} // namespace dcuda
