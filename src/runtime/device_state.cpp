#include "runtime/device_state.hpp"

#include "support/wire.hpp"

#include <vector>

namespace dcuda {

using namespace detail;

namespace {

constexpr std::size_t line_words = 32;
constexpr std::size_t ring_packets = std::size_t(ring_capacity) * packets_per_command;
constexpr auto meeting_count = static_cast<std::size_t>(collective::count);

template <class Element>
void clear(const cuda::device_array<Element>& memory, std::size_t count) {
    cuda::check(cudaMemset(memory.get(), 0, count * sizeof(Element)), "clearing device memory");
}

template <class Element>
void upload(Element* target, const Element* source, std::size_t count) {
    cuda::check(cudaMemcpy(target, source, count * sizeof(Element), cudaMemcpyHostToDevice), "writing device memory");
}

} // namespace

device_state::device_state(bootstrap::control& control, const settings& with, int ranks_per_device)
    : control_(control), settings_(with), ranks_(ranks_per_device) {
    const auto ranks = static_cast<std::size_t>(ranks_);
    const auto all_ranks = static_cast<std::size_t>(world_size());
    const auto processes = static_cast<std::size_t>(control_.count());
    const auto windows = static_cast<std::size_t>(settings_.max_windows);
    inbox_ = cuda::allocate<std::uint32_t>(inbox_epochs() + counter_count(), "memory for notifications");
    consumed_ = cuda::allocate<std::uint32_t>(counter_count(), "memory for notifications");
    peers_ = cuda::allocate<peer_view>(processes, "memory for the table of processes");
    waits_ = cuda::allocate<wait_record>(ranks, "memory for the watchdog");
    meetings_ = cuda::allocate<meeting>(meeting_count, "memory for barriers");
    slots_ = cuda::allocate<window_slot>(windows, "memory for the table of windows");
    entries_ = cuda::allocate<window_entry>(windows * all_ranks, "memory for the tables of windows");
    offers_ = cuda::allocate<window_entry>(ranks, "memory for the table of windows");
    words_ = cuda::allocate<std::uint32_t>(5 * line_words, "memory for the run's state");
    ring_ = cuda::allocate_pinned<packet>(ring_packets, "pinned memory for the command ring");
    context_ = cuda::allocate<device_context>(1, "memory for the context");

    fields_.world_size = static_cast<std::uint32_t>(all_ranks);
    fields_.ranks_per_device = static_cast<std::uint32_t>(ranks_);
    fields_.first_rank = static_cast<std::uint32_t>(first_rank());
    fields_.process_index = static_cast<std::uint32_t>(control_.index());
    fields_.process_count = static_cast<std::uint32_t>(processes);
    fields_.tags = static_cast<std::uint32_t>(settings_.tags);
    fields_.max_windows = static_cast<std::uint32_t>(settings_.max_windows);
    fields_.counter_start = settings_.counter_start;
    fields_.wait_timeout_ns = static_cast<std::uint64_t>(settings_.wait_timeout.count());
    fields_.peers = peers_.get();
    fields_.consumed = consumed_.get();
    fields_.waits = waits_.get();
    fields_.meetings = meetings_.get();
    fields_.windows = slots_.get();
    fields_.offers = offers_.get();
    fields_.created = words_.get();
    fields_.reply = words_.get() + line_words;
    fields_.aborted = words_.get() + 2 * line_words;
    fields_.ring = {ring_.get(), words_.get() + 3 * line_words, words_.get() + 4 * line_words};
    share_inbox();
}

void device_state::share_inbox() {
    struct inbox_offer {
        transport::exported_allocation memory;
        std::size_t offset; // of the inbox in its allocation, bytes
    };
    inbox_offer mine{};
    if (control_.count() > 1) {
        const auto memory = transport::find_allocation(inbox_.get());
        support::require(memory.has_value(), error_code::cuda_failure,
                         "the driver does not know the notifications' memory");
        mine = {transport::export_allocation(*memory),
                static_cast<std::size_t>(reinterpret_cast<std::byte*>(inbox_.get()) - memory->base)};
    }
    support::wire_writer message;
    message.put(mine);
    const auto offers = control_.allgather(message.bytes(), "sharing the memory for notifications");

    std::vector<peer_view> peers;
    for (int process = 0; process < control_.count(); ++process) {
        std::uint32_t* inbox = inbox_.get();
        if (process != control_.index()) {
            const auto offer = support::wire_reader(offers[static_cast<std::size_t>(process)]).get<inbox_offer>();
            inbox = reinterpret_cast<std::uint32_t*>(inboxes_.open(process, offer.memory) + offer.offset);
        }
        peers.push_back({inbox + inbox_epochs(), inbox});
    }
    upload(peers_.get(), peers.data(), peers.size());
}

void device_state::reset(void* user_data) {
    clear(inbox_, inbox_epochs() + counter_count());
    clear(consumed_, counter_count());
    if (settings_.counter_start != 0) {
        const std::vector<std::uint32_t> start(counter_count(), settings_.counter_start);
        upload(inbox_.get() + inbox_epochs(), start.data(), start.size());
        upload(consumed_.get(), start.data(), start.size());
    }
    clear(waits_, static_cast<std::size_t>(ranks_));
    clear(meetings_, meeting_count);
    clear(words_, 5 * line_words);
    std::vector<window_slot> slots(static_cast<std::size_t>(settings_.max_windows));
    for (std::size_t i = 0; i < slots.size(); ++i) slots[i].entries = window_entries(static_cast<std::uint32_t>(i));
    upload(slots_.get(), slots.data(), slots.size());
    for (std::size_t i = 0; i < ring_packets; ++i) ring_[i] = packet{};
    fields_.user_data = user_data;
    upload(context_.get(), &fields_, 1);
    cuda::check(cudaDeviceSynchronize(), "preparing the run");
}

} // namespace dcuda
