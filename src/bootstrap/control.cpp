// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/control.hpp"

#include "bootstrap/control_server.hpp"
#include "bootstrap/local_socket.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/tcp.hpp"
#include "dcuda/config.hpp"
#include "support/check.hpp"
#include "support/env.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace dcuda::bootstrap {

namespace {

using support::fail;
using support::require;
using clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds connect_pause{10};
constexpr std::chrono::milliseconds max_connect_pause{500};
constexpr std::chrono::seconds handshake_time{5};
constexpr std::chrono::milliseconds keep_alive_poll_interval{100}; // between two polls of the keep-alive connection
constexpr std::chrono::seconds answer_slack{5}; // the control server's own deadline comes first, with a better message
constexpr std::chrono::seconds goodbye_time{1};
constexpr std::size_t descriptors_per_process = 4; // of the job: of the control server up to 2, of a network up to 2
constexpr std::size_t spare_descriptors = 512;     // of the program, and of unauthenticated peers
// The processes that report if process 0 does not answer: process 1, and of the next those that wait.
constexpr int most_reporters = 4;

clock::duration seconds(double value) {
    return std::chrono::milliseconds(static_cast<long>(std::min(value, 1e9) * 1000));
}

// How many control planes of this job this process has set up before.
int next_generation(const std::string& key) {
    static std::mutex guard;
    static std::map<std::string, int> generations;
    std::lock_guard lock(guard);
    return generations[key]++;
}

int milliseconds_until(clock::time_point deadline) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - clock::now()).count();
    return static_cast<int>(std::clamp<long>(left, 0, 60'000));
}

std::pair<descriptor, descriptor> socket_pair() {
    int ends[2];
    support::check_errno(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends),
                         "cannot open a pair of local sockets", error_code::bootstrap_failure);
    return {descriptor(ends[0]), descriptor(ends[1])};
}

// Connects to the control server and makes sure that it is of this job. Null, and `reason` set: not now.
std::unique_ptr<channel> try_connect_to_server(const rendezvous& target, const auth_key& key,
                                               clock::time_point deadline, std::string& reason) {
    descriptor socket = try_connect_tcp(target.address, deadline, reason);
    if (socket.get() < 0) return nullptr;
    handshake authentication(handshake::side::process, key);
    deadline = std::min(deadline, clock::now() + handshake_time);
    for (;;) {
        const auto state = authentication.advance(socket.get());
        if (state == handshake::state::done) return std::make_unique<channel>(std::move(socket));
        if (state == handshake::state::refused || clock::now() >= deadline) {
            reason = "what listens there " +
                     (state == handshake::state::refused ? authentication.reason() : "does not answer");
            return nullptr;
        }
        pollfd one{socket.get(), POLLIN, 0};
        if (::poll(&one, 1, milliseconds_until(deadline)) < 0 && errno != EINTR) support::fail_errno(errno, "poll");
    }
}

} // namespace

control::control(const job& own_job, std::string_view identity, wait_description describe)
    : job_(own_job), launcher_(own_job), describe_(describe) {
    require(job_.count >= 1 && job_.index >= 0 && job_.index < job_.count, error_code::invalid_argument,
            "a job cannot have process {} of {}", job_.index, job_.count);
    if (job_.count == 1) {
        stalled_ = std::make_unique<stall_detector>(1);
        return;
    }
    timeout_seconds_ = support::env_seconds("DCUDA_CONNECT_TIMEOUT").value_or(60);
    lost_after_ = support::env_seconds("DCUDA_LOST_AFTER").value_or(10);
    require(lost_after_ >= 1 && lost_after_ <= 1e6, error_code::invalid_argument,
            "DCUDA_LOST_AFTER={}: expected 1 to 1000000 seconds", lost_after_);
    support::allow_descriptors(descriptors_per_process * static_cast<std::size_t>(job_.count) + spare_descriptors);
    silent_after_ = support::env_seconds("DCUDA_SILENT_AFTER").value_or(7);
    require(silent_after_ == 0 || (silent_after_ >= 0.1 && silent_after_ <= 1e6), error_code::invalid_argument,
            "DCUDA_SILENT_AFTER={}: expected 0.1 to 1000000 seconds, or 0", silent_after_);
    if (silent_after_ > 0) server_watch_ = std::make_unique<silence_watch>(1, silent_after_);
    const int generation = next_generation(job_.key);
    if (job_.is_on_one_host())
        connect_on_host(identity, generation);
    else
        connect_across_hosts(identity, generation);
    channel_->send(frame{frame_type::hello, job_.index, static_cast<std::uint64_t>(getpid()),
                         static_cast<std::uint64_t>(job_.count), DCUDA_VERSION_STRING,
                         encode_parts({blob(identity), job_.is_on_one_host() ? job_.key : "",
                                       job_.is_on_one_host() ? "" : host_name()})});
    await_welcome();
}

control::~control() {
    try {
        if (channel_ && !channel_->closed()) {
            channel_->send(frame{frame_type::goodbye, job_.index});
            const auto deadline = clock::now() + goodbye_time;
            while (channel_->has_unsent() && clock::now() < deadline) {
                pollfd one{channel_->fd(), POLLOUT, 0};
                if (::poll(&one, 1, milliseconds_until(deadline)) < 0 && errno != EINTR) break;
                channel_->flush();
            }
            // TCP throws away what is under way if the socket is closed with something unread.
            if (keep_alive_) channel_->end_sending();
            while (keep_alive_ && !channel_->closed() && clock::now() < deadline) {
                pollfd one{channel_->fd(), POLLIN, 0};
                if (::poll(&one, 1, milliseconds_until(deadline)) < 0 && errno != EINTR) break;
                channel_->read_available();
            }
        }
    } catch (...) {
    } // out of memory: the others see the closed connection instead of the goodbye
}

void control::start_server(std::string_view identity, control_listener listener) {
    auto [own_end, server_end] = socket_pair();
    server_ = std::make_unique<control_server>(job_, identity, std::move(listener), std::move(server_end),
                                               time_limits{timeout_seconds_, lost_after_, silent_after_}, describe_);
    channel_ = std::make_unique<channel>(std::move(own_end));
    server_pid_ = getpid();
}

void control::connect_on_host(std::string_view identity, int generation) {
    const std::string address = local_socket_name(job_.key, generation);
    if (job_.index == 0) return start_server(identity, {listen_local(address)});

    const auto deadline = clock::now() + seconds(timeout_seconds_);
    descriptor socket;
    while ((socket = try_connect_local(address)).get() < 0) {
        require(clock::now() < deadline, error_code::bootstrap_failure,
                "process {} of {}: process 0 of the job did not appear within {} s (DCUDA_CONNECT_TIMEOUT); check that "
                "it was started, has not failed before, and runs on this host and in the same container",
                job_.index, job_.count, timeout_seconds_);
        require(!launcher_.has_ended(), error_code::process_lost, "{}", describe_launcher_end());
        ::poll(nullptr, 0, static_cast<int>(connect_pause.count()));
    }
    const local_peer peer = peer_of(socket.get());
    server_pid_ = peer.pid;
    check_holder(address, peer);
    channel_ = std::make_unique<channel>(std::move(socket));
}

void control::connect_across_hosts(std::string_view identity, int generation) {
    rendezvous target = find_rendezvous(job_, generation, timeout_seconds_);
    const auth_key key(target.secret, generation);
    if (job_.index == 0) local_address_ = own_host_of(target.listener.get());
    if (job_.index == 0) return start_server(identity, {std::move(target.listener), key});

    const auto deadline = clock::now() + seconds(timeout_seconds_);
    const auto connect_to_server = [&] {
        std::string reason = "there was no time to try";
        for (auto pause = connect_pause;; pause = std::min(2 * pause, max_connect_pause)) {
            if (auto link = try_connect_to_server(target, key, deadline, reason)) return link;
            require(clock::now() < deadline, error_code::bootstrap_failure,
                    "process {} of {} on host {}: process 0 of the job did not appear at {} within {} s "
                    "(DCUDA_CONNECT_TIMEOUT): {}; check that it was started, has not failed before, that this host "
                    "reaches it there, and that both have the same DCUDA_JOB if you set it",
                    job_.index, job_.count, host_name(), target.address, timeout_seconds_, reason);
            require(!launcher_.has_ended(), error_code::process_lost, "{}", describe_launcher_end());
            ::poll(nullptr, 0, std::min(static_cast<int>(pause.count()), milliseconds_until(deadline)));
        }
    };
    channel_ = connect_to_server();
    local_address_ = own_host_of(channel_->fd());
    set_up_connection(channel_->fd(), lost_after_);
    keep_alive_ = connect_to_server();
    set_up_keep_alive(keep_alive_->fd(), lost_after_);
    keep_alive_->send(frame{frame_type::keep_alive, job_.index});
}

void control::await_welcome() {
    const auto deadline = clock::now() + seconds(timeout_seconds_) + answer_slack;
    for (;;) {
        channel_->flush();
        channel_->read_available();
        while (auto message = channel_->next()) {
            if (message->type == frame_type::rejected || message->type == frame_type::failed) {
                if (message->process >= 0) report_cause(job_, message->process);
                fail(error_code::bootstrap_failure, "{}", message->payload);
            }
            if (message->type != frame_type::welcome) continue;
            server_pid_ = static_cast<pid_t>(message->id);
            server_host_ = message->label;
            return;
        }
        check_keep_alive();
        check_launcher();
        if (failure_ && failure_->type == event::kind::aborted) throw_if_failed();
        const std::string server = server_pid_ != 0 ? describe_process(0, server_pid_, server_host_) : "process 0";
        require(!failure_, error_code::bootstrap_failure, "{} cannot be reached since {} s", server, lost_after_);
        if (channel_->closed()) {
            report_cause(job_, 0);
            fail(error_code::bootstrap_failure, "{} ended unexpectedly while the job was starting", server);
        }
        require(clock::now() < deadline, error_code::bootstrap_failure,
                "process {} of {}: {} does not answer; is it stopped?", job_.index, job_.count, server);
        wait_until(deadline);
    }
}

// Waits until there is something to read, what is unsent may go, or the time is over.
void control::wait_until(std::optional<clock::time_point> deadline) const {
    std::array<pollfd, 3> polled{
        {{channel_->fd(), static_cast<short>(POLLIN | (channel_->has_unsent() ? POLLOUT : 0)), 0},
         {keep_alive_ ? keep_alive_->fd() : -1, POLLIN, 0},
         {failure_ ? -1 : launcher_.fd(), POLLIN, 0}}};
    const int timeout_ms = deadline ? milliseconds_until(*deadline) : -1;
    if (::poll(polled.data(), polled.size(), timeout_ms) < 0 && errno != EINTR) support::fail_errno(errno, "poll");
    if (polled[1].revents != 0) next_keep_alive_poll_ = {};
    if (polled[2].revents != 0) launcher_.poll_again();
}

// A blocking gather: a process that is in it attends, but says so only if it takes long.
class control::gather_wait {
public:
    explicit gather_wait(control& plane) : control_(plane) {
        control_.in_gather_ = true;
        if (control_.attention_ == 0 && control_.server_watch_)
            control_.next_beat_ = clock::now() + control_.server_watch_->beat();
    }
    ~gather_wait() {
        control_.in_gather_ = false;
        control_.end_beats();
    }

private:
    control& control_;
};

std::vector<blob> control::allgather(std::string_view own_part, std::string_view subject) {
    const std::uint64_t id = next_blocking_id_++;
    send_gather(id, subject, own_part);
    return await_gather(id);
}

std::vector<blob> control::gather(std::string_view own_part, int root, std::string_view subject) {
    require(root >= 0 && root < job_.count, error_code::invalid_argument, "{}: there are processes 0 to {}", subject,
            job_.count - 1);
    const std::uint64_t id = next_blocking_id_++;
    send_gather(id, subject, own_part, root);
    return await_gather(id);
}

std::vector<blob> control::await_gather(std::uint64_t id) {
    const gather_wait waiting(*this);
    for (;;) {
        // A result that has arrived is good, even if the job has failed since.
        if (auto found = blocking_results_.find(id); found != blocking_results_.end()) {
            auto result = std::move(found->second);
            blocking_results_.erase(found);
            return result;
        }
        throw_if_failed();
        wait_until(server_watch_ ? std::optional(next_beat_) : std::nullopt);
        read_available();
    }
}

void control::barrier(std::string_view subject) { allgather({}, subject); }

void control::start_gather(std::uint64_t id, std::string_view payload) {
    require(id < first_reserved_id, error_code::invalid_argument, "gather id {} is in the reserved range", id);
    send_gather(id, fmt::format("gather {}", id), payload);
}

void control::send_gather(std::uint64_t id, std::string_view label, std::string_view payload, int root) {
    throw_if_failed();
    require(waiting_.try_emplace(id, label).second, error_code::invalid_argument, "{} is already in flight", label);
    if (channel_) {
        if (server_gone_) server_closed();
        throw_if_failed();
        channel_->send(frame{frame_type::gather, job_.index, id, static_cast<std::uint64_t>(root + 1),
                             std::string(label), blob(payload)});
    } else {
        frame result{frame_type::gathered, 0, id, 0, {}, encode_parts({blob(payload)})};
        receive(result);
    }
}

void control::post(int process, std::string_view payload) {
    require(process >= 0 && process < job_.count, error_code::invalid_argument,
            "a message to process {} of a job of {} processes", process, job_.count);
    throw_if_failed();
    if (server_gone_ && process != 0 && process != job_.index) {
        server_lost(fmt::format("finished while process {} sends a message to process {}", job_.index, process));
        throw_if_failed();
    }
    post_last(process, payload);
}

void control::post_last(int process, std::string_view payload) {
    if (process == job_.index) {
        frame message{frame_type::message, process, 0, 0, {}, blob(payload)};
        return receive(message);
    }
    if (server_gone_) return;
    channel_->send(frame{frame_type::post, job_.index, 0, static_cast<std::uint64_t>(process), {}, blob(payload)});
}

std::optional<event> control::poll() {
    if (channel_)
        read_available();
    else
        check_launcher();
    if (events_.empty()) return std::nullopt;
    event first = std::move(events_.front());
    events_.pop_front();
    return first;
}

void control::abort(int code, std::string_view message) {
    if (failure_) return;
    frame reason{frame_type::abort, job_.index, 0, static_cast<std::uint64_t>(code), {}, blob(message)};
    if (channel_) return channel_->send(reason);
    reason.type = frame_type::failed;
    reason.label = "aborted";
    receive(reason);
}

void control::report_quiet(std::uint64_t digest) {
    reported_quiet_ = true;
    if (channel_)
        channel_->send(frame{frame_type::quiet, job_.index, sample_round_, digest});
    else if (!failure_ && stalled_->quiet(0, digest, 0) == stall_detector::verdict::stalled)
        events_.push_back({event::kind::stalled});
}

void control::report_busy() {
    // Only the change matters to the control server.
    if (!std::exchange(reported_quiet_, false)) return;
    if (channel_)
        channel_->send(frame{frame_type::busy, job_.index});
    else
        stalled_->busy(0);
}

void control::read_available() {
    channel_->flush();
    channel_->read_available();
    while (auto message = channel_->next()) {
        if (const auto time = server_watch_ ? server_watch_->hear(0) : std::nullopt)
            report_answer(name_server(), *time);
        receive(*message);
    }
    if (channel_->closed()) server_closed();
    check_keep_alive();
    check_launcher();
    beat();
}

// ---- silence --------------------------------------------------------------------------------------------------------

void control::begin_attention() {
    if (attention_++ > 0) return;
    next_beat_ = {};
    beat();
}

void control::end_attention() {
    --attention_;
    end_beats();
}

void control::beat() {
    if (server_watch_ == nullptr || (attention_ == 0 && !in_gather_)) return;
    const auto now = clock::now();
    if (now < next_beat_) return;
    next_beat_ = now + server_watch_->beat();
    if (failure_ || server_gone_) return;
    if (!server_watch_->attends(0)) server_watch_->attend(0, true);
    channel_->send(frame{frame_type::attend, job_.index, 0, 1});
    if (job_.index == 0 || server_watch_->poll().empty()) return; // the control server is a thread of process 0
    if (job_.index > most_reporters) return;
    if (in_gather_)
        report_silent_server(fmt::format(" Process {} waits for it in {}.", job_.index,
                                         waiting_.empty() ? "a collective call" : waiting_.begin()->second));
    else
        events_.push_back({event::kind::asked, 0, {}, 0});
}

void control::end_beats() {
    if (attention_ > 0 || in_gather_ || server_watch_ == nullptr || !server_watch_->attends(0)) return;
    server_watch_->attend(0, false);
    if (!failure_ && !server_gone_) channel_->send(frame{frame_type::attend, job_.index, 0, 0});
}

void control::answer(int process, std::string_view waits) {
    if (failure_ || channel_ == nullptr) return;
    if (process == 0 && job_.index != 0 && server_watch_ && server_watch_->is_missed(0)) {
        std::vector<blob> known(static_cast<std::size_t>(job_.count));
        known[static_cast<std::size_t>(job_.index)] = waits;
        const std::string waiting = describe_ ? describe_(0, known) : "";
        // Else it is asked for again at the next beat.
        if (job_.index == 1 ? is_due(server_watch_->silence_of(0), waiting) : !waiting.empty())
            report_silent_server(waiting);
    } else if (!server_gone_) {
        channel_->send(frame{frame_type::waits, job_.index, 0, static_cast<std::uint64_t>(process), {}, blob(waits)});
    }
}

void control::report_silent_server(const std::string& waiting) {
    server_watch_->set_reported(0);
    report_silence(name_server(), server_watch_->silence_of(0), waiting);
}

std::string control::name_server() const {
    return describe_process(0, server_pid_, server_host_.empty() ? host_name() : server_host_);
}

// ---- what comes -----------------------------------------------------------------------------------------------------

std::string control::describe_launcher_end() const {
    return fmt::format("the launcher of process {}, {}, has ended (DCUDA_WATCH_LAUNCHER=0 lets a job go on without it)",
                       job_.index, launcher_.name());
}

// Each process sees the end of the launcher by itself; those on hosts without a part of the launcher hear of it.
void control::check_launcher() {
    if (failure_ || !launcher_.has_ended()) return;
    const int code = static_cast<int>(error_code::process_lost);
    const std::string reason = describe_launcher_end();
    abort(code, reason);
    if (!failure_) {
        failure_ = event{event::kind::aborted, 0, {}, job_.index, getpid(), code, reason};
        note_failure();
    }
    if (channel_) channel_->flush();
}

void control::check_keep_alive() {
    if (!keep_alive_ || clock::now() < next_keep_alive_poll_) return;
    next_keep_alive_poll_ = clock::now() + keep_alive_poll_interval;
    keep_alive_->read_available();
    if (!keep_alive_->closed()) return;
    // Closed in good order, the other connection has something to say.
    if (keep_alive_->is_unreachable()) server_lost(fmt::format("cannot be reached since {} s", lost_after_));
    keep_alive_.reset();
}

void control::receive(frame& message) {
    switch (message.type) {
    case frame_type::gathered: {
        waiting_.erase(message.id);
        auto parts = decode_parts(message.payload);
        if (message.id >= first_reserved_id)
            blocking_results_.emplace(message.id, std::move(parts));
        else
            events_.push_back({event::kind::gathered, message.id, std::move(parts)});
        break;
    }
    case frame_type::failed:
        if (failure_) break;
        failure_ = event{message.label == "lost" ? event::kind::lost : event::kind::aborted,
                         0,
                         {},
                         message.process,
                         static_cast<pid_t>(message.id),
                         static_cast<int>(message.number),
                         message.payload};
        note_failure();
        break;
    case frame_type::probe:
        sample_round_ = message.number;
        break;
    case frame_type::stalled:
        events_.push_back({event::kind::stalled});
        break;
    case frame_type::ask:
        if (in_gather_)
            answer(message.process, {}); // the control server knows that it is
        else
            events_.push_back({event::kind::asked, 0, {}, message.process});
        break;
    case frame_type::message:
        events_.push_back({event::kind::message, 0, {}, message.process, 0, 0, std::move(message.payload)});
        break;
    case frame_type::closing:
        server_gone_ = true;
        if (!waiting_.empty()) server_closed();
        break;
    default:
        break;
    }
}

// Process 0 finished or its connection ended. If it said so before, only what still waits is concerned.
void control::server_closed() {
    if (channel_->is_unreachable())
        server_lost(fmt::format("cannot be reached since {} s", lost_after_));
    else if (!server_gone_)
        server_lost("ended unexpectedly");
    else if (!waiting_.empty())
        server_lost("finished while the others wait for it in " + waiting_.begin()->second);
}

void control::server_lost(const std::string& description) {
    if (failure_) return;
    const std::string message = describe_process(0, server_pid_, server_host_) + ' ' + description;
    failure_ = event{event::kind::lost, 0, {}, 0, server_pid_, 0, message};
    note_failure();
}

void control::note_failure() {
    events_.push_back(*failure_);
    report_cause(job_, failure_->process);
}

void control::throw_if_failed() const {
    if (!failure_) return;
    if (failure_->type == event::kind::lost) throw error(error_code::process_lost, failure_->message);
    const bool is_error_code = failure_->code >= 0 && failure_->code <= static_cast<int>(error_code::interrupted);
    throw error(is_error_code ? static_cast<error_code>(failure_->code) : error_code::process_lost,
                failure_->process == job_.index
                    ? failure_->message
                    : fmt::format("{} (reported by process {})", failure_->message, failure_->process));
}

} // namespace dcuda::bootstrap
