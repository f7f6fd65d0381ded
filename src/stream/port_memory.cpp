// SPDX-License-Identifier: BSD-3-Clause
#include "stream/port_memory.hpp"

#include "dcuda/detail/protocol/memory.hpp"
#include "support/losses.hpp"
#include "support/wire.hpp"

#include <algorithm>

namespace dcuda {

namespace {

// A process, for the others.
struct port_offer {
    transport::exported_allocation memory{};
    std::uint64_t offset = 0; // of arrived_, bytes
    int tags = 0;
    bool has_remote = false; // it reaches some process over a network only
};

template <class Element>
void clear(Element* memory, std::size_t count) {
    cuda::check(cudaMemset(memory, 0, count * sizeof(Element)), "clearing a stream port's memory");
}

} // namespace

port_memory::port_memory(bootstrap::control& control, const std::vector<bool>& is_remote, int tags)
    : control_(control), own_(control.index()), tags_(tags), device_(cuda::device_in_use()), ports_(is_remote.size()) {
    constexpr const char* subject = "memory of a stream port";
    arrived_ = cuda::allocate<std::uint32_t>(port_words(), subject);
    consumed_ = cuda::allocate<std::uint32_t>(places(), subject);
    ended_ = cuda::allocate<std::uint32_t>(1, subject);
    result_ = cuda::allocate_pinned<std::uint32_t>(2, subject);
    const std::size_t waits = places() + 2 * ports_.size(), refusals = 2 * ports_.size();
    wanted_ = cuda::allocate_pinned<std::uint64_t>(waits, subject);
    refused_ = cuda::allocate_pinned<std::uint64_t>(refusals, subject);
    clear(arrived_.get(), port_words());
    clear(consumed_.get(), places());
    clear(ended_.get(), 1);
    cuda::check(cudaDeviceSynchronize(), "clearing a stream port's memory");
    std::fill_n(result_.get(), 2, 0u);
    std::fill_n(wanted_.get(), waits, 0u);
    std::fill_n(refused_.get(), refusals, 0u);

    port_offer own;
    own.tags = tags_;
    own.has_remote = std::find(is_remote.begin(), is_remote.end(), true) != is_remote.end();
    if (!own.has_remote && control_.count() > 1) {
        const auto memory = transport::find_allocation(arrived_.get());
        support::require(memory.has_value(), error_code::cuda_failure,
                         "the driver does not know a stream port's memory");
        own.offset = static_cast<std::uint64_t>(reinterpret_cast<std::byte*>(arrived_.get()) - memory->base);
        own.memory = transport::export_allocation(*memory);
    }
    support::wire_writer message;
    message.put(own);
    const auto offers = control_.allgather(message.bytes(), "making a stream port");
    for (int process = 0; process < control_.count(); ++process) {
        const auto offer = support::wire_reader(offers[place(process)]).get<port_offer>();
        support::require(
            !offer.has_remote, error_code::no_path,
            "stream_port: process {} reaches some process over a network only, and streams need GPUs that make atomic "
            "operations in each other's memory (NVLink); ranks communicate over networks (runtime::run)",
            process);
        support::require(offer.tags == tags_, error_code::invalid_argument,
                         "stream_port: process {} makes a port of {} tags, and process {} one of {}", own_, tags_,
                         process, offer.tags);
        ports_[place(process)] =
            process == own_ ? arrived_.get()
                            : reinterpret_cast<std::uint32_t*>(mappings_.open(process, offer.memory) + offer.offset);
    }
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
    made.doorbell = doorbell(own_);
    made.ended = ended();
    made.wanted = wanted_.get() + kept;
    return made;
}

std::uint64_t port_memory::tell_of_wait(const wait_trigger& wait) const {
    const std::uint64_t told = std::uint64_t{wait.count} << 32 | result_[1];
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
        wait.count = static_cast<std::uint32_t>(wanted >> 32);
        wait.expected = static_cast<std::uint32_t>(wanted);
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

std::size_t port_memory::port_words() const {
    const std::size_t before = ports_.size() * place(tags_) + 1,
                      aligned = alignof(queue_memory) / sizeof(std::uint32_t);
    return (before + aligned - 1) / aligned * aligned + ports_.size() * sizeof(queue_memory) / sizeof(std::uint32_t);
}

queue_memory* port_memory::queues(std::uint32_t* port) const {
    return reinterpret_cast<queue_memory*>(port + port_words()) - ports_.size();
}

transfer port_memory::transfer_with(int process, transfer::kind direction, std::byte* memory, std::size_t bytes) const {
    transfer made{};
    made.direction = direction;
    made.queue = {queues(arrived_.get()) + process, queues(ports_[place(process)]) + own_};
    made.memory = memory;
    made.bytes = bytes;
    made.ended = ended();
    made.wanted = wanted_.get() + places() + (direction == transfer::kind::send ? 0 : ports_.size()) + place(process);
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
        const queue_memory* const from = queues(arrived_.get()) + process;
        queue_end end{};
        std::uint32_t arrived[queue_memory::slots];
        std::uint64_t bytes[queue_memory::slots];
        cuda::check(cudaMemcpy(&end, &from->receiving, sizeof end, cudaMemcpyDefault), "reading a queue");
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
