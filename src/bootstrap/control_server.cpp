// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/control_server.hpp"

#include "bootstrap/local_socket.hpp"
#include "bootstrap/tcp.hpp"
#include "dcuda/config.hpp"
#include "support/check.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

namespace dcuda::bootstrap {

namespace {

using support::check_errno;

constexpr std::chrono::seconds linger{1};
constexpr std::chrono::seconds authentication_time{5}; // for a connection to prove that it belongs to the job
constexpr std::size_t max_unauthenticated = 256;       // connections that have not proved it yet
constexpr std::uint64_t max_hello_bytes = 64 * 1024;
constexpr std::chrono::milliseconds accept_pause{100}; // while no descriptor is left
constexpr std::chrono::seconds shortage_time{2};       // after which none will be
constexpr std::chrono::seconds answer_time{1};         // for what ranks wait for

// "process 3", or "processes 0, 2, 3": those that have given their part.
std::string name_processes(const std::vector<std::optional<blob>>& parts) {
    constexpr std::size_t most = 8;
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < parts.size(); ++i)
        if (parts[i]) found.push_back(i);
    const std::size_t shown = std::min(found.size(), most);
    return fmt::format("{} {}{}", found.size() == 1 ? "Process" : "Processes",
                       fmt::join(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                       found.size() > shown ? fmt::format(" and {} more", found.size() - shown) : "");
}

} // namespace

// ---- stall detector -------------------------------------------------------------------------------------------------

void stall_detector::restart_count() {
    for (state& process : processes_) process.unchanged = 0;
    is_announced_ = false;
}

void stall_detector::busy(int process) {
    processes_[static_cast<std::size_t>(process)].is_quiet = false;
    restart_count();
}

void stall_detector::finished(int process) { processes_[static_cast<std::size_t>(process)].is_finished = true; }

stall_detector::verdict stall_detector::quiet(int process, std::uint64_t digest, std::uint64_t round) {
    state& own = processes_[static_cast<std::size_t>(process)];
    if (!own.is_quiet || own.digest != digest) {
        own.is_quiet = true;
        own.digest = digest;
        restart_count();
        return verdict::moving;
    }
    if (round != round_) return verdict::moving;
    for (const state& other : processes_)
        if (!other.is_quiet && !other.is_finished) return verdict::moving;
    ++own.unchanged;
    const bool is_proof = is_announced_ || processes_.size() == 1;
    for (const state& other : processes_)
        if (other.unchanged < (is_proof ? 2 : 1) && !other.is_finished) return verdict::moving;
    if (is_proof)
        for (state& other : processes_) other.is_quiet = false;
    restart_count();
    if (is_proof) return verdict::stalled;
    ++round_;
    is_announced_ = true;
    return verdict::announce;
}

// ---- control server -------------------------------------------------------------------------------------------------

control_server::control_server(const job& own_job, std::string_view identity, control_listener listener,
                               descriptor own_connection, const time_limits& limits, wait_description describe)
    : job_(own_job), identity_(identity), limits_(limits), listener_(std::move(listener)),
      wake_(check_errno(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), "cannot create an eventfd")),
      deadline_(clock::now() + std::chrono::milliseconds(static_cast<long>(std::min(limits.connect, 1e9) * 1000))),
      members_(static_cast<std::size_t>(own_job.count)), descriptors_(support::allow_descriptors(0)),
      random_(std::random_device{}()), stalled_(own_job.count), silence_(own_job.count, limits.silent_after),
      describe_(describe) {
    clients_.push_back(std::make_unique<client>(client{channel(std::move(own_connection)), getpid()}));
    // The thread inherits the mask: signals are for the program's own threads.
    sigset_t every_signal, mask_before;
    sigfillset(&every_signal);
    pthread_sigmask(SIG_SETMASK, &every_signal, &mask_before);
    try {
        thread_ = std::thread([this] { run(); });
    } catch (...) {
        pthread_sigmask(SIG_SETMASK, &mask_before, nullptr);
        throw;
    }
    pthread_sigmask(SIG_SETMASK, &mask_before, nullptr);
}

control_server::~control_server() {
    eventfd_write(wake_.get(), 1);
    thread_.join();
}

void control_server::run() noexcept {
    try {
        serve();
    } catch (const std::exception& problem) {
        // No process can be served any more. The closed connections show the rest, if this cannot be sent.
        try {
            end_for(fmt::format("the control server in process 0 failed: {}", problem.what()));
        } catch (...) {
        }
    }
    clients_.clear();
    listener_.socket = descriptor();
}

// Sends all processes that are here the reason why the job does not go on.
void control_server::end_for(const std::string& reason) {
    if (stage_ == stage::running)
        fail_job(event::kind::aborted, 0, static_cast<int>(error_code::out_of_resources), reason);
    else if (stage_ == stage::assembling)
        refuse(reason);
    const frame rejected{frame_type::rejected, -1, 0, 0, {}, reason};
    for (const auto& each : clients_) {
        if (stage_ == stage::refused && each->index < 0 && !each->authentication)
            each->link.send(rejected); // before its hello
        each->link.flush();
    }
}

bool control_server::may_leave() const {
    if (!ending_) return false;
    const bool all_informed = present_ == job_.count || refused_count_ >= job_.count;
    return (all_informed && clients_.empty()) || clock::now() >= deadline_;
}

int control_server::poll_timeout_ms() const {
    auto next = stage_ == stage::assembling || ending_ ? deadline_ : clock::time_point::max();
    for (const auto& each : clients_)
        if (each->index < 0) next = std::min(next, each->deadline);
    if (short_since_) next = std::min(next, next_accept_);
    if (stage_ == stage::running && !failed_) next = std::min(next, silence_.next_poll());
    if (question_) next = std::min(next, question_->deadline);
    if (next == clock::time_point::max()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - clock::now()).count();
    return static_cast<int>(std::clamp<long>(left, 0, 60'000));
}

void control_server::serve() {
    std::vector<pollfd> polled;
    while (!may_leave()) {
        const bool accepts = !short_since_ || clock::now() >= next_accept_;
        polled.assign({{wake_.get(), POLLIN, 0}, {accepts ? listener_.socket.get() : -1, POLLIN, 0}});
        for (const auto& each : clients_)
            polled.push_back(
                {each->link.fd(), static_cast<short>(POLLIN | (each->link.has_unsent() ? POLLOUT : 0)), 0});
        if (::poll(polled.data(), polled.size(), poll_timeout_ms()) < 0 && errno != EINTR)
            support::fail_errno(errno, "poll");

        if (polled[0].revents != 0 && !ending_) {
            eventfd_t ignored;
            eventfd_read(wake_.get(), &ignored);
            ending_ = true;
            deadline_ = clock::now() + linger;
            // Process 0 left before the job was complete (its constructor failed): no further process may join.
            if (stage_ == stage::assembling) refuse("process 0 ended before all processes had appeared");
        }
        for (std::size_t i = 2; i < polled.size(); ++i) {
            client& each = *clients_[i - 2];
            if (polled[i].revents & POLLOUT) each.link.flush();
            if (polled[i].revents & ~POLLOUT) read_from(each);
        }
        drop_overdue_peers();
        check_for_silence();
        std::erase_if(clients_, [](const auto& each) { return each->gone; });
        if (polled[1].revents != 0 && listener_.socket.get() >= 0) accept_new();
        if (stage_ == stage::assembling && clock::now() >= deadline_)
            refuse(fmt::format("{} of {} did not appear within {} s (DCUDA_CONNECT_TIMEOUT); check that every process "
                               "was started and got as far as this{}",
                               missing_processes(), job_.count, limits_.connect, connection_hint()));
    }
    broadcast({frame_type::closing});
}

void control_server::accept_new() {
    const int problem = accept_some(listener_.socket, [this](descriptor socket) {
        add_client(std::move(socket));
        return true;
    });
    if (problem != 0) return cannot_accept(problem);
    short_since_.reset();
}

// Without descriptors an unauthenticated peer goes, or the next process of the job must wait until there are some.
void control_server::cannot_accept(int problem) {
    constexpr std::array passing{EMFILE, ENFILE, ENOBUFS, ENOMEM};
    if (std::ranges::find(passing, problem) == passing.end())
        support::fail_errno(problem, "cannot accept a process of the job");
    if (drop_an_unauthenticated_peer()) return;
    const auto now = clock::now();
    next_accept_ = now + accept_pause;
    if (!short_since_) short_since_ = now;
    if (stage_ == stage::assembling && now >= *short_since_ + shortage_time)
        refuse(fmt::format("process 0 cannot accept {}: {}; it may have {} descriptors: raise `ulimit -n` there",
                           missing_processes(), std::strerror(problem), descriptors_));
}

void control_server::add_client(descriptor socket) {
    if (!listener_.key) {
        const local_peer peer = peer_of(socket.get());
        if (!peer.is_same_user) return;
        clients_.push_back(std::make_unique<client>(client{channel(std::move(socket)), peer.pid}));
        clients_.back()->link.expect_payload(max_hello_bytes);
        return;
    }
    // Anybody who reaches the socket can open connections: some descriptors must be left for the process itself.
    const auto unauthenticated = static_cast<std::size_t>(std::ranges::count_if(clients_, is_unauthenticated));
    if (unauthenticated >= std::clamp<std::size_t>(descriptors_ / 4, 8, max_unauthenticated))
        drop_an_unauthenticated_peer();
    set_up_connection(socket.get(), limits_.lost_after);
    auto fresh = std::make_unique<client>(client{channel(std::move(socket))});
    fresh->link.expect_payload(max_hello_bytes);
    fresh->authentication.emplace(handshake::side::server, *listener_.key);
    fresh->deadline = clock::now() + authentication_time;
    authenticate(*fresh); // sends the greeting; a quick peer may even be authenticated by now
    clients_.push_back(std::move(fresh));
}

// One unauthenticated peer must go, and a random one: if it were always the oldest, a process that is a little slower
// than others connect would never get in.
bool control_server::drop_an_unauthenticated_peer() {
    std::vector<std::size_t> unauthenticated;
    for (std::size_t i = 0; i < clients_.size(); ++i)
        if (is_unauthenticated(clients_[i])) unauthenticated.push_back(i);
    if (unauthenticated.empty()) return false;
    clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(unauthenticated[random_() % unauthenticated.size()]));
    ++unauthenticated_;
    return true;
}

void control_server::drop_overdue_peers() {
    for (const auto& each : clients_)
        if (each->index < 0 && !each->gone && clock::now() >= each->deadline) {
            each->gone = true;
            ++unauthenticated_;
        }
}

void control_server::read_from(client& peer) {
    if (peer.gone || !authenticate(peer)) return;
    peer.link.read_available();
    while (!peer.gone) {
        auto message = peer.link.next();
        if (!message) break;
        receive(peer, *message);
    }
    if (!peer.gone && peer.link.closed()) disconnected(peer);
}

bool control_server::authenticate(client& peer) {
    if (!peer.authentication) return true;
    const auto state = peer.authentication->advance(peer.link.fd());
    if (state == handshake::state::done) {
        peer.authentication.reset();
        peer.deadline = clock::time_point::max(); // it belongs here, and may still be busy with its other connection
    }
    if (state == handshake::state::refused) {
        peer.gone = true;
        ++unauthenticated_;
    }
    return state == handshake::state::done;
}

void control_server::receive(client& peer, frame& message) {
    if (message.type == frame_type::hello && peer.index < 0) return receive_hello(peer, message);
    if (message.type == frame_type::keep_alive && peer.index < 0) return receive_keep_alive(peer, message);
    if (!peer.is_member()) return; // refused; it will go
    if (question_ && question_->silent == peer.index) question_.reset();
    if (const auto time = silence_.hear(peer.index)) report_answer(name_with_host(peer.index), *time);
    switch (message.type) {
    case frame_type::gather:
        receive_gather(peer, message);
        break;
    case frame_type::post:
        forward(peer, message);
        break;
    case frame_type::abort:
        fail_job(event::kind::aborted, peer.index, static_cast<int>(message.number), message.payload);
        break;
    case frame_type::quiet:
        if (failed_) break;
        switch (stalled_.quiet(peer.index, message.number, message.id)) {
        case stall_detector::verdict::moving:
            break;
        case stall_detector::verdict::announce:
            broadcast({frame_type::probe, -1, 0, stalled_.round()});
            break;
        case stall_detector::verdict::stalled:
            broadcast({frame_type::stalled});
            break;
        }
        break;
    case frame_type::busy:
        stalled_.busy(peer.index);
        break;
    case frame_type::attend:
        silence_.attend(peer.index, message.number != 0);
        if (message.number != 0) peer.link.send(frame{frame_type::heard});
        break;
    case frame_type::waits:
        receive_answer(peer, message);
        break;
    case frame_type::goodbye:
        peer.gone = true;
        silence_.attend(peer.index, false);
        member_of(peer).has_finished = true;
        stalled_.finished(peer.index);
        for (const auto& [id, gather] : gathers_) check_finished(gather);
        break;
    default:
        break;
    }
}

void control_server::receive_hello(client& peer, const frame& message) {
    auto reject = [&](const std::string& reason) {
        peer.link.send(frame{frame_type::rejected, -1, 0, 0, {}, reason});
        ++refused_count_;
    };
    if (stage_ == stage::refused) return reject(refusal_);

    std::vector<blob> parts;
    try {
        parts = decode_parts(message.payload);
    } catch (const error&) { // no process of this job sends that
        peer.gone = true;
        return;
    }
    const int index = message.process;
    const std::string host = parts.size() > 2 ? parts[2] : "";
    if (listener_.key) peer.pid = static_cast<pid_t>(message.id);
    const std::string description = describe_process(index, peer.pid, host);
    const bool is_valid = index >= 0 && index < job_.count;
    const bool is_of_job = listener_.key || (parts.size() >= 2 && parts[1] == job_.key);
    std::string problem;
    if (message.label != DCUDA_VERSION_STRING)
        problem = fmt::format("{} uses dCUDA {}, process 0 uses dCUDA {}: run the same build everywhere", description,
                              message.label, DCUDA_VERSION_STRING);
    else if (!is_of_job || parts.empty())
        return reject(fmt::format("{} belongs to another job", description));
    else if (message.number != static_cast<std::uint64_t>(job_.count))
        problem = fmt::format("{} was started as one of {} processes, process 0 as one of {}: start all processes of a "
                              "job with one launcher call",
                              description, message.number, job_.count);
    else if (!is_valid)
        problem = fmt::format("{} has an index outside a job of {} processes", description, job_.count);
    else if (parts[0] != identity_)
        problem = fmt::format("{} is \"{}\", process 0 is \"{}\": run the same build everywhere", description, parts[0],
                              identity_);
    else if (const member& other = members_[static_cast<std::size_t>(index)]; other.pid != 0)
        problem = fmt::format("two processes, {} and {}, claim index {} of the job",
                              describe_pid(other.pid, other.host), describe_pid(peer.pid, host), index);

    if (!problem.empty()) {
        reject(problem);
        // A job that is complete goes on, since the newcomer is wrong; so does a job that the newcomer is not part of.
        if (stage_ == stage::assembling && is_of_job) refuse(problem);
        return;
    }
    peer.link.expect_payload(channel::largest_payload);
    peer.index = index;
    member_of(peer).pid = peer.pid;
    member_of(peer).host = host;
    ++present_;
    start_if_complete();
}

void control_server::receive_keep_alive(client& peer, const frame& message) {
    if (!listener_.key) { // on one host no process has a keep-alive connection
        peer.gone = true;
        return;
    }
    // Which of two processes claims an index wrongly, hello finds out.
    if (message.process < 0 || message.process >= job_.count) return;
    peer.index = message.process;
    peer.is_keep_alive = true;
    set_up_keep_alive(peer.link.fd(), limits_.lost_after);
    if (std::exchange(member_of(peer).has_keep_alive, true)) return;
    ++keep_alives_;
    start_if_complete();
}

void control_server::start_if_complete() {
    if (stage_ != stage::assembling || present_ < job_.count) return;
    if (listener_.key) {
        if (keep_alives_ < job_.count - 1) return;
        // No further process may connect.
        listener_.socket = descriptor();
        for (const auto& each : clients_) each->gone = each->gone || each->index < 0;
    }
    stage_ = stage::running;
    broadcast({frame_type::welcome, 0, static_cast<std::uint64_t>(members_[0].pid), 0, members_[0].host});
}

void control_server::receive_gather(client& peer, frame& message) {
    if (failed_) return;
    auto [entry, is_first] = gathers_.try_emplace(message.id);
    pending_gather& gather = entry->second;
    if (is_first) {
        gather.label = message.label;
        gather.first = peer.index;
        gather.root = message.number;
        gather.parts.resize(static_cast<std::size_t>(job_.count));
    }
    auto& part = gather.parts[static_cast<std::size_t>(peer.index)];
    if (gather.label != message.label || gather.root != message.number || part)
        return fail_job(event::kind::aborted, peer.index, static_cast<int>(error_code::invalid_argument),
                        part ? fmt::format("{} started {} twice", name(peer.index), message.label)
                             : fmt::format("{} is in {} while {} is in {}: all processes must make the same collective "
                                           "calls in the same order",
                                           name(peer.index), message.label, name(gather.first), gather.label));
    part = std::move(message.payload);
    if (++gather.arrived < job_.count) return check_finished(gather);

    std::vector<blob> parts;
    for (auto& each : gather.parts) parts.push_back(std::move(*each));
    const std::uint64_t root = gather.root;
    gathers_.erase(entry);
    if (root == 0) return broadcast({frame_type::gathered, -1, message.id, 0, {}, encode_parts(parts)});
    for (const auto& each : clients_)
        if (each->is_member())
            each->link.send(frame{frame_type::gathered,
                                  -1,
                                  message.id,
                                  0,
                                  {},
                                  static_cast<std::uint64_t>(each->index) + 1 == root ? encode_parts(parts) : blob()});
}

// Also in a job that has failed: what its processes still have to send each other.
void control_server::forward(const client& sender, frame& message) {
    for (const auto& each : clients_)
        if (each->is_member() && static_cast<std::uint64_t>(each->index) == message.number)
            each->link.send(frame{frame_type::message, sender.index, 0, 0, {}, std::move(message.payload)});
}

void control_server::disconnected(client& peer) {
    peer.gone = true;
    if (peer.index < 0 || stage_ == stage::refused || member_of(peer).has_finished) return;
    if (peer.is_keep_alive && !peer.link.is_unreachable()) return; // its other connection reports the same
    const std::string message =
        name(peer.index) + (peer.link.is_unreachable()
                                ? fmt::format(" cannot be reached since {} s", limits_.lost_after)
                                : " ended unexpectedly");
    if (stage_ == stage::assembling)
        refuse(message + " while the job was starting", peer.index);
    else
        fail_job(event::kind::lost, peer.index, 0, message);
}

void control_server::check_finished(const pending_gather& gather) {
    for (std::size_t i = 0; i < members_.size(); ++i)
        if (members_[i].has_finished && !gather.parts[i])
            return fail_job(
                event::kind::lost, static_cast<int>(i), 0,
                fmt::format("{} finished while the others wait for it in {}", name(static_cast<int>(i)), gather.label));
}

// ---- silence --------------------------------------------------------------------------------------------------------

void control_server::check_for_silence() {
    if (stage_ != stage::running || failed_ || !silence_.is_on()) return;
    if (question_ && clock::now() >= question_->deadline) report_silent_process();
    const std::vector<int> silent = silence_.poll();
    if (!question_ && !silent.empty()) { // in turn, as a process that nobody waits for is asked for again
        const auto next = std::ranges::find_if(silent, [&](int process) { return process > last_asked_; });
        const int process = next != silent.end() ? *next : silent.front();
        return ask_about(process, silence_.silence_of(process));
    }
    // A process that the others wait for in a collective call may compute as long as it likes. The system shows
    // whether a process of this host is stopped.
    if (question_ || listener_.key) return;
    for (const auto& [id, gather] : gathers_) {
        const auto time = clock::now() - gather.begin;
        if (time < silence_.after()) continue;
        for (int process = 1; process < job_.count; ++process)
            if (!gather.parts[static_cast<std::size_t>(process)] && !silence_.attends(process) &&
                !silence_.is_reported(process) && is_stopped(members_[static_cast<std::size_t>(process)].pid))
                return ask_about(process, time);
    }
}

void control_server::ask_about(int process, clock::duration time) {
    last_asked_ = process;
    question_ = question{process, time, clock::now() + std::min<clock::duration>(silence_.beat(), answer_time), 0,
                         std::vector<blob>(static_cast<std::size_t>(job_.count))};
    for (const auto& each : clients_) {
        if (!each->is_member() || each->index == process || !silence_.attends(each->index)) continue;
        each->link.send(frame{frame_type::ask, process});
        ++question_->open;
    }
    if (question_->open == 0) report_silent_process();
}

void control_server::receive_answer(const client& peer, frame& message) {
    if (!question_ || message.number != static_cast<std::uint64_t>(question_->silent)) return;
    question_->answers[static_cast<std::size_t>(peer.index)] = std::move(message.payload);
    if (--question_->open == 0) report_silent_process();
}

void control_server::report_silent_process() {
    const question asked = *std::exchange(question_, std::nullopt);
    std::string waiting = describe_ ? describe_(asked.silent, asked.answers) : "";
    for (const auto& [id, gather] : gathers_) {
        if (gather.parts[static_cast<std::size_t>(asked.silent)]) continue;
        waiting += fmt::format(" {} wait{} for it in {}.", name_processes(gather.parts), gather.arrived == 1 ? "s" : "",
                               gather.label);
    }
    if (!is_due(asked.time, waiting)) return; // it is asked for again at the next poll
    silence_.set_reported(asked.silent);
    report_silence(name_with_host(asked.silent), asked.time, waiting);
}

std::string control_server::name_with_host(int process) const {
    const member& one = members_[static_cast<std::size_t>(process)];
    return describe_process(process, one.pid, one.host.empty() ? host_name() : one.host);
}

// ---- words ----------------------------------------------------------------------------------------------------------

std::string control_server::name(int process) const {
    const member& one = members_[static_cast<std::size_t>(process)];
    return describe_process(process, one.pid, one.host);
}

// The second half of the message that processes are missing.
std::string control_server::connection_hint() const {
    if (!listener_.key) return ", and runs on this host";
    return fmt::format(
        " and that its host reaches this one{}",
        unauthenticated_ == 0
            ? ""
            : fmt::format("; {} connections were refused because they did not prove to belong to this job",
                          unauthenticated_));
}

std::string control_server::missing_processes() const {
    constexpr int max_listed = 8;
    std::string list;
    int missing = 0;
    for (std::size_t i = 0; i < members_.size(); ++i)
        if (members_[i].pid == 0 && ++missing <= max_listed) list += fmt::format("{}{}", missing > 1 ? ", " : "", i);
    if (missing > max_listed) list += fmt::format(" and {} more", missing - max_listed);
    return (missing == 1 ? "process " : "processes ") + list;
}

void control_server::refuse(const std::string& reason, int culprit) {
    stage_ = stage::refused;
    refusal_ = reason;
    for (const auto& each : clients_) {
        if (!each->is_member()) continue;
        each->link.send(frame{frame_type::rejected, culprit, 0, 0, {}, reason});
        ++refused_count_;
    }
}

void control_server::fail_job(event::kind type, int process, int code, const std::string& message) {
    if (std::exchange(failed_, true)) return;
    const bool is_lost = type == event::kind::lost;
    broadcast({frame_type::failed, process, static_cast<std::uint64_t>(members_[static_cast<std::size_t>(process)].pid),
               static_cast<std::uint64_t>(code), is_lost ? "lost" : "aborted", message});
}

void control_server::broadcast(const frame& message) {
    const auto encoded = std::make_shared<const std::string>(encode(message));
    for (const auto& each : clients_)
        if (each->is_member()) each->link.send(encoded);
}

} // namespace dcuda::bootstrap
