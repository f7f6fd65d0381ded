// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/live_view.hpp"

#include "bootstrap/local_socket.hpp"
#include "bootstrap/tcp.hpp"
#include "dcuda/config.hpp"
#include "support/check.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <sys/socket.h>
#include <unistd.h>

namespace dcuda {

using detail::wait_record;

// What has the same names in JSON.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(path_statistics, puts, notified_puts, notifications, bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(sent_messages, local, peer, network)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(snapshot, version, backend, program, host, device, job, pid, process, processes,
                                   processes_here, ranks_per_device, ranks_per_block, run, run_seconds)

namespace {

std::string short_hash(const std::string& text) {
    std::uint32_t hash = 2166136261u; // FNV-1a
    for (const unsigned char c : text) hash = (hash ^ c) * 16777619u;
    return fmt::format("{:08x}", hash);
}

// Only a time may be no whole number: others might not fit into the integers that they are read as.
nlohmann::json parse_snapshot(const std::string& text) {
    using event_of = nlohmann::json::parse_event_t;
    bool is_time = false;
    return nlohmann::json::parse(text, [&](int, event_of event, const nlohmann::json& value) {
        if (event == event_of::key) is_time = value == "run_seconds";
        if (event == event_of::value && value.is_number_float() && !is_time)
            throw std::runtime_error("it has a number that is not whole");
        return true;
    });
}

} // namespace

// Ranks are many: theirs without names.
std::string snapshot::to_json() const {
    nlohmann::json report = *this;
    report["dcuda_top"] = format;
    report["waits"] = nlohmann::json::array();
    for (const wait_record& wait : waits)
        report["waits"].push_back({static_cast<std::uint32_t>(wait.kind), static_cast<std::uint32_t>(wait.where),
                                   wait.detail, wait.expected, wait.seen, wait.source, wait.age_ms, wait.tags});
    report["sent"] = sent ? nlohmann::json(*sent) : nlohmann::json();
    return report.dump(-1, ' ', false,
                       nlohmann::json::error_handler_t::replace); // names may hold any bytes; JSON may not
}

snapshot snapshot::from_json(const std::string& text) {
    const nlohmann::json from = parse_snapshot(text);
    if (const int theirs = from.at("dcuda_top"); theirs != format)
        throw std::runtime_error(fmt::format("it is of version {}, this dcuda-top of {}",
                                             from.value("version", std::string("?")), DCUDA_VERSION_STRING));
    snapshot result = from.get<snapshot>();
    for (const nlohmann::json& each : from.at("waits")) {
        wait_record wait{};
        wait.kind = static_cast<detail::waiting>(each.at(0).get<std::uint32_t>());
        wait.where = static_cast<detail::operation>(each.at(1).get<std::uint32_t>());
        each.at(2).get_to(wait.detail);
        each.at(3).get_to(wait.expected);
        each.at(4).get_to(wait.seen);
        each.at(5).get_to(wait.source);
        each.at(6).get_to(wait.age_ms);
        each.at(7).get_to(wait.tags);
        result.waits.push_back(wait);
    }
    if (const nlohmann::json& all = from.at("sent"); !all.is_null()) result.sent = all.get<sent_messages>();
    return result;
}

std::string live_address(uid_t user, pid_t pid) { return fmt::format("{}{}/{}", live_prefix, user, pid); }

live_view::live_view(const bootstrap::job& job, std::string device_name) {
    about_.version = DCUDA_VERSION_STRING;
    about_.backend = DCUDA_BACKEND_CUDA ? "cuda" : "cpu";
    about_.program = program_invocation_short_name;
    about_.host = bootstrap::host_name();
    about_.device = std::move(device_name);
    about_.job = short_hash(job.key);
    about_.pid = getpid();
    about_.process = job.index;
    about_.processes = job.count;
    about_.processes_here = job.local_count;
    try {
        listener_ = bootstrap::listen_local(live_address(geteuid(), getpid()));
    } catch (const error&) {
        // Another runtime of this process has the name, or there are no descriptors left: then this one is not seen.
    }
}

void live_view::begin_run(int ranks_per_device, int ranks_per_block) {
    about_.ranks_per_device = static_cast<std::uint32_t>(ranks_per_device);
    about_.ranks_per_block = static_cast<std::uint32_t>(ranks_per_block);
    ++about_.run;
    run_start_ = clock::now();
}

bool live_view::poll() {
    if (listener_.get() < 0) return false;
    const auto now = clock::now();
    if (now < next_look_) return false;
    next_look_ = now + look_interval;
    if (readers_.size() < most_readers)
        bootstrap::accept_some(listener_, [this](support::descriptor socket) {
            ucred peer{};
            socklen_t length = sizeof peer;
            const bool is_known = getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0;
            if (is_known && (peer.uid == geteuid() || peer.uid == 0))
                readers_.push_back({std::move(socket), nullptr, 0, {}});
            return readers_.size() < most_readers;
        });
    bool any_waits = false;
    std::erase_if(readers_, [&](reader& each) {
        any_waits = any_waits || !each.text;
        return each.text && is_finished(each, now);
    });
    return any_waits;
}

void live_view::answer(std::vector<wait_record> waits, const std::optional<sent_messages>& sent) {
    const auto now = clock::now();
    about_.waits = std::move(waits);
    about_.sent = sent;
    about_.run_seconds = std::chrono::duration<double>(now - run_start_).count();
    const auto text = std::make_shared<const std::string>(about_.to_json());
    std::erase_if(readers_, [&](reader& each) {
        if (!each.text) {
            each.text = text;
            each.deadline = now + patience;
        }
        return is_finished(each, now);
    });
    next_look_ = now + answer_interval;
}

// Sends what the socket takes. True if all is sent, or nobody will read it.
bool live_view::is_finished(reader& caller, clock::time_point now) {
    while (caller.sent < caller.text->size()) {
        const ssize_t sent = send(caller.socket.get(), caller.text->data() + caller.sent,
                                  caller.text->size() - caller.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return (errno != EAGAIN && errno != EWOULDBLOCK) || now >= caller.deadline;
        caller.sent += static_cast<std::size_t>(sent);
        caller.deadline = now + patience;
    }
    return true;
}

} // namespace dcuda
