// SPDX-License-Identifier: BSD-3-Clause
#include "checker/findings.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace dcuda::detail::check {

namespace {

collective collective_of(const rank_record& rank) {
    return {static_cast<operation>(rank.kind), static_cast<communicator>(rank.communicator)};
}

// The collective operation that the rank is in.
std::string name_call(const rank_record& rank) {
    const collective where = collective_of(rank);
    if (!is_exchange(where.kind) && (where.comm == world || where.comm == device)) return name_of(where);
    return fmt::format("{} on {}", traits_of(where.kind).name, name_of_communicator(rank.communicator));
}

std::string count_of(std::uint32_t count, const char* noun) {
    return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

} // namespace

std::string findings::window_name(std::uint32_t window) const {
    return window == none ? "a window" : fmt::format("window {}", m_.window(window).number);
}

// Bytes of a put's target or buffer: "window 1 of rank 2 [64, 72)".
std::string findings::range(const put_record& put, address at, unsigned bytes) const {
    if (at - put.place < put.bytes) {
        const std::uint64_t from = put.offset + (at - put.place);
        return fmt::format("{} of rank {} [{}, {})", window_name(put.window), put.target, from, from + bytes);
    }
    const std::uint64_t from = at - put.buffer;
    if (put.window != none) { // sources lie in windows as a rule
        const window_part& own = m_.window(put.window).parts[put.source];
        if (at - own.base < own.bytes)
            return fmt::format("{} of rank {} [{}, {})", window_name(put.window), put.source, at - own.base,
                               at - own.base + bytes);
    }
    return fmt::format("the put's buffer [{}, {})", from, from + bytes);
}

std::string findings::put_of(const put_record& put) {
    return fmt::format("the put of rank {} ({})", put.source, where_.name(put.site));
}

// Why the put is not known to have arrived to this rank.
std::string findings::missing_edge(const put_record& put, std::uint32_t rank) const {
    const std::uint32_t tag = put.tag != no_tag ? put.tag : put.releasing_tag;
    if (rank == put.target && tag != none) return fmt::format("wait for the notification with tag {} first", name(tag));
    if (rank == put.target)
        return fmt::format(
            "no notification follows it: use put_notify, or notify rank {} after it, and wait for that first", rank);
    if (put.seen != 0)
        return fmt::format(
            "rank {} has waited for it, but rank {} has not heard of that; a notification or a barrier must "
            "lead from there to rank {} first",
            put.target, rank, rank);
    if (put.complete != 0)
        return fmt::format("rank {} has flushed it or come to a barrier, but rank {} has not heard of that; a "
                           "notification or a barrier must "
                           "lead from there to rank {} first",
                           put.source, rank, rank);
    if (tag == none)
        return fmt::format(
            "no notification follows it: use put_notify; rank {} must wait for that, and then notify rank {} "
            "(or meet it in a barrier) first",
            put.target, rank);
    return fmt::format("rank {} must wait for the notification with tag {}, and then notify rank {} (or meet it in a "
                       "barrier) first",
                       put.target, name(tag), rank);
}

namespace {

// How a finding says what a rank does, or may still be doing, to some bytes; and what that is.
struct access_words {
    const char *does, *doing, *noun;
};
access_words words_of(access_kind kind) {
    switch (kind) {
    case access_kind::load:
        return {"reads", "reading", "read"};
    case access_kind::store:
        return {"writes", "writing", "write"};
    case access_kind::atomic:
        return {"makes an atomic operation on", "in an atomic operation on", "atomic operation"};
    default:
        return {"puts from", "putting from", "read"};
    }
}

} // namespace

void findings::conflict_with_put(const put_record& earlier, address at, unsigned bytes, std::uint32_t rank,
                                 access_kind kind, std::uint32_t origin) {
    const bool by_put = kind == access_kind::put_read || kind == access_kind::put_write;
    const std::uint32_t site = by_put ? m_.put(origin).site : origin;
    const bool is_target = at - earlier.place < earlier.bytes;
    if (!is_new(is_target ? "target" : "buffer", earlier.site, site)) return;
    const std::string here = where_.name(site), there = put_of(earlier), bytes_there = range(earlier, at, bytes);
    if (is_target && kind == access_kind::put_write)
        return report(
            fmt::format("rank {} puts to {} ({}) while {} may still change it: nothing orders the first put before "
                        "the second; {}",
                        rank, bytes_there, here, there, missing_edge(earlier, rank)));
    if (is_target) {
        std::string cure = missing_edge(earlier, rank);
        // What was there before may be what is read.
        if (rank == earlier.target && kind == access_kind::load && earlier.position > 1)
            cure +=
                fmt::format("; or, if the read is of what was there before, rank {} must notify rank {} after it (a "
                            "credit), and rank {} wait for that before the put",
                            rank, earlier.source, earlier.source);
        return report(
            fmt::format("rank {} {} {} ({}) while {} may still change it: nothing orders the put before the {}; {}",
                        rank, words_of(kind).does, bytes_there, here, there, words_of(kind).noun, cure));
    }
    if (kind == access_kind::put_write)
        return report(
            fmt::format("rank {} puts to {} ({}) while {} to rank {} may still read it: nothing orders that read "
                        "before the put; rank {} must flush, or learn of the arrival, and then notify rank {} first",
                        rank, bytes_there, here, there, earlier.target, earlier.source, rank));
    report(fmt::format(
        "rank {} overwrites {} ({}) while {} to rank {} may still read it: nothing orders the put's read before "
        "the write; flush {} first, or wait for a notification that proves the arrival",
        rank, bytes_there, here, there, earlier.target, window_name(earlier.window)));
}

void findings::conflict_of_put(const put_record& later, address at, unsigned bytes, std::uint32_t rank,
                               access_kind kind, std::uint32_t site) {
    if (!is_new("target", later.site, site)) return; // the same as above, in another schedule
    const bool reads = kind == access_kind::load;
    report(fmt::format(
        "rank {} puts to {} ({}) while rank {} may still be {} it ({}): nothing orders the {} before the put; "
        "rank {} must notify rank {} after it (a credit), and rank {} wait for that before the put{}",
        later.source, range(later, at, bytes), where_.name(later.site), rank, words_of(kind).doing, where_.name(site),
        words_of(kind).noun, rank, later.source, later.source,
        reads && rank == later.target && later.tag != no_tag
            ? fmt::format("; or, if the read is of this put, wait for its notification (tag {}) before the read",
                          name(later.tag))
            : std::string()));
}

// The same without a put: in a window of this rank if there is one.
std::string findings::range(address at, unsigned bytes, std::uint32_t rank) const {
    for (std::uint32_t i = 0; i <= m_.ranks(); ++i) {
        const std::uint32_t of = i == 0 ? rank : i - 1;
        for (std::uint32_t window = 0; window < m_.head().windows; ++window) {
            const window_part& part = m_.window(window).parts[of];
            if (m_.window(window).freed == none && at - part.base < part.bytes)
                return fmt::format("{} of rank {} [{}, {})", window_name(window), of, at - part.base,
                                   at - part.base + bytes);
        }
    }
    return fmt::format("{} B of memory", bytes);
}

// The tag of a notification that has come to `rank`, and knows what `other` did in this epoch, but was not waited for.
std::uint32_t findings::unused_edge(std::uint32_t rank, std::uint32_t other, std::uint32_t epoch) const {
    for (std::uint32_t tag = 0; tag < m_.tags().wire_count(); ++tag) {
        std::uint32_t index = m_.arrived(rank, tag).first;
        for (std::uint32_t left = m_.arrived(rank, tag).count; left != 0; --left, index = m_.notice(index).next)
            if (m_.notice(index).clock[other] >= epoch) return tag;
    }
    return none;
}

void findings::conflict_of_accesses(const access& earlier, address at, unsigned bytes, std::uint32_t rank,
                                    access_kind kind, std::uint32_t site) {
    if (!is_new("access", earlier.origin, site)) return;
    const std::uint32_t tag = unused_edge(rank, earlier.rank, earlier.epoch);
    const std::string cure =
        tag != none
            ? fmt::format("wait for the notification with tag {} first", name(tag))
            : fmt::format("a put in place with notification, release and notify, or barrier(device) must lead from "
                          "rank {} to rank {}",
                          earlier.rank, rank);
    report(fmt::format(
        "rank {} {} {} ({}) while rank {} may still be {} it ({}): nothing orders the {} before the {}; {}", rank,
        words_of(kind).does, range(at, bytes, rank), where_.name(site), earlier.rank, words_of(earlier.kind).doing,
        where_.name(earlier.origin), words_of(earlier.kind).noun, words_of(kind).noun, cure));
}

void findings::out_of(const char* resource, std::size_t most) {
    if (!is_new(resource, none, none)) return;
    report(fmt::format("the checker has no room for more than {} {}: check a smaller run", most, resource));
    if (end_run) end_run();
}

void findings::use_of_freed(std::uint32_t rank, operation kind, std::uint32_t window, std::uint32_t site) {
    if (!is_new("freed", m_.window(window).freed, site)) return;
    report(fmt::format("rank {}: {} ({}) on {}, which was freed ({})", rank, traits_of(kind).name, where_.name(site),
                       window_name(window), where_.name(m_.window(window).freed)));
}

void findings::put_into_freed(const put_record& put, std::uint32_t site) {
    if (!is_new("pending", put.site, site)) return;
    report(fmt::format(
        "{} is freed ({}) while {} to [{}, {}) of rank {} may still change it: nothing orders the put before "
        "free_window; {}",
        window_name(put.window), where_.name(site), put_of(put), put.offset, put.offset + put.bytes, put.target,
        missing_edge(put, put.target)));
}

void findings::overlap(std::uint32_t rank, std::uint32_t window, std::uint64_t bytes, std::uint32_t site) {
    if (!is_new("overlap", site, none)) return;
    report(fmt::format("rank {}: put of {} B ({}) to {}: source and target overlap but are not the same", rank, bytes,
                       where_.name(site), window_name(window)));
}

void findings::left_over(std::uint32_t rank, std::uint32_t tag) {
    const notice_queue& queue = m_.arrived(rank, tag);
    const notice& oldest = m_.notice(queue.first);
    if (!is_new("left", oldest.site, none)) return;
    report(fmt::format(
        "rank {} has {} with tag {} left over at the end of the kernel, the first from the {} of rank {} ({}): "
        "rank {} must wait for what it is sent, or the others send less",
        rank, count_of(queue.count, "notification"), name(tag), traits_of(oldest.kind).name, oldest.source,
        where_.name(oldest.site), rank));
}

std::string findings::wait_of(std::uint32_t r) {
    const rank_record& rank = m_.rank(r);
    const std::string at = where_.name(rank.site);
    switch (rank.status) {
    case rank_status::collective: {
        if (rank.communicator > static_cast<std::uint32_t>(device)) {
            std::uint32_t there = 0;
            for (std::uint32_t i = 0; i < m_.ranks(); ++i)
                if (m_.rank(i).status == rank_status::collective && is_same_call(m_.rank(i), rank)) ++there;
            return fmt::format("is in {} ({}), to which {} of {} members have come", name_call(rank), at, there,
                               rank.members);
        }
        std::string missing;
        const bool is_world = rank.communicator == static_cast<std::uint32_t>(world);
        const std::uint32_t first = is_world ? 0 : m_.head().ranks_per_process * rank.process;
        for (std::uint32_t i = first; i < first + (is_world ? m_.ranks() : m_.head().ranks_per_process); ++i)
            if (m_.rank(i).status != rank_status::collective || m_.rank(i).kind != rank.kind ||
                m_.rank(i).communicator != rank.communicator)
                missing += fmt::format("{}{}", missing.empty() ? "" : ", ", i);
        return fmt::format("is in {} ({}), for ranks {}", name_call(rank), at, missing);
    }
    case rank_status::waiting: {
        std::string others;
        for (std::uint32_t tag = 0; tag < m_.tags().wire_count(); ++tag)
            if (tag - rank.tag >= rank.tags && m_.arrived(r, tag).count != 0)
                others += fmt::format("{} {} with tag {}", others.empty() ? "; it has" : ",", m_.arrived(r, tag).count,
                                      name(tag));
        if (rank.tags != 1)
            return fmt::format(
                "waits for a notification with one of the tags {} to {} ({}), of which none has arrived{}", rank.tag,
                rank.tag + rank.tags - 1, at, others);
        return fmt::format("waits for {} with tag {} ({}), of which {} arrived{}", count_of(rank.count, "notification"),
                           name(rank.tag), at,
                           m_.arrived(r, rank.tag).count == 1 ? "1 has"
                                                              : fmt::format("{} have", m_.arrived(r, rank.tag).count),
                           others);
    }
    case rank_status::ready:
        return fmt::format("tests for {} with tag {} again and again ({}), of which {} arrived",
                           count_of(rank.count, "notification"), name(rank.tag), at, m_.arrived(r, rank.tag).count);
    case rank_status::absent:
        return "has left the kernel";
    case rank_status::finished:
        break;
    }
    return "has finished";
}

void findings::standstill() {
    if (!is_new("standstill", none, none)) return;
    // The headline is about a wait, if there is one: the others are its consequence.
    std::uint32_t first = none;
    for (std::uint32_t r = 0; r < m_.ranks(); ++r) {
        const rank_status status = m_.rank(r).status;
        if (status == rank_status::waiting || status == rank_status::ready) {
            first = r;
            break;
        }
        if (first == none && status == rank_status::collective) first = r;
    }
    std::string text = fmt::format("rank {} {}, and no more can come: no rank can go on", first, wait_of(first));
    for (std::uint32_t r = 0; r < m_.ranks(); ++r)
        if (r != first) text += fmt::format("\n  rank {} {}", r, wait_of(r));
    report(text);
}

void findings::mismatch(std::uint32_t r, std::uint32_t o) {
    const rank_record &rank = m_.rank(r), &other = m_.rank(o);
    if (!is_new("mismatch", rank.site, other.site)) return;
    const auto call = [&](const rank_record& who) {
        return fmt::format("{}{}{} ({})", name_call(who), who.argument == none ? "" : " of ",
                           who.argument == none ? "" : window_name(who.argument), where_.name(who.site));
    };
    report(fmt::format(
        "rank {} calls {} while rank {} is in {}: all ranks of a communicator must make the same collective "
        "calls in the same order",
        r, call(rank), o, call(other)));
}

void findings::left_early(std::uint32_t r) {
    if (!is_new("left early", m_.rank(r).site, none)) return;
    report(fmt::format(
        "rank {} has left the kernel without its last collective call (finish), which all others wait for; its "
        "last operation was {} ({})",
        r, traits_of(static_cast<operation>(m_.rank(r).where)).name, where_.name(m_.rank(r).site)));
}

void findings::threads_differ(std::uint32_t rank, const std::string& how, std::uint32_t site) {
    if (!is_new("threads", site, none)) return;
    report(
        fmt::format("rank {}: {}: all threads of a rank must call an operation, with the same arguments", rank, how));
}

// Whether nothing was said yet of such things between these two places.
bool findings::is_new(const char* kind, std::uint32_t a, std::uint32_t b) {
    header& head = m_.head();
    if (head.stop != 0 && head.findings != 0) return false;
    if (!known_.insert({kind, a, b}).second) return false;
    // Other processes may have other numbers for the same places.
    const std::string key = fmt::format("{} {} {}", kind, where_.name(a), where_.name(b));
    for (std::uint32_t i = 0; i < head.findings; ++i)
        if (key == m_.finding(i).key) return false;
    if (head.findings == most_findings) {
        ++head.findings_left_out;
        return false;
    }
    finding_text& made = m_.finding(head.findings);
    made.key[key.copy(made.key, sizeof made.key - 1)] = '\0';
    return true;
}

void findings::report(const std::string& text) {
    header& head = m_.head();
    finding_text& made = m_.finding(head.findings++);
    made.text[text.copy(made.text, sizeof made.text - 1)] = '\0';
    if (head.stop != 0 && end_run) end_run();
}

std::string findings::cause() const {
    const header& head = m_.head();
    return head.findings == 0 ? std::string("nothing is known")
                              : m_.finding(head.stop != 0 ? 0 : head.findings - 1).text;
}

std::string findings::list() const {
    const header& head = m_.head();
    std::string text;
    for (std::uint32_t i = 0; i < head.findings; ++i)
        text += fmt::format("dcuda: check: {}: {}\n", i + 1, m_.finding(i).text);
    if (head.findings_left_out != 0) text += fmt::format("dcuda: check: and {} more\n", head.findings_left_out);
    return text;
}

} // namespace dcuda::detail::check
