// SPDX-License-Identifier: BSD-3-Clause
#include "device/device_state.hpp"

#include "support/wire.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

namespace dcuda {

template <>
void detail::this_program_was_compiled_with_headers_of_another_dcuda<detail::fingerprint>() {}

using namespace detail;

namespace {

constexpr std::size_t line_words = 32;
constexpr std::size_t ring_packets = std::size_t(ring_capacity) * packets_per_command;
constexpr std::size_t ring_payload_packets =
    (std::size_t(ring_capacity) * payload_slot_bytes + max_ring_bytes) / sizeof(packet);

template <class Element>
void clear(const cuda::device_array<Element>& memory, std::size_t count) {
    cuda::check(cudaMemset(memory.get(), 0, count * sizeof(Element)), "clearing device memory");
}

template <class Element>
void upload(Element* target, const Element* source, std::size_t count) {
    cuda::check(cudaMemcpy(target, source, count * sizeof(Element), cudaMemcpyHostToDevice), "writing device memory");
}

// Up to this many ranks meet in one word; more stand in about as many rows as a row has ranks.
// PERF: 132 ranks in one row 0.84 us, in rows of 12 1.5 us; 264 in one row 1.14 us, in rows of 22 1.39 us; 528 in one
// row 1.80 us, in rows of 22 1.57 us (H200, 2026-11-21).
constexpr std::uint32_t largest_single_row = 384;

barrier_shape shape_barriers(std::uint32_t ranks, std::uint32_t requested_row) {
    std::uint32_t row_size = ranks;
    if (requested_row != 0) {
        row_size = std::min(requested_row, ranks);
    } else if (ranks > largest_single_row) {
        row_size = static_cast<std::uint32_t>(std::sqrt(static_cast<double>(ranks)));
        while (row_size * row_size < ranks) ++row_size;
    }
    return {ranks, row_size, (ranks + row_size - 1) / row_size};
}

// Most messages have several packets of payload, but a header each.
queue_shape shape_queues(std::uint32_t packets) { return {packets == 0 ? 0 : std::max(8u, packets / 4), packets}; }

// Up to which size notified puts go as messages: what the user says; else one packet for each thread of the lead warp
// where ranks crowd a multiprocessor, and otherwise as large as a start of a rank allows (start_rank).
// PERF: a message has less latency up to 1 KiB, but takes more instructions than a direct put, and the copies in the
// mailbox more of the caches. 1 KiB with both neighbours, direct and as messages, H200, 2026-11-24, us: with 4 ranks
// per multiprocessor 6.4 and 6.0, beside a copy 11.2 and 16.6; with 16 ranks 7.7 and 10.4, and 15.3 and 20.2. Up to
// 384 B messages are better with any number of ranks: 6.1 and 7.6 with 16.
std::uint32_t choose_small_put_bytes(int requested, int ranks) {
    constexpr int crowd = 4;
    if (requested >= 0) return static_cast<std::uint32_t>(requested);
    int multiprocessors = 0;
    cuda::check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, cuda::device_in_use()),
                "asking for the device's multiprocessors");
    return ranks >= crowd * multiprocessors ? 32 * packet_payload_bytes : max_small_put_bytes;
}

// As many partners a rank has a queue of full size for, if all have as many.
constexpr std::size_t usual_partners = 32;

std::size_t packets_of(std::size_t count, std::size_t element_bytes) {
    return (count * element_bytes + sizeof(packet) - 1) / sizeof(packet);
}

} // namespace

device_state::device_state(bootstrap::control& control, const settings& chosen, std::vector<bool> is_remote,
                           std::vector<bool> is_near, bool has_network, int ranks_per_device)
    : control_(control), settings_(chosen), is_remote_(std::move(is_remote)), is_near_(std::move(is_near)),
      ranks_(ranks_per_device) {
    const auto ranks = static_cast<std::size_t>(ranks_);
    const auto all_ranks = static_cast<std::size_t>(world_size());
    const auto processes = static_cast<std::size_t>(control_.count());
    const auto windows = static_cast<std::size_t>(settings_.max_windows);
    fields_.barriers =
        shape_barriers(static_cast<std::uint32_t>(ranks), static_cast<std::uint32_t>(settings_.barrier_row));
    number_tags();
    agree_on_queues();
    const std::size_t partners = fields_.partner_limit;
    fields_.small_put_bytes = std::min(choose_small_put_bytes(settings_.small_put_bytes, ranks_),
                                       fields_.queues.packets * packet_payload_bytes);
    inbox_ = cuda::allocate_zeros<packet>(layout().end, "memory for notifications and messages");
    tag_records_ = cuda::allocate_zeros<tag_record>(counter_count(), "memory for notifications");
    connections_ = cuda::allocate<rank_connection>(ranks * partners, "memory for the tables of connections");
    connection_index_ =
        cuda::allocate_zeros<connection_slot>(ranks * fields_.index_slots, "memory for the tables of connections");
    far_queues_ = cuda::allocate<inbound_queue>(ranks * fields_.far_limit(), "memory for the tables of queues");
    peers_ = cuda::allocate<peer_view>(processes, "memory for the table of processes");
    communicator_tables_ = cuda::allocate_zeros<communicator_table>(ranks, "memory for communicators");
    member_lists_ = cuda::allocate<std::uint32_t>(ranks * exchange_.list_words + all_ranks, "memory for communicators");
    waits_ = cuda::allocate_zeros<wait_record>(ranks, "memory for the watchdog");
    claims_ = cuda::allocate_zeros<block_claims>(ranks, "memory for the parts of blocks");
    collective_barriers_ = cuda::allocate_zeros<collective_barrier>(collective::count, "memory for barriers");
    slots_ = cuda::allocate<window_slot>(windows, "memory for the table of windows");
    entries_ = cuda::allocate<window_entry>(windows * all_ranks, "memory for the tables of windows");
    exports_ = cuda::allocate<window_entry>(ranks, "memory for the table of windows");
    flushed_ = cuda::allocate_zeros<std::uint32_t>(ranks, "memory for the network");
    results_ = cuda::allocate_zeros<std::uint64_t>(ranks, "memory for the network");
    answered_ = cuda::allocate_zeros<std::uint32_t>(ranks, "memory for the network");
    met_ = cuda::allocate_zeros<std::uint32_t>(collective::barriers, "memory for the network");
    created_ = cuda::allocate_zeros<std::uint32_t>(ranks, "memory for the table of windows");
    replies_ = cuda::allocate_zeros<std::uint32_t>(ranks, "memory for the table of windows");
    words_ = cuda::allocate_zeros<std::uint32_t>(3 * line_words, "memory for the run's state");
    ring_ = cuda::allocate_pinned<packet>(ring_packets + (has_network ? ring_payload_packets : 0),
                                          "pinned memory for the command ring");
    context_ = cuda::allocate<kernel_context>(1, "memory for the context");

    fields_.ranks_per_device = static_cast<std::uint32_t>(ranks_);
    fields_.process_index = static_cast<std::uint32_t>(control_.index());
    fields_.process_count = static_cast<std::uint32_t>(processes);
    fields_.max_windows = static_cast<std::uint32_t>(settings_.max_windows);
    fields_.counter_start = settings_.counter_start;
    fields_.wait_timeout_ns = static_cast<std::uint64_t>(settings_.wait_timeout.count());
    fields_.network = {has_network ? 1u : 0u, static_cast<std::uint32_t>(settings_.network_inline_bytes),
                       flushed_.get(),        results_.get(),
                       answered_.get(),       met_.get()};
    fields_.peers = peers_.get();
    fields_.tag_records = tag_records_.get();
    fields_.connections = connections_.get();
    fields_.connection_index = connection_index_.get();
    fields_.far_queues = far_queues_.get();
    fields_.communicator_tables = communicator_tables_.get();
    fields_.communicators[static_cast<std::size_t>(world)] = {static_cast<std::uint32_t>(all_ranks), 0,
                                                              fields_.process_count};
    fields_.communicators[static_cast<std::size_t>(device)] = {fields_.ranks_per_device,
                                                               static_cast<std::uint32_t>(first_rank()), 1};
    fields_.waits = waits_.get();
    fields_.collective_barriers = collective_barriers_.get();
    fields_.windows = slots_.get();
    fields_.exports = exports_.get();
    fields_.created = created_.get();
    fields_.replies = replies_.get();
    fields_.aborted = words_.get();
    fields_.ring = {ring_.get(), reinterpret_cast<std::uint64_t*>(words_.get() + line_words),
                    words_.get() + 2 * line_words};
    describe_communicators();
    share_inbox();
}

void device_state::number_tags() {
    const auto all = static_cast<std::uint32_t>(settings_.tags),
               matched = static_cast<std::uint32_t>(settings_.match_sources);
    const std::uint64_t numbers = all + std::uint64_t{matched} * static_cast<std::uint64_t>(world_size());
    support::require(numbers <= max_tags, error_code::invalid_argument,
                     "{} tags, of which {} are matched by source (DCUDA_MATCH_SOURCES), take {} numbers with {} ranks: "
                     "there are {}",
                     all, matched, numbers, world_size(), max_tags);
    fields_.tags = {all, all - matched, static_cast<std::uint32_t>(world_size())};
}

// How many partners a rank has queues from and to, how many queues the device has, and of what size. What the user
// says; else so that queues take at most 1/64 of the smallest device's memory, and the tables of partners 1/128; but
// there are as many as usual_partners for each rank.
void device_state::agree_on_queues() {
    std::size_t free_bytes = 0, total_bytes = 0;
    cuda::check(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for the device's memory");
#if DCUDA_BACKEND_CPU
    total_bytes /= static_cast<std::size_t>(control_.count()); // all processes may be of one host
#endif
    const auto ranks = static_cast<std::size_t>(ranks_);
    std::size_t partners = std::min<std::size_t>(most_partners, static_cast<std::size_t>(world_size()));
    const auto table_bytes = [&] {
        return ranks * partners *
               (sizeof(rank_connection) + sizeof(inbound_queue) + 2 * sizeof(connection_slot) +
                2 * sizeof(std::uint32_t));
    };
    while (partners > near_queues && table_bytes() > total_bytes / 128)
        partners = std::max<std::size_t>(partners / 2, near_queues);

    std::uint32_t packets =
        settings_.mailbox_packets >= 0 ? static_cast<std::uint32_t>(settings_.mailbox_packets) : 4096;
    const std::size_t fewest = ranks * std::min<std::size_t>(partners, usual_partners);
    const auto queue_bytes = [&] { return std::max<std::size_t>(1, shape_queues(packets).size()) * sizeof(packet); };
    while (settings_.mailbox_packets < 0 && packets > 64 && fewest * queue_bytes() > total_bytes / 64) packets /= 2;
    std::size_t queues = std::clamp(total_bytes / 64 / queue_bytes(), fewest, ranks * partners);
    if (settings_.mailbox_queues >= 0) queues = static_cast<std::size_t>(settings_.mailbox_queues);
    queues = std::min(queues, (std::size_t{1} << 32) / std::max<std::size_t>(1, shape_queues(packets).size()) - 1);

    struct proposal {
        std::uint32_t partners, packets, queues;
        std::uint64_t bytes;
    } least{static_cast<std::uint32_t>(partners), packets, packets == 0 ? 0 : static_cast<std::uint32_t>(queues),
            total_bytes};
    support::wire_writer message;
    message.put(least);
    for (const bootstrap::blob& blob : control_.allgather(message.bytes(), "agreeing on the mailboxes")) {
        const auto theirs = support::wire_reader(blob).get<proposal>();
        least = {std::min(least.partners, theirs.partners), std::min(least.packets, theirs.packets),
                 std::min(least.queues, theirs.queues), std::min(least.bytes, theirs.bytes)};
    }
    fields_.partner_limit = least.partners;
    fields_.index_slots = std::bit_ceil(2 * least.partners);
    fields_.queues = shape_queues(least.packets);
    fields_.queue_count = least.queues;
    size_exchanges(least.bytes);
}

// How much memory ranks have for communicators: at most about 1/340 of the device's for the packets of all ranks and
// 1/256 for lists, 1/512 for bounce buffers; but enough for communicators of all ranks.
void device_state::size_exchanges(std::size_t device_bytes) {
#if DCUDA_BACKEND_CPU
    device_bytes = std::min(device_bytes, std::size_t{4} << 30); // it is the host's memory
#endif
    constexpr std::size_t most_packets = 8192, most_block_packets = 512;
    const auto ranks = static_cast<std::uint32_t>(ranks_), all_ranks = static_cast<std::uint32_t>(world_size());
    exchange_shape all{};
    all.devices = static_cast<std::uint32_t>(control_.count());
    all.width = std::bit_ceil(ranks);
    all.rows = (ranks + exchange_row - 1) / exchange_row;
    const std::size_t least =
        2 * unit_packets * std::max<std::size_t>(all.positions(), std::min(most_by_number, all_ranks));
    const std::size_t each = device_bytes / ranks / 1024 / sizeof(packet);
    const auto even = [](std::size_t packets) { return static_cast<std::uint32_t>((packets + 3) / 4 * 4); };
    exchange_memory& memory = exchange_;
    memory.fixed_packets = even(std::clamp(each / fixed_communicators, least, std::max(least, most_packets)));
    const std::size_t least_block = (least + pool_blocks / 8 - 1) / (pool_blocks / 8);
    memory.block_packets =
        even(std::clamp(2 * each / pool_blocks, least_block, std::max(least_block, most_block_packets)));
    // Of communicators of all ranks in any order; of plans; and of one plan of a rank that is alone on its device, and
    // serves all others.
    constexpr std::size_t least_list = 4096, plan_words = 80 * sizeof(exchange_target) / sizeof(std::uint32_t);
    constexpr std::size_t target_words = sizeof(exchange_target) / sizeof(std::uint32_t);
    const std::size_t usual_list = (3 + target_words) * std::size_t(all_ranks) + max_communicators * plan_words;
    const std::size_t list_bytes = device_bytes / ranks / 256;
    memory.list_words = static_cast<std::uint32_t>(
        std::clamp(list_bytes / sizeof(std::uint32_t), least_list, std::max(least_list, usual_list)) / 2 * 2);
    // Of a unit at least for each member in each half, of communicators up to that size.
    constexpr std::size_t most_bounce = std::size_t{1} << 16;
    const std::size_t least_bounce = 2 * unit_packets * std::min(all_ranks, most_in_bounce);
    memory.bounce_packets = even(std::clamp(2 * each, least_bounce, std::max(least_bounce, most_bounce)));
    memory.bounce_from = static_cast<std::uint32_t>(settings_.bounce_bytes);
    memory.leaders_from = static_cast<std::uint32_t>(settings_.leader_members);
    const inbox_layout at = layout();
    memory.entries = static_cast<std::uint32_t>(at.entries - at.barriers);
    memory.slots = static_cast<std::uint32_t>(at.slots - at.barriers);
    memory.pool = static_cast<std::uint32_t>(at.pool - at.slots);
    memory.bounce = static_cast<std::uint32_t>(at.bounce - at.barriers);
}

// What all ranks know of the communicators that exist in every run.
void device_state::describe_communicators() {
    std::vector<int> near{control_.index()};
    for (int process = 0; process < control_.count(); ++process)
        if (is_near_[static_cast<std::size_t>(process)]) near.push_back(process);
    std::sort(near.begin(), near.end());
    const auto before = std::find(near.begin(), near.end(), control_.index()) - near.begin();
    const bool is_regular = near.back() - near.front() + 1 == static_cast<int>(near.size());
    const auto describe = [&](communicator comm, std::uint32_t size, std::uint32_t number, std::uint32_t first) {
        communicator_record& record = fixed_[static_cast<std::size_t>(comm)];
        record.size = size;
        record.number = number;
        record.first_rank = first;
        record.stride = 1;
        record.slots = static_cast<std::uint32_t>(comm) * fields_.ranks_per_device * exchange_.fixed_packets;
        record.slots_stride = record.slots_packets = exchange_.fixed_packets;
        record.sequence = settings_.counter_start;
    };
    const std::uint32_t ranks = fields_.ranks_per_device;
    const auto first = static_cast<std::uint32_t>(first_rank());
    describe(world, static_cast<std::uint32_t>(world_size()), first, 0);
    describe(device, ranks, 0, first);
    describe(node, static_cast<std::uint32_t>(near.size()) * ranks, static_cast<std::uint32_t>(before) * ranks,
             static_cast<std::uint32_t>(near.front()) * ranks);
    if (is_regular) return;
    std::vector<std::uint32_t> members;
    for (const int process : near)
        for (std::uint32_t rank = 0; rank < ranks; ++rank)
            members.push_back(static_cast<std::uint32_t>(process) * ranks + rank);
    std::uint32_t* const list = member_lists_.get() + std::size_t(ranks) * exchange_.list_words;
    upload(list, members.data(), members.size());
    communicator_record& record = fixed_[static_cast<std::size_t>(node)];
    record.members = record.by_process = list;
}

device_state::inbox_layout device_state::layout() const {
    const auto ranks = static_cast<std::size_t>(ranks_);
    const std::size_t barrier_words = std::size_t(collective::barriers) * 2 * fields_.barriers.words() * barrier_line;
    const std::size_t partner_words = packets_of(ranks * fields_.partner_limit, sizeof(std::uint32_t));
    inbox_layout at{};
    at.status = at.barriers + packets_of(barrier_words, sizeof(std::uint64_t));
    at.places = at.status + ranks;
    at.claimed = at.places + partner_words;
    at.credits = at.claimed + line_words * sizeof(std::uint32_t) / sizeof(packet);
    at.counters = at.credits + partner_words;
    at.queues = at.counters + packets_of(counter_count(), sizeof(std::uint32_t));
    at.entries = at.queues + std::size_t(fields_.queue_count) * fields_.queues.size();
    at.slots = at.entries + packets_of(static_cast<std::size_t>(world_size()), sizeof(split_entry));
    at.pool = at.slots + ranks * fixed_communicators * exchange_.fixed_packets;
    at.bounce = at.pool + ranks * pool_blocks * exchange_.block_packets;
    at.end = at.bounce + ranks * exchange_.bounce_packets;
    return at;
}

std::vector<window_entry> device_state::bounce_buffers() const {
    std::vector<window_entry> buffers;
    packet* const all = inbox_.get() + layout().bounce;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks_); ++rank) {
        auto* const begin = reinterpret_cast<std::byte*>(all + rank * exchange_.bounce_packets);
        buffers.push_back({begin, exchange_.bounce_packets * sizeof(packet), begin});
    }
    return buffers;
}

// As they are at the start of a run: ranks are in no others, and nothing has been exchanged.
void device_state::open_communicators() {
    struct rank_part { // of each table, from its fixed communicators, or from its last words on
        communicator_record fixed[fixed_communicators];
        exchange_memory memory;
        std::uint32_t* lists;
    };
    std::vector<rank_part> parts(static_cast<std::size_t>(ranks_));
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
        std::copy(std::begin(fixed_), std::end(fixed_), parts[rank].fixed);
        for (communicator_record& record : parts[rank].fixed) record.number += static_cast<std::uint32_t>(rank);
        parts[rank].memory = exchange_;
        parts[rank].lists = member_lists_.get() + rank * exchange_.list_words;
    }
    const auto write = [&](std::size_t offset, const void* source, std::size_t bytes) {
        cuda::check(cudaMemcpy2D(reinterpret_cast<std::byte*>(communicator_tables_.get()) + offset,
                                 sizeof(communicator_table), source, sizeof(rank_part), bytes, parts.size(),
                                 cudaMemcpyHostToDevice),
                    "writing the communicators of all runs");
    };
    write(offsetof(communicator_table, records), &parts[0].fixed, sizeof parts[0].fixed);
    write(offsetof(communicator_table, memory), &parts[0].memory, sizeof parts[0].memory);
    write(offsetof(communicator_table, lists), &parts[0].lists, sizeof parts[0].lists);
}

void device_state::share_inbox() {
    struct exported_inbox {
        transport::exported_allocation memory;
        std::size_t offset; // of the inbox in its allocation, bytes
        std::uint64_t* barriers;
        std::uint64_t remote; // as in peer_view
    };
    const inbox_layout at = layout();
    exported_inbox own{};
    own.barriers = reinterpret_cast<std::uint64_t*>(inbox_.get() + at.barriers);
    for (int process = 0; process < std::min(control_.count(), static_cast<int>(exchange_processes)); ++process)
        if (is_remote(process)) own.remote |= std::uint64_t{1} << process;
    if (is_mapped()) {
        const auto memory = transport::find_allocation(inbox_.get());
        support::require(memory.has_value(), error_code::cuda_failure,
                         "the driver does not know the notifications' memory");
        own.memory = transport::export_allocation(*memory);
        own.offset = static_cast<std::size_t>(reinterpret_cast<std::byte*>(inbox_.get()) - memory->base);
    }
    support::wire_writer message;
    message.put(own);
    const auto exports = control_.allgather(message.bytes(), "sharing the memory for notifications");

    std::vector<peer_view> peers;
    for (int process = 0; process < control_.count(); ++process) {
        const auto offer = support::wire_reader(exports[static_cast<std::size_t>(process)]).get<exported_inbox>();
        if (is_remote(process)) {
            peer_view& far = peers.emplace_back();
            far.barriers = offer.barriers;
            far.remote = offer.remote;
            continue;
        }
        packet* inbox = inbox_.get();
        if (process != control_.index())
            inbox = reinterpret_cast<packet*>(inboxes_.open(process, offer.memory) + offer.offset);
        const auto words = [&](std::size_t part) { return reinterpret_cast<std::uint32_t*>(inbox + part); };
        peers.push_back({words(at.counters), reinterpret_cast<std::uint64_t*>(inbox + at.barriers),
                         reinterpret_cast<mailbox_status*>(inbox + at.status), inbox + at.queues, words(at.claimed),
                         words(at.places), words(at.credits), offer.remote});
        if (process == control_.index()) own_inbox_ = peers.back();
    }
    upload(peers_.get(), peers.data(), peers.size());
    choose_bounces(peers);
}

// From how many bytes on arrays of the fixed communicators go through bounce buffers.
void device_state::choose_bounces(const std::vector<peer_view>& peers) {
    std::uint64_t all = 0, near = 0;
    for (std::size_t process = 0; process < std::min<std::size_t>(peers.size(), exchange_processes); ++process) {
        const std::uint64_t bit = std::uint64_t{1} << process;
        all |= bit;
        if (is_near_[process] || process == static_cast<std::size_t>(control_.index())) near |= bit;
    }
    // `processes`: that have members, if they are several.
    const auto choose = [&](communicator comm, std::uint64_t processes) {
        communicator_record& record = fixed_[static_cast<std::size_t>(comm)];
        exchange_shape shape{};
        shape.devices = static_cast<std::uint32_t>(std::popcount(processes));
        shape.width = std::bit_ceil(fields_.ranks_per_device);
        for (std::uint64_t left = processes; left != 0; left &= left - 1)
            if ((peers[static_cast<std::size_t>(std::countr_zero(left))].remote & processes) != 0)
                shape.spans_network = 1;
        record.bounce_from = bounce_from_of(shape, record.size, exchange_.bounce_from);
    };
    choose(world, all);
    choose(device, 0);
    choose(node, near);
}

// The words of all barriers: as if each had been filled so often.
void device_state::fill_barriers(std::uint32_t fills, std::vector<std::uint64_t>& words) const {
    const auto [ranks, row_size, rows] = fields_.barriers;
    const auto processes = static_cast<std::uint32_t>(control_.count());
    auto* word = words.data();
    const auto put = [&](std::uint32_t members) {
        *word = barrier_word(fills * members, fills);
        word += barrier_line;
    };
    for (std::uint32_t kind = 0; kind < 2 * collective::barriers; ++kind) {
        for (std::uint32_t row = 0; row < rows; ++row) put(row + 1 == rows ? ranks - row * row_size : row_size);
        for (std::uint32_t column = 0; column < row_size; ++column) put(rows);
        put(rows);
        for (std::uint32_t row = 0; row < rows; ++row) put(processes);
    }
}

// Counters and positions that do not start from 0: tests of wrap-around.
void device_state::start_from(std::uint32_t start) {
    const inbox_layout at = layout();
    std::vector<std::uint64_t> barriers((at.status - at.barriers) * 2);
    fill_barriers(start, barriers);
    upload(reinterpret_cast<std::uint64_t*>(inbox_.get() + at.barriers), barriers.data(), barriers.size());
    const std::vector<mailbox_status> status(static_cast<std::size_t>(ranks_), mailbox_status{0, 0, start, start});
    upload(reinterpret_cast<mailbox_status*>(inbox_.get() + at.status), status.data(), status.size());
    std::vector<std::uint32_t> words((at.entries - at.credits) * 4, start); // no packet has that number at first
    std::fill_n(words.begin(), (at.counters - at.credits) * 4, (start & 0xffff) * 0x10001); // both halves of credits
    upload(reinterpret_cast<std::uint32_t*>(inbox_.get() + at.credits), words.data(), words.size());
    const std::vector<tag_record> tags(counter_count(), {start, start});
    upload(tag_records_.get(), tags.data(), tags.size());
    const std::vector<collective_barrier> collective_barriers(collective::count, collective_barrier{0, start});
    upload(collective_barriers_.get(), collective_barriers.data(), collective_barriers.size());
    const std::vector<std::uint32_t> answers(static_cast<std::size_t>(ranks_), start);
    upload(flushed_.get(), answers.data(), answers.size());
    upload(answered_.get(), answers.data(), answers.size());
    const std::uint64_t tail = start;
    upload(fields_.ring.tail, &tail, 1);
    upload(fields_.ring.head, &start, 1);
}

// All slots are free but those of these windows.
void device_state::open_windows(const std::vector<host_window>& windows) {
    std::vector<window_slot> slots(static_cast<std::size_t>(settings_.max_windows));
    for (std::size_t i = 0; i < slots.size(); ++i) slots[i].entries = window_entries(static_cast<std::uint32_t>(i));
    std::vector<window_entry> by_rank;
    for (const host_window& each : windows) {
        window_slot& slot = slots.at(each.slot());
        slot.id = each.id;
        slot.comm = static_cast<std::uint32_t>(world);
        slot.rank_count = static_cast<std::uint32_t>(world_size());
        slot.taken = 1;
        by_rank.clear();
        for (const window_entry& entry : each.entries) by_rank.insert(by_rank.end(), fields_.ranks_per_device, entry);
        upload(slot.entries, by_rank.data(), by_rank.size());
    }
    upload(slots_.get(), slots.data(), slots.size());
}

// What a run has left in memory that is to hold zeros at the start of one.
void device_state::clear_last_run() {
    const inbox_layout at = layout();
    std::uint32_t claimed = 0; // queues of the last run: others have not changed
    cuda::check(cudaMemcpy(&claimed, inbox_.get() + at.claimed, sizeof claimed, cudaMemcpyDeviceToHost),
                "reading how many queues are in use");
    clear(inbox_, at.queues + std::size_t(std::min(claimed, fields_.queue_count)) * fields_.queues.size());
    clear(connection_index_, static_cast<std::size_t>(ranks_) * fields_.index_slots);
    clear(tag_records_, counter_count());
    cuda::check(cudaMemset(inbox_.get() + at.slots, 0, (at.pool - at.slots) * sizeof(packet)),
                "clearing the slots of communicators"); // those in the pool split clears
    clear(communicator_tables_, static_cast<std::size_t>(ranks_));
    clear(waits_, static_cast<std::size_t>(ranks_));
    clear(claims_, static_cast<std::size_t>(ranks_ / ranks_per_block_));
    clear(collective_barriers_, collective::count);
    clear(created_, static_cast<std::size_t>(ranks_));
    clear(replies_, static_cast<std::size_t>(ranks_));
    clear(words_, 3 * line_words);
    clear(flushed_, static_cast<std::size_t>(ranks_));
    clear(results_, static_cast<std::size_t>(ranks_));
    clear(answered_, static_cast<std::size_t>(ranks_));
    clear(met_, collective::barriers);
}

void device_state::reset(void* user_data, const std::vector<host_window>& windows, int ranks_per_block,
                         const staging_shape& staging, const profiler_view& profiler) {
    if (has_run_) clear_last_run(); // new memory holds zeros
    has_run_ = true;
    open_communicators();
    if (settings_.counter_start != 0) start_from(settings_.counter_start);
    open_windows(windows);
    // No command has this number at first.
    for (std::size_t i = 0; i < ring_packets; ++i) ring_[i] = packet{{}, settings_.counter_start};
    fields_.user_data = user_data;
    fields_.staging = staging;
    fields_.profiler = profiler;
    ranks_per_block_ = ranks_per_block;
    const kernel_context context{fields_, static_cast<std::uint32_t>(ranks_per_block), claims_.get()};
    upload(context_.get(), &context, 1);
    cuda::check(cudaDeviceSynchronize(), "preparing the run");
}

} // namespace dcuda
