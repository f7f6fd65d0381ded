// SPDX-License-Identifier: BSD-3-Clause
// What arrives over a network, from somebody who has got the key of a ring.
#include "network/connection.hpp"
#include "stream/arrival_check.hpp"
#include "stream/send_queue.hpp"
#include "target.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace dcuda::fuzz {

namespace {

constexpr std::size_t ring_bytes = 2 << 10, unit = transport::network::unit_bytes, window_bytes = 512;
constexpr std::uint32_t ranks = 3, tags = 8, rounds = 2;

class no_network final : public transport::network {
public:
    std::string name() const override { return "fuzz"; }
    std::string invite(int) override { return {}; }
    void connect(int, std::string_view) override {}
    transport::remote_memory expose(void* base, std::size_t, std::uint32_t) override {
        return {reinterpret_cast<std::uintptr_t>(base), 0};
    }
    void add_source(const void*, std::size_t) override {}
    bool write(int, const transport::remote_memory&, std::size_t, const void*, std::size_t, std::uint32_t,
               std::uint64_t) override {
        return true;
    }
    bool poll(transport::network_event&) override { return false; }
};

// The device: each rank has a window, and there is nothing beside them and the slots and entries of communicators.
class device final : public delivery, public message_handler {
public:
    device() {
        inbound_.begin_run(ranks, tags, rounds, slots_, entries_);
        std::vector<detail::window_entry> exports;
        for (auto& each : windows_) {
            each = std::make_unique<std::byte[]>(window_bytes);
            exports.push_back({each.get(), window_bytes, nullptr});
        }
        inbound_.open_window(1, std::move(exports));
        inbound_.await_answer(1, 1, awaited);
        inbound_.begin_get(awaited, 1, reinterpret_cast<std::uintptr_t>(windows_[0].get()), window_bytes);
    }
    // Of a rank's window; of slots and entries for numbers behind those.
    std::uint64_t memory(std::uint32_t number) const {
        const std::uint32_t kind = number % (ranks + 2);
        if (kind == ranks) return reinterpret_cast<std::uintptr_t>(slots_);
        if (kind == ranks + 1) return reinterpret_cast<std::uintptr_t>(entries_);
        return reinterpret_cast<std::uintptr_t>(windows_[kind].get());
    }

    // The ring, in which every payload lies.
    const std::byte* first = nullptr;
    const std::byte* last = nullptr;

    bool put(std::uint64_t place, const std::byte* payload, std::size_t bytes, std::uint32_t rank,
             std::uint32_t tag) override {
        if (rank >= ranks || (tag != detail::no_tag && tag >= tags)) std::abort();
        if (bytes != 0) copy(place, payload, bytes);
        ++issued_;
        return true;
    }
    bool put_packets(std::uint64_t place, const std::byte* values, std::uint32_t rank, std::uint32_t word) override {
        if (rank >= ranks || values < first || values + detail::unit_bytes > last) std::abort();
        auto* const slot = reinterpret_cast<detail::packet*>(static_cast<std::uintptr_t>(place));
        if (slot < slots_ || slot + detail::unit_packets > std::end(slots_)) std::abort();
        for (unsigned i = 0; i < detail::unit_packets; ++i) slot[i].sequence = word;
        ++issued_;
        return true;
    }
    bool update(std::uint64_t place, const detail::atomic_update& update, std::uint32_t number) override {
        const std::uint32_t bytes = detail::size_of_element(update.type);
        if (number != 0 || place % bytes != 0 || !is_in_window(place, bytes)) std::abort();
        detail::update_element(reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(place)), update);
        ++issued_;
        return true;
    }
    bool put_rows(std::uint64_t place, const std::byte* payload, std::size_t bytes, std::uint32_t width,
                  std::uint64_t distance) override {
        if (width == 0 || bytes == 0 || bytes % width != 0) std::abort();
        for (std::size_t row = 0; row < bytes / width; ++row)
            copy(place + row * distance, payload + row * width, width);
        ++issued_;
        return true;
    }
    bool combine(std::uint64_t place, const std::byte* payload, std::size_t bytes, std::uint32_t code) override {
        const std::uint32_t element = detail::size_of_element(detail::update_of(code, 0, 0).type);
        if (bytes == 0 || bytes % element != 0 || payload < first || payload + bytes > last) std::abort();
        for (std::size_t at = 0; at < bytes; at += element) update(place + at, detail::update_of(code, 1, 1), 0);
        return true;
    }
    std::uint64_t result(std::uint32_t) const override { return 0; }
    bool reply(std::uint32_t*, std::uint32_t) override { return true; }
    std::uint64_t start_copy(std::uint64_t place, const std::byte* payload, std::size_t bytes) override {
        copy(place, payload, bytes);
        return ++copies_;
    }
    bool is_copied(std::uint64_t) override { return true; }
    std::size_t least_copy_bytes() const override { return 100; }
    std::uint64_t issued() const override { return issued_; }
    std::uint64_t done() override { return issued_; }

    bool take(int, const message_header& head, const std::byte* payload) override {
        if (head.kind == message_kind::put) return put(head.place, payload, head.bytes, head.target, head.tag);
        if (head.kind == message_kind::update) {
            update_payload asked;
            std::memcpy(&asked, payload, sizeof asked);
            return update(head.place, detail::update_of(head.tag, asked.operand, asked.expected), 0);
        }
        if (head.kind == message_kind::get) {
            get_payload asked;
            std::memcpy(&asked, payload, sizeof asked);
            if (asked.bytes == 0 || !is_in_window(head.place, asked.bytes)) std::abort();
            return true;
        }
        if (head.kind == message_kind::got) return put(head.place, payload, head.bytes, 0, detail::no_tag);
        if (head.kind == message_kind::result) {
            if (head.bytes != sizeof(std::uint64_t) || head.tag != awaited || head.target != 1) std::abort();
            return true;
        }
        if (head.kind == message_kind::rows) return put_rows(head.place, payload, head.bytes, head.tag, head.distance);
        if (head.kind == message_kind::sums) return combine(head.place, payload, head.bytes, head.tag);
        if (head.kind == message_kind::packets) return put_packets(head.place, payload, head.target, head.tag);
        if (head.kind != message_kind::barrier || head.target >= detail::collective::barriers || head.tag >= rounds)
            std::abort();
        return true;
    }
    std::string find_fault(int from, const message_header& head, const std::byte* payload) const override {
        return inbound_.find_fault(from, head, payload);
    }
    void flushed(std::uint64_t) override {}

private:
    bool is_in_window(std::uint64_t place, std::uint64_t bytes) const {
        return std::ranges::any_of(windows_, [&](const auto& each) {
            const auto base = reinterpret_cast<std::uintptr_t>(each.get());
            return place >= base && place - base <= window_bytes && bytes <= window_bytes - (place - base);
        });
    }
    void copy(std::uint64_t place, const std::byte* payload, std::size_t bytes) {
        const bool is_there = is_in_window(place, bytes);
        const bool is_entry = std::ranges::any_of(entries_, [&](const auto& each) {
            return place == reinterpret_cast<std::uintptr_t>(&each) && bytes == sizeof each;
        });
        if ((!is_there && !is_entry) || payload < first || payload + bytes > last) std::abort();
        std::memcpy(reinterpret_cast<void*>(static_cast<std::uintptr_t>(place)), payload, bytes);
    }

    static constexpr std::uint32_t awaited = 5; // number of a result, and of a get

    inbound_check inbound_;
    std::unique_ptr<std::byte[]> windows_[ranks];
    detail::packet slots_[8]{};
    detail::split_entry entries_[4]{};
    std::uint64_t issued_ = 0, copies_ = 0;
};

class reader {
public:
    explicit reader(std::string_view input) : input_(input) {}
    bool is_empty() const { return input_.empty(); }
    template <class Number>
    Number get() {
        Number value{};
        const std::size_t count = std::min(sizeof value, input_.size());
        std::memcpy(&value, input_.data(), count);
        input_.remove_prefix(count);
        return value;
    }
    std::string_view bytes(std::size_t count) {
        const std::string_view taken = input_.substr(0, count);
        input_.remove_prefix(taken.size());
        return taken;
    }

private:
    std::string_view input_;
};

// A stream port with a window and a get under way, and room for sends.
class port {
public:
    // A message that is often right but for a field.
    message_header read(reader& from) {
        const bool is_far = from.get<unsigned char>() % 8 == 0;
        message_header head{is_far ? from.get<std::uint64_t>() : window() + from.get<std::uint16_t>() % 600,
                            from.get<std::uint16_t>() % 700u, static_cast<message_kind>(from.get<unsigned char>() % 14),
                            from.get<unsigned char>() % 3u, from.get<std::uint16_t>()};
        if (head.kind == message_kind::rows)
            head.distance = from.get<std::uint64_t>() >> from.get<unsigned char>() % 64;
        if (head.kind == message_kind::got) head.place = get_.destination + from.get<std::uint16_t>() % 300;
        if (head.kind == message_kind::piece) head.bytes <<= from.get<unsigned char>() % 16;
        if (head.tag % 4 == 0) head.tag = detail::no_tag;
        if (head.kind == message_kind::taken) head.tag = known_.received_there + from.get<std::int8_t>();
        return head;
    }

    void receive(const message_header& head, const get_payload& asked) {
        const auto holds = [&](std::uint64_t place, std::uint64_t bytes) {
            return place >= window() && place - window() <= window_bytes && bytes <= window_bytes - (place - window());
        };
        if (!find_port_fault(known_, holds, head, reinterpret_cast<const std::byte*>(&asked)).empty()) return;
        switch (head.kind) {
        case message_kind::put:
            if (head.tag != detail::no_tag && head.tag >= known_.tags) std::abort();
            store(head.place, head.bytes);
            break;
        case message_kind::rows:
            if (head.tag == 0 || head.bytes % head.tag != 0) std::abort();
            for (std::uint32_t row = 0; row < head.bytes / head.tag; ++row)
                store(head.place + row * head.distance, head.tag);
            break;
        case message_kind::get:
            if (head.bytes != sizeof asked) std::abort();
            store(head.place, asked.bytes);
            break;
        case message_kind::got: {
            const std::uint64_t at = head.place - get_.destination;
            if (known_.oldest_get == nullptr || head.target != get_.piece) std::abort();
            if (at > get_.bytes || head.bytes > get_.bytes - at) std::abort();
            if (head.tag != detail::no_tag) known_.oldest_get = nullptr;
            break;
        }
        case message_kind::piece:
            if (head.bytes > queue_memory::slot_bytes) std::abort();
            if (++known_.next_arrival - known_.told_received > queue_memory::slots) std::abort();
            break;
        case message_kind::taken:
            known_.received_there = head.tag;
            if (known_.next_send - known_.received_there > queue_memory::slots) std::abort();
            break;
        case message_kind::answer:
            break;
        default:
            std::abort();
        }
    }
    void tell_of_receive() {
        if (known_.told_received != known_.next_arrival) ++known_.told_received;
    }
    void send() {
        if (known_.next_send - known_.received_there < queue_memory::slots) ++known_.next_send;
    }
    void begin_get() { known_.oldest_get = &get_; }

private:
    std::uint64_t window() const { return reinterpret_cast<std::uintptr_t>(memory_.get()); }
    void store(std::uint64_t place, std::uint64_t bytes) {
        if (bytes != 0) std::memset(reinterpret_cast<void*>(static_cast<std::uintptr_t>(place)), 1, bytes);
    }

    std::unique_ptr<std::byte[]> memory_ = std::make_unique<std::byte[]>(window_bytes);
    pending_get get_{1, 1 << 20, 256};
    port_expectation known_{tags, UINT32_MAX - 1, UINT32_MAX - 1, UINT32_MAX - 1, UINT32_MAX - 1, nullptr};
};

} // namespace

// The input says what arrives at a stream port, and when it sends and receives itself.
void port_arrivals(std::string_view input) {
    port target;
    for (reader from(input); !from.is_empty();) {
        switch (from.get<unsigned char>() % 8) {
        case 0:
            target.tell_of_receive();
            break;
        case 1:
            target.send();
            break;
        case 2:
            target.begin_get();
            break;
        default: {
            const message_header head = target.read(from);
            get_payload asked{};
            asked.bytes = from.get<std::uint16_t>() % 600;
            if (asked.bytes % 7 == 0) asked.bytes = ~asked.bytes;
            target.receive(head, asked);
        }
        }
    }
}

// The input says what is written where, with headers that are often right but for a field, and what is said to have
// arrived.
void fragments(std::string_view input) {
    device target;
    placement* into = &target;
    no_network network;
    device_access link;
    connection one(0, network, into, link, target, ring_bytes, 0), other(0, network, into, link, target, ring_bytes, 0);
    one.use(other.offer());
    one.is_open = true;
    auto* const ring = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(one.offer().memory.address));
    target.first = ring;
    target.last = ring + ring_bytes;
    const auto write = [&](std::size_t place, const void* bytes, std::size_t count) {
        if (place < ring_bytes) std::memcpy(ring + place, bytes, std::min(count, ring_bytes - place));
    };
    reader from(input);
    std::uint64_t now_ns = 0, end = 0; // of what a good peer would have written, in units
    try {
        while (!from.is_empty()) {
            switch (from.get<unsigned char>() % 6) {
            case 0: { // any bytes anywhere
                const auto place = from.get<std::uint16_t>();
                const std::string_view bytes = from.bytes(from.get<unsigned char>());
                write(std::size_t{place} * 16, bytes.data(), bytes.size());
                break;
            }
            case 1: // arrived, they say
                one.arrived(from.get<std::uint32_t>() % (ring_bytes / unit + 2));
                break;
            case 2: // a fragment with a message, both as they should be but for what the input adds
            case 3: {
                const auto size = from.get<std::uint16_t>();
                message_header message{target.memory(from.get<unsigned char>()) + from.get<std::int16_t>(), size,
                                       static_cast<message_kind>(from.get<unsigned char>() % 11),
                                       from.get<unsigned char>(), from.get<std::uint16_t>()};
                if (message.kind == message_kind::sums) // an operation that there may be
                    message.tag = (message.tag & 0xf) | (message.tag >> 4 & 7) << 8;
                fragment_header head{end + from.get<std::int8_t>(), from.get<std::uint16_t>(), 0, 1};
                head.bytes = static_cast<std::uint32_t>(sizeof head + sizeof message + (size + 15) / 16 * 16 +
                                                        static_cast<std::size_t>(from.get<std::int8_t>()));
                head.messages += from.get<unsigned char>() % 3;
                if (message.kind == message_kind::rows)
                    message.distance = from.get<std::uint64_t>() >> from.get<unsigned char>() % 64;
                const std::size_t place = end * unit % ring_bytes;
                write(place, &head, sizeof head);
                write(place + sizeof head, &message, sizeof message);
                one.arrived(static_cast<std::uint32_t>(end % (ring_bytes / unit)));
                end += (head.bytes + unit - 1) / unit;
                break;
            }
            case 4:
                one.send({0, 0, message_kind::put, 0, 0}, nullptr, 0);
                break;
            default:
                break;
            }
            one.progress(now_ns += 1'000'000);
        }
    } catch (const foreign_arrival&) {
    }
}

} // namespace dcuda::fuzz
