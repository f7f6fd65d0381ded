// SPDX-License-Identifier: BSD-3-Clause
#include "network/connection.hpp"

#include <algorithm>
#include <cstring>

namespace dcuda {

namespace {

constexpr std::size_t ring_unit = transport::network::unit_bytes;
constexpr std::size_t reserved_units = 4;          // of the ring, for credit alone
constexpr unsigned most_unsent = 4;                // fragments; what comes meanwhile is gathered in the next
constexpr std::uint64_t credit_delay_ns = 500'000; // when nothing else carries it

std::uint64_t units_for(std::size_t bytes) { return (bytes + ring_unit - 1) / ring_unit; }
std::size_t padded(std::size_t bytes) { return (bytes + 15) / 16 * 16; }

} // namespace

connection::connection(int peer, transport::network& over, placement*& into, device_access& link,
                       message_handler& handler, std::size_t ring_bytes, std::uint32_t first_number)
    : peer_(peer), network_(over), placement_(into), link_(link), handler_(handler), ring_bytes_(ring_bytes),
      first_number_(first_number), inbound_(pinned(network_.share(ring_bytes))), arrived_(ring_bytes / ring_unit) {
    memory_ = network_.expose(inbound_.get(), ring_bytes_, first_number_);
}

// The network's own memory if it has any, else new.
transport::shared_memory connection::pinned(transport::shared_memory memory) const {
    constexpr const char* subject = "pinning memory for a connection";
    if (memory != nullptr) return cuda::pin(std::move(memory), ring_bytes_, subject);
    auto ours = cuda::allocate_pinned<std::byte>(ring_bytes_, subject);
    auto release = ours.get_deleter();
    return {ours.release(), release};
}

void connection::use(const exported_ring& theirs) {
    support::require(theirs.bytes == ring_bytes_, error_code::bootstrap_failure,
                     "processes disagree on the rings of the network: {} B here, {} B in process {}", ring_bytes_,
                     theirs.bytes, peer_);
    theirs_ = theirs;
    outbound_ = pinned(network_.reach(peer_, theirs.memory));
    network_.add_source(outbound_.get(), ring_bytes_);
}

std::byte* connection::place(std::byte* ring, std::uint64_t at) const { return ring + at * ring_unit % ring_bytes_; }

// ---- sending --------------------------------------------------------------------------------------------------------

void connection::send(const message_header& head, const std::byte* payload, std::uint32_t rank) {
    const auto large = in_large_.find(rank);
    const bool may_leave = large == in_large_.end() && waiting_.empty() && is_open;
    if (may_leave && (large_.empty() || since_large_ < next_large_bytes()) && append(head, payload, 0)) {
        since_large_ += sizeof head + head.bytes;
        return;
    }
    queued message{head, rank, {}, nullptr, 0, 0, 0};
    if (head.bytes != 0) message.payload.assign(reinterpret_cast<const char*>(payload), head.bytes);
    if (large != in_large_.end()) ++large->second;
    enqueue(large != in_large_.end() ? large_ : waiting_, std::move(message));
}

void connection::send_from_device(const message_header& head, std::uint64_t bytes, const std::byte* source,
                                  std::uint32_t rank) {
    ++in_large_[rank];
    enqueue(large_, {head, rank, {}, source, bytes, 0, 0});
}

bool connection::flush(std::uint64_t flush, std::uint32_t rank) {
    if (!has_traffic()) return false;
    const message_header answer{0, 0, message_kind::answer, 0, 0};
    const bool behind_large = rank == all_ranks ? !large_.empty() : in_large_.contains(rank);
    if (!behind_large && waiting_.empty() && is_open && append(answer, nullptr, flush)) return true;
    if (behind_large) ++in_large_[rank];
    enqueue(behind_large ? large_ : waiting_, {answer, rank, {}, nullptr, 0, flush, 0});
    return true;
}

void connection::enqueue(std::deque<queued>& queue, queued message) {
    message.number = queued_++;
    if (message.rank != answers) queued_bytes_ += sizeof message + message.payload.size();
    queue.push_back(std::move(message));
}

void connection::dequeue(std::deque<queued>& queue) {
    const queued& message = queue.front();
    if (message.rank != answers) queued_bytes_ -= sizeof message + message.payload.size();
    queue.pop_front();
}

// Places from `begin` on are free.
bool connection::has_room(std::uint64_t begin, std::uint64_t units, bool is_credit) const {
    const std::uint64_t reserve = is_credit ? 0 : reserved_units;
    return begin + units + reserve <= freed_ + ring_bytes_ / ring_unit;
}

// A new fragment with room for so many bytes behind its header; null if there is no room.
connection::fragment* connection::begin_fragment(std::size_t bytes, bool is_credit) {
    const std::uint64_t ring_units = ring_bytes_ / ring_unit, units = units_for(sizeof(fragment_header) + bytes);
    const std::uint64_t to_end = ring_units - next_ % ring_units;
    const std::uint64_t begin = units <= to_end ? next_ : next_ + to_end; // a fragment lies in one piece
    if (!has_room(begin, units, is_credit)) return nullptr;
    fragment_header* const head = reinterpret_cast<fragment_header*>(place(outbound_.get(), begin));
    *head = {next_, 0, 0, 0};
    next_ = begin + units;
    fragments_.push_back({next_fragment_++, begin, next_, sizeof(fragment_header)});
    return &fragments_.back();
}

// Adds a message to the fragment that is open, or to a new one. False: no room now.
bool connection::append(const message_header& head, const std::byte* payload, std::uint64_t flush) {
    const std::size_t bytes = sizeof head + padded(head.bytes);
    fragment* filled = !fragments_.empty() && !fragments_.back().is_closed ? &fragments_.back() : nullptr;
    if (filled != nullptr) {
        const std::uint64_t units = units_for(filled->bytes + bytes), end = filled->begin + units;
        const bool fits = filled->bytes + bytes <= part_bytes() &&
                          filled->begin % (ring_bytes_ / ring_unit) + units <= ring_bytes_ / ring_unit &&
                          has_room(filled->begin, units, false);
        if (fits) {
            next_ = filled->end = end;
        } else {
            close_open();
            filled = nullptr;
        }
    }
    if (filled == nullptr) filled = begin_fragment(bytes, false);
    if (filled == nullptr) return false;
    std::byte* const at = place(outbound_.get(), filled->begin) + filled->bytes;
    std::memcpy(at, &head, sizeof head);
    if (head.bytes != 0) std::memcpy(at + sizeof head, payload, head.bytes);
    filled->bytes += static_cast<std::uint32_t>(bytes);
    ++filled->messages;
    if (flush != 0) filled->flushes.push_back(flush);
    data_end_ = filled->end;
    return true;
}

bool connection::append(queued& message) {
    if (message.source != nullptr) return append_chunk(message);
    return append(message.head, reinterpret_cast<const std::byte*>(message.payload.data()), message.flush);
}

// The next part of a message whose payload is on the device, in a fragment of its own. True if that was the last one.
bool connection::append_chunk(queued& message) {
    const std::size_t most = part_bytes() - sizeof(fragment_header) - sizeof(message_header);
    const auto bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(message.left, most / 64 * 64));
    close_open();
    fragment* const filled = begin_fragment(sizeof(message_header) + padded(bytes), false);
    if (filled == nullptr) return false;
    message_header head = message.head;
    head.bytes = bytes;
    if (bytes < message.left) head.tag = detail::no_tag; // the last part notifies
    std::byte* const at = place(outbound_.get(), filled->begin) + filled->bytes;
    std::memcpy(at, &head, sizeof head);
    filled->copy = link_.start_read(at + sizeof head, message.source, bytes);
    filled->bytes += static_cast<std::uint32_t>(sizeof head + padded(bytes));
    filled->messages = 1;
    data_end_ = filled->end;
    close_open();
    message.head.place += bytes;
    message.source += bytes;
    message.left -= bytes;
    return message.left == 0;
}

void connection::close_open() {
    if (!fragments_.empty()) fragments_.back().is_closed = true;
}

// What the next part of a large message takes, or what follows large ones of its rank.
std::size_t connection::next_large_bytes() const {
    const queued& next = large_.front();
    const std::uint64_t payload = next.source != nullptr ? next.left : next.payload.size();
    return static_cast<std::size_t>(std::min<std::uint64_t>(part_bytes(), sizeof next.head + payload));
}

// Whether that comes first: what was sent before it has left, and others have had as much room since the last part.
bool connection::is_turn_of_large() const {
    if (large_.empty() || waiting_.empty()) return !large_.empty();
    return large_.front().number < waiting_.front().number && since_large_ >= next_large_bytes();
}

// The next part of a large message, or what follows large ones of its rank. False: no room now.
bool connection::append_large() {
    const std::uint64_t left = large_.front().left;
    const std::uint32_t rank = large_.front().rank;
    const bool is_last = append(large_.front());
    if (!is_last && large_.front().left == left) return false;
    since_large_ = 0;
    if (!is_last) return true;
    dequeue(large_);
    if (const auto count = in_large_.find(rank); count != in_large_.end() && --count->second == 0)
        in_large_.erase(count);
    return true;
}

// Turns messages into fragments, parts of large ones in turn with the others.
bool connection::fill() {
    bool any = false;
    while (!waiting_.empty() || !large_.empty()) {
        if (is_turn_of_large()) {
            if (!append_large()) break;
        } else {
            if (!append(waiting_.front())) break;
            since_large_ += sizeof(message_header) + waiting_.front().payload.size();
            dequeue(waiting_);
        }
        any = true;
    }
    return any;
}

// Hands fragments to the network, in order.
bool connection::write() {
    bool any = false;
    if (!fragments_.empty() && !fragments_.back().is_closed && unsent_ < most_unsent) close_open();
    for (fragment& next : fragments_) {
        if (next.is_written) continue;
        if (!next.is_closed || !link_.is_read(next.copy)) break;
        std::byte* const source = place(outbound_.get(), next.begin);
        fragment_header* const head = reinterpret_cast<fragment_header*>(source);
        head->credit = delivered_;
        head->bytes = next.bytes;
        head->messages = next.messages;
        const std::size_t offset = next.begin * ring_unit % ring_bytes_;
        const std::uint64_t token = static_cast<std::uint64_t>(peer_) << 32 | next.number;
        if (!network_.write(peer_, theirs_.memory, offset, source, next.bytes,
                            theirs_.first_number + static_cast<std::uint32_t>(offset / ring_unit), token))
            break;
        next.is_written = true;
        ++unsent_;
        told_ = delivered_;
        if (being_delivered_.empty()) owes_credit_ = false;
        any = true;
    }
    return any;
}

void connection::sent(std::uint32_t number) {
    const std::uint32_t index = number - fragments_.front().number;
    fragments_.at(index).is_sent = true;
    --unsent_;
    release_fragments();
}

bool connection::is_sent() const { return unsent_ == 0 && (fragments_.empty() || fragments_.back().is_written); }

void connection::take_credit(std::uint64_t credit) {
    if (credit <= credited_) return;
    credited_ = credit;
    for (fragment& each : fragments_) {
        if (each.end > credited_) break;
        for (const std::uint64_t flush : each.flushes) handler_.flushed(flush);
        each.flushes.clear();
    }
    release_fragments();
}

void connection::release_fragments() {
    while (!fragments_.empty() && fragments_.front().is_sent && fragments_.front().end <= credited_) {
        freed_ = fragments_.front().end;
        fragments_.pop_front();
    }
}

// ---- receiving ------------------------------------------------------------------------------------------------------

void connection::arrived(std::uint32_t number) {
    const std::size_t place = number - first_number_;
    if (place >= arrived_.size() || arrived_[place])
        refuse(fmt::format("a fragment with number {}, of {} from {} on", number, arrived_.size(), first_number_));
    arrived_[place] = true;
}

void connection::refuse(const std::string& finding) const {
    throw foreign_arrival(network_.name(), fmt::format("in the name of process {}, {}", peer_, finding));
}

// A fragment lies in the ring in one piece, and tells of no more than we have sent.
void connection::check(const fragment_header& head, std::uint64_t begin) const {
    const std::uint64_t ring_units = ring_bytes_ / ring_unit;
    if (head.bytes < sizeof head || units_for(head.bytes) > ring_units - begin % ring_units)
        refuse(fmt::format("a fragment of {} B at {} B of a ring of {} B", head.bytes, begin % ring_units * ring_unit,
                           ring_bytes_));
    if (head.credit > next_) refuse(fmt::format("credit for {} units of {} that were sent", head.credit, next_));
}

// The next message of the fragment that begins there. What is looked at is what is used.
connection::received connection::read_message(const std::byte* from) {
    received message{{}, from + message_at_ + sizeof(message_header)};
    message_header& head = message.head;
    const std::uint32_t bytes = taken_from_.bytes;
    const std::size_t left = bytes - message_at_;
    if (left < sizeof head) refuse(fmt::format("more messages than there are in a fragment of {} B", bytes));
    std::memcpy(&head, from + message_at_, sizeof head);
    if (padded(head.bytes) > left - sizeof head)
        refuse(fmt::format("a message of {} B in a fragment of {} B", head.bytes, bytes));
    if (head.kind == message_kind::get && head.bytes == sizeof asked_for_) {
        std::memcpy(&asked_for_, message.payload, sizeof asked_for_);
        message.payload = reinterpret_cast<const std::byte*>(&asked_for_);
    }
    if (const std::string fault = handler_.find_fault(peer_, head, message.payload); !fault.empty()) refuse(fault);
    return message;
}

// False: not now; the message comes again. Copies by the engine and deliveries are made beside each other: of two puts
// to one place the later wins, so each kind waits for the other.
bool connection::take(received from) {
    auto& [message, payload] = from;
    const bool has_bytes = message.kind == message_kind::put || message.kind == message_kind::got;
    if (has_bytes && message.bytes >= placement_->least_copy_bytes()) {
        if (!is_copy_started_) {
            if (placement_->done() < last_delivery_) return false;
            const std::uint64_t copy = placement_->start_copy(message.place, payload, message.bytes);
            if (copy == 0) return false;
            last_copy_ = copy;
            is_copy_started_ = message.tag != detail::no_tag;
        }
        if (message.tag == detail::no_tag) return true; // other copies are made in order
        message.bytes = 0;
    }
    // What is read there now must be what this peer has sent before.
    if (message.kind == message_kind::get && placement_->done() < last_delivery_) return false;
    if (!placement_->is_copied(last_copy_) || !handler_.take(peer_, message, payload)) return false;
    last_delivery_ = placement_->issued();
    is_copy_started_ = false;
    return true;
}

// Takes fragments as far as they are there.
bool connection::receive() {
    const std::uint64_t ring_units = ring_bytes_ / ring_unit;
    bool any = false;
    for (;;) {
        std::uint64_t begin = expected_;
        const auto is_next = [&] {
            const auto* const found = reinterpret_cast<const fragment_header*>(place(inbound_.get(), begin));
            return arrived_[begin % ring_units] && found->after == expected_;
        };
        if (!is_next()) {
            if (begin % ring_units != 0 && arrived_[begin % ring_units]) refuse("a fragment in the place of another");
            // The sender may have gone to the ring's begin, for a fragment that did not fit.
            if (begin % ring_units == 0) break;
            begin = (begin / ring_units + 1) * ring_units;
            if (!is_next()) break;
        }
        std::byte* const source = place(inbound_.get(), begin);
        fragment_header& head = taken_from_;
        if (message_ == 0) {
            std::memcpy(&head, source, sizeof head);
            check(head, begin);
            message_at_ = sizeof head;
            take_credit(head.credit);
        }
        for (; message_ < head.messages; ++message_) {
            const received message = read_message(source);
            if (message.head.kind == message_kind::answer)
                asked_ = begin + units_for(head.bytes);
            else if (!take(message))
                return any;
            message_at_ += sizeof message.head + padded(message.head.bytes);
        }
        any = true;
        arrived_[begin % ring_units] = false;
        expected_ = begin + units_for(head.bytes);
        message_ = 0;
        being_delivered_.push_back({expected_, placement_->issued(), last_copy_});
        if (head.messages != 0) owes_credit_ = true;
    }
    return any;
}

// Tells the peer what has been delivered, if nothing else does and it may wait for that.
void connection::give_credit(std::uint64_t now_ns) {
    const std::uint64_t done = being_delivered_.empty() ? 0 : placement_->done();
    while (!being_delivered_.empty() && being_delivered_.front().last_delivery <= done &&
           placement_->is_copied(being_delivered_.front().last_copy)) {
        delivered_ = being_delivered_.front().end;
        being_delivered_.pop_front();
    }
    if (!owes_credit_ || delivered_ == told_) {
        owing_since_ns_ = 0;
        return;
    }
    if (owing_since_ns_ == 0) owing_since_ns_ = now_ns;
    const bool is_asked = asked_ > told_ && asked_ <= delivered_;
    if (!is_asked && (delivered_ - told_) * ring_unit < ring_bytes_ / 4 && now_ns - owing_since_ns_ < credit_delay_ns)
        return;
    const bool is_open_already = !fragments_.empty() && !fragments_.back().is_written;
    if (!is_open_already && begin_fragment(0, true) == nullptr) return;
    owing_since_ns_ = 0;
}

void connection::end_run() {
    // Deliveries and their numbers are of one run, and all is done.
    for (; !being_delivered_.empty(); being_delivered_.pop_front()) delivered_ = being_delivered_.front().end;
    last_copy_ = last_delivery_ = 0;
}

bool connection::progress(std::uint64_t now_ns) {
    if (!is_open) return false;
    bool any = placement_ != nullptr && receive();
    if (placement_ != nullptr) give_credit(now_ns);
    any = fill() || any;
    return write() || any;
}

} // namespace dcuda
