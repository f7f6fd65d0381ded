// SPDX-License-Identifier: BSD-3-Clause
#include "trace/trace_file.hpp"

#include "support/check.hpp"
#include "support/descriptor.hpp"
#include "support/losses.hpp"
#include "trace/timeline.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <stdio_ext.h>
#include <unistd.h>
#include <utility>

namespace dcuda {

using namespace detail;

namespace {

constexpr std::size_t buffered_bytes = 1 << 20;

const char* name_of(activity kind) {
    switch (kind) {
    case activity::putting:
        return "putting";
    case activity::waiting:
        return "waiting";
    case activity::collective:
        return "collective";
    case activity::computing:
        break;
    }
    return "computing";
}

const char* name_of(event_path path) {
    switch (path) {
    case event_path::local:
        return "local";
    case event_path::peer:
        return "peer";
    case event_path::network:
        return "network";
    default:
        return "none";
    }
}

const char* name_of(host_event_kind kind) {
    switch (kind) {
    case host_event_kind::window:
        return "open window";
    case host_event_kind::network_put:
        return "network put";
    case host_event_kind::delivery:
        return "delivery";
    case host_event_kind::fragment_sent:
        return "fragment sent";
    case host_event_kind::fragment_arrived:
        return "fragment arrived";
    }
    return "?";
}

std::string quoted(const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// What belongs to an operation, as members of "args".
std::string arguments_of(const slice& shown) {
    std::string text;
    const auto add = [&](const char* name, const auto& value) {
        fmt::format_to(std::back_inserter(text), "{}\"{}\":{}", text.empty() ? "" : ",", name, value);
    };
    // Of a message that was under way when the run failed nothing is known.
    const std::uint32_t all_operands = traits_of(shown.kind).operands;
    const std::uint32_t operands = shown.unfinished && (all_operands & operand::target) != 0 ? 0 : all_operands;
    if ((operands & operand::target) != 0) {
        add("target", shown.peer);
        add("path", fmt::format("\"{}\"", name_of(shown.path)));
    }
    if ((operands & operand::tag) != 0) add("tag", shown.tag);
    if ((operands & operand::tag) != 0 && (operands & operand::target) != 0)
        add("through_mailbox", shown.through_mailbox);
    if ((operands & operand::count) != 0) add("count", shown.peer);
    if ((operands & operand::source) != 0) add("source", shown.bytes);
    if ((operands & operand::bytes) != 0) add("bytes", shown.bytes);
    if ((operands & operand::window) != 0 && shown.window != 0) add("window", shown.window - 1);
    if ((operands & operand::communicator) != 0)
        add("of", static_cast<communicator>(shown.tag) == world ? "\"world\"" : "\"device\"");
    if ((operands & operand::multiprocessor) != 0) add("multiprocessor", shown.window);
    if (shown.unfinished) add("unfinished", true);
    return text;
}

} // namespace

// Writes events one by one; the file may be much larger than memory.
class trace_file::json_writer {
public:
    json_writer(trace_file& output, bool is_first) : to_(output), is_first_(is_first) {}

    // Microseconds with three digits: nanoseconds since the origin.
    std::string time(std::int64_t ns) const {
        const std::int64_t since = ns - static_cast<std::int64_t>(to_.origin_ns_);
        const std::int64_t size = since < 0 ? -since : since;
        return fmt::format("{}{}.{:03}", since < 0 ? "-" : "", size / 1000, size % 1000);
    }

    template <class... Args>
    void event(fmt::format_string<Args...> format, Args&&... args) {
        text_ += is_first_ ? "\n" : ",\n";
        is_first_ = false;
        fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
        if (text_.size() >= buffered_bytes) flush();
    }

    void complete_event(const std::string& name, const char* category, int process, int thread, std::int64_t begin_ns,
                        std::int64_t end_ns, const std::string& arguments) {
        event(R"({{"name":{},"cat":"{}","ph":"X","pid":{},"tid":{},"ts":{},"dur":{}.{:03},"args":{{{}}}}})",
              quoted(name), category, process, thread, time(begin_ns), (end_ns - begin_ns) / 1000,
              (end_ns - begin_ns) % 1000, arguments);
    }

    void flush() {
        if (std::fwrite(text_.data(), 1, text_.size(), to_.file_.get()) != text_.size())
            support::fail_errno(errno, "writing the timeline " + to_.path_);
        text_.clear();
    }

private:
    trace_file& to_;
    bool is_first_;
    std::string text_;
};

std::FILE* open_output(const std::string& path, const char* content, const char* variable) {
    support::descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666));
    support::require(file.get() >= 0, error_code::invalid_argument, "the {} {} ({}) cannot be written: {}", content,
                     path, variable, errno == ENXIO ? "nobody reads that pipe; name a file" : std::strerror(errno));
    fcntl(file.get(), F_SETFL, fcntl(file.get(), F_GETFL) & ~O_NONBLOCK);
    std::FILE* const stream = fdopen(file.get(), "w");
    support::require(stream != nullptr, error_code::out_of_resources, "the {} {}: {}", content, path,
                     std::strerror(errno));
    file.release();
    return stream;
}

trace_file::trace_file(const std::string& path, std::uint64_t origin_ns, std::vector<std::int64_t> clocks)
    : path_(path), file_(open_output(path, "timeline", "DCUDA_TRACE")), origin_ns_(origin_ns),
      clocks_(std::move(clocks)), is_named_(clocks_.size()) {
    // After each run the end is written again.
    support::require(std::fseek(file_.get(), 0, SEEK_SET) == 0, error_code::invalid_argument,
                     "the timeline {} (DCUDA_TRACE) cannot be written: it is a pipe or a terminal; name a file", path);
    append({});
}

trace_file::~trace_file() = default;

void trace_file::append(const std::vector<process_profile>& parts) {
    const support::file_limit_as_error instead_of_signal;
    const long end = end_;
    try {
        write(parts);
    } catch (...) {
        restore(end);
        throw;
    }
}

// As it was after the run before: its end was overwritten, but the room for it is there also on a full disk.
void trace_file::restore(long end) noexcept {
    __fpurge(file_.get());
    const int file = fileno(file_.get());
    const auto whole = end + static_cast<long>(closing_.size());
    if (closing_.empty() ||
        pwrite(file, closing_.data(), closing_.size(), end) != static_cast<ssize_t>(closing_.size()))
        return;
    [[maybe_unused]] const int cut = ftruncate(file, whole);
}

void trace_file::write(const std::vector<process_profile>& parts) {
    if (end_ == 0) {
        std::fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", file_.get());
        end_ = std::ftell(file_.get());
    }
    const bool is_first = !std::count(is_named_.begin(), is_named_.end(), true);
    std::fseek(file_.get(), end_, SEEK_SET);
    json_writer out(*this, is_first);

    std::vector<rank_timeline> ranks;
    for (const process_profile& part : parts) {
        const auto process = static_cast<std::size_t>(part.about.process);
        const std::int64_t clock = clocks_.at(process);
        std::vector<rank_timeline> more = make_timelines(part, clock);
        const auto first = static_cast<std::ptrdiff_t>(ranks.size());
        std::move(more.begin(), more.end(), std::back_inserter(ranks));
        if (!is_named_[process]) {
            is_named_[process] = true;
            out.event(R"({{"name":"process_name","ph":"M","pid":{0},"tid":0,"args":{{"name":"process {0}"}}}})",
                      process);
            out.event(R"({{"name":"thread_name","ph":"M","pid":{},"tid":0,"args":{{"name":"host"}}}})", process);
            for (int rank = 0; rank < part.about.ranks; ++rank)
                out.event(R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":"rank {}"}}}})", process,
                          rank + 1, part.about.first_rank + rank);
        }
        const int pid = part.about.process;
        const auto host_time = [&](std::uint64_t ns) { return static_cast<std::int64_t>(ns) + clock; };
        out.complete_event(fmt::format("run {}", part.about.run), "host", pid, 0, host_time(part.about.begin_ns),
                           host_time(part.about.end_ns),
                           part.failure.empty() ? fmt::format("\"kernel_ms\":{:.6f}", part.about.kernel_ms)
                                                : fmt::format("\"failure\":{}", quoted(part.failure)));
        for (const host_event& event : part.host_events) {
            std::string arguments;
            if (event.kind == host_event_kind::window)
                arguments = fmt::format("\"window\":{}", event.tag);
            else if (event.kind == host_event_kind::network_put || event.kind == host_event_kind::delivery)
                arguments =
                    fmt::format("\"rank\":{},\"process\":{},\"bytes\":{}", event.rank, event.process, event.bytes) +
                    (event.tag == no_tag ? "" : fmt::format(",\"tag\":{}", event.tag));
            else
                arguments = fmt::format("\"process\":{}", event.process);
            out.complete_event(name_of(event.kind), "host", pid, 0, host_time(event.begin_ns), host_time(event.end_ns),
                               arguments);
        }
        for (const power_sample& sample : part.power)
            out.event(R"({{"name":"power of the device","ph":"C","pid":{},"tid":0,"ts":{},"args":{{"watts":{:.1f}}}}})",
                      pid, out.time(host_time(sample.host_ns)), sample.watts);
        for (auto rank = ranks.begin() + first; rank != ranks.end(); ++rank)
            for (const slice& each : rank->slices) {
                const operation_traits& traits = traits_of(each.kind);
                const bool is_kernel = !each.is_range && each.kind == operation::none;
                out.complete_event(each.is_range ? each.name
                                   : is_kernel   ? "kernel"
                                                 : traits.name,
                                   each.is_range ? "range"
                                   : is_kernel   ? "kernel"
                                                 : name_of(traits.kind),
                                   pid, rank->rank - part.about.first_rank + 1, each.begin_ns, each.end_ns,
                                   arguments_of(each));
            }
        std::uint64_t dropped = part.about.host_drops;
        std::string by_rank;
        for (auto rank = ranks.begin() + first; rank != ranks.end(); ++rank) {
            if (rank->dropped == 0) continue;
            dropped += rank->dropped;
            by_rank += fmt::format("{}\"{}\":{}", by_rank.empty() ? "" : ",", rank->rank, rank->dropped);
        }
        dropped_ += dropped;
        runs_ += fmt::format("{}{{\"run\":{},\"process\":{},\"first_rank\":{},\"ranks\":{},\"kernel_ms\":{:.6f},"
                             "\"dropped\":{},\"dropped_by_rank\":{{{}}},\"failure\":{},\"missing\":{}}}",
                             runs_.empty() ? "\n" : ",\n", part.about.run, pid, part.about.first_rank, part.about.ranks,
                             part.about.kernel_ms, dropped, by_rank, quoted(part.failure), quoted(part.missing));
    }

    for (const arrow& from : match_notifications(ranks)) {
        const rank_timeline &source = ranks[from.source], &target = ranks[from.target];
        const slice &issued = source.slices[from.source_slice], &wait = target.slices[from.target_slice];
        const auto thread_of = [&](const rank_timeline& rank) {
            const auto part = std::find_if(parts.begin(), parts.end(), [&](const process_profile& each) {
                return each.about.process == rank.process;
            });
            return rank.rank - part->about.first_rank + 1;
        };
        // Each within its slice, so that viewers find that.
        const std::int64_t start = issued.begin_ns + (issued.end_ns - issued.begin_ns) / 2;
        const std::int64_t end = std::max(wait.begin_ns, wait.end_ns - 1);
        const auto flow = [&](const char* phase, const rank_timeline& rank, std::int64_t at) {
            out.event(R"({{"name":"notification","cat":"flow","ph":{},"id":{},"pid":{},"tid":{},"ts":{}}})", phase,
                      arrows_, rank.process, thread_of(rank), out.time(at));
        };
        flow(R"("s")", source, start);
        flow(R"("f","bp":"e")", target, end);
        ++arrows_;
    }
    out.flush();
    end_ = std::ftell(file_.get());
    std::string rest = fmt::format("\n],\"dcuda\":{{\"version\":\"{}\",\"backend\":\"{}\",\"processes\":{},"
                                   "\"arrows\":{},\"dropped\":{},\"runs\":[{}]}}}}\n",
                                   DCUDA_VERSION_STRING, DCUDA_BACKEND_CUDA ? "cuda" : "cpu", clocks_.size(), arrows_,
                                   dropped_, runs_);
    const bool written = std::fwrite(rest.data(), 1, rest.size(), file_.get()) == rest.size();
    if (!written || std::fflush(file_.get()) != 0) support::fail_errno(errno, "writing the timeline " + path_);
    closing_ = std::move(rest);
}

} // namespace dcuda
