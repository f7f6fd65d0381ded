// SPDX-License-Identifier: BSD-3-Clause
#include "stream/port_memory.hpp"

#include "dcuda/detail/protocol/command.hpp"
#include "dcuda/detail/protocol/memory.hpp"
#include "dcuda/detail/stream/wanted_word.hpp"
#include "support/losses.hpp"
#include "support/wire.hpp"

#include <algorithm>
#include <cstring>

namespace dcuda {

namespace {

// A process, for one other.
struct port_offer {
    transport::exported_allocation memory{};
    std::uint64_t offset = 0; // of arrived_, bytes
    int tags = 0;
};

template <class Element>
void clear(Element* memory, std::size_t count) {
    cuda::check(cudaMemset(memory, 0, count * sizeof(Element)), "clearing a stream port's memory");
}

} // namespace

port_memory::port_memory(bootstrap::control& control, const std::vector<bool>& is_remote, int tags)
    : control_(control), own_(control.index()), tags_(tags), device_(cuda::device_in_use()), ports_(is_remote.size()),
      queue_here_(is_remote.size()), queue_there_(is_remote.size()), relays_(is_remote.size()) {
    constexpr const char* subject = "memory of a stream port";
    std::size_t queues = 0;
    for (std::size_t process = 0; process < is_remote.size(); ++process) {
        if (is_remote[process]) {
            relays_[process] = cuda::allocate_pinned<relay_memory>(1, subject);
            std::memset(static_cast<void*>(relays_[process].get()), 0, sizeof(relay_memory));
        } else {
            queue_here_[process] = queues++;
        }
    }
    const std::size_t words = port_words(queues), waits = places() + 2 * ports_.size(), refusals = 2 * ports_.size();
    arrived_ = cuda::allocate<std::uint32_t>(words, subject);
    turns_ = cuda::allocate<detail::queue_turns>(3 * ports_.size(), subject);
    consumed_ = cuda::allocate<std::uint32_t>(places(), subject);
    ended_ = cuda::allocate_pinned<std::uint32_t>(1, subject);
    result_ = cuda::allocate_pinned<std::uint32_t>(2, subject);
    wanted_ = cuda::allocate_pinned<std::uint64_t>(waits, subject);
    refused_ = cuda::allocate_pinned<std::uint64_t>(refusals, subject);
    clear(arrived_.get(), words);
    clear(turns_.get(), 3 * ports_.size());
    clear(consumed_.get(), places());
    cuda::check(cudaDeviceSynchronize(), "clearing a stream port's memory");
    *ended_.get() = 0;
    std::fill_n(result_.get(), 2, 0u);
    std::fill_n(wanted_.get(), waits, 0u);
    std::fill_n(refused_.get(), refusals, 0u);
    meet_peers(queues > 1);
}

// `has_peers`: other processes map this one's memory.
void port_memory::meet_peers(bool has_peers) {
    port_offer own;
    own.tags = tags_;
    if (has_peers) {
        const auto memory = transport::find_allocation(arrived_.get());
        support::require(memory.has_value(), error_code::cuda_failure,
                         "the driver does not know a stream port's memory");
        own.offset = static_cast<std::uint64_t>(reinterpret_cast<std::byte*>(arrived_.get()) - memory->base);
        own.memory = transport::export_allocation(*memory);
    }
    support::wire_writer message;
    message.put(own);
    message.put(std::vector<std::uint64_t>(queue_here_.begin(), queue_here_.end()));
    const auto offers = control_.allgather(message.bytes(), "making a stream port");
    for (int process = 0; process < control_.count(); ++process) {
        support::wire_reader reader(offers[place(process)]);
        const auto offer = reader.get<port_offer>();
        support::require(offer.tags == tags_, error_code::invalid_argument,
                         "stream_port: process {} makes a port of {} tags, and process {} one of {}", own_, tags_,
                         process, offer.tags);
        if (relay(process) != nullptr) continue;
        queue_there_[place(process)] = reader.get_vector<std::uint64_t>().at(place(own_));
        ports_[place(process)] =
            process == own_ ? arrived_.get()
                            : reinterpret_cast<std::uint32_t*>(mappings_.open(process, offer.memory) + offer.offset);
    }
}

put_trigger port_memory::notification(int process, int tag) const {
    put_trigger made;
    if (relay(process) != nullptr) {
        made.by_host = path_by_host(process);
        made.by_host.tag = static_cast<std::uint32_t>(tag);
        return made;
    }
    made.counter = ports_[place(process)] + place(own_) * place(tags_) + place(tag);
    made.doorbell = doorbell_of(process);
    return made;
}

host_path port_memory::path_by_host(int process) const {
    host_path way;
    way.queue = &relay(process)->puts;
    way.turns = turns(process, turns_of::puts);
    way.ended = ended();
    way.tag = detail::no_tag;
    return way;
}

void port_memory::close(bool has_failed) {
    try {
        if (!has_failed) {
            control_.barrier("ending a stream port"); // nobody sends any more
            tell_of_unread();
            mappings_.close();
            control_.barrier("ending a stream port"); // nobody maps what is freed
            return;
        }
    } catch (const error&) {
        // A process is lost. It, or others, may still use this process's memory.
    }
    static_cast<void>(arrived_.release());
}

wait_trigger port_memory::wait_of(int process, int tag, std::uint32_t count) const {
    const bool is_of_any = process < 0;
    const std::size_t kept = (is_of_any ? 0 : place(process) + 1) * place(tags_) + place(tag);
    wait_trigger made;
    made.arrived = arrived_.get() + (is_of_any ? 0 : place(process) * place(tags_)) + place(tag);
    made.senders = is_of_any ? static_cast<std::uint32_t>(ports_.size()) : 1;
    made.stride = static_cast<std::uint32_t>(tags_);
    made.count = count;
    made.consumed = consumed_.get() + kept;
    made.doorbell = doorbell();
    made.ended = ended();
    made.wanted = wanted_.get() + kept;
    return made;
}

void port_memory::end_waits() { detail::store_relaxed(ended_.get(), 1); }

std::uint64_t port_memory::tell_of_wait(const wait_trigger& wait) const {
    const std::uint64_t told = detail::wanted_word(wait.count, result_[1]);
    if (detail::load_relaxed(wait.wanted) == 0) detail::store_relaxed(wait.wanted, told);
    return told;
}

void port_memory::end_wait(const wait_trigger& wait, std::uint64_t told) const {
    if (told != 0 && detail::load_relaxed(wait.wanted) == told) detail::store_relaxed(wait.wanted, std::uint64_t{0});
}

std::vector<port_memory::lasting_wait> port_memory::lasting_waits() const {
    std::vector<lasting_wait> waits;
    const auto add = [&](std::size_t at, lasting_wait wait) {
        const std::uint64_t wanted = detail::load_relaxed(wanted_.get() + at);
        if (wanted == 0) return;
        wait.count = detail::wanted_count(wanted);
        wait.expected = detail::wanted_number(wanted);
        waits.push_back(wait);
    };
    using kind = lasting_wait::kind;
    for (std::size_t i = 0; i < places(); ++i)
        add(i, {kind::notifications, static_cast<int>(i / place(tags_)) - 1, static_cast<int>(i % place(tags_)), 0, 0});
    for (std::size_t process = 0; process < ports_.size(); ++process) {
        add(places() + process, {kind::send, static_cast<int>(process), 0, 0, 0});
        add(places() + ports_.size() + process, {kind::receive, static_cast<int>(process), 0, 0, 0});
    }
    return waits;
}

std::size_t port_memory::port_words(std::size_t queues) const {
    const std::size_t before = ports_.size() * place(tags_) + 1,
                      aligned = alignof(queue_memory) / sizeof(std::uint32_t);
    return (before + aligned - 1) / aligned * aligned + queues * sizeof(queue_memory) / sizeof(std::uint32_t);
}

queue_memory* port_memory::queues(std::uint32_t* port) const {
    return reinterpret_cast<queue_memory*>(port + port_words(0));
}

queue_pair port_memory::queues_with(int process) const {
    if (relay_memory* const by_host = relay(process)) return {&by_host->own, &by_host->far};
    return {queues(arrived_.get()) + queue_here_[place(process)],
            queues(ports_[place(process)]) + queue_there_[place(process)]};
}

transfer port_memory::transfer_with(int process, transfer::kind direction, std::byte* memory, std::size_t bytes) const {
    const bool is_sent = direction == transfer::kind::send;
    transfer made{};
    made.direction = direction;
    made.queue = queues_with(process);
    made.turns = turns(process, is_sent ? turns_of::sends : turns_of::receives);
    made.memory = memory;
    made.bytes = bytes;
    made.ended = ended();
    made.wanted = wanted_.get() + places() + (is_sent ? 0 : ports_.size()) + place(process);
    made.refused = refused_.get() + 2 * place(process);
    return made;
}

std::optional<port_memory::refused_send> port_memory::find_refused() const {
    for (std::size_t process = 0; process < ports_.size(); ++process) {
        const std::uint64_t bytes = detail::load_relaxed(refused_.get() + 2 * process);
        if (bytes != 0)
            return refused_send{static_cast<int>(process), bytes,
                                detail::load_relaxed(refused_.get() + 2 * process + 1)};
    }
    return std::nullopt;
}

// Sends that no receive has taken. Nothing is under way.
void port_memory::tell_of_unread() const {
    for (int process = 0; process < control_.count(); ++process) {
        const queue_memory* const from = queues_with(process).own;
        detail::queue_turns end{};
        std::uint32_t arrived[queue_memory::slots];
        std::uint64_t bytes[queue_memory::slots];
        cuda::check(cudaMemcpy(&end, turns(process, turns_of::receives), sizeof end, cudaMemcpyDefault),
                    "reading a queue");
        cuda::check(cudaMemcpy(arrived, from->arrived, sizeof arrived, cudaMemcpyDefault), "reading a queue");
        cuda::check(cudaMemcpy(bytes, from->send_bytes, sizeof bytes, cudaMemcpyDefault), "reading a queue");
        const std::uint32_t slot = end.next % queue_memory::slots;
        if (arrived[slot] == end.next + 1)
            support::tell(fmt::format("process {}: a send of {} B from process {} was not received when the stream "
                                      "port ended",
                                      own_, bytes[slot], process));
    }
}

std::vector<std::uint32_t> port_memory::read_arrived(int tag) {
    std::vector<std::uint32_t> words(ports_.size() * place(tags_)), counts;
    link_.read_words(words.data(), arrived_.get(), words.size());
    for (std::size_t process = 0; process < ports_.size(); ++process)
        counts.push_back(words[process * place(tags_) + place(tag)]);
    return counts;
}

} // namespace dcuda
